"""Runs a planned statement: its rows in the types of tables, in batches of bounded size.

The engine treats a missing file as empty, so its plan is compared with the files that the statement reads. An error
while rows are read is attributed to the damaged file, if there is one.

Rule: no other module parses the engine's messages about statements. Each message becomes an error that the caller can
act on: change the statement, raise a limit, or report a bug.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.statement_reasons import statement_reason
from lakebed.engine.type_reasons import plain_reason
from lakebed.errors import Code, Error, UsageError
from lakebed.model import types
from lakebed.model.foreign_errors import is_panic, translate_errors
from lakebed.model.validity import as_stored
from lakebed.read.rows.datafusion_scan import Frame, check_found
from lakebed.read.rows.row_stream import bounded

if TYPE_CHECKING:
    from datafusion import DataFrame, RecordBatchStream

    from lakebed.read.rows.reader import Reader

Frames = Sequence[tuple["Reader", Frame]]
"""The tables that the engine reads as files, each with the reader that opened them."""

_WRITE_MARKS = ("DDL not supported", "DML not supported", "Statement not supported")
_FILE_MARKS = ("Parquet error", "Object Store error", "IO error", "ObjectStore", "External error")
_TEXT_MAX = 500


_OPTIONS_BY_RULE = {
    "SanityCheckPlan": "datafusion.optimizer.repartition_sorts",
    "push_down_leaf_projections": "datafusion.optimizer.enable_leaf_expression_pushdown",
}
"""Rules of the engine that refuse its own plans, and the option without which it makes other ones: of ``k = v`` over
several files as not sorted; of an aggregate of a struct's member beside a column that is computed, such as a UUID."""


class OwnPlanError(Exception):
    """The engine refuses a plan that it made itself, and would not without an option."""

    def __init__(self, refusal: UsageError, option: str) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.option = option


def schema_of(frame: DataFrame, statement: str, names: Sequence[str] | None = None) -> pa.Schema:
    """Return the columns of the result of the statement, in the types that tables have, under these names if any.

    Raises UsageError.
    """
    with translate_errors(partial(refused, statement=statement)):
        given = frame.schema()
    named = zip(names or given.names, given, strict=True)
    return pa.schema([pa.field(name, types.nullable_members(types.canonical(f.type)), f.nullable) for name, f in named])


def started(frame: DataFrame, frames: Frames, statement: str) -> RecordBatchStream | None:
    """Return the running rows of a frame over files, after all files were found; None for a frame over rows in memory.

    Raises OwnPlanError if the engine refuses its own plan, and as :meth:`Reader.get`.
    """
    if not frames:
        return None
    try:
        with translate_errors(partial(refused, statement=statement)):
            # The plan has all files: one that is there once it is made was there before.
            stream = frame.execute_stream()
            plan_text = str(frame.execution_plan().display_indent())
    except UsageError as error:
        for rule, option in _OPTIONS_BY_RULE.items():
            if rule in str(error.__cause__):
                raise OwnPlanError(error, option) from error
        raise
    for reader, one in frames:
        check_found(one, plan_text, reader)
    return stream


def batches_of(
    frame: DataFrame, stream: RecordBatchStream | None, schema: pa.Schema, frames: Frames
) -> Generator[pa.RecordBatch]:
    """Return the rows of a frame, as the schema has them. Raises what failed as an error of Lakebed."""
    with translate_errors(failed):
        try:
            for batch in frame.execute_stream() if stream is None else stream:
                yield from bounded(_with_types(batch.to_pyarrow(), schema))
        except BaseException as error:
            if (
                (is_panic(error) or isinstance(error, Exception))
                and not isinstance(error, Error)
                and _may_concern_files(error)
            ):
                _attribute(error, frames)
            raise


def _with_types(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        # A batch without columns still has a number of rows.
        return rows
    columns = [c if c.type == f.type else as_stored(c, f.type) for c, f in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _attribute(error: BaseException, frames: Frames) -> None:
    """Raise the error of a file that is damaged, missing or unreadable; return if all files are intact."""
    for reader, one in frames:
        try:
            with reader.attribute_errors(one.files):
                raise error
        except Error as found:
            # A plain Error means that the files are intact.
            if type(found) is not Error:
                raise


# -- errors ------------------------------------------------------------------------------------------------------------


def refused(error: BaseException, statement: str) -> Error:
    """Return the error for a statement that the engine does not plan."""
    text = _engine_message(error)
    if (found := _known(error, text)) is not None:
        return found
    if any(mark in text for mark in _WRITE_MARKS):
        return Code.SQL_READ_ONLY(
            f"only SQL that reads is supported: {text}. Change tables with write, remove, alter and set"
        )
    if "only supports a single SQL statement" in text:
        return Code.SQL_INVALID("the text has several statements, separated by semicolons: give one at a time")
    return Code.SQL_INVALID(f"cannot plan the query: {statement_reason(statement, text)} (docs/queries.md has the SQL)")


def failed(error: BaseException) -> Error:
    """Return the error for a statement that fails while it runs."""
    text = _engine_message(error)
    if (found := _known(error, text)) is not None:
        return found
    if any(mark in text for mark in ("Parquet error", "Object Store error", "IO error")):
        return Code.TEMPORARY_STORAGE_FAILED(
            f"the query could not read its files or spill to disk, though no file is damaged: {text}"
        )
    return Code.EXPRESSION_FAILED(f"the query failed on a row: {text}")


def _may_concern_files(error: BaseException) -> bool:
    """Return whether a file that the engine reads may have caused the error."""
    return _is_engine_panic(error) or any(mark in str(error) for mark in _FILE_MARKS)


def _is_engine_panic(error: BaseException) -> bool:
    # A panic of another engine thread arrives as a plain exception.
    return is_panic(error) or "panic" in str(error)


def _engine_message(error: BaseException) -> str:
    """Return the engine's message without its internal names and its advice on settings."""
    text = str(error).removeprefix("DataFusion error: ")
    lines = [line for line in text.splitlines() if "enable_ident_normalization" not in line]
    return plain_reason(" ".join(lines).replace("lakebed.tables.", ""))[:_TEXT_MAX].rstrip(".")


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
    if _is_engine_panic(error):
        return Code.ENGINE_PANICKED(
            f"the query engine failed internally: {text}. Nothing was changed. Write the query in another way, "
            "and report the failure"
        )
    return None
