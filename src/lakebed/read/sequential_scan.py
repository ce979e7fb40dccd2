"""Reads of many rows of a file that shares its keys with no other: they are in order, so they are decoded, not merged.

The rows are cut into slices of whole pages, which are decoded by :mod:`lakebed.parquet.page_decoder`. A few slices are
decoded ahead, side by side, and returned in order. The first ones are small, for readers that want a few rows. The size
of a slice follows from the decoded size of those before it. Decision 0008 has the measurements.

Errors: OSError or ArrowException if the file is not what was written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.parquet.page_decoder import Cut, read_columns, row_keys
from lakebed.parquet.pages import KeyPages, PagedFile
from lakebed.parquet.read_cache import ReadStatistics
from lakebed.parquet.row_positions import places_within

if TYPE_CHECKING:
    from lakebed.model.keys import EncodedRange
    from lakebed.parquet.footer import RowGroup
    from lakebed.parquet.open_files import OpenFile, OpenFiles
    from lakebed.parquet.read_cache import ReadCache
    from lakebed.read.request import ReadRequest

SLICE_BYTES = 8 * 1024 * 1024
"""Of decoded rows. A slice costs a millisecond beside decoding them, which takes 15."""

FIRST_ROWS = 8_192
"""Of the first slice; each one after it is at most twice as large."""

BATCH_ROWS = 8_192

_SLICE_SHARE = 4
"""What is under way takes at most this part of the memory limit; each slice twice, decoded and as it is stored."""


def is_sequential(opened: OpenFile, request: ReadRequest) -> bool:
    """Whether a request of a single file can be read so: by pages, and with no predicate to prune them by."""
    return request.where is None and opened.footer.gives_pages(request.fields(with_keys=True))


def sequential_scan(
    opened: OpenFile, request: ReadRequest, kept: ReadCache, memory_limit_bytes: int, files: OpenFiles | None = None
) -> Generator[pa.RecordBatch]:
    """The requested rows, in order; with a limit, a few more may come. ``files`` fetches parts of a file on a store."""
    cores = pa.cpu_count()
    ahead = max(1, min(2 * cores + 1, memory_limit_bytes // (_SLICE_SHARE * 2 * SLICE_BYTES)))
    cut = _Cut(opened, request, kept, files)
    under_way: deque[Future[_Decoded]] = deque()
    threads = ThreadPoolExecutor(min(cores, ahead), "lakebed-scan")
    try:
        for one in cut.slices():
            under_way.append(threads.submit(one.decode))
            if len(under_way) >= ahead:
                yield from cut.given(under_way.popleft())
        while under_way:
            yield from cut.given(under_way.popleft())
    finally:
        threads.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """The requested rows of a slice, the decoded size of a row of it, and what was done to get them."""

    rows: pa.RecordBatch
    row_bytes: int
    statistics: ReadStatistics


@dataclass(frozen=True, slots=True)
class _Slice:
    """Rows ``[begin, end)`` of one row group. Unless ``whole``, only those with a requested key are wanted."""

    opened: OpenFile
    request: ReadRequest
    kept: ReadCache
    files: OpenFiles | None
    position: int
    begin: int
    end: int
    whole: bool

    def decode(self) -> _Decoded:
        """The requested rows. Any thread may call it."""
        schema = self.request.schema
        wanted = schema.arrow_of(dict.fromkeys(self.request.names))
        names = wanted.names if self.whole else dict.fromkeys((*wanted.names, *schema.row_key_names))
        statistics = ReadStatistics()
        file = PagedFile(self.opened, schema, self.kept, statistics, self.files)
        cut = Cut(file, self.position, self.opened.footer.groups[self.position], range(self.begin, self.end))
        held = read_columns([cut], [schema.by_name[name] for name in names])
        for name, column in held.items():
            # An index of a file without block digests may hide rows: they would be missing here, or in the next slice.
            if len(column) != self.end - self.begin:
                raise OSError(f"{len(column)} of {self.end - self.begin} rows of {name} from row {self.begin} on")
        row_bytes = sum(column.nbytes for column in held.values()) // (self.end - self.begin)
        rows = pa.RecordBatch.from_arrays([held[name] for name in wanted.names], schema=wanted)
        if not self.whole:
            (some,) = places_within(row_keys(held, schema), schema.codec, self.request.keys, [0, rows.num_rows])
            rows = rows.slice(some.start, len(some))
        return _Decoded(rows, row_bytes, statistics)


class _Cut:
    """The rows of a file cut into slices, each sized by what was decoded before. Used by one thread."""

    def __init__(self, opened: OpenFile, request: ReadRequest, kept: ReadCache, files: OpenFiles | None) -> None:
        self._opened = opened
        self._files = files
        self._request = request
        self._kept = kept
        self._rows = FIRST_ROWS
        self._row_bytes = 1

    def given(self, decoding: Future[_Decoded]) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, when they are decoded, in batches."""
        decoded = decoding.result()
        self._request.statistics.add(decoded.statistics)
        self._row_bytes = max(1, decoded.row_bytes)
        for begin in range(0, decoded.rows.num_rows, BATCH_ROWS):
            yield decoded.rows.slice(begin, BATCH_ROWS)

    def slices(self) -> Iterator[_Slice]:
        """The slices in order; with a limit, as far as that surely reaches."""
        opened, request = self._opened, self._request
        left = request.limit
        request.statistics.files.add(opened.file.id)
        file = PagedFile(opened, request.schema, self._kept, request.statistics, self._files)
        for position in opened.footer.fences.reaching(request.keys):
            group = opened.footer.groups[position]
            known = file.key_pages(position, group)
            span = known.rows(request.keys, group.rows, left)
            request.statistics.row_groups += len(span.rows) > 0
            begin = span.rows.start
            while begin < span.rows.stop:
                end = min(span.rows.stop, self._end(known, begin, group))
                whole = _lies_in(known, request.keys, begin, end)
                yield _Slice(opened, request, self._kept, self._files, position, begin, end, whole)
                begin = end
            if left is not None:
                left -= span.above
                if left <= 0:
                    return

    def _end(self, known: KeyPages, begin: int, group: RowGroup) -> int:
        """Where a slice that begins at this row ends: at a page, if that is not too far."""
        row_bytes = max(self._row_bytes, group.size_bytes // max(1, group.rows))
        end = begin + max(1, min(self._rows, SLICE_BYTES // row_bytes))
        self._rows *= 2
        firsts = known.first_rows
        page = firsts[bisect_right(firsts, end) - 1]
        return page if page > begin else end


def _lies_in(known: KeyPages, keys: EncodedRange, begin: int, end: int) -> bool:
    """Whether the rows surely have such keys, by the bounds of their pages."""
    first, last = bisect_right(known.first_rows, begin) - 1, bisect_right(known.first_rows, end - 1) - 1
    return known.fences.starts[first] >= keys.min and (keys.max is None or known.fences.ends[last] <= keys.max)
