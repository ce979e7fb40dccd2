"""The pages of data files: finds those that may hold some keys, and reads their bytes.

The page index of a file has the bounds and the byte ranges of pages, for each row group and column. It is decoded at
first use and kept in the read cache. :mod:`lakebed.files.parquet.page_decoder` decodes the pages. Core type:
:class:`PagedFile`.

Rule: flat columns only, because the pages of a nested column's leaves need not end at the same rows.

Errors: OSError if a page index or a page is damaged.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakebed.files.parquet.footer import Chunk, Fences, RowGroup, encode_plain
from lakebed.files.parquet.open_files import ByteRange, OpenFile, OpenFiles
from lakebed.files.parquet.read_cache import CacheKind, ReadStatistics
from lakebed.files.parquet.stored_file import arrow_file
from lakebed.files.parquet.thrift import NUMBER, NUMBER_32, decode_struct, decode_table
from lakebed.model.arrays import Integers, of_integers
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.schema import Field, Schema
from lakebed.system import read_into

_LOCATION = bytes([NUMBER, NUMBER_32, NUMBER])  # of a page: offset, length, first row
GAP_BYTES = 32 * 1024
"""Pages with smaller gaps are read at once: copying this many bytes takes as long as another system call."""

RANGES_AT_ONCE = 500  # preadv accepts 1,024 buffers, and each byte range may be followed by a gap

_PAGE_BYTES = 24  # in a cached index: three numbers, one of which several columns may share
_BOUND_BYTES = 64  # a key bound besides its bytes: the object, and two references to it
_INDEX_BYTES = 300  # any index


class Pages(Struct, frozen=True):
    """The pages of a column of a row group: their offsets and lengths in the file, and their first rows; ascending.

    Columns that are decoded together share one ``first_rows`` array if their pages begin at the same rows.
    ``number`` is the id of the column's field.
    """

    number: int
    chunk: Chunk
    offsets: array[int]
    lengths: array[int]
    first_rows: array[int]


class Spans(Struct, frozen=True):
    """Row ranges ``[begins[i], ends[i])`` of a row group; they ascend and do not overlap."""

    begins: Integers
    ends: Integers

    def __len__(self) -> int:
        return int((self.ends - self.begins).sum())

    def every(self) -> Integers:
        """Return the numbers of all rows."""
        counts = self.ends - self.begins
        rows: Integers = np.arange(counts.sum()) + np.repeat(self.begins - (np.cumsum(counts) - counts), counts)
        return rows


def concatenated_positions(positions: Sequence[range | Integers]) -> range | Integers:
    """Return the positions of ascending parts as one: a range, if each part begins where the one before it ends."""
    if len(positions) == 1:
        return positions[0]
    ranges = [one for one in positions if isinstance(one, range)]
    if len(ranges) < len(positions):
        return np.concatenate([np.asarray(one) for one in positions])
    if all(before.stop == after.start for before, after in pairwise(ranges)):
        return range(ranges[0].start, ranges[-1].stop)
    return Spans(np.array([one.start for one in ranges]), np.array([one.stop for one in ranges])).every()


def take_rows(column: pa.Array, positions: range | Integers) -> pa.Array:
    """Return the rows at some positions; a range is not copied."""
    if isinstance(positions, range) and len(positions) == len(column):
        return column
    return (
        column.slice(positions.start, len(positions))
        if isinstance(positions, range)
        else column.take(of_integers(positions))
    )


class PageSelection(Struct, frozen=True):
    """The pages of a column that have some rows: runs of adjacent pages, and their total number of rows.

    ``positions`` are the selected rows among the rows of all these pages. Columns of one ``shape`` have pages that end
    at the same rows.
    """

    runs: Sequence[tuple[int, int]]
    shape: object
    rows: int
    positions: range | Integers

    def positions_from(self, begin: int) -> range | Integers:
        """Return the positions, if the first row of all the pages is at ``begin``."""
        positions = self.positions
        return (
            range(begin + positions.start, begin + positions.stop)
            if isinstance(positions, range)
            else begin + positions
        )

    @classmethod
    def of(cls, first_rows: array[int], group_rows: int, rows: range | Spans) -> PageSelection:
        """Return the pages of some rows of a row group."""
        if isinstance(rows, Spans):
            return cls._scattered(first_rows, group_rows, rows)
        first, last = bisect_right(first_rows, rows.start) - 1, bisect_left(first_rows, rows.stop)
        begin = first_rows[first]
        end = first_rows[last] if last < len(first_rows) else group_rows
        return cls([(first, last)], (begin, end), end - begin, range(rows.start - begin, rows.stop - begin))

    @classmethod
    def _scattered(cls, first_rows: array[int], group_rows: int, spans: Spans) -> PageSelection:
        firsts = np.append(np.asarray(first_rows, np.int64), group_rows)
        first = np.searchsorted(firsts, spans.begins, side="right") - 1
        picked = np.unique(Spans(first, np.searchsorted(firsts, spans.ends)).every())
        ends = np.stack([firsts[picked], firsts[picked + 1]])
        sizes = ends[1] - ends[0]
        moved = (np.cumsum(sizes) - sizes - ends[0])[np.searchsorted(picked, first)]
        breaks = np.flatnonzero(np.diff(picked) != 1)
        begins, stops = picked[np.append(0, breaks + 1)], picked[np.append(breaks, len(picked) - 1)] + 1
        runs = list(zip(begins.tolist(), stops.tolist(), strict=True))
        rows = int(sizes.sum())
        everywhere = rows == len(spans)
        positions = range(rows) if everywhere else Spans(spans.begins + moved, spans.ends + moved).every()
        return cls(runs, ends.tobytes(), rows, positions)


class KeyPages(Struct, frozen=True):
    """The first row of each page of the first key column, and the key bounds of the pages."""

    first_rows: array[int]
    fences: Fences

    def rows(self, keys: EncodedRange, rows: int, limit: int | None) -> RowSpan:
        """Which of ``rows`` rows of a row group may have keys in the range; with a limit, enough for that many."""
        reaching = self.fences.reaching(keys)
        if not reaching:
            return RowSpan(range(0), 0)
        low, high = reaching.start, reaching.stop
        firsts = self.first_rows
        end = firsts[high] if high < len(firsts) else rows
        # From this page on no key is below the range.
        above = max(low, bisect_left(self.fences.starts, keys.min))
        sure_from = min(firsts[above], end) if above < len(firsts) else end
        if limit is not None:
            end = min(end, sure_from + limit)
        return RowSpan(range(firsts[low], end), end - sure_from)


class PageBounds(Struct, frozen=True):
    """The first row of each page of a column, and the least and the greatest value in it, encoded as in keys.

    Pages that are ``nulls`` have no values. Encodings of a fixed width are byte strings of NumPy, others are objects.
    """

    first_rows: Integers
    nulls: np.ndarray[Any, np.dtype[np.bool_]]
    lows: np.ndarray[Any, np.dtype[Any]]
    highs: np.ndarray[Any, np.dtype[Any]]


class RowSpan(Struct, frozen=True):
    """Rows of a row group, the last ``above`` of which are known to lie above the lower bound."""

    rows: range
    above: int


class PagedFile:
    """One open file, read by pages; its page indexes are cached by the file's name.

    As a context manager it keeps a local file open from its first read on; otherwise the file is opened for each part
    that is read. ``files`` fetches the parts of a file on a store, each in a round trip (``is_remote``). For one
    thread.
    """

    def __init__(
        self,
        opened: OpenFile,
        schema: Schema,
        files: OpenFiles,
        statistics: ReadStatistics | None = None,
    ) -> None:
        self.opened = opened
        self.footer = opened.footer
        self.name = opened.name
        self.is_remote = opened.path is None
        self.statistics = statistics or ReadStatistics()
        self._files = files
        self.schema = schema
        self.cache = files.cache
        self._descriptor = -1
        self._holders = 0
        self._ahead: dict[ByteRange, bytes] = {}

    def __enter__(self) -> Self:
        self._holders += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._holders -= 1
        if not self._holders and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        """Return the descriptor of a local file; inside a ``with`` block, which closes it."""
        if self._descriptor < 0:
            assert self.opened.path is not None
            self._descriptor = os.open(self.opened.path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptor

    def read(self, byte_range: ByteRange) -> bytes:
        """Return these (offset, length) bytes. Raises OSError, or as :meth:`OpenFiles.open`."""
        if self.is_remote:
            data = self._ahead.pop(byte_range, b"") or self._fetch([byte_range])[0]
        else:
            with self:
                data = self.opened.part(self._open(), byte_range)
        if len(data) != byte_range[1]:
            raise OSError(f"{len(data)} of {byte_range[1]} bytes at {byte_range[0]}")
        self.statistics.size_bytes += len(data)
        return data

    def peek(self, byte_ranges: Sequence[ByteRange]) -> list[bytes]:
        """As :meth:`read`, of parts of a local file, which are not counted in the statistics."""
        with self:
            return [self.opened.part(self._open(), byte_range) for byte_range in byte_ranges]

    def read_into(self, content: memoryview, byte_ranges: Sequence[ByteRange]) -> int:
        """Read these byte ranges, one after another, into ``content``; returns the number of bytes.

        The caller holds a local file open. Raises as :meth:`read`.
        """
        filled = 0
        if self.is_remote:
            for byte_range in byte_ranges:
                content[filled : filled + byte_range[1]] = self.read(byte_range)
                filled += byte_range[1]
            return filled
        descriptor, blocks = self._open(), self.opened.blocks
        if blocks is not None and blocks.have_seen(byte_ranges):
            blocks = None
        for run in (byte_ranges,) if len(byte_ranges) == 1 else _near(byte_ranges):
            begin = end = run[0][0]
            if blocks is not None:
                data = memoryview(blocks.read(descriptor, (begin, sum(run[-1]) - begin)))
                filled = self._copy(data, run, content, filled)
                continue
            buffers: list[bytearray | memoryview] = []
            for offset, length in run:
                if offset > end:
                    buffers.append(bytearray(offset - end))
                buffers.append(content[filled : filled + length])
                filled, end = filled + length, offset + length
            count = read_into(descriptor, buffers, begin)
            if count != end - begin:
                raise OSError(f"{count} of {end - begin} bytes at {begin}")
        self.statistics.size_bytes += filled
        return filled

    @staticmethod
    def _copy(data: memoryview, run: Sequence[ByteRange], content: memoryview, filled: int) -> int:
        """Copy the byte ranges of a run from its bytes into ``content`` from ``filled`` on; returns where they end."""
        begin = run[0][0]
        for offset, length in run:
            content[filled : filled + length] = data[offset - begin : offset - begin + length]
            filled += length
        return filled

    def stored(self) -> pa.NativeFile:
        """Return a file on a store, for Arrow's readers."""
        return arrow_file(self.opened, self._files)

    def fetch_ahead(self, byte_ranges: Sequence[ByteRange]) -> None:
        """Fetch parts that will be read next, in one round trip; does nothing for a local file."""
        if self.is_remote:
            missing = [byte_range for byte_range in byte_ranges if byte_range not in self._ahead]
            self._ahead.update(zip(missing, self._fetch(missing), strict=True))

    def _fetch(self, byte_ranges: Sequence[ByteRange]) -> list[bytes]:
        return self._files.fetch(self.opened, byte_ranges)

    def pages(self, position: int, group: RowGroup, numbers: tuple[int, ...]) -> tuple[Pages, ...]:
        """Return the pages of some columns, of those that the file has, of the row group at that position."""
        name = (self.name, position, numbers)
        decoded: tuple[Pages, ...] | None = self.cache.get(CacheKind.PAGES, name)
        if decoded is None:
            firsts: dict[bytes, array[int]] = {}
            chunks = [(number, group.chunks[number]) for number in numbers if number in group.chunks]
            self.fetch_ahead([chunk.offset_index for _, chunk in chunks if chunk.offset_index is not None])
            decoded = tuple(self._decode_pages(number, chunk, group.rows, firsts) for number, chunk in chunks)
            size_bytes = sum(_INDEX_BYTES + _PAGE_BYTES * len(pages.offsets) for pages in decoded)
            self.cache.keep(CacheKind.PAGES, name, decoded, size_bytes)
        return decoded

    def _decode_pages(self, number: int, chunk: Chunk, rows: int, firsts: dict[bytes, array[int]]) -> Pages:
        assert chunk.offset_index is not None
        locations = decode_table(self.read(chunk.offset_index), _LOCATION)
        # Checked although its bytes are verified: wrong offsets would be decoded as pages.
        ends = np.append(locations[:, 2], rows)
        if not len(locations) or ends[0] or (np.diff(ends) <= 0).any() or (np.diff(locations[:, 0]) <= 0).any():
            raise OSError("a page index is not in order")
        offsets, lengths, first_rows = (array("q", column.tobytes()) for column in locations.T)
        return Pages(number, chunk, offsets, lengths, firsts.setdefault(first_rows.tobytes(), first_rows))

    def key_pages(self, position: int, group: RowGroup) -> KeyPages:
        """Return the key bounds of the pages of the row group at that position."""
        name = (self.name, position)
        key_pages: KeyPages | None = self.cache.get(CacheKind.PAGES, name)
        if key_pages is None:
            key_pages = self._decode_key_pages(position, group)
            bounds = (*key_pages.fences.starts, *key_pages.fences.ends)
            size_bytes = _INDEX_BYTES + sum(map(len, bounds)) + _BOUND_BYTES * len(bounds)
            self.cache.keep(CacheKind.PAGES, name, key_pages, size_bytes)
        return key_pages

    def page_bounds(self, position: int, group: RowGroup, field: Field) -> PageBounds | None:
        """Return the bounds of a column's pages in the row group at that position; None if they are not known.

        All values of a column that the file does not have are null.
        """
        if field.id not in self.footer.names:
            none = np.array([b""], object)
            return PageBounds(np.zeros(1, np.int64), np.ones(1, bool), none, none)
        chunk = _bounded_chunk(group, field)
        if chunk is None:
            return None
        name = (self.name, position, field.id, field.type)
        found: PageBounds | None = self.cache.get(CacheKind.PAGES, name)
        if found is None:
            assert chunk.column_index is not None
            [pages] = self.pages(position, group, (field.id,))
            found = _decode_bounds(field, pages, decode_struct(self.read(chunk.column_index)))
            self.cache.keep(CacheKind.PAGES, name, found, _INDEX_BYTES + _size_of(found))
        return found

    def missing_indexes(self, position: int, group: RowGroup, fields: Iterable[Field]) -> list[ByteRange]:
        """Return where the indexes are that :meth:`page_bounds` of these fields and :meth:`key_pages` would read."""
        wanted = {
            field.id: chunk
            for field in fields
            if (chunk := _bounded_chunk(group, field))
            and not self.cache.has(CacheKind.PAGES, (self.name, position, field.id, field.type))
        }
        if not self.cache.has(CacheKind.PAGES, (self.name, position)):
            wanted |= {field.id: group.chunks[field.id] for field in self.schema.row_key}
        return [
            index
            for _, chunk in sorted(wanted.items())
            for index in (chunk.offset_index, chunk.column_index)
            if index is not None
        ]

    def has_decoded(self, position: int, key: bytes) -> bool:
        """Return whether the page that may have a key is in the read cache, of the row group at that position.

        If two pages may have the key, only the first is checked; likewise the first of several key columns.
        """
        key_pages: KeyPages | None = self.cache.get(CacheKind.PAGES, (self.name, position))
        if key_pages is None:
            return False
        page = bisect_right(key_pages.fences.ends, key)
        return self.cache.has(CacheKind.ROWS, (self.name, position, self.schema.row_key[0].id, page))

    def _decode_key_pages(self, position: int, group: RowGroup) -> KeyPages:
        fields = self.schema.row_key
        columns = self.pages(position, group, tuple(field.id for field in fields))
        first_rows = columns[0].first_rows
        bounds: list[tuple[Field, Sequence[bytes], Sequence[bytes]]] = []
        self.fetch_ahead([column.chunk.column_index for column in columns if column.chunk.column_index is not None])
        for field, column in zip(fields, columns, strict=True):
            if column.first_rows is not first_rows:
                # The pages of this field end at other rows: the bounds of the fields before it have to do.
                break
            assert column.chunk.column_index is not None
            index = decode_struct(self.read(column.chunk.column_index))
            bounds.append((field, index[2], index[3]))
        return KeyPages(first_rows, Fences.of([_page_bounds(bounds, page) for page in range(len(first_rows))]))


