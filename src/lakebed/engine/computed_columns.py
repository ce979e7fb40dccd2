"""Computes columns from columns in DataFusion: generated fields, and casts that are null for unconvertible values.

The expression of a generated field is SQL over one row. It must always give the same value for a row, because rows are
sorted and found by it, so only deterministic scalar functions are registered: no aggregates, windows or subqueries.
Times are in UTC unless their type says otherwise, whatever the time zone of the machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.datafusion import ThreadSession, column, drop_non_row_functions, expression_context, pieces
from lakebed.engine.stack import on_deep_stack
from lakebed.engine.value_sizes import fit_bounded
from lakebed.errors import Code, Error, UsageError
from lakebed.model import types
from lakebed.model.arrays import empty_batch
from lakebed.model.foreign_errors import translate_errors
from lakebed.model.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from datafusion import DataFrame, Expr, SessionContext

_ROWS = "rows"


# -- generated fields -------------------------------------------------------------------------------------------


def checked(schema: Schema) -> Schema:
    """Return the schema with the inputs of its generated fields.

    Raises UsageError for an expression that is not SQL, names no field or an unknown one, is not deterministic, or has
    another type than its field.
    """
    fields = {field.id: _generated_field(field, schema) for field in schema.generated}
    groups = [tuple(fields.get(f.id, f) for f in group) for group in (schema.row_key, schema.sort_key, schema.values)]
    return Schema(*groups, version=schema.version)


def generate(field: Field, rows: pa.RecordBatch) -> pa.Array:
    """Return the generated field of each row, of the field's type; ``rows`` have its inputs.

    Raises SchemaMismatchError if the expression fails on a row.
    """

    def failed(error: BaseException) -> Error:
        text = f"field {field.name} cannot be computed as {field.expression}: {_reason(error)}"
        return Code.VALUE_NOT_REPRESENTABLE(text, column=field.name)

    with translate_errors(failed):
        return _evaluated(field, rows.select(list(field.inputs))).cast(field.type)


def _generated_field(field: Field, schema: Schema) -> Field:
    plain = [f for f in schema.fields if not f.expression]
    found = _type_of(field, plain)
    if not types.widens(found, field.type):
        raise Code.GENERATED_FIELD_INVALID(
            f"generated field {field.name} is {field.type}, but {field.expression} has the type "
            f"{types.canonical(found)}; cast it, or change the type of the field",
            column=field.name,
        )
    # Its inputs are the fields without which it is invalid.
    inputs = tuple(f.name for f in plain if not _is_type_of(field, [other for other in plain if other is not f]))
    if not inputs:
        raise Code.GENERATED_FIELD_INVALID(
            f"generated field {field.name}: the expression {field.expression} must name another field",
            column=field.name,
        )
    return replace(field, inputs=inputs)


def _type_of(field: Field, plain: list[Field]) -> pa.DataType:
    """Return the type of the expression, by evaluating it over no rows."""
    rows = empty_batch(pa.schema([f.arrow for f in plain]))

    def refused(error: BaseException) -> Error:
        return Code.GENERATED_FIELD_INVALID(
            f"generated field {field.name} cannot be computed as {field.expression}: {_reason(error)}. The fields are: "
            f"{', '.join(f.name for f in plain)}; functions are DataFusion's that always give the same for a row",
            column=field.name,
        )

    with translate_errors(refused):
        return _evaluated(field, rows).type


def _evaluated(field: Field, rows: pa.RecordBatch) -> pa.Array:
    """Evaluate the expression of a generated field over rows. Raises UsageError if it is too long or too deep."""
    bounds = fit_bounded(field.expression, f"the expression of the generated field {field.name}")

    def made() -> pa.Array:
        return _computed(rows, lambda frame: frame.parse_sql_expr(bounds.text))

    return made() if bounds.flat else on_deep_stack(made)


def _is_type_of(field: Field, plain: list[Field]) -> bool:
    try:
        _type_of(field, plain)
    except UsageError:
        return False
    return True


def _reason(error: BaseException) -> str:
    """Return DataFusion's message, without its suggestions."""
    lines = str(error).removeprefix("DataFusion error: ").splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")[:300]


# -- casts ------------------------------------------------------------------------------------------------------


def try_cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the values as ``wanted``; null for those that it cannot represent.

    These are texts of another form, numbers that would be rounded or are out of range, and times finer than the unit.
    """
    plain = values.cast(types.canonical(values.type))
    cast = _cast(plain, wanted)
    finer = _finer(wanted) if pa.types.is_string(plain.type) else plain.type
    if finer == pa.float16():
        # Arrow compares no floats of two bytes.
        finer = pa.float32()
    if pa.types.is_string(plain.type) and pa.types.is_floating(wanted):
        return pc.if_else(_overflowed(plain, cast), pa.scalar(None, wanted), cast)
    if finer is None or pa.types.is_string(wanted):
        return cast
    # Cast back, or to a finer type, and compare: a value that lost precision differs. NaN differs from itself, and is
    # kept.
    back, exact = _cast(cast, finer), _cast(plain, finer)
    # A number at the end of a float's range may fail to cast back.
    lost = pc.fill_null(pc.not_equal(back, exact), pc.and_(pc.is_valid(exact), pc.is_null(back)))
    if pa.types.is_floating(finer):
        lost = pc.and_not(lost, pc.fill_null(pc.and_(pc.is_nan(back), pc.is_nan(exact)), fill_value=False))
    return pc.if_else(lost, pa.scalar(None, wanted), cast)


def _overflowed(texts: pa.Array, cast: pa.Array) -> pa.Array:
    """Return which floats are infinite although their text is a number, which is too large for the type."""
    infinite = pc.fill_null(pc.is_inf(cast.cast(pa.float64())), fill_value=False)
    if not pc.any(infinite).as_py():
        return infinite
    return pc.and_(infinite, pc.fill_null(pc.match_substring_regex(texts, "[0-9]"), fill_value=False))


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if values.type == wanted:
        return values
    rows = pa.RecordBatch.from_arrays([values], names=["c"])
    return _computed(rows, lambda _: column("c").try_cast(wanted)).cast(wanted)


def _finer(wanted: pa.DataType) -> pa.DataType | None:
    """Return a finer type, to detect text that ``wanted`` would truncate; None if it truncates none."""
    if pa.types.is_date32(wanted):
        return pa.timestamp("us")
    if pa.types.is_timestamp(wanted):
        return pa.timestamp("ns", wanted.tz)
    if pa.types.is_time(wanted):
        return pa.time64("ns")
    if pa.types.is_decimal(wanted):
        return pa.decimal256(76, min(76, wanted.scale + 18))
    return None


# -- the engine -------------------------------------------------------------------------------------------------


def _computed(rows: pa.RecordBatch, expression: Callable[[DataFrame], Expr]) -> pa.Array:
    """Compute one column from the rows."""
    engine = _engine()
    engine.register_record_batches(_ROWS, [pieces(rows)])
    try:
        frame = engine.table(_ROWS)
        made = frame.select(expression(frame)).to_arrow_table().column(0)
    finally:
        engine.deregister_table(_ROWS)
    return pa.concat_arrays(made.chunks) if made.num_chunks else pa.array([], made.type)


def _row_functions() -> SessionContext:
    """Return a session that has only functions that depend on one row alone."""
    engine = expression_context()
    drop_non_row_functions(engine)
    return engine


_engine = ThreadSession(_row_functions)
