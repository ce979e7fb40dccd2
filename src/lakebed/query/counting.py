"""How many rows have certain keys, without reading them: from the state, and where a range cuts a file, its keys.

Rows are all kept, so those of a range are what its files have inside. A file that lies in the range counts whole; of
one that is cut, its summary tells the rank of the cut, as near as that goes, or the one page where the cut lies does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.files import summary_name
from lakebed.keys import ALL_KEYS
from lakebed.query.plan import LeafQuery, plan
from lakebed.state.sums import table_rows
from lakebed.summaries import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.files import DataFile
    from lakebed.keys import EncodedRange
    from lakebed.query.run import Reader
    from lakebed.state.table import TableState
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class Count:
    """So many rows; about so many if it is not ``exact``."""

    rows: int
    exact: bool


def count(state: TableState, ranges: Sequence[EncodedRange], reader: Reader, storage: Storage | None) -> Count:
    """The rows with a key in any of the ranges, each once.

    Without a storage no summary is asked, and the count is exact. Raises as :meth:`lakebed.query.run.Reader.get`.
    """
    if ALL_KEYS in ranges:
        rows, exact = table_rows(state)
        if exact or storage is not None:
            return Count(rows, exact)
    cuts = Cuts(state, reader, storage)
    leaves = plan(state, ranges).leaves
    counted = [_in_leaf(state, leaf, keys, cuts) for leaf in leaves for keys in leaf.ranges]
    return Count(sum(one.rows for one in counted), all(one.exact for one in counted))


class Cuts:
    """Ranks of bounds in files of a state: exact, or as summaries tell them if there is a storage to ask for these."""

    def __init__(self, state: TableState, reader: Reader, storage: Storage | None = None) -> None:
        self._state = state
        self._reader = reader
        self._storage = storage
        self.exact = storage is None
        self._summaries: dict[str, Summary | None] = {}

    def rows(self, file: DataFile, keys: EncodedRange) -> tuple[range, bool]:
        """Which rows of the file have such keys, and whether that is exact."""
        low, low_exact = self._rank(file, keys.min)
        high, high_exact = (file.rows, True) if keys.max is None else self._rank(file, keys.max)
        return range(low, high), low_exact and high_exact

    def _rank(self, file: DataFile, bound: bytes) -> tuple[int, bool]:
        if bound <= file.min_key:
            return 0, True
        if bound > file.max_key:
            return file.rows, True
        summary = self._summary(file)
        if summary is None:
            return self._reader.rank(file, self._state.created, bound), True
        return summary.rank(bound)

    def _summary(self, file: DataFile) -> Summary | None:
        """None where there is none: that of a small file was never made, and another may be lost."""
        if self._storage is None or not file.summarised:
            return None
        if file.id not in self._summaries:
            name = summary_name(self._state.table, file)
            data = self._storage.get(name)
            self._summaries[file.id] = None if data is None else Summary.from_ipc(data, name)
        return self._summaries[file.id]


def _in_leaf(state: TableState, leaf: LeafQuery, keys: EncodedRange, cuts: Cuts) -> Count:
    position = state.leaves.position_of(leaf.leaf)
    assert position is not None, "a plan has leaves of its state"
    whole = keys == state.leaves.range_at(position)
    rows, exact = 0, True
    for held in state.held_by(leaf.leaf):
        if whole and (held.exact or not cuts.exact):
            rows, exact = rows + held.rows, exact and held.exact
        elif held.file.reaches(keys):
            inside, known = cuts.rows(held.file, keys)
            rows, exact = rows + len(inside), exact and known
    return Count(rows, exact)
