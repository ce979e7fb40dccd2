"""Decodes pages into record batches, for every read that does not go through the engine.

A reader chooses :class:`RowSlice` values: rows of row groups. :func:`read_rows` decodes their key columns, applies
the reader's search to them, and returns the rows that it finds. Point lookups, multi-gets, page reads and sequential
scans differ only in the slices and in the search.

*Decoding.* The needed pages of all slices are copied into a temporary Parquet file in memory, which Arrow decodes. The
blocks that hold the pages are verified before, and page CRCs are checked while decoding. Nested columns, and columns
without a page index, are read for the whole row group.

*Caching.* Decoded pages are kept in the read cache, one entry for each page of a column, if a read takes few pages of a
row group; see :data:`CACHED_PAGES` and decision 0057.

Errors: OSError or ArrowException if a page is damaged.

*A Parquet file in memory, made of some pages of stored files, which Arrow decodes.*

The pages, and no others, are copied unchanged behind the dictionaries that they need, with the metadata of their
columns. All parts share one file, because opening one takes as long as decoding a page, and for the same reason one row
group of it, unless they have dictionaries. Core type: :class:`MemoryFile`.

Errors: OSError or ArrowException if a page is damaged; page CRCs are checked while decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace
from pyarrow._parquet import ParquetReader

from lakebed.files.parquet.footer import RowGroup
from lakebed.files.parquet.open_files import OPENED_AT_ONCE, ByteRange
from lakebed.files.parquet.pages import PagedFile, Pages, PageSelection, Spans, concatenated_positions, take_rows
from lakebed.files.parquet.read_cache import CacheKind, ReadCache
from lakebed.files.parquet.thrift import STOP, integer, struct, structs_head, text
from lakebed.model.arrays import Integers, of_integers
from lakebed.model.schema import Field, Schema
from lakebed.model.validity import as_stored
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from lakebed.files.parquet.footer import Chunk

THREADS_BYTES = 256 * 1024
"""From this size on columns are decoded concurrently: decoding takes 1 ms or more, a thread switch 0.05 ms."""

_MAGIC = b"PAR1"
_VERSION = integer(1, 2, bits=32)
_ROOT = text(4, b"schema")
_COLUMN = integer(2, 0) + struct(1, b"")  # a chunk at offset 0 of this file, and its metadata follows


def page_ranges(pages: Pages, runs: Sequence[tuple[int, int]]) -> list[ByteRange]:
    """Return the bytes of a column's dictionary, if it has one, and of its runs of pages."""
    byte_ranges = [] if pages.chunk.dictionary is None else [pages.chunk.dictionary]
    for first, last in runs:
        begin, end = pages.offsets[first], pages.offsets[last - 1] + pages.lengths[last - 1]
        byte_ranges.append((begin, end - begin))
    return byte_ranges


class _FileGroup(Struct, eq=False):
    """A row group of a temporary file: for each column the pages of one or more slices, one after another.

    ``chunks`` has the columns of the first slice; ``sizes`` and ``begins`` are in bytes, one for each column.
    """

    chunks: Sequence[Chunk]
    sizes: list[int]
    rows: int = 0
    begins: Sequence[int] = ()

    def accepts(self, chunks: Sequence[Chunk]) -> bool:
        """Return whether pages of these columns can be appended: not if they refer to dictionaries."""
        return all(
            before.dictionary is None and chunk.dictionary is None and before.head == chunk.head
            for before, chunk in zip(self.chunks, chunks, strict=True)
        )

    def metadata(self) -> bytes:
        """Return the metadata of the row group in the footer; requires ``begins``."""
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


