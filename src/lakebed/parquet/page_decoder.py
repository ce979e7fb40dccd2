"""Decodes pages into record batches, for every read that does not go through the engine.

A reader chooses :class:`Cut` values: row ranges of row groups. :func:`read_rows` decodes their key columns, applies the
reader's search to them, and returns the rows that it finds. Point lookups, multi-gets, page reads and sequential scans
differ only in the cuts and in the search.

*Decoding.* The needed pages, and no others, are copied unchanged into a temporary Parquet file in memory, with the
metadata of their columns, and Arrow decodes that file. All cuts share one file, because opening one takes as long as
decoding a page, and for the same reason one row group of it, unless they have dictionaries. The blocks that hold the
pages are verified before, and page CRCs are checked while decoding. Nested columns, and columns without a page index,
are read for the whole row group.

Errors: OSError or ArrowException if a page is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed import telemetry
from lakebed.model.arrays import Integers, of_integers
from lakebed.model.schema import Field, Schema
from lakebed.parquet.footer import Chunk, RowGroup
from lakebed.parquet.open_files import OPENED_AT_ONCE, ByteRange
from lakebed.parquet.pages import PagedFile, Pages, PageSelection, Spans, concatenated_positions, take_rows
from lakebed.parquet.thrift import STOP, integer, struct, structs_head, text

THREADS_BYTES = 256 * 1024
"""From this size on columns are decoded concurrently: decoding takes 1 ms or more, a thread switch 0.05 ms."""

APART_CUTS = 8
"""From this number of cuts on, columns with a dictionary get a temporary file of their own, which costs 0.1 ms. The
pages of the other columns then form one row group, which takes a quarter less time to decode."""

_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Cut:
    """Some rows of one row group of a file."""

    file: PagedFile
    position: int
    group: RowGroup
    rows: range | Spans

    def part(self, start: int, positions: range | Integers) -> Cut:
        """The rows at these positions among the rows of all cuts, where the rows of this cut begin at ``start``."""
        if isinstance(positions, range) and isinstance(self.rows, range):
            begin = self.rows.start + positions.start - start
            return replace(self, rows=range(begin, begin + len(positions)))
        rows = np.asarray(self.rows) if isinstance(self.rows, range) else self.rows.every()
        inside = rows[np.asarray(positions) - start]
        return replace(self, rows=Spans(inside, inside + 1))


Columns = Mapping[str, pa.Array]
"""Columns of the rows of some cuts, one cut after another, by field name."""

Search = Callable[[Columns, Sequence[int]], Sequence[range | Integers]]
"""Finds the wanted rows among decoded key columns. The second argument has the position at which the rows of each cut
begin, and the end of the last. The result has the ascending positions of each cut's wanted rows among all rows."""


def read_rows(  # noqa: PLR0913 - where the rows are, how they are found, which columns are returned
    cuts: Sequence[Cut],
    keys: Sequence[Field],
    fields: Sequence[Field],
    search: Search,
    *,
    along: bool,
    arrow: pa.Schema,
) -> pa.RecordBatch | None:
    """The rows of some cuts that a search over their key columns finds, in their order; None if it finds none.

    ``keys`` are decoded first, the other ``fields`` only for the rows found. With ``along`` they are decoded together,
    which is faster if nearly every page has a row to return. ``arrow`` is the schema of ``fields``.
    """
    starts = [0]
    for cut in cuts:
        starts.append(starts[-1] + len(cut.rows))
    held = read_columns(cuts, keys, fields if along else ())
    found = search(held, starts)
    some = [index for index, positions in enumerate(found) if len(positions)]
    if not some:
        return None
    positions = found[some[0]] if len(some) == 1 else concatenated_positions([found[index] for index in some])
    rest = [field for field in fields if field.name not in held]
    more: Columns = {}
    if rest:
        more = read_columns([cuts[index].part(starts[index], found[index]) for index in some], rest)
    columns = []
    for wanted in fields:
        column = more.get(wanted.name)
        if column is None:
            column = held[wanted.name]
            # As take_rows(), but one call less for each column of a lookup.
            if isinstance(positions, range):
                column = column.slice(positions.start, len(positions))
            else:
                column = column.take(of_integers(positions))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def read_columns(cuts: Sequence[Cut], fields: Sequence[Field], along: Sequence[Field] = ()) -> dict[str, pa.Array]:
    """All rows of some cuts, one cut after another, by field name; null if the file has no such column.

    The result includes those of the fields ``along`` that cost little besides the others; see :func:`decoded`.
    """
    unpaged: set[int] = set()
    for cut in cuts:
        footer = cut.file.footer
        if len(footer.paged) < len(footer.names):
            unpaged.update(footer.names.keys() - footer.paged)
    if not unpaged:
        return decoded(cuts, fields, along)
    paged = [field for field in fields if field.id not in unpaged]
    found = decoded(cuts, paged, [field for field in along if field.id not in unpaged]) if paged else {}
    whole = [field for field in fields if field.id in unpaged]
    if whole:
        parts = [_from_row_group(cut, whole) for cut in cuts]
        found |= {field.name: _concatenated([part[field.name] for part in parts]) for field in whole}
    return found


