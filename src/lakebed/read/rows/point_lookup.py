"""Point lookups: all rows of one key.

A key lies in one partition. The files of the partition whose bounds include the key may hold it. If there are several,
their Bloom filters are probed together (:meth:`PointLookup.candidates`) before any file is opened to read rows. The
pages that may hold the key are then decoded at once, and searched by bisection.

Core type: :class:`PointLookup`. :meth:`PointLookup.get` is the path of ``Table.get``; scans of a
single key use :meth:`PointLookup.read` as well.

Rules: a warm lookup makes few Python calls, which ``tests/tables/test_calls.py`` counts, so it avoids generators and
context managers. What it leaves to the reader it returns as a value: :class:`TooMuch` for keys with very many rows and
for nested columns, :class:`SomeHidden` for files with rows that the table's filter hides.

Errors: as :meth:`OpenFiles.open`, and OSError or ArrowException if a page is damaged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakebed.files.parquet.bloom_filters import HashedKey, Overlap, filters_of
from lakebed.files.parquet.page_decoder import Columns, RowSlice, read_rows
from lakebed.files.parquet.pages import PagedFile
from lakebed.files.parquet.read_cache import CacheKind
from lakebed.model.keys import EncodedRange, sorted_by, successor
from lakebed.read.rows import page_read
from lakebed.read.rows.merged_rows import MergeSchemas, has_whole_row, merge_one_key
from lakebed.read.rows.plan import is_merged
from lakebed.read.rows.request import Point, ReadLimits, ReadRequest
from lakebed.read.rows.row_stream import exactly
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from lakebed.files.parquet.open_files import ByteRange, OpenFile, OpenFiles
    from lakebed.model.files import DataFile
    from lakebed.model.schema import Field
    from lakebed.model.state.table_state import TableState


DECISIVE_FILES = 4
"""The newest files of a key, or for ``First`` the oldest, are read before the others: one that has the key suffices. A
few are decoded at once in about the time of one, and some only seem to have the key, by their filters."""

"""NumPy's kinds of numbers."""


class TooMuch(Struct, frozen=True):
    """The rows of a key are too many for a lookup, or have no pages: a scan of these files answers the request."""

    files: Sequence[DataFile]
    request: ReadRequest


class SomeHidden(Struct, frozen=True):
    """The table's filter hides rows of a file that may have the key."""


