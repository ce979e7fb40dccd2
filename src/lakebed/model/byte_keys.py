"""Key types of text, bytes and UUIDs. Pure.

Text (UTF-8) and bytes of any length are encoded with 00 written as ``00 FF``, then the terminator ``00 01``. The
terminator is lower than any escaped byte, so a text sorts before its extensions whatever field follows. Bytes of a
fixed size and UUIDs are unchanged.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.arrays import of_binary, raw
from lakebed.model.checks import shown
from lakebed.model.key_type import FIXED, KEY_BYTES_MAX, Bytes, Ends, FixedWidth, KeyType, Word
from lakebed.model.type_names import UUID, name_of

ESCAPED_ZERO = b"\x00\xff"
"""The encoding of a zero byte of text or bytes, so that none of these contains a terminator."""

TERMINATOR = b"\x00\x01"
"""Follows each field of text or bytes."""

_AFTER = b"\x02"
"""In place of the last byte of a terminator: above all keys with the value."""

_POINT_MAX = 0x10_FFFF
_UUID_BYTES = 16


class _AnyLength(KeyType, frozen=True):
    """Types whose values have any length."""

    has_exact_bounds: ClassVar[bool] = True

    def of_scalar(self, scalar: pa.Scalar) -> bytes:
        """Bytes, also of text."""
        return bytes(scalar.as_buffer())

    def encode(self, content: Any) -> bytes:
        """Escape the bytes of a content."""
        data = content.encode("utf-8") if isinstance(content, str) else content
        return bytes(data.replace(b"\x00", ESCAPED_ZERO)) + TERMINATOR

    def read(self, bound: bytes, position: int) -> tuple[Any, int | None, bool]:
        """Return the unescaped content; a bound may be cut between any two bytes."""
        content = bytearray()
        while True:
            zero = bound.find(b"\x00", position)
            if zero < 0:
                content += bound[position:]
                return self._read_content(bytes(content), None, after=False)
            content += bound[position:zero]
            mark = bound[zero + 1 : zero + 2]
            if mark == b"\xff":
                content.append(0)
                position = zero + 2
            elif mark == b"\x01":
                return self._read_content(bytes(content), zero + 2, after=False)
            else:
                # A final 00 was truncated before its second byte: it lies below every key with this prefix.
                return self._read_content(bytes(content), None, after=bool(mark))

    def _read_content(self, content: bytes, end: int | None, *, after: bool) -> tuple[Any, int | None, bool]:
        return content, end, after

    def end(self, key: bytes, position: int) -> int:
        """Return the position after the terminator."""
        found = key.find(TERMINATOR, position)
        return len(key) if found < 0 else found + len(TERMINATOR)

    def encode_column(self, column: pa.Array) -> list[pa.Array | pa.Scalar]:
        """Escape the zeros, if there are any."""
        import pyarrow.compute as pc

        content = column.cast(pa.binary())
        if not np.all(_content_bytes(content)):
            content = pc.replace_substring(content, pattern=b"\x00", replacement=ESCAPED_ZERO)
        return [content, *of_binary([TERMINATOR])]

    def decode_column(self, keys: Sequence[bytes]) -> tuple[pa.Array, list[bytes]]:
        """Unescape what is before the first terminator: an escaped zero never begins one."""
        parts = [key.partition(TERMINATOR) for key in keys]
        column = of_binary([content.replace(ESCAPED_ZERO, b"\x00") for content, _, _ in parts], self.kind)
        return column, [rest for _, _, rest in parts]

    def ends_of(self, literal: pa.Scalar, number: Any) -> Ends | None:
        """Return the encoding of a literal of this type; None for one that is longer than a key may be."""
        del number
        if literal.type != self.kind or not literal.is_valid:
            return None
        value = self.encode(self.of_scalar(literal))
        return (value, value[:-1] + _AFTER) if len(value) <= KEY_BYTES_MAX else None

    def plain_all(self, column: pa.Array) -> list[bytes]:
        """The bytes of each value."""
        values: list[bytes] = column.cast(pa.binary()).to_pylist()
        return values


class Texts(_AnyLength, frozen=True):
    """Text."""

    names: ClassVar[str] = "string"
    values: ClassVar[tuple[type, ...]] = (str,)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of string."""
        return cls(kind, 0, python_type=str) if pa.types.is_string(kind) else None

    def content_of(self, value: Any, name: str) -> str:
        """Accept text that UTF-8 can encode."""
        if not isinstance(value, str):
            raise self.wrong_type(value, name)
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Code.KEY_NOT_REPRESENTABLE(
                f"key field {name}: {shown(value)} holds an unpaired surrogate, which UTF-8 cannot encode", column=name
            ) from error
        return value

    def value_of_text(self, text: str) -> str:
        """Itself."""
        return text

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """Itself."""
        return str(value)

    def literal(self, value: pa.Scalar) -> str:
        """In single quotes."""
        return quoted_text(value.as_py())

    def _read_content(self, content: bytes, end: int | None, *, after: bool) -> tuple[Any, int | None, bool]:
        try:
            return content.decode("utf-8"), end, after
        except UnicodeDecodeError as error:
            # A boundary may be cut anywhere between characters.
            return _least_text(content, error.start), None, False

    def plain(self, content: Any) -> bytes:
        """UTF-8."""
        return str(content).encode("utf-8")

    def of_plain(self, data: bytes) -> str:
        """Of UTF-8. A value that was shortened inside a character cannot be a bound: it raises a ValueError, reported
        as damage. The writer of data files never shortens.
        """
        return data.decode("utf-8")


