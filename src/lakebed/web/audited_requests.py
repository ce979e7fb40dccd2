"""Writes a line of the audit log for every HTTP request, and adds the headers that every answer has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar.enums import ScopeType

from lakebed import clock
from lakebed.web.doors import PRINCIPAL

if TYPE_CHECKING:
    from litestar import Request
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

    from lakebed.security.audit import AuditLog

_NOTES = "lakebed_audit"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
)
"""For answers that do not say otherwise: pages have a policy of their own."""

_STRICT = (b"strict-transport-security", b"max-age=31536000")
_NOT_LOGGED = ("/health/", "/static/")
_TABLE_PARAMETERS = ("table", "name", "table_id")


def note(request: Request[Any, Any, Any], **facts: Any) -> None:
    """Add ``statement``, ``table`` or ``rows`` to the line of a request."""
    scope: Any = request.scope
    scope.setdefault(_NOTES, {}).update(facts)


class AuditedRequests:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, log: AuditLog | None) -> None:
        self._app = app
        self._log = log

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
            if self._log is not None and not scope["path"].startswith(_NOT_LOGGED):
                self._record(scope, status, sent_bytes, clock.monotonic_s() - began_s)

    def _record(self, scope: Scope, status: int, sent_bytes: int, seconds: float) -> None:
        assert self._log is not None
        found: Any = scope
        principal, client, notes = found.get(PRINCIPAL), found.get("client"), found.get(_NOTES, {})
        params = found.get("path_params", {})
        query = found.get("query_string", b"").decode("latin-1")
        self._log.record(
            principal=None if principal is None else principal.name,
            door="http",
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
