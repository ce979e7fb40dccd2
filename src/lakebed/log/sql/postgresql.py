"""PostgreSQL as the place of a log: for many processes on many machines, and for high rates of commits.

The URL is libpq's own and goes to it unchanged, so everything it knows is there: several hosts, ``sslmode``, a socket's
folder as ``host``, and, above all, its ways to a password: PGPASSWORD, ``~/.pgpass``, a service file. A password in
the URL would be written into ``instance.json``, and is refused before the URL is shown to anybody.

Whether a failed INSERT is there is told by its SQLSTATE: an error proper means that the server has rolled it back;
a session that ended, or no SQLSTATE at all, means that nobody knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect

from lakebed.errors import Code
from lakebed.log.sql.database import POOL_CONNECTIONS_MAX, POOL_WAIT_S, Inserted, Meaning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.exc import DBAPIError

# user@host:port,host:port: all optional; a host may be an IPv6 address in brackets.
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.%-]*)(?::\d*)?"
_NETLOC = re.compile(rf"(?:[^:@/]*@)?{_HOST}(?:,{_HOST})*", re.ASCII)
_SECRETS = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}

# In these each statement of a transaction sees what was committed before it. The server takes one for the other.
_SEEING = frozenset({"read committed", "read uncommitted"})
_DIALECT: sa.Dialect = psycopg_dialect.dialect()  # type: ignore[no-untyped-call]

# What the URL does not say. A peer that vanished without a word is given up after half a minute; after a fail-over
# only a server that takes writes is of use.
_DEFAULTS: dict[str, str | int] = {
    "application_name": "lakebed",
    "connect_timeout": 10,
    "target_session_attrs": "read-write",
    "tcp_user_timeout": 30_000,
}

# A failure to connect has no SQLSTATE, only a text. All of these fail again until mended.
_REFUSED_TEXTS = (
    ("password authentication failed", "the password is wrong: see PGPASSWORD, ~/.pgpass or the service file"),
    ("no password supplied", "a password is asked for: give it by PGPASSWORD, ~/.pgpass or a service file"),
    ("pg_hba.conf", "the server does not let this user in from here: allow it in pg_hba.conf"),
    ("does not exist", "the database or the user does not exist: create it, or correct the URL"),
    ("permission denied", "permission denied: allow this user to connect"),
    ("session is read-only", "the database is read-only: name a server that takes writes"),
    ("server is in hot standby mode", "the server is a standby: name one that takes writes"),
    ("definition of service", "the service is not defined: see the service file"),
    ("invalid connection option", "the URL has an option that is not known: correct it"),
    ("invalid URI query parameter", "the URL has an option that is not known: correct it"),
)

# SQLSTATE, or its class -> remedy. Nothing was stored.
_REFUSED_STATES = {
    "25006": "the database is read-only: name a server that takes writes",
    "42501": "permission denied: allow this user to create the table lakebed_entries, or to select and insert (and, "
    "where logs are truncated, to update and delete)",
    "42P01": "the table lakebed_entries is missing: restore the database, or correct the URL",
    "42P10": "the table lakebed_entries has no primary key (log, version): it was not made by Lakebed",
    "53100": "the disk is full: make room",
}

# Connection, roll-back by the server's own choice, operator intervention (a time-out, a shutdown), a lock's time-out.
_UNCLEAR_CLASSES = ("08", "40", "57", "55")


@dataclass(frozen=True, slots=True)
class Postgresql:
    """A :class:`~lakebed.log.sql.database.Database` on a PostgreSQL server."""

    url: str

    @classmethod
    def at(cls, url: str) -> Postgresql:
        """The database of a libpq URL. Raises UsageError for one with a password, or one that cannot be read."""
        parts = urlsplit(url)
        user, _, _ = parts.netloc.rpartition("@")
        names = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        if ":" in user or names & _SECRETS:
            raise Code.URL_HAS_CREDENTIALS(
                "a password does not belong into a URL, which is written down (postgresql://...): give it by "
                "PGPASSWORD, ~/.pgpass or a service file"
            )
        # What is left could still be a password with a stray "/" or "@", so it is not shown.
        if not _NETLOC.fullmatch(parts.netloc) or "@" in parts.path or parts.fragment:
            raise Code.URL_INVALID(
                "not a URL of PostgreSQL: write postgresql://[user@]host[:port]/database, percent-encoded"
            )
        return cls(url)

    def engine(self) -> sa.Engine:
        """A pool of connections."""
        return sa.create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_size=POOL_CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            # What is not needed stays idle at the far end of the pool.
            pool_use_lifo=True,
            isolation_level="AUTOCOMMIT",
            use_native_hstore=False,
            hide_parameters=True,
        )

    def clock(self) -> sa.ColumnElement[datetime]:
        """The server's clock."""
        return sa.func.clock_timestamp(type_=sa.DateTime(timezone=True))

    def insert_absent(self, table: sa.Table, key: Sequence[str]) -> sa.Insert:
        """``INSERT … ON CONFLICT (key) DO NOTHING``."""
        return postgresql.insert(table).on_conflict_do_nothing(index_elements=key)

    def insert_and_look(
        self, connection: sa.Connection, insert: sa.Insert, look: sa.Select[Any], values: Mapping[str, Any]
    ) -> Inserted | None:
        """Two statements in one message, which the server takes as one transaction.

        One statement would not do: its queries see what was committed when it began, however long its INSERT then
        waits, while the key of a deleted row is free at once. The second of two sees what was committed meanwhile,
        unless the server's default is a stricter isolation.
        """
        cursor = connection.exec_driver_sql(_both(insert, look), values).cursor
        inserted = cursor.fetchone()
        cursor.nextset()
        found, isolation = cursor.fetchall()[0]
        cursor.close()
        if inserted is None:
            return None
        return Inserted(inserted[0], looked=isolation in _SEEING, found=found)

    def make(self) -> None:
        """Nothing: making a database is its administrator's work."""

    def check(self, connection: sa.Connection) -> None:
        """Raise UnsafeStoreError if the server acknowledges a commit before it is on disk."""
        for setting in ("synchronous_commit", "fsync"):
            value = connection.execute(sa.select(sa.func.current_setting(setting))).scalar_one()
            if value == "off":
                raise Code.COMMITS_NOT_DURABLE(
                    f"{self.url} may lose commits that it acknowledged: {setting} is off. Set it to on (ALTER ROLE … "
                    f"SET {setting} = on, or postgresql.conf)",
                    url=self.url,
                    setting=setting,
                    transient=False,
                )

    def meaning(self, error: DBAPIError) -> Meaning:
        """What an error of the driver says."""
        state = getattr(error.orig, "sqlstate", None)
        if state is None:
            text = str(error.orig)
            remedy = next((remedy for phrase, remedy in _REFUSED_TEXTS if phrase in text), None)
            return Meaning(remedy is None, remedy is None, remedy or "try again later")
        if error.connection_invalidated or state[:2] in _UNCLEAR_CLASSES:
            return Meaning(unclear=True, transient=True, remedy="try again later")
        if state in _REFUSED_STATES:
            return Meaning(unclear=False, transient=False, remedy=_REFUSED_STATES[state])
        short = state[:2] == "53"
        remedy = "the server is short of resources: try again later" if short else "the server refused the statement"
        return Meaning(unclear=False, transient=short, remedy=remedy)

    def _connect(self) -> psycopg.Connection:
        given = {name for name, _ in parse_qsl(urlsplit(self.url).query, keep_blank_values=True)}
        defaults = {name: value for name, value in _DEFAULTS.items() if name not in given}
        # The client puts the values in, so that two statements can be one message, and none is prepared on the server:
        # a pooler between would hand it to another session.
        return psycopg.connect(self.url, autocommit=True, cursor_factory=psycopg.ClientCursor, **defaults)  # type: ignore[arg-type]


@cache
def _both(insert: sa.Insert, look: sa.Select[Any]) -> str:
    behind = sa.select(look.scalar_subquery(), sa.func.current_setting(sa.literal_column("'transaction_isolation'")))
    return "; ".join(str(statement.compile(dialect=_DIALECT)) for statement in (insert, behind))
