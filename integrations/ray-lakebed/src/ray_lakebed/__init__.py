"""Tables of Lakebed as datasets of Ray Data: a read task for each split of one version of a table, and writes.

Core functions: :func:`read_table`; :func:`write_table`, which adds the rows of a dataset in one commit. Ray has the
columns that a dataset needs, and its filters, applied by the table: it reads only these columns, and only the pages
whose rows can pass. What a filter means is decided by Ray: its own expression is applied to the rows that the table has
left.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data.block import Block, BlockAccessor, BlockMetadata
from ray.data.datasource import Datasink, Datasource, ReadTask, WriteResult
from ray.data.expressions import AliasExpr, BinaryExpr, ColumnExpr, Expr, LiteralExpr, Operation, UnaryExpr

from lakebed import DistributedWrite, SentRows, sql_literal

__all__ = ["LakebedDatasink", "LakebedDatasource", "read_table", "write_table"]


def read_table(
    table: Any, *, columns: Sequence[str] | None = None, where: str | None = None, at: str | int | None = None
) -> ray.data.Dataset:
    """Return a dataset of the rows of a table.

    ``where`` is a predicate as of ``scan``; ``at`` is a version, a tag or a time. Tasks open the instance again by its
    URL, so it must not be ``memory://``.

    Raises UsageError for an unknown column or an invalid predicate, NotFoundError and NotRetainedError for a version.
    """
    snapshot = table.snapshot() if at is None else table.at(at)
    names = tuple(snapshot.schema.arrow.names if columns is None else columns)
    # Checks the columns and the predicate before any task runs.
    snapshot.scan(columns=names, where=where, limit=0).close()
    return ray.data.read_datasource(LakebedDatasource(snapshot, names, where))


def write_table(
    dataset: ray.data.Dataset,
    table: Any,
    *,
    commit_id: str | None = None,
    base_version: int | None = None,
    partial: bool = False,
    row_kind: str | None = None,
) -> int:
    """Add the rows of a dataset to a table in one commit; returns the version from which on they are visible.

    The arguments are those of ``Table.write``. With a ``commit_id`` a repeat adds nothing, and does not run the dataset
    if it was committed before. Until the commit the table is as it was, whatever fails. Rows with equal keys of
    different tasks arrive in no particular order.

    Raises UsageError for a table in ``memory://`` or of a service; SchemaMismatchError, in the task as well.
    """
    schema = None
    if table.settings()["schema_growth"] == "add":
        found = dataset.schema()
        schema = found.base_schema if found is not None and isinstance(found.base_schema, pa.Schema) else None
    write = DistributedWrite.of(
        table, schema, commit_id=commit_id, base_version=base_version, partial=partial, row_kind=row_kind
    )
    if write.committed is not None:
        return write.committed
    sink = LakebedDatasink(table, write)
    dataset.write_datasink(sink)
    if sink.version is None:
        # Ray had no task to run.
        sink.version = write.commit(table, [])
    return sink.version


class LakebedDatasink(Datasink[SentRows]):
    """Adds the rows of all write tasks in one commit, as ``write`` says; ``version`` is then that of the commit.

    A task may run again, or twice: Ray answers with one result for each, and the files of others are orphans.
    """

    def __init__(self, table: Any, write: DistributedWrite) -> None:
        self.version: int | None = None
        self._table, self._write = table, write

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need no table.
        return {**self.__dict__, "_table": None}

    def get_name(self) -> str:
        """Return the name of the write in Ray's reports."""
        return "Lakebed"

    def write(self, blocks: Iterable[Block], ctx: Any) -> SentRows:
        """Write the rows of a task as a run of files."""
        return self._write.send(
            batch for block in blocks for batch in BlockAccessor.for_block(block).to_arrow().to_batches()
        )

    def on_write_complete(self, write_result: WriteResult[SentRows]) -> None:
        """Commit the files of all tasks."""
        self.version = self._write.commit(self._table, [one for one in write_result.write_returns if one is not None])


