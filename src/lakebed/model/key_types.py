"""Encodes the values of key fields as bytes, for each type that a key field may have. Pure.

The *content* of a value is its representation in its column: an integer for integers, dates, times and timestamps; a
bool, a float or a Decimal; bytes for binary types and uuid; a str for text. :class:`KeyType` encodes contents so that
the order of the encodings, as unsigned bytes, is the order of the contents (docs/format.md, section 9). Types of a
fixed ``width`` are encoded as a big-endian number of that many bytes, the *code*:

* signed integers, dates, times and decimals (by their digits): two's complement with the sign bit flipped;
* unsigned integers, booleans (0 and 1), bytes of a fixed size and uuid: unchanged;
* floats: the bits of IEEE 754, all inverted for a negative number, else only the sign bit inverted: the total order of
  IEEE 754. A key has one zero and one NaN: negative zero is zero, and every NaN is the quiet one without a sign, which
  is above infinity. So the order and equality of keys are those of PostgreSQL, Spark, DuckDB, DataFusion and Polars.

Source: IEEE 754-2019, 5.10; the Parquet format for the order of logical types.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any

import pyarrow as pa
from msgspec import Struct

from lakebed.model.type_names import UUID

Content = int | float | Decimal | str | bytes

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of time per second."""
_UUID_BYTES = 16


