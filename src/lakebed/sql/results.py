"""The rows of a statement: run by the engine, in the types that tables have, in batches of bounded size.

Files that the engine's plan does not have, though the statement reads them, are looked for: the engine takes a missing
file for an empty one. What fails while rows are read is attributed to the damaged file, if there is one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.engine_errors import failed, of_files, refused
from lakebed.errors import Error, UsageError
from lakebed.model import types
from lakebed.model.foreign_errors import is_panic, told
from lakebed.read.datafusion_frames import Frame, check_found

if TYPE_CHECKING:
    from datafusion import DataFrame, RecordBatchStream

    from lakebed.read.reader import Reader

Frames = Sequence[tuple["Reader", Frame]]
"""The tables that the engine reads as files, each with who reads them for Lakebed."""

BATCH_BYTES = 8 * 1024 * 1024
"""Of a batch that is given out: 1,000 bytes for each of the 8,192 rows that the engine makes at a time."""


class DisorderError(Exception):
    """The engine made a plan whose order its own check does not accept."""


def schema_of(frame: DataFrame) -> pa.Schema:
    """The columns of the result, in the types that tables have. Raises UsageError."""
    with told(refused):
        given = frame.schema()
    return pa.schema([pa.field(f.name, types.canonical(f.type), f.nullable) for f in given])


def started(frame: DataFrame, frames: Frames) -> RecordBatchStream | None:
    """The rows of a frame over files, once all of them were found; None for one over rows in memory, run when asked.

    Raises DisorderError if the engine refuses its own plan, and as :meth:`Reader.get`.
    """
    if not frames:
        return None
    try:
        with told(refused):
            # The plan has all files: one that is there once it is made was there before.
            stream = frame.execute_stream()
            plan_text = str(frame.execution_plan().display_indent())
    except UsageError as error:
        if "SanityCheckPlan" in error.message:
            raise DisorderError(error.message) from error
        raise
    for reader, one in frames:
        check_found(one, plan_text, reader)
    return stream


def batches_of(
    frame: DataFrame, stream: RecordBatchStream | None, schema: pa.Schema, frames: Frames
) -> Generator[pa.RecordBatch]:
    """The rows of a frame, as the schema has them. Raises what failed as an error of Lakebed."""
    with told(failed):
        try:
            for batch in frame.execute_stream() if stream is None else stream:
                yield from bounded(_exactly(batch.to_pyarrow(), schema))
        except BaseException as error:
            if (is_panic(error) or isinstance(error, Exception)) and not isinstance(error, Error) and of_files(error):
                _attribute(error, frames)
            raise


def bounded(rows: pa.RecordBatch, size_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The rows in batches of about so many bytes at most; a row is never parted."""
    held = rows.nbytes
    step = max(1, rows.num_rows * size_bytes // held) if held > size_bytes else max(1, rows.num_rows)
    for begin in range(0, rows.num_rows, step):
        yield rows.slice(begin, step)


def _exactly(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        # Rows without columns are still so many.
        return rows
    columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _attribute(error: BaseException, frames: Frames) -> None:
    """Raise for a file that is damaged, gone, or cannot be read; return if all of them are whole."""
    for reader, one in frames:
        try:
            with reader.blaming(one.files):
                raise error
        except Error as found:
            # Plain errors say that the files are whole.
            if type(found) is not Error:
                raise
