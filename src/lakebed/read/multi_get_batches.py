"""Rows of many keys: the pages that may hold them, of all files, decoded in batches on all cores.

The keys of each row group that its filter does not exclude are assigned to its pages. Pages are gathered, row group
after row group and file after file, until they are enough for a batch. A batch is read at once (by
:func:`lakebed.parquet.page_decoder.read_rows`), and only its rows with one of the keys are kept. A call decodes a page
at most once, ten keys in ten row groups are one batch, and the decoded rows held at a time are few. That is also quick:
memory that was used just before need not be cleared again.

Row groups without a page index, or with nested columns, are read whole, each as a batch; their files are local, or
copies. The page indexes of many row groups of a file on a store are fetched side by side, and so are the pages of a
batch.

Core type: :class:`BatchReader`. Errors: OSError or ArrowException if a file is not what was written.
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

from lakebed.model.arrays import booleans, integers, of_binary, of_integers
from lakebed.parquet.open_files import OPENED_AT_ONCE
from lakebed.parquet.page_decoder import Columns, Cut, read_rows, row_keys
from lakebed.parquet.pages import PagedFile, Spans
from lakebed.parquet.read_cache import ReadStatistics

if TYPE_CHECKING:
    from lakebed.model.arrays import Integers
    from lakebed.model.schema import Field, Schema
    from lakebed.parquet.footer import RowGroup
    from lakebed.parquet.open_files import OpenFile, OpenFiles
    from lakebed.parquet.read_cache import ReadCache
    from lakebed.read.multi_get import PartKeys
    from lakebed.read.request import KeyList, ReadRequest

BATCH_ROWS_MAX = 65_536
"""Of decoded pages: some 8 ms of work, beside which the half of one that a batch costs is little."""

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""The same for wide rows: of pages as they are stored."""


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads many keys of one table's files; ``files`` fetches parts of those on a store."""

    cache: ReadCache
    files: OpenFiles | None = None

    def read(self, parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], request: ReadRequest) -> pa.Table:
        """The rows with one of the keys ``among`` which the request is for, in order, with the requested columns.

        ``opened`` has the parts' files by id, each with a path, or such as give pages of all that is read.
        """
        overlap = any(len(part.files) > 1 for part in parts)
        search = _Search(self, request, key_list(request), multi_get_fields(request, sorted_rows=overlap))
        found = [pa.schema([("", pa.int64()), *((field.name, field.type) for field in search.fields)]).empty_table()]
        for rows, statistics in _decoded(_batches(_sought(parts, opened, search), search)):
            request.statistics.add(statistics)
            found.append(rows)
        rows = pa.concat_tables(found)
        if overlap:
            sort_key = request.schema.sort_key
            by = [rows.column(0), *(rows.column(rows.column_names.index(field.name, 1)) for field in sort_key)]
            numbers = [str(number) for number in range(len(by))]
            rows = rows.take(pc.sort_indices(pa.table(by, numbers), [(number, "ascending") for number in numbers]))
        return rows.remove_column(0)


def key_list(request: ReadRequest) -> KeyList:
    """The keys that a multi-get is for."""
    assert request.among is not None
    return request.among


def multi_get_fields(request: ReadRequest, *, sorted_rows: bool) -> list[Field]:
    """The requested fields; with those of the sort key, if rows are to be ordered by it."""
    schema = request.schema
    names = dict.fromkeys((*request.names, *(field.name for field in schema.sort_key if sorted_rows)))
    return [schema.by_name[name] for name in names]


@dataclass(frozen=True, slots=True)
class _Search:
    """What all parts of one multi-get share: the keys, and the fields to read."""

    reader: BatchReader
    request: ReadRequest
    keys: KeyList
    fields: Sequence[Field]

    @property
    def schema(self) -> Schema:
        """That of the rows."""
        return self.request.schema

    def paged(self, opened: OpenFile, statistics: ReadStatistics) -> PagedFile:
        """A file, to be read by pages."""
        return PagedFile(opened, self.schema, self.reader.cache, statistics, self.reader.files)


def _decoded(batches: Iterator[_Batch]) -> Iterator[tuple[pa.Table, ReadStatistics]]:
    """The rows of the batches, in their order; several are decoded side by side."""
    first, second = next(batches, None), next(batches, None)
    if first is not None and second is None:
        yield first.read()
    elif first is not None and second is not None:
        with ThreadPoolExecutor(pa.cpu_count(), "lakebed-keys") as threads:
            # While the first are decoded, the next are gathered.
            yield from threads.map(_Batch.read, chain((first, second), batches))


