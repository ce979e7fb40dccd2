"""Predicates: conditions in SQL on the columns of one row.

The dialect is DataFusion's; names of columns are case-sensitive. Only expressions are accepted: the engine parses no
statement here, functions that do not depend on the row alone (random values, the time, aggregates) are not registered,
and the plan of a predicate shows whether it reads more than one row. So a predicate has the same value for a row on
every machine and at any time.

:func:`check_where` checks a predicate once, over no rows. The engine evaluates it in its plans, :func:`keep` over rows
in memory. Core type: :class:`Predicate`. Errors: UsageError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from datafusion import lit
from datafusion.expr import Filter, TableScan

from lakebed.engine.datafusion import ThreadSession, column, context, drop_non_row_functions, operators_of, pieces
from lakebed.engine.stack import on_deep_stack
from lakebed.engine.statement_reasons import statement_reason
from lakebed.engine.value_sizes import fit_bounded
from lakebed.engine.workarounds.merged_conditions import must_stand_alone
from lakebed.engine.workarounds.typed_literals import with_typed_literals
from lakebed.errors import Code, Error, UsageError
from lakebed.model import types
from lakebed.model.arrays import empty_table
from lakebed.model.checks import is_text, shown
from lakebed.model.foreign_errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from datafusion import DataFrame, Expr, SessionContext
    from datafusion.plan import LogicalPlan

    from lakebed.engine.complexity import Fitted
    from lakebed.model.schema import Schema

OF_A_ROW = {"FilterExec", "ProjectionExec", "DataSourceExec", "CoalesceBatchesExec", "CooperativeExec", "EmptyExec"}
"""The operators of a plan that only filters rows."""

_RULES_THAT_DROP_COLUMNS = ("simplify_expressions", "eliminate_filter", "propagate_empty_relation", "push_down_filter")

_POOL_BYTES = 64 * 1024 * 1024
_BATCH_ROWS = 8192
_CACHED_CHARACTERS_MAX = 16_384
"""Maximum characters of a cached predicate: 256 longer ones would take gigabytes."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate that was checked against a schema, and the columns that it names, at least one.

    ``text`` is for messages; ``sql`` is for the engine, and may have more parentheses. If ``flat``, it may run on any
    stack. ``parts`` is the predicate as the engine's optimizer rewrites it: conditions joined by AND, with equal types.
    ``alone`` is the form for filters of sorted rows, which the engine does not merge with other conditions
    (:mod:`lakebed.engine.workarounds.merged_conditions`).
    """

    text: str
    columns: tuple[str, ...]
    parts: tuple[Expr, ...] = field(compare=False)
    alone: str
    sql: str = field(compare=False)
    flat: bool = field(compare=False)

    def evaluation_error(self, error: BaseException) -> Error:
        """Return the error for a row for which the engine cannot evaluate it, such as a division by zero."""
        reason = str(error).partition("\n")[0].removeprefix("DataFusion error: ")
        return Code.EXPRESSION_FAILED(f"cannot evaluate predicate {self.text!r}: {reason}", where=self.text)


def check_where(where: Any, schema: pa.Schema) -> Predicate:
    """Check a predicate over rows of these columns. Raises UsageError, which names an unknown column."""
    if not is_text(where):
        raise Code.PREDICATE_INVALID(
            f'where = {shown(where)}: must be a predicate in SQL, such as "n > 3 AND s IS NULL"'
        )
    bounds = fit_bounded(where, "the predicate")
    bounds = replace(bounds, text=with_typed_literals(bounds.text, schema))
    check = _predicate_or_reason if len(where) <= _CACHED_CHARACTERS_MAX else _predicate_or_reason.__wrapped__
    found = check(where, bounds, schema) if bounds.flat else on_deep_stack(check, where, bounds, schema)
    if isinstance(found, str):
        raise Code.PREDICATE_INVALID(
            f"not a predicate over a row of this table: {where!r} ({found}). Its columns are {', '.join(schema.names)}",
            where=where,
        )
    return found


def passing(frame: DataFrame, where: Predicate, schema: Schema) -> DataFrame:
    """Return the rows for which the predicate is true, evaluated in the types of the schema and not in those of
    Parquet.

    Parquet stores seconds as milliseconds, which could be compared with half a second.
    """
    cast = {f.name: f.type for f in schema.fields if f.name in where.columns and types.in_parquet(f.type) != f.type}
    if not cast:
        return frame.filter(where.alone)
    names = frame.schema().names
    # The stored columns stay, under unused names, because the engine does not assume that casts preserve the order.
    beside = {name: max(names, key=len) + name for name in cast}
    visible = [column(n).cast(cast[n]).alias(n) if n in cast else column(n) for n in names]
    found = frame.select(*visible, *(column(n).alias(beside[n]) for n in cast)).filter(where.alone)
    return found.select(*(column(beside[n]).alias(n) if n in cast else column(n) for n in names))


def keep(rows: pa.RecordBatch, predicate: Predicate) -> pa.RecordBatch:
    """Return the rows for which the predicate is true, in their order; ``rows`` have its columns.

    Raises UsageError if it cannot be evaluated for a row, such as a division by zero.
    """
    return rows.filter(is_true(rows, predicate))


def is_true(rows: pa.RecordBatch, predicate: Predicate) -> pa.BooleanArray:
    """Return for each row whether the predicate is true; null where it is null. Raises as :func:`keep`."""
    with translate_errors(predicate.evaluation_error):
        return _is_true(rows, predicate) if predicate.flat else on_deep_stack(_is_true, rows, predicate)


def _is_true(rows: pa.RecordBatch, predicate: Predicate) -> pa.BooleanArray:
    frame = row_engine().from_arrow(pa.Table.from_batches(pieces(rows.select(list(predicate.columns)))))
    true = frame.select(frame.parse_sql_expr(predicate.sql).alias("true")).to_arrow_table().column("true")
    return true.cast(pa.bool_()).combine_chunks()


@lru_cache(maxsize=256)
def _predicate_or_reason(where: str, bounds: Fitted, schema: pa.Schema) -> Predicate | str:
    """Return the predicate, or the reason why it is invalid."""
    engine = row_engine()
    try:
        with translate_errors(lambda error: Code.PREDICATE_INVALID(reason_of(error, bounds.text))):
            frame = engine.from_arrow(empty_table(schema))
            wanted = frame.filter(bounds.text)
            operators = set(operators_of(wanted.execution_plan()))
            named, parts = columns_named(bounds.text, schema), tuple(_conditions(wanted.optimized_logical_plan()))
    except UsageError as error:
        return error.message
    if operators - OF_A_ROW:
        return "it reads more than a row"
    apart = must_stand_alone(_conditions(wanted.logical_plan()), parts)
    alone = f"({bounds.text}\n) IS TRUE" if apart else bounds.text
    return Predicate(where, named or tuple(schema.names[:1]), parts, alone, bounds.text, bounds.flat)


def _conditions(plan: LogicalPlan) -> Iterator[Expr]:
    """Return the conditions of the filters of a plan."""
    pending = [plan]
    while pending:
        one = pending.pop()
        pending += one.inputs()
        variant = one.to_variant()
        if isinstance(variant, Filter):
            yield variant.predicate()


def reason_of(error: BaseException, text: str) -> str:
    """Return the engine's last message about the text, without its suggestions and the generated names of frames."""
    if "RecursionLimitExceeded" in str(error):
        return "it nests brackets, CASE or NOT too deep"
    said = str(error).rpartition("caused by\n")[2].partition("\n")[0].removeprefix("DataFusion error: ")
    return statement_reason(text, re.sub(r"\bc[0-9a-f]{30,}\.", "", said)[:300].rstrip("."))


