"""The rows of a statement: run by the engine, in the types that tables have, in batches of bounded size.

The engine takes a missing file for an empty one, so its plan is compared with the files that the statement reads. A
failure while rows are read is attributed to the damaged file, if there is one.

This is the only module that reads the engine's messages about statements: each becomes the error that a caller can act
on, by changing the statement, raising a limit, or reporting a fault.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code, Error, UsageError
from lakebed.model import types
from lakebed.model.foreign_errors import is_panic, told
from lakebed.read.datafusion_frames import Frame, check_found

if TYPE_CHECKING:
    from datafusion import DataFrame, RecordBatchStream

    from lakebed.read.reader import Reader

Frames = Sequence[tuple["Reader", Frame]]
"""The tables that the engine reads as files, each with the reader that opened them."""

BATCH_BYTES = 8 * 1024 * 1024
"""The most that a batch has, about: 1,000 bytes for each of the 8,192 rows that the engine makes at a time."""


_ONLY_READS = ("DDL not supported", "DML not supported", "Statement not supported")
_OF_FILES = ("Parquet error", "Object Store error", "IO error", "ObjectStore", "External error")
_TEXT_MAX = 500


class DisorderError(Exception):
    """The engine made a plan whose order its own check does not accept."""


def schema_of(frame: DataFrame) -> pa.Schema:
    """The columns of the result, in the types that tables have. Raises UsageError."""
    with told(refused):
        given = frame.schema()
    return pa.schema([pa.field(f.name, types.canonical(f.type), f.nullable) for f in given])


def started(frame: DataFrame, frames: Frames) -> RecordBatchStream | None:
    """The running rows of a frame over files, after all files were found; None for a frame over rows in memory.

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
    """The rows in batches of about ``size_bytes`` at most, of whole rows."""
    held = rows.nbytes
    step = max(1, rows.num_rows * size_bytes // held) if held > size_bytes else max(1, rows.num_rows)
    for begin in range(0, rows.num_rows, step):
        yield rows.slice(begin, step)


def _exactly(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        # A batch without columns still has a number of rows.
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


# -- errors ------------------------------------------------------------------------------------------------------------


def refused(error: BaseException) -> Error:
    """The error for a statement that the engine does not plan."""
    text = said(error)
    if (found := _known(error, text)) is not None:
        return found
    if any(mark in text for mark in _ONLY_READS):
        return Code.SQL_READ_ONLY(
            f"only SQL that reads is supported: {text}. Change tables with write, remove, alter and set"
        )
    return Code.SQL_INVALID(f"cannot plan the query: {text}")


def failed(error: BaseException) -> Error:
    """The error for a statement that fails while it runs."""
    text = said(error)
    if (found := _known(error, text)) is not None:
        return found
    if any(mark in text for mark in ("Parquet error", "Object Store error", "IO error")):
        return Code.TEMPORARY_STORAGE_FAILED(
            f"the query could not read its files or spill to disk, though no file is damaged: {text}"
        )
    return Code.EXPRESSION_FAILED(f"the query failed on a row: {text}")


def of_files(error: BaseException) -> bool:
    """Whether a file that the engine reads may be the cause of the error."""
    return _broke_off(error) or any(mark in str(error) for mark in _OF_FILES)


def _broke_off(error: BaseException) -> bool:
    # A panic of another thread of the engine is a plain error here.
    return is_panic(error) or "panic" in str(error)


def said(error: BaseException) -> str:
    """The engine's message, without its own names of things and its advice on its settings."""
    text = str(error).removeprefix("DataFusion error: ")
    lines = [line for line in text.splitlines() if "enable_ident_normalization" not in line]
    return " ".join(lines).replace("lakebed.tables.", "").rstrip(".")[:_TEXT_MAX]


def _known(error: BaseException, text: str) -> Error | None:
    if "Resources exhausted" in text:
        return Code.QUERY_MEMORY_EXCEEDED(
            f"the query needs more memory than memory_limit_bytes allows; raise it ({text})"
        )
    if "RecursionLimitExceeded" in text or isinstance(error, RecursionError):
        return Code.SQL_TOO_COMPLEX(
            "the statement nests brackets, CASE or NOT too deeply; name parts of it with WITH, or split it"
        )
    if "Null byte" in text:
        return Code.SQL_INVALID("a column of the result has a NUL character in its name; give it another name with AS")
    if _broke_off(error):
        return Code.ENGINE_PANICKED(
            f"the query engine failed internally: {text}. Nothing was changed. Write the query in another way, "
            "and report the failure"
        )
    return None
