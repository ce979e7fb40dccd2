"""Counts and samples rows, by the row counts in the state, and by ranks where a range cuts a file.

:func:`count` reads no rows. A file inside the range counts whole, or by half if a filter may hide rows of it: this is
off by at most the other half. An exact count reads its rows then. Where the range cuts a file, the file's summary
bounds the rank of the cut, and their middle is the estimate; for an exact count, the page of the cut is read.
References with estimated row counts are counted the same way.

:func:`sample` returns random rows without repetition. The rows of a table have positions, partition by partition and in
each partition file by file, so random positions are drawn, and their pages are read.

Errors: as :meth:`lakebed.read.reader.Reader.scan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakebed.model.files import summary_name
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import ALL_KEYS
from lakebed.read.plan import PartitionQuery, plan
from lakebed.state.sums import partition_sums, table_rows
from lakebed.state.visibility import Visibility

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.clock import Chance
    from lakebed.model.files import DataFile
    from lakebed.model.keys import EncodedRange
    from lakebed.read.reader import Reader
    from lakebed.state.table_state import TableState
    from lakebed.storage.contract import Storage


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

    @classmethod
    def within(cls, rows: int, error_rows: int) -> Self:
        """An estimate of ``rows``, off by at most ``error_rows``; exact if that is 0."""
        return cls(rows, error_rows == 0, error_rows)


def count(state: TableState, ranges: Sequence[EncodedRange], reader: Reader, storage: Storage | None) -> Count:
    """The number of rows with a key in any of the ranges, each counted once.

    With a ``storage``, summaries are read and the count may be an estimate; without one it is exact. Raises as
    :meth:`lakebed.read.reader.Reader.get`.
    """
    if ALL_KEYS in ranges and not state.filter_version:
        rows, error_rows = table_rows(state)
        if not error_rows:
            return Count.within(rows, 0)
    cuts = Cuts(state, reader, storage)
    planned = plan(state, ranges)
    if storage is None and not planned.shows_all:
        with reader.scan(planned, planned.schema.row_key_names[:1], None) as visible:
            return Count.within(sum(batch.num_rows for batch in visible), 0)
    parts = [(partition, keys) for partition in planned.partitions for keys in partition.ranges]
    counted = [_in_partition(state, partition, keys, cuts, planned.shown) for partition, keys in parts]
    return Count.within(sum(one.rows for one in counted), sum(one.error_rows for one in counted))


class Cuts:
    """Ranks of keys in files of a state: exact, or estimated from summaries if there is a storage to read them from."""

    def __init__(self, state: TableState, reader: Reader, storage: Storage | None = None) -> None:
        self._state = state
        self._reader = reader
        self._storage = storage
        self._summaries: dict[str, Summary | None] = {}

    def rows(self, file: DataFile, keys: EncodedRange) -> tuple[range, int]:
        """The rows of the file with keys in the range, and the error of their number."""
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
        """The summary of a file; None for a small file, which has none, and for a lost summary."""
        if self._storage is None or not file.summarised:
            return None
        if file.id not in self._summaries:
            name = summary_name(self._state.table, file)
            data = self._storage.get(name)
            self._summaries[file.id] = None if data is None else Summary.from_ipc(data, name)
        return self._summaries[file.id]


def _in_partition(
    state: TableState, partition: PartitionQuery, keys: EncodedRange, cuts: Cuts, shown: Visibility
) -> Count:
    position = state.partitions.position_of(partition.partition)
    assert position is not None, "a plan has partitions of its state"
    whole = keys == state.partitions.range_at(position)
    rows = error_rows = 0
    for held in state.held_by(partition.partition):
        if shown.hides_all(held.file) or not held.file.reaches(keys):
            continue
        if whole and held.exact:
            found, error = held.rows, 0
        else:
            inside, error = cuts.rows(held.file, keys)
            found = len(inside)
        if not shown.shows_all(held.file):
            # Any of them may be hidden.
            found = error = (found + error + 1) // 2
        rows, error_rows = rows + found, error_rows + error
    return Count.within(rows, error_rows)


# -- samples ------------------------------------------------------------------------------------------------------


def sample(state: TableState, rows: int, columns: Sequence[str], reader: Reader, chance: Chance) -> pa.Table | None:
    """``rows`` random rows of the state, in key order; None if it has no more than that. Raises as :func:`count`."""
    if state.filter_version:
        from lakebed.read.visible_rows import visible_sample

        return visible_sample(state, rows, columns, reader, chance)
    schema = state.created
    cuts = Cuts(state, reader)
    partitions = list(partition_sums(state).values())
    partitions.sort(key=lambda one: state.partitions.position_of(one.partition) or 0)
    held = [one.rows if one.exact else sum(_rows_held(state, one.partition, cuts)) for one in partitions]
    if rows >= sum(held):
        return None
    wanted = schema.arrow_of(columns)
    needed = tuple(dict.fromkeys((*columns, *schema.sort_names)))
    tables = [wanted.empty_table()]
    for index, positions in _divided(sorted(chance.sample(range(sum(held)), rows)), held):
        located = _located(state, partitions[index].partition, positions, cuts)
        read = pa.concat_tables([reader.take(file, schema, needed, inside) for file, inside in located])
        ordered = read.sort_by([(name, "ascending") for name in schema.sort_names])
        tables.append(pa.Table.from_arrays([ordered.column(name) for name in columns], schema=wanted))
    return pa.concat_tables(tables)


def _rows_held(state: TableState, partition: int, cuts: Cuts) -> list[int]:
    """The exact number of rows of each file in the partition."""
    held = state.held_by(partition)
    return [one.rows if one.exact else len(cuts.rows(one.file, _range(state, partition))[0]) for one in held]


def _range(state: TableState, partition: int) -> EncodedRange:
    position = state.partitions.position_of(partition)
    assert position is not None, "the partition is one of the state's"
    return state.partitions.range_at(position)


def _located(
    state: TableState, partition: int, positions: Sequence[int], cuts: Cuts
) -> Iterator[tuple[DataFile, list[int]]]:
    """The files with any of these rows of a partition, each with the rows' positions in the file, ascending."""
    for index, inside in _divided(positions, _rows_held(state, partition, cuts)):
        file = state.held_by(partition)[index].file
        live, _ = cuts.rows(file, _range(state, partition))
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
