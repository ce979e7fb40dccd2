"""Narrow reads: a few pages of a local file, without the engine.

For a point read, or a scan of a few thousand rows, planning and thread hops would cost the engine more than the work.
What is left is little: the page index says which pages may hold the keys; of the key columns those are read, and a
binary search over encoded keys finds the rows; of the other columns only the pages of these rows are read. Arrow
decodes them: pages and their columns' metadata make a little Parquet file, put together in memory. Page CRCs are
verified on the way, so a flipped bit in what is read here is an error.

Page indexes are decoded once for each row group and column (about a millisecond), and kept in the read cache.

Flat columns only: the pages of a nested column's parts need not end at the same rows.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.keys import EncodedRange
from lakebed.query.cache import Kind, ReadCache
from lakebed.query.footer import Chunk, Fences, RowGroup, Value, key_bounds, plain_value
from lakebed.query.tally import Tally
from lakebed.query.thrift import STOP, decode_struct, integer, struct, structs, text
from lakebed.schema import Field, Schema

Integers = np.ndarray[Any, np.dtype[np.int64]]

_PAGE_BYTES = 24  # of a kept index: three numbers
_BOUND_BYTES = 64  # a bound of keys beside its own bytes: the object, and two places that name it
_INDEX_BYTES = 300  # any index
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Pages:
    """Where a column's pages are: offset and length in the file, and the first row of each; ascending."""

    offsets: array[int]
    lengths: array[int]
    first_rows: array[int]

    def covering(self, begin: int, end: int) -> tuple[int, int]:
        """The pages with rows ``[begin, end)``, as a half-open range."""
        return bisect_right(self.first_rows, begin) - 1, bisect_left(self.first_rows, end)


@dataclass(frozen=True, slots=True)
class Spans:
    """Rows ``[begins[i], ends[i])`` of a row group; they ascend, and do not overlap."""

    begins: Integers
    ends: Integers

    @property
    def rows(self) -> int:
        """How many they are."""
        return int((self.ends - self.begins).sum())

    def every(self) -> Integers:
        """Their numbers."""
        counts = self.ends - self.begins
        found: Integers = np.arange(counts.sum()) + np.repeat(self.begins - (np.cumsum(counts) - counts), counts)
        return found


@dataclass(frozen=True, slots=True)
class Picked:
    """The pages of a column that have some rows, and where these are among the rows of the pages; None: everywhere.

    ``ends`` are the first row of each page and the one after its last; columns in which they are equal share a file.
    """

    pages: Integers
    ends: Integers
    places: Integers | None

    @classmethod
    def of(cls, pages: Pages, group_rows: int, spans: Spans) -> Picked:
        """The pages of some rows of a row group."""
        firsts = np.append(np.asarray(pages.first_rows, np.int64), group_rows)
        first = np.searchsorted(firsts, spans.begins, side="right") - 1
        picked = np.unique(Spans(first, np.searchsorted(firsts, spans.ends)).every())
        ends = np.stack([firsts[picked], firsts[picked + 1]])
        sizes = ends[1] - ends[0]
        if spans.rows == sizes.sum():
            return cls(picked, ends, None)
        moved = (np.cumsum(sizes) - sizes - ends[0])[np.searchsorted(picked, first)]
        return cls(picked, ends, Spans(spans.begins + moved, spans.ends + moved).every())

    @property
    def rows(self) -> int:
        """How many rows the pages have."""
        return int((self.ends[1] - self.ends[0]).sum())

    def taken(self, column: pa.Array) -> pa.Array:
        """The rows, out of those of the pages."""
        return column if self.places is None else column.take(pa.array(self.places))


