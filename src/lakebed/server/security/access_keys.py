"""Access keys of the object gateway as objects of an instance: ``access/keys/ID.json``.

Core types: :class:`AccessKey`, what is stored of one; :class:`AccessKeys`, those of an instance as a service knows
them.

A signature of S3 is verified by the secret itself, not by a digest of it. No secret is stored: that of an access key is
the HMAC of its id by a key of the instance, ``access/access-key-secret.json``, which the first access key makes. Who
reads this object in the store can sign as every access key; who can read the store needs none, since keys only read.
Like tokens, access keys are created and deleted, and a service that uses them reads them again: one that was deleted is
refused after :data:`~lakebed.server.security.stored.AGE_MAX_S` at most.

An access key may be a *share*, of one version of one table or of some ranges of its keys. A share is of the table
itself, not of what has its name later.

Errors: UsageError, NotFoundError; AccessError for a key that may not be used; DamagedError for an object that was
changed. Source: docs/decisions/0076.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.checks import is_id, shown
from lakebed.model.documents import decode_document, encode_document, reading
from lakebed.model.keys import EncodedRange
from lakebed.server.security.principal import Principal
from lakebed.server.security.stored import AccessList, ObjectError, Refreshed, check_holder, or_error
from lakebed.storage.retries import create_until_clear

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage

_KEYS = "access/keys"
_SECRET = "access/access-key-secret.json"  # noqa: S105 - the name of an object


class Share(Struct, frozen=True):
    """The part of one table that an access key shows: a version, ranges of encoded keys, or both.

    ``keys`` has the ranges as they were given, for people.
    """

    table: str
    version: int | None
    ranges: tuple[tuple[bytes, bytes | None], ...] | None
    keys: str

    @property
    def encoded_ranges(self) -> tuple[EncodedRange, ...] | None:
        """The ranges; None: all keys."""
        return None if self.ranges is None else tuple(EncodedRange(*one) for one in self.ranges)


class AccessKey(Struct, frozen=True):
    """What is stored of an access key. ``tables``: the only tables for which its roles count; None for all of theirs.

    ``share`` is the part of its only table that it shows; ``share.table`` is the id of the table.
    """

    id: str
    name: str
    roles: tuple[str, ...]
    tables: tuple[str, ...] | None
    created: Annotated[datetime, Meta(tz=True)]
    expires: Annotated[datetime, Meta(tz=True)] | None
    share: Share | None = None

    def is_expired(self, now: datetime) -> bool:
        """Return whether its time is over."""
        return self.expires is not None and now >= self.expires


def create_access_key(  # noqa: PLR0913 - the holder, the roles and tables, the expiry
    storage: Storage,
    name: str,
    roles: Iterable[str],
    tables: Iterable[str] | None = None,
    *,
    expires: datetime | None = None,
    share: Share | None = None,
) -> tuple[AccessKey, str]:
    """Return a new access key for ``name``, and its secret.

    Raises UsageError for invalid arguments, NotFoundError for a role that there is not.
    """
    names, only = check_holder(storage, name, roles, tables, "access key")
    if share is not None and len(only or ()) != 1:
        raise Code.ROLE_INVALID("an access key for one version, or for some keys, is for one table: name it")
    key = AccessKey(clock.new_id(), name, names, only, clock.now(), expires, share)
    fresh = {"key": clock.random_token() + clock.random_token()}
    if storage.get(_SECRET) is None:
        create_until_clear(storage, _SECRET, encode_document(fresh))
    secret = secret_of(key.id, instance_secret(storage))
    create_until_clear(storage, _object_name(key.id), encode_document(msgspec.to_builtins(key)))
    return key, secret


def access_keys_of(storage: Storage) -> list[AccessKey]:
    """Return all access keys, expired ones included, oldest first. Raises DamagedError for one that was changed."""
    names = [one.name for one in storage.list(_KEYS)]
    found = [(name, data) for name in names if (data := storage.get(name)) is not None]
    return sorted((_key_of(name, data) for name, data in found), key=lambda key: key.id)


def drop_access_key(storage: Storage, key_id: str) -> None:
    """Delete an access key. Raises NotFoundError if there is none with that id."""
    if not is_id(key_id) or storage.get(_object_name(key_id)) is None:
        raise Code.TOKEN_NOT_FOUND(f"no access key with the id {shown(key_id)}: `lakebed access-key list` lists them")
    storage.delete([_object_name(key_id)])


def secret_of(key_id: str, by: bytes) -> str:
    """Return the secret of an access key, by the key of the instance."""
    return hmac.digest(by, f"lakebed access key {key_id}".encode(), "sha256").hex()


class AccessKeys:
    """The access keys of an instance, read anew while they are used. Safe to use from many threads."""

    def __init__(self, storage: Storage, access: AccessList) -> None:
        self._storage = storage
        self._access = access
        self._keys: dict[str, AccessKey | ObjectError] = {}
        self._refreshed = Refreshed(self._read, f"the access keys at {storage.url}")

    def close(self) -> None:
        """Stop reading."""
        self._refreshed.close()

    def find(self, key_id: str) -> tuple[AccessKey, str] | None:
        """Return an access key and its secret; None if there is none with that id, or it is damaged."""
        return self._refreshed.known().get(key_id)

    def principal_of(self, key: AccessKey) -> Principal:
        """Return the principal that has the key. Raises AccessError if it has expired, or a role was dropped."""
        if key.is_expired(clock.now()):
            raise Code.NOT_AUTHENTICATED(f"the access key {key.id} has expired; ask an admin for another")
        return self._access.principal_with(key.name, key.roles, key.tables)

    def _read(self) -> dict[str, tuple[AccessKey, str]]:
        names = {one.name for one in self._storage.list(_KEYS)}
        for name in names:
            # A damaged object may be restored from a copy.
            if not isinstance(self._keys.get(name), AccessKey) and (data := self._storage.get(name)) is not None:
                self._keys[name] = or_error(_key_of, name, data)
        for name in self._keys.keys() - names:
            del self._keys[name]
        keys = [key for key in self._keys.values() if isinstance(key, AccessKey)]
        if not keys:
            return {}
        by = instance_secret(self._storage)
        return {key.id: (key, secret_of(key.id, by)) for key in keys}


def instance_secret(storage: Storage) -> bytes:
    """Return the key from which the secrets of access keys are derived. Raises DamagedError if it is none."""
    name, remedy = storage.object_url(_SECRET), "delete it and all access keys, and create others"
    with reading(f"{name} is no secret of access keys: {remedy}"):
        secret = bytes.fromhex(decode_document(storage.get(_SECRET) or b"", name, remedy)["key"])
        if len(secret) != 32:
            raise ValueError("it has 32 bytes")
        return secret


def _object_name(key_id: str) -> str:
    return f"{_KEYS}/{key_id}.json"


def _key_of(name: str, data: bytes) -> AccessKey:
    key_id = name.removeprefix(f"{_KEYS}/").removesuffix(".json")
    remedy = f"`lakebed access-key drop {key_id}`, and create another"
    with reading(f"the access key {key_id} is damaged: {remedy}", name=name):
        key = msgspec.convert(decode_document(data, f"the access key {key_id}", remedy), AccessKey)
        if key.id != key_id:
            raise ValueError(f"it is the access key {key.id}")
        return key
