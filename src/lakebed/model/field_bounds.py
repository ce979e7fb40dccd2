"""The minimum and maximum of each key field after the first in a data file, in a few bytes.

The bounds of a file's whole keys say nothing of these fields unless the file has one value of the first. With these
bounds a predicate on a later field of the row key, or on a sort key field, opens only files that can match.

The stored form has, for each of these fields in order (row key, then sort key), a range ``[min, max)`` of the field's
own encoding (docs/format.md, section 9): a byte of length and the bytes of ``min``, then the same of ``max``; a ``max``
of no bytes means no end. Each is truncated to :data:`BYTES_MAX`. A truncated ``min`` is lower, and ``max`` is the least
string above all that begin with the truncated greatest value, so the range contains every value. No bytes at all: the
bounds are unknown. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.model.key_type import Content
from lakebed.model.keys import EncodedRange, successor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.model.schema import Field

BYTES_MAX = 16
"""Maximum bytes of a bound: enough for integers, dates and times. The first letters of a text distinguish most values,
and a state has millions of bounds."""


def encode_bounds(values: Iterable[tuple[Field, Content | None, Content | None]]) -> bytes:
    """Return the stored form of the least and greatest contents of some fields; None: unknown."""
    found = bytearray()
    for field, least, greatest in values:
        low = b"" if least is None else _encode_beginning(field, least)
        high = b"" if greatest is None else successor(_encode_beginning(field, greatest)) or b""
        found += bytes([len(low)]) + low + bytes([len(high)]) + high
    return bytes(found)


def decode_bounds(stored: bytes) -> tuple[EncodedRange, ...]:
    """Return the range of each field; none if all are unknown. Raises DamagedError for malformed bytes."""
    ranges: list[EncodedRange] = []
    ends: list[bytes] = []
    place = 0
    while place < len(stored):
        end = place + 1 + stored[place]
        if end > len(stored):
            raise Code.STATE_INCONSISTENT(f"the field bounds of a data file end too soon: {stored.hex()}")
        ends.append(stored[place + 1 : end])
        if len(ends) == 2:
            ranges.append(EncodedRange(ends[0], ends[1] or None))
            ends = []
        place = end
    if ends:
        raise Code.STATE_INCONSISTENT(f"the field bounds of a data file lack an end: {stored.hex()}")
    return tuple(ranges)


def _encode_beginning(field: Field, content: Content) -> bytes:
    # Only the beginning is encoded: a sort key may be of any length.
    known = content[:BYTES_MAX] if isinstance(content, bytes) and not field.width else content
    return field.key_type.encode(known)[:BYTES_MAX]
