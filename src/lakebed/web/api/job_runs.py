"""``/v1/jobs``: runs of jobs that are on record, as far as the principal may know of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import FromQuery, QueryParameter

from lakebed.errors import Code
from lakebed.security.principal import Permission, Principal
from lakebed.service.service import Service
from lakebed.tracker.listing import RunDetails, RunFilter, job_runs, run_details
from lakebed.tracker.retry_requests import request_retry
from lakebed.tracker.runs import RunOutcome
from lakebed.web.api.descriptions import ERRORS
from lakebed.web.pages.jobs_page import may_see
from lakebed.web.provided import PathText, ThePrincipal, TheService, TheTables
from lakebed.web.threads import threaded

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
    """Runs of jobs, those that were created last first: what each did, where, how far it is, and why it failed."""
    ids = None if table is None else frozenset({tables.table(principal, Permission.READ, table).id})
    wanted = RunFilter(ids, outcomes=None if outcome is None else frozenset({outcome}))
    seen = [run for run in job_runs(service.instance.storage, wanted, RUNS_MAX) if may_see(principal, run)]
    return {"jobs": [msgspec.to_builtins(run) for run in seen[:limit]]}


@get("/v1/jobs/{job:str}", tags=["jobs"], responses=ERRORS)
@threaded
def show_job(service: TheService, principal: ThePrincipal, job: PathText) -> dict[str, Any]:
    """One run with its tasks; the last eight characters of its id are enough."""
    found = _seen(service, principal, job)
    return {"job": msgspec.to_builtins(found.run), "tasks": [msgspec.to_builtins(task) for task in found.tasks]}


@post("/v1/jobs/{job:str}/retry", tags=["jobs"], responses=ERRORS, status_code=202)
@threaded
def retry_job(service: TheService, principal: ThePrincipal, job: PathText) -> dict[str, Any]:
    """Try a parked job again at the next round."""
    run = _seen(service, principal, job).run
    principal.require(Permission.ADMIN, run.table or None)
    if not run.parked:
        raise Code.JOB_NOT_PARKED(f"job {run.id} is not parked: its outcome is {run.outcome}", job=run.id)
    return {"job": run.id, "asked": request_retry(service.instance.storage, run.id)}


def _seen(service: Service, principal: Principal, job: str) -> RunDetails:
    found = run_details(service.instance.storage, job)
    if not may_see(principal, found.run):
        raise Code.JOB_NOT_FOUND(f"no job run {job[:100]} that you may see is on record", job=job[:100])
    return found


ROUTES = (list_jobs, show_job, retry_job)
