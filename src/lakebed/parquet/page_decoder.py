"""Rows of data files: the one way from pages to record batches, for every read that does not go through the engine.

A reader chooses :class:`Cut` values: rows of row groups that may be wanted. :func:`read_rows` decodes their key
columns, has the reader's search say which rows are wanted, and returns those. Point lookups, multi-gets, page reads and
sequential scans differ only in the cuts and in the search.

*Decoding.* The needed pages, and no others, are put together in memory as a little Parquet file, which Arrow decodes:
their bytes as they are, with the metadata of their columns. All cuts share one such file, because to open one takes as
long as to decode a page; and one row group of it, for the same reason, where no dictionary is between them. The blocks
that hold the pages were verified, and page CRCs are checked on the way. Nested columns, and columns without a page
index, are read for the whole row group.

Errors: OSError or ArrowException if a page is not what was written.
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

from lakebed.model.arrays import Integers, of_integers
from lakebed.model.schema import Field, Schema
from lakebed.parquet.footer import Chunk, RowGroup
from lakebed.parquet.open_files import OPENED_AT_ONCE, ByteRange
from lakebed.parquet.pages import PagedFile, Pages, PickedPages, Spans, gathered, taken
from lakebed.parquet.thrift import STOP, integer, struct, structs_head, text

THREADS_BYTES = 256 * 1024
"""Of so many bytes the columns are decoded side by side: that takes a millisecond or more, a hop to a thread 0.05."""

APART_CUTS = 8
"""In so many cuts columns with a dictionary have a little file of their own, which costs 0.1 ms: pages of the others
are then decoded as one row group, which takes a quarter less, and those with a dictionary cannot be."""

_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Cut:
    """Some rows of one row group of a file."""

    file: PagedFile
    position: int
    group: RowGroup
    rows: range | Spans

    def part(self, start: int, positions: range | Integers) -> Cut:
        """The rows at these positions among those of several cuts, where the rows of this one begin at ``start``."""
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


def read_rows(  # noqa: PLR0913 - where the rows are, how they are found, and what is returned of them
    cuts: Sequence[Cut],
    keys: Sequence[Field],
    fields: Sequence[Field],
    search: Search,
    *,
    along: bool,
    arrow: pa.Schema,
) -> pa.RecordBatch | None:
    """The rows of some cuts that a search over their key columns finds, in their order; None if there are none.

    ``keys`` are decoded first, the other ``fields`` for the rows found alone. With ``along`` they are decoded together:
    quicker if nearly every page has a row to return. ``arrow`` is the schema of ``fields``.
    """
    starts = [0]
    for cut in cuts:
        starts.append(starts[-1] + len(cut.rows))
    held = read_columns(cuts, keys, fields if along else ())
    found = search(held, starts)
    some = [index for index, positions in enumerate(found) if len(positions)]
    if not some:
        return None
    positions = found[some[0]] if len(some) == 1 else gathered([found[index] for index in some])
    rest = [field for field in fields if field.name not in held]
    more: Columns = {}
    if rest:
        more = read_columns([cuts[index].part(starts[index], found[index]) for index in some], rest)
    columns = []
    for wanted in fields:
        column = more.get(wanted.name)
        if column is None:
            column = held[wanted.name]
            # As taken() does: a call less for each column of a lookup.
            if isinstance(positions, range):
                column = column.slice(positions.start, len(positions))
            else:
                column = column.take(of_integers(positions))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def read_columns(cuts: Sequence[Cut], fields: Sequence[Field], along: Sequence[Field] = ()) -> dict[str, pa.Array]:
    """All rows of some cuts, one cut after another, by field; null where a file was written without the field.

    Of the fields ``along`` those are returned too that cost little beside the others; see
    :func:`lakebed.parquet.page_decoder.decoded`.
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
    """The rows of a cut, out of whole columns of its row group; null where the file has no such column."""
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
    """The row key columns of what was decoded."""
    return pa.RecordBatch.from_arrays([held[name] for name in schema.row_key_names], schema.row_key_names)


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
                file = files[elements] = _LittleFile(dict(elements))
            piece = _Piece(file, columns[0][1].places_from(file.rows))
            for pages, _ in columns:
                pieces[pages.number].append(piece)
            file.add(cut, columns)
    for file in files.values():
        file.decode()
    whole = [one for number, one in wanted.items() if len(pieces[number]) == len(cuts)]
    return {one.name: _joined(pieces[one.id], one) for one in whole}


def _by_shape(
    cut: Cut, numbers: tuple[int, ...], needed: Collection[int], *, apart: bool
) -> Collection[list[tuple[Pages, PickedPages]]]:
    """What is read of a cut, columns whose pages end at the same rows together; those not needed only beside others.

    Of these, if ``apart``, those with a dictionary together.
    """
    shared: dict[tuple[object, bool], list[tuple[Pages, PickedPages]]] = {}
    shapes: set[object] = set()
    picked: PickedPages | None = None
    first_rows = None
    for pages in cut.file.pages(cut.position, cut.group, numbers):
        if picked is None or pages.first_rows is not first_rows:
            first_rows = pages.first_rows
            picked = PickedPages.of(first_rows, cut.group.rows, cut.rows)
        if pages.number in needed:
            shapes.add(picked.shape)
        if picked.shape in shapes:
            shared.setdefault((picked.shape, apart and pages.chunk.dictionary is not None), []).append((pages, picked))
    return shared.values()


