"""Wide reads without the engine: of large files on object stores, and of files with wide rows.

Every byte of a file on a store goes through :meth:`OpenFiles.fetch`, which verifies it. No engine reads such a file by
itself, since engines check no digests. There are two ways:

* :class:`RemoteReader`: rows in key order, for scans. The key range is cut into slices; the pages of a slice are
  fetched from all files side by side, decoded, and sorted in memory. The next slice is fetched while one is given out.
* :func:`dataset`: a PyArrow dataset of one file, for engines that choose what to read (SQL, DuckDB). Arrow reads it
  through a file object. It checks the CRCs of pages too: a file without block digests has nothing else to check.

Errors: as :meth:`OpenFiles.fetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.parquet.open_files import StoredFile
from lakebed.parquet.pages import PagedFile
from lakebed.parquet.read_statistics import ReadStatistics
from lakebed.parquet.row_positions import GroupRows, positions_by_group, rank
from lakebed.read.page_read import ROWS_MAX
from lakebed.read.slices import SLICE_BYTES, forwards

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from lakebed.model.keys import EncodedRange
    from lakebed.parquet.open_files import OpenFile, OpenFiles
    from lakebed.parquet.read_cache import ReadCache
    from lakebed.read.page_read import PageReader
    from lakebed.read.request import ReadRequest

_SHARE = 8
"""A slice may take this part of the memory limit, decompressed: it is held twice while it is sorted, and so is the
next."""

_SLICES = 4
"""But no less than so many slices: each file adds a page of keys at both ends of one."""


@dataclass(frozen=True, slots=True)
class RemoteReader:
    """Reads files of one table of which some stay on their store, or have wide rows."""

    files: OpenFiles
    kept: ReadCache
    narrow: PageReader

    def rows(
        self,
        opened: Sequence[OpenFile],
        request: ReadRequest,
        memory_limit_bytes: int,
        otherwise: Callable[[ReadRequest], Iterator[pa.RecordBatch]],
    ) -> Iterator[pa.RecordBatch]:
        """The rows asked for, in order, maybe with other columns too, and without regard to limit and predicate.

        ``otherwise`` reads what cannot be read so: many or large rows with nested columns, very many rows of one key.
        """
        size_bytes_max = max(memory_limit_bytes // _SHARE, _SLICES * SLICE_BYTES)
        if all(one.footer.gives_pages(request.fields(with_keys=True)) for one in opened):
            return self._merged(opened, request, size_bytes_max, otherwise)
        few = self._few(opened, request, size_bytes_max)
        return otherwise(request) if few is None else iter(few)

    def _merged(
        self,
        opened: Sequence[OpenFile],
        request: ReadRequest,
        slice_bytes_max: int,
        otherwise: Callable[[ReadRequest], Iterator[pa.RecordBatch]],
    ) -> Generator[pa.RecordBatch]:
        """Slice after slice."""
        slices = forwards([PagedFile(one, request.schema, self.kept, None, self.files) for one in opened], request.keys)

        def read(keys: EncodedRange) -> tuple[EncodedRange, list[pa.RecordBatch] | None, ReadStatistics]:
            part = replace(request, keys=keys, statistics=ReadStatistics())
            return keys, self.narrow.read_slice(opened, part, slice_bytes_max), part.statistics

        with ThreadPoolExecutor(1, "lakebed-slices") as ahead:
            keys = next(slices, None)
            under_way = None if keys is None else ahead.submit(read, keys)
            while under_way is not None:
                keys, rows, statistics = under_way.result()
                following = next(slices, None)
                under_way = None if following is None else ahead.submit(read, following)
                request.statistics.add(statistics)
                yield from otherwise(replace(request, keys=keys)) if rows is None else rows

    def _few(
        self, opened: Sequence[OpenFile], request: ReadRequest, size_bytes_max: int
    ) -> list[pa.RecordBatch] | None:
        """The rows at once: their places by pages of the keys, nested columns by whole row groups; None: too much."""
        if not all(one.footer.paged for one in opened):
            return None
        fields = request.fields(with_keys=len(opened) > 1)
        wanted = request.schema.arrow_of(field.name for field in fields)
        placed = [(one, self._places(one, request)) for one in opened]
        content_bytes = sum(one.footer.content_bytes_of(len(positions)) for one, positions in placed)
        if content_bytes > size_bytes_max or sum(len(positions) for _, positions in placed) > ROWS_MAX:
            return None
        found = [wanted.empty_table()]
        for one, positions in placed:
            for position, inside in positions_by_group(one, positions):
                request.statistics.files.add(one.file.id)
                request.statistics.row_groups += 1
                read = GroupRows(one, position, request.schema, self.kept, request.statistics, self.files).take(
                    fields, inside
                )
                found.append(pa.table([read[field.name] for field in fields], schema=wanted))
        rows = pa.concat_tables(found)
        if len(opened) > 1:
            rows = rows.sort_by([(name, "ascending") for name in request.schema.sort_names])
        batches: list[pa.RecordBatch] = rows.to_batches()
        return batches

    def _places(self, opened: OpenFile, request: ReadRequest) -> range:
        low, high = request.keys.min, request.keys.max
        first = rank(opened, request.schema, self.kept, low, self.files)
        end = opened.file.rows if high is None else rank(opened, request.schema, self.kept, high, self.files)
        return range(first, end)


def dataset(opened: OpenFile, files: OpenFiles) -> pads.FileSystemDataset:
    """One file on a store, its columns by the names that they have in it."""
    import pyarrow.dataset as pads

    options = pads.ParquetFragmentScanOptions(page_checksum_verification=True)
    kind = pads.ParquetFileFormat(default_fragment_scan_options=options)
    fragment = kind.make_fragment(pa.PythonFile(StoredFile(opened, files), mode="r"))
    return pads.FileSystemDataset([fragment], fragment.physical_schema, kind)