class PointLookup:
    """Lookups of single keys in the files of one table. Safe to use from many threads."""

    def __init__(self, files: OpenFiles, merge_schemas: MergeSchemas) -> None:
        self._files = files
        self._cache = files.cache
        self._merge_schemas = merge_schemas

    def get(
        self, state: TableState, encoded: bytes, columns: Sequence[str] | None, limits: ReadLimits
    ) -> pa.Table | TooMuch | SomeHidden:
        """Return all rows of one encoded key of a table at a state, ordered by sort key; see
        :meth:`lakebed.table.table.Table.get`.

        Raises:
            UsageError: a column that the table does not have.
            NotRetainedError: a file was deleted meanwhile, because the table does not retain it any more.
            NotFoundError, DamagedError, StorageError: a file is missing, damaged, or cannot be read.
        """
        schema = state.created
        names, arrow = schema.names, schema.arrow
        if columns is not None:
            names = schema.project(columns)
            arrow = schema.arrow if names == schema.names else schema.arrow_of(names)
        partition = state.partitions.ids[bisect_right(state.partitions.boundaries, encoded)]
        references = state.references.get(partition, ())
        files = [one.file for one in references if one.file.min_key <= encoded <= one.file.max_key]
        if not files:
            return pa.Table.from_batches([], arrow)
        if state.filter_version and not all(map(state.visibility.shows_all, files)):
            return SomeHidden()
        keys = EncodedRange(encoded, successor(encoded))
        values = schema.codec.decode_bound(encoded).values
        point = Point(encoded, keys.max, values, HashedKey(schema.row_key, values, keys))
        request = ReadRequest(schema, keys, names, point=point, merge=state.merge, limits=limits)
        try:
            if len(files) > 1:
                files = list(self.candidates(files, request, point))
            if state.merge.keeps_all or not is_merged(state.merge, files):
                opened = (
                    [self._files.open(files[0], schema)] if len(files) == 1 else self._files.open_all(files, schema)
                )
                batches = self.read(opened, request)
            else:
                batches = self._merged(files, request)
        except BaseException as error:
            self._files.attribute(error, files)
            raise
        if telemetry.sink is not None:
            request.statistics.rows = sum(rows.num_rows for rows in batches or ())
            request.statistics.report("get", state.table)
        if batches is None:
            return TooMuch(files, request)
        if not batches:
            return pa.Table.from_batches([], arrow)
        if arrow is schema.arrow and len(files) == 1:
            return pa.Table.from_batches(batches, arrow)
        return pa.Table.from_batches([exactly(rows, arrow) for rows in batches], arrow)

    def starting_with(self, state: TableState, begin: bytes, limits: ReadLimits) -> Sequence[pa.RecordBatch] | None:
        """Return all stored rows whose first key fields have these encoded values, one file after another.

        None if they lie in several partitions, or are too many. Raises as :meth:`get`.
        """
        schema = state.created
        keys = EncodedRange(begin, successor(begin))
        inside = state.partitions.overlapping(keys)
        if len(inside) > 1:
            return None
        references = state.references.get(state.partitions.ids[inside[0]], ())
        files = [one.file for one in references if one.file.reaches(keys)]
        if not files:
            return ()
        values = schema.codec.decode_bound(begin).values
        point = Point(begin, keys.max, values, HashedKey(schema.row_key, values, keys))
        request = ReadRequest(schema, keys, schema.names, point=point, limits=limits)
        try:
            if len(files) > 1:
                files = list(self.candidates(files, request, point))
            opened = [self._files.open(files[0], schema)] if len(files) == 1 else self._files.open_all(files, schema)
            return self.read(opened, request)
        except BaseException as error:
            self._files.attribute(error, files)
            raise

    def _merged(self, files: Sequence[DataFile], request: ReadRequest) -> list[pa.RecordBatch] | None:
        """As :meth:`read`, of files to be opened, merged by the merge mode of the request."""
        below = self._merge_schemas.below(request, files)
        if len(files) > DECISIVE_FILES:
            decisive: Sequence[DataFile] = ()
            if request.merge.kept is not None and not request.merge.by_sort_key:
                # The order of arrival decides.
                decisive = files[:DECISIVE_FILES] if request.merge.kept == 0 else files[-DECISIVE_FILES:]
            rows = self.read(self._files.open_all(decisive, request.schema), below) if decisive else []
            if rows is None:
                return None
            if rows and has_whole_row(rows[0]):
                return merge_one_key(rows[0], below)
        rows = self.read(self._files.open_all(files, request.schema), below)
        return merge_one_key(rows[0], below) if rows else rows

    def candidates(self, files: Sequence[DataFile], request: ReadRequest, point: Point) -> Sequence[DataFile]:
        """Return the overlapping files that may have the keys of a point, by their filters.

        Opens files whose filters are not known yet. Raises as :meth:`OpenFiles.open`.
        """
        schema, hashed, statistics = request.schema, point.hashed, request.statistics
        with statistics.step("filters"):
            name = (self._files.scope, *[file.id for file in files])
            overlap: Overlap | None = self._cache.get(CacheKind.FILTERS, name)
            if overlap is None:
                opened = self._files.open_all(files, schema)
                footers = [(each.name, each.footer) for each in opened]
                overlap = Overlap.of(footers, schema.row_key)
                self._cache.keep(CacheKind.FILTERS, name, overlap, overlap.size_bytes)
            if not self._cache.has_room_for(overlap.filter_bytes):
                # Too large to be cached together: the filters are probed file by file.
                return files

            def read_filter(position: int, byte_ranges: Sequence[ByteRange]) -> list[bytes]:
                return self._files.read(self._files.open(files[position], schema), byte_ranges)

            positions = hashed.files_of(overlap, read_filter, self._cache, self._files.at_once)
        statistics.files_by_filter += len(files) - len(positions)
        return [files[position] for position in positions]

    def read(self, files: Sequence[OpenFile], request: ReadRequest) -> list[pa.RecordBatch] | None:
        """Return the rows of the key, in order, possibly with more columns; None if they are too many, or have no
        pages.

        Raises OSError or ArrowException if a file is damaged.
        """
        schema, names, limit = request.schema, request.names, request.limit
        many = len(files) > 1
        fields: Sequence[Field] = schema.fields
        if many or names != schema.names:
            fields = [schema.by_name[name] for name in dict.fromkeys((*schema.sort_names, *names) if many else names)]
        numbers = [field.id for field in fields]
        for opened in files:
            if not (opened.footer.paged.issuperset(numbers) or opened.footer.gives_pages(fields)):
                return None
        paged = [PagedFile(opened, schema, self._files, request.statistics) for opened in files]
        if len(paged) == 1:
            # One descriptor serves the filter and the pages, if they are not cached. Several files are opened for each
            # part that is read, so that few are open at a time.
            with paged[0]:
                return self._found_rows(paged, request, fields)
        batches = self._found_rows(paged, request, fields)
        unsorted = schema.sort_names[len(schema.row_key) :]
        if batches and unsorted:
            # The rows are those of one file after another, each in the order of the sort key.
            batches = [sorted_by(batches[0], unsorted)]
        return batches if limit is None or not batches else [batches[0].slice(0, limit)]

    @staticmethod
    def _found_rows(
        files: Sequence[PagedFile], request: ReadRequest, fields: Sequence[Field]
    ) -> list[pa.RecordBatch] | None:
        """Return the rows of one file after another; at most ``limit`` rows of each file."""
        schema, point, limit = request.schema, request.point, request.limit
        assert point is not None
        limits = request.limits
        shares = min(-(-len(files) // limits.share_files), limits.shares_max)
        rows_left, bytes_left = limits.page_rows * shares, limits.page_bytes * shares
        slices: list[RowSlice] = []
        for file in files:
            for row_slice in _slices(file, point, limit):
                rows_left -= len(row_slice.rows)
                bytes_left -= row_slice.group.content_bytes * len(row_slice.rows) // max(1, row_slice.group.rows)
                slices.append(row_slice)
            if rows_left < 0 or bytes_left < 0:
                return None
        if not slices:
            return []
        request.statistics.row_groups += len(slices)
        # The other columns are decoded with the keys if a filter has found the key.
        sure = True
        for row_slice in slices:
            sure = (
                sure
                and len(row_slice.rows) <= page_read.AT_ONCE_ROWS_MAX
                and bool(filters_of(row_slice.group, schema.row_key))
            )

        def search(columns: Columns, starts: Sequence[int]) -> list[range]:
            positions = []
            for low, high in pairwise(starts):
                first, end = low, high
                # Rows ascend by the first field, rows of equal first fields by the second, and so on.
                for field, value in zip(schema.row_key, point.values, strict=False):
                    first, end = equal_range(field, columns[field.name], value, first, end)
                positions.append(range(first, end))
            return positions if limit is None else page_read.limited(positions, slices, limit)

        arrow = schema.arrow if fields is schema.fields else schema.arrow_of(field.name for field in fields)
        rows = read_rows(slices, schema.row_key, fields, search, single_pass=sure, arrow=arrow)
        return [] if rows is None else [rows]


def _slices(file: PagedFile, point: Point, limit: int | None) -> list[RowSlice]:
    """Return the pages of a file that may have rows of the key; with a limit, enough for that many rows."""
    fences, rows_left = file.footer.fences, limit
    slices: list[RowSlice] = []
    reached = range(bisect_right(fences.ends, point.key), _reached(point, fences.starts))
    probed = False
    for position in reached:
        group = file.footer.groups[position]
        # On a store, a probe of the filter costs the same round trip as the page. To search a cached page takes less.
        if not (
            file.is_remote
            or file.has_decoded(position, point.key)
            or point.hashed.may_be_in(file.peek, group, file.opened.filter_sizes)
        ):
            continue
        probed = True
        pages = file.key_pages(position, group)
        if limit is None:
            low, high = bisect_right(pages.fences.ends, point.key), _reached(point, pages.fences.starts)
            firsts = pages.first_rows
            if low < high:
                end = firsts[high] if high < len(firsts) else group.rows
                slices.append(RowSlice(file, position, group, range(firsts[low], end)))
            continue
        assert rows_left is not None
        span = pages.rows(EncodedRange(point.key, successor(point.key)), group.rows, rows_left)
        if span.rows:
            slices.append(RowSlice(file, position, group, span.rows))
            rows_left -= span.above
            if rows_left <= 0:
                break
    if probed:
        file.statistics.files.add(file.opened.file.id)
    elif reached:
        file.statistics.files_by_filter += 1
    return slices


def _reached(point: Point, starts: Sequence[bytes]) -> int:
    """Return how many of the ascending starts of ranges are not above all keys of the point."""
    return len(starts) if point.end is None else bisect_left(starts, point.end)


def equal_range(field: Field, column: pa.Array, value: Any, low: int, high: int) -> tuple[int, int]:
    """Return the positions ``[first, last)`` of a value in the column of a key field, which ascends in ``[low, high)``.

    A binary search in Python takes ten steps in a page of texts. Arrow's comparison reads all of them, and importing
    ``pyarrow.compute`` takes as long as a whole lookup.
    """
    sign = field.key_type.sign
    if sign:
        data = column.buffers()[1] or b""
        numbers = np.frombuffer(data, f"<{sign}{field.width}", len(column), field.width * column.offset)[low:high]
        return low + int(numbers.searchsorted(value, "left")), low + int(numbers.searchsorted(value, "right"))
    if field.width:
        contents = [field.key_type.of_scalar(column[row]) for row in range(low, high)]
        return low + bisect_left(contents, value), low + bisect_right(contents, value)
    _, data, *content = column.buffers()
    wanted = value.encode("utf-8") if isinstance(value, str) else value
    ends = memoryview(data or b"").cast("B").cast("i")[column.offset :]
    texts = memoryview(content[0] or b"").cast("B")
    # bisect would call a function for each step.
    limit = high
    while low < high:
        middle = (low + high) // 2
        if texts[ends[middle] : ends[middle + 1]].tobytes() < wanted:
            low = middle + 1
        else:
            high = middle
    first, step = low, 1
    # Most keys have few rows, so the search for the end starts nearby.
    while low < limit and texts[ends[low] : ends[low + 1]] == wanted:
        high = min(limit, low + step)
        low, step = (high, 2 * step) if texts[ends[high - 1] : ends[high]] == wanted else (low + 1, 1)
    return first, low