def _bounded_chunk(group: RowGroup, field: Field) -> Chunk | None:
    """Return the chunk of a column if its pages have bounds, in the form of the field's type."""
    chunk = group.chunks.get(field.id)
    if chunk is None or chunk.column_index is None or chunk.offset_index is None:
        return None
    return chunk if _stored_form(decode_struct(chunk.element)) == _form_of(field.stored_type) else None


_FORM = (1, 2, 7, 8, 10)
"""Fields of a schema element: physical type, length, scale, precision and logical type."""


def _stored_form(element: dict[int, Any]) -> tuple[Any, ...]:
    return tuple(element.get(number) for number in _FORM)


@lru_cache(maxsize=1024)
def _form_of(kind: pa.DataType) -> tuple[Any, ...]:
    """Return how Parquet stores columns of an Arrow type: the order of values in other forms may be another one."""
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pa.schema({"x": kind}), store_schema=False).close()
    content = sink.getvalue().to_pybytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    return _stored_form(decode_struct(footer)[2][1])


def _decode_bounds(field: Field, pages: Pages, index: dict[int, Any]) -> PageBounds:
    # Thrift has 1 for true in a list, and 0 or 2 for false.
    nulls = np.array([one == 1 for one in index[1]], bool)
    if not len(pages.first_rows) == len(nulls) == len(index[2]) == len(index[3]):
        raise OSError("a column index has other pages than the offset index")
    lows, highs = (_encoded_bounds(field, values, nulls) for values in (index[2], index[3]))
    return PageBounds(np.asarray(pages.first_rows, np.int64), nulls, lows, highs)


