"""Key types of numbers: booleans, integers, floats and decimals. Pure.

Codes. Signed integers and decimals (by their digits): two's complement with the sign bit flipped. Unsigned integers and
booleans (0 and 1): unchanged. Floats: the bits of IEEE 754, all inverted for a negative number, else only the sign bit
inverted: the total order of IEEE 754. A key has one zero and one NaN: negative zero is zero, and every NaN is the quiet
one without a sign, which is above infinity. So the order and equality of keys are those of PostgreSQL, Spark, DuckDB,
DataFusion and Polars.

Parquet stores integers of less than 32 bits in 32, and decimals as big-endian two's complement of as many bytes as
their digits need. Source: IEEE 754-2019, 5.10; the Parquet format, "Plain encoding" and "Logical types".
"""

from __future__ import annotations

import math
import numbers
import operator
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.arrays import booleans, raw
from lakebed.model.checks import is_whole, shown
from lakebed.model.key_type import BOOLEAN, DOUBLE, FIXED, FLOAT, INT32, INT64, Bytes, Ends, FixedWidth, Word, same
from lakebed.model.text_values import has_form
from lakebed.model.type_names import name_of

_TRUTH = {"true": True, "false": False}


class Booleans(FixedWidth, frozen=True):
    """False and true."""

    names: ClassVar[str] = "bool"
    values: ClassVar[tuple[type, ...]] = (bool,)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of bool."""
        return cls(kind, 1, physical=BOOLEAN, python_type=bool) if pa.types.is_boolean(kind) else None

    def content_of(self, value: Any, name: str) -> bool:
        """Accept a bool, also of NumPy."""
        if isinstance(value, bool) or type(value).__name__ == "bool_":
            return bool(value)
        raise self.wrong_type(value, name)

    def value_of_text(self, text: str) -> bool:
        """Accept ``true`` and ``false``."""
        return _TRUTH[text.strip().lower()]

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """Itself."""
        return bool(value)

    def literal(self, value: pa.Scalar) -> str:
        """TRUE or FALSE."""
        return "TRUE" if value.as_py() else "FALSE"

    def code(self, content: Any) -> int:
        """0 or 1."""
        return int(content)

    def content(self, code: int) -> tuple[Any, bool] | None:
        """As :meth:`FixedWidth.content`."""
        return (bool(code), True) if code <= 1 else None

    @property
    def last(self) -> bool:
        """True."""
        return True

    def codes(self, column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
        """A byte for each bit."""
        return booleans(column)

    def column(self, codes: Bytes) -> pa.Array:
        """A bit of each byte."""
        content = np.packbits(codes, bitorder="little")
        return pa.Array.from_buffers(self.kind, len(codes), [None, pa.py_buffer(content)])

    def number(self, literal: pa.Scalar) -> Any:
        """Itself."""
        return literal.as_py()

    def of_plain(self, data: bytes) -> bool:
        """From a byte."""
        return bool(data[0])

    def of_statistics(self, raw: Any) -> Any:
        """Itself."""
        return raw


class WholeNumbers(FixedWidth, frozen=True, kw_only=True):
    """Types whose contents are integers, from ``least`` to ``greatest``; ``half`` is added to make a code."""

    least: int
    greatest: int
    half: int

    has_exact_bounds: ClassVar[bool] = True

    @classmethod
    def within(cls, kind: pa.DataType, *ends: int, sign: str = "i", **options: Any) -> Self:
        """Return the type of the numbers between two ends; without these, of all signed numbers of this width."""
        half, width = 1 << (kind.bit_width - 1), kind.bit_width // 8
        least, greatest = ends or (-half, half - 1)
        return cls(
            kind, width, least=least, greatest=greatest, half=half if sign == "i" else 0, sign=sign,
            physical=INT64 if width == 8 else INT32, **options,
        )  # fmt: skip

    def content_of(self, value: Any, name: str) -> int:
        """Accept an integer that the column holds."""
        if isinstance(value, bool):
            raise self.wrong_type(value, name)
        try:
            number = operator.index(value)
        except TypeError as error:
            raise self.wrong_type(value, name) from error
        return self.held(number, number, name)

    def held(self, number: int, value: Any, name: str) -> int:
        """Return the number of a user's value. Raises BadKeyError if the column does not hold it."""
        if not self.least <= number <= self.greatest:
            raise self.unfit(value, name)
        return number

    def code(self, content: Any) -> int:
        """From 0 for the least number of the width."""
        return int(content) + self.half

    def content(self, code: int) -> tuple[Any, bool] | None:
        """As :meth:`FixedWidth.content`."""
        number = code - self.half
        return None if number > self.greatest else (max(number, self.least), number >= self.least)

    @property
    def last(self) -> int:
        """The greatest number."""
        return self.greatest

    def codes(self, column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
        """As :meth:`FixedWidth.codes`."""
        return self._flipped(raw(column).view(f"<u{self.width}").ravel()).astype(f">u{self.width}")

    def column(self, codes: Bytes) -> pa.Array:
        """As :meth:`FixedWidth.column`."""
        content = self._flipped(codes.view(f">u{self.width}").astype(f"<u{self.width}"))
        buffers = [None, pa.py_buffer(np.ascontiguousarray(content))]
        return pa.Array.from_buffers(self.kind, len(content), buffers)

    def _flipped(self, numbers: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the codes of the bits of numbers, or the bits of codes."""
        return np.bitwise_xor(numbers, numbers.dtype.type(self.half)) if self.half else numbers

    def _ends_of_number(self, literal: pa.Scalar, number: Any, image: Callable[[Any], Any]) -> Ends:
        del literal
        if image is not same:
            return self.least_passing(lambda content: image(content) >= number), self.least_passing(
                lambda content: image(content) > number
            )
        if isinstance(number, float) and math.isinf(number):
            return self.least_from(number), self.least_from(number)
        return self.least_from(math.ceil(number)), self.least_from(math.floor(number) + 1)

    def least_from(self, integer: float) -> bytes | None:
        """As :meth:`KeyType.least_from`."""
        if integer <= self.least:
            return b""
        return None if integer > self.greatest else self.encode(int(integer))

    @property
    def plain_width(self) -> int:
        """At least 32 bits."""
        return max(4, self.width)

    def plain(self, content: Any) -> bytes:
        """In the units of the file."""
        return int(content * self.per_unit).to_bytes(self.plain_width, "little", signed=bool(self.half))

    def _plain_column(self, column: pa.Array) -> bytes:
        numbers = raw(column).view(f"<{self.sign}{self.width}").ravel().astype(f"<{self.sign}{self.plain_width}")
        return bytes(numbers * numbers.dtype.type(self.per_unit))

    def of_plain(self, data: bytes) -> int:
        """From the units of the file."""
        return int.from_bytes(data, "little", signed=bool(self.half)) // self.per_unit

    def of_statistics(self, raw: Any) -> int:
        """Arrow returns unsigned numbers as signed."""
        return int(raw) // self.per_unit if self.half else int(raw) % (1 << 8 * self.plain_width)


class Integers(WholeNumbers, frozen=True):
    """Signed and unsigned integers."""

    names: ClassVar[str] = "integers"
    values: ClassVar[tuple[type, ...]] = (int,)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of integers of 8 to 64 bits."""
        if pa.types.is_unsigned_integer(kind):
            return cls.within(kind, 0, (1 << kind.bit_width) - 1, sign="u", python_type=int)
        return cls.within(kind, python_type=int) if pa.types.is_signed_integer(kind) else None

    def value_of_text(self, text: str) -> int:
        """Accept digits, with or without a sign."""
        return int(number_text(text, self.kind))

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """Itself, if some column holds it."""
        return int(value) if is_whole(value, -(2**63), 2**64 - 1) else None

    def literal(self, value: pa.Scalar) -> str:
        """In brackets if it has a sign."""
        number = value.as_py()
        return str(number) if number >= 0 else f"({number})"

    def number(self, literal: pa.Scalar) -> Any:
        """Itself."""
        return literal.as_py()

    def cast(self, wanted: pa.DataType) -> Callable[[Any], Any] | None:
        """To decimals, doubles, and integers that have all of these."""
        if wanted == self.kind or pa.types.is_decimal(wanted):
            return same
        if pa.types.is_float64(wanted):
            return float
        if not pa.types.is_integer(wanted):
            return None
        signs = bool(self.half), pa.types.is_signed_integer(wanted)
        bits = 8 * self.width
        wider = wanted.bit_width > bits or (signs[0] == signs[1] and wanted.bit_width == bits)
        return same if wider and (signs[1] or not signs[0]) else None


class Floats(FixedWidth, frozen=True):
    """Floats of 32 and 64 bits."""

    names: ClassVar[str] = "float, double"
    values: ClassVar[tuple[type, ...]] = (float,)
    has_nan: ClassVar[bool] = True

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of floats but those of 16 bits."""
        if pa.types.is_float64(kind):
            return cls(kind, 8, physical=DOUBLE, sign="f", python_type=float)
        # Arrow makes infinity of a number that is too large for 32 bits.
        return cls(kind, 4, physical=FLOAT, sign="f") if pa.types.is_float32(kind) else None

    @property
    def _format(self) -> str:
        return "<d" if self.width == 8 else "<f"

    @property
    def _half(self) -> int:
        return 1 << (8 * self.width - 1)

    def content_of(self, value: Any, name: str) -> float:
        """Accept a real number; a whole one if the type holds exactly it."""
        if isinstance(value, bool | np.timedelta64) or not isinstance(value, numbers.Real):
            raise self.wrong_type(value, name)
        try:
            found = float(value)
            if self.width == 4:
                found = struct.unpack("<f", struct.pack("<f", found))[0]
            if isinstance(value, numbers.Integral) and found != int(value):
                raise self.unfit(value, name)
        except OverflowError as error:
            raise self.unfit(value, name) from error
        return found

    def value_of_text(self, text: str) -> float:
        """Accept a number that is not too large, and the words for infinity and NaN."""
        found = float(number_text(text, self.kind))
        if math.isinf(found) and any(character.isdigit() for character in text):
            raise ValueError
        return found

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """Itself; JSON has no NaN and no infinity."""
        return float(value) if math.isfinite(value) else str(value)

    def literal(self, value: pa.Scalar) -> str:
        """By its shortest text."""
        return f"arrow_cast('{float(value.as_py())!r}', 'Float{8 * self.width}')"

    def one_form(self, column: pa.Array) -> pa.Array:
        """One zero and one NaN."""
        import pyarrow.compute as pc

        plain = pc.add(column, pa.scalar(0, column.type))
        return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), column.type), plain)

    def comparable(self, column: pa.Array) -> pa.Array:
        """Codes: Arrow has no order of NaN."""
        codes = pa.py_buffer(self.codes(column).astype(f"<u{self.width}"))
        return pa.Array.from_buffers(pa.uint32() if self.width == 4 else pa.uint64(), len(column), [None, codes])

    def code(self, content: Any) -> int:
        """In total order."""
        one = math.nan if math.isnan(content) else content + 0.0
        bits = int.from_bytes(struct.pack(self._format, one), "little")
        return bits ^ ((1 << 8 * self.width) - 1 if bits & self._half else self._half)

    def content(self, code: int) -> tuple[float, bool] | None:
        """As :meth:`FixedWidth.content`."""
        infinity, nan = self.code(float("inf")), self.code(float("nan"))
        if code > nan:
            return None
        if code > infinity:
            return float("nan"), code == nan
        if code < self.code(float("-inf")):
            return float("-inf"), False
        bits = code ^ (self._half if code & self._half else (1 << 8 * self.width) - 1)
        found: float = struct.unpack(self._format, bits.to_bytes(self.width, "little"))[0]
        # The code of negative zero occurs only in a truncated key; its content is the number below zero.
        return (found, True) if found or code == self._half else (0.0, False)

    @property
    def last(self) -> float:
        """NaN."""
        return float("nan")

    def codes(self, column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
        """As :meth:`FixedWidth.codes`."""
        numbers = raw(self.one_form(column)).view(f"<u{self.width}").ravel()
        top = numbers.dtype.type(self._half)
        return np.where(numbers & top != 0, ~numbers, numbers ^ top).astype(f">u{self.width}")

    def column(self, codes: Bytes) -> pa.Array:
        """As :meth:`FixedWidth.column`."""
        numbers = codes.view(f">u{self.width}").astype(f"<u{self.width}")
        top = numbers.dtype.type(self._half)
        content = np.where(numbers & top == 0, ~numbers, numbers ^ top)
        return pa.Array.from_buffers(self.kind, len(content), [None, pa.py_buffer(np.ascontiguousarray(content))])

    def number(self, literal: pa.Scalar) -> Any:
        """Itself, but not -0.0 and NaN: an engine may distinguish negative zero from zero, and sorts NaN above all
        numbers.
        """
        value = literal.as_py()
        return None if math.isnan(value) or (value == 0 and math.copysign(1, value) < 0) else value

    def cast(self, wanted: pa.DataType) -> Callable[[Any], Any] | None:
        """To floats that are not narrower."""
        return _ordered if pa.types.is_floating(wanted) and wanted.bit_width >= 8 * self.width else None

    def plain(self, content: Any) -> bytes:
        """One zero and one NaN."""
        return struct.pack(self._format, math.nan if math.isnan(content) else content + 0.0)

    def of_plain(self, data: bytes) -> float:
        """As :meth:`KeyType.of_plain`."""
        try:
            found: float = struct.unpack(self._format, data)[0]
        except struct.error as error:
            raise ValueError(f"{data.hex()} is no {self.kind}") from error
        return found

    def of_statistics(self, raw: Any) -> Any:
        """Itself."""
        return raw


class Decimals(FixedWidth, frozen=True):
    """Decimals of 128 and 256 bits."""

    names: ClassVar[str] = "decimals"
    values: ClassVar[tuple[type, ...]] = (Decimal,)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of decimals but those of 32 and 64 bits."""
        is_known = pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind)
        return cls(kind, kind.byte_width, physical=FIXED) if is_known else None

    @property
    def _half(self) -> int:
        return 1 << (8 * self.width - 1)

    def content_of(self, value: Any, name: str) -> Decimal:
        """Accept a number whose digits the type holds."""
        if isinstance(value, bool) or not isinstance(value, Decimal | int | float):
            raise self.wrong_type(value, name)
        given = Decimal(repr(float(value)) if isinstance(value, float) else value)
        kind = self.kind
        if not given.is_finite() or (given and given.adjusted() >= kind.precision - kind.scale):
            raise self.unfit(value, name)
        if given and (given.adjusted() < -kind.scale or decimal_of(unscaled(given, kind.scale), kind.scale) != given):
            raise Code.KEY_NOT_REPRESENTABLE(
                f"key field {name}: {shown(value)} has more digits than {name_of(kind)}", column=name
            )
        return given

    def value_of_text(self, text: str) -> Decimal:
        """Accept a number."""
        return Decimal(number_text(text, self.kind))

    def literal(self, value: pa.Scalar) -> str:
        """With all digits."""
        kind = self.kind
        return f"arrow_cast('{value.as_py():f}', 'Decimal{kind.bit_width}({kind.precision}, {kind.scale})')"

    def code(self, content: Any) -> int:
        """By the digits."""
        return unscaled(content, self.kind.scale) + self._half

    def content(self, code: int) -> tuple[Any, bool] | None:
        """As :meth:`FixedWidth.content`."""
        digits, most = code - self._half, 10**self.kind.precision - 1
        return None if digits > most else (decimal_of(max(digits, -most), self.kind.scale), digits >= -most)

    @property
    def last(self) -> Decimal:
        """All digits 9."""
        return decimal_of(10**self.kind.precision - 1, self.kind.scale)

    def codes(self, column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
        """As :meth:`FixedWidth.codes`."""
        codes = raw(column)[:, ::-1].copy()
        codes[:, 0] ^= 0x80
        return codes

    def column(self, codes: Bytes) -> pa.Array:
        """As :meth:`FixedWidth.column`."""
        content = codes.reshape(-1, self.width)[:, ::-1].copy()
        content[:, -1] ^= 0x80
        return pa.Array.from_buffers(self.kind, len(content), [None, pa.py_buffer(np.ascontiguousarray(content))])

    def number(self, literal: pa.Scalar) -> Any:
        """As a fraction, which no float rounds."""
        return Fraction(literal.as_py())

    def cast(self, wanted: pa.DataType) -> Callable[[Any], Any] | None:
        """To decimals of as many places."""
        return Fraction if pa.types.is_decimal(wanted) and wanted.scale >= self.kind.scale else None

    @property
    def plain_width(self) -> int:
        """As many bytes as the digits and a sign need."""
        return int(10**self.kind.precision).bit_length() // 8 + 1

    def plain(self, content: Any) -> bytes:
        """Big-endian digits."""
        return unscaled(content, self.kind.scale).to_bytes(self.plain_width, "big", signed=True)

    def _plain_column(self, column: pa.Array) -> bytes:
        return np.ascontiguousarray(raw(column)[:, ::-1][:, -self.plain_width :]).tobytes()

    def of_plain(self, data: bytes) -> Decimal:
        """Of big-endian digits."""
        return decimal_of(int.from_bytes(data, "big", signed=True), self.kind.scale)

    def of_statistics(self, raw: Any) -> Any:
        """Of big-endian digits."""
        return self.of_plain(bytes(raw))


def number_text(text: str, kind: pa.DataType) -> str:
    """Return the text of a number. Raises ValueError for other forms that Python reads: 1_000, digits of any script."""
    bare = text.strip(" \t")
    if not has_form(bare, kind):
        raise ValueError
    return bare


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


def _ordered(content: float) -> float:
    """Return a float in an order in which NaN is above infinity: a number that no literal is above."""
    return _AboveAll() if math.isnan(content) else content


class _AboveAll(float):
    """Above every number."""

    def __ge__(self, other: object) -> bool:
        return True

    def __gt__(self, other: object) -> bool:
        return True
