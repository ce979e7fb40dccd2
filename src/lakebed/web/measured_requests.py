"""Measures every HTTP request: its time, route, method and status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litestar.enums import ScopeType

from lakebed import telemetry

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

    from lakebed.monitoring.monitor import Monitor

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
"""Methods with a label of their own; a client may send any text as a method."""

NO_ROUTE = "(none)"
"""The label of requests for a path that does not exist: the paths themselves could be any number."""


class MeasuredRequests:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, monitor: Monitor) -> None:
        self._app = app
        self._monitor = monitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == ScopeType.WEBSOCKET:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        # No answer at all is what a client sees when the connection is closed: nginx logs it as 499.
        labels = {"route": NO_ROUTE, "method": method, "status": "499"}
        sent = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
        telemetry.trace_parent.set(sent.decode("latin-1"))

        async def measured_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                labels["status"] = str(message["status"])
            await send(message)

        self._monitor.answering(1)
        try:
            with telemetry.Span("http_request", labels):
                try:
                    await self._app(scope, receive, measured_send)
                finally:
                    labels["route"] = scope.get("path_template") or NO_ROUTE
        finally:
            self._monitor.answering(-1)
