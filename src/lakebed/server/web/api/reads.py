"""Reads of a table: rows, counts, explanations, changes, history and tags, its partitions, files and verification.

A GET has words of the URL, a POST a JSON body; both become the same body. Lookups of one key have threads of their own,
and streams of rows are sent as they are read. Key ranges, counts of files and the history would reveal hidden rows, so
a restricted principal gets AccessError. Errors: those of reads. Source: docs/http.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import anyio.to_thread
from litestar import MediaType, Response, delete, get, post, put
from litestar.params import FromQuery, JSONBody, QueryParameter

from lakebed.model.json_values import plain
from lakebed.server.security.principal import Permission
from lakebed.server.web.access import AnyRequest, PathText, TheAnswers, TheLimits, TheLookups, TheTable
from lakebed.server.web.api.descriptions import ERRORS, KeysOperation, get_rows, post_rows
from lakebed.server.web.request_bodies import (
    ChangesBody,
    Count,
    CountBody,
    ExplainBody,
    FilesBody,
    GetBody,
    GetManyBody,
    PrefixesBody,
    RangeSelection,
    RestoreBody,
    RowsBody,
    SampleBody,
    ScanBody,
    Seconds,
    TagBody,
    VerifyBody,
    Version,
    When,
    arrow_table,
    column_names,
    json_body,
    key_ranges,
    values_by,
)
from lakebed.server.web.row_answers import ARROW, RowFormat, answer_rows, answer_table, chosen_format
from lakebed.server.web.waiting import threaded

if TYPE_CHECKING:
    from lakebed.read.rows.counting import Count as Counted
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.handles import TableHandle
    from lakebed.server.web.access import RequestedTable
    from lakebed.server.web.row_answers import OpenAnswers
    from lakebed.server.web.waiting import Lookups


Words = Annotated[list[str] | None, QueryParameter(required=False)]
"""A parameter of a URL that may be given more than once."""


def accepted(request: AnyRequest) -> RowFormat:
    """Return the format of the rows that the request asks for."""
    return chosen_format(request.headers.get("accept"))


def _how(body: RowsBody) -> dict[str, Any]:
    """Return the arguments of a read that say what of its rows."""
    names = ("columns", "raw", "apply", "max_staleness", "at_least")
    return {name: getattr(body, name) for name in names}


async def _answer_get(
    request: AnyRequest, lookups: Lookups, requested: RequestedTable, body: GetBody
) -> Response[bytes]:
    form = accepted(request)
    await requested.awaited(request, body.at, body.at_least)

    def look_up(table: TableHandle[RowStream]) -> Response[bytes]:
        schema = table.schema
        return answer_table(table.get(*schema.codec.parse(body.key), by=values_by(schema, body.by), **_how(body)), form)

    return await lookups.run(requested.read, body.at, look_up)


@get_rows("/v1/tables/{table:str}/get", tags=["rows"])
async def get_row(
    *,
    request: AnyRequest,
    lookups: TheLookups,
    requested: TheTable,
    key: Annotated[list[str], QueryParameter(description="A value for each row key field, in order.")],
    columns: Words = None,
    at: FromQuery[When | None] = None,
    max_staleness: FromQuery[Seconds | None] = None,
    at_least: FromQuery[Version | None] = None,
) -> Response[bytes]:
    """All rows of one key, ordered by sort key; none if the key has none."""
    fresh: dict[str, Any] = {"max_staleness": max_staleness, "at_least": at_least}
    body = GetBody(key=list(key), columns=column_names(columns), at=at, **fresh)
    return await _answer_get(request, lookups, requested, body)


@post_rows("/v1/tables/{table:str}/get", tags=["rows"])
async def post_get(
    *, request: AnyRequest, lookups: TheLookups, requested: TheTable, data: JSONBody[GetBody]
) -> Response[bytes]:
    """The same with the key in JSON."""
    return await _answer_get(request, lookups, requested, data)


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
    requested: TheTable,
    limits: TheLimits,
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
    in_arrow = request.headers.get("content-type", "").partition(";")[0].strip() == ARROW.media_type

    def asked() -> tuple[GetManyBody, Any]:
        if not in_arrow:
            return json_body(body, GetManyBody), None
        fresh: dict[str, Any] = {"max_staleness": max_staleness, "at_least": at_least}
        wanted = GetManyBody(keys=[], columns=column_names(columns), at=at, raw=raw, apply=apply, **fresh)
        return wanted, arrow_table(body, limits.request_bytes)

    wanted, keys = await anyio.to_thread.run_sync(asked)
    await requested.awaited(request, wanted.at, wanted.at_least)

    def read() -> Response[bytes]:
        def look_up(found: TableHandle[RowStream]) -> Response[bytes]:
            given = [found.schema.codec.parse(key) for key in wanted.keys] if keys is None else keys
            return answer_table(found.get_many(given, **_how(wanted)), form)

        return requested.read(wanted.at, look_up)

    return await anyio.to_thread.run_sync(read)


def opened_scan(table: TableHandle[RowStream], body: ScanBody) -> RowStream:
    """Return the rows of a scan."""
    schema = table.schema
    ranges, by = key_ranges(schema, body.ranges), values_by(schema, body.by)
    return table.scan(*ranges, by=by, where=body.where, limit=body.limit, reverse=body.reverse, **_how(body))


async def _answer_scan(
    request: AnyRequest, answers: OpenAnswers, requested: RequestedTable, body: ScanBody
) -> Response[bytes]:
    form, opened = accepted(request), partial(opened_scan, body=body)
    await requested.awaited(request, body.at, body.at_least)
    return await answers.send(request, lambda: requested.read(body.at, opened), form, requested.principal)


@get_rows("/v1/tables/{table:str}/scan", tags=["rows"])
async def get_scan(
    *,
    request: AnyRequest,
    requested: TheTable,
    answers: TheAnswers,
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
    how: dict[str, Any] = {"at": at, "max_staleness": max_staleness, "at_least": at_least, "raw": raw}
    body = ScanBody(ranges, where, limit, reverse, columns=column_names(columns), **how)
    return await _answer_scan(request, answers, requested, body)


@post_rows("/v1/tables/{table:str}/scan", tags=["rows"])
async def post_scan(
    *, request: AnyRequest, requested: TheTable, answers: TheAnswers, data: JSONBody[ScanBody]
) -> Response[bytes]:
    """Rows in key order: all, or those with a key in any of the ranges, each once."""
    return await _answer_scan(request, answers, requested, data)


@post("/v1/tables/{table:str}/count", tags=["rows"], responses=ERRORS, status_code=200)
async def count(request: AnyRequest, requested: TheTable, data: JSONBody[CountBody]) -> dict[str, Any]:
    """The number of rows of all keys or of some ranges; an estimate between two bounds unless ``exact``."""
    await requested.awaited(request, data.at, None)

    def look_up(found: TableHandle[RowStream]) -> Counted:
        schema = found.schema
        return found.count(*key_ranges(schema, data.ranges), by=values_by(schema, data.by), exact=data.exact)

    counted = await anyio.to_thread.run_sync(requested.read, data.at, look_up)
    bounds = {"rows_min": counted.rows_min, "rows_max": counted.rows_max}
    return {"table": requested.name, "rows": counted.rows, "exact": counted.exact, **bounds}


@post_rows("/v1/tables/{table:str}/sample", tags=["rows"])
async def sample(request: AnyRequest, requested: TheTable, data: JSONBody[SampleBody]) -> Response[bytes]:
    """Random rows in key order; every row is equally likely."""
    form = accepted(request)
    await requested.awaited(request, data.at, None)

    def look_up(found: TableHandle[RowStream]) -> Response[bytes]:
        return answer_table(found.sample(data.rows, columns=data.columns, seed=data.seed), form)

    return await anyio.to_thread.run_sync(requested.read, data.at, look_up)


@post_rows("/v1/tables/{table:str}/prefixes", tags=["rows"])
async def prefixes(request: AnyRequest, requested: TheTable, data: JSONBody[PrefixesBody]) -> Response[bytes]:
    """The distinct values of the first row key fields, in key order."""
    form = accepted(request)
    await requested.awaited(request, data.at, None)

    def look_up(found: TableHandle[RowStream]) -> Response[bytes]:
        ranges = key_ranges(found.schema, data.ranges)
        return answer_table(found.prefixes(data.depth, *ranges, limit=data.limit), form)

    return await anyio.to_thread.run_sync(requested.read, data.at, look_up)


@post(
    "/v1/tables/{table:str}/explain",
    tags=["rows"],
    responses=ERRORS,
    status_code=200,
    media_type=MediaType.JSON,
)
async def explain(request: AnyRequest, requested: TheTable, data: JSONBody[ExplainBody]) -> dict[str, Any]:
    """Statistics of reading a key or ranges: partitions, files, pages, bytes, and the time of each step."""
    how: dict[str, Any] = {"where": data.where, "limit": data.limit, "reverse": data.reverse}
    await requested.awaited(request, data.at, None)

    def explained(found: TableHandle[RowStream]) -> dict[str, Any]:
        schema = found.schema
        selection = schema.codec.parse(data.key) if data.key is not None else ()
        made = found.explain(*selection, *key_ranges(schema, data.ranges), columns=data.columns, **how)
        return {"table": requested.name, **made.to_dict()}

    return await anyio.to_thread.run_sync(requested.read, data.at, explained)


def _whole(requested: RequestedTable, at: str | None) -> TableHandle[RowStream]:
    """Return the table at a version, to a principal that may read all of it. Raises AccessError."""
    found = requested.readable(at)
    requested.principal.require_all_rows(requested.name)
    return found.snapshot()


@get_rows("/v1/tables/{table:str}/partitions", tags=["inspection"])
@threaded
def partitions(request: AnyRequest, requested: TheTable, at: FromQuery[When | None] = None) -> Response[bytes]:
    """A row for each partition, in key order: its range, and the rows, bytes, files and runs in it."""
    form = accepted(request)
    return answer_table(_whole(requested, at).partitions(), form)


@post_rows("/v1/tables/{table:str}/files", tags=["inspection"])
@threaded
def files(request: AnyRequest, requested: TheTable, data: JSONBody[FilesBody]) -> Response[bytes]:
    """A row for each file reference of some key ranges, by default of all: its URL, partition, and live keys."""
    form = accepted(request)
    found = _whole(requested, data.at)
    return answer_table(found.files(*key_ranges(found.schema, data.ranges)), form)


@get_rows("/v1/tables/{table:str}/failures", tags=["inspection"])
@threaded
def failures(request: AnyRequest, requested: TheTable) -> Response[bytes]:
    """A row for each call of a pipeline or service on the table that failed, newest first, with the reason."""
    form = accepted(request)
    found = requested.whole()
    return answer_table(found.failures(), form)


@post("/v1/tables/{table:str}/verify", tags=["inspection"], responses=ERRORS, status_code=200)
@threaded
def verify(requested: TheTable, data: JSONBody[VerifyBody]) -> dict[str, Any]:
    """Check that the log is complete and matches its checkpoint and, with ``files``, that every file exists."""
    found = requested.table(Permission.ADMIN)
    return dict(plain(found.verify(files=data.files)))


HISTORY_MAX = 10_000
"""Transactions in one answer."""


@get("/v1/tables/{table:str}/history", tags=["versions"], responses=ERRORS)
@threaded
def history(requested: TheTable, limit: Annotated[int, QueryParameter(ge=0, le=HISTORY_MAX)] = 100) -> dict[str, Any]:
    """The last transactions, newest first: who wrote what and when."""
    found = requested.whole()
    return {"table": requested.name, "transactions": [plain(row) for row in found.history_rows(limit)]}


@get("/v1/tables/{table:str}/tags", tags=["versions"], responses=ERRORS)
@threaded
def tags(requested: TheTable) -> dict[str, Any]:
    """The tags of a table and their versions."""
    return {"table": requested.name, "tags": requested.table(Permission.READ).tags()}


@put("/v1/tables/{table:str}/tags/{tag:str}", tags=["versions"], responses=ERRORS)
@threaded
def set_tag(requested: TheTable, tag: PathText, data: JSONBody[TagBody]) -> dict[str, Any]:
    """Name a version, which stays readable as long as the tag exists."""
    version = requested.table(Permission.WRITE).tag(tag, data.version)
    return {"table": requested.name, "tag": tag, "version": version}


@delete("/v1/tables/{table:str}/tags/{tag:str}", tags=["versions"], responses=ERRORS, status_code=200)
@threaded
def remove_tag(requested: TheTable, tag: PathText) -> dict[str, Any]:
    """Remove a tag."""
    version = requested.table(Permission.WRITE).untag(tag)
    return {"table": requested.name, "tag": tag, "version": version}


@post("/v1/tables/{table:str}/restore", tags=["versions"], responses=ERRORS, status_code=200)
@threaded
def restore(requested: TheTable, data: JSONBody[RestoreBody]) -> dict[str, Any]:
    """Restore the rows of a version, a tag or a time, in one commit."""
    version = requested.table(Permission.WRITE).restore(data.at)
    return {"table": requested.name, "version": version}


@post_rows("/v1/tables/{table:str}/changes", tags=["versions"])
async def changes(
    *, request: AnyRequest, requested: TheTable, limits: TheLimits, data: JSONBody[ChangesBody]
) -> Response[bytes]:
    """The changes after a version, as rows with the version and the kind of change."""

    def opened() -> RowStream:
        found = requested.principal.readable(requested.table(Permission.READ))
        ranges = key_ranges(found.snapshot().schema, data.ranges)
        return found.changes(data.since, data.until, ranges=ranges, columns=data.columns, where=data.where)

    return await answer_rows(request, opened, accepted(request), limits)


@get("/v1/tables/{table:str}/outcomes/{request_key:str}", tags=["versions"], responses=ERRORS)
@threaded
def outcome(requested: TheTable, request_key: PathText) -> dict[str, Any]:
    """The version at which a commit id or job id was committed; null if it was not, or has expired."""
    found = requested.whole()
    return {"table": requested.name, "request_key": request_key, "version": found.outcome(request_key)}
