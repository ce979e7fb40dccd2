"""Reads of a table: by key, by range, counts, samples, prefixes, and what a read took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import anyio.to_thread
from litestar import MediaType, Response, post
from litestar.params import FromQuery, JSONBody, QueryParameter

from lakebed.web.api.descriptions import ERRORS, KeysOperation, get_rows, post_rows
from lakebed.web.provided import AnyRequest, PathText, TheLimits, TheLookups, ThePrincipal, TheTables
from lakebed.web.request_bodies import (
    CountBody,
    ExplainBody,
    GetBody,
    GetManyBody,
    PrefixesBody,
    SampleBody,
    ScanBody,
    arrow_table,
    json_body,
)
from lakebed.web.row_answers import answer_rows, answer_table
from lakebed.web.row_formats import ARROW, RowFormat, chosen_format
from lakebed.web.selections import Count, RangeSelection, Seconds, Version, When, column_names, key_ranges
from lakebed.web.threads import threaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.read.row_stream import RowStream
    from lakebed.snapshot.snapshot import Snapshot
    from lakebed.table.table import Table
    from lakebed.web.limits import RequestLimits
    from lakebed.web.threads import Lookups

Words = Annotated[list[str] | None, QueryParameter(required=False)]
"""A parameter of a URL that may be given more than once."""


def accepted(request: AnyRequest) -> RowFormat:
    """The format of the rows that the request asks for."""
    return chosen_format(request.headers.get("accept"))


async def _answer_get(
    request: AnyRequest, lookups: Lookups, open_table: Callable[[], Table | Snapshot], body: GetBody
) -> Response[bytes]:
    form = accepted(request)

    def look_up() -> Response[bytes]:
        table = open_table()
        key = table.schema.codec.parse(body.key)
        fresh: dict[str, Any] = {"max_staleness": body.max_staleness, "at_least": body.at_least}
        rows = table.get(*key, columns=body.columns, raw=body.raw, apply=body.apply, **fresh)
        return answer_table(rows, form)

    return await lookups.run(look_up)


@get_rows("/v1/tables/{table:str}/get", tags=["rows"])
async def get_row(
    *,
    request: AnyRequest,
    lookups: TheLookups,
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    key: Annotated[list[str], QueryParameter(description="A value for each row key field, in order.")],
    columns: Words = None,
    at: FromQuery[When | None] = None,
    max_staleness: FromQuery[Seconds | None] = None,
    at_least: FromQuery[Version | None] = None,
) -> Response[bytes]:
    """All rows of one key, ordered by sort key; none if the key has none."""
    body = GetBody(list(key), column_names(columns), at, max_staleness, at_least)
    return await _answer_get(request, lookups, lambda: tables.readable(principal, table, at), body)


@post_rows("/v1/tables/{table:str}/get", tags=["rows"])
async def post_get(
    *,
    request: AnyRequest,
    lookups: TheLookups,
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    data: JSONBody[GetBody],
) -> Response[bytes]:
    """The same with the key in JSON."""
    return await _answer_get(request, lookups, lambda: tables.readable(principal, table, data.at), data)


@post(
    "/v1/tables/{table:str}/get_many",
    tags=["rows"],
    operation_class=KeysOperation,
    responses=ERRORS,
    status_code=200,
)
async def get_many(
    *,
    request: AnyRequest,
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    columns: Words = None,
    at: FromQuery[When | None] = None,
    max_staleness: FromQuery[Seconds | None] = None,
    at_least: FromQuery[Version | None] = None,
    raw: FromQuery[bool] = False,
    apply: FromQuery[str | None] = None,
) -> Response[bytes]:
    """All rows of many keys, in key order. The keys are JSON, or an Arrow stream with the row key columns.

    The parameters of the URL are for keys in Arrow; JSON has them in its body.
    """
    form = accepted(request)
    body = await request.body()

    def read() -> Response[bytes]:
        if request.headers.get("content-type", "").partition(";")[0].strip() == ARROW.media_type:
            wanted = GetManyBody([], column_names(columns), at, max_staleness, at_least, raw, apply)
            keys: Any = arrow_table(body)
        else:
            wanted = json_body(body, GetManyBody)
            keys = None
        found = tables.readable(principal, table, wanted.at)
        if keys is None:
            keys = [found.schema.codec.parse(key) for key in wanted.keys]
        fresh: dict[str, Any] = {"max_staleness": wanted.max_staleness, "at_least": wanted.at_least}
        rows = found.get_many(keys, columns=wanted.columns, raw=wanted.raw, apply=wanted.apply, **fresh)
        return answer_table(rows, form)

    return await anyio.to_thread.run_sync(read)


def opened_scan(table: Table | Snapshot, body: ScanBody | None) -> RowStream:
    """The rows of a scan; all without a body."""
    body = body or ScanBody()
    return table.scan(
        *key_ranges(table.schema, body.ranges),
        columns=body.columns,
        where=body.where,
        limit=body.limit,
        reverse=body.reverse,
        raw=body.raw,
        apply=body.apply,
        max_staleness=body.max_staleness,
        at_least=body.at_least,
    )


async def _answer_scan(
    request: AnyRequest, limits: RequestLimits, open_table: Callable[[], Table | Snapshot], body: ScanBody
) -> Response[bytes]:
    return await answer_rows(request, lambda: opened_scan(open_table(), body), accepted(request), limits.of_answer())


@get_rows("/v1/tables/{table:str}/scan", tags=["rows"])
async def get_scan(
    *,
    request: AnyRequest,
    tables: TheTables,
    principal: ThePrincipal,
    limits: TheLimits,
    table: PathText,
    from_: Annotated[list[str] | None, QueryParameter(name="from", description="First key; a word a field.")] = None,
    to: Annotated[list[str] | None, QueryParameter(description="End of the range, exclusive; a word a field.")] = None,
    prefix: Annotated[list[str] | None, QueryParameter(description="Keys whose first fields equal these.")] = None,
    starts_with: Annotated[
        list[str] | None, QueryParameter(description="As prefix; the last is a prefix itself.")
    ] = None,
    columns: Words = None,
    where: FromQuery[str | None] = None,
    limit: FromQuery[Count | None] = None,
    reverse: FromQuery[bool] = False,
    raw: FromQuery[bool] = False,
    at: FromQuery[When | None] = None,
    max_staleness: FromQuery[Seconds | None] = None,
    at_least: FromQuery[Version | None] = None,
) -> Response[bytes]:
    """Rows in key order: all, or those of one range. Give several ranges in the body of a POST."""
    words: list[Any] = [None if given is None else list(given) for given in (from_, to, prefix, starts_with)]
    selected = RangeSelection(words[0], words[1], prefix=words[2], starts_with=words[3])
    ranges = [] if selected == RangeSelection() else [selected]
    body = ScanBody(ranges, column_names(columns), where, limit, reverse, raw, at, max_staleness, at_least)
    return await _answer_scan(request, limits, lambda: tables.readable(principal, table, at), body)


@post_rows("/v1/tables/{table:str}/scan", tags=["rows"])
async def post_scan(
    *,
    request: AnyRequest,
    tables: TheTables,
    principal: ThePrincipal,
    limits: TheLimits,
    table: PathText,
    data: JSONBody[ScanBody],
) -> Response[bytes]:
    """Rows in key order: all, or those with a key in any of the ranges, each once."""
    return await _answer_scan(request, limits, lambda: tables.readable(principal, table, data.at), data)


@post("/v1/tables/{table:str}/count", tags=["rows"], responses=ERRORS, status_code=200)
@threaded
def count(
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    data: JSONBody[CountBody],
) -> dict[str, Any]:
    """How many rows, of all keys or of some ranges; an estimate between two bounds unless ``exact`` is asked for."""
    found = tables.readable(principal, table, data.at)
    counted = found.count(*key_ranges(found.schema, data.ranges), exact=data.exact)
    bounds = {"rows_min": counted.rows_min, "rows_max": counted.rows_max}
    return {"table": table, "rows": counted.rows, "exact": counted.exact, **bounds}


@post_rows("/v1/tables/{table:str}/sample", tags=["rows"])
@threaded
def sample(
    request: AnyRequest,
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    data: JSONBody[SampleBody],
) -> Response[bytes]:
    """Random rows in key order, each as likely as any other."""
    form = accepted(request)
    found = tables.readable(principal, table, data.at)
    return answer_table(found.sample(data.rows, columns=data.columns, seed=data.seed), form)


@post_rows("/v1/tables/{table:str}/prefixes", tags=["rows"])
@threaded
def prefixes(
    request: AnyRequest,
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    data: JSONBody[PrefixesBody],
) -> Response[bytes]:
    """The distinct values of the first row key fields, in key order."""
    form = accepted(request)
    found = tables.readable(principal, table, data.at)
    ranges = key_ranges(found.schema, data.ranges)
    return answer_table(found.prefixes(data.depth, *ranges, limit=data.limit), form)


@post(
    "/v1/tables/{table:str}/explain",
    tags=["rows"],
    responses=ERRORS,
    status_code=200,
    media_type=MediaType.JSON,
)
@threaded
def explain(
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    data: JSONBody[ExplainBody],
) -> dict[str, Any]:
    """What reading a key or ranges took: partitions, files, pages, bytes, and the time of each step."""
    found = tables.readable(principal, table, data.at)
    schema = found.schema
    selection = schema.codec.parse(data.key) if data.key is not None else ()
    ranges = key_ranges(schema, data.ranges)
    how: dict[str, Any] = {"where": data.where, "limit": data.limit, "reverse": data.reverse}
    explained = found.explain(*selection, *ranges, columns=data.columns, **how)
    return {"table": table, **explained.to_dict()}


ROUTES = (get_row, post_get, get_many, get_scan, post_scan, count, sample, prefixes, explain)
