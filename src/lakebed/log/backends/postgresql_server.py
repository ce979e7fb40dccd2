"""Connect to a PostgreSQL server that keeps logs, check its durability, and interpret its errors.

The URL is libpq's own and goes to it unchanged: several hosts, ``sslmode``, a socket's folder as ``host``, and its ways
to a password (PGPASSWORD, ``~/.pgpass``, a service file). A password in the URL would be written into
``instance.json``, so such a URL is refused before it is shown anywhere.

The SQLSTATE of an error says whether a failed INSERT was stored: an error proper means that the server has rolled it
back; a session that ended, or no SQLSTATE, is unclear.

Core types. :class:`PostgresqlServer`, :class:`Meaning`. Only this module and :mod:`lakebed.log.backends.postgresql`
import SQLAlchemy and psycopg. Source: docs/decisions/0010.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import psycopg
import sqlalchemy as sa

from lakebed.errors import Code

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

POOL_CONNECTIONS_MAX = 8
"""For each process. A log's commit needs one for a millisecond; the server has a hundred in all by default."""

POOL_WAIT_S = 30.0
"""How long a call waits for one of them before it fails as transient."""

# user@host:port,host:port: all optional; a host may be an IPv6 address in brackets.
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.%-]*)(?::\d*)?"
_NETLOC = re.compile(rf"(?:[^:@/]*@)?{_HOST}(?:,{_HOST})*", re.ASCII)
_SECRETS = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}

# Used unless the URL has another value. A silent peer is given up after half a minute; after a fail-over only a
# writable server is useful.
_DEFAULTS: dict[str, str | int] = {
    "application_name": "lakebed",
    "connect_timeout": 10,
    "target_session_attrs": "read-write",
    "tcp_user_timeout": 30_000,
}

# A failure to connect has no SQLSTATE, only a text. All of these are permanent until fixed.
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
    "42703": "the table lakebed_entries was made by an older Lakebed, whose logs this one does not read: use another "
    'database, or let the owner of the table run ALTER TABLE lakebed_entries ADD COLUMN digest TEXT COLLATE "C" NOT '
    "NULL DEFAULT ''",
    "42P10": "the table lakebed_entries has no primary key (log, version): it was not made by Lakebed",
    "53100": "the disk is full: make room",
}

# Connection, roll-back by the server's own choice, operator intervention (a time-out, a shutdown), a lock's time-out.
_UNCLEAR_CLASSES = ("08", "40", "57", "55")


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a driver error for the statement that failed.

    ``unclear``: the statement may have taken effect, or may yet. If not, it has not and never will, and ``transient``
    says whether the same statement may succeed later. ``remedy`` is text for users.
    """

    unclear: bool
    transient: bool
    remedy: str


@dataclass(frozen=True, slots=True)
class PostgresqlServer:
    """One database on a server, not yet connected; equal to another by its URL, which holds no password."""

    url: str

    @classmethod
    def at(cls, url: str) -> PostgresqlServer:
        """Return the database of a libpq URL. Raises UsageError for one with a password, or one that cannot be read."""
        parts = urlsplit(url)
        user, _, _ = parts.netloc.rpartition("@")
        names = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        if ":" in user or names & _SECRETS:
            raise Code.URL_HAS_CREDENTIALS(
                "PostgreSQL URLs are stored and must not contain a password (postgresql://...): use PGPASSWORD, "
                "~/.pgpass or a service file"
            )
        # The rest could still contain a password with a stray "/" or "@", so it is not shown.
        if not _NETLOC.fullmatch(parts.netloc) or "@" in parts.path or parts.fragment:
            raise Code.URL_INVALID(
                "not a URL of PostgreSQL: write postgresql://[user@]host[:port]/database, percent-encoded"
            )
        return cls(url)

    def engine(self) -> sa.Engine:
        """Return a new pool of connections, on which each statement is a durable transaction of its own."""
        return sa.create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_size=POOL_CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            # Connections that are not needed stay idle at the far end of the pool.
            pool_use_lifo=True,
            isolation_level="AUTOCOMMIT",
            use_native_hstore=False,
            hide_parameters=True,
        )

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

    def _connect(self) -> psycopg.Connection:
        given = {name for name, _ in parse_qsl(urlsplit(self.url).query, keep_blank_values=True)}
        defaults = {name: value for name, value in _DEFAULTS.items() if name not in given}
        # The client puts the values in, so that two statements can be one message, and none is prepared on the server:
        # a pooler between would hand it to another session. Without the encoding, text of a database in SQL_ASCII would
        # be bytes.
        return psycopg.connect(
            self.url,
            autocommit=True,
            cursor_factory=psycopg.ClientCursor,
            client_encoding="utf8",
            **defaults,  # type: ignore[arg-type]
        )


def meaning_of(error: DBAPIError) -> Meaning:
    """Return the meaning of a driver error."""
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
