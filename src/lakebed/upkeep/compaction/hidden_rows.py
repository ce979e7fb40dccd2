"""Selects files for compaction because they contain hidden rows, even if no other compaction is due. Pure: no I/O.

* A file with rows that are past the table's age-off by more than a quarter of the age is due. So each row is rewritten
  for this at most once in a quarter of the age, and none stays longer than five quarters of it. Files with all rows
  past the age-off are not read: :class:`~lakebed.model.state.transactions.age_off.ProposeExpiry` drops them.
* The bounds of files have times only if the age-off uses a key field. With a value field, a file is due once it was
  written before the cut: most rows have times close to when they were written.
* The strategy ``full`` also selects files from before the last change of the predicate.

In a table that merges rows, a job may drop hidden rows only if no older file is left out, so all files of a partition
are merged if one is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.model.settings import Strategy
from lakebed.model.state.visibility import FileTimes, kept_by_jobs

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.state.table_state import TableState

AGED_SHARE = 4
"""Rows are kept for at most this fraction of the age past the age-off: 1/4."""

_US = 1_000_000


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """The due files of a state under a strategy."""

    state: TableState
    strategy: Strategy
    times: FileTimes | None
    aged_us: int

    @classmethod
    def of(cls, state: TableState, strategy: Strategy) -> HiddenRows | None:
        """Return the due files; None if the table has no filter that jobs apply."""
        completes = not state.merge.by_sort_key
        if not state.filter_version or not kept_by_jobs(state, complete=completes):
            return None
        row_filter = state.row_filter
        aged_us = state.age_off_cut_us - row_filter.age_s * _US // AGED_SHARE if state.age_off_cut_us else 0
        return cls(state, strategy, FileTimes.of(state), aged_us)

    def due(self, partition: int, busy: Collection[str]) -> list[PartitionFile]:
        """Return a partition's files to merge for hidden rows, in order of arrival; none is in a job (``busy``)."""
        references = self.state.held_by(partition)
        if self.state.merge.keeps_all:
            return [one for one in references if one.file.id not in busy and self.is_due(one.file)]
        is_free = all(one.file.id not in busy for one in references)
        return list(references) if is_free and any(self.is_due(one.file) for one in references) else []

    def is_due(self, file: DataFile) -> bool:
        """Return whether the file is to be rewritten without its hidden rows."""
        if self.times is not None and self.times.are_known(file):
            aged = self.times.any_before(file, self.aged_us)
        else:
            aged = file.last_modified_us < self.state.age_off_cut_us
        if aged:
            return True
        if self.strategy is not Strategy.FULL or not self.state.row_filter.predicate:
            return False
        return self.state.files[file.id].added <= self.state.filter_version
