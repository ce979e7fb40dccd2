// The state of a table, from its checkpoints and entries: sections 3.2, 3.3, 5 and 6 of docs/format.md.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { arrowRows } from "./arrow.js";
import { check, checkFeatures, digits, document, entries, read } from "./documents.js";
import { grouped } from "./values.js";

const fileOf = ([file]) => file;
const partitionOf = ([, partition]) => partition;

/**
 * What a reader needs of a table's state, named as in a checkpoint (6); `files` are by id, and `references` are ids of
 * files by partition, in the order of arrival.
 */
class State {
    version = 0;
    schemas = [];
    boundaries = [];
    partitions = [];
    next_partition = 1;
    merge = null;
    filter = null;
    age_off_cut_us = 0;
    dropped = false;
    files = new Map();
    references = new Map();

    /** Adds references at the end of their partitions. */
    refer(references) {
        for (const [partition, added] of grouped(references, partitionOf)) {
            this.references.set(partition, [...this.filesOf(partition), ...added.map(fileOf)]);
        }
    }

    /** Replaces the partitions of each region by others, and their references by these. */
    cut(regions, references) {
        for (const [partitions, keys] of regions) {
            const first = this.partitions.indexOf(partitions[0]);
            check(first >= 0, `there is no partition ${partitions[0]}`);
            const ids = [...keys, null].map(() => this.next_partition++);
            this.partitions.splice(first, partitions.length, ...ids);
            this.boundaries.splice(first, partitions.length - 1, ...keys);
            partitions.forEach((partition) => this.references.delete(partition));
        }
        this.refer(references);
    }

    /** Drops and adds references; if the table merges rows, new ones stand where the last dropped one stood. */
    replace(drop, references) {
        const coming = grouped(references, partitionOf);
        for (const [partition, pairs] of grouped(drop, partitionOf)) {
            const added = (coming.get(partition) ?? []).map(fileOf);
            const dropped = new Set(pairs.map(fileOf));
            const files = this.filesOf(partition);
            const place = this.merge === null ? files.length : files.findLastIndex((file) => dropped.has(file));
            const kept = (part) => part.filter((file) => !dropped.has(file));
            this.references.set(partition, [...kept(files.slice(0, place)), ...added, ...kept(files.slice(place))]);
            coming.delete(partition);
        }
        this.refer([...coming.values()].flat());
    }

    filesOf(partition) {
        return this.references.get(partition) ?? [];
    }

    addFiles(files) {
        files.forEach((file) => this.files.set(file.id, file));
    }
}

/** What transactions do to a state. `listed` returns a list of references, which may lie in a sidecar. */
const TRANSACTIONS = {
    create_table(state, { schema, merge = null, boundaries }) {
        const partitions = [...boundaries, null].map(() => state.next_partition++);
        Object.assign(state, { schemas: [schema], merge, boundaries, partitions });
    },
    add_files(state, { files, references }, listed) {
        state.addFiles(files);
        state.refer(listed(references));
    },
    replace(state, { files, drop, references }, listed) {
        state.addFiles(files);
        state.replace(listed(drop), listed(references));
    },
    drop_expired: (state, { drop }, listed) => state.replace(listed(drop), []),
    split_partitions(state, { cuts, references }, listed) {
        state.cut(cuts.map(([partition, keys]) => [[partition], keys]), listed(references));
    },
    remove_range(state, { cuts, references, partitions }, listed) {
        TRANSACTIONS.split_partitions(state, { cuts, references }, listed);
        partitions.forEach((partition) => state.references.delete(partition));
    },
    join_partitions(state, { partitions, references }, listed) {
        state.cut([[partitions, []]], listed(references));
    },
    restore_version(state, { files, regions, references }, listed) {
        state.addFiles(files);
        state.cut(regions, listed(references));
    },
    alter_schema(state, { schema, merge = state.merge }) {
        Object.assign(state, { schemas: [...state.schemas, schema], merge });
    },
    set_merge: (state, { merge }) => Object.assign(state, { merge }),
    set_filter: (state, { filter, cut_us }) => Object.assign(state, { filter, age_off_cut_us: cut_us }),
    raise_watermark: (state, { mark, value }) => Object.assign(state, { [mark]: value }),
    require_features: (_, { features }) => checkFeatures(features),
    drop_table: (state) => Object.assign(state, { dropped: true }),
};

/** Types of transactions that change no row of the latest state. */
const WITHOUT_ROWS = new Set([
    "open_job", "close_job", "concatenate_runs", "alter_settings", "advance_view", "add_index", "drop_index",
    "retire_files", "purge_files", "set_tag", "remove_tag", "submit_requests", "fail_request", "reject_request",
]);

