"""What the log asks of a database beside plain SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Engine, Insert, Select, Table
    from sqlalchemy.exc import DBAPIError

POOL_CONNECTIONS_MAX = 8
"""For each process. A log's commit needs one for a millisecond; PostgreSQL has a hundred for all, unless told."""

POOL_WAIT_S = 30.0
"""How long a call waits for one of them before it fails as transient."""

SAID_CHARS_MAX = 400


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a driver's error says of the statement that met it.

    ``unclear``: the statement may have taken effect, or may yet. If not, it has not and never will, and ``transient``
    says whether the same statement may succeed later. ``remedy`` is for people.
    """

    unclear: bool
    transient: bool
    remedy: str


@dataclass(frozen=True, slots=True)
class Inserted:
    """The value that an INSERT returned, and the one that a query behind it found; None: nothing.

    Not ``looked``: the query could not see all that was committed before the row was stored, and tells nothing.
    """

    returned: Any
    looked: bool
    found: Any


class Database(Protocol):
    """One database, not yet connected; equal to another by its URL. ``url`` holds no password and may be shown."""

    def __hash__(self) -> int: ...

    @property
    def url(self) -> str:
        """What error messages call it."""

    def engine(self) -> Engine:
        """A new pool of connections, on which each statement is a durable transaction of its own."""

    def clock(self) -> ColumnElement[datetime]:
        """The database's clock, as an expression that an INSERT may store."""

    def insert_absent(self, table: Table, key: Sequence[str]) -> Insert:
        """An INSERT that passes over a row whose key is taken, and fails if the table does not keep the key unique."""

    def insert_and_look(
        self, connection: Connection, insert: Insert, look: Select[Any], values: Mapping[str, Any]
    ) -> Inserted | None:
        """Run an INSERT that returns one value, and behind it a query of one, in one round trip and one transaction.

        None: it stored nothing.
        """

    def make(self) -> None:
        """Make the database if it is a file that is not there. Raises StorageError if that cannot be."""

    def check(self, connection: Connection) -> None:
        """Raise UnsafeStoreError if what it acknowledges may be lost."""

    def meaning(self, error: DBAPIError) -> Meaning:
        """What an error of the driver says."""
