"""Rows of many keys: the pages that may hold them, of whichever files, decoded in bunches on all cores.

For each row group the keys that its filter knows are shared out to its pages. Pages are then gathered, row group after
row group and file after file, until there are enough for a bunch: it is decoded at once
(:mod:`lakebed.parquet.page_decoder`), the keys are searched in it, and of its rows only those with a key are kept. So a
page is decoded once for one call, ten keys in ten row groups are one bunch, and what lies decoded at a time is small,
which is also quick: memory that was used just before need not be cleared for it again.

Row groups without a page index, or with nested columns, are read whole, each a bunch; such files are local, or copies.
Of a file on a store the indexes of many row groups are fetched side by side, and so are the pages of a bunch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from lakebed.parquet.bloom_filters import Memberships
from lakebed.parquet.open_files import OPENED_AT_ONCE
from lakebed.parquet.page_decoder import Cut, decoded, row_keys
from lakebed.parquet.pages import PagedFile, Spans
from lakebed.parquet.read_statistics import ReadStatistics
from lakebed.parquet.row_positions import GroupRows

if TYPE_CHECKING:
    from lakebed.model.arrays import Integers
    from lakebed.model.schema import Field, Schema
    from lakebed.parquet.footer import RowGroup
    from lakebed.parquet.open_files import OpenFile, OpenFiles
    from lakebed.parquet.read_cache import ReadCache
    from lakebed.read.multi_get import PartKeys

BATCH_ROWS_MAX = 65_536
"""Of decoded pages: some 8 ms of work, beside which the half of one that a bunch costs is little."""

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""The same for wide rows: of pages as they are stored."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """What is looked for: ascending encoded keys, their values, and the columns of their rows that are given.

    What is done is noted in ``read statistics``.
    """

    schema: Schema
    keys: Sequence[bytes]
    values: pa.RecordBatch
    members: Memberships
    columns: tuple[str, ...]
    kept: ReadCache
    files: OpenFiles | None
    statistics: ReadStatistics

    @classmethod
    def of(  # noqa: PLR0913 - what is asked, what was learnt before, where it is noted
        cls,
        schema: Schema,
        keys: Sequence[bytes],
        columns: Sequence[str],
        kept: ReadCache,
        statistics: ReadStatistics,
        *,
        files: OpenFiles | None = None,
    ) -> Lookup:
        """Of keys of the schema. ``files`` fetches parts of those on a store."""
        values = schema.codec.decode_columns(keys)
        return cls(
            schema, keys, values, Memberships(schema.row_key, values, keys), tuple(columns), kept, files, statistics
        )

    def fields(self, *, sorted_rows: bool) -> list[Field]:
        """Those of the columns, and of the sort key, if rows are to be ordered by it."""
        names = dict.fromkeys((*self.columns, *(field.name for field in self.schema.sort_key if sorted_rows)))
        return [self.schema.by_name[name] for name in names]

    def paged(self, opened: OpenFile, statistics: ReadStatistics) -> PagedFile:
        """A file, to be read by pages."""
        return PagedFile(opened, self.schema, self.kept, statistics, self.files)


def read_parts(parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], lookup: Lookup) -> pa.Table:
    """The rows with one of the keys, in order, with the columns asked for.

    ``opened`` has the parts' files by id, each with a path, or such as give pages of all that is read. Raises OSError
    or ArrowException if one is not what was written.
    """
    overlap = any(len(part.files) > 1 for part in parts)
    schema, fields = lookup.schema, lookup.fields(sorted_rows=overlap)
    found = [pa.schema([("", pa.int64()), *((field.name, field.type) for field in fields)]).empty_table()]
    for rows, statistics in _decoded(_batches(_sought(parts, opened, lookup, fields), lookup, fields)):
        lookup.statistics.add(statistics)
        found.append(rows)
    rows = pa.concat_tables(found)
    if overlap:
        by = [rows.column(0), *(rows.column(rows.column_names.index(field.name, 1)) for field in schema.sort_key)]
        numbers = [str(number) for number in range(len(by))]
        rows = rows.take(pc.sort_indices(pa.table(by, numbers), [(number, "ascending") for number in numbers]))
    return rows.remove_column(0)


def _decoded(batches: Iterator[_Batch]) -> Iterator[tuple[pa.Table, ReadStatistics]]:
    """The bunches' rows, in the order of the bunches; several are decoded side by side."""
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

    def cut(self, rows: Spans, lookup: Lookup, statistics: ReadStatistics) -> Cut:
        """Some rows of the row group, to be decoded."""
        return Cut(lookup.paged(self.opened, statistics), self.position, self.opened.footer.groups[self.position], rows)

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

    def sought(self, lookup: Lookup, fields: Sequence[Field]) -> tuple[_Sought | None, ReadStatistics]:
        """The keys shared out to its pages; None if no page may have any. And what was done; any thread may ask."""
        group, statistics = self.opened.footer.groups[self.position], ReadStatistics()
        indices = np.array(self.among)
        if not self.opened.footer.paged:
            low = np.zeros(len(indices), np.int64)
            whole = np.array([0, group.rows])
            return _Sought(self.part, self.opened, self.position, indices, low, low + 1, whole, known=False), statistics
        known = None
        with lookup.paged(self.opened, statistics) as file:
            if self._asks_filter(file, group):
                known = lookup.members.may_be_in(file, group, self.among, lookup.kept)
            if known is not None:
                indices = indices[known]
            key_pages = file.key_pages(self.position, group) if len(indices) else None
            if key_pages is None:
                return None, statistics
            if file.is_remote:
                # A bunch asks for the same, of one row group after another.
                file.pages(self.position, group, tuple(dict.fromkeys(f.id for f in (*lookup.schema.row_key, *fields))))
        around = [key_pages.fences.around(lookup.keys[index]) for index in indices.tolist()]
        low, high = np.array(around, np.int64).reshape(-1, 2).T
        some = low < high
        if not some.any():
            return None, statistics
        firsts = np.append(np.asarray(key_pages.first_rows, np.int64), group.rows)
        return _Sought(
            self.part, self.opened, self.position, indices[some], low[some], high[some], firsts, known is not None
        ), statistics

    def _asks_filter(self, file: PagedFile, group: RowGroup) -> bool:
        """Of more keys than it has rows, every page has some; and a page on a store is as near as its filter."""
        return len(self.among) <= group.rows and (len(self.part.files) > 1 or not file.is_remote)