def _concatenated(columns: Sequence[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _from_row_group(cut: Cut, fields: Sequence[Field]) -> dict[str, pa.Array]:
    """The rows of a cut, from whole columns of its row group; null if the file has no such column."""
    footer = cut.file.footer
    stored = {field.name: footer.names[field.id] for field in fields if field.id in footer.names}
    found = {field.name: pa.nulls(len(cut.rows), field.type) for field in fields if field.name not in stored}
    if stored:
        opened = cut.file.opened
        opened.verify(footer.byte_ranges_of([field.id for field in fields], [cut.group]))
        source: Any = cut.file.stored() if opened.path is None else opened.path
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            rows = file.read_row_group(cut.position, columns=list(stored.values()), use_threads=False)
        inside = cut.rows.every() if isinstance(cut.rows, Spans) else np.arange(cut.rows.start, cut.rows.stop)
        for field in fields:
            if field.name in stored:
                column = rows.column(stored[field.name]).combine_chunks()
                # Copied: a slice would hold the whole row group.
                column = column if len(inside) == len(column) else column.take(of_integers(inside))
                found[field.name] = column if column.type == field.type else column.cast(field.type)
    return found


def row_keys(held: Columns, schema: Schema) -> pa.RecordBatch:
    """The row key columns of decoded columns."""
    return pa.RecordBatch.from_arrays([held[name] for name in schema.row_key_names], schema.row_key_names)


def decoded(cuts: Sequence[Cut], fields: Sequence[Field], along: Sequence[Field] = ()) -> dict[str, pa.Array]:
    """The rows of some cuts, one after another, by field name; null if the file has no such column.

    Each page that has any of them is read once. The result includes those of the fields ``along`` whose pages end at
    the same rows as those of ``fields``: one more column costs less than another call. Raises OSError or ArrowException
    if a page is damaged.
    """
    wanted = {one.id: one for one in (*fields, *along)}
    numbers = tuple(wanted)
    needed = {one.id for one in fields}
    pieces: dict[int, list[_Piece]] = {number: [] for number in wanted}
    files: dict[tuple[tuple[int, bytes], ...], _MemoryFile] = {}
    apart = len(cuts) >= APART_CUTS
    shapes = [_by_shape(cut, numbers, needed, apart=apart) for cut in cuts]
    _fetch_ahead(cuts, shapes)
    for cut, shaped in zip(cuts, shapes, strict=True):
        for number in numbers:
            if number not in cut.group.chunks:
                pieces[number].append(_Piece(None, range(len(cut.rows))))
        for columns in shaped:
            elements = tuple([(pages.number, pages.chunk.element) for pages, _ in columns])
            file = files.get(elements)
            if file is None:
                file = files[elements] = _MemoryFile(dict(elements))
            piece = _Piece(file, columns[0][1].positions_from(file.rows))
            for pages, _ in columns:
                pieces[pages.number].append(piece)
            file.add(cut, columns)
    for file in files.values():
        file.decode()
    whole = [one for number, one in wanted.items() if len(pieces[number]) == len(cuts)]
    return {one.name: _joined(pieces[one.id], one) for one in whole}


def _by_shape(
    cut: Cut, numbers: tuple[int, ...], needed: Collection[int], *, apart: bool
) -> Collection[list[tuple[Pages, PageSelection]]]:
    """The pages of a cut, in groups of columns whose pages end at the same rows.

    If ``apart``, columns with a dictionary form groups of their own. Columns that are not ``needed`` are included only
    if their pages end as those of a needed one.
    """
    shared: dict[tuple[object, bool], list[tuple[Pages, PageSelection]]] = {}
    shapes: set[object] = set()
    picked: PageSelection | None = None
    first_rows = None
    for pages in cut.file.pages(cut.position, cut.group, numbers):
        if picked is None or pages.first_rows is not first_rows:
            first_rows = pages.first_rows
            picked = PageSelection.of(first_rows, cut.group.rows, cut.rows)
        if pages.number in needed:
            shapes.add(picked.shape)
        if picked.shape in shapes:
            shared.setdefault((picked.shape, apart and pages.chunk.dictionary is not None), []).append((pages, picked))
    return shared.values()


def _fetch_ahead(cuts: Sequence[Cut], shapes: Sequence[Iterable[list[tuple[Pages, PageSelection]]]]) -> None:
    """Fetch all pages of files on a store at once, and of several files concurrently."""
    byte_ranges: dict[PagedFile, list[ByteRange]] = {}
    for cut, shaped in zip(cuts, shapes, strict=True):
        if cut.file.is_remote:
            read = [
                byte_range
                for columns in shaped
                for pages, picked in columns
                for byte_range in _byte_ranges(pages, picked.runs)
            ]
            byte_ranges.setdefault(cut.file, []).extend(read)
    if len(byte_ranges) > 1:
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(byte_ranges)), "lakebed-fetch") as threads:
            list(threads.map(telemetry.carried(PagedFile.fetch_ahead), byte_ranges, byte_ranges.values()))
    else:
        for file, read in byte_ranges.items():
            file.fetch_ahead(read)


