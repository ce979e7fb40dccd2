"""Reads files that may overlap by pages, in key order, without the engine.

Core type: :class:`PageReader`. :meth:`PageReader.read` reads up to some thousand rows: the pages of all files are
decoded at once, and their rows are sorted in memory. Page indexes show whether a read is that small before any row is
read. For larger reads the engine is as fast: its 2 ms of planning and thread switches are little beside 20 ms of work.

:meth:`PageReader.scan` reads any number of rows of large files on object stores, and of files with wide rows. The
engine cannot read these by itself, because it checks no digests and holds whole column chunks. The key range is cut
into slices, and each slice is a read of its own. The next slice is fetched while one is returned, if the reader is
faster than the fetch.

Errors: as :meth:`OpenFiles.fetch`, and OSError or ArrowException if a file is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from lakebed.files.parquet.page_decoder import Columns, RowSlice, read_columns, read_rows, row_keys
from lakebed.files.parquet.pages import PagedFile
from lakebed.files.parquet.read_cache import ReadStatistics
from lakebed.files.parquet.row_positions import positions_within, rank, slices_at
from lakebed.model.keys import EncodedRange, sorted_by

if TYPE_CHECKING:
    from lakebed.files.parquet.open_files import OpenFile, OpenFiles
    from lakebed.model.schema import Field
    from lakebed.read.rows.request import ReadRequest

AT_ONCE_ROWS_MAX = 8_192
"""Up to this many rows of a row group, all columns are decoded with the keys; beyond it, only pages with a result."""

NEAR_FILES = 8
"""With a limit, a read of this many overlapping files first tries the keys near the first one only."""

NEAR_TIMES = 2
NEAR_ROWS = 8
"""A file with this many times its share of the limit, plus this many rows, suggests that the others have enough too."""

_SCAN_SHARE = 8
"""The part of the memory limit that a decompressed slice may take: it is held twice while it is sorted, and so is the
next one."""

_SCAN_SLICES = 4
"""But a slice has at least this many slices of the engine: each file adds a page of keys at both ends of one."""

Otherwise = Callable[["ReadRequest"], Iterator[pa.RecordBatch]]


class PageReader:
    """Page reads of one table's files. Safe to use from many threads."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files

    def read(self, files: Sequence[OpenFile], request: ReadRequest) -> list[pa.RecordBatch] | None:
        """Return the requested rows in order, possibly with more columns; None if too many, or without pages."""
        fields = request.fields(with_keys=len(files) > 1)
        if not all(opened.footer.gives_pages(fields) for opened in files):
            return None
        limits = request.limits
        shares = min(-(-len(files) // limits.share_files), limits.shares_max)
        at_most = (limits.page_rows * shares, limits.page_bytes * shares)
        if request.limit is not None and len(files) >= NEAR_FILES:
            near = self._near(files, request, request.limit)
            if near is not None:
                batches = self._merged(files, replace(request, keys=near, limit=None), fields, at_most)
                if batches and batches[0].num_rows >= request.limit:
                    return [batches[0].slice(0, request.limit)]
        batches = self._merged(files, request, fields, at_most)
        return (
            batches if batches is None or request.limit is None else [rows.slice(0, request.limit) for rows in batches]
        )

    def scan(
        self, files: Sequence[OpenFile], request: ReadRequest, memory_limit_bytes: int, otherwise: Otherwise
    ) -> Iterator[pa.RecordBatch]:
        """Return all rows with the requested keys, in order, possibly with more columns.

        Limit and predicate are not applied. ``otherwise`` reads what does not fit into bounded memory by pages: many or
        large rows with nested columns, and very many rows of one key.
        """
        bytes_max = max(memory_limit_bytes // _SCAN_SHARE, _SCAN_SLICES * request.limits.slice_bytes)
        if all(one.footer.gives_pages(request.fields(with_keys=True)) for one in files):
            return self._sliced(files, request, bytes_max, otherwise)
        few = self._few(files, request, bytes_max) if all(one.footer.paged for one in files) else None
        return otherwise(request) if few is None else iter(few)

    def _sliced(
        self, files: Sequence[OpenFile], request: ReadRequest, bytes_max: int, otherwise: Otherwise
    ) -> Generator[pa.RecordBatch]:
        from lakebed.read.rows.slices import forwards

        fields = request.fields(with_keys=len(files) > 1)
        slices = forwards([self._paged(one, request, ReadStatistics()) for one in files], request.keys, request.limits)

        def read(keys: EncodedRange) -> tuple[EncodedRange, list[pa.RecordBatch] | None, ReadStatistics]:
            part = replace(request, keys=keys, statistics=ReadStatistics())
            return keys, self._merged(files, part, fields, (bytes_max, bytes_max)), part.statistics

        with ThreadPoolExecutor(1, "lakebed-slices") as ahead:
            keys = next(slices, None)
            under_way = None if keys is None else ahead.submit(read, keys)
            while under_way is not None:
                # For a slow reader nothing is fetched ahead, which it would hold.
                waits = not under_way.done()
                keys, rows, statistics = under_way.result()
                following = next(slices, None)
                under_way = ahead.submit(read, following) if waits and following is not None else None
                request.statistics.add(statistics)
                yield from otherwise(replace(request, keys=keys)) if rows is None else rows
                if under_way is None and following is not None:
                    under_way = ahead.submit(read, following)

    def _few(self, files: Sequence[OpenFile], request: ReadRequest, bytes_max: int) -> list[pa.RecordBatch] | None:
        """Return the rows with nested columns, read at once by position; None if they are too many or too large."""
        slices: list[RowSlice] = []
        for file in (self._paged(one, request, request.statistics) for one in files):
            first = rank(file, request.keys.min)
            end = file.opened.file.rows if request.keys.max is None else rank(file, request.keys.max)
            slices += slices_at(file, range(first, end))
        content_bytes = sum(row_slice.file.footer.content_bytes_of(len(row_slice.rows)) for row_slice in slices)
        if content_bytes > bytes_max or sum(len(row_slice.rows) for row_slice in slices) > request.limits.page_rows:
            return None
        fields = request.fields(with_keys=len(files) > 1)
        request.statistics.files.update(row_slice.file.opened.file.id for row_slice in slices)
        request.statistics.row_groups += len(slices)
        if not slices:
            return []
        columns = read_columns(slices, fields)
        arrow = request.schema.arrow_of([field.name for field in fields])
        rows = pa.RecordBatch.from_arrays([columns[field.name] for field in fields], schema=arrow)
        return self._in_order(rows, files, request)

    def _merged(
        self, files: Sequence[OpenFile], request: ReadRequest, fields: Sequence[Field], at_most: tuple[int, int]
    ) -> list[pa.RecordBatch] | None:
        """Return the rows in order, at most ``limit`` of each file; None if pages have more rows or bytes than
        ``at_most``.

        If there are few rows, all columns are decoded with the keys, because nearly all pages have results.
        """
        rows_left, bytes_left = at_most
        slices: list[RowSlice] = []
        for row_slice in self._slices(files, request):
            rows_left -= len(row_slice.rows)
            bytes_left -= row_slice.group.content_bytes * len(row_slice.rows) // max(1, row_slice.group.rows)
            if rows_left < 0 or bytes_left < 0:
                return None
            slices.append(row_slice)
        if not slices:
            return []
        request.statistics.row_groups += len(slices)

        def search(columns: Columns, starts: Sequence[int]) -> list[range]:
            keys = row_keys(columns, request.schema)
            positions = positions_within(keys, request.schema.codec, request.keys, starts)
            return positions if request.limit is None else limited(positions, slices, request.limit)

        arrow = request.schema.arrow_of([field.name for field in fields])
        few = all(len(row_slice.rows) <= AT_ONCE_ROWS_MAX for row_slice in slices)
        rows = read_rows(slices, request.schema.row_key, fields, search, single_pass=few, arrow=arrow)
        return self._in_order(rows, files, request)

    @staticmethod
    def _in_order(rows: pa.RecordBatch | None, files: Sequence[OpenFile], request: ReadRequest) -> list[pa.RecordBatch]:
        if rows is not None and len(files) > 1:
            rows = sorted_by(rows, request.schema.sort_names)
        return [] if rows is None else [rows]

    def _near(self, files: Sequence[OpenFile], request: ReadRequest, limit: int) -> EncodedRange | None:
        """Return a range of the first requested keys that probably has ``limit`` rows; None if that cannot be
        estimated.

        Each of many overlapping files has few of the first rows; the largest file shows about where these end.
        """
        largest = max(files, key=lambda opened: opened.file.rows)
        share = largest.file.rows / sum(opened.file.rows for opened in files)
        reached = int(NEAR_TIMES * limit * share) + NEAR_ROWS
        if reached >= AT_ONCE_ROWS_MAX:
            return None
        # One more row than is reached: its key is where the range ends.
        slices = list(self._slices([largest], replace(request, limit=reached + 1)))
        if not slices or sum(len(row_slice.rows) for row_slice in slices) > 2 * AT_ONCE_ROWS_MAX:
            return None
        codec = request.schema.codec
        keys = row_keys(read_columns(slices, request.schema.row_key), request.schema)
        position = codec.lower_rank(keys, request.keys.min, 0, keys.num_rows) + reached
        if position >= keys.num_rows:
            return None
        near = request.keys.intersect(EncodedRange(max=codec.encode_row(keys, position)))
        return None if near.empty else near

    def _slices(self, files: Sequence[OpenFile], request: ReadRequest) -> Iterator[RowSlice]:
        """Return the row ranges that may have requested keys; with a limit, as far as it reaches in each file."""
        for opened in files:
            file = self._paged(opened, request, request.statistics)
            rows_left = request.limit
            for position in opened.footer.fences.reaching(request.keys):
                group = opened.footer.groups[position]
                request.statistics.files.add(opened.file.id)
                span = file.key_pages(position, group).rows(request.keys, group.rows, rows_left)
                if not span.rows:
                    continue
                yield RowSlice(file, position, group, span.rows)
                if rows_left is not None:
                    rows_left -= span.above
                    if rows_left <= 0:
                        break

    def _paged(self, opened: OpenFile, request: ReadRequest, statistics: ReadStatistics) -> PagedFile:
        return PagedFile(opened, request.schema, self._files, statistics)


def limited(found: Sequence[range], slices: Sequence[RowSlice], limit: int) -> list[range]:
    """At most ``limit`` rows of each file."""
    limited = []
    for _, run in groupby(zip(slices, found, strict=True), lambda pair: pair[0].file):
        rows_left = limit
        for _, positions in run:
            limited.append(positions[:rows_left])
            rows_left -= len(limited[-1])
    return limited
