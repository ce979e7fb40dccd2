"""Splitting the leaves of a table that are too large. Metadata only: reads summaries, commits, moves no data.

Leaves are looked at once a call; the parts of one cut are of the right size as far as its summaries tell, and what
turns out otherwise is cut by the next call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.log.outcomes import NotCommitted, number_of
from lakebed.objects import load_summaries
from lakebed.splitting.plan import CompactFirst, NotSplit, SplitAt, choose, due
from lakebed.state.transactions import OfferSplit

if TYPE_CHECKING:
    from lakebed.table import Table


@dataclass(frozen=True, slots=True)
class SplitLeafReport:
    """A leaf that was cut, and into how many."""

    leaf: int
    parts: int


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What splitting did. ``number`` is the log number of the last commit, None if there was nothing to do."""

    table: str
    split: tuple[SplitLeafReport, ...]
    not_split: tuple[NotSplit, ...]
    number: int | None

    @property
    def compact_first(self) -> tuple[int, ...]:
        """Leaves that can be split once they are compacted."""
        return tuple(found.leaf for found in self.not_split if isinstance(found, CompactFirst))


def split(table: Table) -> SplitReport:
    """Cut every leaf that exceeds a limit, as far as can be known where to.

    Raises:
        DamagedError: a summary, or a file whose summary is gone, is damaged.
        ContentionError, UnknownOutcomeError, StorageError: the log; leaves cut before stay cut.
    """
    state = table.state()
    found = due(state, table.settings_in_force())
    done: list[SplitLeafReport] = []
    not_split = list(found.waiting)
    number: int | None = None
    for large in found.large:
        files = [state.files[file_id].file for file_id in large.files]
        cuts = state.leaves.boundaries
        summaries = load_summaries(table.storage, table.id, files, table.schema, cuts=cuts)
        chosen = choose(large, list(summaries.values()))
        if not isinstance(chosen, SplitAt):
            not_split.append(chosen)
            continue
        outcome = table.try_commit(OfferSplit(chosen.leaf, chosen.keys, summaries))
        if isinstance(outcome, NotCommitted):
            not_split.append(NotSplit(chosen.leaf, outcome.reason))
            continue
        number = number_of(outcome, f"table {table.name}")
        done.append(SplitLeafReport(chosen.leaf, len(chosen.keys) + 1))
    return SplitReport(table.name, tuple(done), tuple(not_split), number)
