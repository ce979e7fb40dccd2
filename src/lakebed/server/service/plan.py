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

Core types: :class:`ServiceLimits`, :class:`Due`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lakebed.model.operations import OPERATIONS, Lane, TableOperation
from lakebed.model.table_summary import Record, TableView

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


def default_periods() -> dict[str, float]:
    """Return the shortest time between two runs of each operation on one table, in seconds."""
    return {name: operation.period_s for name, operation in OPERATIONS.items()}


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


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of a service. Each lane runs at most ``at_once`` operations.

    A changing table is checked every ``follow_s``, an idle one at most every ``follow_max_s``.
    """

    at_once: int = 2
    follow_s: float = 1.0
    follow_max_s: float = 60.0
    failures_max: int = 5
    periods: Mapping[str, float] = field(default_factory=default_periods)

    @property
    def retry(self) -> Retry:
        """When an operation is tried again that failed."""
        return Retry(faults_max=self.failures_max)


def succeeded(record: Record, now_s: float, before: int, after: int) -> Record:
    """Return the record after a run that ended well, and took the table from one version to another."""
    return Record(record.begun_s, now_s, after, 0 if after != before else record.idle + 1)


def failed(record: Record, now_s: float, retry: Retry, jitter: float, *, fault: bool) -> Record:
    """Return the record after a run that failed; ``jitter`` in [0, 1) spreads the retries of many."""
    failures = record.failures + 1
    faults = record.faults + 1 if fault else 0
    return replace(
        record,
        ended_s=now_s,
        failures=failures,
        faults=faults,
        next_s=now_s + retry.after_s(failures, jitter),
        parked=retry.parks(faults),
    )


@dataclass(frozen=True, slots=True)
class Due:
    """An operation that may begin, and why. ``size_bytes`` is about what it will read."""

    table: str
    operation: str
    reason: str
    size_bytes: int
    served_s: float
    begun_s: float


def due(view: TableView, limits: ServiceLimits) -> tuple[tuple[Due, ...], float]:
    """Return the operations of a table that may begin now, and when to plan again even if the table has not changed."""
    found = []
    look_s = math.inf
    for operation in (one for one in OPERATIONS.values() if one.in_turns):
        record = view.record(operation.name)
        if operation.name in view.paused or record.parked or (operation.needs_online and not view.online):
            continue
        if (pending := operation.pending(view)) is None:
            continue
        begin_s = _not_before(view, record, operation, limits)
        if view.now_s < begin_s:
            look_s = min(look_s, begin_s)
        else:
            served_s = _served_s(view, operation.lane)
            found.append(Due(view.id, operation.name, *pending, served_s, record.begun_s))
    if view.summary.backlog.requests:
        # They become due by their age.
        look_s = min(look_s, view.now_s + max(1.0, view.summary.ingest_age_s - view.oldest_s))
    return tuple(found), look_s


def _served_s(view: TableView, lane: Lane) -> float:
    """Return when the table was last served in a lane."""
    return max((one.begun_s for name, one in view.records.items() if OPERATIONS[name].lane is lane), default=-math.inf)


def _not_before(view: TableView, record: Record, operation: TableOperation, limits: ServiceLimits) -> float:
    """Return the time before which an operation does not begin."""
    wait_s = limits.periods[operation.name]
    if _merges_pile(view):
        if operation.merges:
            wait_s = min(wait_s, PILED_S)
        elif operation.lane is Lane.UPKEEP:
            wait_s += HELD_BACK_MAX_S
    if record.idle and view.summary.version == record.version:
        wait_s = max(wait_s, min(IDLE_MAX_S, max(1.0, wait_s) * 2.0 ** min(record.idle, 20)))
    return max(record.next_s, record.ended_s + wait_s)


def _merges_pile(view: TableView) -> bool:
    """Return whether the table's runs pile up, and its compaction may merge them."""
    if not view.online or not view.summary.piled or view.summary.crowded:
        return False
    merging = (name for name, operation in OPERATIONS.items() if operation.merges)
    return any(name not in view.paused and not view.record(name).parked for name in merging)


def choose(waiting: Iterable[Due], running: Collection[tuple[str, str]], limits: ServiceLimits) -> list[Due]:
    """Return the due operations that begin now, given those that are running (table, operation)."""
    under_way = [(table, OPERATIONS[operation].lane) for table, operation in running]
    busy, taken = set(under_way), Counter(lane for _, lane in under_way)
    chosen = []
    for one in sorted(waiting, key=lambda one: (one.served_s, one.begun_s, one.operation, one.table)):
        lane = OPERATIONS[one.operation].lane
        if taken[lane] < limits.at_once and (one.table, lane) not in busy:
            busy.add((one.table, lane))
            taken[lane] += 1
            chosen.append(one)
    return chosen
