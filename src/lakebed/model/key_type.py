"""What a type of key fields says of itself, so that no other module asks which type it is. Pure.

The *content* of a value is its representation in its column: an integer for integers, dates, times and timestamps; a
bool, a float or a Decimal; bytes for binary types and uuid; a str for text. The *encoding* of a content is bytes whose
order, unsigned, is the order of the contents (docs/format.md, section 9). Encodings of a fixed ``width`` are a
big-endian number of that many bytes, the *code*.

A new type is a class here or in another module, and a line in :data:`lakebed.model.key_types.KEY_TYPES`. Core types:
:class:`KeyType`, :class:`FixedWidth`. Errors: BadKeyError, which names the field and the value.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakebed.errors import Code, Error
from lakebed.model import arrays
from lakebed.model.checks import shown
from lakebed.model.json_values import plain
from lakebed.model.type_names import name_of

Content = int | float | Decimal | str | bytes
Word = bool | int | float | str
"""A value of a key in JSON."""
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Ends = tuple[bytes | None, bytes | None]
"""The encoded ends of the values below a literal, and of those up to it; None if all values are below."""

KEY_BYTES_MAX = 8 * 1024
"""Maximum bytes of a key: longer keys would make bounds, log entries and summaries large (1,025 keys: 8 MiB)."""

BOOLEAN, INT32, INT64, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = 0, 1, 2, 4, 5, 6, 7
"""Parquet's physical types."""


