"""``/v1/queries``: queries that run in the background, and whose rows are fetched later."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
from litestar import Response, delete, get, post
from litestar.params import JSONBody

from lakebed.errors import Code
from lakebed.read.row_stream import RowStream
from lakebed.security.principal import Permission
from lakebed.sql.limited import Limits
from lakebed.web.api.descriptions import ERRORS, RowsOperation
from lakebed.web.api.reads import opened_scan
from lakebed.web.api.writes import check_source
from lakebed.web.audited_requests import note
from lakebed.web.provided import AnyRequest, PathText, TheLimits, ThePrincipal, TheQueries, TheService, TheTables
from lakebed.web.request_bodies import SubmitQueryBody
from lakebed.web.row_answers import answer_rows
from lakebed.web.row_formats import chosen_format
from lakebed.web.submitted_queries import QueryState
from lakebed.web.threads import threaded

if TYPE_CHECKING:
    from lakebed.security.principal import Principal
    from lakebed.web.row_answers import RowReader
    from lakebed.web.submitted_queries import SubmittedQueries


@post("/v1/queries", tags=["queries"], responses=ERRORS, status_code=202)
@threaded
def submit_query(
    *,
    request: AnyRequest,
    service: TheService,
    tables: TheTables,
    principal: ThePrincipal,
    limits: TheLimits,
    queries: TheQueries,
    data: JSONBody[SubmitQueryBody],
) -> dict[str, Any]:
    """Run a scan of a table, or a statement, in the background. The answer has its id.

    The rows are kept by the service until the query expires, or written to a URL that it allows.
    """
    note(request, statement=data.statement, table=data.table)
    if (data.table is None) == (data.statement is None):
        raise Code.ARGUMENTS_CONFLICT("a query is a scan of a table or a statement in SQL: give table or statement")
    if data.statement is not None and data.scan is not None:
        raise Code.ARGUMENTS_CONFLICT("scan goes with table; a statement says itself what it reads")
    if data.url is not None:
        check_source(data.url, limits.sources)
    if data.table is not None:
        at = None if data.scan is None else data.scan.at
        snapshot = tables.readable(principal, data.table, at).snapshot()

    def rows(cancelled: threading.Event) -> RowReader:
        if data.statement is None:
            return opened_scan(snapshot, data.scan)
        bounds = Limits(limits.sql_memory_bytes, limits.query_s, cancelled)
        found: RowReader = principal.sql(service.instance, data.statement, bounds)
        return found

    asked = msgspec.to_builtins(data)
    return _shown(queries.submit(asked, principal.name, rows, data.url))


@get("/v1/queries", tags=["queries"], responses=ERRORS)
@threaded
def list_queries(principal: ThePrincipal, queries: TheQueries) -> dict[str, Any]:
    """The queries of the principal, those of all for admins; the newest first."""
    return {"queries": [_shown(state) for state in queries.states() if _may_see(principal, state)]}


@get("/v1/queries/{query_id:str}", tags=["queries"], responses=ERRORS)
@threaded
def show_query(principal: ThePrincipal, queries: TheQueries, query_id: PathText) -> dict[str, Any]:
    """How far a query is: queued, running, completed, failed, cancelled or lost."""
    return _shown(_found(queries, principal, query_id))


@delete("/v1/queries/{query_id:str}", tags=["queries"], responses=ERRORS, status_code=200)
@threaded
def cancel_query(principal: ThePrincipal, queries: TheQueries, query_id: PathText) -> dict[str, Any]:
    """End a query that runs; delete one that has ended, with the rows that the service keeps."""
    return _shown(queries.cancel(_found(queries, principal, query_id).id))


@get("/v1/queries/{query_id:str}/rows", tags=["queries"], operation_class=RowsOperation, responses=ERRORS)
async def query_rows(
    request: AnyRequest, principal: ThePrincipal, limits: TheLimits, queries: TheQueries, query_id: PathText
) -> Response[bytes]:
    """The rows of a completed query."""
    form = chosen_format(request.headers.get("accept"))
    state = await anyio.to_thread.run_sync(_found, queries, principal, query_id)

    def kept() -> RowStream:
        schema, batches = queries.rows(state)
        return RowStream(schema, (batch for batch in batches))

    return await answer_rows(request, kept, form, limits.of_answer())


def _may_see(principal: Principal, state: QueryState) -> bool:
    return state.submitted_by == principal.name or principal.permission() == Permission.ADMIN


def _found(queries: SubmittedQueries, principal: Principal, query: str) -> QueryState:
    state = queries.get(query)
    if not _may_see(principal, state):
        # As if it were not there: ids of others are nothing to know of.
        raise Code.QUERY_NOT_FOUND(f"no query {query[:100]!r}: it expired, or never was", query=query[:100])
    return state


def _shown(state: QueryState) -> dict[str, Any]:
    return dict(msgspec.to_builtins(state))


ROUTES = (submit_query, list_queries, show_query, cancel_query, query_rows)
