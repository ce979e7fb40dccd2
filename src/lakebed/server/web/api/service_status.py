"""The status endpoints of a service: ``/health``, ``/metrics``, ``/v1/status`` and ``/v1/openapi.json``.

Liveness and readiness need no token, so that an orchestrator can ask: the first says that the process responds, the
second that it can read its instance. ``/metrics`` and ``/v1/status`` name all tables, and need READ on every table.
Source: docs/service.md.
"""

from __future__ import annotations

from typing import Any

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from lakebed.errors import Error
from lakebed.model.json_values import plain
from lakebed.server.monitoring.monitor import CONTENT_TYPE, Monitor
from lakebed.server.security.principal import Authenticator, Permission
from lakebed.server.web.api.descriptions import ERRORS
from lakebed.server.web.error_answers import document_of, status_of
from lakebed.server.web.provided import AnyRequest, ThePrincipal, TheService
from lakebed.server.web.threads import threaded


@get("/health/live", sync_to_thread=False, tags=["health"])
def live() -> dict[str, str]:
    """Responds while the process works."""
    return {"status": "live"}


@get("/health/ready", sync_to_thread=True, tags=["health"])
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
