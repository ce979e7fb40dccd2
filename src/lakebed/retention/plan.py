"""Which files may be deleted. Pure: no I/O.

A file may be deleted if it has no reference, if the log entry that dropped the last one is older than the GC delay (a
reader that planned earlier may still be reading) and the history window (older versions stay readable), and if no tag
is at a version that needs it. Ages are by the store's last-modified times. Entries are created one after another, so
their last-modified times ascend with their versions, and binary search finds the version that divides old from young.

Files are retired first, and then deleted unless a pin holds a version that needs them. Request keys expire in the same
way:
:func:`request_watermark` gives the base version below which they are dropped.
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
"""Request keys that are kept, about 100 MB of a state. Beyond that, those with the lowest base version go."""

REQUEST_WATERMARK_STEPS = 8
"""The watermark is raised when an eighth of the keys, or of their time, has expired: it costs an entry and a scan."""


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """``retired`` files may be deleted, ``due`` files may be retired; ``waiting`` counts the rest."""

    retired: tuple[CommittedFile, ...]
    due: tuple[CommittedFile, ...]
    waiting: int


def cutoff(now: datetime, settings: Settings) -> datetime:
    """The time at or before which dropped files may be deleted; ``now`` is by the store's clock."""
    return now - timedelta(seconds=settings.history_s)


def plan(state: TableState, last_modified_of: Callable[[int], datetime], before: datetime) -> CollectionPlan:
    """The files that may be deleted. ``last_modified_of`` gives the time of a log entry; it is called about log2(n)
    times.
    """
    unused = sorted(state.files.having("dropped"), key=lambda c: (c.dropped or 0, c.sequence_lo, c.facts.id))
    retired = tuple(c for c in unused if c.retired)
    free = [c for c in unused if not c.retired and not state.tagged(c)]
    # Files dropped before the earliest retained version are old; their entries may have been truncated.
    versions = sorted(
        {c.dropped for c in free if c.dropped is not None and c.dropped > state.earliest_retained_version}
    )
    # All versions from the first young one on are young.
    young = set(versions[bisect_left(versions, x=True, key=lambda version: last_modified_of(version) > before) :])
    due = tuple(c for c in free if c.dropped not in young)
    return CollectionPlan(retired, due, len(unused) - len(retired) - len(due))


def unpinned(files: Iterable[CommittedFile], pins: Collection[int]) -> list[CommittedFile]:
    """Those of the files that the table does not refer to at any of the pinned versions."""
    return [committed for committed in files if not any(map(committed.needed_at, pins))]


def request_watermark(
    state: TableState, last_modified_of: Callable[[int], datetime | None], now: datetime, settings: Settings
) -> int | None:
    """What the request watermark should be raised to; None: not yet, or no key has expired.

    Keys committed in the last ``log_s`` are kept, however low their base version, so a client can repeat a request
    without knowing that version. ``last_modified_of`` gives the last-modified time of a log entry; None: the entry was
    truncated, so the age of requests before it is unknown.
    """
    if not state.requests and not state.fences:
        return None
    retained = timedelta(seconds=settings.log_retention_s)
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
