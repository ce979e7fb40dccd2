"""The encoding of the values of one key field, whose rules :mod:`lakebed.model.keys` has. Pure. Errors: BadKeyError."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from lakebed.model.key_values import content_of

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


def encode_content(field: Field, content: Any) -> bytes:
    """The part of a key that is a field's, of what its column holds."""
    return field.key_type.encode(content) if field.width else escape(content)


def encode_value(field: Field, value: Any) -> bytes:
    """The encoding of a user's value. Raises BadKeyError if the field cannot have it."""
    content: Any = content_of(field, value)
    if field.width:
        return field.key_type.encode(content)
    return escape(content.encode("utf-8") if field.is_text else content)


def encode_raw(field: Field, scalar: Any) -> bytes:
    """Encode an Arrow scalar of the field's own type."""
    return encode_content(field, field.key_type.of_scalar(scalar))
