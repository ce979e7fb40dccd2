"""Statements in SQL, each in a process of its own with limits on memory and time.

Rule: a statement holds its place until its last row is sent, since its process lives that long. Errors: ContentionError
without a place in time; those of statements. Source: docs/http.md.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from litestar import Response
from litestar.params import JSONBody

from lakebed.read.sql.limited import Limits
from lakebed.server.security.sql import run_statement
from lakebed.server.web.api.descriptions import post_rows
from lakebed.server.web.middleware import note
from lakebed.server.web.provided import AnyRequest, TheLimits, ThePrincipal, TheService, TheStatements
from lakebed.server.web.request_bodies import SqlBody
from lakebed.server.web.row_answers import answer_rows
from lakebed.server.web.row_formats import chosen_format
from lakebed.server.web.waiting import place_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.server.security.principal import Principal
    from lakebed.server.service.room import Room
    from lakebed.server.web.limits import RequestLimits
    from lakebed.server.web.row_formats import RowFormat


@post_rows("/v1/sql", tags=["sql"])
async def run_sql(
    *,
    request: AnyRequest,
    service: TheService,
    principal: ThePrincipal,
    limits: TheLimits,
    statements: TheStatements,
    data: JSONBody[SqlBody],
) -> Response[bytes]:
    """The rows of a query over any of the tables, by their names."""
    note(request, statement=data.statement)
    form = chosen_format(request.headers.get("accept"))
    memory_bytes = min(data.memory_limit_bytes or limits.sql_memory_bytes, limits.sql_memory_bytes)
    timeout_s = min(data.timeout_s or limits.request_s, limits.request_s)

    def rows(cancelled: threading.Event) -> Any:
        bounds = Limits(memory_bytes, timeout_s, cancelled)
        return run_statement(principal, service.instance, data.statement, bounds, service.spare_workers)

    return await answer_statement(request, rows, form, limits, statements=statements, principal=principal)


async def answer_statement(
    request: AnyRequest,
    open_rows: Callable[[threading.Event], Any],
    form: RowFormat,
    limits: RequestLimits,
    *,
    statements: Room,
    principal: Principal,
) -> Response[bytes]:
    """Return the rows of a statement, which holds a place until the last is sent, or until the event ends it."""
    cancelled = threading.Event()
    async with place_in(statements, principal.name, request, limits.wait_s) as place:
        return await answer_rows(request, lambda: open_rows(cancelled), form, limits, cancelled, closed=place.free)
