"""``lakebed status`` and ``lakebed top``: one screen of an instance, once or live."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli.grammar import Invocation, command
from lakebed.cli.render import TextColumns, columns, count_text, size_text
from lakebed.errors import Code
from lakebed.model.json_values import plain
from lakebed.service.store_status import next_steps, status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.service.status import TableStatus
    from lakebed.service.store_status import StoreStatus
    from lakebed.tracker.runs import JobRun

TABLES_SHOWN = 40
"""Tables in the text of `status` without a table: those with a backlog or an error first."""

_WHY_CHARS = 100


@command
@click.argument("tables", metavar="[TABLE]...", nargs=-1, help="Only these tables.")
def show_status(cli: Invocation, *, tables: tuple[str, ...]) -> None:
    """Show tables, backlogs and errors, and what comes next and why.

    It is read from the store alone, whether or not a service runs, and changes nothing. What the last hour cost counts
    commits: reads are on no record.
    """
    found = status(cli.instance(), tables or None)
    cli.out.document(status_document(found), status_lines(found))


@command
@click.argument("tables", metavar="[TABLE]...", nargs=-1, help="Only these tables.")
@click.option("--every", metavar="SECONDS", type=click.FloatRange(min=0.2), default=2.0, help="Default: 2.")
def top(cli: Invocation, *, tables: tuple[str, ...], every: float) -> None:
    """Show the status live, in a terminal.

    q or Ctrl-C ends it.

    Each refresh reads the store, as `lakebed status` does.
    """
    if cli.out.as_json:
        raise Code.ARGUMENTS_CONFLICT("top is a screen and has no JSON; use `lakebed status --json`")
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise Code.ARGUMENT_INVALID("top needs a terminal; use `lakebed status`")
    from lakebed.cli.screen import show_live

    instance = cli.instance()
    instance.tables()
    show_live(lambda: status(instance, tables or None), every)


def status_document(found: StoreStatus) -> dict[str, Any]:
    """The status as JSON."""
    from lakebed.tracker.runs import run_document

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
    """The status as text."""
    rows = sum(table.rows for table in found.tables)
    size = size_text(sum(table.size_bytes for table in found.tables))
    yield f"{found.url}: {count_text(len(found.tables), 'table')}, {count_text(rows, 'row')}, {size}"
    shown = urgent_first(found.tables)[:TABLES_SHOWN]
    if shown:
        yield table_columns(shown)
    if len(found.tables) > len(shown):
        yield f"… and {len(found.tables) - len(shown):,} more; name tables, or use --json"
    steps = [f"  {table.name}: {step}" for table in shown for step in next_steps(table)]
    yield from ["next:", *steps] if steps else ["next: nothing to do"]
    for title, runs in (("running", found.running), ("failed last", found.failed)):
        if runs:
            yield f"{title}:"
            yield run_columns(runs)
    yield cost_line(found)


def urgent_first(tables: tuple[TableStatus, ...]) -> list[TableStatus]:
    """The tables with an error first, then those with the most to merge and to ingest."""
    return sorted(
        tables,
        key=lambda one: (one.error is None, -(one.backlog.bytes_due + one.backlog.size_bytes), one.name),
    )


_HEADINGS = ("table", "rows", "size", "partitions", "files", "a partition", "waiting", "since", "to merge", "state")


def table_columns(tables: list[TableStatus]) -> TextColumns:
    """A line a table."""
    return columns(_HEADINGS, map(_table_cells, tables))


def _table_cells(table: TableStatus) -> tuple[Any, ...]:
    backlog = table.backlog
    waiting = f"{backlog.files:,} files, {size_text(backlog.size_bytes)}" if backlog.requests else ""
    since = "" if backlog.oldest_s is None else f"{backlog.oldest_s:,.0f} s"
    merge = f"{backlog.runs_due:,} runs, {size_text(backlog.bytes_due)}" if backlog.runs_due else ""
    a_partition = f"{table.files_per_partition_mean:.1f}, max {table.files_per_partition_max:,}"
    state = "online" if table.online else "offline"
    if table.error is not None:
        state = f"{table.error.code}: {table.error.message}"[:_WHY_CHARS]
    elif table.paused:
        state += f"; paused: {', '.join(table.paused)}"
    counts = (table.rows, size_text(table.size_bytes), table.partitions, table.files, a_partition)
    return (table.name, *counts, waiting, since, merge, state)


def run_columns(runs: tuple[JobRun, ...]) -> TextColumns:
    """A line a run."""
    return columns(("id", "operation", "table", "outcome", "began", "done", "why"), map(_run_cells, runs))


def _run_cells(run: JobRun) -> tuple[Any, ...]:
    why = run.detail if run.error is None else f"{run.error.code}: {run.error.message}"
    done = f"{100 * run.rows_done // run.rows_total}%" if run.rows_total else ""
    outcome = f"{run.outcome.value}, parked" if run.parked else run.outcome.value
    began = (run.started or run.created).replace(microsecond=0)
    return (run.id[-12:], run.operation, run.table, outcome, began, done, why[:_WHY_CHARS])


def cost_line(found: StoreStatus) -> str:
    """What the commits of the last hour took."""
    cost = found.last_hour
    if not cost.entries:
        return "last hour: no commit"
    return (
        f"last hour: {count_text(cost.entries, 'commit')}: at least {cost.puts:,} puts and {cost.gets:,} gets, "
        f"${cost.dollars:,.4f} at the list prices of S3; reads are not on record"
    )
