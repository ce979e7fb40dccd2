"""SQLite as the place of a log: one file, for the processes of one machine.

Write-ahead log with ``synchronous=FULL``: with NORMAL a power cut may take the last commits. Each INSERT is alone in
its transaction, and so takes the write lock at its start, as BEGIN IMMEDIATE does; whoever finds it taken waits up
to :data:`BUSY_S`. Only :meth:`Sqlite.make` ever makes the file: a log that was moved away must not look empty.

A write-ahead log needs memory shared by all processes, which a network file system has not; such a folder is refused.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from lakebed import clock
from lakebed.errors import Code
from lakebed.log.sql.database import POOL_CONNECTIONS_MAX, POOL_WAIT_S, Inserted, Meaning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.exc import DBAPIError

BUSY_S = 30.0

SWITCHES_MAX = 12
"""Tries to switch a new file's journal: for the lock that this takes SQLite does not wait by itself. About 4 s."""

_NETWORK_FILE_SYSTEMS = frozenset({"afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3"})
_MOUNTS = Path("/proc/mounts")

# Primary result code -> remedy, and whether it helps to wait. In all of these nothing was written.
_REFUSED = {
    sqlite3.SQLITE_PERM: ("permission denied: allow this user to write the file and its folder", False),
    sqlite3.SQLITE_BUSY: ("another process held the write lock for too long: try again later", True),
    sqlite3.SQLITE_LOCKED: ("another connection held the write lock for too long: try again later", True),
    sqlite3.SQLITE_READONLY: ("the file is read-only: allow this user to write the file and its folder", False),
    sqlite3.SQLITE_CORRUPT: ("the file is damaged: restore it from a copy", False),
    sqlite3.SQLITE_FULL: ("the disk is full: make room", False),
    sqlite3.SQLITE_CANTOPEN: (
        "the file cannot be opened: see that it is there, and that this user may write it and its folder",
        False,
    ),
    sqlite3.SQLITE_NOTADB: ("the file is not an SQLite database: correct the URL", False),
    sqlite3.SQLITE_TOOBIG: ("the entry is larger than SQLite allows: commit less at a time", False),
    # An SQL error can only mean a table that is not ours.
    sqlite3.SQLITE_ERROR: ("the table lakebed_entries is missing or not as Lakebed made it: restore the file", False),
    sqlite3.SQLITE_CONSTRAINT: ("the table lakebed_entries is not as Lakebed made it: restore the file", False),
}


@dataclass(frozen=True, slots=True)
class Sqlite:
    """A :class:`~lakebed.log.sql.database.Database` in one file."""

    url: str
    path: Path

    @classmethod
    def at(cls, url: str) -> Sqlite:
        """The database of ``sqlite:////absolute/path``. Raises UsageError for any other form."""
        parts = urlsplit(url)
        if parts.netloc or parts.query or parts.fragment:
            raise Code.URL_INVALID("a log in SQLite has no host and no query: write sqlite:////absolute/path")
        path = Path(unquote(parts.path.removeprefix("/")))
        if not path.is_absolute() or path == Path("/") or "\0" in str(path):
            raise Code.URL_INVALID(
                f"{url} names no absolute path, and would mean another file in every folder: write "
                "sqlite:////absolute/path (four slashes)",
                url=url,
            )
        return cls(url, path)

    def engine(self) -> sa.Engine:
        """A pool of connections to the file, which must exist."""
        return sa.create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=sa.QueuePool,
            pool_size=POOL_CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
        )

    def clock(self) -> sa.ColumnElement[datetime]:
        """This machine's clock, UTC. SQLite has milliseconds, the column's form has microseconds."""
        return sa.literal_column("(strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')", sa.DateTime())

    def insert_absent(self, table: sa.Table, key: Sequence[str]) -> sa.Insert:
        """``INSERT … ON CONFLICT (key) DO NOTHING``."""
        return sqlite.insert(table).on_conflict_do_nothing(index_elements=key)

    def insert_and_look(
        self, connection: sa.Connection, insert: sa.Insert, look: sa.Select[Any], values: Mapping[str, Any]
    ) -> Inserted | None:
        """One statement: it has the write lock from its start, so what it finds is as new as the row."""
        row = connection.execute(_looking(insert, look), values).first()
        return None if row is None else Inserted(row[0], looked=True, found=row[1])

    def make(self) -> None:
        """Make the file if it is not there, with a write-ahead log."""
        kind = _file_system(self.path.parent)
        if kind in _NETWORK_FILE_SYSTEMS:
            raise Code.NETWORK_FILESYSTEM(
                f"{self.path} lies on a network file system ({kind}), where SQLite cannot keep two machines apart: use "
                "a local disk, or PostgreSQL",
                url=self.url,
                transient=False,
            )
        if self.path.exists():
            return
        try:
            connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
            try:
                _write_ahead(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            meaning = _meaning(error)
            code = Code.STORE_UNAVAILABLE if meaning.transient else Code.STORE_REFUSED
            said = f"cannot make {self.path}: {meaning.remedy} ({error})"
            raise code(said, url=self.url, transient=meaning.transient) from error

    def check(self, connection: sa.Connection) -> None:
        """Nothing to ask of the file: what makes it durable is set on each connection."""

    def meaning(self, error: DBAPIError) -> Meaning:
        """What an error of SQLite says."""
        return _meaning(error.orig)

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: open, never make. SQLAlchemy's pool hands a connection to one thread at a time.
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
        # macOS acknowledges an fsync before the disk has the bytes, unless asked so; nothing elsewhere.
        connection.execute("PRAGMA fullfsync = ON")
        return connection


@cache
def _looking(insert: sa.Insert, look: sa.Select[Any]) -> sa.Insert:
    # Built once: making a statement anew costs as much as sending it.
    return insert.returning(look.scalar_subquery())


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch the file to a write-ahead log, if it has none yet. Raises sqlite3.Error if others keep it from that."""
    for attempt in range(1, SWITCHES_MAX + 1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if attempt == SWITCHES_MAX or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            clock.sleep(clock.jitter_s(min(1.0, 0.02 * 2**attempt)))


def _meaning(error: BaseException | None) -> Meaning:
    # The primary code is the low byte of the extended one. No code: not SQLite's own error.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_INTERNAL) & 0xFF
    if code in _REFUSED:
        remedy, transient = _REFUSED[code]
        return Meaning(unclear=False, transient=transient, remedy=remedy)
    # An I/O error may follow the write that a later reader finds whole.
    return Meaning(unclear=True, transient=True, remedy="see to the disk, and try again")


def _file_system(folder: Path) -> str:
    """The kind of file system a folder lies on; "" where the system does not say."""
    if not _MOUNTS.exists():
        return ""
    real = folder.resolve()
    mounts = [line.split()[1:3] for line in _MOUNTS.read_text("utf-8", "replace").splitlines()]
    over = [(len(point), kind) for point, kind in mounts if real.is_relative_to(point.replace("\\040", " "))]
    return max(over)[1] if over else ""
