"""Finds the principal of each Flight call from its ``authorization`` header, by the service's authenticator.

A bearer token is used directly. Drivers with a user name and a password send them once, in a handshake: the password is
the token, the user name is ignored, and the answer has the bearer header for all further calls.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from pyarrow import flight

from lakebed import clock
from lakebed.errors import Code
from lakebed.server.flight.call_errors import call_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.server.security.audit import AuditLog
    from lakebed.server.security.principal import Authenticator, Principal

KEY = "principal"
"""The name of the middleware that has the :class:`Caller` of a call."""

_HEADER = "authorization"


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """The principal of one call; writes the line of the audit log when the call ends."""

    def __init__(self, principal: Principal, bearer: str | None, method: str, audit: AuditLog | None) -> None:
        self.principal = principal
        self.statement: str | None = None
        self._bearer = bearer
        self._method = method
        self._audit = audit
        self._began_s = clock.monotonic_s()

    def sending_headers(self) -> dict[str, str]:
        """Return the header for further calls if a password was sent."""
        return {} if self._bearer is None else {_HEADER: self._bearer}

    def call_completed(self, exception: BaseException | None) -> None:
        """Write the line of the audit log."""
        if self._audit is not None:
            self._audit.record(
                principal=self.principal.name,
                interface="flight",
                method=self._method,
                path="",
                statement=self.statement,
                status="ok" if exception is None else type(exception).__name__,
                seconds=clock.monotonic_s() - self._began_s,
                peer=None,
            )


class Callers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Authenticates every call before it begins."""

    def __init__(self, authenticator: Authenticator, audit: AuditLog | None = None) -> None:
        self._authenticator = authenticator
        self._audit = audit

    def start_call(self, info: Any, headers: Mapping[str, Sequence[Any]]) -> Caller:
        """Return the caller. Raises FlightUnauthenticatedError."""
        with call_errors():
            found = [value for name, values in headers.items() if name.lower() == _HEADER for value in values]
            if len(found) > 1:
                raise Code.REQUEST_INVALID(f"the call has two headers {_HEADER}; send one")
            given = found[0] if found else None
            bearer = bearer_of_password(given) if given is not None else None
            principal = self._authenticator.authenticate(bearer or given)
            return Caller(principal, bearer, info.method.name.lower(), self._audit)


class Handshakes(flight.ServerAuthHandler):  # type: ignore[misc]
    """Accepts the handshake, whose header :class:`Callers` has checked."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Send nothing: the token is in a header of the answer."""

    def is_valid(self, token: bytes) -> str:  # noqa: ARG002 - calls are authenticated by their header
        """Accept any token: an empty name of the peer."""
        return ""


def bearer_of_password(header: str) -> str | None:
    """Return the bearer header whose token is the password of a Basic one; None for others. Raises AccessError."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        # Some drivers omit the padding.
        bare = encoded.strip().rstrip("=")
        data = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
        _, separator, password = data.decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        separator = password = ""
    if not separator or not password:
        raise Code.NOT_AUTHENTICATED("the Basic authorization has no password; give a token of this service as one")
    return f"Bearer {password}"


def principal_of(context: Any) -> Principal:
    """Return the principal of a call."""
    principal: Principal = context.get_middleware(KEY).principal
    return principal
