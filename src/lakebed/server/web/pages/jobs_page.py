"""The page of jobs: running ones with their progress, finished ones with outcomes and errors, and a retry button.

Runs and hooks of tables that the principal may not read whole are left out. Source: docs/pages.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from litestar import Response, post
from litestar.params import FromQuery

from lakebed import clock
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.service.status import FollowerStatus, HookStatus, Work
from lakebed.server.web.access import AnyRequest, PathText, ThePrincipal, TheService, may_see, retry_run, seen_run
from lakebed.server.web.pages import rendering
from lakebed.server.web.pages.charts import Timeline, WorkSpan, timeline
from lakebed.server.web.request_authentication import check_form
from lakebed.table.tracker.listing import job_runs
from lakebed.table.tracker.runs import JobRun, RunOutcome, TaskRun

RUNS_READ = 1_000

PAGE_RUNS = 100

Show = Literal["all", "running", "failed", "parked"]

Window = Literal["hour", "day", "week"]

_WINDOWS: dict[Window, timedelta] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}

TROUBLES_MAX = 20

_FAILED = (RunOutcome.FAILED, RunOutcome.LOST)


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run. ``share`` of its rows, or else of its tasks, is done; None if that is not known."""

    run: JobRun
    seconds: float | None
    share: float | None
    can_retry: bool


@dataclass(frozen=True, slots=True)
class JobsPage:
    """``work`` is what this service does now; ``running``, ``troubles`` and ``runs`` are from the records of all
    processes, newest first. Troubles are the last runs that failed and were not followed by one that did not. ``hooks``
    are those that this service delivers to, those that fail first.
    ``followers`` are for admins of the instance only, as their sources are.
    """

    show: Show
    window: Window
    work: tuple[Work, ...]
    running: tuple[ShownRun, ...]
    troubles: tuple[ShownRun, ...]
    timeline: Timeline
    matching: int
    number: int
    numbers: int
    runs: tuple[ShownRun, ...]
    hooks: tuple[HookStatus, ...] = ()
    followers: tuple[FollowerStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class JobPage:
    """One run and its tasks."""

    shown: ShownRun
    tasks: tuple[TaskRun, ...]
    timeline: Timeline | None


def shown_run(run: JobRun, principal: Principal) -> ShownRun:
    """Return the run as pages have it."""
    share: float | None = None
    if run.rows_total:
        share = min(1.0, run.rows_done / run.rows_total)
    elif run.tasks:
        share = min(1.0, run.tasks_done / run.tasks)
    seconds = run.seconds
    if run.running and run.started is not None:
        seconds = (clock.now() - run.started).total_seconds()
    admin = principal.permission(run.table or None) is Permission.ADMIN
    return ShownRun(run, seconds, share, run.parked and admin)


def shown_hooks(hooks: Sequence[HookStatus], names: Mapping[str, str], principal: Principal) -> tuple[HookStatus, ...]:
    """Return the hooks of the tables whose names are given by their ids, with the name in place of the id.

    The target and the last error are shown to admins of the table only.
    """
    shown = []
    for one in hooks:
        table = names.get(one.table)
        if table is None:
            continue
        is_admin = principal.permission(table) is Permission.ADMIN
        named = replace(one, table=table)
        shown.append(named if is_admin else replace(named, target=None, error=None))
    return tuple(sorted(shown, key=lambda one: (one.failures == 0, one.table, one.id)))


def troubles_in(runs: Sequence[JobRun]) -> list[JobRun]:
    """Return the last run of each operation of each table if it failed; ``runs`` are newest first."""
    last: dict[tuple[str, str], JobRun] = {}
    for run in runs:
        if not run.running:
            last.setdefault((run.table_id, run.operation), run)
    return [run for run in last.values() if run.outcome in _FAILED]


def span_of(run: JobRun) -> WorkSpan:
    """Return the run on a line of time."""
    name = f"{run.operation} {run.table}".strip()
    # In the picture a lost run ends with its last record.
    end = None if run.running else run.finished or run.updated
    return WorkSpan(name, run.started or run.created, end, run.outcome, f"/jobs/{run.id}")


def _wanted(run: JobRun, show: Show) -> bool:
    match show:
        case "all":
            return True
        case "running":
            return run.running
        case "failed":
            return run.outcome in _FAILED or run.tasks_failed > 0
        case "parked":
            return run.parked


def make(
    runs: Sequence[JobRun], work: Sequence[Work], principal: Principal, *, show: Show, window: Window, number: int
) -> JobsPage:
    """Return page ``number`` of these runs, which are newest first."""
    matching = [run for run in runs if _wanted(run, show)]
    part, number, numbers = rendering.part_of(matching, number, PAGE_RUNS)
    now = clock.now()
    shown = [shown_run(run, principal) for run in part]
    troubles = [shown_run(run, principal) for run in troubles_in(runs)[:TROUBLES_MAX]]
    running = [shown_run(run, principal) for run in runs if run.running]
    return JobsPage(
        show=show,
        window=window,
        work=tuple(work),
        running=tuple(running),
        troubles=tuple(troubles),
        timeline=timeline(map(span_of, runs), now - _WINDOWS[window], now),
        matching=len(matching),
        number=number,
        numbers=numbers,
        runs=tuple(shown),
    )


def _task_span(task: TaskRun, now: datetime) -> WorkSpan:
    attempt = "" if task.attempt == 1 else f", attempt {task.attempt}"
    outcome = RunOutcome.SUCCEEDED if task.error is None else RunOutcome.FAILED
    return WorkSpan(f"task {task.number}{attempt}", task.started or now, task.finished, outcome, f"#task-{task.number}")


@rendering.page("/jobs")
def jobs(
    *,
    request: AnyRequest,
    service: TheService,
    principal: ThePrincipal,
    show: FromQuery[Show] = "all",
    window: FromQuery[Window] = "hour",
    page: FromQuery[int] = 1,
) -> Response[bytes]:
    """The last runs of jobs."""
    found = [run for run in job_runs(service.instance.storage, limit=RUNS_READ) if may_see(principal, run)]
    service.instance.tables()
    known = service.instance.known_tables()
    names = {of: name for of, name in known.items() if principal.reads_whole(name)}
    status = service.status()
    work = [one for one in status.work if one.table in names.values()]
    made = make(found, work, principal, show=show, window=window, number=page)
    followers = status.followers if principal.permission(None) is Permission.ADMIN else ()
    made = replace(made, hooks=shown_hooks(status.hooks, names, principal), followers=followers)
    return rendering.answer(request, "jobs.html", made, principal)


@rendering.page("/jobs/{job:str}")
def job_page(*, request: AnyRequest, service: TheService, principal: ThePrincipal, job: PathText) -> Response[bytes]:
    """One run."""
    details = seen_run(service, principal, job.removesuffix(".json"))
    run, tasks = details.run, details.tasks
    now, line = clock.now(), None
    begins = [task.started for task in tasks if task.started is not None]
    if begins:
        ends = [task.finished or now for task in tasks]
        line = timeline((_task_span(task, now) for task in tasks), min(begins), max(ends))
    return rendering.answer(request, "job.html", JobPage(shown_run(run, principal), tasks, line), principal)


@post("/jobs/{job:str}/retry", sync_to_thread=True, include_in_schema=False)
def retry(request: AnyRequest, service: TheService, principal: ThePrincipal, job: PathText) -> Response[bytes]:
    """Retry a parked job."""
    check_form(request)
    run, _ = retry_run(service, principal, job)
    return rendering.see(f"/jobs/{run.id}")
