"""Reads Parquet files of any origin, in batches bounded by their decoded size.

A Parquet file of a few kilobytes may hold gigabytes: a dictionary stores a value once and refers to it a million times,
a run of equal values takes a few bytes, and zeros compress a thousandfold. So the decoded size of each row group is
determined before it is decoded:

* Text and bytes with a dictionary are read *as* dictionaries, in the memory of the distinct values. Batches are then
  cut by the size of their rows in plain layout, before anything is expanded. If a writer switched from dictionary to
  plain pages, Arrow would hash the latter in vain: the dictionary alone is read first, and if its values are short, the
  column is decoded without it.
* A batch has the rows of :data:`~lakebed.files.parquet.sizes.BATCH_BYTES`, by the average row. An average hides a run
  of wide rows, so for large row groups the headers of all pages are read: no window of a batch's rows may touch pages
  of more than ``HEAVY_BYTES``.
* Arrow holds a whole page of each column. Pages larger than the caller allows are an error with their size.

Timestamps of INT96 are exact (:mod:`lakebed.files.parquet.int96_times`), so that batches may differ in their unit.

Footers and page headers are trusted: a file with wrong ones decodes to other values, or fails.

Arrow's threads decode the columns of a batch concurrently; the memory is still that of one batch.

Core: :func:`read_row_groups`. Local or remote files. Errors: SchemaMismatchError for too large pages; OSError and
ArrowException for damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import Code
from lakebed.files.parquet.int96_times import int96_columns, with_exact_times
from lakebed.files.parquet.sizes import BATCH_BYTES, DEFAULT_PAGES_BYTES_MAX, limit_for, slice_rows
from lakebed.files.parquet.thrift import RAW, decode_struct
from lakebed.model.arrays import Integers
from lakebed.model.settings import MIB

BATCH_ROWS = 65_536

HEAVY_BYTES = 32 * MIB
"""The most that the pages of a batch's rows may decode to; page headers of smaller row groups are not read."""

_SHORT_BYTES = 128
"""Dictionary values of at most this many bytes expand a batch of BATCH_ROWS to at most BATCH_BYTES."""

_BUFFER_BYTES_MIN, _BUFFER_BYTES_MAX = 64 * 1024, 8 * MIB
_HEADER_BYTES = 512
_DICTIONARY_ENCODINGS = (2, 8)
_READERS_MAX = 4
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_DECIMAL_BYTES = 16


