"""Which types of fields a table can have that is published as Apache Iceberg, and as which. Pure.

A type is published if Iceberg has one of the same values, or a wider one, as which readers of Iceberg read the Parquet
type that data files have: ``int8`` as ``int``. Others are refused by name, when the setting is made, when a schema is
changed and when a table is created: a value is never changed. :data:`RULES` says it of each type, and docs/open.md
shows them.

Core types: :class:`TypeRule`. Source: decision 0074.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from lakebed.model.field_ids import INNER_MAX, children, inner_ids, shared_id
from lakebed.model.type_names import JSON, UUID, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.model.schema import Schema

UTC_NAMES = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})
"""Data files carry the names of other time zones, which PyIceberg refuses."""


class TypeRule(Struct, frozen=True):
    """Types of fields: their names, which they are, and their type in Iceberg, or why there is none, and what to do."""

    names: str
    includes: Callable[[pa.DataType], bool]
    iceberg: str = ""
    why_not: str = ""


def _is(*kinds: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda kind: kind in kinds


def _is_utc(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in UTC_NAMES


RULES = (
    TypeRule("bool", pa.types.is_boolean, "boolean"),
    TypeRule("int8, int16, int32", _is(pa.int8(), pa.int16(), pa.int32()), "int"),
    TypeRule("int64", pa.types.is_int64, "long"),
    TypeRule("float", pa.types.is_float32, "float"),
    TypeRule("double", pa.types.is_float64, "double"),
    TypeRule("decimal128(P, S)", pa.types.is_decimal128, "decimal(P, S)"),
    TypeRule("date32", pa.types.is_date32, "date"),
    TypeRule("time64[us]", _is(pa.time64("us")), "time"),
    TypeRule("timestamp[us]", _is(pa.timestamp("us")), "timestamp"),
    TypeRule("timestamp[us, tz=UTC]", _is_utc, "timestamptz"),
    TypeRule("string, json", lambda kind: pa.types.is_string(kind) or kind == JSON, "string"),
    TypeRule("uuid", _is(UUID), "uuid"),
    TypeRule("binary", pa.types.is_binary, "binary"),
    TypeRule("fixed_size_binary[N]", pa.types.is_fixed_size_binary, "fixed[N]"),
    TypeRule("list<T>", pa.types.is_list, "list<T>"),
    TypeRule("struct<N: T, …>", pa.types.is_struct, "struct<N: T, …>"),
    TypeRule("map<T, T>", pa.types.is_map, "map<T, T>"),
    TypeRule(
        "fixed_size_list<T>[N]",
        pa.types.is_fixed_size_list,
        why_not="Iceberg has no lists of a fixed size, and Polars refuses them in data files: use list",
    ),
    TypeRule(
        "uint8, uint16, uint32, uint64",
        pa.types.is_unsigned_integer,
        why_not="Iceberg has no unsigned types, and Spark refuses them in data files: use int16, int32 or int64",
    ),
    TypeRule("halffloat", pa.types.is_float16, why_not="Iceberg has no float of two bytes: widen the values to float"),
    TypeRule("null", pa.types.is_null, why_not="Iceberg has no type for nothing but null"),
    TypeRule(
        "decimal256(P, S)",
        pa.types.is_decimal256,
        why_not="Iceberg has decimals of at most 38 digits: use decimal128",
    ),
    TypeRule(
        "time32[s], time32[ms], time64[ns]",
        pa.types.is_time,
        why_not="Iceberg has times of day in microseconds: use time64[us]",
    ),
    TypeRule(
        "timestamp[s], timestamp[ms], timestamp[ns]",
        lambda kind: pa.types.is_timestamp(kind) and kind.unit != "us",
        # Spark's reader of Iceberg takes milliseconds for microseconds.
        why_not="Iceberg has timestamps in microseconds: use timestamp[us]",
    ),
    TypeRule(
        "timestamp[us, tz=Z]",
        pa.types.is_timestamp,
        why_not="Iceberg has timestamps in UTC: use timestamp[us, tz=UTC]",
    ),
)


def rule_of(kind: pa.DataType) -> TypeRule:
    """Return the rule of a type."""
    found = (rule for rule in RULES if rule.includes(kind))
    return next(found, TypeRule(name_of(kind), _is(kind), why_not="Iceberg has no such type"))


def unpublished(schema: Schema) -> str | None:
    """Return a clause about the first field that cannot be published, and why; None if all can."""
    for field in schema.fields:
        if reason := why_not(field.type):
            return f"field {field.name} is {name_of(field.type)}, and {reason}"
        if len(inner_ids(field.arrow)) > INNER_MAX:
            return f"field {field.name} has more than {INNER_MAX:,} inner columns: divide it into several fields"
    if pair := shared_id(schema.fields):
        return f"the inner columns of fields {pair[0]} and {pair[1]} have the same ids: add {pair[1]} by another name"
    paths = Counter(path for field in schema.fields for path in _paths(field.name, field.type))
    path, times = max(paths.items(), key=lambda item: item[1])
    return f"two columns have the path {path}, by which Iceberg names them: rename a field" if times > 1 else None


def why_not(kind: pa.DataType) -> str:
    """Return why a type, or one inside it, cannot be published, and what to do; empty if it can."""
    if pa.types.is_map(kind) and kind.key_type in (pa.int8(), pa.int16()):
        return "Polars does not widen the keys of maps: use int32 for them"
    reasons = (rule_of(kind).why_not, *(why_not(column.type) for column in children(kind)))
    return next(filter(None, reasons), "")


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Return the name of a column and those of its inner columns, in Iceberg's form: ``tags.element``."""
    yield path
    for column in children(kind):
        name = "element" if pa.types.is_list(kind) else column.name
        yield from _paths(f"{path}.{name}", column.type)
