"""Decodes the messages of logical replication of PostgreSQL, as the plugin ``pgoutput`` writes them (version 1).

Core types: :class:`Decoder` takes one message after the other, and calls the :class:`TableChanges` of a table for each
row; :class:`Relation` describes a table as the next rows have it. Values are the server's text as bytes; None is null,
and :data:`UNCHANGED` a large value that an update did not change, which the server leaves out.

Rules. Pure. Rows of one transaction come together, and transactions in the order of their commits. A message of another
form raises ValueError.

Source: PostgreSQL, "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Any, Protocol

from lakebed.upkeep.follow.row_buffer import UNCHANGED

Row = list[Any]
"""Values as texts in bytes, None, or UNCHANGED."""

_TIME = 946_684_800_000_000
"""2000-01-01, from which the server counts, in microseconds since 1970."""

_BEGIN = Struct("!qqi")
_COMMIT = Struct("!Bqqq")
_UINT = Struct("!I")
_USHORT = Struct("!H")
_COLUMN = Struct("!Ii")
_TUPLE_KINDS = (0x4B, 0x4F)  # K: its key, O: the whole old row


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a table. ``identifies``: it is part of the replica identity."""

    name: str
    oid: int
    modifier: int
    identifies: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table. ``identity`` is d (primary key), i (an index), f (all columns) or n (none)."""

    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class TableChanges(Protocol):
    """The changes of one table, in order."""

    def insert(self, row: Row) -> None:
        """Add a row."""

    def update(self, old: Row | None, row: Row) -> None:
        """Change a row; ``old`` is there if its key changed, or always for identity f."""

    def delete(self, old: Row) -> None:
        """Delete a row; columns outside of the identity are null."""

    def truncate(self) -> None:
        """Delete all rows."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction: the position after it, and when it was committed, in microseconds since 1970."""

    end: int
    at_us: int


class Decoder:
    """Takes messages. ``changes_of`` gives the changes of a table; None: it is not followed, its rows are skipped.

    It is called with the position of the transaction's commit record, when a table is described and at the first row of
    each transaction: the changes may be left out that a table has already.
    """

    def __init__(self, changes_of: Callable[[Relation, int], TableChanges | None]) -> None:
        self.in_transaction = False
        self._changes_of = changes_of
        self._relations: dict[int, Relation] = {}
        self._open: dict[int, TableChanges | None] = {}
        self.commit_at = 0

    def take(self, data: bytes) -> Commit | None:
        """Take a message; returns the commit that it is. Raises ValueError for one that is damaged."""
        try:
            return self._taken(data)
        except (IndexError, struct_error) as error:
            raise ValueError("a message of the server is cut off") from error

    def _taken(self, data: bytes) -> Commit | None:
        kind = data[0]
        if kind == 0x49:  # I
            changes = self._changes(_UINT.unpack_from(data, 1)[0])
            if changes is not None:
                changes.insert(_tuple_row(data, 6)[0])
        elif kind == 0x55:  # U
            changes = self._changes(_UINT.unpack_from(data, 1)[0])
            if changes is not None:
                old, at = _tuple_row(data, 6) if data[5] in _TUPLE_KINDS else (None, 5)
                changes.update(old, _tuple_row(data, at + 1)[0])
        elif kind == 0x44:  # D
            changes = self._changes(_UINT.unpack_from(data, 1)[0])
            if changes is not None:
                changes.delete(_tuple_row(data, 6)[0])
        elif kind == 0x42:  # B
            self.commit_at = _BEGIN.unpack_from(data, 1)[0]
            self._open = {}
            self.in_transaction = True
        elif kind == 0x43:  # C
            _, _, end, at_us = _COMMIT.unpack_from(data, 1)
            self.in_transaction = False
            return Commit(end, at_us + _TIME)
        elif kind == 0x52:  # R
            relation = _relation(data)
            self._relations[relation.oid] = relation
            self._open.pop(relation.oid, None)
        elif kind == 0x54:  # T
            self._truncate(data)
        elif kind not in b"YOM":  # types, origins, messages of applications
            raise ValueError(f"a message of the unknown kind {chr(kind)!r}")
        return None

    def _truncate(self, data: bytes) -> None:
        (count,) = _UINT.unpack_from(data, 1)
        for number in range(count):
            changes = self._changes(_UINT.unpack_from(data, 6 + 4 * number)[0])
            if changes is not None:
                changes.truncate()

    def _changes(self, oid: int) -> TableChanges | None:
        try:
            return self._open[oid]
        except KeyError:
            if oid not in self._relations:
                raise ValueError(f"a row of a table, {oid}, that was not described before") from None
            changes = self._open[oid] = self._changes_of(self._relations[oid], self.commit_at)
            return changes


def _tuple_row(data: bytes, at: int) -> tuple[Row, int]:
    """Return the row that begins there, and where it ends."""
    count = data[at] << 8 | data[at + 1]
    at += 2
    row: Row = []
    append = row.append
    for _ in range(count):
        kind = data[at]
        if kind == 0x74:  # t
            begin = at + 5
            at = begin + int.from_bytes(data[at + 1 : begin])
            if at > len(data):
                raise IndexError
            append(data[begin:at])
        else:
            if kind == 0x6E:  # n
                append(None)
            elif kind == 0x75:  # u
                append(UNCHANGED)
            else:
                raise ValueError(f"a value of the unknown kind {chr(kind)!r}")
            at += 1
    return row, at


def _relation(data: bytes) -> Relation:
    (oid,) = _UINT.unpack_from(data, 1)
    namespace, at = _name(data, 5)
    name, at = _name(data, at)
    identity = chr(data[at])
    (count,) = _USHORT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _name(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
    return Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1
