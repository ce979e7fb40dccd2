// The rows of a table: sections 7 to 7.2 of docs/format.md.
import { join } from "node:path";
import { parquetColumns } from "./arrow.js";
import { check, read } from "./documents.js";
import { compared, encoded, fitted, grouped, shown, typeOf, valueOf } from "./values.js";

/** Field ids of the hidden columns: the kind of a row, and for field N, HAS + N: whether a partial row has it (7.1). */
const KIND = 2 ** 30;
const HAS = 2 ** 30;
const [WHOLE, PARTIAL, DELETE] = [0, 1, 2];

/** Returns the fields of a table and its rows, in key order, merged and without the hidden ones. */
export function rowsOf(folder, state) {
    check(!state.dropped, "the table is dropped", "unusable");
    const { row_key, sort_key, values } = state.schemas.at(-1);
    const fields = [...row_key, ...sort_key, ...values].map((field) => ({ ...field, type: typeOf(field.type) }));
    const schema = { fields, rowKey: row_key.length, keys: row_key.length + sort_key.length };
    const files = new Set(state.partitions.flatMap((partition) => state.filesOf(partition)));
    const stored = new Map([...files].map((id) => [id, rowsOfFile(folder, state.files.get(id), schema)]));
    const rows = state.partitions.flatMap((partition, at) => {
        const [low, high] = [state.boundaries[at - 1] ?? "", state.boundaries[at] ?? AFTER_ALL_KEYS];
        // Rows of a file outside of the partition do not count: they may have been superseded.
        const arrived = state.filesOf(partition).flatMap((id) => stored.get(id));
        const live = arrived.filter(({ key }) => low <= key && key < high);
        return merged(live, state.merge ?? { mode: "keep_all" }, schema);
    });
    return { fields, rows: rows.filter(filterOf(state, fields)) };
}

/** Is above every text of hexadecimal digits, as which keys are compared. */
const AFTER_ALL_KEYS = "g";

/** Returns the rows of a data file as the schema has them; columns are found by their field ids (7). */
function rowsOfFile(folder, file, { fields, rowKey, keys }) {
    const path = join(folder, file.job, `${file.id}.parquet`);
    const columns = parquetColumns(read(path, file.digest), file.rows, path);
    const column = (id) => columns.get(id) ?? Array(file.rows).fill(null);
    const stored = fields.map(({ id, type }) => column(id).map((value) => valueOf(type, value)));
    const has = columns.has(KIND) ? fields.map(({ id }) => column(HAS + id)) : [];
    return column(KIND).map((kind, at) => {
        const values = stored.map((one) => one[at]);
        const encodings = fields.slice(0, keys).map(({ type }, field) => encoded(type, values[field]));
        return {
            key: encodings.slice(0, rowKey).join(""),
            order: encodings.slice(rowKey).join(""),
            values,
            kind: kind ?? WHOLE,
            has: has.map((one) => one[at] === true),
        };
    });
}

// -- merged rows: section 7.1 ---------------------------------------------------------------------------------------

/** Returns the rows of a partition, which come in the order of arrival, merged and in key order. */
function merged(rows, { mode, by, functions }, schema) {
    const byRowKey = mode === "latest" || mode === "first";
    const mergeKey = (row) => (byRowKey ? row.key : `${row.key}/${row.order}`);
    const inOrder = ([a], [b]) => Number(a > b) - Number(a < b);
    const groups = [...grouped(rows, mergeKey)].sort(inOrder).map(([, group]) => group);
    switch (mode) {
        case "keep_all":
            return groups.flat();
        case "first":
            return groups.map(([row]) => row);
        case "latest":
            return groups.flatMap((group) => latest(group, by, schema));
        case "aggregate":
            return groups.map((group) => aggregated(group, functions, schema));
    }
    return check(false, `the merge mode ${mode}`, "unsupported");
}

/** Returns the row that whole rows, partial rows and deletes of one key leave, in a list, which is empty if none. */
function latest(group, by, { keys }) {
    if (by === "sort_key") {
        group.sort((a, b) => compared(a.order, b.order)); // keeps the order of arrival where these are equal
    }
    let last = null;
    for (const row of group) {
        const older = last?.values ?? [];
        const isOwn = (at) => at < keys || row.kind !== PARTIAL || row.has[at];
        const values = row.values.map((value, at) => (isOwn(at) ? value : (older[at] ?? null)));
        last = row.kind === DELETE ? null : { ...row, values };
    }
    return last === null ? [] : [last];
}

/** Returns one row with the function of each value field. */
function aggregated(group, functions, { fields, keys }) {
    const values = fields.map(({ name, type }, at) =>
        at < keys ? group[0].values[at] : aggregate(functions[name], type, group.map((row) => row.values[at])),
    );
    return { ...group[0], values };
}

