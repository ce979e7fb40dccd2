"""A Parquet file in memory, made of some pages of stored files, which Arrow decodes.

The pages, and no others, are copied unchanged behind the dictionaries that they need, with the metadata of their
columns. All parts share one file, because opening one takes as long as decoding a page, and for the same reason one row
group of it, unless they have dictionaries. Core type: :class:`MemoryFile`.

Errors: OSError or ArrowException if a page is damaged; page CRCs are checked while decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from pyarrow._parquet import ParquetReader

from lakebed.files.parquet.thrift import STOP, integer, struct, structs_head, text

if TYPE_CHECKING:
    from lakebed.files.parquet.footer import Chunk, RowGroup
    from lakebed.files.parquet.open_files import ByteRange
    from lakebed.files.parquet.pages import PagedFile, Pages, PageSelection

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
    """A row group of a temporary file: for each column the pages of one or more cuts, one after another.

    ``chunks`` has the columns of the first cut; ``sizes`` and ``begins`` are in bytes, one for each column.
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
