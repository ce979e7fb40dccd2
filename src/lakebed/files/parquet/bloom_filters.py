"""Probes the Bloom filters of data files: a probe reads 32 bytes to find out whether a row group may have a key.

Parquet's filter is a split-block Bloom filter over XXH64 of a value. If a key has one field, the filter of its column
is a filter over keys. If it has several, the filters of single fields exclude little, because a field of few values is
in every file: such files have a filter over keys as they are encoded, or over their first fields (docs/format.md,
section 7). The engine could probe filters as well, but reads a whole filter, up to megabytes, for one probe.

Core types: :class:`HashedKey` is one key, or the beginning of one. It probes one file in place, or, for files that
overlap, all filters of an :class:`Overlap` at once with NumPy. The first probe of a filter reads a single block,
because a process may look up one key only; from the second probe on the whole filter is cached. :class:`HashedKeys` are
many keys, probed at once; a filter that they read whole is cached too.

Rule: a probe may return true for an absent key, and never false for a present one. A filter of an unknown kind matches
every key. Source: Parquet format, "Bloom Filter".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from msgspec import Struct

from lakebed.files.parquet.footer import Footer, RowGroup
from lakebed.files.parquet.open_files import ByteRange
from lakebed.files.parquet.read_cache import CacheKind, ReadCache
from lakebed.model.key_type import Content
from lakebed.model.keys import EncodedRange, KeyCodec
from lakebed.model.schema import Field

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.files.parquet.pages import PagedFile

_BLOCK_BYTES = 32
_HEADER_BYTES_MAX = 64
# In Thrift's compact protocol: field 1, a 32-bit integer; then block algorithm, XXH64, uncompressed, the end.
_SIZE_FOLLOWS = 0x15
_KIND = bytes.fromhex("1c1c0000 1c1c0000 1c1c0000 00")
_SALTS_OF_ONE = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_SALTS = np.array(_SALTS_OF_ONE, np.uint32)
_EVERY_KEY = b"\xff" * _BLOCK_BYTES
"""Used in place of a filter of an unknown kind: it matches every key."""

_PROBED_ONCE = b""
"""The cached value of a filter of which one block was read."""

_PROBED_ONCE_BYTES = 200  # of Python, for the cache entry
_SPARSE_BYTES = 64 * 1024
"""A filter with more bytes than this per key of a probe is read block by block."""

_PART_BYTES = 400  # of Python, for each row group of an overlap

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
FilterBlocks = np.ndarray[Any, np.dtype[np.uint32]]
ReadParts = Callable[[Sequence[ByteRange]], Sequence[bytes]]
"""Reads (offset, length) parts of a file, in one round trip if it is on a store."""

ReadFilter = Callable[[int, Sequence[ByteRange]], Sequence[bytes]]
"""As :data:`ReadParts`, of the file at a position in an overlap."""


class HashedKey:
    """One row key, or the first fields of one, hashed at first use and probed in many row groups."""

    def __init__(self, fields: Sequence[Field], values: Sequence[Content], keys: EncodedRange) -> None:
        """``values`` has the values of the first of the row key ``fields``; ``keys`` are those that begin with them."""
        self._fields = fields
        self._values = values
        self._keys = keys

    @cached_property
    def _hashes(self) -> dict[int, int]:
        """Hashes by what filters are over, as :func:`filters_of` has it."""
        hashes, beginning = {}, b""
        for count, (field, value) in enumerate(zip(self._fields, self._values, strict=False), 1):
            hashes[field.id] = xxhash.xxh64_intdigest(field.key_type.plain(value))
            if len(self._fields) > 1:
                beginning += field.key_type.encode(value)
                hashes[-count] = xxhash.xxh64_intdigest(beginning)
        return hashes

    def may_be_in(self, read: ReadParts, group: RowGroup, sizes: dict[int, int | None]) -> bool:
        """Return whether the key may be in a row group of the file that ``read`` reads. Raises as that does.

        ``sizes`` caches the sizes of the file's filters, by offset.
        """
        for over, byte_range in filters_of(group, self._fields):
            hashed = self._hashes.get(over)
            if hashed is not None and not _may_hold(hashed, _block(read, byte_range, hashed, sizes)):
                return False
        return True

    def files_of(self, overlap: Overlap, read_filter: ReadFilter, cache: ReadCache, threads: int = 1) -> list[int]:
        """Return the ascending positions of an overlap's files that may have the key; ``threads`` read filters."""
        low, high = self._keys.min, self._keys.max
        parts = [part for part in overlap.parts if low < part.high and (high is None or part.low < high)]
        owned = [(index, one) for index, part in enumerate(parts) for one in part.filters if one.over in self._hashes]
        owners, filters = [index for index, _ in owned], [one for _, one in owned]
        excluded = {owners[i] for i in self._excluding(filters, read_filter, cache, threads)}
        return sorted({part.file for index, part in enumerate(parts) if index not in excluded})

    def _excluding(
        self, filters: Sequence[OverlapFilter], read_filter: ReadFilter, cache: ReadCache, threads: int
    ) -> list[int]:
        """Return the indices of the filters that exclude the key."""
        if not filters:
            return []
        cached = cache.get_many(CacheKind.FILTERS, [one.cache_key for one in filters])

        def blocks_of(overlap_filter: OverlapFilter, known: bytes | None) -> bytes:
            if known is None:
                # A single block is a filter as well.
                return overlap_filter.read_block(self._hashes[overlap_filter.over], read_filter, cache)
            return known or overlap_filter.read_all(read_filter, cache)

        if all(cached) or threads < 2:
            contents = list(map(blocks_of, filters, cached))
        else:
            with ThreadPoolExecutor(threads, "lakebed-filters") as pool:
                contents = list(pool.map(blocks_of, filters, cached))
        hashes = [self._hashes[one.over] for one in filters]
        begins = [((h >> 32) * (len(c) >> 5) >> 32) << 5 for h, c in zip(hashes, contents, strict=True)]
        blocks = b"".join([c[begin : begin + _BLOCK_BYTES] for c, begin in zip(contents, begins, strict=True)])
        known = _have(np.frombuffer(blocks, "<u4").reshape(-1, 8), np.array(hashes, np.uint64))
        indices: list[int] = np.flatnonzero(~known).tolist()
        return indices


