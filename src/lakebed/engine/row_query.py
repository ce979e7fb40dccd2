"""Applies a query to the rows of a table part by part, to feed a view.

:class:`RowQuery` runs a SELECT over a table called ``source``. Rows come in any number of parts, and the query is
applied to one part at a time. So it makes rows of single rows, or it groups rows, and the groups of several parts are
merged afterwards. The logical plan decides which: :func:`_groups` has the nodes that are allowed. Above groups there
are only their columns, under any names. Only deterministic functions are registered.

Errors: UsageError for a query that cannot be applied to parts, or fails on a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from lakebed.engine.datafusion import pieces, query_context, read_only
from lakebed.engine.stack import on_deep_stack
from lakebed.engine.statement_reasons import statement_reason
from lakebed.engine.value_sizes import fit_bounded
from lakebed.errors import Code, Error
from lakebed.model import types
from lakebed.model.arrays import empty_batch
from lakebed.model.checks import shown
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.merge_modes import MergeMode
from lakebed.storage.processes import ENGINE

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr
    from datafusion.plan import LogicalPlan

T = TypeVar("T")

SOURCE = "source"
"""The name of the table in the query."""

_NO_TABLE = re.compile(r"table 'datafusion\.public\.(.+)' not found")
"""The engine's message about a table that it does not have."""

_WHOLE_INPUT = {
    "Limit": "LIMIT",
    "WindowExpr": "a window function",
    "Join": "a join",
    "Union": "UNION",
    "RecursiveQuery": "a recursive query",
}
"""Nodes of a plan whose result for all rows is not the combination of the results for parts, and their names for
users."""

_ROW_BY_ROW = frozenset({"SubqueryAlias", "Sort", "Projection", "Filter", "Unnest"})
"""Nodes that make rows of single rows."""


_COMBINED_BY = {
    "count": "sum", "sum": "sum", "min": "min", "max": "max", "min DISTINCT": "min", "max DISTINCT": "max",
    "bool_and": "all", "bool_or": "any", "bit_or": "or",
}  # fmt: skip
"""By which function the results of an aggregate for several parts become that for all rows."""

_ROW_COUNTS = frozenset({"count(*)", "count(Int64(1))"})
"""What the engine calls a count of all rows of a group."""

_OF_CONSTANTS = frozenset({"min", "max", "first", "last"})


class Origin(Enum):
    """What a column of a query that groups rows is made of."""

    GROUP = "group"
    """A value that all rows of a group have."""
    AGGREGATE = "aggregate"
    """A function of the rows of a group."""
    CONSTANT = "constant"


class GroupColumn(NamedTuple):
    """A column of such a query, and what it is made of: the text of an expression that rows are grouped by, or the name
    of an aggregate function, such as ``count DISTINCT``. ``counts_rows``: it is the number of rows of the group.
    """

    name: str
    origin: Origin
    made_of: str = ""
    counts_rows: bool = False


