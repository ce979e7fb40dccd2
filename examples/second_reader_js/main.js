// A reader of Lakebed's tables in JavaScript, written from docs/format.md alone. Numbers are those of its sections.
//
//     npm ci && node main.js FOLDER TABLE [VERSION]
//
// Read documents.js first, then state.js and rows.js. arrow.js and values.js are what these decode values with.
//
// It prints the rows of a table of an instance on local disk in key order, one JSON list a line, in the form of section
// 13. It exits with 3 if the table needs something that this program does not know, with 4 if an object is damaged, and
// with 2 if there is no answer for another reason, such as a version that is not there.
//
// What it leaves out: logs in databases, bounds and filters with which other readers skip files, digests of blocks (it
// verifies whole files), unions of sketches, and SQL beyond comparisons of columns with constants.
import { join } from "node:path";
import { argv, exit, stderr, stdout } from "node:process";
import { Refusal, check, document, read, tableId } from "./documents.js";
import { rowsOf } from "./rows.js";
import { stateAt } from "./state.js";
import { shown } from "./values.js";

const EXIT_CODES = { unusable: 2, unsupported: 3, damaged: 4 };

function linesOf(root, name, version) {
    const { header } = document(read(join(root, "instance.json")), "instance.json");
    check(!header.log_url, `a log at ${header.log_url}`, "unsupported");
    const table = tableId(root, header.instance, name);
    const folder = join(root, "tables", table);
    const { fields, rows } = rowsOf(join(folder, "data"), stateAt(folder, table, version));
    return rows.map(({ values }) => `${JSON.stringify(values.map((value, at) => shown(fields[at].type, value)))}\n`);
}

const [, , root, name, version] = argv;
try {
    check(name !== undefined && /^([1-9]\d*)?$/.test(version ?? ""), "usage: FOLDER TABLE [VERSION]", "unusable");
    const lines = linesOf(root, name, version === undefined ? null : Number(version));
    // Node 20 may hang at its end while it compiles WebAssembly in the background, so it is told to leave.
    stdout.write(lines.join(""), () => exit(0));
} catch (error) {
    if (!(error instanceof Refusal)) { throw error; }
    stderr.write(`${error.kind}: ${error.message}\n`, () => exit(EXIT_CODES[error.kind]));
}
