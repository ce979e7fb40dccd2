"""Roles and tokens as objects of an instance: ``access/roles/NAME.json`` and ``access/tokens/ID.json``.

Core types: :class:`AccessToken`, what is stored of a token; :class:`AccessList`, roles and tokens of an instance as a
service knows them.

A token is ``lakebed_`` and 256 random bits. The store has only its SHA-256. A slow hash, as for passwords, would not be
safer: it hinders guessing, and 256 random bits cannot be guessed. Roles and tokens are created and deleted, and never
changed. An access list is read again when it is used and older than :data:`REFRESH_S`, in the background, so a token
that was revoked is refused after :data:`AGE_MAX_S` at most; while the store cannot be read, after
:data:`OUTAGE_MAX_S`.

Both are stored documents with a digest. One that was changed, or has none, gives nothing to anyone: a service refuses
a damaged token, and every token with a damaged role, and accepts the others.

Errors: UsageError, NotFoundError, ExistsError; AccessError for a token that is not valid; DamagedError for an object
that was changed; StorageError for a store that cannot be read for too long.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error, UnsupportedFormatError
from lakebed.model.checks import TABLE_NAME, TAG_NAME, is_id, is_text, shown
from lakebed.model.documents import SQL_DIALECT, decode_document, encode_document, reading
from lakebed.model.wording import did_you_mean
from lakebed.server.security.principal import Principal
from lakebed.server.security.roles import BUILT_IN, Role
from lakebed.storage.retries import create_until_clear, is_stored

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage

REFRESH_S = 10.0
AGE_MAX_S = 30.0
OUTAGE_MAX_S = 900.0
"""A service goes on with the tokens that it knows while the store cannot be read: its status can still be looked at."""

_WAIT_S = 5.0
"""How long a request waits for the list to be read again."""

PREFIX = "lakebed_"
_ROLES, _TOKENS = "access/roles", "access/tokens"

Stored = TypeVar("Stored")
Known = TypeVar("Known")


class AccessToken(Struct, frozen=True, rename={"digest": "sha256"}):
    """What is stored of a token. ``tables``: the only tables for which its roles count; None for all of theirs."""

    id: str
    name: str
    digest: str
    roles: tuple[str, ...]
    tables: tuple[str, ...] | None
    created: Annotated[datetime, Meta(tz=True)]
    expires: Annotated[datetime, Meta(tz=True)] | None

    def is_expired(self, now: datetime) -> bool:
        """Return whether its time is over."""
        return self.expires is not None and now >= self.expires


ObjectError = DamagedError | UnsupportedFormatError
"""Errors of one object, which concern nothing else."""


# -- what an admin does ------------------------------------------------------------------------------------------------


def create_token(
    storage: Storage,
    name: str,
    roles: Iterable[str],
    tables: Iterable[str] | None = None,
    expires: datetime | None = None,
) -> tuple[AccessToken, str]:
    """Return a new token for ``name``, and its text, which is not stored and cannot be found again.

    Raises UsageError for invalid arguments, NotFoundError for a role that there is not.
    """
    names, only = check_holder(storage, name, roles, tables, "token")
    secret = PREFIX + clock.random_token() + clock.random_token()
    token = AccessToken(clock.new_id(), name, digest_of(secret), names, only, clock.now(), expires)
    create_until_clear(storage, _token_name(token.id), encode_document(msgspec.to_builtins(token)))
    return token, secret


def check_holder(
    storage: Storage, name: str, roles: Iterable[str], tables: Iterable[str] | None, what: str
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the roles and the tables of a new token, or of ``what`` else has them, each once.

    Raises UsageError for invalid arguments, NotFoundError for a role that there is not.
    """
    names = tuple(dict.fromkeys(roles))
    if not is_text(name) or not TAG_NAME.fullmatch(name):
        raise Code.ROLE_INVALID(f"{what} for {shown(name)}: must be 1 to 128 of the characters A-Z a-z 0-9 _ . -")
    if not names:
        raise Code.ROLE_INVALID(f"{what} for {name}: it needs a role: read, write, admin, or one that was created")
    only = None if tables is None else tuple(dict.fromkeys(tables))
    for table in only or ():
        if not TABLE_NAME.fullmatch(table):
            raise Code.ROLE_INVALID(f"{shown(table)} is not the name of a table")
    roles_named(names, roles_of(storage))
    return names, only


def tokens_of(storage: Storage) -> list[AccessToken]:
    """Return all tokens, expired ones included, oldest first. Raises DamagedError for one that was changed."""
    names = [one.name for one in storage.list(_TOKENS)]
    found = [(name, data) for name in names if (data := storage.get(name)) is not None]
    return sorted((_token_of(name, data) for name, data in found), key=lambda token: token.id)


def revoke_token(storage: Storage, token_id: str) -> None:
    """Delete a token. Raises NotFoundError if there is none with that id."""
    if not is_id(token_id) or storage.get(_token_name(token_id)) is None:
        raise Code.TOKEN_NOT_FOUND(f"no token with the id {shown(token_id)}: `lakebed token list` lists them")
    storage.delete([_token_name(token_id)])