class Form(Enum):
    """The kind of a content, and its encoding."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOLEAN = "boolean"
    FLOAT = "float"
    DECIMAL = "decimal"
    BYTES = "bytes of a fixed size"
    BINARY = "binary"
    TEXT = "text"


class KeyType(Struct, frozen=True):
    """A type that key fields may have; ``width`` is the size of an encoded value in bytes, 0 for text and binary."""

    kind: pa.DataType
    form: Form
    width: int

    @property
    def holds_integers(self) -> bool:
        """Whether contents are integers."""
        return self.form in (Form.SIGNED, Form.UNSIGNED)

    @property
    def least(self) -> int:
        """The least integer that a column of integers, dates or times can hold."""
        if pa.types.is_time(self.kind) or self.form is Form.UNSIGNED:
            return 0
        return -self._half

    @property
    def greatest(self) -> int:
        """The greatest integer that a column of integers, dates or times can hold."""
        if pa.types.is_time(self.kind):
            return 86_400 * PER_SECOND[self.kind.unit] - 1
        return (1 << 8 * self.width) - 1 if self.form is Form.UNSIGNED else self._half - 1

    @property
    def _half(self) -> int:
        return 1 << (8 * self.width - 1)

    def code(self, content: Any) -> int:
        """Return the number that encodes a content of a fixed width."""
        match self.form:
            case Form.SIGNED:
                return int(content) + self._half
            case Form.FLOAT:
                return self._code_of_float(content)
            case Form.DECIMAL:
                return unscaled(content, self.kind.scale) + self._half
            case Form.BYTES:
                return int.from_bytes(content, "big")
            case _:
                return int(content)

    def content(self, code: int) -> tuple[Any, bool] | None:
        """Return the least content encoded as this number or a greater one, and whether it is this one; or None."""
        match self.form:
            case Form.SIGNED | Form.UNSIGNED:
                number = code - (self._half if self.form is Form.SIGNED else 0)
                return None if number > self.greatest else (max(number, self.least), number >= self.least)
            case Form.BOOLEAN:
                return (bool(code), True) if code <= 1 else None
            case Form.FLOAT:
                return self._float_at(code)
            case Form.DECIMAL:
                digits, most = code - self._half, 10**self.kind.precision - 1
                return None if digits > most else (decimal_of(max(digits, -most), self.kind.scale), digits >= -most)
            case _:
                return code.to_bytes(self.width, "big"), True

    @property
    def last(self) -> Any:
        """The greatest content of a type of which some codes are above all contents."""
        match self.form:
            case Form.BOOLEAN:
                return True
            case Form.FLOAT:
                return float("nan")
            case Form.DECIMAL:
                return decimal_of(10**self.kind.precision - 1, self.kind.scale)
            case _:
                return self.greatest

    def encode(self, content: Any) -> bytes:
        """Return the encoding of a content of a fixed width."""
        return self.code(content).to_bytes(self.width, "big")

    def of_scalar(self, scalar: Any) -> Any:
        """Return the content of an Arrow scalar of this type."""
        if self.kind == UUID:
            return scalar.value.as_py()
        if self.form in (Form.BINARY, Form.TEXT):
            return bytes(scalar.as_buffer())
        return scalar.value if hasattr(scalar, "value") else scalar.as_py()

    def array(self, contents: list[Any]) -> pa.Array:
        """Return a column of contents, some of which may be None."""
        if self.holds_integers and pa.types.is_temporal(self.kind):
            return pa.array(contents, pa.int32() if self.width == 4 else pa.int64()).cast(self.kind)
        return pa.array(contents, self.kind)

    # -- floats -------------------------------------------------------------------------------------------------

    @property
    def _formats(self) -> tuple[str, str]:
        return ("<f", "<I") if self.width == 4 else ("<d", "<Q")

    def _code_of_float(self, content: float) -> int:
        number, whole = self._formats
        plain = math.nan if math.isnan(content) else content + 0.0
        bits: int = struct.unpack(whole, struct.pack(number, plain))[0]
        return bits ^ ((1 << 8 * self.width) - 1 if bits & self._half else self._half)

    def _float_at(self, code: int) -> tuple[float, bool] | None:
        infinity, nan = self._code_of_float(float("inf")), self._code_of_float(float("nan"))
        lowest = self._code_of_float(float("-inf"))
        if code > nan:
            return None
        if code > infinity:
            return float("nan"), code == nan
        if code < lowest:
            return float("-inf"), False
        bits = code ^ (self._half if code & self._half else (1 << 8 * self.width) - 1)
        number, whole = self._formats
        found: float = struct.unpack(number, struct.pack(whole, bits))[0]
        # The code of negative zero occurs only in a truncated key; its content is the number below zero.
        return (found, True) if found or code == self._half else (0.0, False)


@lru_cache(maxsize=1024)
def key_type(kind: pa.DataType) -> KeyType | None:
    """Return the key type of an Arrow type; None if key fields cannot have it."""
    types = pa.types
    if kind == UUID:
        return KeyType(kind, Form.BYTES, _UUID_BYTES)
    if types.is_boolean(kind):
        return KeyType(kind, Form.BOOLEAN, 1)
    if types.is_unsigned_integer(kind):
        return KeyType(kind, Form.UNSIGNED, kind.bit_width // 8)
    if types.is_signed_integer(kind) or types.is_date32(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return KeyType(kind, Form.SIGNED, kind.bit_width // 8)
    if types.is_float32(kind) or types.is_float64(kind):
        return KeyType(kind, Form.FLOAT, kind.bit_width // 8)
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        return KeyType(kind, Form.DECIMAL, kind.byte_width)
    if types.is_fixed_size_binary(kind):
        return KeyType(kind, Form.BYTES, kind.byte_width)
    if types.is_string(kind) or types.is_binary(kind):
        return KeyType(kind, Form.TEXT if types.is_string(kind) else Form.BINARY, 0)
    return None


def unscaled(value: Decimal, scale: int) -> int:
    """Return the digits of a decimal at a scale, as a whole number. Requires a scale that keeps all of them."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a number"
    number, places = int("".join(map(str, digits)) or "0"), exponent + scale
    at_scale = int(number * 10**places) if places >= 0 else int(number // 10**-places)
    return -at_scale if sign else at_scale


def decimal_of(digits: int, scale: int) -> Decimal:
    """Return the decimal of a whole number of digits at a scale; the inverse of :func:`unscaled`."""
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))