def _sought(
    parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], lookup: Lookup, fields: Sequence[Field]
) -> Iterator[_Sought]:
    """The keys shared out to the row groups that may have them, and to their pages."""
    reached = _reached(parts, opened, lookup.keys)
    share_out = partial(_Reached.sought, lookup=lookup, fields=fields)
    with ExitStack() as until_end:
        found: Iterator[tuple[_Sought | None, ReadStatistics]] = map(share_out, reached)
        if any(one.path is None for one in opened.values()):
            threads = until_end.enter_context(ThreadPoolExecutor(OPENED_AT_ONCE, "lakebed-pages"))
            found = threads.map(share_out, reached)
        for sought, statistics in found:
            lookup.statistics.add(statistics)
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


def _batches(sought: Iterator[_Sought], lookup: Lookup, fields: Sequence[Field]) -> Iterator[_Batch]:
    """What is looked for, gathered until there are enough rows."""
    gathered: list[_Sought] = []
    share = 0.0
    for one in sought:
        group = one.opened.footer.groups[one.position]
        lookup.statistics.row_groups += 1
        lookup.statistics.files.add(one.opened.file.id)
        if not one.opened.footer.gives_pages(fields):
            # What has no pages is read for all of the row group, so at once.
            if gathered:
                yield _Batch(tuple(gathered), lookup, fields)
            yield _Batch((one,), lookup, fields)
            gathered, share = [], 0.0
            continue
        rows_max = max(1, min(BATCH_ROWS_MAX, BATCH_BYTES_MAX * group.rows // max(1, group.size_bytes)))
        for piece, rows in one.pieces(rows_max):
            if gathered and share + rows / rows_max > 1:
                yield _Batch(tuple(gathered), lookup, fields)
                gathered, share = [], 0.0
            gathered.append(piece)
            share += rows / rows_max
    if gathered:
        yield _Batch(tuple(gathered), lookup, fields)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is decoded at once."""

    sought: tuple[_Sought, ...]
    lookup: Lookup
    fields: Sequence[Field]

    def read(self) -> tuple[pa.Table, ReadStatistics]:
        """The rows with one of the keys: the index of their key, then the fields. And what was done."""
        statistics = ReadStatistics()
        picked = [one.picked() for one in self.sought]
        held = self._keys(picked, statistics)
        keys = row_keys(held, self.lookup.schema)
        sizes = [one.firsts[pages + 1] - one.firsts[pages] for one, pages in zip(self.sought, picked, strict=True)]
        starts = np.cumsum([0, *(size.sum() for size in sizes)])
        indices, positions = self._found(keys, starts)
        columns = {
            field.name: held[field.name].take(of_integers(positions)) for field in self.fields if field.name in held
        }
        rest = [field for field in self.fields if field.name not in columns]
        if rest:
            columns |= self._rest(rest, self._in_groups(picked, sizes, starts, positions), statistics)
        arrays = [of_integers(indices), *(columns[field.name] for field in self.fields)]
        return pa.table(arrays, names=["", *(field.name for field in self.fields)]), statistics

    def _keys(self, picked: Sequence[Integers], statistics: ReadStatistics) -> dict[str, pa.Array]:
        """The row keys of the pages; with them the other fields, if nearly every page surely has a row to return.

        And of files on a store, where a round trip more takes longer than pages for nothing.
        """
        schema = self.lookup.schema
        if not self.sought[0].opened.footer.paged:
            (one,) = self.sought
            return GroupRows(one.opened, one.position, schema, self.lookup.kept, statistics).whole(schema.row_key)
        cuts = [
            one.cut(Spans(one.firsts[pages], one.firsts[pages + 1]), self.lookup, statistics)
            for one, pages in zip(self.sought, picked, strict=True)
        ]
        footers = [one.opened.footer for one in self.sought]
        along = [field for field in self.fields if all(footer.gives_pages([field]) for footer in footers)]
        surely = all(
            one.known or one.opened.path is None or len(one.indices) >= len(pages)
            for one, pages in zip(self.sought, picked, strict=True)
        )
        return decoded(
            cuts, schema.row_key, [field for field in along if field not in schema.row_key] if surely else ()
        )

    def _found(self, keys: pa.RecordBatch, starts: Integers) -> tuple[Integers, Integers]:
        """The rows that have one of the keys: for each the key's index, and its place among all. In this order.

        ``starts`` has where the rows of each row group begin, and the end of the last.
        """
        wanted = np.unique(np.concatenate([one.indices for one in self.sought]))
        values = self.lookup.values.take(of_integers(wanted))
        # Encoded, which takes longer, are only rows in which each field has a value that some key has.
        some = (pc.is_in(column, value_set=value) for column, value in zip(keys.columns, values.columns, strict=True))
        positions = np.flatnonzero(booleans(reduce(pc.and_, some)))
        encoded = self.lookup.schema.codec.encode_columns(keys.take(of_integers(positions)))
        which = pc.index_in(encoded, value_set=of_binary([self.lookup.keys[index] for index in wanted.tolist()]))
        positions = positions[booleans(which.is_valid())]
        indices = wanted[integers(which.drop_null().cast(pa.int64()))]
        group = np.searchsorted(starts, positions, side="right") - 1
        first, last = (np.array([bound(one.part) for one in self.sought])[group] for bound in (_FIRST, _LAST))
        here = (first <= indices) & (indices < last)
        return indices[here], positions[here]

    def _in_groups(
        self, picked: Sequence[Integers], sizes: Sequence[Integers], starts: Integers, positions: Integers
    ) -> Iterator[tuple[_Sought, Integers]]:
        """Places among all rows as places in row groups."""
        ends = np.searchsorted(positions, starts)
        for number, one in enumerate(self.sought):
            among = positions[ends[number] : ends[number + 1]] - starts[number]
            before = np.cumsum(sizes[number]) - sizes[number]
            page = np.searchsorted(before, among, side="right") - 1
            yield one, one.firsts[picked[number][page]] + among - before[page]

    def _rest(
        self, fields: Sequence[Field], cuts: Iterable[tuple[_Sought, Integers]], statistics: ReadStatistics
    ) -> dict[str, pa.Array]:
        """Fields that were not read with the keys, of rows by their places in the row groups."""
        some = [(one, positions) for one, positions in cuts if len(positions)]
        if not some:
            return {field.name: pa.nulls(0, field.type) for field in fields}
        if all(one.opened.footer.gives_pages(fields) for one, _ in some):
            return decoded(
                [one.cut(Spans(positions, positions + 1), self.lookup, statistics) for one, positions in some], fields
            )
        ((one, positions),) = some
        return GroupRows(one.opened, one.position, self.lookup.schema, self.lookup.kept, statistics).take(
            fields, positions
        )


_FIRST, _LAST = attrgetter("first"), attrgetter("last")
