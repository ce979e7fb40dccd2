"""The operations that maintain a table, each a value with what services, calls, switches and pages ask of it. Pure.

A :class:`TableOperation` says when it is due on a table and which work it is; :data:`OPERATIONS` has all of them by
their names, which catalogs store, in the order of ``Pipeline.maintain``. A new operation is a class and an entry there:
no other module names one.

Core types: :class:`TableOperation`, :class:`WorkKind`.

Rules. An operation sees a table only through a :class:`~lakebed.model.table_summary.TableView`, and works on it only
through :class:`TableMaintenance`.

Source: docs/service.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.model.public_names import OldMember
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.model.reports import WorkReport
    from lakebed.model.table_summary import TableView

REST_S = 86_400.0
"""How often garbage of a table is collected that does not change: its log is truncated when it is old enough."""

REWRITE_JOB_PREFIX = "rewrite-"
"""The prefix of the ids of a rewrite's jobs."""


class WorkKind(StrEnum):
    """The kind of work of a run. The values are stored; a record of a newer Lakebed may have others."""

    INGEST = "ingest"
    IMPORT = "import"
    ATTACH = "attach"
    COMPACTION = "compaction"
    REWRITE = "rewrite"
    SPLIT = "split"
    JOIN = "join"
    EXPORT = "export"
    QUERY = "query"
    GC = "gc"
    REFRESH = "refresh"
    PUBLISH = "publish"
    ERASE_REPORT = "erase-report"
    MAINTENANCE = "maintenance"


_CALLS: Mapping[str, WorkKind] = {
    "bulk_import": WorkKind.IMPORT,
    "compact": WorkKind.COMPACTION,
    "migrate": WorkKind.IMPORT,
    "join_partitions": WorkKind.JOIN,
    "erase_report": WorkKind.ERASE_REPORT,
    "maintain": WorkKind.MAINTENANCE,
}


def kind_of_call(method: str) -> str:
    """Return the kind of work of a method of a pipeline. Those that are not listed are named like their work."""
    return _CALLS.get(method, method)


def kind_of_job(job_id: str) -> WorkKind:
    """Return the kind of work of a job that is open in a table's log."""
    return WorkKind.REWRITE if job_id.startswith(REWRITE_JOB_PREFIX) else WorkKind.COMPACTION


class TableMaintenance(Protocol):
    """The work on one table that operations consist of (:class:`lakebed.jobs.maintain.Maintenance`)."""

    def ingest(self) -> WorkReport:
        """Carry out the open requests that are due."""

    def merge_due(self) -> WorkReport:
        """Merge the runs that the table's strategy picks."""

    def divide(self) -> WorkReport:
        """Cut large partitions, and join small ones."""

    def refresh(self) -> WorkReport:
        """Add to a view the rows that its source has gained."""

    def publish_latest(self) -> WorkReport:
        """Publish the latest version for other engines, if the table has the setting."""

    def collect(self) -> WorkReport:
        """Delete files that no version needs, and truncate the log."""


class Lane(StrEnum):
    """Operations that wait for each other in a service."""

    ROWS = "rows"
    UPKEEP = "upkeep"


class Pending(NamedTuple):
    """Why an operation has something to do, and about how many bytes it will read."""

    reason: str
    size_bytes: int = 0