@dataclass(frozen=True, slots=True)
class KeyPages:
    """The pages of the first key column, and where the keys of their rows lie."""

    pages: Pages
    fences: Fences

    def rows(self, keys: EncodedRange, rows: int, limit: int | None) -> Span:
        """Which rows of a row group of ``rows`` rows may have such keys; with a limit, enough for the first so many."""
        reaching = self.fences.reaching(keys)
        if not reaching:
            return Span(0, 0, 0)
        low, high = reaching.start, reaching.stop
        firsts = self.pages.first_rows
        end = firsts[high] if high < len(firsts) else rows
        # Which pages seem to have such keys is told by looser bounds than which surely have none below them.
        above = max(low, bisect_left(self.fences.starts, keys.min))
        surely = min(firsts[above], end) if above < len(firsts) else end
        if limit is not None:
            end = min(end, surely + limit)
        return Span(firsts[low], end, end - surely)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows ``[begin, end)`` of a row group; all but ``end - begin - above`` are known to lie above the lower bound."""

    begin: int
    end: int
    above: int


class OpenPages:
    """One local file, open for narrow reads. Its page indexes are decoded at first use, and kept by its ``name``."""

    def __init__(self, path: Path, name: str, schema: Schema, kept: ReadCache, tally: Tally | None = None) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._name = name
        self._schema = schema
        self._kept = kept
        self._tally = tally or Tally()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    @property
    def descriptor(self) -> int:
        """The open file."""
        return self._descriptor

    def locate(self, position: int, group: RowGroup, keys: EncodedRange, limit: int | None) -> Span:
        """Which rows of the row group at that position in the file may have such keys."""
        return self.key_pages(position, group).rows(keys, group.rows, limit)

    def read(
        self, position: int, group: RowGroup, fields: Sequence[Field], begin: int, end: int
    ) -> dict[str, pa.Array]:
        """Rows ``[begin, end)`` of some fields, by name; null where the file was written without the field.

        Raises ArrowException or OSError if a page is not what was written.
        """
        # Columns whose pages end at the same rows share a little file: opening one costs as much as a column in it.
        together: dict[tuple[int, int], list[tuple[Field, Pages, int, int]]] = {}
        found: dict[str, pa.Array] = {}
        for field in fields:
            chunk = group.chunks.get(field.id)
            if chunk is None:
                found[field.name] = pa.nulls(end - begin, field.type)
                continue
            pages = self._pages(position, chunk, field)
            first, last = pages.covering(begin, end)
            next_row = pages.first_rows[last] if last < len(pages.first_rows) else group.rows
            together.setdefault((pages.first_rows[first], next_row), []).append((field, pages, first, last))
        for (first_row, next_row), columns in together.items():
            parts = [self._part(group.chunks[field.id], pages, first, last) for field, pages, first, last in columns]
            document = _little_file(parts, next_row - first_row)
            with pq.ParquetFile(pa.BufferReader(document), page_checksum_verification=True) as file:
                rows = file.read(use_threads=False)
            for (field, *_), column in zip(columns, rows.columns, strict=True):
                found[field.name] = _exactly(column, field.type).slice(begin - first_row, end - begin)
        return found

    def pick(self, position: int, group: RowGroup, fields: Sequence[Field], spans: Spans) -> dict[str, pa.Array]:
        """The rows of some spans of a row group, by field. Reads each page that has any of them once.

        Raises as :meth:`read`.
        """
        # One little file for columns that need the same pages, as in :meth:`read`, whichever pages these are.
        together: dict[bytes, list[tuple[Field, Pages, Picked]]] = {}
        found: dict[str, pa.Array] = {}
        for field in fields:
            chunk = group.chunks.get(field.id)
            if chunk is None:
                found[field.name] = pa.nulls(spans.rows, field.type)
                continue
            pages = self._pages(position, chunk, field)
            picked = Picked.of(pages, group.rows, spans)
            together.setdefault(picked.ends.tobytes(), []).append((field, pages, picked))
        for columns in together.values():
            parts = [self._picked(group.chunks[field.id], pages, picked) for field, pages, picked in columns]
            shared = columns[0][2]
            document = _little_file(parts, shared.rows)
            with pq.ParquetFile(pa.BufferReader(document), page_checksum_verification=True) as file:
                read = file.read(use_threads=False)
            for (field, *_), column in zip(columns, read.columns, strict=True):
                found[field.name] = shared.taken(_exactly(column, field.type))
        return found

    def ending_with(self, position: int, group: RowGroup, fields: Sequence[Field], span: Span) -> Iterator[Field]:
        """Those of the fields whose pages begin and end where the span does."""
        for field in fields:
            chunk = group.chunks.get(field.id)
            if chunk is not None:
                pages = self._pages(position, chunk, field)
                first, last = pages.covering(span.begin, span.end)
                next_row = pages.first_rows[last] if last < len(pages.first_rows) else group.rows
                if (pages.first_rows[first], next_row) == (span.begin, span.end):
                    yield field

    def _picked(self, chunk: Chunk, pages: Pages, picked: Picked) -> tuple[Chunk, bytes, Sequence[bytes]]:
        """A column's dictionary and some of its pages, as they are; those that follow one another are read at once."""
        dictionary = b"" if chunk.dictionary is None else self._bytes(chunk.dictionary)
        pieces = []
        self._tally.pages += len(picked.pages)
        for run in np.split(picked.pages, np.flatnonzero(np.diff(picked.pages) != 1) + 1):
            offset, last = pages.offsets[run[0]], run[-1]
            pieces.append(self._bytes((offset, pages.offsets[last] + pages.lengths[last] - offset)))
        return chunk, dictionary, pieces

    def _part(self, chunk: Chunk, pages: Pages, first: int, last: int) -> tuple[Chunk, bytes, Sequence[bytes]]:
        """A column's dictionary and its pages ``[first, last)``, as they are."""
        dictionary = b"" if chunk.dictionary is None else self._bytes(chunk.dictionary)
        offset = pages.offsets[first]
        self._tally.pages += last - first
        return chunk, dictionary, [self._bytes((offset, pages.offsets[last - 1] + pages.lengths[last - 1] - offset))]

    def _bytes(self, place: tuple[int, int]) -> bytes:
        offset, length = place
        data = os.pread(self._descriptor, length, offset)
        if len(data) != length:
            raise OSError(f"{len(data)} of {length} bytes at {offset}")
        self._tally.size_bytes += length
        return data

    def _pages(self, position: int, chunk: Chunk, field: Field) -> Pages:
        name = (self._name, position, field.id)
        found: Pages | None = self._kept.get(Kind.PAGES, name)
        if found is None:
            assert chunk.offset_index is not None
            locations = decode_struct(self._bytes(chunk.offset_index))[1]
            found = Pages(*(array("q", [location[number] for location in locations]) for number in (1, 2, 3)))
            self._kept.keep(Kind.PAGES, name, found, _INDEX_BYTES + _PAGE_BYTES * len(locations))
        return found

    def key_pages(self, position: int, group: RowGroup) -> KeyPages:
        """Where the keys of the row group at that position in the file lie, page by page."""
        name = (self._name, position)
        found: KeyPages | None = self._kept.get(Kind.PAGES, name)
        if found is None:
            found = self._decode_key_pages(position, group)
            bounds = (*found.fences.starts, *found.fences.ends)
            size_bytes = _INDEX_BYTES + sum(map(len, bounds)) + _BOUND_BYTES * len(bounds)
            self._kept.keep(Kind.PAGES, name, found, size_bytes)
        return found

    def _decode_key_pages(self, position: int, group: RowGroup) -> KeyPages:
        pages: Pages | None = None
        bounds: list[list[tuple[Value, Value]]] = []
        for field in self._schema.row_key:
            chunk = group.chunks[field.id]
            own = self._pages(position, chunk, field)
            if pages is not None and own.first_rows != pages.first_rows:
                # Fields of very different width; the bounds of the fields before must do.
                break
            pages = pages or own
            assert chunk.column_index is not None
            index = decode_struct(self._bytes(chunk.column_index))
            lows, highs = ([plain_value(field, value) for value in index[number]] for number in (2, 3))
            bounds.append(list(zip(lows, highs, strict=True)))
        assert pages is not None
        return KeyPages(pages, Fences.of([key_bounds(self._schema, page) for page in zip(*bounds, strict=True)]))


