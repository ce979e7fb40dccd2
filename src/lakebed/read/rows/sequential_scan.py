"""Scans a file that overlaps no other: its rows are in order, so they are decoded and not merged.

The rows are cut into slices of whole pages, which :mod:`lakebed.files.parquet.page_decoder` decodes. For a reader that
waits for them a few slices are decoded ahead, concurrently; for a slow one none, which it would hold. They are
returned in order. The first slices are small, for callers that want a few rows. The size of a
slice follows from the decoded size of the ones before it. Decision 0008 has the measurements.

Errors: OSError or ArrowException if the file is damaged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.files.parquet.page_decoder import RowSlice, read_columns, row_keys
from lakebed.files.parquet.pages import KeyPages, PagedFile
from lakebed.files.parquet.read_cache import ReadStatistics
from lakebed.files.parquet.row_positions import positions_within

if TYPE_CHECKING:
    from lakebed.files.parquet.footer import RowGroup
    from lakebed.files.parquet.open_files import OpenFile, OpenFiles
    from lakebed.model.keys import EncodedRange
    from lakebed.read.rows.request import ReadRequest

BATCH_ROWS = 8_192

_SLICE_SHARE = 4
"""The part of the memory limit that pending slices may take, each of them twice: decoded, and as stored."""


def is_sequential(opened: OpenFile, request: ReadRequest) -> bool:
    """Return whether a request for a single file can be scanned so: it has pages, and no predicate can prune them."""
    return request.where is None and opened.footer.gives_pages(request.fields(with_keys=True))


def sequential_scan(
    opened: OpenFile, request: ReadRequest, memory_limit_bytes: int, files: OpenFiles
) -> Generator[pa.RecordBatch]:
    """Return the requested rows, in order; with a limit, a few more. ``files`` fetches parts of a file on a store."""
    cores = pa.cpu_count()
    ahead_max = max(1, min(2 * cores + 1, memory_limit_bytes // (_SLICE_SHARE * 2 * request.limits.scan_bytes)))
    slicer = _Slicer(opened, request, files)
    under_way: deque[Future[_Decoded]] = deque()
    threads = ThreadPoolExecutor(min(cores, ahead_max), "lakebed-scan")
    slices, ahead = slicer.slices(), 1
    try:
        while True:
            under_way.extend(threads.submit(piece.decode) for piece in islice(slices, ahead - len(under_way)))
            if not under_way:
                break
            if all(one.done() for one in under_way):
                # The reader is slower than the threads, and would hold what they decode ahead.
                ahead = max(1, ahead - 1)
            elif not under_way[0].done():
                ahead = min(2 * ahead, ahead_max)
            yield from slicer.rows_of(under_way.popleft())
    finally:
        threads.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """The requested rows of a slice, the decoded size of one of its rows, and the statistics of its read."""

    rows: pa.RecordBatch
    row_bytes: int
    statistics: ReadStatistics


@dataclass(frozen=True, slots=True)
class _Slice:
    """Rows ``[begin, end)`` of one row group: all of them if ``whole``, else those with a requested key."""

    opened: OpenFile
    request: ReadRequest
    files: OpenFiles
    position: int
    begin: int
    end: int
    whole: bool

    def decode(self) -> _Decoded:
        """Return the requested rows. For any thread."""
        schema = self.request.schema
        wanted = schema.arrow_of(dict.fromkeys(self.request.names))
        names = wanted.names if self.whole else dict.fromkeys((*wanted.names, *schema.row_key_names))
        statistics = ReadStatistics()
        file = PagedFile(self.opened, schema, self.files, statistics)
        row_slice = RowSlice(file, self.position, self.opened.footer.groups[self.position], range(self.begin, self.end))
        columns = read_columns([row_slice], [schema.by_name[name] for name in names])
        for name, column in columns.items():
            # A damaged page index of a file without block digests may hide rows.
            if len(column) != self.end - self.begin:
                raise OSError(f"{len(column)} of {self.end - self.begin} rows of {name} from row {self.begin} on")
        row_bytes = sum(column.nbytes for column in columns.values()) // (self.end - self.begin)
        rows = pa.RecordBatch.from_arrays([columns[name] for name in wanted.names], schema=wanted)
        if not self.whole:
            (span,) = positions_within(row_keys(columns, schema), schema.codec, self.request.keys, [0, rows.num_rows])
            rows = rows.slice(span.start, len(span))
        return _Decoded(rows, row_bytes, statistics)


class _Slicer:
    """Cuts the rows of a file into slices, each sized by the ones decoded before it. For one thread."""

    def __init__(self, opened: OpenFile, request: ReadRequest, files: OpenFiles) -> None:
        self._opened = opened
        self._files = files
        self._request = request
        self._rows = request.limits.scan_first_rows
        self._row_bytes = 1

    def rows_of(self, decoding: Future[_Decoded]) -> Iterator[pa.RecordBatch]:
        """Wait for a slice, and return its rows in batches."""
        decoded = decoding.result()
        self._request.statistics.add(decoded.statistics)
        self._row_bytes = max(1, decoded.row_bytes)
        for begin in range(0, decoded.rows.num_rows, BATCH_ROWS):
            yield decoded.rows.slice(begin, BATCH_ROWS)

    def slices(self) -> Iterator[_Slice]:
        """Return the slices in order; with a limit, enough for that many rows."""
        opened, request = self._opened, self._request
        rows_left = request.limit
        request.statistics.files.add(opened.file.id)
        file = PagedFile(opened, request.schema, self._files, request.statistics)
        for position in opened.footer.fences.reaching(request.keys):
            group = opened.footer.groups[position]
            pages = file.key_pages(position, group)
            span = pages.rows(request.keys, group.rows, rows_left)
            request.statistics.row_groups += len(span.rows) > 0
            begin = span.rows.start
            while begin < span.rows.stop:
                end = min(span.rows.stop, self._end(pages, begin, group))
                whole = _lies_in(pages, request.keys, begin, end)
                yield _Slice(opened, request, self._files, position, begin, end, whole)
                begin = end
            if rows_left is not None:
                rows_left -= span.above
                if rows_left <= 0:
                    return

    def _end(self, pages: KeyPages, begin: int, group: RowGroup) -> int:
        """Return the end of a slice that begins at this row: the end of a page, if one is near enough."""
        row_bytes = max(self._row_bytes, group.size_bytes // max(1, group.rows))
        end = begin + max(1, min(self._rows, self._request.limits.scan_bytes // row_bytes))
        self._rows *= 2
        firsts = pages.first_rows
        page = firsts[bisect_right(firsts, end) - 1]
        return page if page > begin else end


def _lies_in(pages: KeyPages, keys: EncodedRange, begin: int, end: int) -> bool:
    """Return whether all of the rows have keys in the range, by the bounds of their pages."""
    first, last = bisect_right(pages.first_rows, begin) - 1, bisect_right(pages.first_rows, end - 1) - 1
    return pages.fences.starts[first] >= keys.min and (keys.max is None or pages.fences.ends[last] <= keys.max)
