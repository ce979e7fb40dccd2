"""``/metrics``, for Prometheus."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from lakebed.monitoring.monitor import CONTENT_TYPE, Monitor
from lakebed.security.principal import Authenticator, Permission


@get("/metrics", sync_to_thread=True, include_in_schema=False)
def metrics(
    request: Request[Any, Any, Any],
    monitor: NamedDependency[Monitor],
    authenticator: SkipValidation[NamedDependency[Authenticator]],
) -> Response[bytes]:
    """The metrics in the text format of Prometheus. They name all tables, so they need READ on every table.

    On a loopback address, and with --public-metrics, they need no token.
    """
    if not monitor.public:
        authenticator.authenticate(request.headers.get("authorization")).require(Permission.READ)
    return Response(monitor.text(), headers={"Content-Type": CONTENT_TYPE})


ROUTES = (metrics,)
