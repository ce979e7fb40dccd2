"""``lakebed status``: tables, backlogs, errors and running jobs of an instance on one screen.

The instance is described by :mod:`lakebed.server.service.store_status`; services that are named are queried for their
reads. A service that does not respond is reported, without an error. Source: docs/jobs.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lakebed.cli import completions
from lakebed.cli.grammar import command
from lakebed.cli.invocation import TOKEN_VARIABLE, Invocation
from lakebed.cli.jobs import ID_CHARS, SERVICE_VARIABLE, outcome_text
from lakebed.cli.render import TextColumns, columns
from lakebed.errors import Error
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.json_values import plain
from lakebed.model.text_cells import shorten
from lakebed.model.wording import count_text, size_text
from lakebed.server.service.status import ReadRates
from lakebed.server.service.store_status import next_steps, status
from lakebed.upkeep.follow.declared_follower import DeclaredFollower, known_followers
from lakebed.upkeep.follow.follow_record import FollowRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.server.service.status import TableStatus
    from lakebed.server.service.store_status import StoreStatus
    from lakebed.table.tracker.runs import JobRun

TABLES_SHOWN = 40
"""Tables in the text of `status` without a table: those with a backlog or an error first."""

ASK_S = 5.0
"""How long a service may take to answer."""

_WHY_CHARS = 100
_NAME_CHARS = 32
"""A longer name of a table is cut in the middle, so that a line of 80 characters has room for the step."""


@command
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=completions.tables, help="Only these tables.")
@click.option(
    "--service",
    "urls",
    metavar="URL",
    multiple=True,
    help=f"Ask this service for its reads as well; may be repeated. Default: {SERVICE_VARIABLE}; its token: "
    f"{TOKEN_VARIABLE}.",
)
def show_status(cli: Invocation, *, tables: tuple[str, ...], urls: tuple[str, ...]) -> None:
    """Show tables, backlogs, errors, and the next operations with their reasons.

    Reads only the store, whether or not a service runs, and changes nothing. The cost of the last hour counts commits.
    Reads are not recorded; each --service is queried for its reads of the last minutes.
    """
    found = status(cli.instance(), tables or None)
    followers = [*known_followers(cli.instance().storage)]
    services = ask_services(urls or tuple(filter(None, [os.environ.get(SERVICE_VARIABLE)])))
    cli.out.document(
        {
            **status_document(found),
            "followers": [follower_document(*one) for one in followers],
            "services": list(map(plain, services)),
        },
        chain(status_lines(found), (follower_line(*one) for one in followers), reads_lines(services)),
    )


@dataclass(frozen=True, slots=True)
class AskedService:
    """The reads of a service, or why they are unknown: one of the two is None."""

    url: str
    reads: ReadRates | None
    error: str | None


def ask_services(urls: tuple[str, ...]) -> list[AskedService]:
    """Query each service once; failures are part of the result."""
    return [_asked(url) for url in urls]


def _asked(url: str) -> AskedService:
    with optional_imports():
        from lakebed.table.client.connection import Connection
    connection = Connection(url, os.environ.get(TOKEN_VARIABLE) or None, ASK_S, None)
    try:
        answer = connection.ask("GET", "/v1/status", reads=True)
        return AskedService(url, msgspec.convert(answer["reads"], ReadRates), None)
    except (KeyError, TypeError, msgspec.ValidationError):
        return AskedService(url, None, "its answer has no reads: it is of another version")
    except Error as error:
        return AskedService(url, None, error.message)
    finally:
        connection.close()


def reads_lines(services: list[AskedService]) -> Iterator[str]:
    """Return the recent reads as text."""
    if not services:
        yield f"reads: not recorded; --service URL or {SERVICE_VARIABLE} asks a service for its own"
    for one in services:
        yield f"reads at {one.url}: {one.error if one.reads is None else reads_text(one.reads)}"


def reads_text(reads: ReadRates) -> str:
    """Return one line."""
    failed = f", {reads.errors:,} failed" if reads.errors else ""
    if reads.p50_s is None or reads.p99_s is None:
        return f"none in the last {reads.window_s:,.0f} s{failed}"
    quick = f"p50 {1000 * reads.p50_s:,.3g} ms, p99 {1000 * reads.p99_s:,.3g} ms"
    return f"{reads.per_second:,.1f} a second in the last {reads.window_s:,.0f} s, {quick}{failed}"


def status_document(found: StoreStatus) -> dict[str, Any]:
    """Return the status as JSON."""
    from lakebed.table.tracker.runs import run_document

    cost = found.last_hour
    return {
        "url": found.url,
        "at": found.at,
        "tables": [{**plain(table), "next": next_steps(table)} for table in found.tables],
        "running": list(map(run_document, found.running)),
        "failed": list(map(run_document, found.failed)),
        "last_hour": {"entries": cost.entries, "puts": cost.puts, "gets": cost.gets, "dollars": cost.dollars},
    }


def status_lines(found: StoreStatus) -> Iterator[str | TextColumns]:
    """Return the status as text."""
    rows = sum(table.rows for table in found.tables)
    size = size_text(sum(table.size_bytes for table in found.tables))
    yield f"{found.url}: {count_text(len(found.tables), 'table')}, {count_text(rows, 'row')}, {size}"
    shown = urgent_first(found.tables)[:TABLES_SHOWN]
    if shown:
        yield table_columns(shown)
    if len(found.tables) > len(shown):
        yield f"… and {len(found.tables) - len(shown):,} more; name tables, or use --json"
    if not found.tables:
        yield "no tables: `lakebed table create` makes one, and so does `lakebed write TABLE FILE --key COLUMNS`"
    steps = step_lines(shown)
    yield from [next_title(steps), *(f"  {step}" for step in steps)]
    for title, runs in (("running", found.running), ("failed last", found.failed)):
        if runs:
            yield f"{title}:"
            yield run_columns(runs)
    yield cost_line(found)


def follower_document(record: FollowRecord, declared: DeclaredFollower | None) -> dict[str, Any]:
    """Return how far a follower is, as JSON."""
    return {
        **plain(record),
        "in_service": declared is not None,
        "paused": declared is not None and declared.paused,
    }


def follower_line(record: FollowRecord, declared: DeclaredFollower | None) -> str:
    """Return how far a follower is, as one line."""
    paused = "paused, " if declared is not None and declared.paused else ""
    if record.error is not None:
        return f"follower {record.name}: {paused}{record.error[:_WHY_CHARS]}"
    if not record.at:
        return f"follower {record.name} of {record.url}: {paused}not begun yet; services with --followers run it"
    place = ", ".join(f"{name} {value}" for name, value in record.place.items())
    behind = (
        f"{record.behind:,} {record.behind_unit} and {record.lag_s:,.0f} s behind" if record.behind else "caught up"
    )
    dead = f", {count_text(record.dead_letters, 'dead letter')}" if record.dead_letters else ""
    return f"follower {record.name} of {record.url}: {paused}{behind} at {record.at}, up to {place}{dead}"


def urgent_first(tables: tuple[TableStatus, ...]) -> list[TableStatus]:
    """Return the tables with an error first, then those with the most to merge and to ingest."""
    return sorted(
        tables,
        key=lambda one: (one.error is None, -one.backlog.all_bytes, one.name),
    )


def step_lines(tables: list[TableStatus]) -> list[str]:
    """Return a line for each next operation of these tables."""
    return [f"{shorten(table.name, _NAME_CHARS)}: {step}" for table in tables for step in next_steps(table)]


def next_title(steps: list[str]) -> str:
    """Return the heading of the next operations, with what runs them."""
    return "next, by a service or `lakebed maintain --all`:" if steps else "next: nothing to do"


_HEADINGS = ("table", "rows", "size", "partitions", "files", "a partition", "waiting", "since", "to merge", "state")


def table_columns(tables: list[TableStatus]) -> TextColumns:
    """Return one line per table."""
    return columns(_HEADINGS, map(_table_cells, tables)).without_empty()


def _table_cells(table: TableStatus) -> tuple[Any, ...]:
    backlog = table.backlog
    waiting = f"{count_text(backlog.files, 'file')}, {size_text(backlog.size_bytes)}" if backlog.requests else ""
    since = "" if backlog.oldest_s is None else f"{backlog.oldest_s:,.0f} s"
    merge = f"{count_text(backlog.runs_due, 'run')}, {size_text(backlog.bytes_due)}" if backlog.runs_due else ""
    a_partition = f"{table.files_per_partition_mean:.1f}, max {table.files_per_partition_max:,}"
    state = "online" if table.online else "offline"
    if table.error is not None:
        state = f"{table.error.code}: {table.error.message}"[:_WHY_CHARS]
    elif table.paused:
        state += f"; paused: {', '.join(table.paused)}"
    if table.publication_error is not None:
        state += f"; not published: {table.publication_error}"[:_WHY_CHARS]
    elif table.published_lag:
        state += f"; published up to {table.published}, {count_text(table.published_lag, 'version')} behind"
    state += "".join(f"; catalog {one.catalog}: {one.error}"[:_WHY_CHARS] for one in table.catalogs if one.error)
    counts = (table.rows, size_text(table.size_bytes), table.partitions, table.files, a_partition)
    return (table.name, *counts, waiting, since, merge, state)


def run_columns(runs: tuple[JobRun, ...]) -> TextColumns:
    """Return one line per run."""
    return columns(
        ("id", "operation", "table", "outcome", "began", "done", "why"), map(_run_cells, runs)
    ).without_empty()


def _run_cells(run: JobRun) -> tuple[Any, ...]:
    done = f"{100 * run.rows_done // run.rows_total}%" if run.rows_total else ""
    began = (run.started or run.created).replace(microsecond=0)
    return (run.id[-ID_CHARS:], run.operation, run.table, outcome_text(run), began, done, run.why[:_WHY_CHARS])


def cost_line(found: StoreStatus) -> str:
    """Return the cost of the commits of the last hour."""
    cost = found.last_hour
    if not cost.entries:
        return "last hour: no commit"
    return (
        f"last hour: {count_text(cost.entries, 'commit')}: at least {cost.puts:,} puts and {cost.gets:,} gets, "
        f"${cost.dollars:,.4f} at the list prices of S3"
    )
