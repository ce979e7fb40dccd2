"""The page of the log: the last transactions of all tables, or all retained ones of one table, newest first.

The log of all tables is what :mod:`lakebed.server.web.pages.page_memory` has in memory; that of one table is read entry
by entry. Source: docs/pages.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice, takewhile
from operator import itemgetter

from litestar import Response
from litestar.di import NamedDependency
from litestar.params import FromQuery

from lakebed.errors import NotRetainedError
from lakebed.model.checks import INT64_MAX
from lakebed.read.inspect.history import HistoryRow, rows_of
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.service.service import Service
from lakebed.server.web.access import AnyRequest, PathText, ThePrincipal, TheService, TheTables
from lakebed.server.web.pages import rendering
from lakebed.server.web.pages.page_memory import ROWS_KEPT, PageMemory
from lakebed.table.table import Table

PAGE_ROWS = 100

WAIT_S = 0.2
"""For commits that are newer than those at hand."""


@dataclass(frozen=True, slots=True)
class LoggedRow:
    """A transaction and the table that it changed."""

    table: str
    row: HistoryRow


@dataclass(frozen=True, slots=True)
class LogPage:
    """Transactions, newest first. ``older`` is the time, or for one table the version, before which there are more."""

    table: str | None
    rows: tuple[LoggedRow, ...]
    older: datetime | int | None
    is_latest: bool


def transactions_before(table: Table, version: int) -> Iterator[HistoryRow]:
    """Return the transactions of the versions below one, newest first, each entry read when it is its turn."""
    for number in range(min(version - 1, table.state().version), 0, -1):
        try:
            stored = table.log.read(number)
        except NotRetainedError:
            return
        if stored is None:
            return
        yield from rows_of(stored, table.id)


def page_of_table(table: Table, before: int | None) -> LogPage:
    """Return the log of one table below a version, or from the latest one."""
    found: list[HistoryRow] = []
    for row in transactions_before(table, INT64_MAX if before is None else before):
        # An entry is shown whole, so that the next page begins with another.
        if len(found) >= PAGE_ROWS and row.version != found[-1].version:
            break
        found.append(row)
    older = found[-1].version if found and found[-1].version > 1 else None
    return LogPage(table.name, tuple(LoggedRow(table.name, row) for row in found), older, before is None)


def page_of_all(service: Service, memory: PageMemory, principal: Principal, before: datetime | None) -> LogPage:
    """Return the last transactions of the tables that the principal may read whole, before a time."""
    tables = [one for one in service.status().tables if principal.reads_whole(one.name)]
    names = {one.id: one.name for one in tables}
    recent = memory.activity.recent(tables, WAIT_S)
    logs = [[(row.time, names[at], row) for row in one.rows] for at, one in recent.items()]
    newest_first = merge(*logs, key=itemgetter(0), reverse=True)
    wanted = (one for one in newest_first if before is None or one[0] < before)
    found = [LoggedRow(name, row) for _, name, row in islice(wanted, PAGE_ROWS)]
    older = None
    if len(found) == PAGE_ROWS:
        # Transactions with the same time are on one page; the next page begins before that time.
        older = found[-1].row.time
        found += [LoggedRow(name, row) for _, name, row in takewhile(lambda one: one[0] == older, wanted)]
    return LogPage(None, tuple(found), older, before is None)


@rendering.page("/log")
def all_logs(
    *,
    request: AnyRequest,
    service: TheService,
    memory: NamedDependency[PageMemory],
    principal: ThePrincipal,
    before: FromQuery[datetime | None] = None,
) -> Response[bytes]:
    """The last transactions of all tables."""
    found = page_of_all(service, memory, principal, before)
    return rendering.answer(request, "log.html", found, principal, rows_kept=ROWS_KEPT)


@rendering.page("/tables/{name:str}/log")
def table_log(
    *,
    request: AnyRequest,
    tables: TheTables,
    principal: ThePrincipal,
    name: PathText,
    before: FromQuery[int | None] = None,
) -> Response[bytes]:
    """The whole log of a table."""
    principal.require_all_rows(name)
    found = page_of_table(tables.table(principal, Permission.READ, name), before)
    return rendering.answer(request, "log.html", found, principal, rows_kept=ROWS_KEPT)
