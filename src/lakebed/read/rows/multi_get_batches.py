"""Reads the rows of many keys: decodes the pages of all files that may hold them, in batches, on all cores.

In each row group, the keys that its filter does not exclude are assigned to pages. Pages of successive row groups and
files are gathered until they are enough for a batch. A batch is read at once (by
:func:`lakebed.files.parquet.page_decoder.read_rows`), and returns only rows with one of the keys. A call decodes a
page at most once, ten keys in ten row groups are one batch, and few decoded rows are held at a time. Small batches are
also fast, because they reuse memory that need not be cleared again.

If many keys share each page, as neighbours do, all of that is more work than to read their range: :func:`dense_range`
finds out, and :func:`only_keys` leaves the rows of the keys.

Row groups without a page index, or with nested columns, are read whole, each as a batch; their files are local, or
copied. Page indexes of a file on a store are fetched concurrently, and so are the pages of a batch.

Core function: :func:`read_keys`. Errors: OSError or ArrowException if a file is damaged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.files.parquet.open_files import OPENED_AT_ONCE
from lakebed.files.parquet.page_decoder import Columns, RowSlice, read_rows, row_keys
from lakebed.files.parquet.pages import PagedFile, Spans
from lakebed.files.parquet.read_cache import ReadStatistics
from lakebed.model.arrays import booleans, empty_table, integers, of_binary, of_integers, plain
from lakebed.model.keys import EncodedRange, comparable, successor

if TYPE_CHECKING:
    from lakebed.files.parquet.footer import Fences, RowGroup
    from lakebed.files.parquet.open_files import OpenFile, OpenFiles
    from lakebed.model.arrays import Integers
    from lakebed.model.schema import Field, Schema
    from lakebed.read.rows.multi_get import PartKeys
    from lakebed.read.rows.request import KeyList, ReadRequest

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""The size of a batch of wide rows, in bytes of stored pages."""

PAGE_KEYS = 256
"""To ask the filter about this many keys takes about as long as to read a page that has none of them."""


def read_keys(
    parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], request: ReadRequest, files: OpenFiles
) -> pa.Table:
    """Return the rows with a key of the request's key list, in order, with the requested columns.

    ``opened`` has the files of the parts by id; each has a path, or pages for all columns that are read.
    """
    assert request.key_list is not None, "a multi-get has a list of keys"
    overlap = any(len(part.files) > 1 for part in parts)
    search = _Search(files, request, request.key_list, multi_get_fields(request, sorted_rows=overlap))
    tables = [empty_table(pa.schema([("", pa.int64()), *((field.name, field.stored_type) for field in search.fields)]))]
    for rows, statistics in _decoded(_batches(_probes(parts, opened, search), search)):
        request.statistics.add(statistics)
        tables.append(rows)
    rows = pa.concat_tables(tables)
    if overlap:
        sort_key = request.schema.sort_key
        by = [rows.column(0), *(plain(rows.column(rows.column_names.index(field.name, 1))) for field in sort_key)]
        numbers = [str(number) for number in range(len(by))]
        rows = rows.take(pc.sort_indices(pa.table(by, numbers), [(number, "ascending") for number in numbers]))
    return rows.remove_column(0)


def dense_range(
    parts: Sequence[PartKeys], opened: Sequence[OpenFile], request: ReadRequest, files: OpenFiles
) -> EncodedRange | None:
    """Return the range of the keys of a single part, if each page in it of its files is there for many keys; else None.

    To read all rows of the range takes less time then than to assign each key to pages.
    """
    assert request.key_list is not None, "a multi-get has a list of keys"
    keys, part = request.key_list.encoded, parts[0]
    if len(parts) > 1 or part.last - part.first < PAGE_KEYS or any(each.path is None for each in opened):
        return None
    bounds = EncodedRange(keys[part.first], successor(keys[part.last - 1]))
    for each in opened:
        if not each.footer.paged:
            return None
        with PagedFile(each, request.schema, files, request.statistics) as file:
            reached = [
                file.key_pages(position, each.footer.groups[position]).fences.reaching(bounds)
                for position in each.footer.fences.reaching(bounds)
            ]
        if part.last - part.first < PAGE_KEYS * sum(map(len, reached)):
            return None
    return bounds


