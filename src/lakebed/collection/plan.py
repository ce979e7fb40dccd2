"""Which files may be deleted. Pure: no I/O.

A file may go once it has no reference, and the log entry that dropped the last one is older, by the store's own stamps,
than both the GC delay (a reader that planned before may still be reading) and the history window (older states stay
readable), and no tag stands at a number that needs it. Entries are created one after another, so their stamps ascend
with their numbers: one number, found by binary search, parts what may go from what must stay.

What may go is marked first, and then deleted unless a reader's pin holds a number that needs it.

Request keys go in the same way: :func:`forget_line` says below which base number.
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
    from lakebed.state.table import Answer, TableState


REQUESTS_MAX = 1_000_000
"""Request keys that are kept, some 100 MB of a state. Of more the lowest base numbers go, however young."""

FORGET_STEPS = 8
"""The line is raised once an eighth of the keys, or of their time, is over: it takes an entry, and a look at all."""


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
    # What is not retained any more was old before: its entry may have been trimmed.
    numbers = sorted({c.dropped for c in free if c.dropped is not None and c.dropped > state.retained_from})
    # The first number whose entry is too young; all from there on are.
    young = set(numbers[bisect_left(numbers, x=True, key=lambda number: stamp_of(number) > before) :])
    due = tuple(c for c in free if c.dropped not in young)
    return CollectionPlan(marked, due, len(unused) - len(marked) - len(due))


def unpinned(files: Iterable[CommittedFile], pins: Collection[int]) -> list[CommittedFile]:
    """Those of the files that the table does not refer to at any of the pinned numbers."""
    return [committed for committed in files if not any(map(committed.needed_at, pins))]


def forget_line(
    state: TableState, stamp_of: Callable[[int], datetime | None], now: datetime, settings: Settings
) -> int | None:
    """What the forget line should be raised to; None: it is not time yet, or nothing is to be forgotten.

    What was committed in the last ``requests_s`` is kept, however low its base number: who repeats a request soon need
    not know that number. ``stamp_of`` gives the stamp of a log entry; None: it is not there any more, so that nobody
    can tell how old the requests before it are.
    """
    if not state.requests and not state.fences:
        return None
    kept = timedelta(seconds=settings.requests_s)
    oldest = stamp_of(min(state.forget_line + 1, state.number))
    if len(state.requests) <= REQUESTS_MAX and oldest is not None and oldest > now - kept - kept / FORGET_STEPS:
        return None
    answers = list(state.requests.having("number"))
    line = _old_requests(state, answers, stamp_of, now - kept)
    if len(answers) > REQUESTS_MAX:
        bases = sorted(answer.base_number for answer in answers)
        line = max(line, bases[len(bases) - REQUESTS_MAX + REQUESTS_MAX // FORGET_STEPS - 1] + 1)
    due = any(answer.base_number < line for answer in answers) or any(fence.number <= line for fence in state.fences)
    return line if due and line > state.forget_line else None


def _old_requests(
    state: TableState, answers: Iterable[Answer], stamp_of: Callable[[int], datetime | None], before: datetime
) -> int:
    def is_young(number: int) -> bool:
        stamp = stamp_of(number)
        return stamp is not None and stamp > before

    numbers = range(1, state.number + 1)
    young = numbers.start + bisect_left(numbers, x=True, key=is_young)
    if young == 1 or stamp_of(young - 1) is None:
        return state.forget_line
    return min([young, state.number, *(answer.base_number for answer in answers if answer.number >= young)])
