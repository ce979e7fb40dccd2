"""Followers that services run: what each follows, and how, as an object of the instance.

A declaration has no secret: passwords are in the environment of the service, and settings of a client in a file of its
machine. It changes only as a whole, and each change has another ``token``: services take a new one as a request to
begin again.

Core types: :class:`DeclaredFollower`. Errors: StorageError; DamagedError for an object that was changed; ExistsError,
NotFoundError; UsageError for a source that cannot be followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lakebed import clock
from lakebed.errors import Code, DamagedError, UnsupportedFormatError
from lakebed.model.documents import decode_document, encode_document, reading
from lakebed.model.files import FOLLOWER_FOLDER, follower_name, follower_of_name
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import is_stored
from lakebed.upkeep.follow.change_sources import SourceOptions, open_source
from lakebed.upkeep.follow.follow_record import FollowRecord, read_records
from lakebed.upkeep.follow.run import FollowOptions, SourceFollower

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage
    from lakebed.table.instance import Instance
    from lakebed.upkeep.follow.change_source import ChangeSource

CHANGES_MAX = 10
"""Attempts to change a declaration while others change it."""


class DeclaredFollower(Struct, frozen=True, kw_only=True):
    """What a follower follows, and how: the fields of :class:`SourceOptions` and :class:`FollowOptions`.

    ``tables`` are pairs of a table of the source and the one that takes its changes. ``paused``: no service runs it.
    """

    name: str
    url: str
    tables: tuple[tuple[str, str], ...] = ()
    publication: str | None = None
    form: str | None = None
    key: tuple[str, ...] = ()
    registry: str | None = None
    config: str | None = None
    dead_letters: str = ""
    every_s: float = 1.0
    snapshot: bool = True
    paused: bool = False
    token: str = ""

    def source(self) -> ChangeSource:
        """Return the source, not yet connected. Raises UsageError as :func:`open_source`, and for its file."""
        options = SourceOptions(self.publication, self.form, self.key, self.registry, self.config)
        return open_source(self.url, self.name, self.tables, options)

    def follower(self, instance: Instance, say: Callable[[str], None], *, resnapshot: bool = False) -> SourceFollower:
        """Return the follower, which does not run yet. Raises as :meth:`source`."""
        letters = self.dead_letters or f"{self.name}_dead_letters"
        options = FollowOptions(self.name, letters, self.every_s, snapshot=self.snapshot, resnapshot=resnapshot)
        return SourceFollower(instance, self.source(), options, say)


class DamagedFollower(Struct, frozen=True):
    """A declaration that was changed: no service runs it until it is dropped and created again."""

    name: str
    error: str


def declare_follower(storage: Storage, declared: DeclaredFollower) -> None:
    """Store a declaration. Raises ExistsError."""
    data = _declaration(declared, declared.paused)
    if not is_stored(storage, follower_name(declared.name), data):
        raise Code.FOLLOWER_EXISTS(
            f"there is a follower {declared.name} already: choose another --name, or drop it first with `lakebed "
            f"follow drop {declared.name}`",
            name=declared.name,
        )


def read_declared(storage: Storage, name: str) -> DeclaredFollower | None:
    """Return the declaration of a follower; None if there is none. Raises DamagedError."""
    found = storage.get(follower_name(name))
    return None if found is None else _declared(storage, name, found)


def declared_followers(storage: Storage) -> Iterator[DeclaredFollower | DamagedFollower]:
    """Return all declarations, by name."""
    for found in sorted(one.name for one in storage.list(FOLLOWER_FOLDER)):
        name = follower_of_name(found)
        if name is None:
            continue
        try:
            declared = read_declared(storage, name)
        except (DamagedError, UnsupportedFormatError) as error:
            yield DamagedFollower(name, error.message)
            continue
        if declared is not None:
            yield declared


def pause_follower(storage: Storage, name: str, *, paused: bool) -> DeclaredFollower:
    """Change whether services run a follower, and return it. To resume one also has one that is parked tried again.

    Raises NotFoundError; ContentionError if others change it all the time; StorageError.
    """
    for _ in range(CHANGES_MAX):
        found = storage.get_versioned(follower_name(name))
        if found is None:
            names = ", ".join(one.name for one in declared_followers(storage)) or "none"
            raise Code.SOURCE_NOT_FOUND(
                f"no service runs a follower {name}. Services run: {names}. `lakebed follow create` adds one", name=name
            )
        declared = _declared(storage, name, found.data)
        # An outcome that is unclear is read again: the change may be made twice.
        if storage.replace_if(follower_name(name), found.version, _declaration(declared, paused)) is PutOutcome.CREATED:
            return msgspec.structs.replace(declared, paused=paused)
    raise Code.COMMIT_CONTENDED(f"others change the follower {name} at the same time; try again", transient=True)


def drop_declared(storage: Storage, name: str) -> bool:
    """Delete a declaration; returns whether there was one."""
    if storage.get(follower_name(name)) is None:
        return False
    storage.delete([follower_name(name)])
    return True


def known_followers(storage: Storage) -> Iterator[tuple[FollowRecord, DeclaredFollower | None]]:
    """Return all followers by name, each with its declaration, if services run it; of a damaged one the error."""
    records = {one.name: one for one in read_records(storage)}
    declared: dict[str, DeclaredFollower] = {}
    for one in declared_followers(storage):
        if isinstance(one, DamagedFollower):
            records[one.name] = FollowRecord(name=one.name, url="", source="", error=one.error)
        else:
            declared[one.name] = one
            records.setdefault(one.name, FollowRecord(name=one.name, url=one.url, source=""))
    for name in sorted(records):
        yield records[name], declared.get(name)


def _declaration(declared: DeclaredFollower, paused: bool) -> bytes:  # noqa: FBT001 - a field
    changed = msgspec.structs.replace(declared, paused=paused, token=clock.random_token())
    members: dict[str, Any] = msgspec.to_builtins(changed)
    return encode_document(members)


def _declared(storage: Storage, name: str, data: bytes) -> DeclaredFollower:
    url, remedy = storage.object_url(follower_name(name)), f"`lakebed follow drop {name}`, and create it again"
    with reading(f"{url} declares no follower: {remedy}", name=url):
        declared = msgspec.convert(decode_document(data, url, remedy), DeclaredFollower)
        if declared.name != name:
            raise ValueError(f"it is the follower {declared.name}")
        return declared
