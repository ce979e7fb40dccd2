"""How many rows have certain keys, without reading them: from the state, and where a range cuts a file, its keys.

Rows are all kept, so those of a range are what its files have inside. A file that lies in the range counts whole. Where
a file is cut, its summary has bounds for the rank of the cut, and the middle of them is the estimate; or the page where
the cut lies is read, which tells it exactly. What the state has as an estimate is counted the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from lakebed.model.files import summary_name
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import ALL_KEYS
from lakebed.read.plan import PartitionQuery, plan
from lakebed.state.sums import table_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.files import DataFile
    from lakebed.model.keys import EncodedRange
    from lakebed.read.reader import Reader
    from lakebed.state.table_state import TableState
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows: exact, or an estimate that is off by at most ``error_rows``."""

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
    """The rows with a key in any of the ranges, each once.

    Without a storage no summary is asked, and the count is exact. Raises as :meth:`lakebed.read.reader.Reader.get`.
    """
    if ALL_KEYS in ranges:
        rows, error_rows = table_rows(state)
        if not error_rows:
            return Count.within(rows, 0)
    cuts = Cuts(state, reader, storage)
    partitions = plan(state, ranges).partitions
    counted = [_in_partition(state, partition, keys, cuts) for partition in partitions for keys in partition.ranges]
    return Count.within(sum(one.rows for one in counted), sum(one.error_rows for one in counted))


class Cuts:
    """Ranks of bounds in files of a state: exact, or as summaries tell them if there is a storage to ask for these."""

    def __init__(self, state: TableState, reader: Reader, storage: Storage | None = None) -> None:
        self._state = state
        self._reader = reader
        self._storage = storage
        self._summaries: dict[str, Summary | None] = {}

    def rows(self, file: DataFile, keys: EncodedRange) -> tuple[range, int]:
        """Which rows of the file have such keys, and by how many rows that may be off."""
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
        """None where there is none: that of a small file was never made, and another may be lost."""
        if self._storage is None or not file.summarised:
            return None
        if file.id not in self._summaries:
            name = summary_name(self._state.table, file)
            data = self._storage.get(name)
            self._summaries[file.id] = None if data is None else Summary.from_ipc(data, name)
        return self._summaries[file.id]


def _in_partition(state: TableState, partition: PartitionQuery, keys: EncodedRange, cuts: Cuts) -> Count:
    position = state.partitions.position_of(partition.partition)
    assert position is not None, "a plan has partitions of its state"
    whole = keys == state.partitions.range_at(position)
    rows = error_rows = 0
    for held in state.held_by(partition.partition):
        if whole and held.exact:
            rows += held.rows
        elif held.file.reaches(keys):
            inside, error = cuts.rows(held.file, keys)
            rows, error_rows = rows + len(inside), error_rows + error
    return Count.within(rows, error_rows)
