"""Follows one table: checks its log for new entries, and keeps a summary of its state and records of its operations.

A check of an idle table is one request (sometimes two) for the entry after the last known version. The state itself is
read only if there is one, and is released when the table has been idle for a while.

Rules. A :class:`Watch` is changed by the thread of the service alone; others read it, to report.

Core type: :class:`Watch`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.log.entry import log_went_back
from lakebed.model.operations import OPERATIONS
from lakebed.model.table_summary import Record, TableSummary, TableView
from lakebed.server.service.plan import Due, ServiceLimits, due
from lakebed.server.service.status import LastError, OperationStatus, TableStatus
from lakebed.server.service.summary import described, summarise
from lakebed.upkeep.compaction.failed_partitions import FailedPartitions

if TYPE_CHECKING:
    from lakebed.log.backends.backend import LogBackend
    from lakebed.model.state.catalog import CatalogTable
    from lakebed.table.instance import Instance

REST_S = 600.0
"""A table that has not changed for so long has no state in memory."""

SUMMARY_REST = 9.0
"""The least pause before the next look at a table, as a multiple of the time that its summary took. So summaries of one
table take at most a tenth of the time.
"""

LOG_START_EVERY = 16
"""Looks of which one reads the log start too: the log may have been truncated beyond the last known version."""


@dataclass(slots=True)
class Watch:
    """One table of the catalog as a service follows it. ``waiting`` are its operations that may begin now.

    ``oldest_since_s`` is the time, by the monotonic clock, at which the log got the oldest request that is open, and
    ``took_s`` the seconds of the last summary.
    """

    found: CatalogTable
    log: LogBackend
    follow_at_s: float
    changed_s: float
    summary: TableSummary = field(default_factory=TableSummary)
    oldest_since_s: float | None = None
    error: LastError | None = None
    stale: bool = True
    looks: int = 0
    held: bool = False
    records: dict[str, Record] = field(default_factory=dict)
    last_runs: dict[str, OperationStatus] = field(default_factory=dict)
    failures: FailedPartitions = field(default_factory=FailedPartitions)
    waiting: tuple[Due, ...] = ()
    took_s: float = 0.0

    def note(self, operation: str, **changes: Any) -> None:
        """Update the status of the last run of an operation."""
        self.last_runs[operation] = replace(self.last_runs.get(operation) or OperationStatus(operation), **changes)

    @property
    def share(self) -> float:
        """A number in [0, 1) derived from the table's id, to spread the work of many tables."""
        return zlib.crc32(self.found.id.encode()) / 2**32

    def follow(self, instance: Instance) -> bool:
        """Check for new entries; returns whether the summary changed. An error is kept for the status."""
        try:
            changed = self.stale or self._has_moved()
            if changed:
                self._read(instance)
            self.error = None
        except Exception as error:  # noqa: BLE001 - a table that cannot be followed keeps no other from it
            found = error_now(error)
            if self.error is None or self.error.code != found.code:
                # Since when, not when last.
                self.error = found
            return False
        return changed

    def _has_moved(self) -> bool:
        self.looks += 1
        version = self.summary.version
        if self.log.get(version + 1) is not None:
            return True
        if self.looks % LOG_START_EVERY:
            return False
        end = self.log.end(version)
        # If the log went back, reading it raises the error.
        return end.log_start > version or (end.around is not None and end.around.digest == "")

    def _read(self, instance: Instance) -> None:
        # Until it was read: an error stays in the status.
        self.stale = True
        table = instance.opened(self.found)
        state = table.state()
        if state.version < self.summary.version:
            raise log_went_back(self.found.id, self.summary.version)
        if state.version != self.summary.version:
            self.changed_s = clock.monotonic_s()
        began_s = clock.monotonic_s()
        self.summary = summarise(state, table.settings_in_force(), online=self.found.online)
        self.took_s = clock.monotonic_s() - began_s
        oldest, self.oldest_since_s = self.summary.oldest_request, None
        if oldest:
            now = clock.now()
            with suppress(Error):  # of a store that may be read only, which does not tell its time
                now = table.log.now()
            age_s = (now - table.log.last_modified_or_epoch(oldest)).total_seconds()
            self.oldest_since_s = clock.monotonic_s() - age_s
        self.stale, self.held = False, True

    def rest(self, instance: Instance, now_s: float) -> None:
        """Release the state if the table has not changed for a while."""
        if self.held and now_s - self.changed_s >= REST_S:
            instance.release(self.found.id)
            self.held = False

    def plan(self, now_s: float, limits: ServiceLimits, source_version: int) -> None:
        """Determine which operations may begin, and when to check the table again."""
        age_s, found = self._oldest_s(now_s) or 0.0, self.found
        view = TableView(found.id, found.online, found.paused, self.summary, self.records, age_s, source_version, now_s)
        self.waiting, look_s = due(view, limits)
        # Spread, so that a store does not get the looks at all tables at once.
        rest_s = min(limits.follow_max_s * (0.8 + 0.2 * self.share), (now_s - self.changed_s) / 10)
        # The summary of a table with 100,000 partitions takes seconds, and all other tables wait for it.
        least_s = max(limits.follow_s, SUMMARY_REST * self.took_s)
        self.follow_at_s = min(now_s + max(least_s, rest_s), max(look_s, now_s + least_s))

    def status(self) -> TableStatus:
        """Return the status of the table."""
        found, summary = self.found, self.summary
        base = TableStatus(
            found.id,
            found.name,
            found.online,
            tuple(sorted(found.paused)),
            operations=self._operations(),
            error=self.error,
        )
        return described(base, summary, self._oldest_s(clock.monotonic_s()))

    def _oldest_s(self, now_s: float) -> float | None:
        """Return the age of the oldest request that is open."""
        return None if self.oldest_since_s is None else max(0.0, now_s - self.oldest_since_s)

    def _operations(self) -> tuple[OperationStatus, ...]:
        reasons = {one.operation: one.reason for one in self.waiting}
        known = [name for name in OPERATIONS if self._known(name, reasons)]
        return tuple(self._operation(name, reasons.get(name)) for name in known)

    def _known(self, operation: str, reasons: Mapping[str, str]) -> bool:
        return operation in self.last_runs or operation in reasons or operation in self.found.paused

    def _operation(self, operation: str, reason: str | None) -> OperationStatus:
        run = self.last_runs.get(operation) or OperationStatus(operation)
        record = self.records.get(operation) or Record()
        return replace(
            run,
            failures_in_a_row=record.failures,
            waiting_for=run.last_error.message if run.last_error and record.failures else None,
            parked=record.parked,
            paused=operation in self.found.paused,
            due=reason,
            parked_partitions=self.failures.parked if OPERATIONS[operation].merges else (),
        )


def error_now(error: BaseException) -> LastError:
    """Return an error that came now, as the status has it."""
    if isinstance(error, Error):
        return LastError(str(error.code), error.message, clock.now())
    return LastError(str(Code.FOREIGN_ERROR), f"{type(error).__name__}: {error}", clock.now())