def columns_named(where: str, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that a predicate names, which the parser needs even if the value does not depend on them."""
    engine = context(partitions=1, batch_rows=1, pool_bytes=_POOL_BYTES)
    for rule in _RULES_THAT_DROP_COLUMNS:
        engine.remove_optimizer_rule(rule)
    pending = [engine.from_arrow(empty_table(schema)).filter(where).select(lit(1)).optimized_logical_plan()]
    found: list[str] = []
    while pending:
        one = pending.pop()
        pending += one.inputs()
        scan = one.to_variant()
        if isinstance(scan, TableScan):
            found += [name for _, name in scan.projection()]
    return tuple(found)


def _row_engine() -> SessionContext:
    engine = context(partitions=1, batch_rows=_BATCH_ROWS, pool_bytes=_POOL_BYTES)
    drop_non_row_functions(engine)
    return engine


row_engine = ThreadSession(_row_engine)
"""Sessions that have only functions that depend on one row alone."""


_ROW = pa.table({"": pa.array([True])})
"""A row whose column no expression can name."""


def constant(text: str, kind: pa.DataType) -> pa.Scalar:
    """Return the value of an expression as a scalar of that type. Raises UsageError if it is not constant."""

    def refused(error: BaseException) -> Error:
        return Code.EXPRESSION_FAILED(f"{text!r} is no constant of type {kind}: {reason_of(error, bounds.text)}")

    bounds = fit_bounded(text, "the constant", once=True)

    def value() -> pa.Scalar:
        frame = row_engine().from_arrow(_ROW)
        found = frame.select(frame.parse_sql_expr(bounds.text).alias("value")).to_arrow_table().column(0)
        return found.cast(kind)[0]

    with translate_errors(refused):
        return value() if bounds.flat else on_deep_stack(value)
