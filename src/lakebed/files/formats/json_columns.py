"""Converts JSON values to Arrow columns of a type. Pure.

Text that stands for a number, a date or a time has the same form as in CSV (:mod:`lakebed.files.formats.text_types`). A
number is converted by its digits, unless it becomes a double, as which it was decoded.

Errors: :data:`UNCONVERTIBLE`, for a value that is not of the type; the caller names it.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any, Self

import msgspec
import pyarrow as pa

from lakebed.files.formats.text_types import usual_values
from lakebed.model.text_values import values_of_texts
from lakebed.model.type_names import JSON, UUID
from lakebed.model.types import is_binary, is_number

UNCONVERTIBLE = (TypeError, ValueError, OverflowError, KeyError, AttributeError, pa.ArrowException)

_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_HEX = re.compile("([0-9a-fA-F]{2})*")
_ZERO = re.compile(r"[^eE1-9]*([eE]|$)")


class WrittenFloat(float):
    """A number with all its digits, of which a float keeps some."""

    digits: str

    def __new__(cls, digits: str) -> Self:
        """Return the number of these digits."""
        made = super().__new__(cls, digits)
        made.digits = digits
        return made


def decode_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert JSON values to a column of the type. Raises TypeError, ValueError, ArrowException for misfits. Members
    that a struct does not have are left out: :func:`lakebed.model.members.check_members` finds them before.
    """
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _times(values, kind)
    if pa.types.is_struct(kind):
        if (odd := next((v for v in values if not isinstance(v, dict | None)), None)) is not None:
            raise TypeError(f"{odd!r} is not an object")
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
    if is_number(kind) and not pa.types.is_float64(kind):
        return _numbers_by_digits(values, kind)
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
    return _of_texts(values, kind)


def _of_texts(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Return the values of texts. Raises ValueError for text that is no value of the type in its usual form."""
    column = pa.array(texts, pa.string())
    values, odd = usual_values(column, kind)
    _check_kept(column, values)
    if odd is not None:
        raise ValueError("it has another form than usual: --cast reads that, too")
    return values


def _check_kept(texts: pa.Array, values: pa.Array) -> None:
    """Raise ValueError if a text has no value."""
    if values.null_count > texts.null_count:
        raise ValueError("no value of the type is written so, or it would be rounded or out of range")


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that converts a JSON value for Arrow; None if it needs no conversion."""
    if kind == UUID:
        return _uuid
    if kind == JSON:
        return _json
    if pa.types.is_float64(kind):
        return _float
    if is_binary(kind):
        return _binary
    return None


def _numbers_by_digits(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return integers, decimals and floats that are not doubles: by their digits, unless all are whole."""
    if pa.types.is_integer(kind) and _all_are(values, int):
        return pa.array(values, kind)
    is_integer, is_float = pa.types.is_integer(kind), pa.types.is_floating(kind)
    digits_of = _integer_text if is_integer else _float_text if is_float else _number_text
    digits = [None if value is None else digits_of(value) for value in values]
    if not is_float and (texts := [value for value in values if isinstance(value, str)]):
        _of_texts(texts, kind)
    column = pa.array(digits, pa.string())
    made = values_of_texts(column, kind)
    _check_kept(column, made)
    return made


def _uuid(value: Any) -> uuid.UUID:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return uuid.UUID(value)


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


def _integer_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not a whole number")
    return str(value)


def _number_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str | WrittenFloat):
        raise TypeError(f"{value!r} is not a decimal, as a number or in text")
    return value.digits if isinstance(value, WrittenFloat) else str(value)


def _float_text(value: Any) -> str:
    if isinstance(value, str):
        return repr(_FLOATS[value])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value.digits if isinstance(value, WrittenFloat) else repr(value)


def _float(value: Any) -> float:
    if isinstance(value, str):
        return _FLOATS[value]
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    made = float(value)
    if (isinstance(value, int) and value not in (made, Decimal(repr(made)))) or is_lost(value):
        raise ValueError(f"{value!r} is no double")
    return made


def is_lost(value: Any) -> bool:
    """Return whether a number became infinity or zero because a float cannot hold it."""
    if not isinstance(value, WrittenFloat):
        return False
    number = float(value)
    return math.isinf(number) or (number == 0 and not _ZERO.match(value.digits))


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"{str(value)[:100]!r} is not text of hex digits, two for each byte")
    return bytes.fromhex(value)


_UNCONVERTED: dict[Callable[[Any], Any], type] = {_float: float}
"""The class whose values a converter returns unchanged."""