class RowQuery:
    """A query over rows of one Arrow schema. For one thread."""

    def __init__(self, select: str, rows: pa.Schema, columns: Sequence[tuple[str, str]] | None = None) -> None:
        """``columns`` are those of the rows that the query knows: the name in the query, and in the rows; None: all.

        Raises UsageError for a query that is invalid, or that needs all rows at once.
        """
        self.select = select
        self._columns = [(name, name) for name in rows.names] if columns is None else columns
        self._bounds = fit_bounded(select, "the query")
        self._context = query_context()
        with translate_errors(self._failed):
            plan, scans, found = self._run(self._looked_at, empty_batch(rows))
            groups = _groups(plan, len(found))
        if scans != 1:
            raise Code.SQL_INVALID(f"the query reads one table, {SOURCE}, once: {select}")
        self.groups = None if groups is None else [g._replace(name=f.name) for g, f in zip(groups, found, strict=True)]
        """The columns of the result if rows of a part are grouped, or repeated ones removed; else None."""
        kinds_of_found = [types.nullable_members(types.canonical(f.type)) for f in found]
        self.schema = pa.schema(
            [pa.field(f.name, kind, f.nullable) for f, kind in zip(found, kinds_of_found, strict=True)]
        )

    def check_merge(self, keys: set[str], merge: MergeMode) -> None:
        """Raise UsageError if the mode and the key columns do not make groups of several parts those of all rows.

        Rows that are not grouped may be merged by any mode.
        """
        if self.groups is not None:
            _check_groups(self.groups, keys, merge)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the query's rows for each batch. Raises UsageError if it fails on one."""
        for batch in batches:
            with translate_errors(self._failed):
                made = self._run(self._made, batch)
            yield from made.cast(self.schema).combine_chunks().to_batches()

    def _run(self, function: Callable[[pa.RecordBatch], T], batch: pa.RecordBatch) -> T:
        return function(batch) if self._bounds.flat else on_deep_stack(function, batch)

    def _looked_at(self, batch: pa.RecordBatch) -> tuple[LogicalPlan, int, pa.Schema]:
        """Return the plan, how often it scans a table, and the schema of its result."""
        named = self._frame(batch, self._bounds.naming).schema().names
        frame = self._frame(batch, self._bounds.text)
        scans = frame.optimized_logical_plan().display_indent().count("TableScan: ")
        found = [field.with_name(name) for name, field in zip(named, frame.schema(), strict=True)]
        return frame.logical_plan(), scans, pa.schema(found)

    def _made(self, batch: pa.RecordBatch) -> pa.Table:
        return self._frame(batch, self._bounds.text).to_arrow_table().rename_columns(self.schema.names)

    def _frame(self, batch: pa.RecordBatch, text: str) -> DataFrame:
        ENGINE.enter()
        if self._context.table_exist(SOURCE):
            self._context.deregister_table(SOURCE)
        known = batch.select([name for _, name in self._columns])
        named = known.rename_columns([name for name, _ in self._columns])
        self._context.register_record_batches(SOURCE, [pieces(named)])
        return self._context.sql_with_options(text, read_only())

    def _failed(self, error: BaseException) -> Error:
        reason = statement_reason(self.select, error_text(error))
        if (missing := _NO_TABLE.search(reason)) is not None:
            reason = f"it reads table {missing[1]!r}, and the only table of this query is named {SOURCE}: FROM {SOURCE}"
        return Code.SQL_INVALID(f"the query {self.select!r} over the rows of {SOURCE} failed: {reason}")


def _check_groups(columns: Sequence[GroupColumn], keys: set[str], merge: MergeMode) -> None:
    if any(column.origin is Origin.AGGREGATE for column in columns) and not merge.functions_by_field:
        raise Code.MERGE_MODE_INVALID(
            f"the query aggregates rows, and is applied to new rows as they come: merge = {shown(merge)} must be an "
            "Aggregate that puts its groups together, such as sum for a count"
        )
    if merge.keeps_all:
        raise Code.MERGE_MODE_INVALID(
            "SELECT DISTINCT and GROUP BY need a merge mode that keeps one row a key, such as First()"
        )
    functions = merge.functions_by_field
    for column in columns:
        match column.origin:
            case Origin.GROUP if column.name not in keys:
                raise Code.SCHEMA_INVALID(
                    f"column {column.name} tells groups apart, so it is part of the key of the view: add it to row_key "
                    "or sort_key, or leave it out of the GROUP BY or DISTINCT of the query",
                    column=column.name,
                )
            case Origin.AGGREGATE if column.name in keys:
                raise Code.SCHEMA_INVALID(
                    f"column {column.name} is an aggregate, which changes when rows are added, so it cannot be part of "
                    "the key of the view",
                    column=column.name,
                )
            case Origin.AGGREGATE:
                _check_combined(column, functions.get(column.name))
            case Origin.CONSTANT if functions.get(column.name, "last") not in _OF_CONSTANTS:
                raise Code.MERGE_MODE_INVALID(
                    f"column {column.name} is a constant, which {functions[column.name]} would change; use last",
                    column=column.name,
                )


def _check_combined(column: GroupColumn, given: str | None) -> None:
    """Raise UsageError if the function of the merge mode does not combine the results of an aggregate."""
    wanted = _COMBINED_BY.get(column.made_of)
    if wanted is None:
        raise Code.SQL_INVALID(
            f"column {column.name} is {column.made_of}, whose results for parts of the rows do not give that for all: "
            f"a view can have {', '.join(_COMBINED_BY)}. Keep what it is computed from, such as a sum and a count for "
            "an average, or a column of the values in the key for a count of distinct ones",
            column=column.name,
        )
    # Aggregate has a function for every value field, which is checked with the schema.
    if given is not None and given != wanted:
        raise Code.MERGE_MODE_INVALID(
            f"column {column.name} is a {column.made_of}, and {given} does not combine the results of several parts: "
            f"use {wanted}",
            column=column.name,
        )