class TableOperation:
    """One kind of work on one table, which can be paused.

    ``does`` is a sentence for people. Its runs are of the ``kinds`` of work, failures of the first. A service begins it
    on a table at most every ``period_s``, and spreads its first runs over this time if all tables need it at the start.
    ``needs_online``: not of tables that are offline. ``merges``: it merges the runs of partitions. It begins soon while
    these pile up, other upkeep waits for it meanwhile, and a partition that fails is left out alone. ``repeats``: in
    one call it is run by turns with its neighbours that repeat, until none has anything to do. ``in_calls``: whether
    ``Pipeline.maintain`` runs it. ``in_turns``: whether it takes turns with others in a service; otherwise a subscriber
    of the table's versions does it there (:mod:`lakebed.server.service.publications`).
    """

    name: ClassVar[str]
    does: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    period_s: ClassVar[float]
    lane: ClassVar[Lane] = Lane.UPKEEP
    spread: ClassVar[bool] = False
    needs_online: ClassVar[bool] = True
    merges: ClassVar[bool] = False
    repeats: ClassVar[bool] = False
    in_calls: ClassVar[bool] = True
    in_turns: ClassVar[bool] = True

    # Operations were the members of an enum of texts.
    INGEST, COMPACTION, SPLITTING = OldMember("ingest"), OldMember("compaction"), OldMember("splitting")
    REFRESH, GC = OldMember("refresh"), OldMember("gc")

    def pending(self, table: TableView) -> Pending | None:
        """Return why the operation has something to do, whether or not it may begin now; None: it has not."""
        raise NotImplementedError

    def outlook(self, table: TableView) -> str | None:
        """Return why it has something to do or waits, from what a store says; None: there is nothing to say."""
        found = self.pending(table) if table.online or not self.needs_online else None
        return None if found is None else found.reason

    def run(self, table: TableMaintenance) -> WorkReport:
        """Do the work. Errors of a part of it are in the report."""
        raise NotImplementedError


class Ingest(TableOperation):
    """Requests, once they are large or old enough."""

    name = "ingest"
    does = "Adds the files of open requests."
    kinds = (WorkKind.INGEST,)
    period_s = 1.0
    lane = Lane.ROWS
    needs_online = False

    def pending(self, table: TableView) -> Pending | None:
        """Return that requests are due by their bytes or their age."""
        backlog, summary = table.summary.backlog, table.summary
        due = backlog.size_bytes >= summary.ingest_bytes_min or table.oldest_s >= summary.ingest_age_s
        if not backlog.requests or not due:
            return None
        said = f"{count_text(backlog.requests, 'open request')} of {backlog.size_bytes:,} bytes"
        return Pending(f"{said}, the oldest {table.oldest_s:.0f} s old", backlog.size_bytes)

    def outlook(self, table: TableView) -> str | None:
        """Return that requests are due, or when they will be."""
        backlog, summary = table.summary.backlog, table.summary
        due = super().outlook(table)
        if due is not None or not backlog.requests:
            return due
        left_s = max(0.0, summary.ingest_age_s - table.oldest_s)
        waits = f"{count_text(backlog.requests, 'open request')} of {backlog.size_bytes:,} bytes, until there are"
        return f"{waits} {summary.ingest_bytes_min:,} bytes, or in {left_s:,.0f} s"

    def run(self, table: TableMaintenance) -> WorkReport:
        """Carry out the requests."""
        return table.ingest()


class Compaction(TableOperation):
    """Runs that the strategy of the table merges, and jobs that may be left over."""

    name = "compaction"
    does = "Merges the runs of partitions."
    kinds = (WorkKind.COMPACTION,)
    period_s = 10.0
    merges = True
    repeats = True

    def pending(self, table: TableView) -> Pending | None:
        """Return how many runs there are to merge, or that there are open jobs."""
        backlog, jobs = table.summary.backlog, table.summary.jobs
        if backlog.runs_due and not table.summary.crowded:
            return Pending(f"{count_text(backlog.runs_due, 'run')} to merge", backlog.bytes_due)
        return Pending(f"{count_text(jobs, 'open job')}, of which some may be left over") if jobs else None

    def outlook(self, table: TableView) -> str | None:
        """Return the same, or that ingest comes first."""
        backlog = table.summary.backlog
        if table.summary.crowded and backlog.runs_due:
            return f"waits until fewer requests are open than {backlog.requests:,}"
        return super().outlook(table)

    def run(self, table: TableMaintenance) -> WorkReport:
        """Merge the runs."""
        return table.merge_due()


