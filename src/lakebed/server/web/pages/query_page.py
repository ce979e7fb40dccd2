"""The query page: the rows of a key or of a key range, SQL over all tables, and explanations of reads.

The parameters of a request are in its URL, so that results can be linked. ``?table=flights&key=N14228`` is the shortest
link: the rows of a key, with ``key`` for each field of the row key, in order. Rows are read once, or twice for an
explanation: the second read is explained. A grid takes the first rows of a stream and reads no batch beyond them. A
read that takes too long ends with an error, so that a page does not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import anyio.to_thread
import pyarrow as pa
from litestar import Response, get
from litestar.params import QueryParameter

from lakebed import clock
from lakebed.engine.tokens import quoted_name
from lakebed.errors import BadKeyError, Code, NotFoundError, SchemaMismatchError, UsageError
from lakebed.model.checks import shown
from lakebed.model.json_values import encode_rows
from lakebed.model.keys import KeyRange
from lakebed.model.schema import Field, Schema
from lakebed.model.types import is_number
from lakebed.model.wording import count_text
from lakebed.read.drawing.pictures import FunnelStep, bars_of
from lakebed.read.rows.explain import Explanation
from lakebed.read.rows.row_stream import RowStream
from lakebed.read.sql.limited import Limits
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.sql import run_statement
from lakebed.server.service.service import Service
from lakebed.server.web.access import (
    AnyRequest,
    OpenTables,
    TheAnswers,
    TheLimits,
    ThePrincipal,
    TheService,
    TheStatements,
    TheTables,
)
from lakebed.server.web.api.queries import answer_statement
from lakebed.server.web.pages import rendering
from lakebed.server.web.pages.table_page import ShownField, fields_of
from lakebed.server.web.row_answers import CSV, JSON_LINES, PARQUET
from lakebed.server.web.waiting import RequestLimits, place_in
from lakebed.table.restricted_table import RestrictedTable
from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A column; numbers are set to the right."""

    name: str
    type: str
    numeric: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of values as JSON has them. ``more``: there are others that are not shown."""

    columns: tuple[GridColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool
    seconds: float


def grid_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows_max: int, seconds_max: float) -> Grid:
    """Return the first rows. Reads no batch beyond them. Raises UsageError if they take too long."""
    began_s = clock.monotonic_s()
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        rows += encode_rows(batch.slice(0, rows_max + 1 - len(rows)))
        if len(rows) > rows_max:
            break
        if clock.monotonic_s() - began_s > seconds_max:
            raise Code.STATEMENT_LIMIT_EXCEEDED(
                f"the read takes longer than {seconds_max:g} s; ask for fewer keys, or a predicate on the key"
            )
    columns = tuple(GridColumn(field.name, str(field.type), is_number(field.type)) for field in schema)
    return Grid(columns, tuple(rows[:rows_max]), len(rows) > rows_max, clock.monotonic_s() - began_s)


@dataclass(frozen=True, slots=True)
class Funnel:
    """What a read took, and its bars from top to bottom, as wide as the logarithms of their counts."""

    explanation: Explanation
    bars: tuple[FunnelStep, ...]


def funnel_of(explanation: Explanation, partitions: int) -> Funnel:
    """Return the funnel of a read, of a table with this number of partitions."""
    return Funnel(explanation, bars_of(explanation.counts(partitions)))


Kind = Literal["key", "range", "sql"]

_KINDS: dict[str, Kind] = {"key": "key", "range": "range", "sql": "sql"}

ROWS_DEFAULT, ROWS_MAX = 100, 1_000

_FORMATS = {"csv": CSV, "parquet": PARQUET, "json": JSON_LINES}

DOWNLOADS = (("csv", "CSV", "csv"), ("parquet", "Parquet", "parquet"), ("json", "JSON lines", "jsonl"))
"""Formats by their names in links, as people call them, and the endings of their files."""

_SHOWN_ON_THE_PAGE = (UsageError, BadKeyError, NotFoundError, SchemaMismatchError)
"""Errors that the user can mend: the page has the form with what was asked, and the reason."""


@dataclass(frozen=True, slots=True)
class KeyInput:
    """A field of the row key, and what was typed for it: as the key or the lower bound, and as the upper bound."""

    name: str
    type: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class AskedRows:
    """The parameters of a request, as they were typed. ``key`` has the fields of a link in their order; it is empty
    once ``low`` has them.
    """

    kind: Kind
    table: str
    key: tuple[str, ...]
    low: Mapping[str, str]
    high: Mapping[str, str]
    where: str
    rows_max: int
    reverse: bool
    explain: bool
    sql: str
    run: bool


@dataclass(frozen=True, slots=True)
class QueryPage:
    """``keys`` and ``fields`` are those of the chosen table; without one there are none, and no ``asked.table``.

    ``link`` is the address of the rows of the key; None if no key was asked for. ``whole``: the page of the table is
    for this principal as well.
    """

    asked: AskedRows
    tables: tuple[str, ...]
    keys: tuple[KeyInput, ...]
    fields: tuple[ShownField, ...]
    result: Grid | None
    funnel: Funnel | None
    link: str | None
    whole: bool
    error: str
    seconds: float


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The objects by which a request reads."""

    service: Service
    tables: OpenTables
    principal: Principal
    limits: RequestLimits