def _encoded_bounds(
    field: Field, values: Sequence[bytes], nulls: np.ndarray[Any, np.dtype[np.bool_]]
) -> np.ndarray[Any, np.dtype[Any]]:
    """Encode plain values of a field; there is none for pages that are ``nulls``."""
    key = field.key_type
    if key.sign and key.per_unit == 1:
        blank = bytes(key.plain_width)
        content = b"".join([blank if null else value for value, null in zip(values, nulls, strict=True)])
        if len(content) != len(values) * key.plain_width:
            raise OSError(f"a column index has bounds of another size than {key.plain_width} bytes")
        # Parquet stores narrow integers in 32 bits.
        numbers = np.frombuffer(content, f"<{key.sign}{key.plain_width}").astype(f"<{key.sign}{key.width}")
        column = pa.Array.from_buffers(key.kind, len(numbers), [None, pa.py_buffer(numbers)])
        # Of a fixed width, an encoding has one part.
        [codes] = key.encode_column(column)
        return np.frombuffer(codes.buffers()[2], f"S{key.width}", len(numbers))
    encoded = np.empty(len(values), object)
    encoded[:] = [b"" if null else encode_plain(field, value) for value, null in zip(values, nulls, strict=True)]
    return encoded


def _size_of(bounds: PageBounds) -> int:
    sizes = [bounds.first_rows.nbytes, bounds.lows.nbytes, bounds.highs.nbytes]
    if bounds.lows.dtype == object:
        sizes += [_BOUND_BYTES + len(bound) for bound in (*bounds.lows, *bounds.highs)]
    return sum(sizes)


def _near(byte_ranges: Sequence[ByteRange]) -> Iterator[Sequence[ByteRange]]:
    """Return the byte ranges, grouped into runs that are read at once."""
    first, end = 0, sum(byte_ranges[0])
    for index, (offset, length) in enumerate(byte_ranges[1:], 1):
        if not 0 <= offset - end <= GAP_BYTES or index - first == RANGES_AT_ONCE:
            yield byte_ranges[first:index]
            first = index
        end = offset + length
    yield byte_ranges[first:]


def _page_bounds(fields: Sequence[tuple[Field, Sequence[bytes], Sequence[bytes]]], page: int) -> EncodedRange:
    """Return a range that includes the keys of a page, from the minimum and maximum values of each key field in all
    pages.

    It ends with the first field that varies: the minimum of the next field need not be in the first row.
    """
    low = high = b""
    for field, lows, highs in fields:
        low += encode_plain(field, lows[page])
        high += encode_plain(field, highs[page])
        if low != high:
            break
    return EncodedRange(low, successor(high))