def _exactly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    exact = column if column.type == kind else column.cast(kind)
    return exact.chunk(0) if exact.num_chunks == 1 else exact.combine_chunks()


def _little_file(parts: Sequence[tuple[Chunk, bytes, Sequence[bytes]]], rows: int) -> bytes:
    """A Parquet file of one row group, made of whole pages (and the dictionary before them) as they are."""
    body = [_MAGIC]
    columns = []
    offset = len(_MAGIC)
    for chunk, dictionary, pages in parts:
        size_bytes = len(dictionary) + sum(map(len, pages))
        # Written twice, as the uncompressed and as the compressed size: the former is for information only.
        size = integer(1, size_bytes)
        begins = integer(2, offset + len(dictionary)) + (integer(2, offset) if dictionary else b"")
        columns.append(integer(2, 0) + struct(1, chunk.head + integer(1, rows) + size + size + begins + STOP) + STOP)
        body += (dictionary, *pages)
        offset += size_bytes
    group = structs(1, *columns) + integer(1, offset) + integer(1, rows) + STOP
    root = text(4, b"schema") + integer(1, len(parts), bits=32) + STOP
    elements = structs(1, root, *(chunk.element for chunk, _, _ in parts))
    metadata = integer(1, 2, bits=32) + elements + integer(1, rows) + structs(1, group) + STOP
    return b"".join((*body, metadata, len(metadata).to_bytes(4, "little"), _MAGIC))
