"""Authenticates requests by the header ``Authorization``, or by the session cookie of a browser.

Core type: :class:`RequestAuthenticator`. Every route but those of :data:`PUBLIC` and :data:`HEALTH` needs a
principal, even if its handler does not use it.

*Sessions.* A browser sends a token once, by a form, and gets a session (:mod:`lakebed.server.security.sessions`) in a
cookie that scripts do not see and that other sites cannot make it send. The token is in it, encrypted, and is checked
for each request, so revoking it ends the session. Any service of the instance accepts it.

*Other sites.* A request that changes something, and has no header ``Authorization``, must come from a page of this
service, or from no browser: browsers send its origin (``Sec-Fetch-Site``, ``Origin``), which no page can change. A
service without authentication accepts only names of this machine, because the name of another site may resolve to it
(DNS rebinding).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.server.security.audit import AuditLog
from lakebed.server.security.principal import Authenticator, Open, Principal
from lakebed.server.security.sessions import SealedSessions
from lakebed.server.web.connections import CONNECTION

AnyConnection = ASGIConnection[Any, Any, Any, Any]

COOKIE = "lakebed_session"

HEALTH = frozenset({"/health", "/health/live", "/health/ready"})
"""Paths for load balancers and orchestrators: answered to anyone, even on a connection too many, and not logged."""

PUBLIC = ("/static/", "/login", "/logout", "/metrics", "/iceberg/v1/oauth/tokens")
"""Beginnings of other paths that are answered to anyone. The handler of /metrics asks for a permission itself; that of
OAuth refuses all."""

PRINCIPAL = "lakebed_principal"
"""The name of the principal in the scope of a request."""

FAILURES_MAX = 20
FAILURES_S = 60.0
_PEERS_MAX = 10_000
_SAFE = {"GET", "HEAD", "OPTIONS"}
_ONCE = (b"authorization", b"host", b"content-type", b"origin", b"sec-fetch-site")
"""Headers that decide something: of two, a proxy in front and this service could take different ones."""

_FORWARDED = ("forwarded", "x-forwarded-for")
"""Headers that a proxy adds to a request of another machine."""

_RESERVED = frozenset({"request", "data", "body"})
"""What Litestar gives to a handler under these names is no parameter."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The external addresses and origins of the service."""

    hosts: Collection[str] | None = None
    """The names by which it may be addressed; any, if None."""
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may use the API."""
    audit: AuditLog | None = None
    iceberg_properties: Mapping[str, str] = field(default_factory=dict)
    """What the Iceberg catalog hands to principals that may read all tables, such as the endpoint of the store."""


class RequestAuthenticator:
    """Authenticates requests. Safe to use from many threads."""

    def __init__(
        self, authenticator: Authenticator, sessions: SealedSessions, hosts: Collection[str] | None = None
    ) -> None:
        """``hosts`` are the names by which the service may be addressed; any, if None."""
        self._authenticator = authenticator
        # Without authentication all requests are of one principal.
        self._is_open = isinstance(authenticator, Open)
        self._hosts = hosts
        self._sessions = sessions
        self._failures = _Failures()

    async def admit(self, connection: AnyConnection) -> None:
        """Refuse a request without a principal, or with a parameter that its handler does not have, before it is read.

        Raises AccessError, UsageError.
        """
        _check_headers(connection)
        self._check_host(connection)
        path = connection.scope["path"]
        self._check_site(connection)
        if path not in HEALTH and not path.startswith(PUBLIC):
            self.principal(connection)
        _check_parameters(connection)

    def principal(self, connection: AnyConnection) -> Principal:
        """Return the principal of the request. Raises AccessError."""
        scope: Any = connection.scope
        principal: Principal | None = scope.get(PRINCIPAL)
        if principal is None:
            authorization = connection.headers.get("authorization")
            if authorization is None:
                authorization = self._sessions.authorization(connection.cookies.get(COOKIE))
            principal = self._authenticated(authorization, connection)
            scope[PRINCIPAL] = principal
            if CONNECTION in scope and not self._is_open:
                scope[CONNECTION].belongs_to(principal.name)
        return principal

    def sign_in(self, token: str, connection: AnyConnection) -> str:
        """Return a new session for the holder of the token.

        Raises AccessError; UsageError for a token that is too long.
        """
        authorization = f"Bearer {token}"
        scope: Any = connection.scope
        scope[PRINCIPAL] = self._authenticated(authorization, connection)
        return self._sessions.begin(authorization)

    def _authenticated(self, authorization: str | None, connection: AnyConnection) -> Principal:
        try:
            return self._authenticator.authenticate(authorization)
        except Error as error:
            if error.code is Code.NOT_AUTHENTICATED and authorization is not None:
                self._failures.add(connection.client.host if connection.client else "")
            raise

    def _check_host(self, connection: AnyConnection) -> None:
        if self._hosts is None:
            return
        name = urlsplit(f"//{connection.headers.get('host', '')}").hostname or ""
        if name not in self._hosts:
            raise Code.PERMISSION_MISSING(
                "this service has no authentication and answers on this machine only: ask it as localhost, not as "
                f"{name!r}"
            )
        if any(header in connection.headers for header in _FORWARDED):
            raise Code.PERMISSION_MISSING(
                "this service has no authentication and answers on this machine only, and a proxy forwarded this "
                "request from another; create a token with `lakebed token create NAME --role admin`"
            )

    def _check_site(self, connection: AnyConnection) -> None:
        if connection.scope.get("method") in _SAFE or "authorization" in connection.headers:
            return
        site = _site_of(connection)
        allowed = COOKIE not in connection.cookies if site is None else site in ("same-origin", "none")
        if not allowed:
            raise Code.PERMISSION_MISSING("this request was sent by a page of another site; send it from a page here")


class _Failures:
    """Counts failed authentications by address within a minute. A valid token is never refused for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, tuple[float, int]] = {}

    def add(self, peer: str) -> None:
        """Count a failure. Raises AccessError if there were too many."""
        now = clock.monotonic_s()
        with self._lock:
            began, count = self._found.get(peer, (now, 0))
            if now - began >= FAILURES_S:
                began, count = now, 0
            if len(self._found) >= _PEERS_MAX:
                self._found.clear()
            self._found[peer] = began, count + 1
        if count >= FAILURES_MAX:
            raise Code.ATTEMPTS_EXCEEDED(
                f"more than {FAILURES_MAX} requests from this address had no valid token within a minute; wait a minute"
            )


