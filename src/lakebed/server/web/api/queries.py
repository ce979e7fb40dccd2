"""Statements in SQL, and ``/v1/queries``: queries that run in the background, and whose rows are fetched later.

Rules: a statement has a process of its own with limits on memory and time, and holds its place until its last row is
sent, since its process lives that long. A query is checked when it is submitted; it runs later, with the roles that the
principal has now; one that is not visible to the principal is reported as not found. Errors: ContentionError without a
place in time; UsageError, AccessError, NotFoundError; those of statements. Source: docs/http.md.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
from litestar import Response, delete, get, post
from litestar.params import JSONBody

from lakebed.errors import Code
from lakebed.model.json_values import plain
from lakebed.model.keys import ALL_KEYS
from lakebed.read.rows.row_stream import RowStream
from lakebed.read.sql.limited import Limits
from lakebed.server.security.principal import Permission
from lakebed.server.security.sql import execute_statement, run_statement
from lakebed.server.web.access import (
    AnyRequest,
    PathText,
    RequestedTable,
    TheAnswers,
    TheLimits,
    ThePrincipal,
    TheQueries,
    TheService,
    TheStatements,
    TheTables,
    TheWriters,
)
from lakebed.server.web.api.descriptions import ERRORS, get_rows, post_rows
from lakebed.server.web.api.reads import opened_scan
from lakebed.server.web.middleware import note
from lakebed.server.web.request_bodies import ExecuteBody, ScanBody, SqlBody, SubmitQueryBody, check_source, key_ranges
from lakebed.server.web.row_answers import answer_rows, chosen_format
from lakebed.server.web.waiting import place_in, threaded
from lakebed.table.tracker.submitted_queries import AskedScan, not_there

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.server.security.principal import Principal
    from lakebed.server.service.query_runs import SubmittedQueries
    from lakebed.server.service.room import Room
    from lakebed.server.web.access import OpenTables
    from lakebed.server.web.row_answers import RowFormat
    from lakebed.server.web.waiting import RequestLimits
    from lakebed.table.tracker.submitted_queries import QueryState, SubmittedQuery


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


@post("/v1/sql/execute", tags=["sql"], responses=ERRORS, status_code=200)
async def execute_sql(
    *,
    request: AnyRequest,
    service: TheService,
    tables: TheTables,
    principal: ThePrincipal,
    limits: TheLimits,
    statements: TheStatements,
    writers: TheWriters,
    data: JSONBody[ExecuteBody],
) -> dict[str, Any]:
    """Run a statement that changes something, in one commit: what it changed, and how many rows."""
    note(request, statement=data.statement)
    memory_bytes = min(data.memory_limit_bytes or limits.sql_memory_bytes, limits.sql_memory_bytes)
    bounds = Limits(memory_bytes, min(data.timeout_s or limits.request_s, limits.request_s))

    def rows(query: str) -> Any:
        return run_statement(principal, service.instance, query, bounds, service.spare_workers)

    def run() -> dict[str, Any]:
        report = execute_statement(principal, service.instance, data.statement, rows, data.commit_id)
        if report.statement in ("DROP TABLE", "DROP INDEX", "ALTER TABLE"):
            tables.forget_all()
        return dict(plain(report))

    async with place_in(statements, principal.name, request, limits.wait_s) as place:
        try:
            return await anyio.to_thread.run_sync(run, limiter=writers)
        finally:
            place.free()


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


@post("/v1/queries", tags=["queries"], responses=ERRORS, status_code=202)
async def submit_query(
    *,
    request: AnyRequest,
    tables: TheTables,
    principal: ThePrincipal,
    limits: TheLimits,
    queries: TheQueries,
    data: JSONBody[SubmitQueryBody],
) -> dict[str, Any]:
    """Run a scan of a table, or a statement, in the background. The answer has its id.

    The rows are kept by the service until the query expires, or written to a URL that it allows. A repeat with the same
    ``id`` is the same query.
    """
    note(request, statement=data.statement, table=data.table)
    if (data.table is None) == (data.statement is None):
        raise Code.ARGUMENTS_CONFLICT("a query is a scan of a table or a statement in SQL: give table or statement")
    if data.statement is not None and data.scan is not None:
        raise Code.ARGUMENTS_CONFLICT("scan goes with table; a statement says itself what it reads")
    if data.format is not None and data.url is None:
        raise Code.ARGUMENTS_CONFLICT("format goes with url; rows that are kept are fetched in any format")
    if data.url is not None:
        check_source(data.url, limits.sources)
    body = data.scan or ScanBody()
    if data.table is not None:
        await RequestedTable(tables, principal, data.table).awaited(request, body.at, body.at_least)

    def submit() -> dict[str, Any]:
        state = queries.submit(
            principal,
            msgspec.to_builtins(data),
            scan=None if data.table is None else _asked_scan(tables, principal, data.table, body),
            statement=data.statement,
            url=data.url,
            file_format=data.format or "parquet",
            query_id=data.id,
        )
        return _state_document(state)

    return await anyio.to_thread.run_sync(submit)


def _asked_scan(tables: OpenTables, principal: Principal, name: str, body: ScanBody) -> AskedScan:
    """Return the scan of the current version of the table. Raises the errors that it would raise when it runs."""
    found = tables.readable(principal, name, body.at)
    snapshot = found.snapshot(body.max_staleness, body.at_least)
    opened_scan(snapshot, msgspec.structs.replace(body, max_staleness=None, at_least=None)).close()
    codec = snapshot.schema.codec
    ranges = [codec.encode_range(one) for one in key_ranges(snapshot.schema, body.ranges)] or [ALL_KEYS]
    return AskedScan(
        table=name,
        table_id=tables.table(principal, Permission.READ, name).id,
        version=snapshot.version,
        ranges=tuple((one.min.hex(), None if one.max is None else one.max.hex()) for one in ranges),
        columns=None if body.columns is None else tuple(body.columns),
        where=body.where,
        limit=body.limit,
        reverse=body.reverse,
        raw=body.raw,
    )


@get("/v1/queries", tags=["queries"], responses=ERRORS)
@threaded
def list_queries(principal: ThePrincipal, queries: TheQueries) -> dict[str, Any]:
    """The queries of the principal, and those of tables that it administers; the newest first."""
    return {
        "queries": [_state_document(queries.state(query)) for query in queries.queries() if _may_see(principal, query)]
    }


@get("/v1/queries/{query_id:str}", tags=["queries"], responses=ERRORS)
@threaded
def show_query(principal: ThePrincipal, queries: TheQueries, query_id: PathText) -> dict[str, Any]:
    """The state of a query: queued, running, completed, failed, cancelled or lost."""
    return _state_document(queries.state(_found(queries, principal, query_id)))


@delete("/v1/queries/{query_id:str}", tags=["queries"], responses=ERRORS, status_code=200)
@threaded
def cancel_query(principal: ThePrincipal, queries: TheQueries, query_id: PathText) -> dict[str, Any]:
    """End a query that runs; delete one that has ended, with the rows that the service keeps."""
    return _state_document(queries.cancel(_found(queries, principal, query_id)))


@get_rows("/v1/queries/{query_id:str}/rows", tags=["queries"])
async def query_rows(
    request: AnyRequest, principal: ThePrincipal, answers: TheAnswers, queries: TheQueries, query_id: PathText
) -> Response[bytes]:
    """The rows of a completed query."""
    form = chosen_format(request.headers.get("accept"))
    query = await anyio.to_thread.run_sync(_found, queries, principal, query_id)
    _check_roles(principal, query)

    def kept() -> RowStream:
        schema, batches = queries.rows(query)
        return RowStream(schema, (batch for batch in batches))

    return await answers.send(request, kept, form, principal)


def _may_see(principal: Principal, query: SubmittedQuery) -> bool:
    return query.submitted_by == principal.name or _administers(principal, query)


def _administers(principal: Principal, query: SubmittedQuery) -> bool:
    """Return whether the principal is an admin of all that the query may read: its table, or for SQL every table."""
    return principal.permission(None if query.scan is None else query.scan.table) == Permission.ADMIN


def _check_roles(principal: Principal, query: SubmittedQuery) -> None:
    """Raise AccessError for rows that the principal could see when it submitted the query, but perhaps not now."""
    if not _administers(principal, query) and query.principal != principal.to_json():
        raise Code.PERMISSION_MISSING(
            f"the roles of {principal.name} are not those with which query {query.id} was submitted; submit it again",
            permission="READ",
        )


def _found(queries: SubmittedQueries, principal: Principal, query_id: str) -> SubmittedQuery:
    query = queries.query(query_id)
    if not _may_see(principal, query):
        # Reported as not found, so that ids of other principals are not revealed.
        raise not_there(query_id)
    return query


def _state_document(state: QueryState) -> dict[str, Any]:
    return dict(msgspec.to_builtins(state))
