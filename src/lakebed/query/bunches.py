"""Rows of many keys: the pages that may hold them, of whichever files, decoded in bunches on all cores.

For each row group the keys that its filter knows are shared out to its pages. Pages are then gathered, row group after
row group and file after file, until there are enough for a bunch: it is decoded at once
(:mod:`lakebed.query.decoding`), the keys are searched in it, and of its rows only those with a key are kept. So a page
is decoded once for one call, ten keys in ten row groups are one bunch, and what lies decoded at a time is small, which
is also quick: memory that was used just before need not be cleared for it again.

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

from lakebed.arrays import booleans, integers, of_binary, of_integers
from lakebed.query.decoding import Cut, decoded, row_keys
from lakebed.query.membership import Memberships
from lakebed.query.opening import OPENED_AT_ONCE
from lakebed.query.pages import PagedFile, Spans
from lakebed.query.places import GroupRows
from lakebed.query.tally import Tally

if TYPE_CHECKING:
    from lakebed.arrays import Integers
    from lakebed.query.cache import ReadCache
    from lakebed.query.footer import RowGroup
    from lakebed.query.many import PartKeys
    from lakebed.query.opening import OpenFile, OpenFiles
    from lakebed.schema import Field, Schema

BUNCH_ROWS = 65_536
"""Of decoded pages: some 8 ms of work, beside which the half of one that a bunch costs is little."""

BUNCH_BYTES = 4 * 1024 * 1024
"""The same for wide rows: of pages as they are stored."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """What is looked for: ascending encoded keys, their values, and the columns of their rows that are given.

    What is done is noted in ``tally``.
    """

    schema: Schema
    keys: Sequence[bytes]
    values: pa.RecordBatch
    members: Memberships
    columns: tuple[str, ...]
    kept: ReadCache
    files: OpenFiles | None
    tally: Tally

    @classmethod
    def of(  # noqa: PLR0913 - what is asked, what was learnt before, where it is noted
        cls,
        schema: Schema,
        keys: Sequence[bytes],
        columns: Sequence[str],
        kept: ReadCache,
        tally: Tally,
        *,
        files: OpenFiles | None = None,
    ) -> Lookup:
        """Of keys of the schema. ``files`` fetches parts of those on a store."""
        values = schema.codec.decode_columns(keys)
        return cls(schema, keys, values, Memberships(schema.row_key, values, keys), tuple(columns), kept, files, tally)

    def fields(self, *, sorted_rows: bool) -> list[Field]:
        """Those of the columns, and of the sort key, if rows are to be ordered by it."""
        names = dict.fromkeys((*self.columns, *(field.name for field in self.schema.sort_key if sorted_rows)))
        return [self.schema.by_name[name] for name in names]

    def paged(self, opened: OpenFile, tally: Tally) -> PagedFile:
        """A file, to be read by pages."""
        return PagedFile(opened, self.schema, self.kept, tally, self.files)


def read_parts(parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], lookup: Lookup) -> pa.Table:
    """The rows with one of the keys, in order, with the columns asked for.

    ``opened`` has the parts' files by id, each with a path, or such as give pages of all that is read. Raises OSError
    or ArrowException if one is not what was written.
    """
    overlap = any(len(part.files) > 1 for part in parts)
    schema, fields = lookup.schema, lookup.fields(sorted_rows=overlap)
    found = [pa.schema([("", pa.int64()), *((field.name, field.type) for field in fields)]).empty_table()]
    for rows, tally in _decoded(_bunches(_sought(parts, opened, lookup, fields), lookup, fields)):
        lookup.tally.add(tally)
        found.append(rows)
    rows = pa.concat_tables(found)
    if overlap:
        by = [rows.column(0), *(rows.column(rows.column_names.index(field.name, 1)) for field in schema.sort_key)]
        numbers = [str(number) for number in range(len(by))]
        rows = rows.take(pc.sort_indices(pa.table(by, numbers), [(number, "ascending") for number in numbers]))
    return rows.remove_column(0)


def _decoded(bunches: Iterator[_Bunch]) -> Iterator[tuple[pa.Table, Tally]]:
    """The bunches' rows, in the order of the bunches; several are decoded side by side."""
    first, second = next(bunches, None), next(bunches, None)
    if first is not None and second is None:
        yield first.read()
    elif first is not None and second is not None:
        with ThreadPoolExecutor(pa.cpu_count(), "lakebed-keys") as threads:
            # While the first are decoded, the next are gathered.
            yield from threads.map(_Bunch.read, chain((first, second), bunches))


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

    def cut(self, rows: Spans, lookup: Lookup, tally: Tally) -> Cut:
        """Some rows of the row group, to be decoded."""
        return Cut(lookup.paged(self.opened, tally), self.position, self.opened.footer.groups[self.position], rows)

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

    def sought(self, lookup: Lookup, fields: Sequence[Field]) -> tuple[_Sought | None, Tally]:
        """The keys shared out to its pages; None if no page may have any. And what was done; any thread may ask."""
        group, tally = self.opened.footer.groups[self.position], Tally()
        indices = np.array(self.among)
        if not self.opened.footer.paged:
            low = np.zeros(len(indices), np.int64)
            whole = np.array([0, group.rows])
            return _Sought(self.part, self.opened, self.position, indices, low, low + 1, whole, known=False), tally
        known = None
        with lookup.paged(self.opened, tally) as file:
            if self._asks_filter(file, group):
                known = lookup.members.may_be_in(file, group, self.among, lookup.kept)
            if known is not None:
                indices = indices[known]
            key_pages = file.key_pages(self.position, group) if len(indices) else None
            if key_pages is None:
                return None, tally
            if file.is_afar:
                # A bunch asks for the same, of one row group after another.
                file.pages(self.position, group, tuple(dict.fromkeys(f.id for f in (*lookup.schema.row_key, *fields))))
        around = [key_pages.fences.around(lookup.keys[index]) for index in indices.tolist()]
        low, high = np.array(around, np.int64).reshape(-1, 2).T
        some = low < high
        if not some.any():
            return None, tally
        firsts = np.append(np.asarray(key_pages.first_rows, np.int64), group.rows)
        return _Sought(
            self.part, self.opened, self.position, indices[some], low[some], high[some], firsts, known is not None
        ), tally

    def _asks_filter(self, file: PagedFile, group: RowGroup) -> bool:
        """Of more keys than it has rows, every page has some; and a page on a store is as near as its filter."""
        return len(self.among) <= group.rows and (len(self.part.files) > 1 or not file.is_afar)


