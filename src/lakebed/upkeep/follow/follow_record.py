"""What an instance keeps of a follower: where it follows, how far it is, and what went wrong.

A record is an object of the instance, ``follows/<name>.json``, which the follower replaces every few seconds. Tables
have their positions in their commit ids; the record has those that a table forgets after ``log_s`` without a change.

Core types: :class:`FollowRecord`. Errors: StorageError; DamagedError for an object that was changed.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lakebed import clock
from lakebed.errors import Code, DamagedError
from lakebed.model.documents import decode_document, encode_document, reading
from lakebed.model.files import FOLLOW_FOLDER, follow_name, follow_of_name
from lakebed.model.state.fields import Whole
from lakebed.storage.processes import is_gone, this_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.storage.contract import Storage

NAME = re.compile(r"[a-z0-9_]{1,48}", re.ASCII)
"""What PostgreSQL allows in the name of a slot, with room for what is put before and behind."""

HELD_S = 35.0
"""How long a record says that its follower runs: it is written every ten seconds."""

_REMEDY = "delete the object; the next `lakebed follow` writes it again, from the commit ids of the tables"


class FollowRecord(Struct, frozen=True, kw_only=True):
    """How far a follower is.

    ``positions`` are those up to which all tables of ``tables``, by id, have all changes; tables of ``waiting`` get a
    snapshot in any case. ``identities`` are ids of the parts of the source, by their names. ``place`` is the position
    in the terms of the source, ``behind`` what it has beyond that, in ``behind_unit``, the oldest of it ``lag_s``
    seconds old. ``changes`` and ``dead_letters`` are counted since the record was made; ``error`` is why the follower
    does not go on. ``at`` is when the record was written, by the clock of the follower, and ``holder`` the process that
    follows; empty: none does.
    """

    name: str
    url: str
    source: str
    targets: dict[str, str] = {}
    positions: dict[str, Whole] = {}
    tables: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    identities: dict[str, str] = {}
    place: dict[str, str] = {}
    behind: Whole = 0
    behind_unit: str = ""
    lag_s: float = 0.0
    changes: Whole = 0
    dead_letters: Whole = 0
    dead_letters_table: str = ""
    error: str | None = None
    at: str = ""
    holder: str = ""

    @property
    def in_use(self) -> bool:
        """Whether another process follows: it wrote the record lately, and is not known to have ended."""
        if self.holder in ("", this_process()) or is_gone(self.holder):
            return False
        return clock.now() - datetime.fromisoformat(self.at) < timedelta(seconds=HELD_S)


def check_name(name: str) -> str:
    """Return the name of a follower. Raises UsageError."""
    if NAME.fullmatch(name) is None:
        raise Code.NAME_INVALID(
            f"name = {name!r}: must be 1 to 48 lower-case letters, digits and underscores", name=name
        )
    return name


def read_record(storage: Storage, name: str) -> FollowRecord | None:
    """Return the record of a follower; None if there is none. Raises DamagedError."""
    data = storage.get(follow_name(name))
    if data is None:
        return None
    url = storage.object_url(follow_name(name))
    with reading(f"{url} is no record of a follower: {_REMEDY}", name=url):
        return msgspec.convert(decode_document(data, url, _REMEDY), FollowRecord)


def read_records(storage: Storage) -> Iterator[FollowRecord]:
    """Return the records of all followers, by name; of a damaged one the name and the error."""
    for found in sorted(one.name for one in storage.list(FOLLOW_FOLDER)):
        name = follow_of_name(found)
        if name is None:
            continue
        try:
            record = read_record(storage, name)
        except DamagedError as error:
            record = FollowRecord(name=name, url="", source="", error=error.message)
        if record is not None:
            yield record


def write_record(storage: Storage, record: FollowRecord) -> None:
    """Write the record of a follower over the last one."""
    storage.replace(follow_name(record.name), encode_document(msgspec.to_builtins(record)))


def check_unused(record: FollowRecord) -> None:
    """Raise ContentionError if another process follows."""
    if record.in_use:
        raise Code.SOURCE_BUSY(
            f"the follower {record.name} runs already, and wrote its record at {record.at}; stop it, or wait until it "
            f"has been silent for {HELD_S:.0f} s",
            name=record.name,
            transient=True,
        )


def drop_record(storage: Storage, name: str) -> FollowRecord:
    """Delete the record of a follower that does not run, and return it. Raises NotFoundError, ContentionError."""
    found = read_record(storage, check_name(name))
    if found is None:
        names = ", ".join(one.name for one in read_records(storage)) or "none"
        raise Code.SOURCE_NOT_FOUND(f"no follower {name}. There are: {names}", name=name)
    check_unused(found)
    storage.delete([follow_name(name)])
    return found
