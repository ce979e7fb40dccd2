"""Counts and samples rows, by the row counts in the state, and by ranks where a range cuts a file.

:func:`count` reads no rows. A file inside the range counts whole, or by half if a filter may hide rows of it: this is
off by at most the other half. An exact count reads its rows then. Where the range cuts a file, the file's summary
bounds the rank of the cut, and their middle is the estimate; for an exact count, the page of the cut is read.
References with estimated row counts are counted the same way.

Where files overlap whose rows are merged, the count is an estimate between two bounds: all rows of the files, and the
rows of one of them less those that may be deleted, as a file has each key once. For an exact count the keys are
merged.

:func:`sample` returns random rows without repetition. The rows of a table have positions, partition by partition and in
each partition file by file, so random positions are drawn, and their pages are read. Merged rows have no position
before they are merged: they are sampled while all of them are read (:func:`reservoir`).

Errors: as :meth:`lakebed.read.rows.reader.Reader.scan`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from msgspec.structs import replace

from lakebed.model.arrays import empty_table
from lakebed.model.files import summary_name
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import ALL_KEYS, EncodedRange, sorted_by, successor
from lakebed.model.state.sums import partition_sums, table_rows
from lakebed.read.rows.plan import PartitionQuery, divided, is_merged, plan, successive
from lakebed.read.rows.visible_rows import visible_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.clock import Chance
    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.visibility import Visibility
    from lakebed.read.rows.plan import QueryPlan
    from lakebed.read.rows.reader import Reader
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.storage.contract import Storage

DRAWN_MIN = 64
SCANNED_SHARE = 8
"""If more than one row in eight would be drawn, a scan of all rows is cheaper than a page for each."""


@dataclass(frozen=True, slots=True)
class Count:
    """A row count: exact, or an estimate that is off by at most ``error_rows``."""

    rows: int
    exact: bool
    error_rows: int = 0

    @property
    def rows_min(self) -> int:
        """The lower bound of the count."""
        return max(0, self.rows - self.error_rows)

    @property
    def rows_max(self) -> int:
        """The upper bound of the count."""
        return self.rows + self.error_rows

    def _repr_html_(self) -> str:
        from lakebed.model.html_tables import facts, view

        bounds = [] if self.exact else [("at least", self.rows_min), ("at most", self.rows_max)]
        return view("Rows" if self.exact else "Rows, an estimate", facts([("rows", self.rows), *bounds]))

    @classmethod
    def within(cls, rows: int, error_rows: int) -> Self:
        """Return an estimate of ``rows``, off by at most ``error_rows``; exact if that is 0."""
        return cls(rows, error_rows == 0, error_rows)

    @classmethod
    def between(cls, rows_min: int, rows_max: int) -> Self:
        """Return an estimate between these bounds."""
        return cls.within((rows_min + rows_max + 1) // 2, (rows_max - rows_min + 1) // 2)


def count(state: TableState, ranges: Sequence[EncodedRange], reader: Reader, storage: Storage | None) -> Count:
    """Return the number of rows with a key in any of the ranges, each counted once.

    With a ``storage``, summaries are read and the count may be an estimate; without one it is exact. Raises as
    :meth:`lakebed.read.rows.reader.Reader.get`.
    """
    if ALL_KEYS in ranges and state.merge.keeps_all and not state.filter_version:
        estimate = table_rows(state)
        if not estimate.error_rows:
            return Count.within(estimate.rows, 0)
    row_ranges = RowRanges(state, reader, storage)
    planned = plan(state, ranges)
    if storage is None and not planned.shows_all:
        with reader.scan(planned, planned.schema.row_key_names[:1], None) as visible:
            return Count.within(sum(batch.num_rows for batch in visible), 0)
    counted: list[Count] = []
    to_merge: list[PartitionQuery] = []
    for part, references in _queries_by_range(planned, state):
        if storage is None and is_merged(planned.merge, part.files):
            to_merge.append(part)
            continue
        inside = _range(state, part.partition)
        shares = [_rows_of_reference(one, part.ranges[0], inside, row_ranges, planned.shown) for one in references]
        if not is_merged(planned.merge, part.files):
            counted.append(_all(shares))
        elif planned.merge.may_drop_rows:
            # A merge function may drop rows.
            counted.append(Count.between(0, _all(shares).rows_max))
        else:
            counted.append(_merged_count(part.files, shares))
    if to_merge:
        merging = replace(planned, partitions=tuple(to_merge))
        with reader.scan(merging, planned.schema.row_key_names[:1], None) as rows_merged:
            counted.append(Count(sum(batch.num_rows for batch in rows_merged), exact=True))
    return Count.within(sum(one.rows for one in counted), sum(one.error_rows for one in counted))


class RowRanges:
    """Ranks of keys in files of a state: exact, or estimated from summaries if there is a storage to read them from."""

    def __init__(self, state: TableState, reader: Reader, storage: Storage | None = None) -> None:
        self._state = state
        self._reader = reader
        self._storage = storage
        self._summaries: dict[str, Summary | None] = {}

    def rows(self, file: DataFile, keys: EncodedRange) -> tuple[range, int]:
        """Return the rows of the file with keys in the range, and the error of their number."""
        low, low_error = self._rank(file, keys.min)
        high, high_error = (file.rows, 0) if keys.max is None else self._rank(file, keys.max)
        return range(low, high), low_error + high_error

    def _rank(self, file: DataFile, bound: bytes) -> tuple[int, int]:
        if bound <= file.min_key:
            return 0, 0
        if bound > file.max_key:
            return file.rows, 0
        summary = self._summary(file)
        if summary is None:
            return self._reader.rank(file, self._state.created, bound), 0
        low, high = summary.bounds(bound)
        return (low + high + 1) // 2, (high - low + 1) // 2

    def _summary(self, file: DataFile) -> Summary | None:
        """Return the summary of a file; None for a small file, which has none, and for a lost summary."""
        if self._storage is None or not file.summarised:
            return None
        if file.id not in self._summaries:
            name = summary_name(self._state.table, file)
            data = self._storage.get(name)
            self._summaries[file.id] = None if data is None else Summary.of(file, data, name)
        return self._summaries[file.id]


def _queries_by_range(planned: QueryPlan, state: TableState) -> Iterator[tuple[PartitionQuery, list[PartitionFile]]]:
    """Partition queries of one range each, and their files; where rows are merged, the files of each overlap."""
    for query in planned.partitions:
        references = {one.file.id: one for one in state.held_by(query.partition)}
        for keys in query.ranges:
            if planned.merge.keeps_all:
                groups = [(keys, tuple([file for file in query.files if file.reaches(keys)]))]
            else:
                groups = list(successive(query.files, keys))
            for part, files in groups:
                yield replace(query, ranges=(part,), files=files), [references[file.id] for file in files]


def _rows_of_reference(
    reference: PartitionFile, keys: EncodedRange, inside: EncodedRange, row_ranges: RowRanges, shown: Visibility
) -> Count:
    """Return the number of rows in the range that a file has ``inside`` its partition, as far as they are ``shown``."""
    file = reference.file
    live = EncodedRange(file.min_key, successor(file.max_key)).intersect(inside)
    if reference.exact and (keys == inside or keys.covers(live)):
        rows, error_rows = reference.rows, 0
    else:
        positions, error_rows = row_ranges.rows(file, keys.intersect(inside))
        rows = len(positions)
    if not shown.shows_all(file):
        # Any of them may be hidden.
        rows = error_rows = (rows + error_rows + 1) // 2
    return Count.within(rows, error_rows)


def _all(shares: Sequence[Count]) -> Count:
    return Count.within(sum(one.rows for one in shares), sum(one.error_rows for one in shares))


def _merged_count(files: Sequence[DataFile], shares: Sequence[Count]) -> Count:
    """Return the number of merged rows: at least those of one file, less the rows that may be deletes."""
    rows_min = max(one.rows_min for one in shares) - sum(file.markers for file in files)
    return Count.between(max(0, rows_min), sum(one.rows_max for one in shares))


# -- samples ------------------------------------------------------------------------------------------------------


def sample(state: TableState, rows: int, columns: Sequence[str], reader: Reader, chance: Chance) -> pa.Table | None:
    """``rows`` random rows of the state, in key order; None if it has no more than that. Raises as :func:`count`.

    If rows are merged, all of them are read.
    """
    if not rows:
        return empty_table(state.created.arrow_of(columns))
    if not state.merge.keeps_all:
        everything = plan(state, [ALL_KEYS])
        if divided(everything)[1].partitions:
            with reader.scan(everything, columns, None) as merged:
                return reservoir(merged, rows, chance)
    if state.filter_version:
        return _visible_sample(state, rows, columns, reader, chance)
    schema = state.created
    row_ranges = RowRanges(state, reader)
    partitions = list(partition_sums(state).values())
    partitions.sort(key=lambda one: state.partitions.position_of(one.partition) or 0)
    counts = [one.rows if one.exact else sum(_rows_held(state, one.partition, row_ranges)) for one in partitions]
    if rows >= sum(counts):
        return None
    wanted = schema.arrow_of(columns)
    needed = tuple(dict.fromkeys((*columns, *schema.sort_names)))
    tables = [empty_table(wanted)]
    for index, positions in _divided(sorted(chance.sample(range(sum(counts)), rows)), counts):
        located = _located(state, partitions[index].partition, positions, row_ranges)
        read = pa.concat_tables([reader.take(file, schema, needed, inside) for file, inside in located])
        ordered = sorted_by(read, schema.sort_names)
        tables.append(pa.Table.from_arrays([ordered.column(name) for name in columns], schema=wanted))
    return pa.concat_tables(tables)


def _visible_sample(
    state: TableState, rows: int, columns: Sequence[str], reader: Reader, chance: Chance
) -> pa.Table | None:
    """As :func:`sample`, of the visible rows.

    Rows are drawn from all, and hidden ones are dropped: that leaves every visible row equally likely. If too few are
    left, more are drawn anew; if most rows are hidden, all are scanned, first to count them.
    """

    def drawn_rows(bare: TableState, names: Sequence[str]) -> pa.Table:
        found = sample(bare, draw, names, reader, chance)
        assert found is not None, "fewer rows are drawn than there are"
        return found

    draw, draw_max = 2 * rows + DRAWN_MIN, table_rows(state).rows // SCANNED_SHARE
    while draw <= draw_max:
        drawn = visible_rows(state, columns, drawn_rows)
        if drawn.num_rows >= rows:
            return drawn.take(sorted(chance.sample(range(drawn.num_rows), rows)))
        draw *= 4
    visible = plan(state, [ALL_KEYS])
    with reader.scan(visible, visible.schema.row_key_names[:1], None) as keys:
        count = sum(batch.num_rows for batch in keys)
    if count <= rows:
        return None
    wanted = sorted(chance.sample(range(count), rows))
    found = [empty_table(visible.schema.arrow_of(columns))]
    begin = 0
    with reader.scan(visible, columns, None) as batches:
        for batch in batches:
            end = begin + batch.num_rows
            inside = wanted[bisect_left(wanted, begin) : bisect_left(wanted, end)]
            found.append(pa.Table.from_batches([batch.take(pa.array([place - begin for place in inside], pa.int64()))]))
            begin = end
    return pa.concat_tables(found)


def reservoir(rows: RowStream, count: int, chance: Chance) -> pa.Table:
    """``count`` random rows of a stream in their order, or all if there are no more; it is read to its end.

    Algorithm L (Li, Reservoir-Sampling Algorithms of Time Complexity O(n(1 + log(N/n))), 1994): each further row takes
    the place of a random one, and the number of rows until the next that does is drawn at once.
    """
    places: list[tuple[int, pa.RecordBatch]] = []
    passed, following, log_weight = 0, 0, 0.0
    for batch in rows if count else ():
        taken: dict[int, int] = {}
        while following < passed + batch.num_rows:
            if following < count:
                taken[following] = following
            else:
                taken[chance.randrange(count)] = following
            following += 1
            if following >= count:
                log_weight -= chance.expovariate(1.0) / count
                following += int(chance.expovariate(1.0) / -math.log(-math.expm1(log_weight)))
        # Taken at once, and copied: a slice of the batch would hold all of it.
        picked = batch.take(pa.array([number - passed for number in taken.values()], pa.int64()))
        for index, (slot, number) in enumerate(taken.items()):
            places[slot : slot + 1] = [(number, picked.slice(index, 1))]
        passed += batch.num_rows
    sampled = [one for _, one in sorted(places, key=itemgetter(0))]
    return pa.Table.from_batches(sampled, rows.schema).combine_chunks()


def _rows_held(state: TableState, partition: int, row_ranges: RowRanges) -> list[int]:
    """Return the exact number of rows of each file in the partition."""
    references = state.held_by(partition)
    return [
        one.rows if one.exact else len(row_ranges.rows(one.file, _range(state, partition))[0]) for one in references
    ]


def _range(state: TableState, partition: int) -> EncodedRange:
    position = state.partitions.position_of(partition)
    assert position is not None, "the partition is one of the state's"
    return state.partitions.range_at(position)


def _located(
    state: TableState, partition: int, positions: Sequence[int], row_ranges: RowRanges
) -> Iterator[tuple[DataFile, list[int]]]:
    """Return the files with any of these rows of a partition, each with the rows' positions in the file, ascending."""
    for index, inside in _divided(positions, _rows_held(state, partition, row_ranges)):
        file = state.held_by(partition)[index].file
        live, _ = row_ranges.rows(file, _range(state, partition))
        yield file, [live[position] for position in inside]


def _divided(numbers: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Divide ascending numbers among consecutive ranges of these lengths: the index of a range, and offsets into it."""
    begins = [0, *accumulate(counts)]

    def located() -> Iterable[tuple[int, int]]:
        index = 0
        for number in numbers:
            while number >= begins[index + 1]:
                index += 1
            yield index, number - begins[index]

    for index, several in groupby(located(), key=lambda pair: pair[0]):
        yield index, [number for _, number in several]