class MemoryFile(Struct, eq=False):
    """A Parquet file in memory of some flat columns: whole pages of row groups, after their dictionaries.

    ``elements`` has the schema elements of the columns by field id, ``columns`` their rows after :meth:`decode`, of
    the types in the stored file. ``reads`` has the parts: a file and its byte ranges, and their row group, column and
    offset in that column.
    """

    elements: Mapping[int, bytes]
    reads: list[tuple[PagedFile, Sequence[ByteRange], _FileGroup, int, int]] = field(default_factory=list)
    groups: list[_FileGroup] = field(default_factory=list)
    rows: int = 0
    columns: Mapping[int, pa.Array] = field(default_factory=dict)

    def add(self, source: PagedFile, stored: RowGroup, columns: Sequence[tuple[Pages, PageSelection]]) -> None:
        """Append these pages of a row group of a file. Raises OSError if they are larger than the row group."""
        chunks = [pages.chunk for pages, _ in columns]
        if not self.groups or not self.groups[-1].accepts(chunks):
            self.groups.append(_FileGroup(chunks, [0] * len(chunks)))
        group = self.groups[-1]
        for column, (pages, picked) in enumerate(columns):
            for first, last in picked.runs:
                source.statistics.pages += last - first
            positions = page_ranges(pages, picked.runs)
            size_bytes = 0
            for _, length in positions:
                size_bytes += length
            if size_bytes > stored.size_bytes:
                raise OSError(f"a page index has {size_bytes} bytes of pages in a row group of {stored.size_bytes}")
            self.reads.append((source, positions, group, column, group.sizes[column]))
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
        # Not through pyarrow.parquet, which imports the file systems of all clouds: 20 ms of a lookup by a new process.
        decoder = ParquetReader()
        decoder.open(
            pa.BufferReader(content),
            pre_buffer=True,
            page_checksum_verification=True,
            arrow_extensions_enabled=True,
        )
        columns = decoder.read_all(use_threads=end >= THREADS_BYTES).columns
        self.columns = {
            number: column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            for number, column in zip(self.elements, columns, strict=True)
        }


CACHED_PAGES = 4
"""Pages are cached if a read takes at most this many of a column in a row group. Reads of more are scans, which would
evict the pages that lookups need."""

_ENTRY_BYTES = 500
"""The bytes of a cached page besides its buffers: its name, and the Python and Arrow objects around the buffers."""

DICTIONARY_SLICES = 8
"""From this number of slices on, columns with a dictionary get a temporary file of their own, which costs 0.1 ms. The
pages of the other columns then form one row group, which takes a quarter less time to decode."""


class RowSlice(Struct, frozen=True):
    """Some rows of one row group of a file."""

    file: PagedFile
    position: int
    group: RowGroup
    rows: range | Spans

    def select(self, start: int, positions: range | Integers) -> RowSlice:
        """Return the rows at these positions among the rows of all slices; those of this slice begin at ``start``."""
        if isinstance(positions, range) and isinstance(self.rows, range):
            begin = self.rows.start + positions.start - start
            return replace(self, rows=range(begin, begin + len(positions)))
        rows = np.asarray(self.rows) if isinstance(self.rows, range) else self.rows.every()
        inside = rows[np.asarray(positions) - start]
        return replace(self, rows=Spans(inside, inside + 1))


Columns = Mapping[str, pa.Array]
"""Columns of the rows of some slices, one slice after another, by field name."""

Search = Callable[[Columns, Sequence[int]], Sequence[range | Integers]]
"""Finds the wanted rows among decoded key columns. The second argument has the position at which the rows of each slice
begin, and the end of the last. The result has the ascending positions of each slice's wanted rows among all rows."""


