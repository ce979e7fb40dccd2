"""Rows out of pages, without the engine.

For a point read, or a scan of a few thousand rows, planning and thread hops would cost the engine more than the work.
Here the pages that are needed, and no others, are put together in memory as a little Parquet file, which Arrow decodes:
their bytes as they are, each with its column's metadata. What is read of all files is one of them, a row group for each
row group, since to open a little file costs as much as to decode a page. Page CRCs are verified on the way, so a
flipped bit in a page that is read is an error.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.arrays import Integers
from lakebed.query.footer import RowGroup
from lakebed.query.opening import OPENED_AT_ONCE, Place
from lakebed.query.pages import PagedFile, Pages, Spans, gathered, taken
from lakebed.query.thrift import STOP, integer, struct, structs, text
from lakebed.schema import Field, Schema

THREADS_BYTES = 256 * 1024
"""Of so many bytes the columns are decoded side by side: that takes a millisecond or more, a hop to a thread 0.05."""

_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Cut:
    """Some rows of one row group of a file."""

    file: PagedFile
    position: int
    group: RowGroup
    rows: range | Spans

    @property
    def first(self) -> int:
        """The first of the rows."""
        return self.rows.start if isinstance(self.rows, range) else int(self.rows.begins[0])


def decoded(cuts: Sequence[Cut], fields: Sequence[Field], along: Sequence[Field] = ()) -> dict[str, pa.Array]:
    """The rows of some cuts, one after another, by field; null where a file was written without the field.

    Each page that has any of them is read once. Of the fields ``along``, those come too whose pages end where those of
    the others do: to decode a column more costs less than to begin anew. Raises OSError or ArrowException if a page is
    not what was written.
    """
    wanted = {one.id: one for one in (*fields, *along)}
    numbers = tuple(wanted)
    needed = {one.id for one in fields}
    pieces: dict[int, list[_Piece]] = {number: [] for number in wanted}
    files: dict[tuple[tuple[int, bytes], ...], _LittleFile] = {}
    shapes = [_by_shape(cut, numbers, needed) for cut in cuts]
    _fetch_ahead(cuts, shapes)
    for cut, shaped in zip(cuts, shapes, strict=True):
        for number in numbers:
            if number not in cut.group.chunks:
                pieces[number].append(_Piece(None, 0, range(len(cut.rows))))
        for columns in shaped:
            elements = tuple((pages.number, pages.chunk.element) for pages, _ in columns)
            file = files.get(elements)
            if file is None:
                file = files[elements] = _LittleFile([element for _, element in elements])
            for index, (pages, picked) in enumerate(columns):
                pieces[pages.number].append(_Piece(file, index, picked.places_from(file.rows)))
            file.add(cut, columns)
    for file in files.values():
        file.decode()
    whole = [one for number, one in wanted.items() if len(pieces[number]) == len(cuts)]
    return {one.name: _joined(pieces[one.id], one.type) for one in whole}


def row_keys(held: Mapping[str, pa.Array], schema: Schema) -> pa.RecordBatch:
    """The row key columns of what was decoded."""
    return pa.RecordBatch.from_arrays([held[name] for name in schema.row_key_names], schema.row_key_names)


@dataclass(frozen=True, slots=True)
class _Picked:
    """The pages of a column that have some rows: runs of such as follow one another, and how many rows they have.

    ``places`` are those rows among all of the pages. Columns of one ``shape`` have pages that end at the same rows.
    """

    runs: Sequence[tuple[int, int]]
    shape: object
    rows: int
    places: range | Integers

    def places_from(self, begin: int) -> range | Integers:
        """The places, where that of the first row of all the pages is ``begin``."""
        places = self.places
        return range(begin + places.start, begin + places.stop) if isinstance(places, range) else begin + places

    @classmethod
    def of(cls, first_rows: array[int], group_rows: int, rows: range | Spans) -> _Picked:
        """The pages of some rows of a row group."""
        if isinstance(rows, Spans):
            return cls._scattered(first_rows, group_rows, rows)
        first, last = bisect_right(first_rows, rows.start) - 1, bisect_left(first_rows, rows.stop)
        begin = first_rows[first]
        end = first_rows[last] if last < len(first_rows) else group_rows
        return cls([(first, last)], (begin, end), end - begin, range(rows.start - begin, rows.stop - begin))

    @classmethod
    def _scattered(cls, first_rows: array[int], group_rows: int, spans: Spans) -> _Picked:
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
        places = range(rows) if everywhere else Spans(spans.begins + moved, spans.ends + moved).every()
        return cls(runs, ends.tobytes(), rows, places)


def _by_shape(cut: Cut, numbers: tuple[int, ...], needed: Collection[int]) -> Collection[list[tuple[Pages, _Picked]]]:
    """What is read of a cut, columns whose pages end at the same rows together; those not needed only beside others."""
    shared: dict[object, list[tuple[Pages, _Picked]]] = {}
    picked: _Picked | None = None
    first_rows = None
    for pages in cut.file.pages(cut.position, cut.group, numbers):
        if picked is None or pages.first_rows is not first_rows:
            first_rows = pages.first_rows
            picked = _Picked.of(first_rows, cut.group.rows, cut.rows)
        if pages.number in needed or picked.shape in shared:
            shared.setdefault(picked.shape, []).append((pages, picked))
    return shared.values()


def _fetch_ahead(cuts: Sequence[Cut], shapes: Sequence[Iterable[list[tuple[Pages, _Picked]]]]) -> None:
    """Of files on a store fetch all that will be read, at once, and of several files side by side."""
    places: dict[PagedFile, list[Place]] = {}
    for cut, shaped in zip(cuts, shapes, strict=True):
        if cut.file.is_afar:
            read = [place for columns in shaped for pages, picked in columns for place in _places(pages, picked.runs)]
            places.setdefault(cut.file, []).extend(read)
    if len(places) > 1:
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(places)), "lakebed-fetch") as threads:
            list(threads.map(PagedFile.fetch_ahead, places, places.values()))
    else:
        for file, read in places.items():
            file.fetch_ahead(read)


def _places(pages: Pages, runs: Sequence[tuple[int, int]]) -> list[Place]:
    """Where a column's dictionary is, if it has one, and its runs of pages."""
    places = [] if pages.chunk.dictionary is None else [pages.chunk.dictionary]
    for first, last in runs:
        begin, end = pages.offsets[first], pages.offsets[last - 1] + pages.lengths[last - 1]
        places.append((begin, end - begin))
    return places