class KeyType(Struct, frozen=True):
    """A type that key fields may have; ``width`` is the size of an encoded value in bytes, 0 for text and binary."""

    kind: pa.DataType
    width: int
    physical: int = BYTE_ARRAY
    """The physical type in which Parquet stores a column."""
    per_unit: int = 1
    """Units of a file of Parquet per unit of the column."""
    sign: str = ""
    """NumPy's letter of the numbers of a column, ``i``, ``u`` or ``f``, if it orders them as keys; else empty."""
    python_type: type | None = None
    """The type of values that Arrow makes the same column of as :meth:`content_of` does; None if there is none."""

    names: ClassVar[str]
    """What messages call types of this class."""
    values: ClassVar[tuple[type, ...]] = ()
    """The types of Python whose values :meth:`word` writes."""
    has_nan: ClassVar[bool] = False
    """Whether equal values may have different bits, and statistics of Parquet leave some out: those of floats."""
    has_exact_bounds: ClassVar[bool] = False
    """Whether the bounds in a page index of Parquet are the keys themselves."""

    @classmethod
    @abstractmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Return the key type of an Arrow type; None for types of other classes."""

    # -- values of users ----------------------------------------------------------------------------------------

    @abstractmethod
    def content_of(self, value: Any, name: str) -> Any:
        """Return the content of a user's value; ``name`` is that of the field. Raises BadKeyError.

        It may be null, of another type, or a value that the field cannot hold. An integer is accepted for a date, a
        time or a timestamp as the column's own number. A value of a float field is rounded to the nearest float of its
        width. A decimal field accepts a float, by its shortest text; a uuid field accepts text or 16 bytes.
        """

    def value_of(self, content: Any) -> Any:
        """Return the Python value of a content: a date, a time, a datetime (in UTC if the type has a zone), a UUID, or
        itself.

        Times that Python's types cannot represent are integers: finer than microseconds, or outside of the years 1 to
        9999.
        """
        return content

    def parse(self, text: str, name: str) -> Any:
        """Return the value of a text from a command line or a URL: a number, text, ``true`` or ``false``, hex digits
        for bytes, a UUID, or an ISO 8601 date or time. Raises BadKeyError.
        """
        try:
            return self.value_of_text(text)
        except (ValueError, KeyError, InvalidOperation) as error:
            raise Code.KEY_UNPARSABLE(
                f"key field {name} is {name_of(self.kind)}: cannot read {text!r}", column=name
            ) from error

    @abstractmethod
    def value_of_text(self, text: str) -> Any:
        """Return the value of a text. Raises ValueError, KeyError or InvalidOperation for another form."""

    def json(self, content: Any) -> Any:
        """Return a content as JSON."""
        return plain(self.value_of(content))

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """Return one of :attr:`values` in the JSON of a request, of which :meth:`parse` reads text; None if no key has
        it.
        """
        return str(value)

    @abstractmethod
    def literal(self, value: pa.Scalar) -> str:
        """Return a value of the column as an SQL literal of exactly its value and type."""

    # -- columns ------------------------------------------------------------------------------------------------

    def of_scalar(self, scalar: pa.Scalar) -> Any:
        """Return the content of an Arrow scalar of this type."""
        return scalar.as_py()

    def array(self, contents: list[Any]) -> pa.Array:
        """Return a column of contents, some of which may be None."""
        return pa.array(contents, self.kind)

    def one_form(self, column: pa.Array) -> pa.Array:
        """Return the column with one value for each key: floats with one zero and one NaN."""
        return column

    def comparable(self, column: pa.Array) -> pa.Array:
        """Return a column without nulls in a form that Arrow orders as keys: codes for floats, bytes for UUIDs."""
        return arrays.plain(column)

    # -- encodings ----------------------------------------------------------------------------------------------

    @abstractmethod
    def encode(self, content: Any) -> bytes:
        """Return the encoding of a content."""

    @abstractmethod
    def read(self, bound: bytes, position: int) -> tuple[Any, int | None, bool]:
        """Return the content at a position of a bound, and the position of the next field.

        That is None if the bound is cut or continued there, so that no value has these bytes: then the bound lies just
        before all keys that begin with this content, or just after them if the third is true.
        """

    @abstractmethod
    def end(self, key: bytes, position: int) -> int:
        """Return where the encoding ends that begins at a position of a key."""

    @abstractmethod
    def encode_column(self, column: pa.Array) -> list[pa.Array | pa.Scalar]:
        """Return the parts whose concatenation encodes each value of a column."""

    @abstractmethod
    def decode_column(self, keys: Sequence[bytes]) -> tuple[pa.Array, list[bytes]]:
        """Return the column of the values with which keys begin, and the rest of each key."""

    # -- order --------------------------------------------------------------------------------------------------

    def number(self, literal: pa.Scalar) -> Any:
        """Return a literal of this type as a number that compares exactly with those of columns; None if it is none."""
        del literal
        return None

    @abstractmethod
    def ends_of(self, literal: pa.Scalar, number: Any) -> Ends | None:
        """Return the ends for a literal of any type, and its :meth:`number`; None if the two cannot be compared, or a
        cast may not keep their order.
        """

    def least_from(self, integer: float) -> bytes | None:
        """Return the encoding of the least content from an integer on, empty if all are; None if there is none.

        Types whose contents are not integers have all of them from there on.
        """
        del integer
        return b""

    # -- Parquet ------------------------------------------------------------------------------------------------

    def plain(self, content: Any) -> bytes:
        """Return the value in Parquet's plain encoding, which statistics and Bloom filters have."""
        return bytes(content)

    def plain_all(self, column: pa.Array) -> list[bytes]:
        """Return the plain value of each value of a column; not of booleans."""
        data, width = self._plain_column(column), self.plain_width
        return [data[begin : begin + width] for begin in range(0, len(data), width)]

    @property
    def plain_width(self) -> int:
        """The bytes of a plain value of a fixed width."""
        return self.width

    def _plain_column(self, column: pa.Array) -> bytes:
        return arrays.raw(column).tobytes()

    def of_plain(self, data: bytes) -> Any:
        """Return the content of a plain value. Raises ValueError if it is none."""
        return data

    def of_statistics(self, raw: Any) -> Any:
        """Return the content of a bound in Arrow's form of a file's statistics."""
        return raw.encode() if isinstance(raw, str) else bytes(raw)

    # -- errors -------------------------------------------------------------------------------------------------

    def wrong_type(self, value: Any, name: str) -> Error:
        """Return the error for null, and for a value of another type."""
        if value is None:
            return Code.KEY_NULL(f"key field {name} ({name_of(self.kind)}) cannot be null", column=name)
        several = " (get_many reads several keys)" if isinstance(value, list | tuple | set) else ""
        return Code.KEY_TYPE_MISMATCH(
            f"key field {name} is {name_of(self.kind)}; {shown(value)} is {type(value).__name__}{several}", column=name
        )

    def unfit(self, value: Any, name: str) -> Error:
        """Return the error for a value that the type does not hold."""
        return Code.KEY_NOT_REPRESENTABLE(
            f"key field {name}: {shown(value)} does not fit {name_of(self.kind)}", column=name
        )


