"""Converts columns of Arrow to values of Python, exactly or not at all. Pure.

Types without a time convert by Arrow's own ``to_pylist``. It makes times one by one, in a hundred times the time, and
those of nanoseconds by pandas if that is installed; here they become numpy's values first. Python has no nanoseconds
and no years outside 1 to 9999: a value with one is refused, and so is no other.

Core: :func:`python_rows`. Errors: UsageError for a value that Python's types cannot represent.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from lakebed.errors import Code


def python_rows(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return the rows as tuples of Python values, in the order of the columns."""
    if not rows.num_columns:
        return [()] * rows.num_rows
    columns = [_python_column(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
    return list(zip(*columns, strict=True))


def _python_column(name: str, column: pa.Array) -> list[Any]:
    try:
        return _values(column)
    except (pa.ArrowInvalid, OverflowError, ValueError) as error:
        raise Code.TYPE_UNSUPPORTED(
            f"column {name} is {column.type}, and Python cannot hold a value of it ({error}); read the rows as Arrow "
            "(fetch_arrow_table), or cast the column in the statement",
            column=name,
        ) from error


def _values(column: pa.Array) -> list[Any]:
    kind = _representable(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if pa.types.is_timestamp(kind):
        return _aware(_of_class(column, dt.datetime), kind)
    if pa.types.is_date(kind):
        return _of_class(column, dt.date)
    if pa.types.is_duration(kind):
        return _of_class(column, dt.timedelta)
    if pa.types.is_time(kind) or pa.types.is_decimal(kind):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    return list(column.to_pylist())


def _of_class(column: pa.Array, wanted: type) -> list[Any]:
    """Return the values as numpy makes them: integers where the class has no such value."""
    values = column.to_numpy(zero_copy_only=False).tolist()
    if not set(map(type, values)) <= {wanted, type(None)}:
        raise OverflowError(f"{column.type} beyond the range of Python's {wanted.__name__}")
    return list(values)


def _aware(values: list[Any], kind: pa.TimestampType) -> list[Any]:
    """Return times without a zone, which are in UTC, in the zone of the type."""
    if kind.tz is None:
        return values
    if kind.tz == "UTC":
        return [None if value is None else value.replace(tzinfo=dt.UTC) for value in values]
    zone = pa.scalar(0, kind).as_py().tzinfo
    return [None if value is None else value.replace(tzinfo=dt.UTC).astimezone(zone) for value in values]


def _representable(kind: pa.DataType) -> pa.DataType:
    """Return the type with the units that Python has: the same if it has only those, at any depth."""
    if pa.types.is_dictionary(kind):
        return _representable(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_map(kind):
        return pa.map_(_representable(kind.key_type), _representable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_representable(member.type)) for member in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_representable(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_representable(kind.value_type)))
    return kind
