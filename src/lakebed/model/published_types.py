"""Which types of fields a table can have that is published as Apache Iceberg. Pure.

A type is published if Iceberg has one of the same values, or a wider one, as which readers of Iceberg read the Parquet
type that data files have: ``int8`` as ``int``. Others are refused by name, when the setting is made, when a schema is
changed and when a table is created. Source: decision 0074.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.type_names import JSON, UUID, name_of

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

DECIMAL_DIGITS_MAX = 38
UTC_NAMES = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})
"""Data files carry the names of other time zones, which PyIceberg refuses."""


def unpublished(schema: Schema) -> str | None:
    """Return a clause about the first field that cannot be published, and why; None if all can."""
    for field in schema.fields:
        if reason := _why_not(field.type):
            return f"field {field.name} is {name_of(field.type)}, and {reason}"
    return None


def _why_not(kind: pa.DataType) -> str | None:
    if pa.types.is_nested(kind):
        return "the inner columns of lists, structs and maps have no field ids in data files"
    if pa.types.is_unsigned_integer(kind):
        return "Iceberg has no unsigned types, and Spark refuses them in data files: use int16, int32 or int64"
    if pa.types.is_float16(kind):
        return "Iceberg has no float of two bytes: widen the values to float"
    if pa.types.is_null(kind):
        return "Iceberg has no type for nothing but null"
    if pa.types.is_decimal256(kind):
        return f"Iceberg has decimals of at most {DECIMAL_DIGITS_MAX} digits: use decimal128"
    if kind == JSON:
        return "PyIceberg refuses files with columns of JSON: use string"
    if pa.types.is_duration(kind):
        return "Iceberg has no durations: use int64"
    if pa.types.is_time(kind) and kind.unit != "us":
        return "Iceberg has times of day in microseconds: use time64[us]"
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        # Spark's reader of Iceberg takes milliseconds for microseconds.
        return "Iceberg has timestamps in microseconds: use timestamp[us]"
    if pa.types.is_timestamp(kind) and kind.tz is not None and kind.tz not in UTC_NAMES:
        return "Iceberg has timestamps in UTC: use timestamp[us, tz=UTC]"
    return None if _is_known(kind) else "Iceberg has no such type"


def _is_known(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal128,
        pa.types.is_date32,
        pa.types.is_time64,
        pa.types.is_timestamp,
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_fixed_size_binary,
    )
    return kind == UUID or any(test(kind) for test in tests)
