"""Which files may be deleted. Pure: no I/O.

A file may go once it has no reference, and the log entry that dropped the last one is older, by the store's own stamps,
than both the GC delay (a reader that planned before may still be reading) and the history window (older states stay
readable), and no tag stands at a number that needs it. Entries are created one after another, so their stamps ascend
with their numbers: one number, found by binary search, parts what may go from what must stay.

What may go is marked first, and then deleted unless a reader's pin holds a number that needs it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import datetime

    from lakebed.files import CommittedFile
    from lakebed.settings import Settings
    from lakebed.state.table import TableState


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """``marked`` are files marked dead, whoever did that; ``due`` may be marked; ``waiting`` counts the rest."""

    marked: tuple[CommittedFile, ...]
    due: tuple[CommittedFile, ...]
    waiting: int


def horizon(now: datetime, settings: Settings) -> datetime:
    """What was dropped at or before this time may go; ``now`` is the store's."""
    return now - timedelta(seconds=max(settings.gc_delay_s, settings.history_s))


def plan(state: TableState, stamp_of: Callable[[int], datetime], before: datetime) -> CollectionPlan:
    """What may go. ``stamp_of`` gives the stamp of a log entry, and is asked for few of them."""
    unused = sorted(state.files.having("dropped"), key=lambda c: (c.dropped or 0, c.sequence_lo, c.file.id))
    marked = tuple(c for c in unused if c.dead)
    free = [c for c in unused if not c.dead and not state.tagged(c)]
    numbers = sorted({c.dropped or 0 for c in free})
    # The first number whose entry is too young; all from there on are.
    first = bisect_left(numbers, x=True, key=lambda number: stamp_of(number) > before)
    old = set(numbers[:first])
    due = tuple(c for c in free if c.dropped in old)
    return CollectionPlan(marked, due, len(unused) - len(marked) - len(due))


def unpinned(files: Iterable[CommittedFile], pins: Collection[int]) -> list[CommittedFile]:
    """Those of the files that the table does not refer to at any of the pinned numbers."""
    return [committed for committed in files if not any(map(committed.needed_at, pins))]
