"""Feast's values as columns, and back.

Core functions: :func:`arrow_type`, :func:`encode`, :func:`decode`. A scalar or a list of scalars has a column of its
own type, so that SQL reads it. Values of other types (maps, sets, structs) are stored in Feast's encoding, as bytes.
Nulls are nulls; Feast has no nulls inside of lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from feast.protos.feast.types.Value_pb2 import Value
from feast.value_type import ValueType

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIME = pa.timestamp("s", tz="UTC")

SCALARS: dict[ValueType, tuple[str, pa.DataType]] = {
    ValueType.BYTES: ("bytes", pa.binary()),
    ValueType.STRING: ("string", pa.string()),
    ValueType.INT32: ("int32", pa.int32()),
    ValueType.INT64: ("int64", pa.int64()),
    ValueType.DOUBLE: ("double", pa.float64()),
    ValueType.FLOAT: ("float", pa.float32()),
    ValueType.BOOL: ("bool", pa.bool_()),
    ValueType.UNIX_TIMESTAMP: ("unix_timestamp", _TIME),
    ValueType.UUID: ("uuid", pa.string()),
    ValueType.TIME_UUID: ("time_uuid", pa.string()),
    ValueType.DECIMAL: ("decimal", pa.string()),
    ValueType.JSON: ("json", pa.string()),
}
"""The types with a column type, each with the start of its name in a value of Feast."""

LISTS = {ValueType[f"{one.name}_LIST"]: found for one, found in SCALARS.items()}


def arrow_type(kind: ValueType) -> pa.DataType:
    """Return the type of the column for a feature."""
    if kind in SCALARS:
        return SCALARS[kind][1]
    return pa.list_(LISTS[kind][1]) if kind in LISTS else pa.binary()


def is_null(value: Value) -> bool:
    """Return whether a value is null."""
    return value.WhichOneof("val") in (None, "null_val")


def plain(value: Value) -> Any:
    """Return a scalar or a list in Python's types; None if it is null."""
    name = value.WhichOneof("val")
    if name is None or name == "null_val":
        return None
    content = getattr(value, name)
    return list(content.val) if name.endswith("_list_val") else content


def encode(values: Iterable[Value], kind: ValueType) -> pa.Array:
    """Return the column of the values of one feature. Raises ArrowInvalid, ArrowTypeError if one does not fit."""
    if kind not in SCALARS and kind not in LISTS:
        return pa.array([None if is_null(one) else one.SerializeToString() for one in values], pa.binary())
    content = [plain(one) for one in values]
    return pa.array(content, _as_integers(arrow_type(kind))).cast(arrow_type(kind))


def decode(column: pa.ChunkedArray, kind: ValueType) -> list[Value]:
    """Return the values of a column, in its order."""
    content = column.cast(_as_integers(column.type)).to_pylist()
    if kind in SCALARS:
        name = f"{SCALARS[kind][0]}_val"
        return [Value() if one is None else Value(**{name: one}) for one in content]
    if kind in LISTS:
        name = f"{LISTS[kind][0]}_list_val"
        made = type(getattr(Value(), name))
        return [Value() if one is None else Value(**{name: made(val=one)}) for one in content]
    return [Value() if one is None else Value.FromString(one) for one in content]


def _as_integers(kind: pa.DataType) -> pa.DataType:
    """Return the type with seconds since 1970, as Feast has times, in place of times."""
    if pa.types.is_list(kind):
        return pa.list_(_as_integers(kind.value_type))
    return pa.int64() if pa.types.is_timestamp(kind) else kind