def read_rows(  # noqa: PLR0913 - where the rows are, how they are found, which columns are returned
    slices: Sequence[RowSlice],
    keys: Sequence[Field],
    fields: Sequence[Field],
    search: Search,
    *,
    single_pass: bool,
    arrow: pa.Schema,
) -> pa.RecordBatch | None:
    """Return the rows of some slices that a search over their key columns finds, in their order; None if it finds none.

    ``keys`` are decoded first, the other ``fields`` only for the rows found. In a ``single_pass`` all are decoded at
    once, which is faster if nearly every page has a row to return. ``arrow`` is the schema of ``fields``.
    """
    starts = [0]
    for row_slice in slices:
        starts.append(starts[-1] + len(row_slice.rows))
    key_columns = read_columns(slices, keys, fields if single_pass else ())
    hits = search(key_columns, starts)
    indices = [index for index, positions in enumerate(hits) if len(positions)]
    if not indices:
        return None
    positions = hits[indices[0]] if len(indices) == 1 else concatenated_positions([hits[index] for index in indices])
    rest = [field for field in fields if field.name not in key_columns]
    more: Columns = {}
    if rest:
        more = read_columns([slices[index].select(starts[index], hits[index]) for index in indices], rest)
    columns = []
    for wanted in fields:
        column = more.get(wanted.name)
        if column is None:
            column = key_columns[wanted.name]
            # As take_rows(), but one call less for each column of a lookup.
            if isinstance(positions, range):
                column = column.slice(positions.start, len(positions))
            else:
                column = column.take(of_integers(positions))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def read_columns(
    slices: Sequence[RowSlice], fields: Sequence[Field], extras: Sequence[Field] = ()
) -> dict[str, pa.Array]:
    """Return all rows of some slices, one slice after another, by field name; null if the file has no such column.

    The result includes those of the fields ``extras`` that cost little besides the others; see :func:`decoded`.
    """
    unpaged: set[int] = set()
    for row_slice in slices:
        footer = row_slice.file.footer
        if len(footer.paged) < len(footer.names):
            unpaged.update(footer.names.keys() - footer.paged)
    if not unpaged:
        return decoded(slices, fields, extras)
    paged = [field for field in fields if field.id not in unpaged]
    columns = decoded(slices, paged, [field for field in extras if field.id not in unpaged]) if paged else {}
    whole = [field for field in fields if field.id in unpaged]
    if whole:
        parts = [_from_row_group(row_slice, whole) for row_slice in slices]
        columns |= {field.name: _concatenated([part[field.name] for part in parts]) for field in whole}
    return columns