@dataclass(frozen=True, slots=True)
class _Sought:
    """Some of the keys in one row group: their indices, and for each the pages ``[low, high)`` that it may lie in.

    ``known`` if a filter was asked for them. Of a row group that is read whole, that is one page. Rows of
    other keys than those of the ``part`` are not the table's there.
    """

    part: PartKeys
    opened: OpenFile
    position: int
    indices: Integers
    low: Integers
    high: Integers
    firsts: Integers
    known: bool

    def cut(self, rows: Spans, search: _Search, statistics: ReadStatistics) -> Cut:
        """Some rows of the row group, to be decoded."""
        return Cut(search.paged(self.opened, statistics), self.position, self.opened.footer.groups[self.position], rows)

    def picked(self) -> Integers:
        """The pages."""
        found: Integers = np.unique(Spans(self.low, self.high).every())
        return found

    def pieces(self, rows_max: int) -> Iterator[tuple[_Sought, int]]:
        """The same in pieces of about so many rows of pages, none of which two of them have; and how many those are."""
        picked = self.picked()
        before = np.append(0, np.cumsum(self.firsts[picked + 1] - self.firsts[picked]))
        fresh = np.append(np.flatnonzero(self.low[1:] >= self.high[:-1]) + 1, len(self.low))
        starts = before[np.append(np.searchsorted(picked, self.low[fresh[:-1]]), len(picked))]
        begin = passed = 0
        while begin < len(self.low):
            at = min(int(np.searchsorted(starts, passed + rows_max)), len(fresh) - 1)
            end, reached = int(fresh[at]), int(starts[at])
            some = replace(self, indices=self.indices[begin:end], low=self.low[begin:end], high=self.high[begin:end])
            yield some, reached - passed
            begin, passed = end, reached


@dataclass(frozen=True, slots=True)
class _Reached:
    """One row group, and those of the keys, a range of their indices, that its bounds do not leave out."""

    part: PartKeys
    opened: OpenFile
    position: int
    among: range

    def sought(self, search: _Search) -> tuple[_Sought | None, ReadStatistics]:
        """The keys assigned to its pages, None if no page may have any; and what was done. Any thread may call it."""
        group, statistics = self.opened.footer.groups[self.position], ReadStatistics()
        indices = np.array(self.among)
        if not self.opened.footer.paged:
            low = np.zeros(len(indices), np.int64)
            whole = np.array([0, group.rows])
            return _Sought(self.part, self.opened, self.position, indices, low, low + 1, whole, known=False), statistics
        known = None
        with search.paged(self.opened, statistics) as file:
            if self._asks_filter(file, group):
                known = search.keys.members.may_be_in(file, group, self.among, search.reader.cache)
            if known is not None:
                indices = indices[known]
            key_pages = file.key_pages(self.position, group) if len(indices) else None
            if key_pages is None:
                return None, statistics
            if file.is_remote:
                # A batch needs the same, of one row group after another.
                fields = (*search.schema.row_key, *search.fields)
                file.pages(self.position, group, tuple(dict.fromkeys(field.id for field in fields)))
        around = [key_pages.fences.around(search.keys.encoded[index]) for index in indices.tolist()]
        low, high = np.array(around, np.int64).reshape(-1, 2).T
        some = low < high
        if not some.any():
            return None, statistics
        firsts = np.append(np.asarray(key_pages.first_rows, np.int64), group.rows)
        return _Sought(
            self.part, self.opened, self.position, indices[some], low[some], high[some], firsts, known is not None
        ), statistics

    def _asks_filter(self, file: PagedFile, group: RowGroup) -> bool:
        # Of more keys than rows every page has some. A page of a single file on a store is as near as its filter.
        return len(self.among) <= group.rows and (len(self.part.files) > 1 or not file.is_remote)


def _sought(parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], search: _Search) -> Iterator[_Sought]:
    """The keys assigned to the row groups that may have them, and to their pages."""
    reached = _reached(parts, opened, search.keys.encoded)
    assign = partial(_Reached.sought, search=search)
    with ExitStack() as until_end:
        found: Iterator[tuple[_Sought | None, ReadStatistics]] = map(assign, reached)
        if any(one.path is None for one in opened.values()):
            threads = until_end.enter_context(ThreadPoolExecutor(OPENED_AT_ONCE, "lakebed-pages"))
            found = threads.map(assign, reached)
        for sought, statistics in found:
            search.request.statistics.add(statistics)
            if sought is not None:
                yield sought