def asked_rows(request: AnyRequest) -> AskedRows:
    """Return the parameters in the URL. Raises UsageError."""
    given = request.query_params
    kind = _KINDS.get(given.get("kind", "key"))
    key = tuple(given.getall("key", []))
    if kind is None:
        raise Code.ARGUMENT_INVALID(f"kind = {shown(given['kind'])}: is one of {', '.join(_KINDS)}")
    low = {name.removeprefix("low."): text for name, text in given.items() if name.startswith("low.")}
    high = {name.removeprefix("high."): text for name, text in given.items() if name.startswith("high.")}
    rows_max = given.get("rows", "")
    if rows_max and not (rows_max.isdecimal() and 1 <= int(rows_max) <= ROWS_MAX):
        raise Code.ARGUMENT_INVALID(f"rows = {shown(rows_max)}: must be a number from 1 to {ROWS_MAX:,}")
    return AskedRows(
        kind=kind,
        table=given.get("table", ""),
        key=key if kind == "key" else (),
        low=low,
        high=high,
        where=given.get("where", "").strip(),
        rows_max=int(rows_max or ROWS_DEFAULT),
        reverse=given.get("reverse") == "true",
        explain=given.get("explain") == "true",
        sql=given.get("sql", "").strip(),
        run="run" in given or (bool(key) and kind == "key"),
    )


def with_key(asked: AskedRows, schema: Schema) -> AskedRows:
    """Return the request with the key of a link as the fields of the form have it. Raises BadKeyError."""
    if not asked.key:
        return asked
    names = schema.row_key_names
    if len(asked.key) != len(names):
        raise Code.KEY_LENGTH_MISMATCH(
            f"the link has {count_text(len(asked.key), 'key value')}, and the row key of {asked.table} is "
            f"{', '.join(names)}: give key=… once for each"
        )
    return replace(asked, key=(), low=dict(zip(names, asked.key, strict=True)))


def selection(schema: Schema, asked: AskedRows) -> tuple[list[KeyRange], list[Any]]:
    """Return the requested ranges, and the values of the key if it is a single one. Raises BadKeyError."""
    if asked.kind == "key":
        key = [field.parse(asked.low.get(field.name, "")) for field in schema.row_key]
        return [KeyRange.prefix(*key)], key
    low, high = _bound(schema.row_key, asked.low), _bound(schema.row_key, asked.high)
    return ([KeyRange(low, high, max_inclusive=True)] if low or high else []), []


