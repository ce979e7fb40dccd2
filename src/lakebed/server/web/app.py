"""The web application of a service: routes, authentication, errors, and threads for blocking work.

Handlers are plain functions that run in threads, of which :attr:`RequestLimits.threads` work at once; the others wait.
A handler declares what it needs by parameters: ``service``, ``tables``, ``principal`` and ``limits`` are there for all,
``requested`` where the path names a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import anyio
import anyio.to_thread
from litestar import Litestar, Request
from litestar.config.cors import CORSConfig
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.router import Router
from litestar.routes import HTTPRoute

from lakebed.errors import Error
from lakebed.model.version import VERSION
from lakebed.server.monitoring.monitor import Monitor
from lakebed.server.security.principal import Authenticator, Open, Principal
from lakebed.server.security.sessions import SealedSessions
from lakebed.server.service.query_runs import SubmittedQueries
from lakebed.server.service.room import Room
from lakebed.server.service.service import Service
from lakebed.server.web.access import OpenTables, requested_table
from lakebed.server.web.api import commits, iceberg_catalog, queries, reads, service_status, tables
from lakebed.server.web.api.commits import Committers
from lakebed.server.web.error_answers import answer_bug, answer_error, answer_http_error
from lakebed.server.web.middleware import AuditedRequests, BodyDeadline, MeasuredRequests
from lakebed.server.web.pages import jobs_page, log_page, overview, query_page, rendering, sign_in, table_page
from lakebed.server.web.pages.page_memory import PageMemory
from lakebed.server.web.request_authentication import Exposure, RequestAuthenticator
from lakebed.server.web.request_bodies import DocumentRequest
from lakebed.server.web.row_answers import OpenAnswers
from lakebed.server.web.waiting import LOOKUP_THREADS, REMOTE_LOOKUP_THREADS, Lookups, RequestLimits

__all__ = ["RequestLimits", "make_app"]

API = (commits, queries, reads, service_status, tables)
FOREIGN = (iceberg_catalog,)
PAGES = (overview, jobs_page, log_page, query_page, table_page, rendering, sign_in)
"""The modules whose handlers the application has; the interface of foreign ones is specified elsewhere."""

_CORS_HEADERS = ["Accept", "Authorization", "Content-Type"]


class _SharedRouter(Router):
    """The routes of one application, registered as they are: Litestar would copy each handler with all that it has."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _SharedRouter:
        return self


class _Unrouted(Router):
    """Disables Litestar's routes for the OpenAPI document, which answer unknown paths with HTML.

    The document is served by :mod:`lakebed.server.web.api.service_status`.
    """

    def register(self, value: Any) -> list[Any]:  # noqa: ARG002 - no route is registered
        return []


def routes_in(*modules: ModuleType) -> Iterator[HTTPRouteHandler]:
    """Return the handlers that modules define. A page is two of them, for HTML and for JSON, under one name."""
    for module in modules:
        for value in vars(module).values():
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, HTTPRouteHandler):
                    # Kept by the handler. Applications have copies of it, each of which would parse it anew.
                    _ = one.parsed_fn_signature
                    yield one


def make_app(
    service: Service,
    authenticator: Authenticator | None = None,
    limits: RequestLimits | None = None,
    monitor: Monitor | None = None,
    exposure: Exposure | None = None,
) -> Litestar:
    """Return the ASGI application. Without an authenticator every request may do everything.

    While it runs, the ``monitor`` receives what this process measures; by default a new one.
    """
    authenticator, outside = authenticator or Open(), exposure or Exposure()
    request_authenticator = RequestAuthenticator(authenticator, SealedSessions(service.instance.storage), outside.hosts)
    bounds = limits or RequestLimits()
    memory = PageMemory(service.instance)
    watching = monitor or Monitor(service)
    committers = Committers()
    lookups = Lookups(LOOKUP_THREADS if service.instance.storage.locality.near else REMOTE_LOOKUP_THREADS)
    statements, answers = _rooms(bounds, authenticator)
    watching.watch(statements, answers)
    submitted = SubmittedQueries(service.instance, service.engines, bounds.of_queries())
    provided = {
        "service": service,
        "limits": bounds,
        "tables": OpenTables(service),
        "lookups": lookups,
        "writers": anyio.CapacityLimiter(bounds.threads),
        "queries": submitted,
        "statements": statements,
        "answers": OpenAnswers(answers, bounds),
        "memory": memory,
        "request_authenticator": request_authenticator,
        "authenticator": authenticator,
        "monitor": watching,
        "committers": committers,
        "iceberg_properties": outside.iceberg_properties,
    }

    def principal(request: Request[Any, Any, Any]) -> Principal:
        return request_authenticator.principal(request)

    async def set_threads() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = bounds.threads

    app = Litestar(
        # One router: handlers that share a path would be registered again, which wraps a plain function twice.
        route_handlers=[_SharedRouter("/", route_handlers=[*routes_in(*API, *FOREIGN, *PAGES)])],
        dependencies={name: _always(value) for name, value in provided.items()}
        | {"principal": _each_time(principal), "requested": _each_time(requested_table)},
        # Not guards: Litestar copies the handler for each guard of each request.
        before_request=request_authenticator.admit,
        cors_config=CORSConfig(list(outside.origins), allow_headers=_CORS_HEADERS) if outside.origins else None,
        on_startup=[set_threads, submitted.start, watching.install],
        on_shutdown=[lookups.close, submitted.close, committers.close, memory.close, watching.uninstall],
        exception_handlers={Error: answer_error, HTTPException: answer_http_error, Exception: answer_bug},
        request_class=DocumentRequest,
        request_max_body_size=bounds.request_bytes,
        openapi_config=OpenAPIConfig("Lakebed", VERSION, openapi_router=_Unrouted("/", route_handlers=[])),
        # Log records go where the process sends them, not to a queue and a thread of each application.
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )
    return _surrounded(app, bounds, watching, outside)


def _rooms(limits: RequestLimits, authenticator: Authenticator) -> tuple[Room, Room]:
    """Return the room for statements and for answers. Without authentication one principal has all of it."""
    sizes = {"statements": limits.sql_statements, "answers": limits.answer_memory_bytes}
    is_open = isinstance(authenticator, Open)
    statements, answers = (Room(name, size, share=size if is_open else None) for name, size in sizes.items())
    return statements, answers


def _surrounded(app: Litestar, limits: RequestLimits, monitor: Monitor, exposure: Exposure) -> Litestar:
    """Return the application in what sees all requests. A middleware would not see those that reach no handler."""
    _provide_in_turn(app)
    measured = MeasuredRequests(BodyDeadline(app.asgi_handler, limits.request_s), monitor)
    app.asgi_handler = AuditedRequests(measured, exposure.audit)
    return app


def _always(value: object) -> Provide:
    """Provide the same value to every request."""
    return Provide(lambda: value, sync_to_thread=False, use_cache=True)


def _each_time(make: Callable[..., object]) -> Provide:
    """Provide what is made for each request."""
    return Provide(make, sync_to_thread=False)


def _provide_in_turn(app: Litestar) -> None:
    """Provide what handlers declare one by one. Litestar starts a task for each, and nothing here waits."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for _, model in route.route_handler_map.values():
                model.dependency_batches = [{one} for batch in model.dependency_batches for one in batch]
