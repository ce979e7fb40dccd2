"""Whether a file may hold a key, by the bloom filters in it: a look at 32 bytes a row group.

The engine could ask them too, but reads a whole filter, up to megabytes, for one answer. Parquet's filter is a
split-block bloom filter over XXH64 of the plain-encoded value. Source: Parquet format, "Bloom Filter".
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import xxhash

from lakebed.query.footer import RowGroup, Value, per_unit
from lakebed.schema import Field

_BLOCK_BYTES = 32
_HEADER_BYTES_MAX = 64
# In Thrift's compact protocol: field 1, a 32-bit integer; then block algorithm, XXH64, uncompressed, the end.
_SIZE_FOLLOWS = 0x15
_KIND = bytes.fromhex("1c1c0000 1c1c0000 1c1c0000 00")
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


class Membership:
    """One row key, hashed once and asked of many row groups. Never says no of a key that is there."""

    def __init__(self, fields: Sequence[Field], values: Sequence[Value]) -> None:
        """``values`` are one for each row key field."""
        self._hashes = [
            (field.id, xxhash.xxh64_intdigest(_plain(field, value)))
            for field, value in zip(fields, values, strict=True)
        ]

    def may_be_in(self, descriptor: int, group: RowGroup) -> bool:
        """Whether the key may be in the row group of an open file. Raises OSError if that cannot be read."""
        for field, hashed in self._hashes:
            chunk = group.chunks.get(field)
            place = None if chunk is None else chunk.bloom_filter
            if place is not None and not _may_hold(descriptor, place, hashed):
                return False
        return True


def _plain(field: Field, value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytes):
        return value
    return (value * per_unit(field)).to_bytes(field.width, "little", signed=True)


def _may_hold(descriptor: int, place: tuple[int, int], hashed: int) -> bool:
    offset, length = place
    size = _filter_bytes(os.pread(descriptor, _HEADER_BYTES_MAX, offset))
    if size is None or size > length:
        return True
    blocks = size // _BLOCK_BYTES
    block = (hashed >> 32) * blocks >> 32
    words = os.pread(descriptor, _BLOCK_BYTES, offset + length - size + block * _BLOCK_BYTES)
    if len(words) < _BLOCK_BYTES:
        return True
    low = hashed & 0xFFFFFFFF
    for index, salt in enumerate(_SALTS):
        bit = (low * salt & 0xFFFFFFFF) >> 27
        if not words[4 * index + (bit >> 3)] >> (bit & 7) & 1:
            return False
    return True


def _filter_bytes(header: bytes) -> int | None:
    """How many bytes the filter behind this header has; None for one of a kind that this does not know."""
    if not header or header[0] != _SIZE_FOLLOWS:
        return None
    number = shift = 0
    for position in range(1, min(6, len(header))):
        number |= (header[position] & 0x7F) << shift
        shift += 7
        if header[position] < 0x80:
            size = number >> 1  # zigzag: even numbers are the positive ones
            known = number % 2 == 0 and size and size % _BLOCK_BYTES == 0
            return size if known and header.startswith(_KIND, position + 1) else None
    return None
