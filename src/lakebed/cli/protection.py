"""Options of ``lakebed serve`` for access control: tokens, identity tokens, TLS, other origins, and the audit log.

Errors: UsageError for options that exclude each other, for files that cannot be used, and for an address that other
machines can reach without authentication. Source: docs/security.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli.argument_types import name_value
from lakebed.errors import Code
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from lakebed.server.security.audit import AuditLog
    from lakebed.server.security.principal import Authenticator
    from lakebed.server.security.stored import AccessList
    from lakebed.server.web.request_authentication import Exposure
    from lakebed.table.instance import Instance

_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Protection:
    """The values of the options."""

    tls_cert: Path | None
    tls_key: Path | None
    jwks: Path | None
    issuer: str | None
    audience: str | None
    jwt_roles: tuple[tuple[str, str], ...]
    roles_claim: str
    name_claim: str
    origins: tuple[str, ...]
    audit_place: str | None

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """The certificate and its key. Raises UsageError if one is missing."""
        for option, path in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key)):
            if path is not None and not path.is_file():
                raise Code.ARGUMENT_INVALID(f"{option} {path}: there is no such file")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Code.ARGUMENTS_CONFLICT("--tls-cert and --tls-key go together; give both, or neither")
        return None if self.tls_cert is None or self.tls_key is None else (self.tls_cert, self.tls_key)

    def authenticator(self, instance: Instance, host: str) -> Authenticator | None:
        """Return the authenticator of requests; None for a service on this machine of an instance without tokens.

        Raises UsageError for an address that others can reach, if there would be no authentication.
        """
        with optional_imports():
            from lakebed.server.security.authentication import BearerAuthenticator
            from lakebed.server.security.stored import AccessList
            from lakebed.server.web.server import is_loopback

        access = AccessList(instance.storage)
        identities = self._identities(access)
        if self.jwks is None and not access.any_tokens:
            access.close()
            if is_loopback(host):
                return None
            raise Code.AUTHENTICATION_MISSING(
                f"--host {host} can be reached from other machines, and the instance has no token: create one with "
                "`lakebed token create NAME --role admin`, give --jwks, or leave out --host"
            )
        return BearerAuthenticator(access, identities)

    def exposure(self, *, is_open: bool, host: str) -> Exposure:
        """Return the additions of HTTP to every request. Raises UsageError for an audit log that cannot be written."""
        with optional_imports():
            from lakebed.server.web.request_authentication import Exposure

        names = frozenset({"localhost", "127.0.0.1", "::1", host}) if is_open else None
        return Exposure(names, self.origins, self._audit())

    def _audit(self) -> AuditLog | None:
        from lakebed.server.security.audit import AuditLog

        return None if self.audit_place is None else AuditLog(self.audit_place)

    def _identities(self, access: AccessList) -> Any:
        if self.jwks is None:
            if self.issuer or self.audience or self.jwt_roles:
                raise Code.ARGUMENTS_CONFLICT("options that begin with --jwt- need --jwks; add it, or leave them out")
            return None
        if self.issuer is None or self.audience is None or not self.jwt_roles:
            raise Code.ARGUMENTS_CONFLICT(
                "--jwks needs --jwt-issuer, --jwt-audience and at least one --jwt-role VALUE=ROLE: without them, "
                "tokens for other services would be accepted, or no user would have a role"
            )
        with optional_imports():
            from lakebed.server.security.identity_tokens import IdentityRules, IdentityTokens

        rules = IdentityRules(self.issuer, self.audience, dict(self.jwt_roles), self.roles_claim, self.name_claim)
        access.check_roles(dict(self.jwt_roles).values())
        return IdentityTokens(self.jwks, rules, access)


_OPTIONS = (
    click.option("--tls-cert", type=_FILE, help="Answer HTTPS with this certificate chain, in PEM."),
    click.option("--tls-key", type=_FILE, help="The private key of the certificate, in PEM."),
    click.option("--jwks", type=_FILE, help="Accept JWTs that a key of this key set (JWKS) has signed."),
    click.option("--jwt-issuer", "issuer", metavar="URL", help="The issuer that JWTs must name."),
    click.option("--jwt-audience", "audience", metavar="TEXT", help="The audience that JWTs must name."),
    click.option(
        "--jwt-role",
        "jwt_roles",
        metavar="VALUE=ROLE",
        type=name_value,
        multiple=True,
        help="The role for a value of the claim. May be repeated.",
    ),
    click.option("--jwt-roles-claim", "roles_claim", default="roles", show_default=True, help="The claim with roles."),
    click.option("--jwt-name-claim", "name_claim", default="sub", show_default=True, help="The claim with the name."),
    click.option(
        "--cors-origin", "origins", metavar="ORIGIN", multiple=True, help="Let pages of this origin use the API."
    ),
    click.option(
        "--audit-log",
        "audit_place",
        metavar="FILE",
        help="Log each request and its principal to this file, or - for stderr.",
    ),
)


def protection(function: Callable[..., None]) -> Callable[..., None]:
    """Return the options as one parameter ``protection``."""

    @functools.wraps(function)
    def with_protection(*args: Any, **given: Any) -> None:
        names = Protection.__dataclass_fields__
        own = Protection(**{name: value for name, value in given.items() if name in names})
        function(*args, protection=own, **{name: value for name, value in given.items() if name not in names})

    wrapped: Callable[..., None] = with_protection
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
