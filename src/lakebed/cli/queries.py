"""``lakebed query``: queries that a service runs in the background.

Each command is a request to a service, which runs the query: no instance is opened here. Errors: those of
:mod:`lakebed.table.client`. Source: docs/http.md.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lakebed.cli import completions, options
from lakebed.cli.grammar import command
from lakebed.cli.invocation import TOKEN_VARIABLE, Invocation
from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.table.client.remote_instance import RemoteInstance
    from lakebed.table.tracker.submitted_queries import QueryState

SERVICE_VARIABLE = "LAKEBED_SERVICE"

_NAMES = ("id", "by", "what", "state", "created", "rows", "files", "error")
_TEXT_CHARS = 60

query_id = click.argument("query", metavar="ID", help="The id of a query.")


def service(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--service`` and ``--ca-file``, as the connected instance ``lake``."""

    @click.option(
        "--service",
        "service_url",
        metavar="URL",
        help=f"The service to ask. Default: {SERVICE_VARIABLE}; its token: {TOKEN_VARIABLE}.",
    )
    @click.option(
        "--ca-file",
        metavar="FILE",
        type=Path,
        shell_complete=completions.paths,
        help="Certificates of the authority of its TLS, as PEM.",
    )
    @functools.wraps(function)
    def with_service(*args: Any, service_url: str | None, ca_file: Path | None, **others: Any) -> None:
        from lakebed.table.client.connect import connect

        found = service_url or os.environ.get(SERVICE_VARIABLE)
        if not found:
            raise Code.ARGUMENT_MISSING(f"which service? Give --service URL or set {SERVICE_VARIABLE}")
        with connect(found, token=os.environ.get(TOKEN_VARIABLE) or None, ca_file=ca_file) as lake:
            function(*args, lake=lake, **others)

    return with_service


@command
@click.argument(
    "table", metavar="[TABLE]", required=False, shell_complete=completions.tables, help="The table to scan."
)
@click.option("--sql", "statement", metavar="STATEMENT", help="A query in SQL, instead of TABLE.")
@options.row_choice
@click.option(
    "--url",
    metavar="URL",
    shell_complete=completions.paths,
    help="Write the rows to this empty folder instead of keeping them.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "csv", "json"]),
    help="Format of the files at --url. Default: parquet.",
)
@service
def submit(
    cli: Invocation,
    *,
    table: str | None,
    statement: str | None,
    ranges: options.Ranges,
    columns: tuple[str, ...],
    where: str | None,
    limit: int | None,
    reverse: bool,
    at: str | None,
    url: str | None,
    file_format: str | None,
    lake: RemoteInstance,
) -> None:
    """Submit a scan of a table, or a query in SQL, to a service.

    The options that choose rows are those of `lakebed scan`. Prints the id, for the other commands.
    """
    options.check_one({"TABLE": table, "--sql": statement})
    if statement is not None:
        chosen = {
            "--columns": columns,
            "--where": where,
            "--limit": limit is not None,
            "--reverse": reverse,
            "--at": at,
        }
        for name, value in {**chosen, "a key range": ranges.given}.items():
            options.check_at_most_one({"--sql": statement, name: value})
        query = lake.submit_sql(statement, url=url, format=file_format)
    else:
        assert table is not None
        query = lake.submit_scan(
            table,
            *(ranges.of(lake.table(table).schema) if ranges.given else ()),
            columns=options.names(columns),
            where=where,
            limit=limit,
            reverse=reverse,
            at=at,
            url=url,
            format=file_format,
        )
    cli.out.document({"query": query.id}, [query.id])


@command
@service
def list_queries(cli: Invocation, *, lake: RemoteInstance) -> None:
    """List submitted queries, newest first: yours, and those of tables that you administer."""
    found = lake.submitted_queries()
    if not found and not cli.out.as_json:
        cli.out.note("no queries")
    cli.out.records(found, _NAMES, _state_cells, _state_document)


@command
@query_id
@service
def show_query(cli: Invocation, *, query: str, lake: RemoteInstance) -> None:
    """Show the progress or the outcome of a query."""
    _print_state(cli, lake.submitted_query(query).state())


@command
@query_id
@options.file("--parquet", "Write a Parquet file in place of printing.")
@options.row_format
@service
def fetch(cli: Invocation, *, query: str, parquet: Path | None, lake: RemoteInstance) -> None:
    """Print the rows of a query after it has ended."""
    out = cli.out
    options.check_at_most_one({"--format": out.row_format, "--json": out.as_json, "--parquet": parquet})
    with lake.submitted_query(query).rows() as rows:
        if parquet is not None:
            from lakebed.upkeep.export.row_files import write_rows

            file = write_rows(rows, rows.schema, "parquet", parquet.absolute().parent, memory_limit_bytes=2**30)
            file.path.replace(parquet)
            out.note(f"{file.rows:,} rows in {parquet}")
        elif not out.rows(rows.schema, rows):
            out.note("no rows")


@command
@query_id
@service
def cancel(cli: Invocation, *, query: str, lake: RemoteInstance) -> None:
    """Cancel a query, or delete one that has ended, with its rows."""
    _print_state(cli, lake.submitted_query(query).cancel())


def _state_document(state: QueryState) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(state),
        "error": None if state.error is None else msgspec.structs.asdict(state.error),
    }


def _what(state: QueryState) -> str:
    text = state.query.get("statement") or f"scan of {state.query.get('table')}"
    return " ".join(text.split())[:_TEXT_CHARS]


def _state_cells(state: QueryState) -> tuple[Any, ...]:
    created = state.created_at.replace(microsecond=0)
    error = "" if state.error is None else str(state.error)
    asked = (state.id, state.submitted_by, _what(state), state.state, created)
    return (*asked, state.rows, state.files, error[:_TEXT_CHARS])


def _print_state(cli: Invocation, state: QueryState) -> None:
    cli.out.document(_state_document(state), _state_lines(state))


def _state_lines(state: QueryState) -> Iterator[str]:
    yield f"query {state.id}: {state.state}"
    yield f"what: {_what(state)}, submitted by {state.submitted_by}"
    total = f" of about {state.rows_total:,}" if state.rows_total and state.ended_at is None else ""
    yield f"rows: {state.rows:,}{total}"
    if state.url is not None:
        yield f"to: {state.url}"
    if state.error is not None:
        yield f"error: {state.error}"
    if state.expires_at is not None:
        yield f"kept until: {state.expires_at.replace(microsecond=0).isoformat()}"