def only_keys(batches: Sequence[pa.RecordBatch], request: ReadRequest) -> pa.Table:
    """Return the rows with a key of the request's key list, in their order; they have the requested columns."""
    assert request.key_list is not None, "a multi-get has a list of keys"
    schema, wanted = request.schema, of_binary(request.key_list.encoded)
    kept = [
        rows.filter(pc.is_in(schema.codec.encode_columns(rows.select(schema.row_key_names)), value_set=wanted))
        for rows in batches
    ]
    return pa.Table.from_batches([rows.select(list(dict.fromkeys(request.names))) for rows in kept], request.arrow())


def multi_get_fields(request: ReadRequest, *, sorted_rows: bool) -> list[Field]:
    """Return the requested fields; with ``sorted_rows``, those of the sort key as well."""
    schema = request.schema
    names = dict.fromkeys((*request.names, *(field.name for field in schema.sort_key if sorted_rows)))
    return [schema.by_name[name] for name in names]


@dataclass(frozen=True, slots=True)
class _Search:
    """The common part of one multi-get: the keys, and the fields to read."""

    files: OpenFiles
    request: ReadRequest
    keys: KeyList
    fields: Sequence[Field]

    @property
    def schema(self) -> Schema:
        """The schema of the rows."""
        return self.request.schema

    def paged(self, opened: OpenFile, statistics: ReadStatistics) -> PagedFile:
        """Return a file to be read by pages."""
        return PagedFile(opened, self.schema, self.files, statistics)


def _decoded(batches: Iterator[_Batch]) -> Iterator[tuple[pa.Table, ReadStatistics]]:
    """Return the rows of the batches, in their order; several batches are decoded concurrently."""
    first, second = next(batches, None), next(batches, None)
    if first is not None and second is None:
        yield first.read()
    elif first is not None and second is not None:
        with ThreadPoolExecutor(pa.cpu_count(), "lakebed-keys") as threads:
            # The next batches are gathered while the first are decoded.
            yield from threads.map(_Batch.read, chain((first, second), batches))