def _fetch_ahead(cuts: Sequence[Cut], shapes: Sequence[Iterable[list[tuple[Pages, PickedPages]]]]) -> None:
    """Of files on a store fetch all that will be read, at once, and of several files side by side."""
    byte_ranges: dict[PagedFile, list[ByteRange]] = {}
    for cut, shaped in zip(cuts, shapes, strict=True):
        if cut.file.is_remote:
            read = [place for columns in shaped for pages, picked in columns for place in _places(pages, picked.runs)]
            byte_ranges.setdefault(cut.file, []).extend(read)
    if len(byte_ranges) > 1:
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(byte_ranges)), "lakebed-fetch") as threads:
            list(threads.map(PagedFile.fetch_ahead, byte_ranges, byte_ranges.values()))
    else:
        for file, read in byte_ranges.items():
            file.fetch_ahead(read)


def _places(pages: Pages, runs: Sequence[tuple[int, int]]) -> list[ByteRange]:
    """Where a column's dictionary is, if it has one, and its runs of pages."""
    byte_ranges = [] if pages.chunk.dictionary is None else [pages.chunk.dictionary]
    for first, last in runs:
        begin, end = pages.offsets[first], pages.offsets[last - 1] + pages.lengths[last - 1]
        byte_ranges.append((begin, end - begin))
    return byte_ranges


@dataclass(slots=True, eq=False)
class _FileGroup:
    """A row group of a little file: of each column the pages of a cut, or of several, one after another.

    ``chunks`` are the columns' in the first of them; ``sizes`` and ``begins`` are in bytes, for each column.
    """

    chunks: Sequence[Chunk]
    sizes: list[int]
    rows: int = 0
    begins: Sequence[int] = ()

    def goes_on_with(self, chunks: Sequence[Chunk]) -> bool:
        """Whether pages of these columns can follow: pages of one dictionary cannot follow those of another."""
        return all(
            before.dictionary is None and chunk.dictionary is None and before.head == chunk.head
            for before, chunk in zip(self.chunks, chunks, strict=True)
        )

    def metadata(self) -> bytes:
        """What the footer says of the row group, once it is known where its columns begin."""
        heads = []
        count = integer(1, self.rows)
        for chunk, begin, size_bytes in zip(self.chunks, self.begins, self.sizes, strict=True):
            dictionary = chunk.dictionary
            # Written twice, as the uncompressed and as the compressed size: the former is for information only.
            size = integer(1, size_bytes)
            begins = integer(2, begin + (dictionary[1] if dictionary else 0))
            if dictionary:
                begins += integer(2, begin)
            heads.append(b"".join((_COLUMN, chunk.head, count, size, size, begins, STOP, STOP)))
        return b"".join((structs_head(1, len(heads)), *heads, integer(1, sum(self.sizes)), count, STOP))


@dataclass(slots=True, eq=False)
class _LittleFile:
    """A Parquet file of some flat columns: whole pages of row groups, and the dictionaries before them.

    ``elements`` are the columns' in the schema, by field id, and then ``columns`` their rows. ``reads`` has what lies
    in it: parts of a file, and in which row group, column and place of that column.
    """

    elements: Mapping[int, bytes]
    reads: list[tuple[PagedFile, Sequence[ByteRange], _FileGroup, int, int]] = field(default_factory=list)
    groups: list[_FileGroup] = field(default_factory=list)
    rows: int = 0
    columns: Mapping[int, pa.ChunkedArray] = field(default_factory=dict)

    def add(self, cut: Cut, columns: Sequence[tuple[Pages, PickedPages]]) -> None:
        """Append these pages of a cut. Raises OSError if they cannot be what the file has."""
        chunks = [pages.chunk for pages, _ in columns]
        if not self.groups or not self.groups[-1].goes_on_with(chunks):
            self.groups.append(_FileGroup(chunks, [0] * len(chunks)))
        group = self.groups[-1]
        for column, (pages, picked) in enumerate(columns):
            for first, last in picked.runs:
                cut.file.statistics.pages += last - first
            positions = _places(pages, picked.runs)
            size_bytes = 0
            for _, length in positions:
                size_bytes += length
            if size_bytes > cut.group.size_bytes:
                raise OSError(f"a page index tells of {size_bytes} bytes in a row group of {cut.group.size_bytes}")
            self.reads.append((cut.file, positions, group, column, group.sizes[column]))
            group.sizes[column] += size_bytes
        rows = columns[0][1].rows
        group.rows += rows
        self.rows += rows

    def decode(self) -> None:
        """Make columns of it. Raises ArrowException or OSError if a page is not what was written."""
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
        # Read where Arrow will look at it: to put parts together would be to copy them.
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
    """The rows of one cut: places in the columns of a little file. Without a file, so many nulls."""

    file: _LittleFile | None
    positions: range | Integers


def _joined(pieces: Sequence[_Piece], field: Field) -> pa.Array:
    if len(pieces) == 1 and pieces[0].file is not None:
        return taken(_exactly(pieces[0].file.columns[field.id], field.type), pieces[0].positions)
    parts = []
    exact: dict[int, pa.Array] = {}
    for file, run in groupby(pieces, attrgetter("file")):
        if file is None:
            parts.append(pa.nulls(sum(len(piece.positions) for piece in run), field.type))
            continue
        column = exact.get(id(file))
        if column is None:
            column = exact[id(file)] = _exactly(file.columns[field.id], field.type)
        parts.append(taken(column, gathered([piece.positions for piece in run])))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _exactly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    exact = column if column.type == kind else column.cast(kind)
    return exact.chunk(0) if exact.num_chunks == 1 else exact.combine_chunks()
