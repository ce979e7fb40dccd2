"""``lakebed jobs``: recorded runs of jobs, and retries; ``lakebed query``: queries that a service runs.

The recorded runs are those of all processes; with a table, also the jobs that are open in its log. Each command of
``query`` is a request to a service, which runs the query: no instance is opened here. Errors: NotFoundError for an id
that is not on record, RejectedError for a job that is not parked; those of :mod:`lakebed.table.client`. Source:
docs/jobs.md, docs/http.md.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lakebed.cli import completions, options
from lakebed.cli.grammar import command
from lakebed.cli.invocation import TOKEN_VARIABLE, Invocation
from lakebed.cli.render import TextColumns, columns, shown
from lakebed.errors import Code
from lakebed.model.json_values import plain
from lakebed.model.operations import work_kinds
from lakebed.model.wording import size_text
from lakebed.table.tracker.listing import RunFilter, job_runs, open_in_log, run_details
from lakebed.table.tracker.runs import RunOutcome, request_retry, run_document, task_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lakebed
    from lakebed.table.client.remote_instance import RemoteInstance
    from lakebed.table.tracker.listing import RunDetails
    from lakebed.table.tracker.runs import JobRun, TaskRun
    from lakebed.table.tracker.submitted_queries import QueryState


RUNS_SHOWN = 20
ID_CHARS = 12
"""The last characters of an id, which are random, stand for it in tables."""

_WHY_CHARS = 120
_RUN_NAMES = ("id", "operation", "table", "outcome", "created", "seconds", "done", "version", "why")
_ID = re.compile(r"[0-9a-f]{8}|[0-9a-f]{12}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FAILED = frozenset([RunOutcome.FAILED, RunOutcome.LOST])


@command
@click.argument(
    "table",
    metavar="[TABLE]",
    required=False,
    shell_complete=completions.tables,
    help="Only jobs of this table; or the id of a job.",
)
@click.option("--failed", is_flag=True, help="Only jobs that failed, were lost, or had a failed task.")
@click.option("--running", is_flag=True, help="Only jobs in progress.")
@click.option("--parked", is_flag=True, help="Only jobs that are not retried until `lakebed jobs retry`.")
@click.option("--operation", metavar="KIND", type=click.Choice(work_kinds()), help="Only jobs of this kind.")
@options.limit(f"The number of jobs to print. Default: {RUNS_SHOWN}, and all with --json.")
@options.row_format
def list_jobs(
    cli: Invocation,
    *,
    table: str | None,
    failed: bool,
    running: bool,
    parked: bool,
    operation: str | None,
    limit: int | None,
) -> None:
    """List jobs, newest first, of all tables or of one.

    An import, a compaction of a table, an export and the like are jobs. A job whose process ended without recording an
    outcome is lost. With a table, the jobs of all processes that are open in its log are listed too. `list` may be left
    out, and with the id of a job in place of a table the job is shown.
    """
    options.check_at_most_one({"--failed": failed, "--running": running, "--parked": parked})
    if table is not None and _ID.fullmatch(table) and table not in cli.instance().tables():
        _show_run(cli, table)
        return
    found = None if table is None else cli.table(table)
    wanted = RunFilter(None if found is None else frozenset([found.id]), operation)
    runs = job_runs(cli.instance().storage, wanted)
    if found is not None:
        runs = [*(run for run in _of_log(found, runs) if wanted.wants(run)), *runs]
    if failed:
        runs = [run for run in runs if run.outcome in _FAILED or run.tasks_failed]
    if running:
        runs = [run for run in runs if run.running]
    if parked:
        runs = [run for run in runs if run.parked]
    runs = runs[: RUNS_SHOWN if limit is None and not cli.out.for_programs else limit]
    if not runs and not cli.out.for_programs:
        cli.out.note("no jobs on record")
    cli.out.records(runs, _RUN_NAMES, _run_cells, run_document)


@command
@click.argument("job", metavar="ID", help="The id of a job, or at least the last 8 characters of it.")
def show_job(cli: Invocation, *, job: str) -> None:
    """Show a job with its tasks and errors."""
    _show_run(cli, job)


@command
@click.argument("job", metavar="ID", help="The id of a parked job, or at least the last 8 characters of it.")
def retry_job(cli: Invocation, *, job: str) -> None:
    """Retry a parked job.

    A service parks an operation of a table that fails repeatedly. It checks for requests to retry in every round.
    """
    storage = cli.instance().storage
    run = run_details(storage, job).run
    if not run.parked:
        raise Code.JOB_NOT_PARKED(
            f"job {run.id} is not parked: its outcome is {run.outcome}; what is due is planned anew in every round",
            job=run.id,
        )
    asked = request_retry(storage, run.id)
    said = "will be tried again in the next round of a service" if asked else "is to be tried again already"
    cli.out.document({"job": run.id, "requested": asked}, [f"job {run.id}: {run.operation} of {run.table} {said}"])


def _of_log(table: lakebed.Table, runs: list[JobRun]) -> list[JobRun]:
    jobs = table.state().jobs
    return open_in_log(jobs, table.log.last_modified_or_epoch, (table.id, table.name), runs) if jobs else []


def _run_cells(run: JobRun) -> tuple[Any, ...]:
    created = run.created.replace(microsecond=0)
    seconds = None if run.seconds is None else round(run.seconds, 1)
    work = (run.id[-ID_CHARS:], run.operation, run.table, outcome_text(run))
    return (*work, created, seconds, _done(run), run.version, run.why[:_WHY_CHARS])


def outcome_text(run: JobRun) -> str:
    """Return how a run ended, or that it has not, and whether it is parked."""
    return f"{run.outcome.value}, parked" if run.parked else run.outcome.value


def _done(run: JobRun) -> str:
    if run.rows_total and run.outcome is not RunOutcome.SUCCEEDED:
        return f"{100 * run.rows_done // run.rows_total}%"
    return f"{run.rows_done:,} rows" if run.rows_done else ""


def _show_run(cli: Invocation, job: str) -> None:
    details = run_details(cli.instance().storage, job)
    document = {**run_document(details.run), "task_runs": list(map(task_document, details.tasks))}
    cli.out.document(document, _run_lines(details))


def _run_lines(details: RunDetails) -> Iterator[str | TextColumns]:
    run = details.run
    yield f"job {run.id}: {run.operation} of {run.table or 'the instance'}, {run.outcome}"
    if run.error is not None:
        yield f"error: {run.error}"
    if run.parked:
        yield f"parked after {run.tries} failures in a row; to have it tried again: lakebed jobs retry {run.id}"
    if run.detail:
        yield f"what: {run.detail}"
    ended = "" if run.finished is None else f", ended {plain(run.finished)}"
    seconds = "" if run.seconds is None else f", {run.seconds:,.1f} s"
    yield f"when: began {plain(run.started or run.created)}{ended}{seconds}"
    yield f"where: {run.where.host or 'unknown host'}, {run.where.executor}; {run.where.writer}"
    if run.rows_total or run.rows_done:
        total = f" of {run.rows_total:,}" if run.rows_total else ""
        size = f", {size_text(run.bytes_done)}" if run.bytes_done else ""
        yield f"rows: {run.rows_done:,}{total}{size}"
    versions = [] if run.base_version is None else [f"began at version {run.base_version}"]
    versions += [] if run.version is None else [f"committed {run.version}"]
    if versions:
        yield f"versions: {', '.join(versions)}"
    if run.key is not None:
        yield f"job id of the caller: {shown(run.key)}"
    if run.tasks:
        yield f"tasks: {run.tasks_done} of {run.tasks} done, {run.tasks_failed} failed, {run.retries} retries"
    if details.tasks:
        names = ("task", "attempt", "host", "seconds", "rows", "error")
        yield columns(names, [_task_cells(task) for task in details.tasks])


def _task_cells(task: TaskRun) -> tuple[Any, ...]:
    seconds = None if task.seconds is None else round(task.seconds, 2)
    error = None if task.error is None else str(task.error)
    return (task.number, task.attempt, task.host, seconds, task.rows, error)


SERVICE_VARIABLE = "LAKEBED_SERVICE"

_QUERY_NAMES = ("id", "by", "what", "state", "created", "rows", "files", "error")
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
    cli.out.records(found, _QUERY_NAMES, _state_cells, _state_document)


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
            from lakebed.upkeep.export.run import write_rows

            file = write_rows(rows, rows.schema, "parquet", parquet.absolute().parent, memory_limit_bytes=2**30)
            file.path.replace(parquet)
            out.note(f"{file.rows:,} rows in {parquet}")
        elif not out.rows(rows.schema, rows):
            out.note("no rows")


@command
@query_id
@service
def drop_query(cli: Invocation, *, query: str, lake: RemoteInstance) -> None:
    """Drop a query: cancel one that runs, delete one that has ended, with its rows."""
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
