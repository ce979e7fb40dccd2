"""Plans what a service does next: which operations of a table are due, and which of the due operations begin now.

:func:`due` looks at one table, when it has changed or is followed. :func:`choose` picks among the tables. Pure: no I/O,
no clock; times are seconds of a monotonic clock.

Rules:

* *Fair.* The table that was served least recently comes first, and of its operations the one that began least recently.
  A table that always has work is not served more often than others.
* *Lanes.* Ingest and refresh bring rows and must not wait for hours behind a merge; compaction, splitting and garbage
  collection are the other lane. Each lane has ``at_once`` operations at once, and one of each table.
* *Runs that pile up.* While a table has too many runs and merges are due, its compaction begins again after
  :data:`PILED_S`, and its splitting and garbage collection are held back, each for at most :data:`HELD_BACK_MAX_S`.
* *No busy work.* An operation that changed nothing is repeated after twice the last wait, at most
  :data:`IDLE_MAX_S`, or when the table has changed.
* *Failures.* An operation that failed waits, each time twice as long, at most :data:`RETRY_MAX_S`. One that fails
  ``failures_max`` times in a row by its own fault is parked: it is not retried until it is requested. Failures of a
  store, a database or Spark are retried without limit.

Core types: :class:`Limits`, :class:`Record`, :class:`TableView`, :class:`Due`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from lakebed.model.operations import TableOperation
from lakebed.model.wording import count_text
from lakebed.server.service.summary import TableSummary

IDLE_MAX_S = 600.0
"""The longest wait of an operation that changes nothing."""

RETRY_S = 1.0
RETRY_MAX_S = 60.0
"""The longest wait after a failure: so long it takes at most to go on after a store is back."""

PILED_S = 1.0
"""The shortest time between two compactions of a table whose runs pile up. Its writers are faster than its merges."""

HELD_BACK_MAX_S = 600.0
"""How long splitting and garbage collection of such a table are held back after they are due. They run then, however
many runs there are, so that the log is truncated and space is freed."""

REST_S = 86_400.0
"""How often garbage of a table is collected that does not change: its log is truncated when it is old enough."""

PERIODS: Mapping[TableOperation, float] = MappingProxyType(
    {
        TableOperation.INGEST: 1.0,
        TableOperation.COMPACTION: 10.0,
        TableOperation.SPLITTING: 30.0,
        TableOperation.REFRESH: 5.0,
        TableOperation.GC: 3600.0,
    }
)
"""The shortest time between two runs of an operation on one table, in seconds."""


class Lane(StrEnum):
    """Operations that wait for each other."""

    ROWS = "rows"
    UPKEEP = "upkeep"


def lane_of(operation: TableOperation) -> Lane:
    """Return the lane of an operation."""
    return Lane.ROWS if operation in (TableOperation.INGEST, TableOperation.REFRESH) else Lane.UPKEEP


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of a service. Each lane runs at most ``at_once`` operations.

    A changing table is checked every ``follow_s``, an idle one at most every ``follow_max_s``.
    """

    at_once: int = 2
    follow_s: float = 1.0
    follow_max_s: float = 60.0
    failures_max: int = 5
    periods: Mapping[TableOperation, float] = field(default_factory=lambda: PERIODS)


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one operation on one table.

    ``version`` is that of the table after the last success, ``idle`` how many runs in a row changed nothing,
    ``failures`` how many failed, ``faults`` how many of them through their own fault. It does not begin before
    ``next_s``.
    """

    begun_s: float = -math.inf
    ended_s: float = -math.inf
    version: int = 0
    idle: int = 0
    failures: int = 0
    faults: int = 0
    next_s: float = -math.inf
    parked: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """What follows a failure: another try after a wait that doubles from ``wait_s`` to ``wait_max_s``.

    What failed ``faults_max`` times in a row by its own fault is parked: it is not tried until it is requested. None:
    it is never parked.
    """

    wait_s: float = RETRY_S
    wait_max_s: float = RETRY_MAX_S
    faults_max: int | None = None

    def after_s(self, failures: int, jitter: float) -> float:
        """Return the wait after that many failures in a row; ``jitter`` in [0, 1) spreads the retries of many."""
        return min(self.wait_max_s, self.wait_s * 2.0 ** min(failures - 1, 20)) * (0.5 + jitter / 2)

    def parks(self, faults: int) -> bool:
        """Return whether that many faults in a row are too many."""
        return self.faults_max is not None and faults >= self.faults_max


def succeeded(record: Record, now_s: float, before: int, after: int) -> Record:
    """Return the record after a run that ended well, and took the table from one version to another."""
    return Record(record.begun_s, now_s, after, 0 if after != before else record.idle + 1)


def failed(record: Record, now_s: float, limits: ServiceLimits, jitter: float, *, fault: bool) -> Record:
    """Return the record after a run that failed; ``jitter`` in [0, 1) spreads the retries of many."""
    failures = record.failures + 1
    faults = record.faults + 1 if fault else 0
    retry = Retry(faults_max=limits.failures_max)
    return replace(
        record,
        ended_s=now_s,
        failures=failures,
        faults=faults,
        next_s=now_s + retry.after_s(failures, jitter),
        parked=retry.parks(faults),
    )


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as the plan sees it.

    ``oldest_s`` is the age of the oldest open request; ``source_version`` that of a view's source, if it is known.
    """

    id: str
    online: bool
    paused: Collection[TableOperation]
    summary: TableSummary
    records: Mapping[TableOperation, Record]
    oldest_s: float = 0.0
    source_version: int = 0

    def record(self, operation: TableOperation) -> Record:
        """Return the record of an operation."""
        return self.records.get(operation, _NEVER)

    def served_s(self, lane: Lane) -> float:
        """Return when the table was last served in a lane."""
        return max((one.begun_s for name, one in self.records.items() if lane_of(name) is lane), default=-math.inf)


