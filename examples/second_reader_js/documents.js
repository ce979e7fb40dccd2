// Documents in JSON, their digests, and logs of them: sections 1, 3, 4 and 5.2 of docs/format.md.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createXXHash128 } from "hash-wasm";

const FEATURES = ["sql-datafusion-1"];
const hasher = await createXXHash128();

/** Why a table cannot be read: its kind is "unsupported", "damaged", or "unusable" if the request is at fault. */
export class Refusal extends Error {
    constructor(kind, text) {
        super(text);
        this.kind = kind;
    }
}

export function check(holds, text, kind = "damaged") {
    if (!holds) { throw new Refusal(kind, text); }
}

/** Returns what `decode` returns. Bytes that it cannot decode are damaged. */
export function decoded(what, decode) {
    try {
        return decode();
    } catch (error) {
        throw error instanceof Refusal ? error : new Refusal("damaged", `${what}: ${error.message}`);
    }
}

export function digestOf(bytes) {
    return hasher.init().update(bytes).digest();
}

/** Returns the bytes of an object, which have this digest if one is given. */
export function read(path, digest = null) {
    check(existsSync(path), `${path} is missing`);
    const bytes = readFileSync(path);
    check(digest === null || digestOf(bytes) === digest, `${path} was changed after it was written`);
    return bytes;
}

/** Returns a version as in the names of objects. */
export function digits(version) {
    return String(version).padStart(20, "0");
}

/** Refuses features that concern readers, by name; an unknown word concerns every program (5.2). */
export function checkFeatures(required) {
    for (const [name, programs] of Object.entries(required)) {
        const concerned = ![null, "writers", "collectors"].includes(programs);
        check(!concerned || FEATURES.includes(name), `the feature ${name}`, "unsupported");
    }
}

/** Returns the header of a document, and the JSON lines after it. */
export function document(bytes, what) {
    const text = decoded(what, () => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
    const lines = text.split("\n");
    const header = decoded(what, () => JSON.parse(lines[0]));
    check(header?.format !== undefined && Array.isArray(header.features), `${what} has no format or features`);
    check(header.format === 2, `${what} is of format ${header.format}`, "unsupported");
    checkFeatures(Object.fromEntries(header.features.map((name) => [name, "readers"])));
    check(/^[0-9a-f]{32}$/.test(header.digest), `${what} has no digest`);
    const hidden = text.replace(header.digest, "?".repeat(32));
    check(digestOf(hidden) === header.digest, `${what} was changed after it was written`);
    check(lines.pop() === "", `${what} is cut short`);
    return { header, lines: lines.slice(1).map((line) => decoded(what, () => JSON.parse(line))) };
}

/** Yields the entries of a log after a version, until one is missing, or up to the last that is wanted (3). */
export function* entries(folder, log, { after = 0, previous = "", last = Infinity } = {}) {
    for (let version = after + 1; version <= last; version++) {
        const path = join(folder, `${digits(version)}.ndjson`);
        if (!existsSync(path)) { return; }
        const bytes = read(path);
        const what = `entry ${version} of ${log}`;
        const { header, lines } = document(bytes, what);
        check(header.log === log && header.version === version, `${what} is another one`);
        check(header.count === lines.length, `${what} is cut short`);
        check(header.previous === previous, `${what} does not follow the one before`);
        previous = digestOf(bytes);
        yield { header, transactions: lines };
    }
}

/** Transactions of the catalog that say nothing about names (4). */
const WITHOUT_NAMES = ["set_online", "pause_operations", "set_defaults", "fence_creations"];

/** Returns the id of the table with a name. The log of the catalog is never truncated (3.2). */
export function tableId(root, instance, wanted) {
    const names = new Map();
    for (const { transactions } of entries(join(root, "catalog", "log"), instance)) {
        for (const { type, table, name, features } of transactions) {
            if (type === "register_table" || type === "rename_table") {
                names.set(table, name);
            } else if (type === "purge_table") {
                names.delete(table);
            } else if (type === "require_features") {
                checkFeatures(features);
            } else {
                check(WITHOUT_NAMES.includes(type), `a transaction of the catalog of type ${type}`, "unsupported");
            }
        }
    }
    const [id] = [...names].find(([, name]) => name === wanted) ?? [];
    check(id !== undefined, `there is no table ${wanted}`, "unusable");
    return id;
}
