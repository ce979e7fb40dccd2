"""Sorted rows put aside on local disk as Arrow IPC files: between a sort's chunks and its merge, and between levels.

Arrow IPC with lz4 takes twice the disk of a data file, but reading it back for a merge costs half the CPU of Parquet,
and a reader holds one batch of it and no more. So batches are small: a merge holds a few of each input.

Rules: local paths only; the caller owns the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from lakebed.model.schema import Schema
from lakebed.parquet.sizes import gather
from lakebed.storage.scratch import writing_to

BATCH_ROWS_MAX = 8192
BATCH_BYTES_MAX = 1024 * 1024


def arrow_options() -> pa.ipc.IpcWriteOptions:
    """lz4, on the calling thread."""
    return pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def batch_rows_for(rows: pa.Table | pa.RecordBatch) -> int:
    """Rows that make a batch of at most 1 MiB."""
    row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
    return int(max(1, min(BATCH_ROWS_MAX, BATCH_BYTES_MAX // row_bytes)))


def write_spill(batches: Iterable[pa.RecordBatch], schema: Schema, path: Path) -> Path:
    """Write sorted batches of the schema's columns to one Arrow IPC file. Raises StorageError if there is no room."""
    return write_arrow(batches, schema.arrow, path)


def write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path) -> Path:
    """The same, with these columns."""
    rows = gather(batches, BATCH_ROWS_MAX, BATCH_BYTES_MAX)
    with writing_to(path.parent):
        writer = pa.ipc.new_file(path, schema, options=arrow_options())
    try:
        for table in rows:
            with writing_to(path.parent):
                writer.write_batch(table.combine_chunks().to_batches()[0])
    finally:
        with writing_to(path.parent):
            writer.close()
    return path
