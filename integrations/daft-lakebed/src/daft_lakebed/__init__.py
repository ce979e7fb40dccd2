"""Tables of Lakebed as data frames of Daft: a task for each split of one version of a table, and writes.

Core functions: :func:`read_table`; :func:`write_table`, which adds the rows of a frame in one commit. The table reads
the columns that a frame needs, and only the pages whose rows can pass its filters. Daft filters the rows that the table
has left again, so what a filter means is decided by Daft.
"""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import daft
import pyarrow as pa
from daft.expressions import Expression, ExpressionVisitor
from daft.io.pushdowns import Pushdowns
from daft.io.sink import DataSink, WriteResult
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import MicroPartition, RecordBatch

from lakebed import DistributedWrite, SentRows, sql_literal

__all__ = ["LakebedSink", "LakebedSource", "read_table", "write_table"]


def read_table(
    table: Any, *, columns: Sequence[str] | None = None, where: str | None = None, at: str | int | None = None
) -> daft.DataFrame:
    """Return a frame of the rows of a table.

    ``where`` is a predicate as of ``scan``; ``at`` is a version, a tag or a time. Tasks of other processes open the
    instance again by its URL, so it must not be ``memory://``.

    Raises UsageError for an unknown column or an invalid predicate, NotFoundError and NotRetainedError for a version.
    """
    snapshot = table.snapshot() if at is None else table.at(at)
    names = tuple(snapshot.schema.arrow.names if columns is None else columns)
    # Checks the columns and the predicate before any task runs.
    snapshot.scan(columns=names, where=where, limit=0).close()
    return LakebedSource(snapshot, names, where).read()


def write_table(
    frame: daft.DataFrame,
    table: Any,
    *,
    commit_id: str | None = None,
    base_version: int | None = None,
    partial: bool = False,
    row_kind: str | None = None,
) -> int:
    """Add the rows of a frame to a table in one commit; returns the version from which on they are visible.

    The arguments are those of ``Table.write``. With a ``commit_id`` a repeat adds nothing, and does not run the frame
    if it was committed before. Until the commit the table is as it was, whatever fails. Rows with equal keys of
    different tasks arrive in no particular order.

    Raises UsageError for a table in ``memory://`` or of a service; SchemaMismatchError for columns that do not fit, and
    RuntimeError of Daft for values that do not.
    """
    write = DistributedWrite.of(
        table,
        frame.schema().to_pyarrow_schema(),
        commit_id=commit_id,
        base_version=base_version,
        partial=partial,
        row_kind=row_kind,
    )
    if write.committed is not None:
        return write.committed
    (version,) = frame.write_sink(LakebedSink(table, write)).to_pydict()["version"]
    return int(version)


_COMMITTED = pa.schema({"version": pa.int64(), "rows": pa.int64()})


class LakebedSink(DataSink[SentRows]):
    """Adds the rows of all tasks in one commit, as ``write`` says; the result is the version, and the rows sent.

    A task may run again: Daft answers with one result for each, and the files of others are orphans.
    """

    def __init__(self, table: Any, write: DistributedWrite) -> None:
        self._table, self._write = table, write

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need no table.
        return {**self.__dict__, "_table": None}

    def name(self) -> str:
        """Return the name of the write in Daft's plans."""
        return "Lakebed"

    def schema(self) -> daft.Schema:
        """Return the columns of the result."""
        return daft.Schema.from_pyarrow_schema(_COMMITTED)

    def write(self, micropartitions: Iterator[MicroPartition]) -> Iterator[WriteResult[SentRows]]:
        """Write the rows of a task as a run of files."""
        sent = self._write.send(batch for part in micropartitions for batch in part.to_arrow().to_batches())
        if sent.files:
            yield WriteResult(sent, sent.size_bytes, sent.rows)

    def finalize(self, write_results: list[WriteResult[SentRows]]) -> MicroPartition:
        """Commit the files of all tasks."""
        sent = [one.result for one in write_results]
        version = self._write.commit(self._table, sent)
        rows = sum(one.rows for one in sent)
        return MicroPartition.from_pydict(pa.table({"version": [version], "rows": [rows]}, _COMMITTED).to_pydict())


class LakebedSource(DataSource):
    """The rows of a snapshot, with the columns ``names``, for which ``where`` is true."""

    def __init__(self, snapshot: Any, names: tuple[str, ...], where: str | None) -> None:
        self._snapshot, self._names, self._where = snapshot, names, where
        self._arrow = pa.schema([snapshot.schema.arrow.field(name) for name in names])

    @property
    def name(self) -> str:
        """The name of the read in Daft's plans."""
        return "Lakebed"

    @property
    def schema(self) -> daft.Schema:
        """The columns of the frame."""
        return daft.Schema.from_pyarrow_schema(self._arrow)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """Yield a task for each split."""
        pushed = None if pushdowns.filters is None else _Predicate(self._arrow).visit(pushdowns.filters)
        where = f"({self._where}) AND ({pushed})" if self._where and pushed else self._where or pushed
        names = list(self._names if pushdowns.columns is None else pushdowns.columns)
        # Daft filters what a task has read, so the columns of the filter have to be there. Its public method fails for
        # is_in of several values.
        filtered = pushdowns._to_pypushdowns().filter_required_column_names() or ()  # noqa: SLF001
        names += sorted(set(filtered) - set(names))
        for split in await asyncio.to_thread(self._snapshot.splits):
            yield SplitTask(split, tuple(names) or self._names[:1], where)


