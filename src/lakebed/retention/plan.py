"""Which files may be deleted. Pure: no I/O.

A file may go once it has no reference, and the log entry that dropped the last one is older, by the store's own
last-modified times, than both the GC delay (a reader that planned before may still be reading) and the history window
(older states stay readable), and no tag stands at a version that needs it. Entries are created one after another, so
their last-modified times ascend with their versions: one version, found by binary search, parts what may go from what
must stay.

What may go is marked first, and then deleted unless a reader's pin holds a number that needs it.

Request keys go in the same way: :func:`request_watermark` says below which base version.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import datetime

    from lakebed.model.files import CommittedFile
    from lakebed.settings import Settings
    from lakebed.state.table_state import Answer, TableState


REQUESTS_MAX = 1_000_000
"""Request keys that are kept, some 100 MB of a state. Of more the lowest base version go, however young."""

REQUEST_WATERMARK_STEPS = 8
"""The line is raised once an eighth of the keys, or of their time, is over: it takes an entry, and a look at all."""


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """``marked`` are files retired, whoever did that; ``due`` may be marked; ``waiting`` counts the rest."""

    marked: tuple[CommittedFile, ...]
    due: tuple[CommittedFile, ...]
    waiting: int


def cutoff(now: datetime, settings: Settings) -> datetime:
    """What was dropped at or before this time may go; ``now`` is the store's."""
    return now - timedelta(seconds=max(settings.gc_delay_s, settings.history_s))


def plan(state: TableState, last_modified_of: Callable[[int], datetime], before: datetime) -> CollectionPlan:
    """What may go. ``last_modified_of`` gives the last-modified time of a log entry, and is asked for few of them."""
    unused = sorted(state.files.having("dropped"), key=lambda c: (c.dropped or 0, c.sequence_lo, c.facts.id))
    marked = tuple(c for c in unused if c.retired)
    free = [c for c in unused if not c.retired and not state.tagged(c)]
    # What is not retained any more was old before: its entry may have been truncated.
    versions = sorted(
        {c.dropped for c in free if c.dropped is not None and c.dropped > state.earliest_retained_version}
    )
    # The first version whose entry is too young; all from there on are.
    young = set(versions[bisect_left(versions, x=True, key=lambda version: last_modified_of(version) > before) :])
    due = tuple(c for c in free if c.dropped not in young)
    return CollectionPlan(marked, due, len(unused) - len(marked) - len(due))


def unpinned(files: Iterable[CommittedFile], pins: Collection[int]) -> list[CommittedFile]:
    """Those of the files that the table does not refer to at any of the pinned numbers."""
    return [committed for committed in files if not any(map(committed.needed_at, pins))]


def request_watermark(
    state: TableState, last_modified_of: Callable[[int], datetime | None], now: datetime, settings: Settings
) -> int | None:
    """What the request watermark should be raised to; None: it is not time yet, or nothing is to be forgotten.

    What was committed in the last ``requests_s`` is kept, however low its base version: who repeats a request soon need
    not know that version. ``last_modified_of`` gives the last-modified time of a log entry; None: it is not there any
    more, so that nobody can tell how old the requests before it are.
    """
    if not state.requests and not state.fences:
        return None
    retained = timedelta(seconds=settings.requests_s)
    oldest = last_modified_of(min(state.request_watermark + 1, state.version))
    if (
        len(state.requests) <= REQUESTS_MAX
        and oldest is not None
        and oldest > now - retained - retained / REQUEST_WATERMARK_STEPS
    ):
        return None
    answers = list(state.requests.having("version"))
    line = _old_requests(state, answers, last_modified_of, now - retained)
    if len(answers) > REQUESTS_MAX:
        bases = sorted(answer.base_version for answer in answers)
        line = max(line, bases[len(bases) - REQUESTS_MAX + REQUESTS_MAX // REQUEST_WATERMARK_STEPS - 1] + 1)
    due = any(answer.base_version < line for answer in answers) or any(fence.version <= line for fence in state.fences)
    return line if due and line > state.request_watermark else None


def _old_requests(
    state: TableState, answers: Iterable[Answer], last_modified_of: Callable[[int], datetime | None], before: datetime
) -> int:
    def is_young(version: int) -> bool:
        last_modified = last_modified_of(version)
        return last_modified is not None and last_modified > before

    versions = range(1, state.version + 1)
    young = versions.start + bisect_left(versions, x=True, key=is_young)
    if young == 1 or last_modified_of(young - 1) is None:
        return state.request_watermark
    return min([young, state.version, *(answer.base_version for answer in answers if answer.version >= young)])
