"""Whether files may hold a key, by the filters in them: a look at 32 bytes a row group.

The engine could ask them too, but reads a whole filter, up to megabytes, for one answer. Parquet's filter is a
split-block bloom filter over XXH64 of a value. Where a key has one field, the filter of its column is one over keys.
Where it has several, their own filters say little, for a field of few values is in every file: those files have a
filter over whole keys, as they are encoded (docs/format.md, section 7). Source: Parquet format, "Bloom Filter".

One file is asked in place. Files that overlap are asked together (:class:`Overlap`): one look by NumPy is at a block of
each filter. Only that block is read the first time, for a process may ask for no second key; from the second time on
filters are kept whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from lakebed.model.schema import Field
from lakebed.parquet.footer import Footer, RowGroup, Value, per_unit
from lakebed.parquet.open_files import ByteRange
from lakebed.parquet.read_cache import CacheKind, ReadCache

if TYPE_CHECKING:
    from lakebed.parquet.pages import PagedFile

KEY = 0
"""Stands where a field's id would, for the filter over whole keys; no field has it."""

_BLOCK_BYTES = 32
_HEADER_BYTES_MAX = 64
# In Thrift's compact protocol: field 1, a 32-bit integer; then block algorithm, XXH64, uncompressed, the end.
_SIZE_FOLLOWS = 0x15
_KIND = bytes.fromhex("1c1c0000 1c1c0000 1c1c0000 00")
_SALTS_OF_ONE = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_SALTS = np.array(_SALTS_OF_ONE, np.uint32)
_ANY = b"\xff" * _BLOCK_BYTES
"""Stands for a filter of a kind that this does not know: it has every key."""

_ASKED_ONCE = b""
"""Is kept for a filter of which one block was read, in place of all of them."""

_ASKED_ONCE_BYTES = 200  # of Python, for its name
_SPARSE_BYTES = 64 * 1024
"""A filter with more bytes than that for each key that is asked for is read block by block."""

_PART_BYTES = 400  # of Python, for each row group of an overlap

ReadFilter = Callable[[int, ByteRange], bytes]
"""Reads these (offset, length) bytes of the file at a position."""


class Membership:
    """One row key, hashed once and asked of many row groups. Never says no of a key that is there."""

    def __init__(self, fields: Sequence[Field], values: Sequence[Value], key: bytes) -> None:
        """``values`` are one for each row key field; ``key`` is what they are encoded to."""
        self._key = key
        self._hashes: dict[int, int] = {}
        for field, value in zip(fields, values, strict=True):
            self._hashes[field.id] = xxhash.xxh64_intdigest(_plain(field, value))
        self._hashes[KEY] = xxhash.xxh64_intdigest(key)

    def may_be_in(self, read: Callable[[ByteRange], bytes], group: RowGroup, sizes: dict[int, int | None]) -> bool:
        """Whether the key may be in a row group of the file that ``read`` reads parts of. Raises as that does.

        ``sizes`` keeps the sizes of the file's filters, by offset, from one look to the next.
        """
        for field, byte_range in filters_of(group, self._hashes):
            hashed = self._hashes[field]
            if not _may_hold(hashed, _block(read, byte_range, hashed, sizes)):
                return False
        return True

    def among(self, overlap: Overlap, filters: ReadFilter, cache: ReadCache, threads: int = 1) -> list[int]:
        """The positions of files of an overlap that may have the key, ascending. So many threads read filters."""
        reached = [i for i, part in enumerate(overlap.parts) if part.low <= self._key < part.high]
        asked = [i for part in reached for i in overlap.parts[part].filters]
        missing = self._missing(overlap, asked, filters, cache, threads)
        if missing:
            reached = [part for part in reached if missing.isdisjoint(overlap.parts[part].filters)]
        return sorted({overlap.parts[part].file for part in reached})

    def _missing(
        self, overlap: Overlap, asked: Sequence[int], filters: ReadFilter, cache: ReadCache, threads: int
    ) -> set[int]:
        """Which of these filters do not know the key."""
        if not asked:
            return set()
        kept = cache.get_many(CacheKind.FILTERS, [overlap.names[i] for i in asked])

        def read(i: int, one: bytes | None) -> bytes:
            if one is None:
                # One block is a filter too.
                return overlap.look(i, self._hashes[overlap.fields[i]], filters, cache)
            return one or overlap.load(i, filters, cache)

        if all(kept) or threads < 2:
            found = list(map(read, asked, kept))
        else:
            with ThreadPoolExecutor(threads, "lakebed-filters") as pool:
                found = list(pool.map(read, asked, kept))
        fields = [overlap.fields[i] for i in asked]
        uppers = {field: hashed >> 32 for field, hashed in self._hashes.items()}
        starts = [(uppers[field] * (len(one) >> 5) >> 32) << 5 for field, one in zip(fields, found, strict=True)]
        blocks = b"".join([one[at : at + _BLOCK_BYTES] for one, at in zip(found, starts, strict=True)])
        rows = {field: row for row, field in enumerate(self._hashes)}
        lows = np.array([hashed & 0xFFFFFFFF for hashed in self._hashes.values()], np.uint32)
        masks = (np.uint32(1) << (lows[:, None] * _SALTS >> np.uint32(27)))[[rows[field] for field in fields]]
        known = ((np.frombuffer(blocks, "<u4").reshape(-1, 8) & masks) == masks).all(axis=1)
        return {asked[i] for i in np.flatnonzero(~known).tolist()}


