"""The web application of a service: routes, authentication, errors, and threads for what blocks.

Handlers are plain functions that run in threads, of which :attr:`RequestLimits.threads` work at once; the others wait.
A handler declares what it needs by parameters: ``service`` and ``principal`` are provided to all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litestar import Litestar, Request
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from lakebed.errors import Error
from lakebed.monitoring.monitor import Monitor
from lakebed.security.principal import Authenticator, Open, Principal
from lakebed.service.service import Service
from lakebed.version import VERSION
from lakebed.web import api, pages
from lakebed.web.api.commits import Committers
from lakebed.web.error_answers import answer_bug, answer_error, answer_http_error
from lakebed.web.measured_requests import MeasuredRequests
from lakebed.web.pages.page_memory import PageMemory


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request, and all of them together, may take."""

    request_bytes: int = 256 * 1024 * 1024
    """The body of a request."""
    request_s: float = 60.0
    """From the request to the end of its answer."""
    answer_rows: int = 10_000_000
    sql_memory_bytes: int = 1024 * 1024 * 1024
    """What the process of one SQL statement may take."""
    threads: int = 32


def make_app(
    service: Service,
    authenticator: Authenticator | None = None,
    limits: RequestLimits | None = None,
    monitor: Monitor | None = None,
) -> Litestar:
    """The ASGI application. Without an authenticator every request may do everything.

    While it runs, the ``monitor`` receives what this process measures; by default a new one.
    """
    doors = authenticator or Open()
    bounds = limits or RequestLimits()
    memory = PageMemory(service.instance)
    watching = monitor or Monitor(service)
    committers = Committers()

    def principal(request: Request[Any, Any, Any]) -> Principal:
        return doors.authenticate(request.headers.get("authorization"))

    app = Litestar(
        route_handlers=[*api.ROUTES, *pages.ROUTES],
        dependencies={
            "service": Provide(lambda: service, sync_to_thread=False, use_cache=True),
            "limits": Provide(lambda: bounds, sync_to_thread=False, use_cache=True),
            "principal": Provide(principal, sync_to_thread=False),
            "memory": Provide(lambda: memory, sync_to_thread=False, use_cache=True),
            "authenticator": Provide(lambda: doors, sync_to_thread=False, use_cache=True),
            "monitor": Provide(lambda: watching, sync_to_thread=False, use_cache=True),
            "committers": Provide(lambda: committers, sync_to_thread=False, use_cache=True),
        },
        on_startup=[watching.install],
        on_shutdown=[committers.close, memory.close, watching.uninstall],
        exception_handlers={Error: answer_error, HTTPException: answer_http_error, Exception: answer_bug},
        request_max_body_size=bounds.request_bytes,
        openapi_config=OpenAPIConfig("Lakebed", VERSION, path="/v1", render_plugins=[JsonRenderPlugin()]),
        debug=False,
        pdb_on_exception=False,
    )
    # A middleware would not see requests that reach no handler.
    app.asgi_handler = MeasuredRequests(app.asgi_handler, watching)
    return app
