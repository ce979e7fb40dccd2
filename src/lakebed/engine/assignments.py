"""Assignments set value columns to SQL expressions over their row, as in ``UPDATE t SET a = a + 1``.

The dialect and the functions are those of predicates (:mod:`lakebed.engine.predicate`): an expression depends on its
row alone, so it has the same value on every machine and at any time. Key columns cannot be assigned, nor columns from
which a key is generated: the row would belong elsewhere.

:func:`check_assignments` checks expressions and types before any row is read. :func:`assigned` computes the columns.

Core type: :class:`Assignment`. Errors: UsageError and SchemaMismatchError for invalid assignments; errors of a row name
its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.engine.datafusion import operators_of, pieces
from lakebed.engine.predicate import OF_A_ROW, columns_named, reason_of, row_engine
from lakebed.engine.stack import on_deep_stack
from lakebed.engine.value_sizes import fit_bounded
from lakebed.engine.workarounds.typed_literals import with_typed_literals
from lakebed.errors import Code, Error, UsageError
from lakebed.model import types
from lakebed.model.arrays import empty_table
from lakebed.model.checks import is_text, shown
from lakebed.model.foreign_errors import translate_errors
from lakebed.model.type_names import name_of

if TYPE_CHECKING:
    from lakebed.model.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column and the expression for its values, which names the columns ``named``.

    ``text`` is for messages, ``sql`` for the engine.
    """

    column: str
    text: str
    sql: str
    flat: bool
    named: tuple[str, ...] = ()

    def evaluation_error(self, error: BaseException) -> Error:
        """Return the error for a row for which the engine cannot evaluate it, such as a division by zero."""
        reason = str(error).partition("\n")[0].removeprefix("DataFusion error: ")
        return Code.EXPRESSION_FAILED(f"cannot evaluate {self.text!r} for column {self.column}: {reason}")


def kept_names(schema: Schema) -> list[str]:
    """Return the columns that a partial row has beside assigned ones: of keys, of what is generated, and without nulls.

    In order: keys first.
    """
    inputs = {name for one in schema.generated for name in one.inputs}
    more = {field.name for field in schema.fields if not (field.nullable or field.expression)} | inputs
    return [*schema.sort_names, *sorted(more - set(schema.sort_names))]


def check_assignments(changes: Any, schema: Schema) -> tuple[Assignment, ...]:
    """Check ``changes``, expressions by column, and return them as assignments. Raises UsageError or
    SchemaMismatchError; reads no row.
    """
    if not isinstance(changes, Mapping):
        raise Code.ARGUMENT_INVALID(
            f'set = {shown(changes)}: must map columns to SQL expressions, such as {{"delay": "delay + 1"}}'
        )
    return tuple(_assignment(column, text, schema) for column, text in changes.items())


def assigned(rows: pa.RecordBatch, assignments: Sequence[Assignment]) -> pa.RecordBatch:
    """Return the rows with the assigned columns, all computed from the old rows.

    The columns have the types of the expressions. Raises UsageError if one cannot be evaluated for a row.
    """
    columns = {name: rows.column(name) for name in rows.schema.names}
    for one in assignments:
        with translate_errors(one.evaluation_error):
            columns[one.column] = _evaluated(one, rows)
    return pa.RecordBatch.from_pydict(columns)


def _assignment(column: Any, text: Any, schema: Schema) -> Assignment:
    field = assignable(column, schema)
    if not is_text(text):
        raise Code.ARGUMENT_INVALID(
            f'set: {column} = {shown(text)}: must be an SQL expression over the columns, such as "delay + 1" or "NULL"',
            column=column,
        )
    bounds = fit_bounded(text, f"the expression for column {column}")
    one = Assignment(column, text, with_typed_literals(bounds.text, schema.arrow), bounds.flat)
    found, named = _looked_at(one, schema) if one.flat else on_deep_stack(_looked_at, one, schema)
    if pa.types.is_null(found) and not field.nullable:
        raise Code.VALUE_NULL(f"set: {column} = {text}: column {column} is not nullable", column=column)
    texts = pa.types.is_string(types.canonical(found)) and not pa.types.is_string(field.type)
    fits = types.widens(found, field.type) or types.exact(found, field.type)
    if not fits and (texts or not types.castable(found, field.type)):
        raise Code.COLUMN_TYPE_MISMATCH(
            f"set: {column} = {text}: the expression is {name_of(types.canonical(found))}, and column {column} is "
            f"{name_of(field.type)}; "
            "cast it in the expression, with CAST or TRY_CAST",
            column=column,
            found=str(found),
            expected=str(field.type),
        )
    return replace(one, named=named)


def assignable(column: Any, schema: Schema) -> Field:
    """Return the value field of that name. Raises UsageError for other fields."""
    field = schema.by_name.get(column) if isinstance(column, str) else None
    if field is None:
        raise Code.COLUMN_UNKNOWN(
            f"set: no column {shown(column)}; the table has {', '.join(schema.names)}", fields=[str(column)]
        )
    if column in schema.sort_names:
        raise Code.ARGUMENT_INVALID(
            f"set: {column} is a key column, and keys cannot change in place: delete the rows, and write them again "
            "under the new key",
            column=column,
        )
    generated = [one.name for one in schema.generated if column in one.inputs]
    if generated:
        raise Code.ARGUMENT_INVALID(
            f"set: key column {generated[0]} is generated from {column}, and keys cannot change in place: delete the "
            "rows, and write them again",
            column=column,
        )
    return field


def _looked_at(one: Assignment, schema: Schema) -> tuple[pa.DataType, tuple[str, ...]]:
    """Return the type of the expression over a row, and the columns that it names. Raises UsageError."""
    engine = row_engine()
    try:
        with translate_errors(lambda error: Code.PREDICATE_INVALID(reason_of(error, one.sql))):
            frame = engine.from_arrow(empty_table(schema.arrow))
            made = frame.select(frame.parse_sql_expr(one.sql).alias("value"))
            operators = set(operators_of(made.execution_plan()))
            found: pa.DataType = made.schema().field("value").type
            named = columns_named(f"({one.sql}\n) IS NULL", schema.arrow)
    except UsageError as error:
        raise _no_expression(one, schema, error.message) from error
    if operators - OF_A_ROW:
        raise _no_expression(one, schema, "it reads more than a row")
    return found, named


def _no_expression(one: Assignment, schema: Schema, reason: str) -> Error:
    return Code.SQL_INVALID(
        f"set: {one.column} = {one.text}: not an SQL expression over a row of this table ({reason}). Its columns are "
        f"{', '.join(schema.names)}; functions are those that always give the same for a row",
        column=one.column,
    )


def _evaluated(one: Assignment, rows: pa.RecordBatch) -> pa.Array:
    def made() -> pa.Array:
        frame = row_engine().from_arrow(pa.Table.from_batches(pieces(rows)))
        column = frame.select(frame.parse_sql_expr(one.sql).alias("value")).to_arrow_table().column("value")
        return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)

    if not rows.num_rows:
        return rows.column(one.column)
    return made() if one.flat else on_deep_stack(made)
