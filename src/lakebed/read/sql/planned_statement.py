"""Runs a planned statement: its rows in the types of tables, in batches of bounded size.

The engine treats a missing file as empty, so its plan is compared with the files that the statement reads. An error
while rows are read is attributed to the damaged file, if there is one.

*Memory.* Sorts and groups spill to disk beyond the limit. Hash joins do not: a statement that fails by them starts
again with joins of sorted rows, which spill, at the cost of sorting both sides. Rows that were returned cannot be taken
back, so the first ones are held back: when there are more than ``held_bytes`` of them, the joins most likely have all
that they keep (docs/decisions/0083).

Core type: :class:`PlannedStatement`. Rule: no other module parses the engine's messages about statements. Each message
becomes an error that the caller can act on: change the statement, raise a limit, or report a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from datafusion.catalog import Table

from lakebed import clock
from lakebed.engine.statement_reasons import plain_reason, statement_reason
from lakebed.engine.workarounds.required_columns import has_outer_join, with_nullable_columns
from lakebed.engine.workarounds.same_names import HASH_JOIN
from lakebed.engine.workarounds.sorted_join_filters import may_mistake_columns
from lakebed.errors import Code, Error, UsageError
from lakebed.model import types
from lakebed.model.foreign_errors import is_panic, translate_errors
from lakebed.model.validity import as_stored
from lakebed.read.rows.engine_frames import Frame, check_found
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


class _MistakenColumnsError(Exception):
    """The engine would evaluate conditions of joins over other columns."""


BATCH_ROWS = "datafusion.execution.batch_size"
JOIN = " Join: "
"""What shows a join in the text of a logical plan."""

_EXPLAINS = ("Explain", "Analyze")
"""What the logical plans of EXPLAIN begin with."""

_SPILLING_JOINS = {HASH_JOIN: "false", BATCH_ROWS: "1024"}
"""Joins of sorted rows. A batch of each spilled run of each sort is in memory, so batches are small."""

_WAITS_S = (0.05, 1.0)
"""How long a statement waits before it starts again: twice, because the engine's threads let go of the memory of a
failed plan a little later, and other statements may take it."""


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """A statement, and all that it takes to run it.

    ``plan`` plans a text over its tables, with these options of the engine changed. ``names`` are those of its columns,
    if they are not those of ``text``; ``rows`` are those of its tables, of which some are ``read`` from files;
    ``plan_text`` shows its optimized plan.
    """

    plan: Callable[[str, Mapping[str, Table], Mapping[str, str]], DataFrame]
    text: str
    names: Sequence[str] | None
    rows: Mapping[str, DataFrame]
    read: Frames
    plan_text: str
    held_bytes: int

    def run(self, options: Mapping[str, str], off: Collection[str] = ()) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
        """Start it with some options of the engine changed; return the columns of the result, and its rows.

        ``off`` are those without which the engine would mistake columns. Raises UsageError for a statement that the
        engine refuses or would mistake columns in however it joins, and as :meth:`Reader.scan`.
        """
        try:
            running = self._started({**options, **dict.fromkeys(off, "false")})
        except _MistakenColumnsError as error:
            raise Code.SQL_INVALID(
                "the engine would evaluate a condition of a join in this statement over other columns: give columns "
                "that have one name in several of the joined tables other names, in a subquery (SELECT k AS other_k, "
                "... FROM t), and join what stands as a subquery in an expression"
            ) from error
        return running.schema, self._rows(running)

    def _started(self, options: Mapping[str, str]) -> _StartedPlan:
        """Plan and start it with these options, and others if the engine refuses its own plan."""
        by_sorting = options.get(HASH_JOIN) == "false"
        nullable = by_sorting and has_outer_join(self.plan_text)
        tables = {name: Table(with_nullable_columns(rows) if nullable else rows) for name, rows in self.rows.items()}
        while True:
            if by_sorting and self._may_mistake_columns(tables, options):
                raise _MistakenColumnsError
            frame = self.plan(self.text, tables, options)
            schema = schema_of(frame, self.text, self.names)
            try:
                return _StartedPlan(schema, started(frame, self.read, self.text), options)
            except OwnPlanError as error:
                if error.option in options:
                    raise error.refusal from error
                options = {**options, error.option: "false"}

    def _may_mistake_columns(self, tables: Mapping[str, Table], options: Mapping[str, str]) -> bool:
        if self.plan_text.startswith(_EXPLAINS):
            return False
        with translate_errors(partial(refused, statement=self.text)):
            steps = self.plan(f"EXPLAIN VERBOSE {self.text}", tables, options).to_arrow_table()
        return may_mistake_columns(zip(*(column.to_pylist() for column in steps.columns), strict=True))

    def _rows(self, running: _StartedPlan | None) -> Generator[pa.RecordBatch]:
        """Return the rows of a running statement, or of one that was started again with joins that spill."""
        assert running is not None
        # Of tables made nullable, the columns would be as well.
        schema = running.schema
        options = {**running.options, **_SPILLING_JOINS}
        for wait_s in _WAITS_S if JOIN in self.plan_text else ():
            held: list[pa.RecordBatch] = []
            size_bytes = 0
            try:
                for batch in batches_of(running.stream, schema, self.read):
                    held.append(batch)
                    size_bytes += batch.nbytes
                    if size_bytes > self.held_bytes:
                        yield from held
                        held.clear()
            except Error as error:
                if error.code is not Code.QUERY_MEMORY_EXCEEDED:
                    raise
                if size_bytes > self.held_bytes:
                    raise Code.QUERY_MEMORY_EXCEEDED(
                        f"{error.message}. Rows had been returned already, so the statement was not started again with "
                        "joins that spill to disk: with ORDER BY, rows are returned when the joins are done"
                    ) from error
                failure = error.message
            else:
                yield from held
                return
            # Frees the memory of the failed joins.
            running = None
            clock.sleep(wait_s)
            try:
                running = self._started(options)
            except _MistakenColumnsError as error:
                raise Code.QUERY_MEMORY_EXCEEDED(
                    f"{failure}. It was not started again with joins that spill to disk: those of the engine evaluate "
                    "conditions beside equalities wrongly"
                ) from error
        yield from batches_of(running.stream, schema, self.read)


@dataclass(frozen=True, slots=True)
class _StartedPlan:
    """A statement that was started with some options of the engine changed."""

    schema: pa.Schema
    stream: RecordBatchStream
    options: Mapping[str, str]


def schema_of(frame: DataFrame, statement: str, names: Sequence[str] | None = None) -> pa.Schema:
    """Return the columns of the result of the statement, in the types that tables have, under these names if any.

    Raises UsageError.
    """
    with translate_errors(partial(refused, statement=statement)):
        given = frame.schema()
    named = zip(names or given.names, given, strict=True)
    return pa.schema([pa.field(name, types.nullable_members(types.canonical(f.type)), f.nullable) for name, f in named])


def started(frame: DataFrame, frames: Frames, statement: str) -> RecordBatchStream:
    """Return the running rows of a frame, after all files that it reads were found.

    Raises OwnPlanError if the engine refuses its own plan, and as :meth:`Reader.get`.
    """
    try:
        with translate_errors(partial(refused, statement=statement)):
            # The plan has all files: one that is there once it is made was there before.
            stream = frame.execute_stream()
            plan_text = str(frame.execution_plan().display_indent()) if frames else ""
    except UsageError as error:
        for rule, option in _OPTIONS_BY_RULE.items():
            if rule in str(error.__cause__):
                raise OwnPlanError(error, option) from error
        raise
    for reader, one in frames:
        check_found(one, plan_text, reader)
    return stream


def batches_of(stream: RecordBatchStream, schema: pa.Schema, frames: Frames) -> Generator[pa.RecordBatch]:
    """Return running rows, as the schema has them. Raises what failed as an error of Lakebed."""
    with translate_errors(failed):
        try:
            for batch in stream:
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
    return Code.SQL_INVALID(
        f"cannot plan the query: {statement_reason(statement, text)} (`lakebed docs queries` has the SQL)"
    )


def failed(error: BaseException) -> Error:
    """Return the error for a statement that fails while it runs."""
    text = _engine_message(error)
    if (found := _known(error, text)) is not None:
        return found
    if "max_temp_directory_size" in text:
        return Code.TEMPORARY_STORAGE_FAILED(
            "the query needs more than 100 GB of disk for what its sorts, groups and joins spill: raise "
            "memory_limit_bytes, or read less"
        )
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
