"""``/v1/openapi.json``: the OpenAPI document, and ``/v1/status``."""

from __future__ import annotations

from typing import Any

from litestar import Response, get

from lakebed.model.json_values import plain
from lakebed.security.principal import Permission
from lakebed.web.api.descriptions import ERRORS
from lakebed.web.provided import AnyRequest, ThePrincipal, TheService
from lakebed.web.threads import threaded


@get("/v1/openapi.json", include_in_schema=False)
@threaded
def openapi(request: AnyRequest) -> Response[dict[str, Any]]:
    """What this API has: operations, their parameters, bodies and answers."""
    return Response(request.app.openapi_schema.to_schema(), media_type="application/vnd.oai.openapi+json")


@get("/v1/status", tags=["service"], responses=ERRORS)
@threaded
def status(service: TheService, principal: ThePrincipal) -> dict[str, Any]:
    """What the service does, waits for and knows of each table."""
    principal.require(Permission.READ)
    return dict(plain(service.status()))


ROUTES = (openapi, status)