class Memberships:
    """Many row keys, to be asked at once of row groups, one by one. Never says no of a key that is there.

    Safe to use from many threads, which may hash the keys twice.
    """

    def __init__(self, fields: Sequence[Field], values: pa.RecordBatch, keys: Sequence[bytes]) -> None:
        """``values`` are columns of these row key fields, ``keys`` what their rows are encoded to."""
        self._fields = fields
        self._values = values
        self._keys = keys
        self._hashes: dict[int, np.ndarray[Any, np.dtype[np.uint64]]] = {}

    def may_be_in(
        self, file: PagedFile, group: RowGroup, among: range, cache: ReadCache
    ) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Whether each of some keys may be in the row group of a file; None if it has no filter over whole keys.

        Raises OSError if the file cannot be read.
        """
        asked = filters_of(group, [field.id for field in self._fields])
        if len(asked) != 1 or (len(self._fields) > 1 and asked[0][0] != KEY):
            return None
        ((field, byte_range),) = asked
        hashes = self._hashed(field)[among.start : among.stop]
        blocks = _blocks(file, byte_range, hashes >> np.uint64(32), cache)
        if blocks is None:
            return None
        lows = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        masks = np.uint32(1) << (lows[:, None] * _SALTS >> np.uint32(27))
        known: np.ndarray[Any, np.dtype[np.bool_]] = ((blocks & masks) == masks).all(axis=1)
        return known

    def _hashed(self, field: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The hashes of all keys, for a filter over a field or over keys; made at first use."""
        found = self._hashes.get(field)
        if found is None:
            values = self._keys if field == KEY else _plain_all(self._fields[0], self._values.column(0))
            found = self._hashes[field] = np.fromiter(map(_hashed, values), np.uint64, len(self._keys))
        return found


@dataclass(frozen=True, slots=True)
class FilterPart:
    """A row group of an overlap: the position of its file, bounds of its keys, and its filters among all of them."""

    file: int
    low: bytes
    high: bytes
    filters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Files that overlap, as a lookup meets them: their row groups, and where filters over parts of the key lie.

    Of each filter: the position of its file, its place there, the field it is over, and its name in the cache.
    """

    parts: tuple[FilterPart, ...]
    files: tuple[int, ...]
    byte_ranges: tuple[ByteRange, ...]
    fields: tuple[int, ...]
    names: tuple[tuple[CacheKind, tuple[str, int]], ...]

    @classmethod
    def of(cls, files: Sequence[tuple[str, Footer]], key_fields: Sequence[Field]) -> Overlap:
        """Of files by footer, and the name under which things of each are kept."""
        fields = [field.id for field in key_fields]
        parts: list[FilterPart] = []
        owners: list[int] = []
        byte_ranges: list[ByteRange] = []
        over: list[int] = []
        names: list[tuple[CacheKind, tuple[str, int]]] = []
        for position, (name, footer) in enumerate(files):
            fences = footer.fences
            for group, low, high in zip(footer.groups, fences.starts, fences.ends, strict=True):
                first = len(byte_ranges)
                for field, byte_range in filters_of(group, fields):
                    owners.append(position)
                    byte_ranges.append(byte_range)
                    over.append(field)
                    names.append((CacheKind.FILTERS, (name, byte_range[0])))
                parts.append(FilterPart(position, low, high, tuple(range(first, len(byte_ranges)))))
        return cls(tuple(parts), tuple(owners), tuple(byte_ranges), tuple(over), tuple(names))

    @property
    def size_bytes(self) -> int:
        """Estimated, without the filters."""
        return _PART_BYTES * len(self.parts)

    @property
    def filter_bytes(self) -> int:
        """Of all filters together."""
        return sum(length for _, length in self.byte_ranges)

    def look(self, index: int, hashed: int, filters: ReadFilter, cache: ReadCache) -> bytes:
        """The one block of a filter that a hash leads to, from its file; that it was asked is kept."""
        cache.keep(CacheKind.FILTERS, self.names[index][1], _ASKED_ONCE, _ASKED_ONCE_BYTES)
        return _block(partial(filters, self.files[index]), self.byte_ranges[index], hashed, {})

    def load(self, index: int, filters: ReadFilter, cache: ReadCache) -> bytes:
        """A filter's blocks, from its file; kept from then on."""
        data = filters(self.files[index], self.byte_ranges[index])
        size = _filter_bytes(data[:_HEADER_BYTES_MAX])
        blocks = _ANY if size is None or size > len(data) else data[len(data) - size :]
        cache.keep(CacheKind.FILTERS, self.names[index][1], blocks, len(blocks))
        return blocks