def create_role(storage: Storage, role: Role) -> None:
    """Store a role. Raises ExistsError if the name is taken, or is another's in other letters (upper or lower case)."""
    _check_apart(storage, role.name)
    name, data = _role_name(role.name), _encoded(role)
    if role.name in BUILT_IN or not is_stored(storage, name, data):
        raise Code.ROLE_EXISTS(f"there is a role {role.name!r} already; choose another name, or drop it first")


def put_role(storage: Storage, role: Role) -> None:
    """Store a role, in place of the one of that name if there is one. Raises ExistsError for a built-in role."""
    if role.name in BUILT_IN:
        raise Code.ROLE_EXISTS(f"the role {role.name!r} is built in; choose another name")
    _check_apart(storage, role.name)
    storage.replace(_role_name(role.name), _encoded(role))


def _check_apart(storage: Storage, name: str) -> None:
    """Raise ExistsError for a name that differs from that of another role in case only.

    Their objects would be one file where file systems do not distinguish case, to which a backup may be restored.
    """
    taken = (*BUILT_IN, *_role_objects(storage))
    other = next((one for one in taken if one != name and one.lower() == name.lower()), None)
    if other is not None:
        raise Code.ROLE_EXISTS(f"there is a role {other!r}, and {name!r} differs in case only; choose another name")


def drop_role(storage: Storage, name: str) -> None:
    """Delete a role; tokens with it are refused from then on. Raises NotFoundError if there is none of that name."""
    # By the name of the object: a damaged role can be dropped.
    if not is_text(name) or name not in _role_objects(storage):
        raise _no_role(name, roles_of(storage))
    storage.delete([_role_name(name)])


def roles_of(storage: Storage) -> dict[str, Role]:
    """Return all roles that were created, by name. Raises DamagedError for one that was changed."""
    return {name: _role_of(name, data) for name, data in sorted(_stored_roles(storage))}


def roles_named(names: Iterable[str], known: Mapping[str, Role]) -> tuple[Role, ...]:
    """Return the roles of these names, created or built in. Raises NotFoundError for one that there is not."""
    every = {**known, **BUILT_IN}
    missing = [name for name in names if name not in every]
    if missing:
        raise _no_role(missing[0], known)
    return tuple([every[name] for name in names])


def digest_of(secret: str) -> str:
    """Return what is stored of a token."""
    return hashlib.sha256(secret.encode()).hexdigest()


# -- what a service knows ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    tokens: Mapping[str, AccessToken]
    """By digest: a digest is looked up, not compared, and tells nothing of others."""
    roles: Mapping[str, Role]
    damaged_tokens: Mapping[str, ObjectError]
    damaged_roles: Mapping[str, ObjectError]