@dataclass(frozen=True)
class SplitTask(DataSourceTask):
    """Reads a split, as a stream of record batches. Another process has it pickled."""

    split: Any
    names: tuple[str, ...]
    where: str | None

    @property
    def schema(self) -> daft.Schema:
        """The columns that are read."""
        fields = self.split.snapshot.schema.arrow
        return daft.Schema.from_pyarrow_schema(pa.schema([fields.field(name) for name in self.names]))

    async def read(self) -> AsyncIterator[RecordBatch]:
        """Yield the rows; the event loop does not wait for them."""
        with await asyncio.to_thread(self.split.scan, columns=list(self.names), where=self.where) as rows:
            while (batch := await asyncio.to_thread(next, rows, None)) is not None:
                yield RecordBatch.from_arrow_record_batches([batch], batch.schema)


_ALIKE = (
    (pa.types.is_integer, int),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_date32, dt.date),
)
"""Columns and values that SQL and Daft compare alike: not floats, which have NaN and a negative zero."""

_COLUMN, _VALUE = "column", "value"


class _Predicate(ExpressionVisitor[Any]):
    """Makes a predicate of SQL that is true for each row for which a filter is, and perhaps for more; None: for all.

    A column and a value are pairs, with which a comparison begins.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def visit_col(self, name: str) -> Any:
        return (_COLUMN, name)

    def visit_lit(self, value: Any) -> Any:
        return (_VALUE, value)

    def visit_alias(self, expr: Expression, alias: str) -> Any:
        return self.visit(expr)

    def visit_cast(self, expr: Expression, dtype: Any) -> Any:
        return None

    visit_try_cast = visit_cast

    def visit_function(self, name: str, args: list[Expression]) -> Any:
        return None

    def visit_coalesce(self, args: list[Expression]) -> Any:
        return None

    def visit_and(self, left: Expression, right: Expression) -> str | None:
        sides = [side for side in (self.visit(left), self.visit(right)) if isinstance(side, str)]
        return " AND ".join(f"({side})" for side in sides) or None

    def visit_or(self, left: Expression, right: Expression) -> str | None:
        one, other = self.visit(left), self.visit(right)
        return f"({one}) OR ({other})" if isinstance(one, str) and isinstance(other, str) else None

    def visit_not(self, expr: Expression) -> None:
        return None

    def visit_equal(self, left: Expression, right: Expression) -> str | None:
        return self._compared(left, "=", right)

    def visit_not_equal(self, left: Expression, right: Expression) -> None:
        return None

    def visit_less_than(self, left: Expression, right: Expression) -> str | None:
        return self._compared(left, "<", right)

    def visit_less_than_or_equal(self, left: Expression, right: Expression) -> str | None:
        return self._compared(left, "<=", right)

    def visit_greater_than(self, left: Expression, right: Expression) -> str | None:
        return self._compared(left, ">", right)

    def visit_greater_than_or_equal(self, left: Expression, right: Expression) -> str | None:
        return self._compared(left, ">=", right)

    def visit_between(self, expr: Expression, lower: Expression, upper: Expression) -> str | None:
        ends = [self._compared(expr, ">=", lower), self._compared(expr, "<=", upper)]
        return " AND ".join(end for end in ends if end is not None) or None

    def visit_is_in(self, expr: Expression, items: list[Expression]) -> str | None:
        each = [self._compared(expr, "=", item) for item in items]
        return " OR ".join(each) if each and None not in each else None

    def visit_is_null(self, expr: Expression) -> str | None:
        return self._tested(expr, "IS NULL")

    def visit_not_null(self, expr: Expression) -> str | None:
        return self._tested(expr, "IS NOT NULL")

    def _tested(self, expr: Expression, test: str) -> str | None:
        match self.visit(expr):
            case ("column", name):
                return f"{_quoted(name)} {test}"
        return None

    def _compared(self, left: Expression, sign: str, right: Expression) -> str | None:
        match self.visit(left), self.visit(right):
            case ("column", name), ("value", value):
                kind = self._schema.field(name).type
                if any(is_kind(kind) and type(value) is of for is_kind, of in _ALIKE):
                    return f"{_quoted(name)} {sign} {sql_literal(value)}"
        return None


def _quoted(name: str) -> str:
    quoted = name.replace('"', '""')
    return f'"{quoted}"'