def _check_headers(connection: AnyConnection) -> None:
    """Raise UsageError for a header that may stand once and was sent twice."""
    names = [name for name, _ in connection.scope["headers"]]
    if twice := next((name for name in _ONCE if names.count(name) > 1), None):
        raise Code.REQUEST_INVALID(f"the request has two headers {twice.decode()}; send one")


def _check_parameters(connection: AnyConnection) -> None:
    """Refuse parameters in the URL of a request to the API that its handler does not have: ``limt=10`` is no limit.

    Raises UsageError, with the parameters that there are.
    """
    if not connection.scope["path"].startswith("/v1/") or not connection.scope["query_string"]:
        return
    known = [name for name in _parameters(connection.route_handler) if name not in connection.scope["path_params"]]
    unknown = [name for name in connection.query_params if name not in known]
    if unknown:
        raise Code.REQUEST_INVALID(
            f"unknown parameter {unknown[0]!r} in the URL; the parameters here: {', '.join(known) or 'none'}"
        )


@cache
def _parameters(handler: BaseRouteHandler) -> tuple[str, ...]:
    provided = {*_RESERVED, *handler.resolve_dependencies()}
    # A word that Python keeps for itself has a line behind it in the handler.
    return tuple(name.rstrip("_") for name in handler.parsed_fn_signature.parameters if name not in provided)


def check_form(request: AnyConnection) -> None:
    """Raise AccessError for a form that is not from a page of this service, or from a browser too old to say so.

    Programs authenticate with a header, which no other site can make a browser add.
    """
    site = _site_of(request)
    if not ("authorization" in request.headers if site is None else site == "same-origin"):
        raise Code.PERMISSION_MISSING(
            "this form was not sent by a page of this service; open the page here and send it again"
        )


def _site_of(connection: AnyConnection) -> str | None:
    """Return the site of the requesting page, in terms of ``Sec-Fetch-Site``; None if unknown."""
    site, origin = connection.headers.get("sec-fetch-site"), connection.headers.get("origin")
    if site is not None or origin is None:
        return site
    is_here = urlsplit(origin).netloc == connection.headers.get("host", "")
    return "same-origin" if is_here else "cross-site"