@dataclass(frozen=True, slots=True)
class _Probe:
    """Some keys in one row group: their indices, and for each the pages ``[low, high)`` that may hold it.

    ``pages`` has those of all keys, ascending. ``firsts`` has the first row of each page, and the end of the last; a
    row group that is read whole counts as one page. ``filtered`` is true if a filter has confirmed the keys. Rows of
    keys outside the ``part`` are not live there.
    """

    part: PartKeys
    opened: OpenFile
    position: int
    indices: Integers
    low: Integers
    high: Integers
    pages: Integers
    firsts: Integers
    filtered: bool

    def row_slice(self, rows: Spans, search: _Search, statistics: ReadStatistics) -> RowSlice:
        """Return rows of the row group to decode."""
        return RowSlice(
            search.paged(self.opened, statistics), self.position, self.opened.footer.groups[self.position], rows
        )

    def pieces(self, rows_max: int) -> Iterator[tuple[_Probe, int]]:
        """Split the probe into pieces of about ``rows_max`` rows that share no page; each with its number of rows."""
        before = np.append(0, np.cumsum(self.firsts[self.pages + 1] - self.firsts[self.pages]))
        if before[-1] <= rows_max:
            yield self, int(before[-1])
            return
        fresh = np.append(np.flatnonzero(self.low[1:] >= self.high[:-1]) + 1, len(self.low))
        pages = np.append(np.searchsorted(self.pages, self.low[fresh[:-1]]), len(self.pages))
        starts = before[pages]
        begin = first = passed = 0
        while begin < len(self.low):
            last = min(int(np.searchsorted(starts, passed + rows_max)), len(fresh) - 1)
            end, page, reached = int(fresh[last]), int(pages[last]), int(starts[last])
            piece = replace(
                self,
                indices=self.indices[begin:end],
                low=self.low[begin:end],
                high=self.high[begin:end],
                pages=self.pages[first:page],
            )
            yield piece, reached - passed
            begin, first, passed = end, page, reached


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One row group, and the indices of the keys within its bounds."""

    part: PartKeys
    opened: OpenFile
    position: int
    key_indices: range

    def probe(self, search: _Search) -> tuple[_Probe | None, ReadStatistics]:
        """Assign the keys to pages; None if no page may have any. Also returns the statistics. For any thread."""
        group, statistics = self.opened.footer.groups[self.position], ReadStatistics()
        keys, indices = search.keys.encoded, np.arange(self.key_indices.start, self.key_indices.stop)
        if not self.opened.footer.paged:
            low = np.zeros(len(indices), np.int64)
            pages, whole = np.zeros(1, np.int64), np.array([0, group.rows])
            return _Probe(
                self.part, self.opened, self.position, indices, low, low + 1, pages, whole, filtered=False
            ), statistics
        may_be_in = None
        with search.paged(self.opened, statistics) as file:
            if self._worth_filtering(file, group, keys):
                may_be_in = search.keys.hashed.may_be_in(file, group, self.key_indices)
            if may_be_in is not None:
                indices = indices[may_be_in]
            key_pages = file.key_pages(self.position, group) if len(indices) else None
            if key_pages is None:
                return None, statistics
            if file.is_remote:
                # Fetched here, because a batch fetches them one row group after another.
                fields = (*search.schema.row_key, *search.fields)
                file.pages(self.position, group, tuple(dict.fromkeys(field.id for field in fields)))
        low, high = _pages_around(key_pages.fences, keys, indices)
        hits = low < high
        if not hits.any():
            return None, statistics
        indices, low, high = indices[hits], low[hits], high[hits]
        # Many keys may have the same pages.
        fresh = np.flatnonzero(np.diff(high, prepend=-1))
        pages = np.unique(Spans(low[fresh], high[fresh]).every())
        firsts = np.append(np.asarray(key_pages.first_rows, np.int64), group.rows)
        filtered = may_be_in is not None
        return _Probe(self.part, self.opened, self.position, indices, low, high, pages, firsts, filtered), statistics

    def _worth_filtering(self, file: PagedFile, group: RowGroup, keys: Sequence[bytes]) -> bool:
        if len(self.part.files) == 1 and file.is_remote:
            # The filter costs the same round trip as the page.
            return False
        count = len(self.key_indices)
        if count < PAGE_KEYS:
            return True
        fences = file.key_pages(self.position, group).fences
        reached = fences.reaching(EncodedRange(keys[self.key_indices[0]], successor(keys[self.key_indices[-1]])))
        return count < PAGE_KEYS * len(reached)


def _pages_around(fences: Fences, keys: Sequence[bytes], indices: Integers) -> tuple[Integers, Integers]:
    """Return for each key of some ascending indices the pages ``[low, high)`` that may hold it."""
    begin, last = int(indices[0]), int(indices[-1])
    first, end = fences.around(keys[begin])[0], fences.around(keys[last])[1]
    if end - first < len(indices):
        # The pages are fewer than the keys, so their bounds are searched among the keys.
        low, high = (
            first + np.searchsorted([bisect_left(keys, bound, begin, last + 1) for bound in bounds], indices, "right")
            for bounds in (fences.ends[first:end], fences.starts[first:end])
        )
        return low, high
    around = [fences.around(keys[index]) for index in indices.tolist()]
    low, high = np.array(around, np.int64).T
    return low, high


def _probes(parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], search: _Search) -> Iterator[_Probe]:
    """Return the keys assigned to the pages of all row groups that may have them."""
    candidates = _candidates(parts, opened, search.keys.encoded)
    probe = partial(_Candidate.probe, search=search)
    with ExitStack() as until_end:
        probes: Iterator[tuple[_Probe | None, ReadStatistics]] = map(probe, candidates)
        if any(one.path is None for one in opened.values()):
            threads = until_end.enter_context(ThreadPoolExecutor(OPENED_AT_ONCE, "lakebed-pages"))
            probes = threads.map(probe, candidates)
        for assigned, statistics in probes:
            search.request.statistics.add(statistics)
            if assigned is not None:
                yield assigned


def _candidates(
    parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], keys: Sequence[bytes]
) -> Iterator[_Candidate]:
    for part in parts:
        for candidate_file in (opened[file.id] for file in part.files):
            fences = candidate_file.footer.fences
            for position, (start, end) in enumerate(zip(fences.starts, fences.ends, strict=True)):
                first = bisect_left(keys, start, part.first, part.last)
                key_indices = range(first, bisect_left(keys, end, first, part.last))
                if key_indices:
                    yield _Candidate(part, candidate_file, position, key_indices)


def _batches(probes: Iterator[_Probe], search: _Search) -> Iterator[_Batch]:
    """Return the probes gathered into batches of enough rows."""
    gathered: list[_Probe] = []
    share = 0.0
    for probe in probes:
        group = probe.opened.footer.groups[probe.position]
        search.request.statistics.row_groups += 1
        search.request.statistics.files.add(probe.opened.file.id)
        if not probe.opened.footer.gives_pages(search.fields):
            # Fields without pages are read for the whole row group.
            if gathered:
                yield _Batch(tuple(gathered), search)
            yield _Batch((probe,), search)
            gathered, share = [], 0.0
            continue
        rows_max = max(
            1, min(search.request.limits.multi_get_rows, BATCH_BYTES_MAX * group.rows // max(1, group.size_bytes))
        )
        for piece, rows in probe.pieces(rows_max):
            if gathered and share + rows / rows_max > 1:
                yield _Batch(tuple(gathered), search)
                gathered, share = [], 0.0
            gathered.append(piece)
            share += rows / rows_max
    if gathered:
        yield _Batch(tuple(gathered), search)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Probes that are read at once."""

    probes: tuple[_Probe, ...]
    search: _Search

    def read(self) -> tuple[pa.Table, ReadStatistics]:
        """Return the rows with one of the keys: the index of the key, then the fields. Also returns the statistics."""
        statistics = ReadStatistics()
        schema, fields = self.search.schema, self.search.fields
        slices, certain = [], True
        for probe in self.probes:
            pages = probe.pages
            slices.append(probe.row_slice(Spans(probe.firsts[pages], probe.firsts[pages + 1]), self.search, statistics))
            certain = certain and (probe.filtered or probe.opened.path is None or len(probe.indices) >= len(pages))
        indices = np.empty(0, np.int64)

        def find(columns: Columns, starts: Sequence[int]) -> list[Integers]:
            nonlocal indices
            indices, positions = self._matches(row_keys(columns, schema), np.array(starts))
            return np.split(positions, np.searchsorted(positions, starts[1:-1]))

        # The other fields are decoded with the keys if nearly every page has a row to return, and always for files on
        # a store, where another round trip takes longer than decoding a page in vain.
        arrow = pa.schema([(field.name, field.stored_type) for field in fields])
        rows = read_rows(slices, schema.row_key, fields, find, single_pass=certain, arrow=arrow)
        columns = empty_table(arrow).columns if rows is None else rows.columns
        return pa.table([of_integers(indices), *columns], ["", *arrow.names]), statistics

    def _matches(self, keys: pa.RecordBatch, starts: Integers) -> tuple[Integers, Integers]:
        """Return the indices of the keys that rows have, and the positions of these rows, which ascend.

        ``starts`` has the first position of each row group, and the end of the last.
        """
        wanted = np.unique(np.concatenate([one.indices for one in self.probes]))
        values = self.search.keys.values.take(of_integers(wanted))
        # Encoding takes longer than this test: whether each field has a value of some key.
        both = (map(comparable, pair) for pair in zip(keys.columns, values.columns, strict=True))
        matches = (pc.is_in(column, value_set=value) for column, value in both)
        positions = np.flatnonzero(booleans(reduce(pc.and_, matches)))
        encoded = self.search.schema.codec.encode_columns(keys.take(of_integers(positions)))
        wanted_keys = [self.search.keys.encoded[index] for index in wanted.tolist()]
        which = pc.index_in(encoded, value_set=of_binary(wanted_keys))
        positions = positions[booleans(which.is_valid())]
        indices = wanted[integers(which.drop_null().cast(pa.int64()))]
        group = np.searchsorted(starts, positions, side="right") - 1
        first, last = (np.array([bound(one.part) for one in self.probes])[group] for bound in (_FIRST, _LAST))
        live = (first <= indices) & (indices < last)
        return indices[live], positions[live]


_FIRST, _LAST = attrgetter("first"), attrgetter("last")
