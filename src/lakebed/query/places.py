"""Rows of a file by their places: where keys lie in it, exactly, and the rows that stand at given places.

A sorted file with a page index answers both without being read: which pages may hold a key is known, of those the key
columns are decoded, and all keys that are looked for are searched among them at once, by a binary search whose steps
are Arrow's and NumPy's. So ten thousand keys cost ten thousand pages at the most, and no more than all pages of the
file; a rank, which counts and samples rest on, costs one.

A column without a page index, or of nested values, is read for the whole row group. Files are local, or copies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.query.decoding import Cut, decoded
from lakebed.query.pages import PagedFile, Spans
from lakebed.query.searching import lower_ranks

if TYPE_CHECKING:
    from lakebed.arrays import Integers
    from lakebed.keys import KeyCodec
    from lakebed.query.cache import ReadCache
    from lakebed.query.footer import RowGroup
    from lakebed.query.opening import OpenFile
    from lakebed.schema import Field, Schema


STEPS = 16
"""Of a binary search among the rows of a row group's pages: each costs about what it costs to match one row."""


@dataclass(frozen=True, slots=True)
class Found:
    """Rows that have keys which were looked for: for each the key's index, and its place in the row group; ascending.

    ``keys`` are their row key columns.
    """

    indices: Integers
    places: Integers
    keys: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class GroupRows:
    """One row group of an open file, which has a ``path``."""

    opened: OpenFile
    position: int
    schema: Schema
    kept: ReadCache

    @property
    def group(self) -> RowGroup:
        """What the footer says of it."""
        return self.opened.footer.groups[self.position]

    def ranks(self, bounds: Sequence[bytes]) -> Integers:
        """For each of the ascending bounds, how many rows of the row group have a smaller key."""
        near = self._near(bounds)
        return near.ranks(near.search(self.schema.codec, bounds))

    def find(self, keys: Sequence[bytes]) -> Found:
        """The rows that have one of the keys, which ascend."""
        if len(keys) * STEPS > self.group.rows:
            return self._matched(keys)
        # No key's encoding begins another's, so what lies between a key and this are its own rows.
        bounds = [bound for key in keys for bound in (key, key + b"\x00")]
        near = self._near(bounds)
        ends = near.search(self.schema.codec, bounds).reshape(-1, 2)
        counts = ends[:, 1] - ends[:, 0]
        indices = np.repeat(np.arange(len(keys)), counts)
        among = Spans(ends[:, 0], ends[:, 1]).every()
        return Found(indices, near.rows_at(among), near.keys.take(pa.array(among)))

    def _matched(self, keys: Sequence[bytes]) -> Found:
        """The same for so many keys that it is cheaper to ask for each row whether its key is one of them."""
        picked: list[int] | range = range(1)
        firsts = np.array([0, self.group.rows])
        if self.opened.footer.paged:
            known = self.file.key_pages(self.position, self.group)
            bounds = zip(known.fences.starts, known.fences.ends, strict=True)
            wanted = (bisect_left(keys, low) < bisect_left(keys, high) for low, high in bounds)
            picked = [page for page, some in enumerate(wanted) if some]
            firsts = np.append(np.asarray(known.first_rows, np.int64), self.group.rows)
        none = np.zeros(0, np.int64)
        near = _Near(self._keys(firsts, np.array(picked, np.int64)), np.array(picked, np.int64), firsts, none, none)
        which = pc.index_in(self.schema.codec.encode_columns(near.keys), value_set=pa.array(keys, pa.binary()))
        among = np.flatnonzero(which.is_valid().to_numpy(zero_copy_only=False))
        indices = which.drop_null().to_numpy().astype(np.int64)
        return Found(indices, near.rows_at(among), near.keys.take(pa.array(among)))

    def take(self, fields: Sequence[Field], places: Integers) -> dict[str, pa.Array]:
        """The rows at these ascending places, by field.

        Raises OSError or ArrowException if the file is not what was written.
        """
        footer = self.opened.footer
        paged = [field for field in fields if footer.gives_pages([field])]
        found = {}
        if paged:
            found = self._decoded(paged, Spans(places, places + 1))
        whole = [field for field in fields if field.name not in found]
        return found | {name: column.take(pa.array(places)) for name, column in self._whole(whole).items()}

    def _near(self, bounds: Sequence[bytes]) -> _Near:
        """The keys of the pages in which the bounds may lie."""
        if not self.opened.footer.paged:
            firsts, low = np.array([0, self.group.rows]), np.zeros(len(bounds), np.int64)
            return _Near(self._keys(firsts, low[:1]), low[:1], firsts, low, low + 1)
        known = self.file.key_pages(self.position, self.group)
        starts, ends = known.fences.starts, known.fences.ends
        low = np.array([bisect_right(ends, bound) for bound in bounds], np.int64)
        high = np.maximum(low, np.array([bisect_left(starts, bound) for bound in bounds], np.int64))
        firsts = np.append(np.asarray(known.first_rows, np.int64), self.group.rows)
        picked = np.unique(Spans(low, high).every())
        return _Near(self._keys(firsts, picked), picked, firsts, low, high)

    def _keys(self, firsts: Integers, picked: Integers) -> pa.RecordBatch:
        """The row key columns of these pages of the first of them; all rows, if the file has no page index."""
        fields = list(self.schema.row_key)
        if not len(picked):
            columns = {field.name: pa.array([], field.type) for field in fields}
        elif self.opened.footer.paged:
            columns = self._decoded(fields, Spans(firsts[picked], firsts[picked + 1]))
        else:
            columns = self._whole(fields)
        return pa.RecordBatch.from_arrays([columns[field.name] for field in fields], [field.name for field in fields])

    @property
    def file(self) -> PagedFile:
        """The file, to be read by pages."""
        return PagedFile(self.opened, self.schema, self.kept)

    def _decoded(self, fields: Sequence[Field], rows: Spans) -> dict[str, pa.Array]:
        return decoded([Cut(self.file, self.position, self.group, rows)], fields)

    def _whole(self, fields: Sequence[Field]) -> dict[str, pa.Array]:
        """All rows of the row group, by field; null where the file has no such column."""
        names = self.opened.footer.names
        stored = {field.name: names[field.id] for field in fields if field.id in names}
        found = {field.name: pa.nulls(self.group.rows, field.type) for field in fields if field.name not in stored}
        if stored:
            with pq.ParquetFile(self.opened.path, page_checksum_verification=True) as file:
                rows = file.read_row_group(self.position, columns=list(stored.values()), use_threads=False)
            for field in fields:
                if field.name in stored:
                    column = rows.column(stored[field.name]).combine_chunks()
                    found[field.name] = column if column.type == field.type else column.cast(field.type)
        return found


