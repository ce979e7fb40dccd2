"""The overview: every table with its health and figures, recent commits, and waiting operations.

Only tables that the principal may read whole are shown or counted. Source: docs/pages.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

from litestar import Response
from litestar.di import NamedDependency
from litestar.params import FromQuery

from lakebed import clock
from lakebed.server.service.status import LastError, ReadRates, ServiceStatus, TableStatus, Work
from lakebed.server.web.access import AnyRequest, ThePrincipal, TheService
from lakebed.server.web.pages import charts, rendering
from lakebed.server.web.pages.page_memory import PageMemory, RecentCommits, throughput
from lakebed.server.web.pages.table_health import Health, Level, health_of

PAGE_TABLES = 100

TROUBLES_MAX = 8

WAIT_S = 0.1
"""For commits that are newer than those at hand."""

FIRST_WAIT_S = 1.0
"""On the first visit, when none are at hand."""

Sort = Literal["name", "health", "rows", "bytes", "partitions", "files", "backlog", "commit"]

Window = Literal["hour", "day"]

_WINDOWS: dict[Window, tuple[int, int]] = {"hour": (1, 60), "day": (30, 48)}
"""Minutes in a period, and the number of periods."""


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A line of the list of tables: its status, and when something was last committed, as far as that is known."""

    status: TableStatus
    health: Health
    committed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """An operation on a table that failed or waits, or a table that cannot be read; ``since`` its first failure."""

    table: str
    operation: str
    since: datetime | None
    waiting_for: str | None
    next_at: datetime | None
    parked: bool
    error: LastError | None


@dataclass(frozen=True, slots=True)
class TableTotals:
    """Sums over all tables. ``unread`` ones were not read yet."""

    tables: int
    unread: int
    rows: int
    size_bytes: int
    partitions: int
    files: int
    requests: int
    request_bytes: int
    runs_due: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The parameters of the overview: tables with ``filter`` in their name, and with one level of health."""

    filter: str = ""
    health: str = ""
    sort: Sort = "name"
    descending: bool = False
    number: int = 1
    window: Window = "hour"


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """``tables`` are those of page ``asked.number`` of ``numbers``, of the ``matching`` ones; ``reads`` are those that
    this service answered. ``in_part`` are tables of which the principal sees a part: it can read their rows.
    """

    instance: str
    maintains: bool
    started_at: datetime | None
    error: LastError | None
    totals: TableTotals
    levels: tuple[tuple[Level, int], ...]
    reads: ReadRates
    charts: tuple[charts.BarChart, ...]
    charts_cut: bool
    work: tuple[Work, ...]
    troubles: tuple[Trouble, ...]
    troubles_more: int
    asked: Asked
    matching: int
    numbers: int
    tables: tuple[ListedTable, ...]
    in_part: tuple[str, ...] = ()


def totals_of(tables: Sequence[TableStatus]) -> TableTotals:
    """Add up all tables."""
    return TableTotals(
        tables=len(tables),
        unread=sum(not one.version for one in tables),
        rows=sum(one.rows for one in tables),
        size_bytes=sum(one.size_bytes for one in tables),
        partitions=sum(one.partitions for one in tables),
        files=sum(one.files for one in tables),
        requests=sum(one.backlog.requests for one in tables),
        request_bytes=sum(one.backlog.size_bytes for one in tables),
        runs_due=sum(one.backlog.runs_due for one in tables),
    )


def troubles_of(tables: Sequence[TableStatus]) -> list[Trouble]:
    """Failing and waiting operations, the longest first."""
    found = [
        Trouble(table.name, "follow", table.error.at, "its log", None, parked=False, error=table.error)
        for table in tables
        if table.error is not None
    ]
    for table in tables:
        for one in table.operations:
            if one.failures_in_a_row or one.parked:
                since = one.waiting_since or (one.last_error.at if one.last_error else None)
                found.append(
                    Trouble(table.name, one.operation, since, one.waiting_for, one.next_at, one.parked, one.last_error)
                )
    return sorted(found, key=lambda one: (not one.parked, one.since is None, one.since or clock.now()))


_PLACES: dict[Sort, Callable[[ListedTable], Any]] = {
    "name": attrgetter("status.name"),
    "health": lambda one: list(Level).index(one.health.level),
    "rows": attrgetter("status.rows"),
    "bytes": attrgetter("status.size_bytes"),
    "partitions": attrgetter("status.partitions"),
    "files": attrgetter("status.files_per_partition_mean"),
    "backlog": attrgetter("status.backlog.all_bytes"),
    "commit": lambda one: 0.0 if one.committed_at is None else one.committed_at.timestamp(),
}
"""What tables are sorted by."""


def make(
    status: ServiceStatus,
    tables: Sequence[TableStatus],
    recent: Mapping[str, RecentCommits],
    instance: str,
    asked: Asked,
) -> OverviewPage:
    """Return the page of these tables; ``recent`` are their commits, by the tables' ids."""
    times = {table_id: one.committed_at for table_id, one in recent.items()}
    listed = [ListedTable(table, health_of(table), times.get(table.id)) for table in tables]
    levels = [one.health.level for one in listed]
    text = asked.filter.casefold()
    matching = [one for one in listed if text in one.status.name.casefold() and asked.health in ("", one.health.level)]
    matching.sort(key=_PLACES[asked.sort], reverse=asked.descending)
    part, number, numbers = rendering.part_of(matching, asked.number, PAGE_TABLES)
    minutes, periods = _WINDOWS[asked.window]
    done = throughput(recent.values(), clock.now(), minutes=minutes, periods=periods)
    begin_s, period_s = done.begin_s, done.period_s
    troubles = troubles_of(tables)
    names = {table.name for table in tables}
    return OverviewPage(
        instance=instance,
        maintains=status.maintains,
        started_at=status.started_at,
        error=status.error,
        totals=totals_of(tables),
        levels=tuple((level, count) for level in reversed(Level) if (count := levels.count(level))),
        reads=status.reads,
        charts=(
            charts.bars("Commits", "", done.commits, begin_s, period_s),
            charts.bars("Rows added", "", done.rows, begin_s, period_s),
            charts.bars("Bytes added", "bytes", done.size_bytes, begin_s, period_s),
        ),
        charts_cut=done.cut,
        work=tuple(one for one in status.work if one.table in names),
        troubles=tuple(troubles[:TROUBLES_MAX]),
        troubles_more=max(0, len(troubles) - TROUBLES_MAX),
        asked=replace(asked, number=number),
        matching=len(matching),
        numbers=numbers,
        tables=tuple(part),
    )


@rendering.page("/")
def overview(
    request: AnyRequest,
    service: TheService,
    memory: NamedDependency[PageMemory],
    principal: ThePrincipal,
    *,
    q: FromQuery[str] = "",
    health: FromQuery[str] = "",
    sort: FromQuery[Sort] = "name",
    desc: FromQuery[bool] = False,
    page: FromQuery[int] = 1,
    window: FromQuery[Window] = "hour",
) -> Response[bytes]:
    """All tables that the principal may see whole."""
    status = service.status()
    tables = [one for one in status.tables if principal.reads_whole(one.name)]
    recent = memory.activity.recent(tables, WAIT_S if memory.activity.has_begun else FIRST_WAIT_S)
    found = make(status, tables, recent, service.instance.url, Asked(q, health, sort, desc, page, window))
    in_part = [
        one.name for one in status.tables if principal.policy(one.name) is not None and principal.permission(one.name)
    ]
    return rendering.answer(request, "overview.html", replace(found, in_part=tuple(in_part)), principal)