def _byte_ranges(pages: Pages, runs: Sequence[tuple[int, int]]) -> list[ByteRange]:
    """The bytes of a column's dictionary, if it has one, and of its runs of pages."""
    byte_ranges = [] if pages.chunk.dictionary is None else [pages.chunk.dictionary]
    for first, last in runs:
        begin, end = pages.offsets[first], pages.offsets[last - 1] + pages.lengths[last - 1]
        byte_ranges.append((begin, end - begin))
    return byte_ranges


@dataclass(slots=True, eq=False)
class _FileGroup:
    """A row group of a temporary file: for each column the pages of one or more cuts, one after another.

    ``chunks`` has the columns of the first cut; ``sizes`` and ``begins`` are in bytes, one for each column.
    """

    chunks: Sequence[Chunk]
    sizes: list[int]
    rows: int = 0
    begins: Sequence[int] = ()

    def accepts(self, chunks: Sequence[Chunk]) -> bool:
        """Whether pages of these columns can be appended: not if they refer to dictionaries."""
        return all(
            before.dictionary is None and chunk.dictionary is None and before.head == chunk.head
            for before, chunk in zip(self.chunks, chunks, strict=True)
        )

    def metadata(self) -> bytes:
        """The metadata of the row group in the footer; requires ``begins``."""
        heads = []
        count = integer(1, self.rows)
        for chunk, begin, size_bytes in zip(self.chunks, self.begins, self.sizes, strict=True):
            dictionary = chunk.dictionary
            # Both as uncompressed and as compressed size: readers do not use the former.
            size = integer(1, size_bytes)
            begins = integer(2, begin + (dictionary[1] if dictionary else 0))
            if dictionary:
                begins += integer(2, begin)
            heads.append(b"".join((_COLUMN, chunk.head, count, size, size, begins, STOP, STOP)))
        return b"".join((structs_head(1, len(heads)), *heads, integer(1, sum(self.sizes)), count, STOP))