class Binaries(_AnyLength, frozen=True):
    """Bytes of any length."""

    names: ClassVar[str] = "binary"
    values: ClassVar[tuple[type, ...]] = (bytes,)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of binary."""
        return cls(kind, 0, python_type=bytes) if pa.types.is_binary(kind) else None

    def content_of(self, value: Any, name: str) -> bytes:
        """Accept bytes."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise self.wrong_type(value, name)
        return bytes(value)

    def value_of_text(self, text: str) -> bytes:
        """Accept hex digits."""
        return bytes.fromhex(text)

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """In hex digits."""
        return str(value.hex())

    def literal(self, value: pa.Scalar) -> str:
        """In hex digits."""
        return f"X'{value.as_py().hex()}'"


class FixedBytes(FixedWidth, frozen=True):
    """Bytes of a fixed size."""

    names: ClassVar[str] = "fixed_size_binary"

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of fixed_size_binary."""
        return cls(kind, kind.byte_width, physical=FIXED) if pa.types.is_fixed_size_binary(kind) else None

    def content_of(self, value: Any, name: str) -> bytes:
        """Accept bytes of this size."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise self.wrong_type(value, name)
        found = bytes(value)
        if len(found) != self.width:
            raise Code.KEY_NOT_REPRESENTABLE(
                f"key field {name} is {name_of(self.kind)}: {shown(found)} has {len(found)} bytes, not {self.width}",
                column=name,
            )
        return found

    def value_of_text(self, text: str) -> Any:
        """Accept hex digits."""
        return bytes.fromhex(text)

    def literal(self, value: pa.Scalar) -> str:
        """In hex digits."""
        return f"X'{value.as_py().hex()}'"

    def code(self, content: Any) -> int:
        """The bytes."""
        return int.from_bytes(content, "big")

    def content(self, code: int) -> tuple[Any, bool] | None:
        """The bytes."""
        return code.to_bytes(self.width, "big"), True

    @property
    def last(self) -> bytes:
        """All bits set."""
        return b"\xff" * self.width

    def codes(self, column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
        """The bytes."""
        return raw(column)

    def column(self, codes: Bytes) -> pa.Array:
        """The bytes."""
        count = len(codes) // self.width
        return pa.Array.from_buffers(pa.binary(self.width), count, [None, pa.py_buffer(codes)]).cast(self.kind)

    def ends_of(self, literal: pa.Scalar, number: Any) -> Ends | None:
        """Return the ends for bytes of any length."""
        del number
        kind = literal.type
        if kind == UUID:
            content = literal.value.as_py()
        elif pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            content = literal.as_py()
        else:
            return None
        smaller = content[: self.width].ljust(self.width, b"\x00")
        after = self.after(self.code(smaller))
        # A longer literal is above the value that it begins with; a shorter one equals no value.
        return after if len(content) > self.width else smaller, after if len(content) >= self.width else smaller

    def of_plain(self, data: bytes) -> bytes:
        """A writer may shorten bounds; the upper one is then above all values that begin so."""
        return data.ljust(self.width, b"\x00")


class Uuids(FixedBytes, frozen=True):
    """UUIDs, as 16 bytes."""

    names: ClassVar[str] = "uuid"
    values: ClassVar[tuple[type, ...]] = (uuid.UUID,)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of Arrow's extension type."""
        return cls(kind, _UUID_BYTES, physical=FIXED) if kind == UUID else None

    def content_of(self, value: Any, name: str) -> bytes:
        """Accept a UUID, its text, or its bytes."""
        if isinstance(value, uuid.UUID):
            return value.bytes
        if isinstance(value, str):
            try:
                return uuid.UUID(value).bytes
            except ValueError as error:
                raise Code.KEY_UNPARSABLE(f"key field {name} is uuid: cannot read {value!r}", column=name) from error
        return FixedBytes.content_of(self, value, name)

    def value_of(self, content: Any) -> Any:
        """A UUID."""
        return uuid.UUID(bytes=content)

    def value_of_text(self, text: str) -> Any:
        """Accept the text of a UUID."""
        return uuid.UUID(text.strip())

    def literal(self, value: pa.Scalar) -> str:
        """In hex digits."""
        return f"X'{value.as_py().hex}'"

    def of_scalar(self, scalar: pa.Scalar) -> Any:
        """Its bytes."""
        return scalar.value.as_py()


def quoted_text(text: str) -> str:
    """Return a text as SQL has it, in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def _least_text(content: bytes, start: int) -> str:
    """Return the least text above bytes that are not UTF-8 from ``start`` on. A boundary may be such a key, from a row
    written before such text was refused (:mod:`lakebed.upkeep.repair`).
    """
    points = range(_POINT_MAX + 1)
    point = bisect_right(points, content[start:], key=lambda p: chr(p).encode("utf-8", "surrogatepass"))
    text = content[:start].decode("utf-8")
    while point > points[-1] and text:
        point, text = ord(text[-1]) + 1, text[:-1]
    if point > points[-1]:
        return chr(points[-1]) * (KEY_BYTES_MAX // 4)
    return text + chr(0xE000 if 0xD800 <= point < 0xE000 else point)


def _content_bytes(column: pa.Array) -> Bytes:
    """Return the bytes of all values of a binary array, one after another."""
    _, offsets, content = column.buffers()
    if not len(column) or content is None:
        return np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)
    begin, end = int(ends[column.offset]), int(ends[column.offset + len(column)])
    return np.frombuffer(content, np.uint8, end - begin, begin)
