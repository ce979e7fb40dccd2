// Arrow and Parquet, both through Arrow's form in memory, so that there is one way from stored bytes to values.
import { CompressionType, setCompressionCodec, tableFromIPC } from "@uwdata/flechette";
import { decompress } from "fzstd";
import { readParquet } from "parquet-wasm";
import { check, decoded } from "./documents.js";

setCompressionCodec(CompressionType.ZSTD, { decode: (bytes, size) => decompress(bytes, new Uint8Array(size)) });

/** Whole numbers of 64 bits and more arrive as BigInt, because numbers of JavaScript would round them. */
const EXACT = { useBigInt: true, useBigIntTimestamp: true, useDecimalInt: true };

// The copies of bytes below begin at an address that is aligned for 64-bit values; those of a Buffer need not.

/** Returns the rows of an Arrow file as objects, with whole numbers as numbers: documents have none above 2^53 - 1. */
export function arrowRows(bytes, what) {
    return decoded(what, () => tableFromIPC(new Uint8Array(bytes)).toArray());
}

/** Returns the columns of a data file, as lists of values, by field id. */
export function parquetColumns(bytes, rows, what) {
    const table = decoded(what, () => tableFromIPC(readParquet(new Uint8Array(bytes)).intoIPCStream(), EXACT));
    check(table.numRows === rows, `${what} has ${table.numRows} rows in place of ${rows}`);
    const columns = new Map();
    for (const [at, field] of table.schema.fields.entries()) {
        columns.set(Number(field.metadata?.get("PARQUET:field_id")), decoded(what, () => [...table.getChildAt(at)]));
    }
    return columns;
}
