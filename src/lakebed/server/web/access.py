"""What handlers declare as parameters; access to tables and job runs: the permission is checked before the look-up.

Core types: :class:`OpenTables`, :class:`RequestedTable`. A name is looked up in the catalog at most once a second, so
that a read by key costs no request for it; after a rename the old name works up to a second longer. The log of a
dropped table refuses every use, and a read then looks its name up again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from litestar import Request
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.params import Body, FromPath

from lakebed import clock
from lakebed.errors import Code, Error, NotFoundError
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.service.query_runs import SubmittedQueries
from lakebed.server.service.room import Room
from lakebed.server.service.service import Service
from lakebed.server.web.row_answers import OpenAnswers
from lakebed.server.web.waiting import AwaitedVersions, Lookups, RequestLimits, while_connected
from lakebed.table.tracker.listing import run_details
from lakebed.table.tracker.runs import request_retry

if TYPE_CHECKING:
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.handles import TableHandle
    from lakebed.table.table import Table
    from lakebed.table.tracker.listing import RunDetails
    from lakebed.table.tracker.runs import JobRun


Answer = TypeVar("Answer")

LOOKUP_S = 1.0
"""How long a name stands for the table that it was found to be."""

NAMES_MAX = 512
"""Names that are kept, since a handle keeps the state of its table in memory; then all are looked up again."""


class OpenTables:
    """Finds tables by name. Safe to use from many threads."""

    def __init__(self, service: Service) -> None:
        self.awaited = AwaitedVersions()
        self._instance = service.instance
        self._found: dict[str, tuple[Table, float]] = {}

    def table(self, principal: Principal, permission: Permission, name: str) -> Table:
        """Return the table of that name, for what the permission allows. Raises AccessError, NotFoundError."""
        principal.require(permission, name)
        known = self._found.get(name)
        now = clock.monotonic_s()
        if known is not None and now - known[1] <= LOOKUP_S and not known[0].log.head.state.dropped:
            return known[0]
        try:
            table = self._instance.table(name)
        except Error as error:
            self._found.pop(name, None)
            if error.code is Code.TABLE_NOT_FOUND:
                # Its message would list tables that are not visible to this principal.
                raise Code.TABLE_NOT_FOUND(f"no table named {name!r}", table=name) from error
            raise
        if len(self._found) >= NAMES_MAX:
            self._found.clear()
        self._found[name] = table, now
        return table

    def names(self) -> list[str]:
        """Return the names of all tables."""
        return self._instance.tables()

    def readable(self, principal: Principal, name: str, at: str | None = None) -> TableHandle[RowStream]:
        """Return the table as the principal may read it, or as it was at a version, a tag or a time.

        Raises AccessError, NotFoundError, NotRetainedError.
        """
        table = principal.readable(self.table(principal, Permission.READ, name))
        return table if at is None else table.at(at)

    def forget(self, name: str) -> None:
        """Look the name up again: its table was renamed or dropped."""
        self._found.pop(name, None)

    def forget_all(self) -> None:
        """Look all names up again, after a statement that may have renamed or dropped any."""
        self._found.clear()


@dataclass(frozen=True, slots=True)
class RequestedTable:
    """The name of a table in the path of a request, and the principal who asks for it. Its methods look it up."""

    tables: OpenTables
    principal: Principal
    name: str

    def table(self, permission: Permission) -> Table:
        """Return the table, for what the permission allows. Raises AccessError, NotFoundError."""
        return self.tables.table(self.principal, permission, self.name)

    def whole(self) -> Table:
        """Return the table, for a principal that may read all of its rows. Raises AccessError, NotFoundError."""
        found = self.table(Permission.READ)
        self.principal.require_all_rows(self.name)
        return found

    def readable(self, at: str | None = None) -> TableHandle[RowStream]:
        """As :meth:`OpenTables.readable`."""
        return self.tables.readable(self.principal, self.name, at)

    async def awaited(self, request: Request[Any, Any, Any], at: str | None, at_least: int | None) -> None:
        """Wait for the version or the time that a read is of, without a thread, as long as the client is there.

        Raises AccessError, NotFoundError.
        """
        if at is None and at_least is None:
            return
        table = await anyio.to_thread.run_sync(self.table, Permission.READ)
        await while_connected(request, partial(self.tables.awaited.wait, table, at, at_least))

    def read(self, at: str | None, function: Callable[[TableHandle[RowStream]], Answer]) -> Answer:
        """Return the result of the function on :meth:`readable`, or on a table that has the name after a drop."""
        try:
            return function(self.readable(at))
        except NotFoundError as error:
            if error.code is not Code.TABLE_NOT_FOUND:
                raise
            self.tables.forget(self.name)
            return function(self.readable(at))


def may_see(principal: Principal, run: JobRun) -> bool:
    """Return whether a run is visible to the principal: it may read the whole table, or all tables for other work."""
    if not run.table:
        return principal.permission() is not None
    return principal.reads_whole(run.table)


def seen_run(service: Service, principal: Principal, job: str) -> RunDetails:
    """Return a run of a job that is visible to the principal; the last eight characters of its id are enough.

    Raises NotFoundError.
    """
    found = run_details(service.instance.storage, job)
    if not may_see(principal, found.run):
        raise Code.JOB_NOT_FOUND(f"no job run {job[:100]} that you may see is on record", job=job[:100])
    return found


def retry_run(service: Service, principal: Principal, job: str) -> tuple[JobRun, bool]:
    """Request a retry of a parked job in the next round; returns the run, and False if that was requested before.

    Raises AccessError, NotFoundError, RejectedError for a job that is not parked.
    """
    run = seen_run(service, principal, job).run
    principal.require(Permission.ADMIN, run.table or None)
    if not run.parked:
        raise Code.JOB_NOT_PARKED(f"job {run.id} is not parked: its outcome is {run.outcome}", job=run.id)
    return run, request_retry(service.instance.storage, run.id)


AnyRequest: TypeAlias = Request[Any, Any, Any]
TheService = NamedDependency[Service]
ThePrincipal = NamedDependency[Principal]
TheTables = NamedDependency[OpenTables]
TheTable = NamedDependency[RequestedTable]
TheLookups = NamedDependency[Lookups]
TheLimits = NamedDependency[RequestLimits]
TheStatements = NamedDependency[Room]
"""Statements that run at once."""
TheAnswers = NamedDependency[OpenAnswers]
TheWriters = NamedDependency[anyio.CapacityLimiter]
"""The threads of writes, which may sleep while a table has too many runs."""
TheQueries = NamedDependency[SubmittedQueries]
PathText = FromPath[str]
FormBody = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]


def requested_table(tables: TheTables, principal: ThePrincipal, table: PathText) -> RequestedTable:
    """Return the table that a path with ``{table:str}`` names."""
    return RequestedTable(tables, principal, table)