class LakebedDatasource(Datasource):
    """The rows of a snapshot, with the columns ``names``, for which ``where`` is true."""

    def __init__(self, snapshot: Any, names: tuple[str, ...], where: str | None) -> None:
        super().__init__()
        self._snapshot, self._names, self._where = snapshot, names, where
        self._projection_map: dict[str, str] | None = None

    def get_name(self) -> str:
        """Return the name of the read in Ray's reports."""
        return "Lakebed"

    def supports_projection_pushdown(self) -> bool:
        """Return True: Ray says which columns it needs."""
        return True

    def supports_predicate_pushdown(self) -> bool:
        """Return True: Ray leaves its filters to the tasks."""
        return True

    def estimate_inmemory_data_size(self) -> int:
        """Return the bytes of the files, which are compressed."""
        return sum(split.size_bytes for split in self._snapshot.splits())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return a task for each split. Ray's ``parallelism`` does not change their number."""
        chosen = self._get_data_columns()
        names = self._names if chosen is None else tuple(chosen)
        predicate = self.get_current_predicate()
        wanted = None if predicate is None else predicate.to_pyarrow()
        filtered = () if predicate is None else tuple(sorted(_columns(predicate)))
        schema = pa.schema([self._snapshot.schema.arrow.field(name) for name in names])
        return [
            ReadTask(
                _Read(split, names, filtered or self._names[:1], self._pushed(predicate), wanted),
                # The number of rows is not known before they are merged and filtered.
                BlockMetadata(num_rows=None, size_bytes=split.size_bytes, input_files=None, exec_stats=None),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for split in self._snapshot.splits()
        ]

    def _pushed(self, predicate: Expr | None) -> str | None:
        """Return the predicate of the reads: the caller's, and what of Ray's the table can evaluate."""
        schema = self._snapshot.schema.arrow
        pushed = None if predicate is None else _sql(predicate, schema)
        if pushed is None or self._where is None:
            return pushed or self._where
        return f"({self._where}) AND ({pushed})"


@dataclass(frozen=True)
class _Read:
    """Reads a split, as a stream of blocks. Another process has it pickled.

    The columns ``filtered`` are read for the filter ``wanted``, or the first of them to count rows.
    """

    split: Any
    names: tuple[str, ...]
    filtered: tuple[str, ...]
    where: str | None
    wanted: pc.Expression | None

    def __call__(self) -> Iterator[pa.Table]:
        # Ray counts no rows of a block without columns.
        names = list(self.names or self.filtered[:1])
        read = names if self.wanted is None else list(dict.fromkeys([*names, *self.filtered]))
        with self.split.scan(columns=read, where=self.where) as rows:
            for batch in rows:
                block = pa.Table.from_batches([batch])
                yield (block if self.wanted is None else block.filter(self.wanted)).select(names)
            yield rows.schema.empty_table().select(names)


_SIGNS = {Operation.GT: ">", Operation.LT: "<", Operation.GE: ">=", Operation.LE: "<=", Operation.EQ: "="}


def _sql(expression: Expr, schema: pa.Schema) -> str | None:
    """Return a predicate that is true for each row for which the expression is, and perhaps for more; None: for all.

    It compares columns with values of a type that SQL and Ray compare alike, which leaves out floats: they have NaN and
    a negative zero.
    """
    match expression:
        case BinaryExpr(op=Operation.AND, left=left, right=right):
            sides = [side for side in (_sql(left, schema), _sql(right, schema)) if side is not None]
            return " AND ".join(f"({side})" for side in sides) or None
        case BinaryExpr(op=Operation.OR, left=left, right=right):
            one, other = _sql(left, schema), _sql(right, schema)
            return None if one is None or other is None else f"({one}) OR ({other})"
        case BinaryExpr(op=op, left=ColumnExpr() as column, right=LiteralExpr(value=value)) if op in _SIGNS:
            return f"{_name(column)} {_SIGNS[op]} {sql_literal(value)}" if _is_alike(column, [value], schema) else None
        case BinaryExpr(op=Operation.IN, left=ColumnExpr() as column, right=LiteralExpr(value=list() as values)):
            inside = ", ".join(map(sql_literal, values)) if _is_alike(column, values, schema) else ""
            return f"{_name(column)} IN ({inside})" if inside else None
        case UnaryExpr(op=Operation.IS_NULL, operand=ColumnExpr() as column):
            return f"{_name(column)} IS NULL"
        case UnaryExpr(op=Operation.IS_NOT_NULL, operand=ColumnExpr() as column):
            return f"{_name(column)} IS NOT NULL"
    return None


def _is_alike(column: ColumnExpr, values: Sequence[Any], schema: pa.Schema) -> bool:
    kind = schema.field(column.name).type
    return any(is_kind(kind) and all(type(value) is of for value in values) for is_kind, of in _ALIKE)


_ALIKE = (
    (pa.types.is_integer, int),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_date32, dt.date),
)


def _columns(expression: Expr) -> set[str]:
    """Return the names of the columns of an expression that Arrow can evaluate."""
    match expression:
        case ColumnExpr():
            return {expression.name}
        case BinaryExpr(left=left, right=right):
            return _columns(left) | _columns(right)
        case UnaryExpr(operand=inner) | AliasExpr(expr=inner):
            return _columns(inner)
    return set()


def _name(column: ColumnExpr) -> str:
    quoted = column.name.replace('"', '""')
    return f'"{quoted}"'
