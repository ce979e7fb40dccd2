"""Which files may be deleted. Pure: no I/O.

A file may go once it has no reference, and the log entry that dropped the last one is older, by the store's own stamps,
than both the GC delay (a reader that planned before may still be reading) and the history window (older states stay
readable), and no tag stands at a number that needs it. Entries are created one after another, so their stamps ascend
with their numbers: one number, found by binary search, parts what may go from what must stay.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lakebed.files import DataFile
    from lakebed.settings import Settings
    from lakebed.state.table import TableState


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """``unfinished`` were marked dead by a round that ended early; ``due`` may be; ``waiting`` counts the rest."""

    unfinished: tuple[DataFile, ...]
    due: tuple[DataFile, ...]
    waiting: int


def horizon(now: datetime, settings: Settings) -> datetime:
    """What was dropped at or before this time may go; ``now`` is the store's."""
    return now - timedelta(seconds=max(settings.gc_delay_s, settings.history_s))


def plan(state: TableState, stamp_of: Callable[[int], datetime], before: datetime) -> CollectionPlan:
    """What may go. ``stamp_of`` gives the stamp of a log entry, and is asked for few of them."""
    unused = [(c.dropped or 0, c.sequence_lo, c.file, c) for c in state.files.having("dropped") if c.file]
    unused.sort(key=lambda one: (one[0], one[1], one[2].id))
    unfinished = tuple(file for _, _, file, c in unused if c.dead)
    free = [(dropped, file) for dropped, _, file, c in unused if not c.dead and not state.tagged(c)]
    numbers = sorted({number for number, _ in free})
    # The first number whose entry is too young; all from there on are.
    first = bisect_left(numbers, x=True, key=lambda number: stamp_of(number) > before)
    old = set(numbers[:first])
    due = tuple(file for number, file in free if number in old)
    return CollectionPlan(unfinished, due, len(unused) - len(unfinished) - len(due))