class Refreshed(Generic[Known]):
    """What is stored for services to know, read anew while it is used. Safe to use from many threads."""

    def __init__(self, read: Callable[[], Known], what: str) -> None:
        """``read`` runs in one thread; ``what`` it reads is named if it cannot be read."""
        self._read_anew = read
        self._what = what
        self._lock = threading.Lock()
        self._known: tuple[Known, float] | None = None
        self._reading: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, "lakebed-access")

    def close(self) -> None:
        """Stop reading."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def known(self) -> Known:
        """Return what is known, at most AGE_MAX_S old; older while the store cannot be read."""
        known = self._known
        age_s = float("inf") if known is None else clock.monotonic_s() - known[1]
        if age_s < REFRESH_S and known is not None:
            return known[0]
        with self._lock:
            if self._reading is None or self._reading.done():
                self._reading = self._thread.submit(self._read)
            reading_now = self._reading
        if age_s >= AGE_MAX_S:
            # Within a bound, as this may be the thread that answers all requests.
            wait([reading_now], _WAIT_S)
        known = self._known
        if known is None or clock.monotonic_s() - known[1] >= OUTAGE_MAX_S:
            if reading_now.done():
                reading_now.result()
            if (known := self._known) is None:
                raise Code.STORE_UNAVAILABLE(f"{self._what} could not be read yet; try again", transient=True)
        return known[0]

    def _read(self) -> None:
        began_s = clock.monotonic_s()
        self._known = self._read_anew(), began_s


class AccessList:
    """The roles and tokens of an instance, read anew while they are used. Safe to use from many threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._tokens: dict[str, AccessToken | ObjectError] = {}
        self._refreshed = Refreshed(self._read, f"the tokens at {storage.url}")

    def close(self) -> None:
        """Stop reading."""
        self._refreshed.close()

    @property
    def any_tokens(self) -> bool:
        """Whether there is a token, damaged ones included."""
        known = self._refreshed.known()
        return bool(known.tokens or known.damaged_tokens)

    def principal_of(self, secret: str) -> Principal:
        """The principal that has this token. Raises AccessError if it is unknown, expired or revoked."""
        known = self._refreshed.known()
        token = known.tokens.get(digest_of(secret))
        if token is None:
            count = len(known.damaged_tokens)
            damaged = f" ({count} tokens of the instance are damaged: `lakebed token list` names one)" if count else ""
            raise Code.NOT_AUTHENTICATED(
                f"the token is unknown, or was revoked; ask an admin for another{damaged}. A new token is accepted "
                f"after {AGE_MAX_S:.0f} seconds at most"
            )
        if token.is_expired(clock.now()):
            raise Code.NOT_AUTHENTICATED(f"the token {token.id} has expired; ask an admin for another")
        return self.principal_with(token.name, token.roles, token.tables)

    def principal_with(self, name: str, roles: Iterable[str], tables: Iterable[str] | None) -> Principal:
        """Return a principal with the roles of these names, on these tables only. Raises as :meth:`roles_named`."""
        found = self.roles_named(roles)
        return Principal(name, found if tables is None else _restricted_to(found, tables))

    def check_roles(self, names: Iterable[str]) -> None:
        """Raise NotFoundError for a role that there is not."""
        roles_named(names, self._refreshed.known().roles)

    def roles_named(self, names: Iterable[str]) -> tuple[Role, ...]:
        """Return the roles of these names.

        Raises AccessError if one was dropped or is damaged: the others might show what it hides.
        """
        known = self._refreshed.known()
        try:
            for name in names:
                if name in known.damaged_roles:
                    raise known.damaged_roles[name]
            return roles_named(names, known.roles)
        except Error as error:
            raise Code.NOT_AUTHENTICATED(f"{error.message}; ask an admin for another token") from error

    def _read(self) -> _Known:
        names = {one.name for one in self._storage.list(_TOKENS)}
        for name in names:
            # A damaged object may be restored from a copy.
            if not isinstance(self._tokens.get(name), AccessToken) and (data := self._storage.get(name)) is not None:
                self._tokens[name] = or_error(_token_of, name, data)
        for name in self._tokens.keys() - names:
            del self._tokens[name]
        tokens = {token.digest: token for token in self._tokens.values() if isinstance(token, AccessToken)}
        damaged_tokens = {name: token for name, token in self._tokens.items() if not isinstance(token, AccessToken)}
        found = {name: or_error(_role_of, name, data) for name, data in sorted(_stored_roles(self._storage))}
        roles = {name: role for name, role in found.items() if isinstance(role, Role)}
        damaged_roles = {name: role for name, role in found.items() if not isinstance(role, Role)}
        return _Known(tokens, roles, damaged_tokens, damaged_roles)


def _restricted_to(roles: Iterable[Role], tables: Iterable[str]) -> tuple[Role, ...]:
    """Return the roles on these tables only."""
    given = frozenset(tables)
    narrowed = ((role, given if role.tables is None else role.tables & given) for role in roles)
    return tuple([replace(role, tables=both) for role, both in narrowed if both])


# -- documents ---------------------------------------------------------------------------------------------------------


def _role_name(name: str) -> str:
    return f"{_ROLES}/{name}.json"


def _token_name(token_id: str) -> str:
    return f"{_TOKENS}/{token_id}.json"


def _role_objects(storage: Storage) -> dict[str, str]:
    """Return the objects of all roles by name: in upper and lower case as they were created, also where the file system
    does not distinguish it.
    """
    return {one.name.removeprefix(f"{_ROLES}/").removesuffix(".json"): one.name for one in storage.list(_ROLES)}


def _stored_roles(storage: Storage) -> Iterator[tuple[str, bytes]]:
    """Return the names of all roles, by their objects, and the bytes of each."""
    for name, stored in _role_objects(storage).items():
        data = storage.get(stored)
        if data is not None:
            yield name, data


def _encoded(role: Role) -> bytes:
    return encode_document(role.to_json(), features=[SQL_DIALECT] if role.where or role.masks else [])


def _role_of(name: str, data: bytes) -> Role:
    remedy = f"`lakebed role drop {name}`, and create it again"
    with reading(f"the role {name} is damaged: {remedy}", name=name):
        role = Role.from_json(decode_document(data, f"the role {name}", remedy))
        if role.name != name:
            raise ValueError(f"it is the role {role.name}")
        return role


def _token_of(name: str, data: bytes) -> AccessToken:
    token_id = name.removeprefix(f"{_TOKENS}/").removesuffix(".json")
    remedy = f"`lakebed token drop {token_id}`, and create another"
    with reading(f"the token {token_id} is damaged: {remedy}", name=name):
        token = msgspec.convert(decode_document(data, f"the token {token_id}", remedy), AccessToken)
        if token.id != token_id:
            raise ValueError(f"it is the token {token.id}")
        return token


def or_error(read: Callable[[str, bytes], Stored], name: str, data: bytes) -> Stored | ObjectError:
    """Return what ``read`` makes of an object, or its error if it is damaged."""
    try:
        return read(name, data)
    except (DamagedError, UnsupportedFormatError) as error:
        return error


def _no_role(name: str, known: Iterable[str]) -> Error:
    names = [*BUILT_IN, *known]
    return Code.ROLE_NOT_FOUND(f"no role named {shown(name)}; the roles: {', '.join(names)}{did_you_mean(name, names)}")
