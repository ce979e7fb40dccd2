"""``/v1/jobs``: recorded runs of jobs that are visible to the principal."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import FromQuery, QueryParameter

from lakebed.server.web.access import RequestedTable, may_see, retry_run, seen_run
from lakebed.server.web.api.descriptions import ERRORS
from lakebed.server.web.provided import PathText, ThePrincipal, TheService, TheTables
from lakebed.server.web.threads import threaded
from lakebed.table.tracker.listing import RunFilter, job_runs
from lakebed.table.tracker.runs import RunOutcome

RUNS_MAX = 10_000


@get("/v1/jobs", tags=["jobs"], responses=ERRORS)
@threaded
def list_jobs(
    *,
    service: TheService,
    tables: TheTables,
    principal: ThePrincipal,
    table: FromQuery[str | None] = None,
    outcome: FromQuery[RunOutcome | None] = None,
    limit: Annotated[int, QueryParameter(ge=0, le=RUNS_MAX)] = 100,
) -> dict[str, Any]:
    """Runs of jobs, newest first, with their hosts, progress, results and errors."""
    ids = None if table is None else frozenset({RequestedTable(tables, principal, table).whole().id})
    wanted = RunFilter(ids, outcomes=None if outcome is None else frozenset({outcome}))
    seen = [run for run in job_runs(service.instance.storage, wanted, RUNS_MAX) if may_see(principal, run)]
    return {"jobs": [msgspec.to_builtins(run) for run in seen[:limit]]}


@get("/v1/jobs/{job:str}", tags=["jobs"], responses=ERRORS)
@threaded
def show_job(service: TheService, principal: ThePrincipal, job: PathText) -> dict[str, Any]:
    """One run with its tasks; the last eight characters of its id are enough."""
    found = seen_run(service, principal, job)
    return {"job": msgspec.to_builtins(found.run), "tasks": [msgspec.to_builtins(task) for task in found.tasks]}


@post("/v1/jobs/{job:str}/retry", tags=["jobs"], responses=ERRORS, status_code=202)
@threaded
def retry_job(service: TheService, principal: ThePrincipal, job: PathText) -> dict[str, Any]:
    """Retry a parked job in the next round."""
    run, asked = retry_run(service, principal, job)
    return {"job": run.id, "asked": asked}
