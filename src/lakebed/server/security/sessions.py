"""Sessions of browsers that every service of an instance accepts, and no service keeps.

A session is the token that a browser signed in with and the time at which it ends, encrypted by a key that is an object
of the instance (``access/session-key.json``), as a JWE (RFC 7516: ``dir``, ``A256GCM``). It is opened for each request,
and its token is checked as any other: a session ends with its token, and the key alone, without a token,
makes no session.

Core type: :class:`SealedSessions`. Errors: StorageError; DamagedError for a key that is none. Source:
docs/decisions/0056.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.documents import UNREADABLE, decode_document, dump, encode_document, load, reading
from lakebed.storage.retries import create_until_clear

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage

SESSION_S = 12 * 3600
SESSION_CHARACTERS_MAX = 3800
"""Browsers take cookies of 4,096 bytes, with their names and attributes."""

_KEY = "access/session-key.json"
_HOW = {"alg": "dir", "enc": "A256GCM", "zip": "DEF"}


class SealedSessions:
    """Makes and opens the sessions of an instance. Safe to use from many threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._key: Any = None

    def begin(self, authorization: str) -> str:
        """Return a session of the caller with this ``Authorization`` header.

        Raises UsageError if it is too long for one.
        """
        from joserfc import jwe

        content = dump({"authorization": authorization, "ends": clock.now().timestamp() + SESSION_S})
        session: str = jwe.encrypt_compact(_HOW, content, self._opened_key())
        if len(session) > SESSION_CHARACTERS_MAX:
            raise Code.ARGUMENT_INVALID(
                f"the token has {len(authorization):,} characters, which do not fit into a cookie; sign in with a "
                "token of the instance (lakebed token create), or have the provider put less into its tokens"
            )
        return session

    def authorization(self, session: str | None) -> str | None:
        """Return the header that a session stands for; None if it is none of this instance, or has ended."""
        if not session or len(session) > SESSION_CHARACTERS_MAX:
            return None
        from joserfc import jwe
        from joserfc.errors import JoseError

        try:
            opened = jwe.decrypt_compact(session, self._opened_key(), algorithms=list(_HOW.values()))
            found = load(opened.plaintext or b"")
            authorization, ends = str(found["authorization"]), float(found["ends"])
        except (JoseError, *UNREADABLE):
            return None
        return authorization if clock.now().timestamp() < ends else None

    def _opened_key(self) -> Any:
        with self._lock:
            if self._key is None:
                self._key = self._read_key()
            return self._key

    def _read_key(self) -> Any:
        """Return the key of the instance; the first service that needs one makes it."""
        from joserfc.jwk import OctKey

        data = self._storage.get(_KEY)
        if data is None:
            fresh = {"key": clock.random_token() + clock.random_token()}
            create_until_clear(self._storage, _KEY, encode_document(fresh))
            data = self._storage.get(_KEY)
        name, remedy = self._storage.object_url(_KEY), "delete it, and all sign in again"
        with reading(f"{name} is no key of sessions: {remedy}"):
            key = bytes.fromhex(decode_document(data or b"", name, remedy)["key"])
            if len(key) != 32:
                raise ValueError("it has 32 bytes")
            return OctKey.import_key(key)
