"""Converts JSON values to Arrow columns of a type. Pure.

Errors: :data:`UNCONVERTIBLE`, for a value that is not of the type; the caller names it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any, Self

import msgspec
import pyarrow as pa

from lakebed.model.iso_times import times_of_texts
from lakebed.model.type_names import JSON, UUID
from lakebed.model.types import is_binary

UNCONVERTIBLE = (TypeError, ValueError, OverflowError, KeyError, AttributeError, InvalidOperation, pa.ArrowException)

_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_HEX = re.compile("([0-9a-fA-F]{2})*")


class WrittenFloat(float):
    """A number with all its digits, of which a float keeps some."""

    digits: str

    def __new__(cls, digits: str) -> Self:
        """Return the number of these digits."""
        made = super().__new__(cls, digits)
        made.digits = digits
        return made


def decode_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert JSON values to a column of the type. Raises TypeError, ValueError, ArrowException for misfits."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _times(values, kind)
    if pa.types.is_struct(kind):
        members = [kind.field(i) for i in range(kind.num_fields)]
        parts = [decode_array([None if v is None else v.get(m.name) for v in values], m.type) for m in members]
        return pa.StructArray.from_arrays(parts, fields=members, mask=_nulls(values))
    if pa.types.is_map(kind):
        # Pairs, or an object: most programs write a map with text keys as an object.
        maps = [list(value.items()) if isinstance(value, dict) else value for value in values if value is not None]
        items = [pair for pairs in maps for pair in pairs]
        keys = decode_array([key for key, _ in items], kind.key_type)
        found = decode_array([item for _, item in items], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(values, pa.int32()), keys, found, kind)
    if pa.types.is_fixed_size_list(kind):
        return decode_array(values, pa.list_(kind.value_type)).cast(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = [item for value in values if value is not None for item in _list(value)]
        cls, offset = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(kind) else (pa.ListArray, pa.int32())
        return cls.from_arrays(_offsets(values, offset), decode_array(items, kind.value_type), type=kind)
    convert = _converter(kind)
    # Arrow converts most columns directly, without a call for each value.
    if convert is None or _all_are(values, _UNCONVERTED.get(convert, NoneType)):
        return pa.array(values, kind)
    return pa.array([None if v is None else convert(v) for v in values], kind)


def _all_are(values: list[Any], kind: type) -> bool:
    """Return whether all values are exactly of this class, or None."""
    return {kind, NoneType}.issuperset(map(type, values))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _nulls(values: list[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return the offsets of lists; a null offset makes its list null."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], kind)


def _times(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not _all_are(values, str) and any(not isinstance(value, str | None) for value in values):
        raise TypeError("dates and times are text in ISO 8601")
    texts = pa.array(values, pa.string())
    if pa.types.is_time(kind):
        import pyarrow.compute as pc

        # Arrow cannot cast text to a time of day.
        return pc.binary_join_element_wise("1970-01-01T", texts, "").cast(pa.timestamp("ns")).cast(kind)
    return times_of_texts(texts, kind)


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that converts a JSON value for Arrow; None if it needs no conversion."""
    if kind == UUID:
        return uuid.UUID
    if kind == JSON:
        return _json
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return _decimal
    if is_binary(kind):
        return _binary
    return None


def _json(value: Any) -> str:
    """Return the text of a value of a JSON column: a text is JSON itself, and any other value is encoded."""
    return value if isinstance(value, str) else json_text(value)


def json_text(value: Any) -> str:
    """Return a value as JSON, with all digits of numbers that have them."""
    return msgspec.json.encode(value, enc_hook=_digits).decode()


def _digits(value: Any) -> msgspec.Raw:
    if not isinstance(value, WrittenFloat):
        raise TypeError(f"{value!r} is no value of JSON")
    return msgspec.Raw(value.digits.encode())


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not a whole number")
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, str):
        return _FLOATS[value]
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | WrittenFloat):
        raise TypeError(f"{value!r} is not a decimal, as a number or in text")
    return Decimal(value.digits if isinstance(value, WrittenFloat) else value)


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"{str(value)[:100]!r} is not text of hex digits, two for each byte")
    return bytes.fromhex(value)


_UNCONVERTED: dict[Callable[[Any], Any], type] = {_integer: int, _float: float}
"""The class whose values a converter returns unchanged."""