def _sought(
    parts: Sequence[PartKeys], opened: Mapping[str, OpenFile], lookup: Lookup, fields: Sequence[Field]
) -> Iterator[_Sought]:
    """The keys shared out to the row groups that may have them, and to their pages."""
    reached = _reached(parts, opened, lookup.keys)
    share_out = partial(_Reached.sought, lookup=lookup, fields=fields)
    with ExitStack() as until_end:
        found: Iterator[tuple[_Sought | None, Tally]] = map(share_out, reached)
        if any(one.path is None for one in opened.values()):
            threads = until_end.enter_context(ThreadPoolExecutor(OPENED_AT_ONCE, "lakebed-pages"))
            found = threads.map(share_out, reached)
        for sought, tally in found:
            lookup.tally.add(tally)
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


def _bunches(sought: Iterator[_Sought], lookup: Lookup, fields: Sequence[Field]) -> Iterator[_Bunch]:
    """What is looked for, gathered until there are enough rows."""
    gathered: list[_Sought] = []
    share = 0.0
    for one in sought:
        group = one.opened.footer.groups[one.position]
        lookup.tally.row_groups += 1
        lookup.tally.files.add(one.opened.file.id)
        if not one.opened.footer.gives_pages(fields):
            # What has no pages is read for all of the row group, so at once.
            if gathered:
                yield _Bunch(tuple(gathered), lookup, fields)
            yield _Bunch((one,), lookup, fields)
            gathered, share = [], 0.0
            continue
        rows_max = max(1, min(BUNCH_ROWS, BUNCH_BYTES * group.rows // max(1, group.size_bytes)))
        for piece, rows in one.pieces(rows_max):
            if gathered and share + rows / rows_max > 1:
                yield _Bunch(tuple(gathered), lookup, fields)
                gathered, share = [], 0.0
            gathered.append(piece)
            share += rows / rows_max
    if gathered:
        yield _Bunch(tuple(gathered), lookup, fields)


@dataclass(frozen=True, slots=True)
class _Bunch:
    """What is decoded at once."""

    sought: tuple[_Sought, ...]
    lookup: Lookup
    fields: Sequence[Field]

    def read(self) -> tuple[pa.Table, Tally]:
        """The rows with one of the keys: the index of their key, then the fields. And what was done."""
        tally = Tally()
        picked = [one.picked() for one in self.sought]
        held = self._keys(picked, tally)
        keys = row_keys(held, self.lookup.schema)
        sizes = [one.firsts[pages + 1] - one.firsts[pages] for one, pages in zip(self.sought, picked, strict=True)]
        starts = np.cumsum([0, *(size.sum() for size in sizes)])
        indices, places = self._found(keys, starts)
        columns = {
            field.name: held[field.name].take(of_integers(places)) for field in self.fields if field.name in held
        }
        rest = [field for field in self.fields if field.name not in columns]
        if rest:
            columns |= self._rest(rest, self._in_groups(picked, sizes, starts, places), tally)
        arrays = [of_integers(indices), *(columns[field.name] for field in self.fields)]
        return pa.table(arrays, names=["", *(field.name for field in self.fields)]), tally

    def _keys(self, picked: Sequence[Integers], tally: Tally) -> dict[str, pa.Array]:
        """The row keys of the pages; with them the other fields, if nearly every page surely has a row to return.

        And of files on a store, where a round trip more takes longer than pages for nothing.
        """
        schema = self.lookup.schema
        if not self.sought[0].opened.footer.paged:
            (one,) = self.sought
            return GroupRows(one.opened, one.position, schema, self.lookup.kept, tally).whole(schema.row_key)
        cuts = [
            one.cut(Spans(one.firsts[pages], one.firsts[pages + 1]), self.lookup, tally)
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
        places = np.flatnonzero(booleans(reduce(pc.and_, some)))
        encoded = self.lookup.schema.codec.encode_columns(keys.take(of_integers(places)))
        which = pc.index_in(encoded, value_set=of_binary([self.lookup.keys[index] for index in wanted.tolist()]))
        places = places[booleans(which.is_valid())]
        indices = wanted[integers(which.drop_null().cast(pa.int64()))]
        group = np.searchsorted(starts, places, side="right") - 1
        first, last = (np.array([bound(one.part) for one in self.sought])[group] for bound in (_FIRST, _LAST))
        here = (first <= indices) & (indices < last)
        return indices[here], places[here]

    def _in_groups(
        self, picked: Sequence[Integers], sizes: Sequence[Integers], starts: Integers, places: Integers
    ) -> Iterator[tuple[_Sought, Integers]]:
        """Places among all rows as places in row groups."""
        ends = np.searchsorted(places, starts)
        for number, one in enumerate(self.sought):
            among = places[ends[number] : ends[number + 1]] - starts[number]
            before = np.cumsum(sizes[number]) - sizes[number]
            page = np.searchsorted(before, among, side="right") - 1
            yield one, one.firsts[picked[number][page]] + among - before[page]

    def _rest(
        self, fields: Sequence[Field], cuts: Iterable[tuple[_Sought, Integers]], tally: Tally
    ) -> dict[str, pa.Array]:
        """Fields that were not read with the keys, of rows by their places in the row groups."""
        some = [(one, places) for one, places in cuts if len(places)]
        if not some:
            return {field.name: pa.nulls(0, field.type) for field in fields}
        if all(one.opened.footer.gives_pages(fields) for one, _ in some):
            return decoded([one.cut(Spans(places, places + 1), self.lookup, tally) for one, places in some], fields)
        ((one, places),) = some
        return GroupRows(one.opened, one.position, self.lookup.schema, self.lookup.kept, tally).take(fields, places)


_FIRST, _LAST = attrgetter("first"), attrgetter("last")
