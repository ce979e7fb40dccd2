"""Finds the principal of a request: by a token of the instance, or by a JWT of an identity provider.

Core type: :class:`BearerAuthenticator`. Errors: AccessError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.server.security.stored import PREFIX

if TYPE_CHECKING:
    from lakebed.server.security.identity_tokens import IdentityTokens
    from lakebed.server.security.principal import Principal
    from lakebed.server.security.stored import AccessList

_SCHEME = "bearer "
_CHARACTERS_MAX = 16_384
"""A JWT of a large provider, with all groups of a user, has some thousand."""


class BearerAuthenticator:
    """Accepts tokens, and JWTs if it has the keys of a provider. Safe to use from many threads."""

    def __init__(self, access: AccessList, identities: IdentityTokens | None = None) -> None:
        self._access = access
        self._identities = identities

    def authenticate(self, authorization: str | None) -> Principal:
        """Return the principal of an ``Authorization`` header's value, ``Bearer TOKEN``. Raises AccessError."""
        if not authorization:
            raise Code.NOT_AUTHENTICATED(
                "a token is missing: give lakebed.connect a token, or send the header Authorization: Bearer TOKEN"
            )
        if authorization[: len(_SCHEME)].lower() != _SCHEME or len(authorization) > _CHARACTERS_MAX:
            raise Code.NOT_AUTHENTICATED("the header Authorization is not understood: send Bearer TOKEN")
        secret = authorization[len(_SCHEME) :].strip()
        if self._identities is None or secret.startswith(PREFIX):
            return self._access.principal_of(secret)
        return self._identities.principal_of(secret)
