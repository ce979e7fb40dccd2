"""The status of an instance, read only from its store, with or without a service: ``lakebed status``,
:func:`status`.

It reads the catalog, the state of each table, and the records of job runs; it commits nothing. The next operations and
their reasons are computed by the plans of a service. A service has more information about its own work: which operation
waits after a failure, and since when (:meth:`lakebed.server.service.service.Service.status`). Both describe a table by
the same values.

Core types: :class:`StoreStatus`, :class:`CommitCost`.

Errors: NotFoundError for a table that does not exist; StorageError. The error of one table is in its status.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Error
from lakebed.model.operations import OPERATIONS
from lakebed.model.table_summary import TableView
from lakebed.server.service.status import LastError, OperationStatus, StoreRequests, TableStatus
from lakebed.server.service.summary import described, summarise
from lakebed.table.tracker.listing import job_runs
from lakebed.table.tracker.runs import JobRun, RunError, RunOutcome
from lakebed.upkeep.publish.run import current
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.write.batches import in_threads

if TYPE_CHECKING:
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

ERRORS_SHOWN = 5
RUNS_READ = 2_000
"""Runs on record that are looked at, the newest."""

HOUR = timedelta(hours=1)

PUTS_A_COMMIT = 2
GETS_A_COMMIT = 3
"""A small write puts a data file and an entry, and reads two last-modified times and the log start (docs/costs.md)."""


@dataclass(frozen=True, slots=True)
class CommitCost:
    """The log entries of the last hour, and the minimum of requests for them.

    Reads, and the files that tasks read and wrote beyond one per commit, are not counted.
    """

    entries: int = 0

    @property
    def puts(self) -> int:
        """Requests that write."""
        return PUTS_A_COMMIT * self.entries

    @property
    def gets(self) -> int:
        """Requests that read."""
        return GETS_A_COMMIT * self.entries

    @property
    def dollars(self) -> float:
        """Their price at the list prices of S3."""
        return StoreRequests.of(self.puts, self.gets).dollars


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """An instance at a moment by the clock of this machine. ``tables`` are sorted by name.

    ``failed`` are the last runs that failed or were lost, ``running`` those under way, newest first. ``last_hour`` is
    the cost of commits.
    """

    url: str
    at: datetime
    tables: tuple[TableStatus, ...]
    running: tuple[JobRun, ...]
    failed: tuple[JobRun, ...]
    last_hour: CommitCost

    def _repr_html_(self) -> str:
        from lakebed.model.html_tables import grid, view

        names = ("table", "online", "version", "rows", "size_bytes", "partitions", "files", "backlog_files", "error")
        rows = [[row[name] for name in names] for row in map(_row, self.tables)]
        about = f"{len(self.running):,} jobs run, {len(self.failed):,} failed"
        return view(f"{self.url} at {self.at:%Y-%m-%d %H:%M:%S %Z}: {about}", grid(names, rows))

    def to_arrow(self) -> pa.Table:
        """Return one row per table; ``next`` has the next operations and their reasons, in the order they are due."""
        return pa.Table.from_pylist([_row(table) for table in self.tables], SCHEMA)


def status(instance: Instance, tables: Sequence[str] | None = None) -> StoreStatus:
    """Return the status of an instance, or of some of its tables. Raises NotFoundError, StorageError, DamagedError."""
    instance.tracker.flush()
    names = instance.tables() if tables is None else list(tables)
    chosen = [instance.table(name) for name in names]
    ids = {table.id for table in chosen}
    runs = [run for run in job_runs(instance.storage, limit=RUNS_READ) if tables is None or run.table_id in ids]
    last = _last_runs(runs)
    found = in_threads(lambda table: _table_status(instance, table, last), chosen)
    bad = (RunOutcome.FAILED, RunOutcome.LOST)
    return StoreStatus(
        url=instance.url,
        at=clock.now(),
        tables=tuple(sorted((one for one, _ in found), key=lambda one: one.name)),
        running=tuple(run for run in runs if run.running),
        failed=tuple(run for run in runs if run.outcome in bad)[:ERRORS_SHOWN],
        last_hour=CommitCost(sum(entries for _, entries in found)),
    )


def next_steps(table: TableStatus) -> list[str]:
    """Return one line for each next operation of a table with its reason, or why it does not run."""
    steps = []
    for one in table.operations:
        if one.due is not None:
            steps.append(f"{one.operation}: {one.due}")
        if one.paused:
            steps.append(f"{one.operation}: paused")
        if one.parked:
            steps.append(f"{one.operation}: parked until a retry is asked for")
    return steps


# -- within -----------------------------------------------------------------------------------------------------------


def _table_status(instance: Instance, table: Table, last: Mapping[tuple[str, str], JobRun]) -> tuple[TableStatus, int]:
    """Return the status of a table, and how many entries its log got in the last hour."""
    online, paused = instance.is_online(table.name), instance.paused(table.name)
    base = TableStatus(table.id, table.name, online, tuple(sorted(paused)))
    try:
        summary = summarise(table.state(), table.settings_in_force(), online=online)
        oldest_s = _age_s(table, summary.oldest_request)
        published = _published_version(table) if summary.published else None
        view = TableView(table.id, online, paused, summary, {}, oldest_s or 0.0, published_version=published)
        reasons = _reasons(instance, table, view)
        entries = _entries_since(table, summary.version)
    except Error as error:
        return replace(base, error=LastError(str(error.code), error.message, clock.now())), 0
    known = [
        _operation(name, last.get((table.id, name)), reasons.get(name), paused=name in paused)
        for name in OPERATIONS
        if name in reasons or name in paused or (table.id, name) in last
    ]
    return replace(described(base, summary, oldest_s), operations=tuple(known), published=published), entries


def _published_version(table: Table) -> int | None:
    """Return the version that other engines read, 0 if none is yet; None if the metadata cannot be read."""
    try:
        found = current(table)
    except Error:
        return None
    return 0 if found is None else found.version


def _reasons(instance: Instance, table: Table, view: TableView) -> dict[str, str]:
    """Return why each operation that is not paused is due, or why it waits."""
    if view.summary.source is not None:
        try:
            view = replace(view, source_version=instance.named(view.summary.source).state().version)
        except Error as error:
            view = replace(view, source_error=error.message)
    if view.summary.unreferenced_files:
        view = replace(view, garbage=collect_garbage(table, dry_run=True).outlook)
    active = [one for one in OPERATIONS.values() if one.name not in view.paused]
    return {one.name: reason for one in active if (reason := one.outlook(view)) is not None}


def _operation(operation: str, run: JobRun | None, reason: str | None, *, paused: bool) -> OperationStatus:
    if run is None:
        return OperationStatus(operation, paused=paused, due=reason)
    failed = run.error is not None or run.outcome is RunOutcome.LOST
    error = None
    if failed:
        why = run.error or RunError("", "", "its process has ended without a word")
        error = LastError(why.code, why.message, run.updated)
    return OperationStatus(
        operation,
        last_begun=run.started,
        last_ended=run.finished,
        last_outcome=None if failed else run.detail or run.outcome.value,
        last_error=error,
        failures_in_a_row=run.tries if failed else 0,
        parked=run.parked,
        paused=paused,
        due=reason,
    )


def _last_runs(runs: Iterable[JobRun]) -> dict[tuple[str, str], JobRun]:
    of_kind = {kind: name for name, operation in OPERATIONS.items() for kind in operation.kinds}
    last: dict[tuple[str, str], JobRun] = {}
    for run in runs:
        if (operation := of_kind.get(run.operation)) is not None:
            last.setdefault((run.table_id, operation), run)
    return last


def _age_s(table: Table, version: int) -> float | None:
    if not version:
        return None
    return max(0.0, (clock.now() - table.log.last_modified_or_epoch(version)).total_seconds())


def _entries_since(table: Table, version: int) -> int:
    """Return how many entries the log got in the last hour: about log2(version) requests if there is any."""
    since = clock.now() - HOUR
    if table.log.last_modified_or_epoch(version) <= since:
        return 0
    first = bisect_left(
        range(1, version + 1), x=True, key=lambda entry: table.log.last_modified_or_epoch(entry) > since
    )
    return version - first


_COLUMNS: tuple[tuple[str, pa.DataType, Callable[[TableStatus], object]], ...] = (
    ("table", pa.string(), attrgetter("name")),
    ("id", pa.string(), attrgetter("id")),
    ("online", pa.bool_(), attrgetter("online")),
    ("version", pa.int64(), attrgetter("version")),
    ("rows", pa.int64(), attrgetter("rows")),
    ("size_bytes", pa.int64(), attrgetter("size_bytes")),
    ("partitions", pa.int64(), attrgetter("partitions")),
    ("files", pa.int64(), attrgetter("files")),
    ("files_per_partition_mean", pa.float64(), attrgetter("files_per_partition_mean")),
    ("files_per_partition_max", pa.int64(), attrgetter("files_per_partition_max")),
    ("unreferenced_files", pa.int64(), attrgetter("unreferenced_files")),
    ("unreferenced_bytes", pa.int64(), attrgetter("unreferenced_bytes")),
    ("backlog_requests", pa.int64(), attrgetter("backlog.requests")),
    ("backlog_files", pa.int64(), attrgetter("backlog.files")),
    ("backlog_bytes", pa.int64(), attrgetter("backlog.size_bytes")),
    ("backlog_seconds", pa.float64(), attrgetter("backlog.oldest_s")),
    ("runs_due", pa.int64(), attrgetter("backlog.runs_due")),
    ("bytes_due", pa.int64(), attrgetter("backlog.bytes_due")),
    ("published", pa.int64(), attrgetter("published")),
    ("next", pa.list_(pa.string()), next_steps),
    ("error", pa.string(), lambda table: None if table.error is None else table.error.message),
)
"""The columns of :meth:`StoreStatus.to_arrow`: name, type, and where a table's status has the value."""

_OPTIONAL = ("backlog_seconds", "published", "error")

SCHEMA = pa.schema([pa.field(name, kind, nullable=name in _OPTIONAL) for name, kind, _ in _COLUMNS])


def _row(table: TableStatus) -> dict[str, object]:
    return {name: value(table) for name, _, value in _COLUMNS}