class HashedKeys:
    """Many row keys, probed at once in one row group after another.

    Safe to use from many threads, which may hash the keys twice.
    """

    def __init__(self, fields: Sequence[Field], values: pa.RecordBatch, keys: Sequence[bytes]) -> None:
        """``values`` has the columns of the row key fields; ``keys`` are the encodings of its rows."""
        self._fields = fields
        self._values = values
        self._keys = keys
        self._hashes: dict[int, Hashes] = {}

    def may_be_in(
        self, file: PagedFile, group: RowGroup, key_indices: range
    ) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Return whether each key of a range of indices may be in a row group; None if it has no filter over keys.

        Raises OSError if the file cannot be read.
        """
        filters = filters_of(group, self._fields)
        if len(filters) != 1 or (len(self._fields) > 1 and filters[0][0] > 0):
            return None
        ((over, byte_range),) = filters
        hashes = self._hashed(over)[key_indices.start : key_indices.stop]
        blocks = _blocks(file, byte_range, hashes >> np.uint64(32))
        return None if blocks is None else _have(blocks, hashes)

    def _hashed(self, over: int) -> Hashes:
        """Return the hashes of all keys, for what a filter is over; computed at first use."""
        hashes = self._hashes.get(over)
        if hashes is None:
            values = self._keys
            if over > 0:
                values = self._fields[0].key_type.plain_all(self._values.column(0))
            elif -over < len(self._fields):
                values = KeyCodec(tuple(self._fields[:-over])).encode_columns(self._values).to_pylist()
            hashes = np.fromiter(map(xxhash.xxh64_intdigest, values), np.uint64, len(self._keys))
            self._hashes[over] = hashes
        return hashes


class OverlapFilter(Struct, frozen=True):
    """One filter of an overlap: the position of its file, its bytes there, what it is over, its key in the cache."""

    file: int
    byte_range: ByteRange
    over: int
    cache_key: tuple[CacheKind, tuple[str, int]]

    def read_block(self, hashed: int, read_filter: ReadFilter, cache: ReadCache) -> bytes:
        """Return the block of a hash, from the file; the cache notes the probe."""
        cache.keep(CacheKind.FILTERS, self.cache_key[1], _PROBED_ONCE, _PROBED_ONCE_BYTES)
        return _block(partial(read_filter, self.file), self.byte_range, hashed, {})

    def read_all(self, read_filter: ReadFilter, cache: ReadCache) -> bytes:
        """Return all blocks of the filter, from the file; cached from now on."""
        (data,) = read_filter(self.file, [self.byte_range])
        size = _filter_bytes(data[:_HEADER_BYTES_MAX])
        blocks = _EVERY_KEY if size is None or size > len(data) else data[len(data) - size :]
        cache.keep(CacheKind.FILTERS, self.cache_key[1], blocks, len(blocks))
        return blocks


class OverlapPart(Struct, frozen=True):
    """A row group of an overlap: the position of its file, the bounds ``[low, high)`` of its keys, and its filters."""

    file: int
    low: bytes
    high: bytes
    filters: tuple[OverlapFilter, ...]


class Overlap(Struct, frozen=True):
    """The row groups of files that overlap, in the order of the files, and the bytes of all their filters together."""

    parts: tuple[OverlapPart, ...]
    filter_bytes: int

    @classmethod
    def of(cls, files: Sequence[tuple[str, Footer]], key_fields: Sequence[Field]) -> Overlap:
        """Make an overlap of files, each with its name in the cache and its footer."""
        parts = [
            OverlapPart(
                position,
                low,
                high,
                tuple(
                    OverlapFilter(position, byte_range, over, (CacheKind.FILTERS, (name, byte_range[0])))
                    for over, byte_range in filters_of(group, key_fields)
                ),
            )
            for position, (name, footer) in enumerate(files)
            for group, low, high in zip(footer.groups, footer.fences.starts, footer.fences.ends, strict=True)
        ]
        return cls(tuple(parts), sum(one.byte_range[1] for part in parts for one in part.filters))

    @property
    def size_bytes(self) -> int:
        """Estimated, without the filters."""
        return _PART_BYTES * len(self.parts)


def filters_of(group: RowGroup, key_fields: Sequence[Field]) -> list[tuple[int, ByteRange]]:
    """Return the filters of a row group to probe, with what they are over: the id of a field, or -n for the first n
    fields of keys, encoded. A filter over these is the only one.
    """
    if group.key_filter is not None:
        return [(-group.filtered, group.key_filter)]
    filters = []
    for field in key_fields:
        chunk = group.chunks.get(field.id)
        if chunk is not None and chunk.bloom_filter:
            filters.append((field.id, chunk.bloom_filter))
    return filters


def _have(blocks: FilterBlocks, hashes: Hashes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return whether each block has the bits of its hash: one bit of each of its eight words, by the lower half."""
    lows = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    masks = np.uint32(1) << (lows[:, None] * _SALTS >> np.uint32(27))
    known: np.ndarray[Any, np.dtype[np.bool_]] = ((blocks & masks) == masks).all(axis=1)
    return known