function aggregate(name, type, values) {
    const given = values.filter((value) => value !== null);
    check(Object.hasOwn(AGGREGATES, name), `the aggregate function ${name}`, "unsupported");
    return given.length === 0 ? null : AGGREGATES[name](given, type);
}

const sum = (given, type) => fitted(type, given.reduce((a, b) => a + b));
const extreme = (sign) => (given) => {
    const numbers = given.filter((value) => !Number.isNaN(value));
    return numbers.length === 0 ? NaN : numbers.reduce((a, b) => (sign * compared(b, a) > 0 ? b : a));
};
const only = (given) => (check(given.length === 1, "a union of sketches", "unsupported"), given[0]);

/** Returns a text by which two values are the same: -0.0 is not 0.0, and all NaN are one. */
const identity = (type, value) => JSON.stringify(shown(type, value));

/** Returns the aggregate function of the values of each key of maps, keys ascending. */
const byKey = (name) => (maps, { item: { members: [keyType, valueType] } }) =>
    [...grouped(maps.flat(), ([key]) => identity(keyType, key)).values()]
        .map((pairs) => [pairs[0][0], aggregate(name, valueType, pairs.map(([, value]) => value))])
        .sort(([a], [b]) => compared(a, b));

/** Functions over at least one value that is not null, in the order of arrival (7.1.1). */
const AGGREGATES = {
    sum,
    count: sum,
    product: (given, type) => fitted(type, given.reduce((a, b) => a * b)),
    min: extreme(-1),
    max: extreme(1),
    first: (given) => given[0],
    last: (given) => given.at(-1),
    any: (given) => given.includes(true),
    all: (given) => !given.includes(false),
    or: (given) => given.reduce((a, b) => a | b),
    mean: (given, { members }) => members.map((type, at) => aggregate("sum", type, given.map((one) => one[at]))),
    list: (given) => given.flat(),
    set: (given, { item }) =>
        [...grouped(given.flat(), (value) => identity(item, value)).values()].map(([value]) => value).sort(compared),
    join: (given) => given.join(","),
    map_sum: byKey("sum"),
    map_min: byKey("min"),
    map_max: byKey("max"),
    hll: only,
    quantiles: only,
};

// -- hidden rows: section 7.2 ---------------------------------------------------------------------------------------

/** A comparison of a column with a constant; such ones, joined by AND, are the SQL that this reader evaluates (1.3). */
const CONDITION = new RegExp([
    /\s*(?:(?<plain>\w+)|"(?<quoted>\w+)")\s*(?<sign>=|<>|<=|>=|<|>)/.source,
    /\s*(?:(?<number>-?\d+)|'(?<text>[^']*)')\s*(?:and\s|$)/.source,
].join(""), "giy");

/** The orders of a value to a constant for which a comparison is true. */
const ORDERS = { "=": [0], "<>": [-1, 1], "<": [-1], "<=": [-1, 0], ">": [1], ">=": [0, 1] };

/** Returns a function that says whether the filter and the age-off of a table show a row. */
function filterOf({ filter, age_off_cut_us: cut }, fields) {
    const { predicate, age_field, unit } = filter ?? { predicate: "", age_field: 0 };
    const found = [...predicate.matchAll(CONDITION)];
    check(found.map(([text]) => text).join("") === predicate, `the predicate ${predicate}`, "unsupported");
    const conditions = found.map(({ groups: { plain, quoted, sign, number, text } }) => {
        const column = fields.findIndex(({ name }) => name === (plain ?? quoted));
        const types = number === undefined ? /^string$/ : /^u?int\d+$/;
        check(types.test(fields[column]?.type.name), `the predicate ${predicate}`, "unsupported");
        return { column, orders: ORDERS[sign], constant: text ?? BigInt(number) };
    });
    const aged = cut > 0 ? fields.findIndex(({ id }) => id === age_field) : -1;
    const isOld = (value) => value !== null && isBefore(fields[aged].type, unit, BigInt(cut), value);
    const isTrue = (value, { orders, constant }) => value !== null && orders.includes(compared(value, constant));
    return ({ values }) =>
        !(aged >= 0 && isOld(values[aged])) && conditions.every((one) => isTrue(values[one.column], one));
}

function isBefore(type, unit, cut, value) {
    if (type.name === "date32") { return value < cut / 86_400_000_000n; }
    const perSecond = { s: 1n, ms: 1_000n, us: 1_000_000n, ns: 1_000_000_000n };
    return value * 1_000_000n < cut * perSecond[type.name === "timestamp" ? type.words[0] : unit];
}
