"""Applies a query to the rows of a table part by part, to feed a view.

:class:`RowQuery` runs a SELECT over a table called ``source``. Rows come in any number of parts, and the query is
applied to one part at a time, so it computes rows from single rows, or groups that are merged afterwards: no limit, no
windows, no joins. Only deterministic functions are registered.

Errors: UsageError for a query that cannot be applied to parts, or fails on a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lakebed.engine.complexity import fitted
from lakebed.engine.datafusion import query_context, read_only
from lakebed.engine.stack import on_deep_stack
from lakebed.engine.statement_reasons import statement_reason
from lakebed.errors import Code, Error
from lakebed.model import types
from lakebed.model.arrays import empty_batch
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.runtimes import ENGINE

if TYPE_CHECKING:
    from datafusion import DataFrame
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


class RowQuery:
    """A query over rows of one Arrow schema. For one thread."""

    def __init__(self, select: str, rows: pa.Schema) -> None:
        """Raises UsageError for a query that is invalid, or that needs all rows at once."""
        self.select = select
        self._bounds = fitted(select, "the query")
        self._context = query_context()
        with translate_errors(self._failed):
            kinds, scans, found = self._run(self._looked_at, empty_batch(rows))
        for kind, said in _WHOLE_INPUT.items():
            if kind in kinds:
                raise Code.SQL_INVALID(f"a query that is applied to rows as they come cannot have {said}: {select}")
        if scans != 1:
            raise Code.SQL_INVALID(f"the query reads one table, {SOURCE}, once: {select}")
        self.aggregates = "Aggregate" in kinds
        """Whether groups of rows are aggregated: groups of several parts have to be aggregated again."""
        self.repeats = "Distinct" in kinds
        """Whether repeated rows are removed within a part, but not across parts."""
        kinds_of_found = [types.nullable_members(types.canonical(f.type)) for f in found]
        self.schema = pa.schema(
            [pa.field(f.name, kind, f.nullable) for f, kind in zip(found, kinds_of_found, strict=True)]
        )

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the query's rows for each batch. Raises UsageError if it fails on one."""
        for batch in batches:
            with translate_errors(self._failed):
                made = self._run(self._made, batch)
            yield from made.cast(self.schema).combine_chunks().to_batches()

    def _run(self, function: Callable[[pa.RecordBatch], T], batch: pa.RecordBatch) -> T:
        return function(batch) if self._bounds.flat else on_deep_stack(function, batch)

    def _looked_at(self, batch: pa.RecordBatch) -> tuple[set[str], int, pa.Schema]:
        """Return the kinds of nodes of the plan, how often it scans a table, and the schema of its result."""
        named = self._frame(batch, self._bounds.naming).schema().names
        frame = self._frame(batch, self._bounds.text)
        scans = frame.optimized_logical_plan().display_indent().count("TableScan: ")
        found = [field.with_name(name) for name, field in zip(named, frame.schema(), strict=True)]
        return set(_nodes(frame.logical_plan())), scans, pa.schema(found)

    def _made(self, batch: pa.RecordBatch) -> pa.Table:
        return self._frame(batch, self._bounds.text).to_arrow_table().rename_columns(self.schema.names)

    def _frame(self, batch: pa.RecordBatch, text: str) -> DataFrame:
        ENGINE.enter()
        if self._context.table_exist(SOURCE):
            self._context.deregister_table(SOURCE)
        self._context.register_record_batches(SOURCE, [[batch]])
        return self._context.sql_with_options(text, read_only())

    def _failed(self, error: BaseException) -> Error:
        reason = statement_reason(self.select, error_text(error))
        if (missing := _NO_TABLE.search(reason)) is not None:
            reason = f"it reads table {missing[1]!r}, and the only table of this query is named {SOURCE}: FROM {SOURCE}"
        return Code.SQL_INVALID(f"the query {self.select!r} over the rows of {SOURCE} failed: {reason}")


def _nodes(plan: LogicalPlan) -> Iterator[str]:
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        yield type(one.to_variant()).__name__
        waiting += one.inputs()