def _may_hold(hashed: int, block: bytes) -> bool:
    """As :func:`_have`, for one block without NumPy, which takes longer for few."""
    low = hashed & 0xFFFFFFFF
    for index, salt in enumerate(_SALTS_OF_ONE):
        bit = (low * salt & 0xFFFFFFFF) >> 27
        if not block[4 * index + (bit >> 3)] >> (bit & 7) & 1:
            return False
    return True


def _blocks(file: PagedFile, byte_range: ByteRange, uppers: Hashes) -> FilterBlocks | None:
    """Return the blocks of a filter for the upper halves of some hashes; None for a filter of an unknown kind."""
    offset, length = byte_range
    data: bytes | None = file.cache.get(CacheKind.FILTERS, (file.name, offset)) or None
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
    if data is None:
        data = file.read((begin, size))
        file.cache.keep(CacheKind.FILTERS, (file.name, offset), data, size)
    blocks: FilterBlocks = np.frombuffer(data, np.uint32).reshape(-1, 8)[numbers]
    return blocks


def _block(read: ReadParts, byte_range: ByteRange, hashed: int, sizes: dict[int, int | None]) -> bytes:
    """Return the block of a filter for the upper half of a hash. ``sizes`` caches the sizes of filters, by offset."""
    offset, length = byte_range

    def place(size: int) -> ByteRange:
        number = (hashed >> 32) * (size // _BLOCK_BYTES) >> 32
        return offset + length - size + number * _BLOCK_BYTES, _BLOCK_BYTES

    words = None
    if offset not in sizes:
        # The size is in the header. Arrow's is a power of two, behind a short header: then one round trip is enough.
        expected = 1 << length.bit_length() - 1
        header, words = read([(offset, min(length, _HEADER_BYTES_MAX)), place(expected)])
        sizes[offset] = found = _filter_bytes(header)
        words = words if found == expected else None
    size = sizes[offset]
    if size is None or size > length:
        return _EVERY_KEY
    if words is None:
        (words,) = read([place(size)])
    return words if len(words) == _BLOCK_BYTES else _EVERY_KEY


def _filter_bytes(header: bytes) -> int | None:
    """Return the size of the filter behind this header, in bytes; None for a filter of an unknown kind."""
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
