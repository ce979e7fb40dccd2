"""The encoding of the values of one key field, whose rules :mod:`lakebed.model.keys` has. Pure. Errors: BadKeyError."""

from __future__ import annotations

import datetime as dt
import operator
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code, Error
from lakebed.model.checks import shown

if TYPE_CHECKING:
    from lakebed.model.schema import Field

KEY_BYTES_MAX = 8 * 1024
"""A longer key would make every bound, summary (1,025 keys) and log entry that holds it large: 8 MiB a summary."""

ESCAPED_ZERO = b"\x00\xff"
"""Stands for a zero byte of text or bytes, so that none of these holds a terminator."""

TERMINATOR = b"\x00\x01"
"""Behind each field of text or bytes."""


def least_text(content: bytes, start: int) -> str:
    """The least text above bytes that are not UTF-8 from ``start`` on. A boundary may be such a key, of a row that came
    before they were refused (:mod:`lakebed.maintenance.repair`).
    """
    points = range(0x11_0000)
    point = bisect_right(points, content[start:], key=lambda p: chr(p).encode("utf-8", "surrogatepass"))
    text = content[:start].decode("utf-8")
    while point > points[-1] and text:
        point, text = ord(text[-1]) + 1, text[:-1]
    if point > points[-1]:
        return chr(points[-1]) * (KEY_BYTES_MAX // 4)
    return text + chr(0xE000 if 0xD800 <= point < 0xE000 else point)


def decode_content(bound: bytes, position: int) -> tuple[bytes, int, str]:
    """Unescape one text field: its bytes, where the next field starts, and how it ended."""
    content = bytearray()
    while True:
        zero = bound.find(b"\x00", position)
        if zero < 0:
            content += bound[position:]
            return bytes(content), len(bound), "cut"
        content += bound[position:zero]
        mark = bound[zero + 1 : zero + 2]
        if mark == b"\xff":
            content.append(0)
            position = zero + 2
        elif mark == b"\x01":
            return bytes(content), zero + 2, "terminated"
        else:
            # 00 at the very end was cut before its mark: it lies below every key that begins so.
            return bytes(content), len(bound), "after" if mark else "cut"


def escape(content: bytes) -> bytes:
    """The encoding of text or bytes."""
    return content.replace(b"\x00", ESCAPED_ZERO) + TERMINATOR


def _encode_integer(value: int, width: int) -> bytes:
    return (value + (1 << (8 * width - 1))).to_bytes(width, "big")


def encode_content(field: Field, content: int | bytes) -> bytes:
    """The part of a key that is a field's, of the integer or the bytes that its column holds."""
    return _encode_integer(content, field.width) if isinstance(content, int) else escape(content)


def encode_value(field: Field, value: Any) -> bytes:
    """The encoding of a user's value. Raises BadKeyError if the field cannot have it."""
    if value is None:
        raise Code.KEY_NULL(f"key field {field.name} ({field.type}) cannot be null", column=field.name)
    if field.width:
        return _encode_integer(_key_integer(field, value), field.width)
    if field.is_text:
        if not isinstance(value, str):
            raise _wrong_type(field, value)
        try:
            return escape(value.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise Code.KEY_NOT_REPRESENTABLE(
                f"key field {field.name}: {shown(value)} holds an unpaired surrogate, which UTF-8 cannot encode",
                column=field.name,
            ) from error
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong_type(field, value)
    return escape(bytes(value))


def _key_integer(field: Field, value: Any) -> int:
    """The integer that the column holds for a user's value of an integer, date or timestamp field."""
    if isinstance(value, dt.date):
        return field.to_integer(value)
    if isinstance(value, bool):
        raise _wrong_type(field, value)
    try:
        number = operator.index(value)
    except TypeError as error:
        raise _wrong_type(field, value) from error
    limit = 1 << (8 * field.width - 1)
    if not -limit <= number < limit:
        raise Code.KEY_NOT_REPRESENTABLE(
            f"key field {field.name}: {number} does not fit {field.type}", column=field.name
        )
    return number


def _wrong_type(field: Field, value: Any) -> Error:
    return Code.KEY_TYPE_MISMATCH(
        f"key field {field.name} is {field.type}; {shown(value)} is {type(value).__name__}", column=field.name
    )


def encode_raw(field: Field, scalar: Any) -> bytes:
    """Encode an Arrow scalar of the field's own type."""
    if field.width:
        return encode_content(field, scalar.value if hasattr(scalar, "value") else scalar.as_py())
    return encode_content(field, bytes(scalar.as_buffer()))