@dataclass(frozen=True, slots=True)
class _Near:
    """The keys of some pages of a row group, one after another, and for each bound the pages that it may lie in.

    ``firsts`` has the first row of every page of the row group, and its rows; ``picked`` are the pages that were read.
    """

    keys: pa.RecordBatch
    picked: Integers
    firsts: Integers
    low: Integers
    high: Integers

    @property
    def before(self) -> Integers:
        """How many keys the pages before each of the picked ones have, and all of them."""
        return np.append(0, np.cumsum(self.firsts[self.picked + 1] - self.firsts[self.picked]))

    def search(self, codec: KeyCodec, bounds: Sequence[bytes]) -> Integers:
        """For each bound, how many of the keys are smaller."""
        low, high = (self.before[np.searchsorted(self.picked, page)] for page in (self.low, self.high))
        return lower_ranks(self.keys, codec, bounds, low, high)

    def ranks(self, found: Integers) -> Integers:
        """Ranks of the bounds among the keys as ranks in the row group."""
        first = self.firsts[self.low]
        before = self.before[np.searchsorted(self.picked, self.low)]
        return np.where(self.low == self.high, first, first + found - before)

    def rows_at(self, among: Integers) -> Integers:
        """Which rows of the row group these of the keys are."""
        page = np.searchsorted(self.before, among, side="right") - 1
        return self.firsts[self.picked[page]] + among - self.before[page]


def rank(opened: OpenFile, schema: Schema, kept: ReadCache, bound: bytes) -> int:
    """How many rows of a file have a key below the bound: reads one page, as a rule."""
    fences = opened.footer.fences
    groups = opened.footer.groups
    position = bisect_right(fences.ends, bound)
    passed = sum(group.rows for group in groups[:position])
    for reached in range(position, bisect_left(fences.starts, bound)):
        passed += int(GroupRows(opened, reached, schema, kept).ranks([bound])[0])
    return passed


def parts(opened: OpenFile, keys: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """The row groups that may have some of the ascending keys: each with the half-open range of these."""
    fences = opened.footer.fences
    for position, (start, end) in enumerate(zip(fences.starts, fences.ends, strict=True)):
        first, last = bisect_left(keys, start), bisect_left(keys, end)
        if first < last:
            yield position, first, last


def places_by_group(opened: OpenFile, places: Sequence[int]) -> Iterator[tuple[int, Integers]]:
    """The ascending places in a file as places in row groups: each row group that has any, and these."""
    passed = first = 0
    for position, group in enumerate(opened.footer.groups):
        last = bisect_left(places, passed + group.rows, first)
        if first < last:
            yield position, np.array(places[first:last], np.int64) - passed
        passed, first = passed + group.rows, last