def filters_of(group: RowGroup, fields: Sequence[int] | dict[int, int]) -> list[tuple[int, ByteRange]]:
    """What to ask of a row group: its filter over keys, else those over these of its fields that have one."""
    if group.key_filter is not None:
        return [(KEY, group.key_filter)]
    found = []
    for field in fields:
        chunk = group.chunks.get(field)
        if chunk is not None and chunk.bloom_filter:
            found.append((field, chunk.bloom_filter))
    return found


def _may_hold(hashed: int, block: bytes) -> bool:
    """Whether a block has one bit of each of its eight words, which the lower half of a hash leads to."""
    low = hashed & 0xFFFFFFFF
    for index, salt in enumerate(_SALTS_OF_ONE):
        bit = (low * salt & 0xFFFFFFFF) >> 27
        if not block[4 * index + (bit >> 3)] >> (bit & 7) & 1:
            return False
    return True


def _hashed(data: bytes) -> int:
    return xxhash.xxh64_intdigest(data)


def _plain(field: Field, value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytes):
        return value
    return (value * per_unit(field)).to_bytes(field.width, "little", signed=True)


def _plain_all(field: Field, column: pa.Array) -> list[bytes]:
    """As :func:`_plain`, of each value of a column."""
    if not field.width:
        found: list[bytes] = column.cast(pa.binary()).to_pylist()
        return found
    kind = np.dtype(f"<i{field.width}")
    data = (np.frombuffer(column.buffers()[1], kind, len(column)) * kind.type(per_unit(field))).tobytes()
    return [data[begin : begin + field.width] for begin in range(0, len(data), field.width)]


def _blocks(
    file: PagedFile, byte_range: ByteRange, uppers: np.ndarray[Any, np.dtype[np.uint64]], cache: ReadCache
) -> np.ndarray[Any, np.dtype[np.uint32]] | None:
    """The blocks of a filter that the upper halves of some hashes lead to; None for a filter of an unknown kind."""
    offset, length = byte_range
    data: bytes | None = cache.get(CacheKind.FILTERS, (file.name, offset)) or None
    size = len(data) if data is not None else _filter_bytes(file.read((offset, min(length, _HEADER_BYTES_MAX))))
    if size is None or size > length:
        return None
    numbers = uppers * np.uint64(size // _BLOCK_BYTES) >> np.uint64(32)
    begin = offset + length - size
    if data is None and len(numbers) * _SPARSE_BYTES < size:
        byte_ranges = [(begin + _BLOCK_BYTES * number, _BLOCK_BYTES) for number in numbers.tolist()]
        file.fetch_ahead(list(dict.fromkeys(byte_ranges)))
        read = {byte_range: file.read(byte_range) for byte_range in dict.fromkeys(byte_ranges)}
        return np.frombuffer(b"".join([read[byte_range] for byte_range in byte_ranges]), np.uint32).reshape(-1, 8)
    whole = np.frombuffer(file.read((begin, size)) if data is None else data, np.uint32)
    found: np.ndarray[Any, np.dtype[np.uint32]] = whole.reshape(-1, 8)[numbers]
    return found


def _block(
    read: Callable[[ByteRange], bytes], byte_range: ByteRange, hashed: int, sizes: dict[int, int | None]
) -> bytes:
    """The block of a filter that the upper half of a hash leads to. ``sizes`` keeps what headers say, by offset."""
    offset, length = byte_range
    if offset not in sizes:
        sizes[offset] = _filter_bytes(read((offset, min(length, _HEADER_BYTES_MAX))))
    size = sizes[offset]
    if size is None or size > length:
        return _ANY
    block = (hashed >> 32) * (size // _BLOCK_BYTES) >> 32
    words = read((offset + length - size + block * _BLOCK_BYTES, _BLOCK_BYTES))
    return words if len(words) == _BLOCK_BYTES else _ANY


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