def _bound(fields: Sequence[Field], typed: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the values of the first fields, up to one that was left empty."""
    values = []
    for field in fields:
        text = typed.get(field.name, "")
        if not text:
            break
        values.append(field.parse(text))
    return tuple(values)


def rows_of(
    table: Table | RestrictedTable, whole: Table | None, asked: AskedRows, seconds_max: float
) -> tuple[Grid, Funnel | None]:
    """Return the rows of a key or of a range and, if it is of the ``whole`` table, what it took to read them.

    Statistics of a read would reveal rows that a row filter hides.
    """
    snapshot = table.snapshot()
    ranges, key = selection(snapshot.schema, asked)
    where = asked.where or None
    with snapshot.scan(*ranges, where=where, limit=asked.rows_max + 1, reverse=asked.reverse) as rows:
        grid = grid_of(rows.schema, rows, asked.rows_max, seconds_max)
    if not asked.explain or whole is None:
        return grid, None
    read = whole.at(version=snapshot.version)
    explanation = read.explain(*(key or ranges), where=where, limit=asked.rows_max, reverse=asked.reverse)
    return grid, funnel_of(explanation, len(read.state.partitions))


def rows_of_sql(context: QueryContext, asked: AskedRows) -> Grid:
    """Return the first rows of a statement, which runs in a process of its own."""
    service, limits = context.service, context.limits
    bounds = Limits(limits.sql_memory_bytes, limits.request_s)
    reader = run_statement(context.principal, service.instance, asked.sql, bounds, service.spare_workers)
    with closing(reader):
        return grid_of(reader.schema, reader, asked.rows_max, limits.request_s)


def page_of(context: QueryContext, asked: AskedRows) -> QueryPage:
    """Return the page with the form as it was filled in, and the rows if they were asked for."""
    began_s, principal = clock.monotonic_s(), context.principal
    result, funnel, error = None, None, ""
    found: Table | None = None
    table: Table | RestrictedTable | None = None
    try:
        if asked.table:
            found = context.tables.table(principal, Permission.READ, asked.table)
            table = principal.readable(found)
            asked = with_key(asked, table.schema)
        if asked.run and asked.kind == "sql":
            if not asked.sql:
                raise Code.ARGUMENT_MISSING("write a statement first, such as SELECT 1")
            result = rows_of_sql(context, asked)
        elif asked.run:
            if table is None:
                raise Code.ARGUMENT_MISSING("choose a table first")
            whole = found if principal.reads_whole(asked.table) else None
            result, funnel = rows_of(table, whole, asked, context.limits.request_s)
    except _SHOWN_ON_THE_PAGE as failed:
        error = failed.message
    schema = None if table is None else table.schema
    keys = _key_inputs(schema, asked) if schema else []
    typed = [one.low for one in keys]
    return QueryPage(
        asked=replace(asked, table="") if table is None else asked,
        tables=tuple(principal.visible(context.service.instance.tables())),
        keys=tuple(keys),
        fields=fields_of(schema) if schema else (),
        result=result,
        funnel=funnel,
        link=rendering.rows_link(asked.table, key=typed) if result and asked.kind == "key" else None,
        whole=bool(asked.table) and principal.reads_whole(asked.table),
        error=error,
        seconds=clock.monotonic_s() - began_s,
    )


def example_of(table: str) -> str:
    """Return a statement that runs, for an empty box: the first rows of a table, or of none."""
    return f"SELECT * FROM {quoted_name(table)} LIMIT 10" if table else "SELECT 1"  # noqa: S608 - quoted, and shown


def _key_inputs(schema: Schema, asked: AskedRows) -> list[KeyInput]:
    return [
        KeyInput(one.name, str(one.type), asked.low.get(one.name, ""), asked.high.get(one.name, ""))
        for one in schema.row_key
    ]


@rendering.page("/query")
async def query_page(
    *,
    request: AnyRequest,
    service: TheService,
    tables: TheTables,
    limits: TheLimits,
    statements: TheStatements,
    principal: ThePrincipal,
) -> Response[bytes]:
    """The form, and the requested rows."""
    asked = asked_rows(request)
    context = QueryContext(service, tables, principal, limits)

    def answered() -> Response[bytes]:
        found = page_of(context, asked)
        status = 400 if found.error else 200
        example = example_of(asked.table or next(iter(found.tables), ""))
        return rendering.answer(
            request, "query.html", found, principal, status=status, downloads=DOWNLOADS, example=example
        )

    if asked.kind != "sql" or not asked.run:
        return await anyio.to_thread.run_sync(answered)
    async with place_in(statements, principal.name, request, limits.wait_s) as place:
        found = await anyio.to_thread.run_sync(answered)
        place.free()
        return found


@get("/query/download", include_in_schema=False)
async def download(
    *,
    request: AnyRequest,
    service: TheService,
    tables: TheTables,
    limits: TheLimits,
    statements: TheStatements,
    answers: TheAnswers,
    principal: ThePrincipal,
    form: Annotated[Literal["csv", "parquet", "json"], QueryParameter(name="format")],
) -> Response[bytes]:
    """All rows of the request, as a file."""
    asked = asked_rows(request)
    if asked.kind != "sql":

        def rows() -> RowStream:
            table = tables.table(principal, Permission.READ, asked.table)
            snapshot = principal.readable(table).snapshot()
            ranges, _ = selection(snapshot.schema, with_key(asked, snapshot.schema))
            return snapshot.scan(*ranges, where=asked.where or None, reverse=asked.reverse)

        return await answers.send(request, rows, _FORMATS[form], principal)

    def run(cancelled: threading.Event) -> Any:
        bounds = Limits(limits.sql_memory_bytes, limits.request_s, cancelled)
        return run_statement(principal, service.instance, asked.sql, bounds, service.spare_workers)

    return await answer_statement(request, run, _FORMATS[form], limits, statements=statements, principal=principal)