/** Applies the transactions of an entry, one after the other. */
function apply(state, { header, transactions }, log) {
    for (const change of transactions.filter(({ type }) => !WITHOUT_ROWS.has(type))) {
        check(Object.hasOwn(TRANSACTIONS, change.type), `a transaction of type ${change.type}`, "unsupported");
        TRANSACTIONS[change.type](state, change, (given) => inSidecar(given, log, header));
    }
    state.version = header.version;
}

/** Returns references, or pairs of a file and a partition, which lie in the transaction or in a sidecar (3.3). */
function inSidecar(given, folder, header) {
    if (Array.isArray(given)) { return given; }
    const [version] = header.sidecars.find(([, digest]) => digest === given.sidecar) ?? [];
    check(version <= header.version && header.version - version < 64, `entry ${header.version} lacks its sidecar`);
    const path = join(folder, "sidecars", `${digits(version)}-${given.sidecar}.arrow`);
    const rows = arrowRows(read(path, given.sidecar), path);
    const sum = given.rows === null ? null : rows.reduce((total, row) => total + row.rows, 0);
    const partitions = new Set(rows.map((row) => row.partition)).size;
    const same = rows.length === given.references && partitions === given.partitions && sum === given.rows;
    check(same, `${path} has other references`);
    return rows.map((row) => [row.file, row.partition]);
}

/** Returns the state that a checkpoint has, and the digest of the entry of its version (6). */
function checkpoint(folder, table) {
    const path = join(folder, "manifest.ndjson");
    const { header, lines: [{ state: stored, segments }] } = document(read(path), path);
    check(header.log === table && header.version === stored.version, `${path} is another one`);
    checkFeatures(stored.features ?? {});
    const state = Object.assign(new State(), stored, { files: new Map(), references: new Map() });
    for (const segment of segments.references) {
        const rows = segmentRows(folder, segment);
        const files = rows.flatMap((row) => row.files);
        state.addFiles(files);
        for (const row of rows) {
            state.references.set(row.partition, Array.from(row.file, (number) => files[number].id));
        }
    }
    return { state, previous: header.entry_digest };
}

/** Returns the rows of a segment, which lies in the manifest or beside it. */
function segmentRows(folder, segment) {
    if (typeof segment === "string") { return arrowRows(Buffer.from(segment, "base64"), `a segment of ${folder}`); }
    const [token, digest] = segment;
    const path = join(folder, "segments", `${token}.arrow`);
    return arrowRows(read(path, digest), path);
}

/** Returns the latest checkpoint; null if it is missing or damaged, because it is derived (6). */
function latestCheckpoint(folder, table) {
    try {
        return checkpoint(join(folder, "latest"), table);
    } catch (error) {
        if (error.kind !== "damaged") { throw error; }
        return null;
    }
}

/** Returns the last retained checkpoint that the log continues, or that of the very version that is wanted (6). */
function retainedCheckpoint(folder, table, logStart, wanted) {
    const names = existsSync(folder) ? readdirSync(folder) : [];
    const versions = names.filter((name) => /^\d{20}$/.test(name)).map(Number);
    const usable = versions.filter((one) => one === wanted || (one >= logStart && one <= (wanted ?? Infinity)));
    check(usable.length > 0, `no checkpoint leads to version ${wanted}`, wanted === null ? "damaged" : "unusable");
    return checkpoint(join(folder, digits(Math.max(...usable))), table);
}

/** Returns the state of a table at a version, the latest if it is null (1.1). */
export function stateAt(folder, table, wanted) {
    const log = join(folder, "log");
    const checkpoints = join(folder, "checkpoints");
    const start = join(log, "log-start.ndjson");
    let base = (wanted === null && latestCheckpoint(checkpoints, table)) || { state: new State(), previous: "" };
    for (;;) {
        const { state, previous } = base;
        const from = state.version;
        for (const entry of entries(log, table, { after: from, previous, last: wanted ?? Infinity })) {
            apply(state, entry, log);
        }
        // The log start is read last: if it was raised meanwhile, entries that should have followed may be deleted.
        const logStart = existsSync(start) ? document(read(start), start).header.log_start : 0;
        if (logStart <= from || from === wanted) {
            check(state.version > 0, `the log of ${table} is missing`);
            check(wanted === null || state.version === wanted, `there is no version ${wanted}`, "unusable");
            return state;
        }
        base = retainedCheckpoint(checkpoints, table, logStart, wanted);
    }
}