def _concatenated(columns: Sequence[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _from_row_group(row_slice: RowSlice, fields: Sequence[Field]) -> dict[str, pa.Array]:
    """Return the rows of a slice, from whole columns of its row group; null if the file has no such column."""
    footer = row_slice.file.footer
    stored = {field.name: footer.names[field.id] for field in fields if field.id in footer.names}
    columns = {
        field.name: pa.nulls(len(row_slice.rows), field.stored_type) for field in fields if field.name not in stored
    }
    if stored:
        import pyarrow.parquet as pq

        opened = row_slice.file.opened
        opened.verify(footer.byte_ranges_of([field.id for field in fields], [row_slice.group]))
        source: Any = row_slice.file.stored() if opened.path is None else opened.path
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            rows = file.read_row_group(row_slice.position, columns=list(stored.values()), use_threads=False)
        inside = (
            row_slice.rows.every()
            if isinstance(row_slice.rows, Spans)
            else np.arange(row_slice.rows.start, row_slice.rows.stop)
        )
        for field in fields:
            if field.name in stored:
                column = rows.column(stored[field.name]).combine_chunks()
                # Copied: a slice would hold the whole row group.
                column = column if len(inside) == len(column) else column.take(of_integers(inside))
                columns[field.name] = _as_type(column, field.stored_type)
    return columns


def row_keys(held: Columns, schema: Schema) -> pa.RecordBatch:
    """Return the row key columns of decoded columns."""
    return pa.RecordBatch.from_arrays([held[name] for name in schema.row_key_names], schema.row_key_names)


def decoded(slices: Sequence[RowSlice], fields: Sequence[Field], extras: Sequence[Field] = ()) -> dict[str, pa.Array]:
    """Return the rows of some slices, one after another, by field name; null if the file has no such column.

    Each page that has any of them is read once. The result includes those of the fields ``extras`` whose pages end at
    the same rows as those of ``fields``: one more column costs less than another call. Raises OSError or ArrowException
    if a page is damaged.
    """
    wanted = {one.id: one for one in (*fields, *extras)}
    numbers = tuple(wanted)
    needed = {one.id for one in fields}
    pieces: dict[int, list[_Piece]] = {number: [] for number in wanted}
    by_dictionary = len(slices) >= DICTIONARY_SLICES
    shapes = [_by_shape(row_slice, numbers, needed, by_dictionary=by_dictionary) for row_slice in slices]
    parts = [
        [_Part(row_slice, columns) for columns in shaped] for row_slice, shaped in zip(slices, shapes, strict=True)
    ]
    missing = _without_cached([part for shaped in parts for part in shaped])
    if missing:
        _decode_parts(missing)
    for row_slice, shaped in zip(slices, parts, strict=True):
        for number in numbers:
            if number not in row_slice.group.chunks:
                pieces[number].append(_Piece(None, range(len(row_slice.rows))))
        for part in shaped:
            piece = _Piece(part.source, part.columns[0][1].positions_from(part.begin))
            for pages, _ in part.columns:
                pieces[pages.number].append(piece)
    whole = [one for number, one in wanted.items() if len(pieces[number]) == len(slices)]
    return {one.name: _join_pieces(pieces[one.id], one) for one in whole}


def _by_shape(
    row_slice: RowSlice, numbers: tuple[int, ...], needed: Collection[int], *, by_dictionary: bool
) -> Collection[list[tuple[Pages, PageSelection]]]:
    """Return the pages of a slice, in groups of columns whose pages end at the same rows.

    If ``by_dictionary``, columns with a dictionary form groups of their own. Other columns than the ``needed`` are
    included only if their pages end as those of a needed one.
    """
    shared: dict[tuple[object, bool], list[tuple[Pages, PageSelection]]] = {}
    shapes: set[object] = set()
    picked: PageSelection | None = None
    first_rows = None
    for pages in row_slice.file.pages(row_slice.position, row_slice.group, numbers):
        if picked is None or pages.first_rows is not first_rows:
            first_rows = pages.first_rows
            picked = PageSelection.of(first_rows, row_slice.group.rows, row_slice.rows)
        if pages.number in needed:
            shapes.add(picked.shape)
        if picked.shape in shapes:
            shared.setdefault((picked.shape, by_dictionary and pages.chunk.dictionary is not None), []).append(
                (pages, picked)
            )
    return shared.values()


class _Cached(Struct, eq=False):
    """The rows of some pages that were in the read cache, by field id, as a MemoryFile has them."""

    columns: Mapping[int, pa.Array]


class _Part(Struct, eq=False):
    """Columns of a slice whose pages end at the same rows; their rows begin at ``begin`` of ``source``.

    ``entries`` are the names of their pages in the read cache, column by column; none if there are too many pages.
    """

    row_slice: RowSlice
    columns: list[tuple[Pages, PageSelection]]
    entries: Sequence[tuple[CacheKind, Hashable]] = ()
    source: _Cached | MemoryFile | None = None
    begin: int = 0

    def name(self) -> None:
        """Set the entries."""
        file, position = self.row_slice.file, self.row_slice.position
        entries: list[tuple[CacheKind, Hashable]] = []
        for pages, picked in self.columns:
            before = len(entries)
            for first, last in picked.runs:
                if last - first > CACHED_PAGES:
                    return
                entries += [(CacheKind.ROWS, (file.name, position, pages.number, page)) for page in range(first, last)]
            if len(entries) - before > CACHED_PAGES:
                return
        self.entries = entries

    def take(self, values: Sequence[pa.Array]) -> None:
        """Take the rows from these values of the entries."""
        if len(values) == len(self.columns):
            self.source = _Cached({pages.number: rows for (pages, _), rows in zip(self.columns, values, strict=True)})
        else:
            columns, index = {}, 0
            for pages, picked in self.columns:
                count = sum(last - first for first, last in picked.runs)
                columns[pages.number] = pa.concat_arrays(values[index : index + count])
                index += count
            self.source = _Cached(columns)
        self.row_slice.file.statistics.pages += len(values)

    def keep(self, cache: ReadCache) -> None:
        """Keep each page of the decoded columns in the cache."""
        assert self.source is not None
        entries = iter(self.entries)
        for pages, picked in self.columns:
            column = self.source.columns[pages.number]
            firsts, row = pages.first_rows, self.begin
            for first, last in picked.runs:
                for page in range(first, last):
                    count = (firsts[page + 1] if page + 1 < len(firsts) else self.row_slice.group.rows) - firsts[page]
                    rows = column.slice(row, count)
                    row += count
                    # Copied: a slice would hold the rows of all pages that were decoded with it.
                    rows = column if count == len(column) else pa.concat_arrays([rows])
                    kind, name = next(entries)
                    cache.keep(kind, name, rows, _ENTRY_BYTES + rows.get_total_buffer_size())


def _without_cached(parts: Sequence[_Part]) -> list[_Part]:
    """Return the parts that are not wholly in the read cache; the others take their rows from there."""
    entries: list[tuple[CacheKind, Hashable]] = []
    for part in parts:
        part.name()
        entries += part.entries
    cached = parts[0].row_slice.file.cache.get_many(CacheKind.ROWS, entries) if entries else []
    missing, index = [], 0
    for part in parts:
        count = len(part.entries)
        values = [rows for rows in cached[index : index + count] if rows is not None]
        index += count
        if count and len(values) == count:
            part.take(values)
        else:
            missing.append(part)
    return missing


def _decode_parts(parts: Sequence[_Part]) -> None:
    """Read and decode the pages of the parts, and keep them in the read cache if they are few."""
    _fetch_ahead(parts)
    files: dict[tuple[tuple[int, bytes], ...], MemoryFile] = {}
    for part in parts:
        elements = tuple([(pages.number, pages.chunk.element) for pages, _ in part.columns])
        file = files.get(elements)
        if file is None:
            file = files[elements] = MemoryFile(dict(elements))
        part.source, part.begin = file, file.rows
        file.add(part.row_slice.file, part.row_slice.group, part.columns)
    for file in files.values():
        file.decode()
    for part in parts:
        if part.entries:
            part.keep(part.row_slice.file.cache)


def _fetch_ahead(parts: Sequence[_Part]) -> None:
    """Fetch all pages of files on a store at once, and of several files concurrently."""
    byte_ranges: dict[PagedFile, list[ByteRange]] = {}
    for part in parts:
        if part.row_slice.file.is_remote:
            ahead = byte_ranges.setdefault(part.row_slice.file, [])
            for pages, picked in part.columns:
                ahead += page_ranges(pages, picked.runs)
    if len(byte_ranges) > 1:
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(byte_ranges)), "lakebed-fetch") as threads:
            list(threads.map(telemetry.carry(PagedFile.fetch_ahead), byte_ranges, byte_ranges.values()))
    else:
        for file, read in byte_ranges.items():
            file.fetch_ahead(read)


class _Piece(Struct, frozen=True):
    """The rows of one slice: positions in decoded columns. Without a source, that many nulls."""

    source: _Cached | MemoryFile | None
    positions: range | Integers


def _join_pieces(pieces: Sequence[_Piece], field: Field) -> pa.Array:
    if len(pieces) == 1 and pieces[0].source is not None:
        return take_rows(_as_type(pieces[0].source.columns[field.id], field.stored_type), pieces[0].positions)
    parts = []
    exact: dict[int, pa.Array] = {}
    for source, run in groupby(pieces, attrgetter("source")):
        if source is None:
            parts.append(pa.nulls(sum(len(piece.positions) for piece in run), field.stored_type))
            continue
        column = exact.get(id(source))
        if column is None:
            column = exact[id(source)] = _as_type(source.columns[field.id], field.stored_type)
        parts.append(take_rows(column, concatenated_positions([piece.positions for piece in run])))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else as_stored(column, kind)