def _reached(parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], keys: Sequence[bytes]) -> Iterator[_Reached]:
    for part in parts:
        for one in (opened[file.id] for file in part.files):
            fences = one.footer.fences
            for position, (start, end) in enumerate(zip(fences.starts, fences.ends, strict=True)):
                first = bisect_left(keys, start, part.first, part.last)
                among = range(first, bisect_left(keys, end, first, part.last))
                if among:
                    yield _Reached(part, one, position, among)


def _batches(sought: Iterator[_Sought], search: _Search) -> Iterator[_Batch]:
    """What is looked for, gathered until there are enough rows."""
    gathered: list[_Sought] = []
    share = 0.0
    for one in sought:
        group = one.opened.footer.groups[one.position]
        search.request.statistics.row_groups += 1
        search.request.statistics.files.add(one.opened.file.id)
        if not one.opened.footer.gives_pages(search.fields):
            # Fields without pages are read for the whole row group, so at once.
            if gathered:
                yield _Batch(tuple(gathered), search)
            yield _Batch((one,), search)
            gathered, share = [], 0.0
            continue
        rows_max = max(1, min(BATCH_ROWS_MAX, BATCH_BYTES_MAX * group.rows // max(1, group.size_bytes)))
        for piece, rows in one.pieces(rows_max):
            if gathered and share + rows / rows_max > 1:
                yield _Batch(tuple(gathered), search)
                gathered, share = [], 0.0
            gathered.append(piece)
            share += rows / rows_max
    if gathered:
        yield _Batch(tuple(gathered), search)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is read at once."""

    sought: tuple[_Sought, ...]
    search: _Search

    def read(self) -> tuple[pa.Table, ReadStatistics]:
        """The rows with one of the keys: the index of their key, then the fields. And what was done."""
        statistics = ReadStatistics()
        schema, fields = self.search.schema, self.search.fields
        cuts, certain = [], True
        for one in self.sought:
            pages = one.picked()
            cuts.append(one.cut(Spans(one.firsts[pages], one.firsts[pages + 1]), self.search, statistics))
            certain = certain and (one.known or one.opened.path is None or len(one.indices) >= len(pages))
        indices = np.empty(0, np.int64)

        def find(held: Columns, starts: Sequence[int]) -> list[Integers]:
            nonlocal indices
            indices, positions = self._found(row_keys(held, schema), np.array(starts))
            return np.split(positions, np.searchsorted(positions, starts[1:-1]))

        # The other fields are decoded with the keys if nearly every page has a row to return. For files on a store
        # always: another round trip takes longer than decoding pages for nothing.
        arrow = pa.schema([(field.name, field.type) for field in fields])
        rows = read_rows(cuts, schema.row_key, fields, find, along=certain, arrow=arrow)
        columns = arrow.empty_table().columns if rows is None else rows.columns
        return pa.table([of_integers(indices), *columns], ["", *arrow.names]), statistics

    def _found(self, keys: pa.RecordBatch, starts: Integers) -> tuple[Integers, Integers]:
        """The rows that have one of the keys: for each the key's index, and its position among all. In this order.

        ``starts`` has where the rows of each row group begin, and the end of the last.
        """
        wanted = np.unique(np.concatenate([one.indices for one in self.sought]))
        values = self.search.keys.values.take(of_integers(wanted))
        # Only rows in which each field has a value that some key has are encoded, which takes longer.
        some = (pc.is_in(column, value_set=value) for column, value in zip(keys.columns, values.columns, strict=True))
        positions = np.flatnonzero(booleans(reduce(pc.and_, some)))
        encoded = self.search.schema.codec.encode_columns(keys.take(of_integers(positions)))
        sought = [self.search.keys.encoded[index] for index in wanted.tolist()]
        which = pc.index_in(encoded, value_set=of_binary(sought))
        positions = positions[booleans(which.is_valid())]
        indices = wanted[integers(which.drop_null().cast(pa.int64()))]
        group = np.searchsorted(starts, positions, side="right") - 1
        first, last = (np.array([bound(one.part) for one in self.sought])[group] for bound in (_FIRST, _LAST))
        here = (first <= indices) & (indices < last)
        return indices[here], positions[here]


_FIRST, _LAST = attrgetter("first"), attrgetter("last")
