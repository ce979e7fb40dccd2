"""Values of PostgreSQL as columns of Arrow, from the text that the server writes.

Each type of a column becomes a :class:`PostgresType`: the name of the field's type, and a function over a whole column
of texts. Sessions have the settings :data:`SESSION`, so that a text has one form. A type that has no counterpart, such
as an interval, an address, a range or a numeric without precision, is its text.

Rules. A value is exact or is refused: ``infinity``, years before 1 or after 9999, NaN in a numeric, an array of several
dimensions. Pure.

Source: PostgreSQL, "Data Types"; ``src/include/catalog/pg_type.dat``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

SESSION = {
    "bytea_output": "hex",
    "datestyle": "ISO",
    "extra_float_digits": "3",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
}
"""Settings of a session, by which texts have one form."""

Convert = Callable[[pa.StringArray], pa.Array]


@dataclass(frozen=True, slots=True)
class PostgresType:
    """The type of a field, by its name, and how a column of texts becomes values of it.

    The conversion raises ArrowInvalid or ValueError if one of the texts is no such value.
    """

    name: str
    convert: Convert

    def array(self, values: list[bytes | None]) -> pa.Array:
        """Convert texts as they came."""
        return self.convert(pa.array(values, pa.binary()).cast(pa.string()))

    @staticmethod
    def shown(value: bytes) -> str:
        """Return the text."""
        return value.decode("utf-8", "replace")

    def listed(self) -> PostgresType:
        """Return the type of arrays of these values."""
        item = TEXT if self.name == "json" else self
        return PostgresType(f"list<{item.name}>", lambda texts: _lists(texts, item.convert))


def _cast_to(kind: pa.DataType) -> PostgresType:
    return PostgresType(str(kind), lambda texts: texts.cast(kind))


TEXT = PostgresType("string", lambda texts: texts)


def _booleans(texts: pa.StringArray) -> pa.Array:
    return pc.equal(texts, "t")


def _bytes(texts: pa.StringArray) -> pa.Array:
    return pa.array([None if one is None else bytes.fromhex(one[2:]) for one in texts.to_pylist()], pa.binary())


def _uuids(texts: pa.StringArray) -> pa.Array:
    digits = pc.replace_substring(pc.fill_null(texts, "0" * 32), "-", "").to_pylist()
    if any(len(one) != 32 for one in digits):
        raise ValueError("not 32 digits")
    data = pa.py_buffer(bytes.fromhex("".join(digits)))
    values = pa.Array.from_buffers(pa.binary(16), len(texts), [None, data])
    storage = pc.if_else(pc.is_valid(texts), values, pa.scalar(None, pa.binary(16)))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def _times(texts: pa.StringArray) -> pa.Array:
    dated = pc.binary_join_element_wise("1970-01-01", texts, " ")
    return dated.cast(pa.timestamp("us")).cast(pa.time64("us"))


BY_OID = {
    16: PostgresType("bool", _booleans),
    17: PostgresType("binary", _bytes),
    20: _cast_to(pa.int64()),
    21: _cast_to(pa.int16()),
    23: _cast_to(pa.int32()),
    26: _cast_to(pa.int64()),
    114: PostgresType("json", lambda texts: texts),
    700: _cast_to(pa.float32()),
    701: _cast_to(pa.float64()),
    1082: _cast_to(pa.date32()),
    1083: PostgresType("time64[us]", _times),
    1114: _cast_to(pa.timestamp("us")),
    1184: _cast_to(pa.timestamp("us", "UTC")),
    2950: PostgresType("uuid", _uuids),
    3802: PostgresType("json", lambda texts: texts),
}
"""Built-in types by their oid. Others are found by what they are made of, or are text."""

NUMERIC_OID = 1700
_DIGITS_MAX = 76
_HEADER = 4  # a type modifier of numeric has the length of a header added


def numeric(modifier: int) -> PostgresType:
    """Return the type of a numeric with this modifier: a decimal, or text if it has no precision that one can hold."""
    if modifier < _HEADER:
        return TEXT
    precision, scale = (modifier - _HEADER) >> 16 & 0xFFFF, (modifier - _HEADER) & 0x7FF
    if scale > 1_023 or scale > precision or precision > _DIGITS_MAX:  # a negative scale has its eleventh bit set
        return TEXT
    return _cast_to(pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale))


def _lists(texts: pa.StringArray, convert: Convert) -> pa.Array:
    offsets: list[int | None] = []
    items: list[str | None] = []
    for text in texts.to_pylist():
        offsets.append(None if text is None else len(items))
        if text is not None:
            items += parse_array(text)
    offsets.append(len(items))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), convert(pa.array(items, pa.string())))


def parse_array(text: str) -> list[str | None]:
    """Return the items of an array of one dimension, such as ``{1,NULL,"a b"}``.

    Raises ValueError for another form, such as an array of several dimensions or with bounds of its own.
    """
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError(f"not an array of one dimension that begins at 1: {text[:40]}")
    items: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            raise ValueError(f"an array of several dimensions: {text[:40]}")
        if text[at] == '"':
            at += 1
            parts: list[str] = []
            while text[at] != '"':
                at += text[at] == "\\"
                parts.append(text[at])
                at += 1
            items.append("".join(parts))
            at += 2
        else:
            stop = text.find(",", at, end)
            stop = end if stop < 0 else stop
            item = text[at:stop]
            items.append(None if item == "NULL" else item)
            at = stop + 1
    return items