def read_row_groups(  # noqa: PLR0913 - which rows, and how much at once
    source: pa.NativeFile,
    name: str,
    groups: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    *,
    pages_bytes: int = DEFAULT_PAGES_BYTES_MAX,
    heavy_bytes: int = HEAVY_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of some row groups (None: all) in order, in batches of at most BATCH_BYTES unless a row is
    larger.

    Columns of text and bytes may come as dictionaries, which :func:`lakebed.files.parquet.sizes.slice_rows` measures.
    ``name`` is the file's name in errors. Raises SchemaMismatchError if pages are too large, and what Arrow raises for
    damage.
    """
    metadata = pq.read_metadata(source)
    readers = _Readers(source, metadata)
    old_times = int96_columns(metadata, columns)
    for index in range(metadata.num_row_groups) if groups is None else groups:
        if not metadata.row_group(index).num_rows:
            continue
        shape = _shape(readers, index, columns, heavy_bytes)
        rows = shape.batch_rows(source, name, pages_bytes)
        batches = readers.of(shape.dictionaries, shape.buffer_bytes).iter_batches(
            rows, row_groups=[index], columns=columns
        )
        if old_times:
            coarse = readers.of(shape.dictionaries, shape.buffer_bytes, "s")
            seconds = coarse.iter_batches(rows, row_groups=[index], columns=old_times)
            batches = with_exact_times(batches, seconds, name)
        for batch in batches:
            yield from slice_rows(batch, BATCH_BYTES)


class _Readers:
    """Arrow's readers of one file: the columns to read as dictionaries are an option of opening it."""

    def __init__(self, source: pa.NativeFile, metadata: pq.FileMetaData) -> None:
        self.metadata = metadata
        self._source = source
        self._opened: dict[tuple[tuple[str, ...], int, str], pq.ParquetFile] = {}

    def of(self, dictionaries: tuple[str, ...], buffer_bytes: int, int96_unit: str = "ns") -> pq.ParquetFile:
        """Return the reader that returns these columns as dictionaries, and INT96 in this unit."""
        key = (dictionaries, buffer_bytes, int96_unit)
        found = self._opened.get(key)
        if found is None:
            if len(self._opened) >= _READERS_MAX:
                self._opened.clear()
            found = self._opened[key] = pq.ParquetFile(
                self._source,
                metadata=self.metadata,
                read_dictionary=list(dictionaries),
                coerce_int96_timestamp_unit=int96_unit,
                buffer_size=buffer_bytes,
                # Reading ahead would hold all chunks of a row group whole, whatever the buffer size.
                pre_buffer=not buffer_bytes,
                page_checksum_verification=True,
            )
        return found


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One physical column of a row group: its chunk, and the most bytes of a decoded value (0: unknown)."""

    path: str
    chunk: Any
    width: int
    as_dictionary: bool
    flat: bool

    @property
    def decoded_bytes(self) -> int:
        """The most bytes of all its decoded values: for a dictionary the indices and the distinct values."""
        size, count = self.chunk.total_uncompressed_size, self.chunk.num_values
        return int(4 * count + size if self.as_dictionary else max(size, self.width * count))

    @property
    def batch_bytes(self) -> int:
        """The same without the distinct values, which every batch refers to."""
        return 4 * int(self.chunk.num_values) if self.as_dictionary else self.decoded_bytes


@dataclass(frozen=True, slots=True)
class _Shape:
    """The way to read a row group; the pages of a batch's rows decode to at most ``heavy_bytes``."""

    rows: int
    leaves: tuple[_Leaf, ...]
    heavy_bytes: int

    @property
    def dictionaries(self) -> tuple[str, ...]:
        """The columns that are read as dictionaries."""
        return tuple(leaf.path for leaf in self.leaves if leaf.as_dictionary)

    @property
    def buffer_bytes(self) -> int:
        """The buffer for each column chunk; 0 to read chunks whole, unless they are too large together."""
        stored = sum(leaf.chunk.total_compressed_size for leaf in self.leaves)
        if stored <= self.heavy_bytes:
            return 0
        return int(min(_BUFFER_BYTES_MAX, max(_BUFFER_BYTES_MIN, self.heavy_bytes // len(self.leaves))))

    def batch_rows(self, source: pa.NativeFile, name: str, pages_bytes: int) -> int:
        """Return the number of rows of a batch. Raises SchemaMismatchError for pages of more than ``pages_bytes``."""
        row_bytes = sum(leaf.batch_bytes for leaf in self.leaves) / self.rows
        rows = max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1.0, row_bytes))))
        if sum(leaf.decoded_bytes for leaf in self.leaves) <= self.heavy_bytes:
            return rows
        # The other columns together have less than half of the limit of a batch.
        large = [leaf for leaf in self.leaves if leaf.decoded_bytes > self.heavy_bytes // (2 * len(self.leaves))]
        pages = [_pages(source, leaf, self.rows) for leaf in large]
        held = sum(one.held_bytes for one in pages)
        if held > pages_bytes:
            leaf, one = max(zip(large, pages, strict=True), key=lambda pair: pair[1].held_bytes)
            raise Code.PAGE_TOO_LARGE(
                f"{name}: a reader needs {held} bytes for pages at once, more than the {pages_bytes} allowed; the "
                f"largest page, of {one.held_bytes} bytes, is in column {leaf.path}. Write the file with smaller "
                f"pages, or raise the table's setting memory_limit_bytes to {limit_for(held)}",
                name=name,
                column=leaf.path,
            )
        # The pages are held for any number of rows.
        while rows > 1 and sum(one.heaviest(rows) for one in pages) > self.heavy_bytes + held:
            rows //= 2
        return rows


@dataclass(frozen=True, slots=True)
class _Pages:
    """The data pages of a column chunk: the first row of each, and the bytes of values before it.

    Both have one more number, for the end. ``held_bytes`` is the size of the largest page.
    """

    firsts: Integers
    before: Integers
    held_bytes: int

    def heaviest(self, rows: int) -> int:
        """Return the most bytes of pages that a window of ``rows`` rows touches."""
        # A window touches most pages if it begins with the last row of a page.
        ends = np.searchsorted(self.firsts, self.firsts[1:] - 1 + rows)
        return int((self.before[np.minimum(ends, len(self.before) - 1)] - self.before[:-1]).max())


def path_of(chunk: Any) -> str:
    """Return the path of the column of a chunk. Raises ArrowInvalid for one that is not UTF-8."""
    try:
        path: str = chunk.path_in_schema
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"the path of a column is not UTF-8: {error}") from error
    return path


