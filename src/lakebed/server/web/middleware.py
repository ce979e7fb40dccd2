"""ASGI applications around the application: the audit log, measurements, and the time that a body may take.

They see requests that reach no handler as well. Every answer gets the headers of :class:`AuditedRequests`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException

from lakebed import clock
from lakebed.server.web.request_authentication import HEALTH, PRINCIPAL
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from litestar import Request
    from litestar.types import ASGIApp, HTTPReceiveMessage, Message, Receive, Scope, Send

    from lakebed.server.monitoring.monitor import Monitor
    from lakebed.server.security.audit import AuditLog

_NOTES = "lakebed_audit"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
)
"""For answers that do not say otherwise: pages have a policy of their own."""

_STRICT = (b"strict-transport-security", b"max-age=31536000")
_TABLE_PARAMETERS = ("table", "name", "table_id")

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
"""Methods with a label of their own; a client may send any text as a method."""

NO_ROUTE = "(none)"
"""The label of requests for a path that does not exist: the paths themselves could be any number."""


def note(request: Request[Any, Any, Any], **facts: Any) -> None:
    """Add ``statement``, ``table`` or ``rows`` to the line of a request."""
    scope: Any = request.scope
    scope.setdefault(_NOTES, {}).update(facts)


class AuditedRequests:
    """Writes a line of the audit log for every request, and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, log: AuditLog | None, interface: str = "http") -> None:
        self._app = app
        self._log = log
        self._interface = interface

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        began_s, status, sent_bytes = clock.monotonic_s(), 499, 0

        async def audited_send(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_defaults(message["headers"], scope)
            elif message["type"] == "http.response.body":
                sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, audited_send)
        finally:
            if self._log is not None and scope["path"] not in HEALTH and not scope["path"].startswith("/static/"):
                self._record(scope, status, sent_bytes, clock.monotonic_s() - began_s)

    def _record(self, scope: Scope, status: int, sent_bytes: int, seconds: float) -> None:
        assert self._log is not None
        found: Any = scope
        principal, client, notes = found.get(PRINCIPAL), found.get("client"), found.get(_NOTES, {})
        params = found.get("path_params", {})
        query = found.get("query_string", b"").decode("latin-1")
        self._log.record(
            principal=None if principal is None else principal.name,
            interface=self._interface,
            method=found["method"],
            path=f"{found['path']}?{query}" if query else found["path"],
            status=status,
            seconds=seconds,
            peer=client[0] if client else None,
            size_bytes=sent_bytes,
            **({"table": next((params[name] for name in _TABLE_PARAMETERS if name in params), None)} | notes),
        )


def _with_defaults(headers: Any, scope: Any) -> list[tuple[bytes, bytes]]:
    given = list(headers)
    names = {name.lower() for name, _ in given}
    more = (*_HEADERS, _STRICT) if scope.get("scheme") == "https" else _HEADERS
    return [*given, *(one for one in more if one[0] not in names)]


class BodyDeadline:
    """Ends a request whose body does not arrive in time with status 408, so that slow clients hold no resources."""

    def __init__(self, app: ASGIApp, time_s: float) -> None:
        self._app = app
        self._time_s = time_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        ends_at = clock.monotonic_s() + self._time_s
        whole = False

        async def receive_in_time() -> HTTPReceiveMessage:
            nonlocal whole
            if whole:
                return await receive()  # type: ignore[return-value]
            try:
                with anyio.fail_after(max(0.0, ends_at - clock.monotonic_s())):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    detail=f"the body of the request did not arrive within {self._time_s:g} s", status_code=408
                ) from None
            whole = message["type"] != "http.request" or not message.get("more_body", False)
            return message  # type: ignore[return-value]

        await self._app(scope, receive_in_time, send)


class MeasuredRequests:
    """Measures every request: its time, route, method and status."""

    def __init__(self, app: ASGIApp, monitor: Monitor) -> None:
        self._app = app
        self._monitor = monitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == ScopeType.WEBSOCKET:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        # The connection was closed before a response: status 499, as in nginx.
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