class FixedWidth(KeyType, frozen=True):
    """A type whose values are encoded as numbers of a fixed width."""

    @abstractmethod
    def code(self, content: Any) -> int:
        """Return the number that encodes a content."""

    @abstractmethod
    def content(self, code: int) -> tuple[Any, bool] | None:
        """Return the least content encoded as this number or a greater one, and whether it is this one; or None."""

    @property
    @abstractmethod
    def last(self) -> Any:
        """The greatest content."""

    @abstractmethod
    def codes(self, column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the encodings of the values of a column, as rows of bytes or as big-endian numbers."""

    @abstractmethod
    def column(self, codes: Bytes) -> pa.Array:
        """Return the column of these encodings, one after another."""

    def encode(self, content: Any) -> bytes:
        """Return the code as bytes."""
        return self.code(content).to_bytes(self.width, "big")

    def read(self, bound: bytes, position: int) -> tuple[Any, int | None, bool]:
        """Return the content of a code, of which the last bytes may be cut off."""
        piece = bound[position : position + self.width].ljust(self.width, b"\x00")
        found = self.content(int.from_bytes(piece, "big"))
        if found is None:
            return self.last, None, True
        return found[0], position + self.width if found[1] else None, False

    def end(self, key: bytes, position: int) -> int:
        """Return the position after the code."""
        del key
        return position + self.width

    def encode_column(self, column: pa.Array) -> list[pa.Array | pa.Scalar]:
        """Return the codes as bytes."""
        codes = np.ascontiguousarray(self.codes(column))
        kind = pa.binary(self.width)
        return [pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(codes)]).cast(pa.binary())]

    def decode_column(self, keys: Sequence[bytes]) -> tuple[pa.Array, list[bytes]]:
        """Return the column of the codes with which keys begin."""
        codes = b"".join([key[: self.width] for key in keys])
        return self.column(np.frombuffer(codes, np.uint8)), [key[self.width :] for key in keys]

    def cast(self, wanted: pa.DataType) -> Callable[[Any], Any] | None:
        """Return the cast to a type, as a function of the content that keeps the order; None if it may not keep it."""
        return same if wanted == self.kind else None

    def ends_of(self, literal: pa.Scalar, number: Any) -> Ends | None:
        """Return the codes of the least values that pass: exactly, for any fraction or size of the literal, and even
        where a float64 cannot represent an integer.

        An engine casts one of the two. Numbers, dates and times keep their order in such a cast, so the least value
        that passes is found by binary search among the codes.
        """
        image = self.cast(literal.type)
        if image is None or number is None:
            return None
        return self._ends_of_number(literal, number, image)

    def _ends_of_number(self, literal: pa.Scalar, number: Any, image: Callable[[Any], Any]) -> Ends:
        if literal.type == self.kind:
            code = self.code(literal.as_py())
            return code.to_bytes(self.width, "big"), self.after(code)
        return self.least_passing(lambda content: image(content) >= number), self.least_passing(
            lambda content: image(content) > number
        )

    def after(self, code: int) -> bytes | None:
        """Return the least byte string above all keys that begin with a code; None if there is none."""
        return None if code + 1 >> 8 * self.width else (code + 1).to_bytes(self.width, "big").rstrip(b"\x00")

    def least_passing(self, passes: Callable[[Any], bool]) -> bytes | None:
        """Return the encoding of the least value that passes, None if none does; all larger ones must pass as well."""
        low, high = 0, 1 << (8 * self.width)
        while low < high:
            middle = (low + high) // 2
            found = self.content(middle)
            if found is None or passes(found[0]):
                high = middle
            else:
                low = middle + 1
        found = self.content(low) if low < 1 << (8 * self.width) else None
        return None if found is None else self.encode(found[0]) if low else b""


def same(content: Any) -> Any:
    """Return a content as it is: the cast to the same type, or to a wider one of the same numbers."""
    return content