def _groups(plan: LogicalPlan, width: int) -> list[GroupColumn] | None:
    """Return the columns of a plan that groups rows; None if each row of its result is made of one row.

    ``width`` is the number of columns of the whole query. Raises UsageError for a plan whose result for all rows is not
    the combination of its results for parts.
    """
    node: Any = plan.to_variant()
    kind = type(node).__name__
    if kind in _WHOLE_INPUT:
        raise _refused(_WHOLE_INPUT[kind])
    if kind == "TableScan" or not plan.inputs():
        return None
    if kind not in _ROW_BY_ROW | {"Aggregate", "Distinct"} or len(plan.inputs()) != 1:
        raise _refused(f"what the engine calls {kind}")
    below = _groups(plan.inputs()[0], width)
    if below is None and kind in _ROW_BY_ROW:
        return None
    match kind:
        case "SubqueryAlias" | "Sort":
            return below
        case "Projection":
            return _projected(node, below or ())
        case "Filter":
            raise _refused(
                "a condition on groups (HAVING), because a group may meet it only when all of its rows have come: put "
                "conditions on rows into WHERE, and those on groups into the reads of the view"
            )
        case "Aggregate" if below is None:
            return _aggregated(node)
        case "Distinct" if below is None and plan.display().startswith("Distinct:"):
            return [GroupColumn("", Origin.GROUP)] * width
        case _:
            raise _refused("DISTINCT ON" if below is None else "groups of groups")


def _aggregated(node: Any) -> list[GroupColumn]:
    """Return the columns of a node that aggregates rows."""
    groups = node.group_by_exprs()
    if not groups:
        raise _refused(
            "an aggregate without GROUP BY; group by a constant, which is then the key: SELECT 'all' AS k, count(*) AS "
            "n FROM source GROUP BY 'all'"
        )
    if any(expression.variant_name() == "GroupingSet" for expression in groups):
        raise _refused("ROLLUP, CUBE or GROUPING SETS")
    columns = [GroupColumn(_name_within(group), Origin.GROUP, group.canonical_name()) for group in groups]
    for expression in node.aggregate_exprs():
        function = node.agg_func_name(expression) + (" DISTINCT" if expression.to_variant().is_distinct() else "")
        name = _name_within(expression)
        columns.append(GroupColumn(name, Origin.AGGREGATE, function, expression.schema_name() in _ROW_COUNTS))
    return columns


def _projected(node: Any, below: Sequence[GroupColumn]) -> list[GroupColumn]:
    """Return the columns of a projection of groups. Raises UsageError if it leaves out a column of their key."""
    made = [_of_group(expression, below) for expression in node.projections()]
    known = {column.made_of for column in made}
    lost = [column.made_of for column in below if column.origin is Origin.GROUP and column.made_of not in known]
    if lost:
        raise _refused(f"groups by {', '.join(lost)} without a column of it, which tells them apart")
    return made


def _of_group(expression: Expr, below: Sequence[GroupColumn]) -> GroupColumn:
    """Return the column that an expression above groups makes: one of theirs under any name, or a constant."""
    given, name = expression, _name_within(expression)
    while given.variant_name() == "Alias":
        given = given.to_variant().expr()
    if given.variant_name() == "Literal":
        return GroupColumn(name, Origin.CONSTANT)
    found = [column for column in below if column.name == _name_within(given)]
    if given.variant_name() != "Column" or len(found) != 1:
        raise _refused(
            f"{given.canonical_name()} above its groups, where only their columns can be named. Compute values of rows "
            "below, as in sum(n + 1) or GROUP BY upper(o), and values of groups when the view is read"
        )
    return found[0]._replace(name=name)


def _name_within(expression: Expr) -> str:
    """Return the name by which the nodes above refer to an expression."""
    found: str = expression.to_variant().name() if expression.variant_name() == "Column" else expression.schema_name()
    return found


def _refused(what: str) -> Error:
    return Code.SQL_INVALID(f"a query that is applied to rows as they come cannot have {what}")