class Splitting(TableOperation):
    """Partitions that are too large or too small."""

    name = "splitting"
    does = "Cuts large partitions and joins small ones."
    kinds = (WorkKind.SPLIT, WorkKind.JOIN)
    period_s = 30.0
    repeats = True

    def pending(self, table: TableView) -> Pending | None:
        """Return how many partitions there are to cut and to join."""
        splits, joins = table.summary.splits, table.summary.joins
        if not splits and not joins:
            return None
        return Pending(f"{count_text(splits, 'partition')} to split, {count_text(joins, 'group')} to join")

    def run(self, table: TableMaintenance) -> WorkReport:
        """Cut and join partitions."""
        return table.divide()


class Refresh(TableOperation):
    """A view whose source is at another version. The source may be behind: its log went back, which the run says."""

    name = "refresh"
    does = "Feeds a view from its source."
    kinds = (WorkKind.REFRESH,)
    period_s = 5.0
    lane = Lane.ROWS
    in_calls = False

    def pending(self, table: TableView) -> Pending | None:
        """Return that the view and its source differ."""
        if table.summary.source is None or table.source_version in (0, table.summary.fed):
            return None
        return Pending(f"its source is at version {table.source_version}, the view at {table.summary.fed}")

    def outlook(self, table: TableView) -> str | None:
        """Return the same, or why the source cannot be read."""
        if table.source_error is not None:
            return f"its source cannot be read: {table.source_error}"
        return super().outlook(table)

    def run(self, table: TableMaintenance) -> WorkReport:
        """Feed the view."""
        return table.refresh()


class Publication(TableOperation):
    """A table that other engines read, and of which they read an older version."""

    name = "publication"
    does = "Publishes the latest version for other engines."
    kinds = (WorkKind.PUBLISH,)
    period_s = 0.0
    needs_online = False
    in_turns = False

    def pending(self, table: TableView) -> Pending | None:
        """Return which version is published, if it is not the latest."""
        version = table.published_version
        if not table.summary.published or version in (None, table.summary.version):
            return None
        return Pending(f"other engines read version {version}" if version else "other engines read no version yet")

    def run(self, table: TableMaintenance) -> WorkReport:
        """Publish the version."""
        return table.publish_latest()


class Gc(TableOperation):
    """A table that has changed, and each once a day."""

    name = "gc"
    does = "Deletes files that no version needs, truncates the log, and raises the cut of the age-off."
    kinds = (WorkKind.GC,)
    period_s = 3600.0
    spread = True
    needs_online = False

    def pending(self, table: TableView) -> Pending | None:
        """Return that the table has changed, or has rested for a day."""
        summary, record = table.summary, table.record(self.name)
        changed = summary.version != record.version or summary.unreferenced_files or summary.ages
        if not summary.version or not (changed or table.now_s >= record.ended_s + REST_S):
            return None
        return Pending("the table has changed" if changed else "its log grows old")

    def outlook(self, table: TableView) -> str | None:
        """Return what can be deleted."""
        return table.garbage

    def run(self, table: TableMaintenance) -> WorkReport:
        """Collect garbage."""
        return table.collect()


OPERATIONS: dict[str, TableOperation] = {
    one.name: one for one in (Ingest(), Compaction(), Splitting(), Refresh(), Publication(), Gc())
}
"""All operations by their names, in the order in which one call runs them."""


def operations_named(names: Sequence[object]) -> tuple[str, ...]:
    """Return the names of these operations; of all of them if none is given. Raises UsageError for an unknown name."""
    for name in names:
        if not isinstance(name, str) or name not in OPERATIONS:
            raise Code.ARGUMENT_INVALID(f"unknown operation {shown(name)}; operations: {', '.join(OPERATIONS)}")
    return tuple(map(str, names)) or tuple(OPERATIONS)


def work_kinds() -> tuple[str, ...]:
    """Return the kinds of work that runs are of: those of Lakebed's calls, and of all operations."""
    kinds = (kind for operation in OPERATIONS.values() for kind in operation.kinds)
    return tuple(dict.fromkeys([*map(str, WorkKind), *map(str, kinds)]))
