"""What an instance keeps of a follower: where it follows, how far it is, and what went wrong.

A record is an object of the instance, ``follows/<name>.json``, which the follower replaces every few seconds. Tables
have their positions in their commit ids; the record has those that a table forgets after ``log_s`` without a change.

Core types: :class:`FollowRecord`. Errors: StorageError; DamagedError for an object that was changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lakebed.errors import Code, DamagedError
from lakebed.model.documents import decode_document, encode_document, reading
from lakebed.model.files import FOLLOW_FOLDER, follow_name, follow_of_name
from lakebed.model.state.fields import Whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.storage.contract import Storage

NAME = re.compile(r"[a-z0-9_]{1,48}", re.ASCII)
"""What PostgreSQL allows in the name of a slot, with room for what is put before and behind."""

_REMEDY = "delete the object; the next `lakebed follow` writes it again, from the commit ids of the tables"


class FollowRecord(Struct, frozen=True, kw_only=True):
    """How far a follower is.

    ``positions`` are those up to which all tables of ``tables``, by id, have all changes; tables of ``waiting`` get a
    snapshot in any case. ``identities`` are ids of the parts of the source, by their names. ``place`` is the position
    in the terms of the source, ``behind`` what it has beyond that, in ``behind_unit``, the oldest of it ``lag_s``
    seconds old. ``changes`` and ``dead_letters`` are counted since the record was made; ``error`` is why the follower
    does not go on. ``at`` is when the record was written, by the clock of the follower.
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