@dataclass(slots=True, eq=False)
class _LittleFile:
    """A Parquet file of some flat columns: whole pages of row groups, and the dictionaries before them.

    ``reads`` has what lies in it one after another.
    """

    elements: Sequence[bytes]
    reads: list[tuple[PagedFile, Sequence[Place]]] = field(default_factory=list)
    groups: list[bytes] = field(default_factory=list)
    size_bytes: int = len(_MAGIC)
    rows: int = 0
    columns: Sequence[pa.ChunkedArray] = ()

    def add(self, cut: Cut, columns: Sequence[tuple[Pages, _Picked]]) -> None:
        """Append a row group of these pages of a cut. Raises OSError if they cannot be what the file has."""
        heads = []
        begin, rows = self.size_bytes, columns[0][1].rows
        count = integer(1, rows)
        for pages, picked in columns:
            cut.file.tally.pages += sum(last - first for first, last in picked.runs)
            places = _places(pages, picked.runs)
            dictionary = pages.chunk.dictionary
            size_bytes = sum([length for _, length in places])
            if size_bytes > cut.group.size_bytes:
                raise OSError(f"a page index tells of {size_bytes} bytes in a row group of {cut.group.size_bytes}")
            # Written twice, as the uncompressed and as the compressed size: the former is for information only.
            size = integer(1, size_bytes)
            begins = integer(2, self.size_bytes + (dictionary[1] if dictionary else 0))
            if dictionary:
                begins += integer(2, self.size_bytes)
            heads.append(b"".join((_COLUMN, pages.chunk.head, count, size, size, begins, STOP, STOP)))
            self.reads.append((cut.file, places))
            self.size_bytes += size_bytes
        self.groups.append(structs(1, *heads) + integer(1, self.size_bytes - begin) + count + STOP)
        self.rows += rows

    def decode(self) -> None:
        """Make columns of it. Raises ArrowException or OSError if a page is not what was written."""
        root = text(4, b"schema") + integer(1, len(self.elements), bits=32) + STOP
        elements = structs(1, root, *self.elements)
        metadata = integer(1, 2, bits=32) + elements + integer(1, self.rows) + structs(1, *self.groups) + STOP
        tail = metadata + len(metadata).to_bytes(4, "little") + _MAGIC
        # Read where Arrow will look at it: to put parts together would be to copy them.
        buffer = pa.allocate_buffer(self.size_bytes + len(tail))
        content = memoryview(buffer).cast("B")
        at = len(_MAGIC)
        content[:at] = _MAGIC
        for file, run in groupby(self.reads, itemgetter(0)):
            with file:
                for _, places in run:
                    at += file.read_into(content[at:], places)
        content[at:] = tail
        with pq.ParquetFile(pa.BufferReader(buffer), page_checksum_verification=True) as decoder:
            self.columns = decoder.read(use_threads=self.size_bytes >= THREADS_BYTES).columns


_COLUMN = integer(2, 0) + struct(1, b"")  # a chunk at offset 0 of this file, and its metadata follows


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one cut in a column: places in that column of a little file. Without a file, so many nulls."""

    file: _LittleFile | None
    column: int
    places: range | Integers


def _joined(pieces: Sequence[_Piece], kind: pa.DataType) -> pa.Array:
    parts = []
    exact: dict[tuple[int, int], pa.Array] = {}
    for (file, index), run in groupby(pieces, lambda piece: (piece.file, piece.column)):
        if file is None:
            parts.append(pa.nulls(sum(len(piece.places) for piece in run), kind))
            continue
        column = exact.get((id(file), index))
        if column is None:
            column = exact[id(file), index] = _exactly(file.columns[index], kind)
        parts.append(taken(column, gathered([piece.places for piece in run])))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _exactly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    exact = column if column.type == kind else column.cast(kind)
    return exact.chunk(0) if exact.num_chunks == 1 else exact.combine_chunks()
