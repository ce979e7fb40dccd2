"""What a Parquet footer says of a file's row groups: where their keys begin and end, and where their filters lie.

Two uses. A scan is cut into slices of a bounded number of bytes at the beginnings of row groups. A point read asks
the bloom filters of the row groups that its key may lie in: a look at 32 bytes each, instead of starting the engine
(which reads a whole filter, up to megabytes, for one answer).

Statistics of key columns are whole values or shortened outwards, so "cannot be in this group" is always true.
Parquet's filter is a split-block bloom filter over XXH64 of the plain-encoded value (Parquet format, "Bloom Filter").
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.errors import DamagedError
from lakebed.schema import Field, Schema

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Value = int | str | bytes

_BLOCK_BYTES = 32
_HEADER_BYTES_MAX = 64
_HEADER_SET = 0x15  # field 1, a 32-bit integer: how many bytes the filter has
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group. Values are as columns hold them: dates and times as integers of the column's unit.

    ``start`` is a lower bound of its first row's sort key: as many leading values as the statistics tell exactly.
    ``low`` and ``high`` bound the first row key field; None if not known. ``filters`` are (offset, length) of the
    bloom filter of each row key column, None where there is none.
    """

    start: tuple[Value, ...]
    low: Value | None
    high: Value | None
    size_bytes: int
    filters: tuple[tuple[int, int] | None, ...]

    def may_hold(self, value: Value) -> bool:
        """Whether a row whose first row key field is ``value`` may be here."""
        return self.low is None or self.high is None or self.low <= value <= self.high  # type: ignore[operator]


def read_groups(footer: bytes, schema: Schema, url: str) -> tuple[RowGroup, ...]:
    """The row groups of the file that ends in this footer. Raises DamagedError naming the file if it is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(f"{url} is damaged: its footer cannot be read ({error}); restore it", name=url) from error
    # A path is the column's name, or nested names with dots between; key columns are not nested, and come first.
    positions: dict[str, int] = {}
    for index in range(metadata.num_columns):
        positions.setdefault(metadata.schema.column(index).path, index)
    keys = (*schema.row_key, *schema.sort_key)
    missing = [field.name for field in keys if field.name not in positions]
    if missing:
        raise DamagedError(f"{url} has no column {', '.join(missing)}; restore it", name=url)
    columns = [positions[field.name] for field in keys]
    groups = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        parts = [group.column(position) for position in columns]
        groups.append(_row_group(group, parts, keys, len(schema.row_key)))
    return tuple(groups)


def _row_group(
    group: pq.RowGroupMetaData, parts: Sequence[Any], fields: Sequence[Field], row_key_fields: int
) -> RowGroup:
    bounds = [_bounds(part, field) for part, field in zip(parts, fields, strict=True)]
    start: list[Value] = []
    for bound in bounds:
        if bound is None:
            break
        start.append(bound[0])
        # Where one field varies, the next one's least value need not be in the first row.
        if bound[0] != bound[1]:
            break
    filters = tuple(
        (part.bloom_filter_offset, part.bloom_filter_length)
        if part.bloom_filter_offset is not None and part.bloom_filter_length is not None
        else None
        for part in parts[:row_key_fields]
    )
    first = bounds[0] or (None, None)
    size_bytes = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
    return RowGroup(tuple(start), first[0], first[1], size_bytes, filters)


def _bounds(part: Any, field: Field) -> tuple[Value, Value] | None:
    statistics = part.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        low, high = statistics.min_raw, statistics.max_raw
        if not field.width:
            return _as(field, low), _as(field, high)
    except UnicodeDecodeError:
        # Cut inside a character by a writer that shortens.
        return None
    factor = _per_unit(field)
    return low // factor, high // factor


def _as(field: Field, content: str | bytes) -> str | bytes:
    """Text for a text field, bytes for a binary one: which of them comes depends on the statistics' reader."""
    if field.is_text:
        return content if isinstance(content, str) else content.decode("utf-8")
    return content.encode("utf-8") if isinstance(content, str) else content


def _per_unit(field: Field) -> int:
    """How many of the file's units one of the column's has: Parquet has no seconds, so those are milliseconds there."""
    return 1000 if str(field.type).startswith("timestamp[s") else 1


class Membership:
    """Whether a local file may hold a row key, by its bloom filters. Never says no of a key that is there."""

    def __init__(self, fields: Sequence[Field], values: Sequence[Value]) -> None:
        """``values`` are one for each row key field."""
        import xxhash

        self._first = values[0]
        plain = [_plain(field, value) for field, value in zip(fields, values, strict=True)]
        self._hashes = [xxhash.xxh64_intdigest(data) for data in plain]

    def may_be_in(self, path: Path, groups: Sequence[RowGroup]) -> bool:
        """Whether the key may be in any of the row groups. Raises OSError if the file cannot be read."""
        candidates = [group for group in groups if group.may_hold(self._first)]
        if not candidates:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return any(self._may_be_in_group(descriptor, group) for group in candidates)
        finally:
            os.close(descriptor)

    def _may_be_in_group(self, descriptor: int, group: RowGroup) -> bool:
        return all(
            place is None or _may_hold(descriptor, place, hashed)
            for place, hashed in zip(group.filters, self._hashes, strict=True)
        )


def _plain(field: Field, value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytes):
        return value
    return (value * _per_unit(field)).to_bytes(field.width, "little", signed=True)


def _may_hold(descriptor: int, place: tuple[int, int], hashed: int) -> bool:
    offset, length = place
    size = _filter_bytes(os.pread(descriptor, _HEADER_BYTES_MAX, offset))
    if size is None or size > length:
        return True  # of a kind that this does not know
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
    """The bytes of the filter behind a Thrift header; None unless it begins as Parquet's filters do."""
    if not header or header[0] != _HEADER_SET:
        return None
    number = shift = 0
    for byte in header[1:6]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            # Zigzag: even numbers are the positive ones. What follows says block, XXH64, uncompressed.
            known = header[1 + shift // 7 :].startswith(b"\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00")
            return number >> 1 if known and number % 2 == 0 and (number >> 1) % _BLOCK_BYTES == 0 else None
    return None
