// Types of fields, their values, and keys: sections 5, 9 and 13 of docs/format.md.
//
// A value is null, a boolean, a BigInt (whole numbers; decimals, dates and times as their digits in the unit of the
// type), a number (floats), a string, a Uint8Array, or a list of values (items, members, pairs).
import { check } from "./documents.js";

/** Bytes of whole numbers in keys. */
const WIDTHS = {
    int8: 1, int16: 2, int32: 4, int64: 8, uint8: 1, uint16: 2, uint32: 4, uint64: 8, date32: 4, time32: 4, time64: 8,
    timestamp: 8, decimal128: 16, decimal256: 32,
};
const PLAIN = ["bool", "halffloat", "float", "double", "string", "binary", "fixed_size_binary", "uuid", "json", "null"];

/** Returns a type of a schema as its name, the words in its brackets, and its inner types. */
export function typeOf(stored) {
    if (typeof stored === "string") {
        const [, name, words] = /^(\w+)(?:[[(](.*)[\])])?$/.exec(stored) ?? [];
        check(Object.hasOwn(WIDTHS, name) || PLAIN.includes(name), `the type ${stored}`, "unsupported");
        return { name, words: words?.split(/, */) ?? [] };
    }
    const [[name, inner]] = Object.entries(stored);
    switch (name) {
        case "dictionary": // another form of the same values
            return typeOf(inner);
        case "list":
            return { name, item: typeOf(inner) };
        case "fixed_size_list":
            return { name: "list", item: typeOf(inner[0]) };
        case "map":
            return { name, item: { name: "struct", names: [0, 1], members: inner.map(typeOf) } };
        case "struct":
            return { name, names: inner.map(([member]) => member), members: inner.map(([, type]) => typeOf(type)) };
    }
    return check(false, `the type ${name}`, "unsupported");
}

/** Returns a value of a column of a data file as a value of this type. */
export function valueOf(type, stored) {
    if (stored === null || stored === undefined) { return null; }
    switch (type.name) {
        case "date32": // arrives in milliseconds
            return BigInt(stored) / 86_400_000n;
        case "timestamp":
        case "time32": // Parquet has no seconds (7)
            return type.words[0] === "s" ? BigInt(stored) / 1000n : BigInt(stored);
        case "string":
        case "json":
            return typeof stored === "string" ? stored : Buffer.from(stored).toString();
        case "list":
        case "map":
            return Array.from(stored, (item) => valueOf(type.item, item));
        case "struct":
            return type.names.map((name, at) => valueOf(type.members[at], stored[name]));
    }
    return type.name in WIDTHS ? BigInt(stored) : stored;
}

/** Returns the encoding of a value of a key field in hexadecimal digits, which compare as the bytes do (9). */
export function encoded(type, value) {
    check(value !== null, "a key without a value");
    switch (type.name) {
        case "bool":
            return value ? "01" : "00";
        case "float":
        case "double": {
            const bits = floatBits(type, value);
            const isNegative = bits[0] >= 0x80;
            return bits.map((byte, at) => byte ^ (isNegative ? 0xff : at === 0 ? 0x80 : 0)).toString("hex");
        }
        case "uuid":
        case "fixed_size_binary":
            return shown(type, value);
        case "string":
        case "binary": {
            const bytes = Buffer.from(value).toString("hex").replace(/../g, (byte) => (byte === "00" ? "00ff" : byte));
            return `${bytes}0001`;
        }
    }
    check(type.name in WIDTHS, `a key of type ${type.name}`, "unsupported");
    const [lowest] = limits(type);
    return (value - lowest).toString(16).padStart(2 * WIDTHS[type.name], "0");
}

/** Returns the least whole number of a type, and the one after its greatest. */
function limits(type) {
    const bits = BigInt(8 * WIDTHS[type.name]);
    return type.name.startsWith("uint") ? [0n, 1n << bits] : [-(1n << (bits - 1n)), 1n << (bits - 1n)];
}

/** Returns the bits of a float, big-endian; of a halffloat those of the same number as a float (13). */
function floatBits(type, value) {
    const bits = type.name === "double" ? Float64Array.of(value) : Float32Array.of(value);
    return Buffer.from(bits.buffer).reverse();
}

/** Returns lists of values by their key, in the order of the first of each: Map.groupBy of later versions of Node. */
export function grouped(list, keyOf) {
    const groups = new Map();
    for (const one of list) {
        const key = keyOf(one);
        groups.set(key, groups.get(key) ?? []);
        groups.get(key).push(one);
    }
    return groups;
}

/** Returns a value in the form of section 13. */
export function shown(type, value) {
    if (typeof value === "bigint") { return value.toString(); }
    if (typeof value === "number") { return Number.isNaN(value) ? "nan" : floatBits(type, value).toString("hex"); }
    if (value instanceof Uint8Array) { return Buffer.from(value).toString("hex"); }
    return Array.isArray(value) ? value.map((one, at) => shown(type.item ?? type.members[at], one)) : value;
}

/** Compares two values: numbers by value, text and bytes by their bytes; NaN, then null come last (7.1.1). */
export function compared(a, b) {
    const rank = (value) => (value === null ? 2 : Number(Number.isNaN(value)));
    if (rank(a) || rank(b)) { return rank(a) - rank(b); }
    const isText = typeof a === "string" || a instanceof Uint8Array;
    return isText ? Buffer.compare(Buffer.from(a), Buffer.from(b)) : Number(a > b) - Number(a < b);
}

/** Returns the result of an aggregate function in the type of its field; only floats overflow, to infinity (7.1.1). */
export function fitted(type, number) {
    if (typeof number === "bigint") {
        const end = type.name.startsWith("decimal") ? 10n ** BigInt(type.words[0]) : null;
        const [lowest, above] = end === null ? limits(type) : [1n - end, end];
        check(lowest <= number && number < above, `${number} does not fit into ${type.name}`, "unusable");
        return number;
    }
    return { float: Math.fround, halffloat: toHalf, double: Number }[type.name](number);
}

/** Rounds to the nearest float of two bytes, which has eleven binary digits; of two, to the even one. */
function toHalf(number) {
    const size = Math.abs(number);
    const step = 2 ** (Math.max(Math.floor(Math.log2(size)), -14) - 10);
    const shift = 2 ** 52 * step; // a sum with it has no digits below the step
    const rounded = size + shift - shift;
    return Math.sign(number) * (rounded <= 65504 ? rounded : Infinity);
}