@dataclass(slots=True, eq=False)
class _MemoryFile:
    """A Parquet file in memory of some flat columns: whole pages of row groups, after their dictionaries.

    ``elements`` has the schema elements of the columns by field id, ``columns`` their rows after :meth:`decode`.
    ``reads`` has the parts: a file and its byte ranges, and their row group, column and offset in that column.
    """

    elements: Mapping[int, bytes]
    reads: list[tuple[PagedFile, Sequence[ByteRange], _FileGroup, int, int]] = field(default_factory=list)
    groups: list[_FileGroup] = field(default_factory=list)
    rows: int = 0
    columns: Mapping[int, pa.ChunkedArray] = field(default_factory=dict)

    def add(self, cut: Cut, columns: Sequence[tuple[Pages, PageSelection]]) -> None:
        """Append these pages of a cut. Raises OSError if they are larger than their row group."""
        chunks = [pages.chunk for pages, _ in columns]
        if not self.groups or not self.groups[-1].accepts(chunks):
            self.groups.append(_FileGroup(chunks, [0] * len(chunks)))
        group = self.groups[-1]
        for column, (pages, picked) in enumerate(columns):
            for first, last in picked.runs:
                cut.file.statistics.pages += last - first
            positions = _byte_ranges(pages, picked.runs)
            size_bytes = 0
            for _, length in positions:
                size_bytes += length
            if size_bytes > cut.group.size_bytes:
                raise OSError(f"a page index has {size_bytes} bytes of pages in a row group of {cut.group.size_bytes}")
            self.reads.append((cut.file, positions, group, column, group.sizes[column]))
            group.sizes[column] += size_bytes
        rows = columns[0][1].rows
        group.rows += rows
        self.rows += rows

    def decode(self) -> None:
        """Read the pages and decode the columns. Raises ArrowException or OSError if a page is damaged."""
        end = len(_MAGIC)
        for group in self.groups:
            *group.begins, end = accumulate(group.sizes, initial=end)
        count = len(self.elements)
        metadata = b"".join(
            (
                _VERSION,
                structs_head(1, 1 + count),
                *(_ROOT, integer(1, count, bits=32), STOP),
                *self.elements.values(),
                integer(1, self.rows),
                structs_head(1, len(self.groups)),
                *[group.metadata() for group in self.groups],
                STOP,
            )
        )
        tail = metadata + len(metadata).to_bytes(4, "little") + _MAGIC
        # Pages are read into the buffer that Arrow decodes, so that nothing is copied.
        content = np.empty(end + len(tail), np.uint8).data
        content[: len(_MAGIC)] = _MAGIC
        for file, run in groupby(self.reads, itemgetter(0)):
            with file:
                for _, positions, group, column, passed in run:
                    file.read_into(content[group.begins[column] + passed :], positions)
        content[end:] = tail
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as decoder:
            columns = decoder.read(use_threads=end >= THREADS_BYTES).columns
        self.columns = dict(zip(self.elements, columns, strict=True))


_VERSION = integer(1, 2, bits=32)
_ROOT = text(4, b"schema")
_COLUMN = integer(2, 0) + struct(1, b"")  # a chunk at offset 0 of this file, and its metadata follows


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one cut: positions in the columns of a temporary file. Without a file, that many nulls."""

    file: _MemoryFile | None
    positions: range | Integers


def _joined(pieces: Sequence[_Piece], field: Field) -> pa.Array:
    if len(pieces) == 1 and pieces[0].file is not None:
        return take_rows(_exactly(pieces[0].file.columns[field.id], field.type), pieces[0].positions)
    parts = []
    exact: dict[int, pa.Array] = {}
    for file, run in groupby(pieces, attrgetter("file")):
        if file is None:
            parts.append(pa.nulls(sum(len(piece.positions) for piece in run), field.type))
            continue
        column = exact.get(id(file))
        if column is None:
            column = exact[id(file)] = _exactly(file.columns[field.id], field.type)
        parts.append(take_rows(column, concatenated_positions([piece.positions for piece in run])))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _exactly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    exact = column if column.type == kind else column.cast(kind)
    return exact.chunk(0) if exact.num_chunks == 1 else exact.combine_chunks()