def _shape(readers: _Readers, index: int, columns: Sequence[str] | None, heavy_bytes: int) -> _Shape:
    group = readers.metadata.row_group(index)
    leaves = []
    for position in range(group.num_columns):
        chunk, kind = group.column(position), readers.metadata.schema.column(position)
        path = path_of(chunk)
        if columns is None or any(path == name or path.startswith(f"{name}.") for name in columns):
            flat = kind.max_repetition_level == 0
            if kind.physical_type != "BYTE_ARRAY" or kind.logical_type.type == "DECIMAL":
                width = _WIDTHS.get(kind.physical_type) or max(_DECIMAL_BYTES, kind.length or 0)
                leaves.append(_Leaf(path, chunk, width, as_dictionary=False, flat=flat))
            else:
                leaves.append(_Leaf(path, chunk, 0, as_dictionary=bool(chunk.has_dictionary_page), flat=flat))
    longest = _longest(readers, index, [leaf.path for leaf in leaves if leaf.flat and _may_have_plain_pages(leaf)])
    plain = {path: length for path, length in longest.items() if length <= _SHORT_BYTES}
    return _Shape(
        group.num_rows,
        tuple(
            replace(leaf, width=plain[leaf.path], as_dictionary=False) if leaf.path in plain else leaf
            for leaf in leaves
        ),
        heavy_bytes,
    )


def _may_have_plain_pages(leaf: _Leaf) -> bool:
    """Return whether a chunk with a dictionary may have plain pages too: writers' indices have at most 20 bits."""
    chunk = leaf.chunk
    return leaf.as_dictionary and bool(chunk.total_uncompressed_size > 2.5 * chunk.num_values + MIB)


def _longest(readers: _Readers, index: int, paths: Sequence[str]) -> dict[str, int]:
    """Return the length of the longest value in the dictionary of each of some flat columns, if it is known."""
    if not paths:
        return {}
    reader = readers.of(tuple(paths), _BUFFER_BYTES_MIN)
    rows = next(reader.iter_batches(1, row_groups=[index], columns=list(paths)))
    known = [path for path in paths if path in rows.schema.names and pa.types.is_dictionary(rows.column(path).type)]
    return {path: pc.max(pc.binary_length(rows.column(path).dictionary)).as_py() or 0 for path in known}


def _pages(source: pa.NativeFile, leaf: _Leaf, rows: int) -> _Pages:
    """Return the pages of a column chunk, from their headers. Raises OSError for an invalid header."""
    chunk = leaf.chunk
    position = chunk.data_page_offset
    if chunk.dictionary_page_offset:
        position = min(position, chunk.dictionary_page_offset)
    end = position + chunk.total_compressed_size
    counts, sizes, held = [0], [0], [0]
    while position < end:
        header = _header(source, position)
        position += len(header[RAW]) + header[3]
        data = header.get(5) or header.get(8)
        held.append(header[2] if data is None else max(header[2], leaf.width * data[1]))
        if data is not None:
            indexed = data[2 if 5 in header else 4] in _DICTIONARY_ENCODINGS
            counts.append(data[1])
            sizes.append(4 * data[1] if indexed and leaf.as_dictionary else held[-1])
    # A page header does not have the rows of list values: assume that they are spread evenly.
    firsts = np.cumsum(counts, dtype=np.int64) * (rows / max(1, sum(counts)))
    return _Pages(np.rint(firsts).astype(np.int64), np.cumsum(sizes, dtype=np.int64), max(held))


def _header(source: pa.NativeFile, position: int) -> dict[int, Any]:
    """Return the page header at a position."""
    size = _HEADER_BYTES
    while True:
        data = source.read_at(size, position)
        try:
            return decode_struct(data)
        except (ValueError, KeyError) as error:
            # Old writers put whole values into the statistics of the header.
            if len(data) < size or size >= HEAVY_BYTES:
                raise OSError(f"no page begins at byte {position}: {error}") from error
            size *= 16