_NEVER = Record()


@dataclass(frozen=True, slots=True)
class Due:
    """An operation that may begin, and why. ``size_bytes`` is about what it will read."""

    table: str
    operation: TableOperation
    reason: str
    size_bytes: int
    served_s: float
    begun_s: float


def due(view: TableView, now_s: float, limits: ServiceLimits) -> tuple[tuple[Due, ...], float]:
    """Return the operations of a table that may begin now, and when to plan again even if the table has not changed."""
    found = []
    look_s = math.inf
    for operation, reason, size_bytes in _pending_operations(view, now_s):
        record = view.record(operation)
        if operation in view.paused or record.parked:
            continue
        begin_s = _not_before(view, record, operation, limits)
        if now_s < begin_s:
            look_s = min(look_s, begin_s)
        else:
            served_s = view.served_s(lane_of(operation))
            found.append(Due(view.id, operation, reason, size_bytes, served_s, record.begun_s))
    if view.summary.backlog.requests:
        # They become due by their age.
        look_s = min(look_s, now_s + max(1.0, view.summary.ingest_age_s - view.oldest_s))
    return tuple(found), look_s


def _pending_operations(view: TableView, now_s: float) -> Iterator[tuple[TableOperation, str, int]]:
    """Return the pending operations of a table, whether or not they may begin now."""
    table, backlog = view.summary, view.summary.backlog
    if backlog.requests and (backlog.size_bytes >= table.ingest_bytes_min or view.oldest_s >= table.ingest_age_s):
        said = f"{count_text(backlog.requests, 'open request')} of {backlog.size_bytes:,} bytes"
        reason = f"{said}, the oldest {view.oldest_s:.0f} s old"
        yield TableOperation.INGEST, reason, backlog.size_bytes
    # A view that is ahead of its source is refreshed too, which says that the log of the source went back.
    if view.online and table.source is not None and view.source_version not in (0, table.fed):
        reason = f"its source is at version {view.source_version}, the view at {table.fed}"
        yield TableOperation.REFRESH, reason, 0
    if view.online and backlog.runs_due and not table.crowded:
        yield TableOperation.COMPACTION, f"{count_text(backlog.runs_due, 'run')} to merge", backlog.bytes_due
    elif view.online and table.jobs:
        yield TableOperation.COMPACTION, f"{count_text(table.jobs, 'open job')}, of which some may be left over", 0
    if view.online and (table.splits or table.joins):
        reason = f"{count_text(table.splits, 'partition')} to split, {count_text(table.joins, 'group')} to join"
        yield TableOperation.SPLITTING, reason, 0
    record = view.record(TableOperation.GC)
    changed = table.version != record.version or table.unused or table.ages
    if table.version and (changed or now_s >= record.ended_s + REST_S):
        yield TableOperation.GC, "the table has changed" if changed else "its log grows old", 0


def _not_before(view: TableView, record: Record, operation: TableOperation, limits: ServiceLimits) -> float:
    """Return the time before which an operation does not begin."""
    wait_s = limits.periods[operation]
    if _merges_pile(view):
        if operation is TableOperation.COMPACTION:
            wait_s = min(wait_s, PILED_S)
        elif lane_of(operation) is Lane.UPKEEP:
            wait_s += HELD_BACK_MAX_S
    if record.idle and view.summary.version == record.version:
        wait_s = max(wait_s, min(IDLE_MAX_S, max(1.0, wait_s) * 2.0 ** min(record.idle, 20)))
    return max(record.next_s, record.ended_s + wait_s)


def _merges_pile(view: TableView) -> bool:
    """Return whether the table's runs pile up, and its compaction may merge them."""
    merges = view.online and view.summary.piled and not view.summary.crowded
    blocked = TableOperation.COMPACTION in view.paused or view.record(TableOperation.COMPACTION).parked
    return merges and not blocked


def choose(waiting: Iterable[Due], running: Collection[tuple[str, TableOperation]], limits: ServiceLimits) -> list[Due]:
    """Return the due operations that begin now, given those that are running (table, operation)."""
    busy = {(table, lane_of(operation)) for table, operation in running}
    taken = Counter(lane_of(operation) for _, operation in running)
    chosen = []
    for one in sorted(waiting, key=lambda one: (one.served_s, one.begun_s, one.operation, one.table)):
        lane = lane_of(one.operation)
        if taken[lane] < limits.at_once and (one.table, lane) not in busy:
            busy.add((one.table, lane))
            taken[lane] += 1
            chosen.append(one)
    return chosen
