"""The least and greatest value that a data file has of each key field after the first, in a few bytes.

The bounds of a file's whole keys say nothing of these fields unless the file has one value of the first. With these
bounds a predicate on a later field of the row key, or on a sort key field, opens only files that can match.

Stored is, for each of these fields in order (row key, then sort key), a range ``[min, max)`` of the field's own
encoding (docs/format.md, section 9): a byte of length and the bytes of ``min``, then the same of ``max``; a ``max`` of
no bytes has no end. Each is cut to :data:`BYTES_MAX`: a cut ``min`` is lower, and ``max`` is the least string above all
that begin with what is left of the greatest value, so the range holds every value whatever was cut. No bytes at all:
nothing is known. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.model.key_types import Content
from lakebed.model.key_values import encode_content
from lakebed.model.keys import EncodedRange, successor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.model.schema import Field

BYTES_MAX = 16
"""Whole for integers, dates and times; the first letters of a text tell most values apart, and a state has millions."""


def encode_bounds(values: Iterable[tuple[Field, Content | None, Content | None]]) -> bytes:
    """The stored form of the least and greatest contents of some fields; None: it is not known."""
    found = bytearray()
    for field, least, greatest in values:
        low = b"" if least is None else _encode_beginning(field, least)
        high = b"" if greatest is None else successor(_encode_beginning(field, greatest)) or b""
        found += bytes([len(low)]) + low + bytes([len(high)]) + high
    return bytes(found)


def decode_bounds(stored: bytes) -> tuple[EncodedRange, ...]:
    """The range of each field; none if nothing is known. Raises DamagedError for bytes of another form."""
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
    # What lies beyond is not encoded: a sort key may be of any length.
    known = content[:BYTES_MAX] if isinstance(content, bytes) and not field.width else content
    return encode_content(field, known)[:BYTES_MAX]
