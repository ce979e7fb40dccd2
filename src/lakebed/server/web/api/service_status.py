"""The status of a service: ``/health``, ``/metrics``, ``/v1/status``, ``/v1/openapi.json``, and job runs, ``/v1/jobs``.

Liveness and readiness need no token, so that an orchestrator can ask: the first says that the process responds, the
second that it can read its instance. ``/metrics`` and ``/v1/status`` name all tables, and need READ on every table;
runs of jobs are those that are visible to the principal. Source: docs/service.md.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter, SkipValidation

from lakebed.errors import Error
from lakebed.model.json_values import plain
from lakebed.server.monitoring.monitor import CONTENT_TYPE, Monitor
from lakebed.server.security.principal import Authenticator, Permission
from lakebed.server.web.access import (
    AnyRequest,
    PathText,
    RequestedTable,
    ThePrincipal,
    TheService,
    TheTables,
    may_see,
    retry_run,
    seen_run,
)
from lakebed.server.web.api.descriptions import ERRORS
from lakebed.server.web.error_answers import document_of, status_of
from lakebed.server.web.waiting import threaded
from lakebed.table.tracker.listing import RunFilter, job_runs
from lakebed.table.tracker.runs import RunOutcome


@get("/health/live", sync_to_thread=False, tags=["health"])
def live() -> dict[str, str]:
    """Responds while the process works."""
    return {"status": "live"}


@get(["/health", "/health/ready"], tags=["health"])
@threaded
def ready(service: TheService) -> Response[dict[str, Any]]:
    """Responds with 200 if the service can read its instance, otherwise with 503, the reason, and since when."""
    try:
        service.instance.tables()
    except Error as error:
        known = service.status().error
        since = None if known is None else plain(known.at)
        return Response({**document_of(error), "since": since}, status_code=status_of(error))
    return Response({"status": "ready"})


@get("/metrics", sync_to_thread=True, include_in_schema=False)
def metrics(
    request: AnyRequest,
    monitor: NamedDependency[Monitor],
    authenticator: SkipValidation[NamedDependency[Authenticator]],
) -> Response[bytes]:
    """The metrics in the text format of Prometheus. They name all tables, so they need READ on every table.

    With --public-metrics they need no token.
    """
    if not monitor.public:
        authenticator.authenticate(request.headers.get("authorization")).require(Permission.READ)
    return Response(monitor.text(), headers={"Content-Type": CONTENT_TYPE})


@get("/v1/openapi.json", include_in_schema=False)
@threaded
def openapi(request: AnyRequest) -> Response[dict[str, Any]]:
    """The description of this API: operations, their parameters, bodies and responses."""
    return Response(request.app.openapi_schema.to_schema(), media_type="application/vnd.oai.openapi+json")


@get("/v1/status", tags=["service"], responses=ERRORS)
@threaded
def status(service: TheService, principal: ThePrincipal) -> dict[str, Any]:
    """The status of the service and of each table."""
    principal.require(Permission.READ)
    return dict(plain(service.status()))


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
