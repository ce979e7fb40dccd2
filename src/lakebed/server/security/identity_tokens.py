"""JWTs of an identity provider (OIDC), verified against a file with its public keys (JWKS, RFC 7517).

Core type: :class:`IdentityTokens`. The key set is read again when its file changes, so keys are rotated by replacing
the file; if the new one is not a key set, the old keys stay in force and the failure is logged.

Rules: only signatures by public-key algorithms are accepted, whatever the token claims; keys of other kinds in the file
are not used. The token must name the issuer and the audience, and must expire. Values of one claim are mapped to roles;
a value without a mapping grants nothing.

Errors: UsageError for a key set that cannot be read at the start; AccessError for a token that is not valid.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.model.documents import UNREADABLE, load
from lakebed.server.security.principal import Principal

if TYPE_CHECKING:
    from lakebed.server.security.stored import AccessList

_LOG = logging.getLogger("lakebed.security")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
LEEWAY_S = 60
"""What the clocks of the provider and of this machine may differ by."""

_KEY_KINDS = ("RSA", "EC", "OKP")
_REFUSED = "the identity token is not valid"


@dataclass(frozen=True, slots=True)
class IdentityRules:
    """The rules for tokens and their principals: ``roles`` has the role for a value of ``roles_claim``."""

    issuer: str
    audience: str
    roles: Mapping[str, str]
    roles_claim: str = "roles"
    name_claim: str = "sub"
    algorithms: Sequence[str] = field(default=ALGORITHMS)


class IdentityTokens:
    """Verifies tokens of one provider. Safe to use from many threads."""

    def __init__(self, keys: Path, rules: IdentityRules, access: AccessList) -> None:
        """``keys`` is the file of the key set. Raises UsageError if it is none."""
        self._path = keys
        self._rules = rules
        self._access = access
        self._seen = self._stamp()
        self._keys = self._read()
        self._claims = jwt.JWTClaimsRegistry(
            now=lambda: int(clock.now().timestamp()),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": rules.issuer},
            aud={"essential": True, "value": rules.audience},
            exp={"essential": True},
        )

    def principal_of(self, text: str) -> Principal:
        """Return the principal of the token. Raises AccessError if it is invalid, or gives no role."""
        try:
            token = jwt.decode(text, self._current(), algorithms=list(self._rules.algorithms))
            self._claims.validate(token.claims)
        except (JoseError, *UNREADABLE) as error:
            # Only the kind of failure, because messages of the library may quote the token.
            raise Code.NOT_AUTHENTICATED(f"{_REFUSED} ({_kind(error)}); sign in again") from None
        name = token.claims.get(self._rules.name_claim)
        if not isinstance(name, str) or not name:
            raise Code.NOT_AUTHENTICATED(f"{_REFUSED}: it has no claim {self._rules.name_claim!r}")
        values = token.claims.get(self._rules.roles_claim, ())
        given = [values] if isinstance(values, str) else values if isinstance(values, list) else ()
        names = dict.fromkeys(
            self._rules.roles[value] for value in given if isinstance(value, str) and value in self._rules.roles
        )
        if not names:
            raise Code.NOT_AUTHENTICATED(
                f"no value of the claim {self._rules.roles_claim!r} gives a role here; ask an admin for a mapping"
            )
        # A name that no token can have: results of submitted queries belong to names.
        return Principal(f"jwt:{name}", self._access.roles_named(names))

    def _current(self) -> KeySet:
        """Return the keys in the file, read again if it has changed."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._keys = self._read()
            except Error as error:
                _LOG.warning("%s; the keys read before stay in force", error.message)
        return self._keys

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - a hot path
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> KeySet:
        try:
            document: Any = load(self._path.read_bytes())
            usable = [
                key for key in document["keys"] if key.get("kty") in _KEY_KINDS and key.get("use") in (None, "sig")
            ]
            return KeySet.import_key_set({"keys": usable})
        except OSError as error:
            raise Code.ARGUMENT_INVALID(f"--jwks {self._path}: {error.strerror or error}") from error
        except (JoseError, *UNREADABLE) as error:
            raise Code.ARGUMENT_INVALID(
                f"--jwks {self._path}: not a set of public keys ({_kind(error)}); give the file that the provider "
                "publishes as its jwks_uri"
            ) from error


def _kind(error: Exception) -> str:
    found = getattr(error, "error", "") if isinstance(error, JoseError) else ""
    return str(found or type(error).__name__).replace("_", " ")
