"""The status of a service and its tables at a point in time, as values.

:meth:`lakebed.server.service.service.Service.status` makes them from what the service has in memory: no request. Times
are aware and of this machine's clock, for people.

Core types: :class:`ServiceStatus`, :class:`TableStatus`, :class:`OperationStatus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from lakebed.model.table_summary import NO_BACKLOG, Backlog


class SparkState(StrEnum):
    """The state of Spark in a service."""

    NONE = "none"
    """There is no session; the next large work starts one."""
    STARTING = "starting"
    RUNNING = "running"
    IDLE = "idle"
    """There is a session without work; it is stopped after a while."""


@dataclass(frozen=True, slots=True)
class LastError:
    """An error: its code, its message and its time."""

    code: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """One operation on one table.

    ``last_outcome`` is the result of the last run, ``last_error`` its failure; one of them is None. After a failure the
    operation waits since ``waiting_since``, the time of the first of its failures in a row, for what ``waiting_for``
    says, and is tried again at ``next_at``. ``parked``: it is not retried until it is requested; of a
    compaction, ``parked_partitions`` are left out until then. ``due`` is why it will run next; None: there is nothing
    to do now.
    """

    operation: str
    last_begun: datetime | None = None
    last_ended: datetime | None = None
    last_outcome: str | None = None
    last_error: LastError | None = None
    failures_in_a_row: int = 0
    waiting_since: datetime | None = None
    waiting_for: str | None = None
    next_at: datetime | None = None
    parked: bool = False
    paused: bool = False
    due: str | None = None
    parked_partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """Another catalog that a table is pushed to: ``version`` is that of its table there, as far as this service knows.

    0: it has pushed none yet. ``error`` is why the last push failed.
    """

    catalog: str
    version: int
    error: str | None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table at ``version``, the last one that the service has seen; 0: none yet.

    ``files`` counts the references of partitions to files. ``unreferenced_files``, with ``unreferenced_bytes``, have
    none: older versions need them, or garbage collection deletes them. ``error`` is why its log cannot be read now.
    ``published`` is the version that other engines read, 0 if none is yet; None if the table is not published, and
    ``publication_error`` why the latest is not. ``catalogs`` are those of others that a service pushes it to.
    """

    id: str
    name: str
    online: bool
    paused: tuple[str, ...] = ()
    version: int = 0
    rows: int = 0
    size_bytes: int = 0
    partitions: int = 0
    files: int = 0
    files_per_partition_mean: float = 0.0
    files_per_partition_max: int = 0
    unreferenced_files: int = 0
    unreferenced_bytes: int = 0
    backlog: Backlog = NO_BACKLOG
    operations: tuple[OperationStatus, ...] = ()
    error: LastError | None = None
    published: int | None = None
    publication_error: str | None = None
    catalogs: tuple[CatalogStatus, ...] = ()

    @property
    def published_lag(self) -> int | None:
        """How many versions the published one is behind; None if the table is not published."""
        return None if self.published is None else max(0, self.version - self.published)

    def operation(self, operation: str) -> OperationStatus:
        """Return the status of one operation."""
        return next((one for one in self.operations if one.operation == operation), OperationStatus(operation))


@dataclass(frozen=True, slots=True)
class Work:
    """Running work. Operations that do not count rows have none in total."""

    table: str
    operation: str
    since: datetime
    rows_done: int = 0
    rows_total: int = 0


@dataclass(frozen=True, slots=True)
class HookStatus:
    """A hook of a table (by its id). ``delivered`` is the version up to which it has all events.

    ``target`` is the URL or the command; None for who may not see it.
    ``error`` is why it fails, ``since`` when, ``failures`` how often in a row, and ``next_at`` when it is tried again.
    """

    id: str
    table: str
    target: str | None
    delivered: int
    failures: int
    since: str | None
    error: str | None
    next_at: datetime | None


class FollowerState(StrEnum):
    """What a declared follower does."""

    STARTING = "starting"
    """Its process runs here, and has not recorded yet that it follows, or why it cannot."""
    FOLLOWING = "following"
    ELSEWHERE = "elsewhere"
    """Another process follows: that of another service, or of a command."""
    WAITING = "waiting"
    """It failed, and is tried again."""
    PAUSED = "paused"
    PARKED = "parked"
    """It failed too often, and is not tried again until it is resumed."""
    DAMAGED = "damaged"
    """Its declaration cannot be read."""


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """A declared follower of the source at ``url``: ``tables`` take its changes.

    ``place`` is its position in the terms of the source, which has ``behind`` more in ``behind_unit``, the oldest of it
    ``lag_s`` seconds old; if its record, of ``recorded_at``, is old, that age is part of it. ``changes`` and
    ``dead_letters`` are counted since the follower began. ``error`` is why it fails, ``since`` when, ``failures`` how
    often in a row, and ``next_at`` when it is tried again.
    """

    name: str
    url: str
    state: FollowerState
    tables: tuple[str, ...] = ()
    place: Mapping[str, str] = field(default_factory=dict)
    behind: int = 0
    behind_unit: str = ""
    lag_s: float = 0.0
    changes: int = 0
    dead_letters: int = 0
    recorded_at: str = ""
    error: str | None = None
    failures: int = 0
    since: datetime | None = None
    next_at: datetime | None = None


PUT_DOLLARS = 0.005 / 1_000
GET_DOLLARS = 0.0004 / 1_000
"""The list prices of S3 (standard, US East)."""


@dataclass(frozen=True, slots=True)
class StoreRequests:
    """All requests of a process to object stores in an hour, and their price at the list prices of S3.

    ``puts`` are those at the price of a put, lists among them. A local disk takes none.
    """

    puts: int = 0
    gets: int = 0
    dollars: float = 0.0

    @classmethod
    def of(cls, puts: int, gets: int) -> StoreRequests:
        """With their price."""
        return cls(puts, gets, puts * PUT_DOLLARS + gets * GET_DOLLARS)


@dataclass(frozen=True, slots=True)
class ReadRates:
    """Reads of the last ``window_s`` seconds; ``errors`` are those that failed, through the caller's fault too.

    ``p50_s`` and ``p99_s`` are the seconds within which half, and 99 of 100, were answered, rounded up by less than a
    fifth; None if there was no read.
    """

    window_s: float = 0.0
    reads: int = 0
    errors: int = 0
    per_second: float = 0.0
    p50_s: float | None = None
    p99_s: float | None = None


NO_READS = ReadRates()


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """A service at a moment; ``version`` is that of Lakebed. ``tables`` are sorted by name.

    ``error`` is why the catalog cannot be read now. ``maintains``: whether it maintains tables at all. ``last_hour``
    counts what its process asked of the store: looks at logs, reads and writes, but not those of Spark and of workers.
    ``reads`` are those that it answered lately. ``followers`` are those that are declared, if it runs followers.
    """

    started_at: datetime | None
    version: str
    spark: SparkState
    work: tuple[Work, ...]
    tables: tuple[TableStatus, ...]
    maintains: bool = True
    error: LastError | None = None
    hooks: tuple[HookStatus, ...] = ()
    last_hour: StoreRequests = StoreRequests()
    reads: ReadRates = NO_READS
    followers: tuple[FollowerStatus, ...] = ()

    def table(self, name: str) -> TableStatus | None:
        """Return the status of the table of that name; None if the service does not know it."""
        return next((table for table in self.tables if table.name == name), None)
