"""A log as rows of a PostgreSQL table: one table for the entries of all logs, of any number of instances.

    lakebed_entries (log, version, data, stored, digest), primary key (log, version)

``log`` is ``<instance id>/<prefix>``. The primary key decides a race: a create is one INSERT in a transaction of its
own. ``stored`` is the server's clock, so that no writer's clock is ever compared. The log start of a log is row 0 of
``<log>/log-start``, raised by one UPDATE that takes effect if the row still has the old bytes.

An entry goes in only behind the one that its writer knows: the INSERT has a condition on ``digest`` of the version
before, and on no later version. A server that forgot commits (a fail-over, a restored backup) thus gets no entry above
the gap.

Rules. Each message is a transaction of its own (connections are in autocommit), so a create is one round trip and holds
no lock while Python runs; the log start is read in the same message, behind the INSERT. A create is sent once and never
repeated here: the caller settles an unclear one. Reads are repeated within a bound, so that a restart of the server
does not fail them.

All logs in one database share one pool for as long as one of them is in use. A connection cannot be shared with a
forked child, so each process has a pool of its own, found by its process id; a child keeps the parent's, unused,
because dropping it would close the parent's sessions.

Core types. :class:`PostgresqlLog`, :class:`PostgresqlLogs`. Source: docs/decisions/0010 and 0018.

*Connect to a PostgreSQL server that keeps logs, check its durability, and interpret its errors.*

The URL is libpq's own and goes to it unchanged: several hosts, ``sslmode``, a socket's folder as ``host``, and its ways
to a password (PGPASSWORD, ``~/.pgpass``, a service file). A password in the URL would be written into
``instance.json``, so such a URL is refused before it is shown anywhere.

The SQLSTATE of an error says whether a failed INSERT was stored: an error proper means that the server has rolled it
back; a session that ended, or no SQLSTATE, is unclear.

Core types. :class:`PostgresqlServer`, :class:`Meaning`. Only this module and :mod:`lakebed.log.backends.postgresql`
import SQLAlchemy and psycopg. Source: docs/decisions/0010.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakValueDictionary

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from lakebed.errors import Code, DamagedError, Error, UnsupportedFormatError
from lakebed.log.backends.backend import Around, End, LogBackend, Rise, check_creates, decode_log_start
from lakebed.storage.contract import OBJECT_BYTES_MAX, PROBE, PutOutcome, check_put, too_large
from lakebed.storage.digests import digest_bytes
from lakebed.storage.retries import read_until_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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
            creator=self.connect,
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

    def connect(self, **more: str | int) -> psycopg.Connection:
        """Return a new connection in autocommit; ``more`` are further parameters of libpq."""
        given = {name for name, _ in parse_qsl(urlsplit(self.url).query, keep_blank_values=True)}
        defaults = {name: value for name, value in (_DEFAULTS | more).items() if name not in given}
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
        remedy = refusal_remedy(text)
        return Meaning(remedy is None, remedy is None, remedy or "try again later")
    if error.connection_invalidated or state[:2] in _UNCLEAR_CLASSES:
        return Meaning(unclear=True, transient=True, remedy="try again later")
    if state in _REFUSED_STATES:
        return Meaning(unclear=False, transient=False, remedy=_REFUSED_STATES[state])
    short = state[:2] == "53"
    remedy = "the server is short of resources: try again later" if short else "the server refused the statement"
    return Meaning(unclear=False, transient=short, remedy=remedy)


def refusal_remedy(text: str) -> str | None:
    """Return the remedy for a failure to connect, by its text; None if the same may succeed later."""
    return next((remedy for phrase, remedy in _REFUSED_TEXTS if phrase in text), None)


VERSIONS_PER_PAGE = 10_000

REMOVED_AT_ONCE = 1_000
"""Entries deleted by one statement."""

SAID_CHARS_MAX = 400

# "C" sorts by bytes: an index in a language's order breaks when an update of the server's library changes that order.
_CREATE_TABLE = (
    'CREATE TABLE IF NOT EXISTS lakebed_entries (log TEXT COLLATE "C" NOT NULL, version BIGINT NOT NULL, '
    'data BYTEA NOT NULL, stored TIMESTAMP WITH TIME ZONE NOT NULL, digest TEXT COLLATE "C" NOT NULL, '
    "PRIMARY KEY (log, version))"
)
# The conflict is named, so that a table without that key refuses every entry instead of storing it twice.
_INSERT = (
    "INSERT INTO lakebed_entries (log, version, data, stored, digest) SELECT %(log)s::text, %(version)s::bigint, "
    "%(data)s::bytea, clock_timestamp(), %(digest)s::text {condition}"
    "ON CONFLICT (log, version) DO NOTHING RETURNING stored"
)
_INSERT_ALONE = _INSERT.format(condition="")
_LINKED = (
    "WHERE EXISTS (SELECT FROM lakebed_entries WHERE log = %(log)s AND version = %(version)s - 1 AND digest = "
    "%(previous)s) AND NOT EXISTS (SELECT FROM lakebed_entries WHERE log = %(log)s AND version > %(version)s) "
)
_OF_ENTRY = "FROM lakebed_entries WHERE log = %(log)s AND version = %(version)s"
# Null for data larger than an entry can be, by length.
_DATA = f"SELECT CASE WHEN length(data) <= {OBJECT_BYTES_MAX} THEN data END {_OF_ENTRY}"
_STORED = f"SELECT stored {_OF_ENTRY}"
# A log start takes some 100 bytes. Only the first 4 KiB of a larger row are read, which fail the check of the digest.
_LOG_START = "SELECT substr(data, 1, 4096) FROM lakebed_entries WHERE log = %(log_start)s AND version = 0"
_LOOK = f"; SELECT ({_LOG_START}), current_setting('transaction_isolation'), EXISTS (SELECT {_OF_ENTRY})"
_FROM = (
    "SELECT version, digest, NULL::bytea FROM lakebed_entries WHERE log = %(log)s AND version >= %(version)s "
    "ORDER BY version LIMIT 2"
)
_END = f"({_FROM}) UNION ALL (SELECT -1, '', ({_LOG_START}))"
_RAISE = (
    "UPDATE lakebed_entries SET data = %(data)s, digest = %(digest)s, stored = clock_timestamp() "
    "WHERE log = %(log)s AND version = %(version)s AND data = %(found)s RETURNING stored"
)
_REMOVE = "DELETE FROM lakebed_entries WHERE log = %(log)s AND version = ANY(%(versions)s)"
_VERSIONS = (
    "SELECT version FROM lakebed_entries WHERE log = %(log)s AND version > %(after)s ORDER BY version LIMIT %(count)s"
)
_LOGS = "SELECT DISTINCT log FROM lakebed_entries WHERE version > 0 AND log LIKE %(pattern)s"

# At these isolation levels each statement sees everything committed before it. The server treats them alike.
_SEEING = frozenset({"read committed", "read uncommitted"})

Returned = TypeVar("Returned")

_pools: WeakValueDictionary[tuple[int, PostgresqlServer], sa.Engine] = WeakValueDictionary()


def connect_postgresql(
    url: str,
    instance: str,
    storage_options: Mapping[str, str] | None = None,  # noqa: ARG001 - credentials come from libpq's own places
) -> PostgresqlLogs:
    """Return the logs of an instance in the database of a libpq URL, not yet connected.

    Raises UsageError for a URL with a password, or one that cannot be read.
    """
    return PostgresqlLogs(PostgresqlServer.at(url), instance)


@dataclass(frozen=True, slots=True)
class _Inserted:
    """When an entry was stored, and the log start that was read behind it; not ``looked``: it could not be seen.

    ``stored`` is None if nothing was stored, and ``exists`` says whether there is such an entry.
    """

    stored: datetime | None
    exists: bool
    looked: bool
    log_start: bytes | None


@dataclass(frozen=True, slots=True)
class PostgresqlLog(LogBackend):
    """The rows of one log."""

    location: PostgresqlLogs
    name: str
    _newest: dict[int, _Inserted] = field(default_factory=dict, repr=False, compare=False)
    """The newest entry that this process created."""

    def create(self, version: int, data: bytes, previous: str = "") -> PutOutcome:
        """Put entry ``version`` if there is none, only behind the entry of that digest."""
        check_put(self._title(version), data)
        values = {"log": self.name, "version": version, "data": data, "log_start": self._log_start_name}
        values |= {"digest": digest_bytes(data), "previous": previous}
        action = f"write entry {version} of {self.name} to"
        outcome, inserted = self.location.put(action, lambda connection: _insert_and_look(connection, values))
        if inserted is None:
            return outcome
        if inserted.stored is None:
            return PutOutcome.EXISTS if inserted.exists else PutOutcome.UNLINKED
        self._newest.clear()
        self._newest[version] = inserted
        return PutOutcome.CREATED

    def get(self, version: int) -> bytes | None:
        """Return the bytes of an entry; None: there is none."""
        rows = self.location.read(_DATA, {"log": self.name, "version": version})
        if not rows:
            return None
        if rows[0][0] is None:
            raise too_large(self._title(version))
        return bytes(rows[0][0])

    def last_modified(self, version: int) -> datetime | None:
        """Return when the server stored the entry; None: there is none."""
        rows = self.location.read(_STORED, {"log": self.name, "version": version})
        return _utc(rows[0][0]) if rows else None

    def known_last_modified(self, version: int) -> datetime | None:
        """Return the time that came with the create, for the newest entry of this process; None: request it."""
        inserted = self._newest.get(version)
        return None if inserted is None or inserted.stored is None else _utc(inserted.stored)

    def now(self) -> datetime:
        """Return the server's clock."""
        return _utc(self.location.read("SELECT clock_timestamp()", {})[0][0])

    def versions(self) -> Iterator[int]:
        """Return the numbers of all entries, ascending, page by page: no transaction stays open between two of them."""
        last = 0
        while True:
            values = {"log": self.name, "after": last, "count": VERSIONS_PER_PAGE}
            found = [row[0] for row in self.location.read(_VERSIONS, values)]
            yield from found
            if len(found) < VERSIONS_PER_PAGE:
                return
            last = found[-1]

    def log_start(self) -> int:
        """Return the version up to which entries may be deleted; 0: it was never raised."""
        return decode_log_start(self._log_start_data(), self.name)

    def end(self, version: int) -> End:
        """Return the log start and what is around an entry, in one statement."""
        values = {"log": self.name, "version": version, "log_start": self._log_start_name}
        rows = self.location.read(_END, values)
        entries = {number: digest for number, digest, _ in rows if number > 0}
        (log_start,) = [data for number, _, data in rows if number == -1]
        digest = entries.get(version, "") if version else None
        beyond = min((number for number in entries if number > version + 1), default=0)
        start = decode_log_start(None if log_start is None else bytes(log_start), self.name)
        return End(start, Around(digest, 0 if version + 1 in entries else beyond))

    def known_log_start(self, version: int) -> int | None:
        """Return the log start that was read in the transaction that stored the entry, behind it."""
        inserted = self._newest.get(version)
        if inserted is not None and inserted.looked:
            # The entry is stored, so no error is raised here. `log_start` raises if the row is damaged.
            with suppress(DamagedError, UnsupportedFormatError):
                return decode_log_start(inserted.log_start, self.name)
        return None

    def advance_log_start(self, expected: int, to: int) -> bool:
        """Raise the log start if it is the expected one: a SELECT, and an INSERT or a conditional UPDATE."""
        rise, found = Rise(self.name, expected, to), self._log_start_data()

        def put(data: bytes) -> PutOutcome:
            values = {"log": self._log_start_name, "version": 0, "data": data, "found": found}
            values["digest"] = digest_bytes(data)
            statement = _INSERT_ALONE if found is None else _RAISE
            action = f"raise the log start of {self.name} in"
            return self.location.put(action, lambda sent: sent.exec_driver_sql(statement, values).first())[0]

        return rise.carry_out(found, put, self.log_start)

    def remove(self, versions: Iterable[int]) -> None:
        """Delete the rows of entries."""
        doomed = list(versions)
        for start in range(0, len(doomed), REMOVED_AT_ONCE):
            batch = doomed[start : start + REMOVED_AT_ONCE]
            with self.location.connection(f"delete {len(batch)} entries of {self.name} from") as connection:
                connection.exec_driver_sql(_REMOVE, {"log": self.name, "versions": batch})
            for version in batch:
                self._newest.pop(version, None)

    @property
    def _log_start_name(self) -> str:
        return f"{self.name}/log-start"

    def _title(self, version: int) -> str:
        return f"entry {version} of {self.name} in {self.location.server.url}"

    def _log_start_data(self) -> bytes | None:
        rows = self.location.read(_LOG_START, {"log_start": self._log_start_name})
        return bytes(rows[0][0]) if rows else None


@dataclass(frozen=True, slots=True)
class PostgresqlLogs:
    """A :class:`~lakebed.log.backends.backend.LogLocation`: the logs of an instance in a database that may hold
    those of others.
    """

    server: PostgresqlServer
    instance: str
    _engines: dict[int, sa.Engine] = field(default_factory=dict, repr=False, compare=False)

    def open(self, prefix: str) -> PostgresqlLog:
        """Return the log of that prefix."""
        return PostgresqlLog(self, f"{self.instance}/{prefix}")

    def prefixes(self) -> Iterator[str]:
        """Return the prefixes of all logs of the instance."""
        own = f"{self.instance}/"
        for (name,) in self.read(_LOGS, {"pattern": f"{own}%"}):
            prefix = name.removeprefix(own)
            if not prefix.startswith(f"{PROBE}/"):
                yield prefix

    def check(self) -> None:
        """Create the table if it does not exist, and test it.

        Raises:
            UnsafeStoreError: the database may lose what it acknowledged, or two racing entries would both be stored.
            StorageError: it cannot be reached or written.
        """
        with self.connection("check") as connection:
            self.server.check(connection)
            try:
                connection.exec_driver_sql(_CREATE_TABLE)
            except DBAPIError:
                # Fails for the loser of two racing "if not exists", and without the right to create tables.
                if connection.exec_driver_sql("SELECT to_regclass('lakebed_entries')").scalar_one() is None:
                    raise
        check_creates(
            self.open,
            self.server.url,
            "the table lakebed_entries was not made by Lakebed, or something between changes what is sent: use a "
            "database of its own",
        )

    @contextmanager
    def connection(self, action: str) -> Iterator[sa.Connection]:
        """One of this process's connections. Raises StorageError if none can be had, or if a statement fails."""
        try:
            connection = self._engine().connect()
        except (DBAPIError, PoolTimeout) as error:
            raise self._failure(action, error) from error
        try:
            yield connection
        except DBAPIError as error:
            raise self._failure(action, error) from error
        finally:
            # If a session breaks while it is returned to the pool, the result is still valid.
            with suppress(DBAPIError):
                connection.close()

    def put(self, action: str, send: Callable[[sa.Connection], Returned | None]) -> tuple[PutOutcome, Returned | None]:
        """Send a conditional put once; returns its outcome and the returned row; None: nothing was stored.

        Raises:
            StorageError: it was refused, and nothing is stored.
        """
        with self.connection(action) as connection:
            try:
                returned = send(connection)
            except DBAPIError as error:
                if meaning_of(error).unclear:
                    return PutOutcome.UNCLEAR, None
                raise
        return (PutOutcome.EXISTS if returned is None else PutOutcome.CREATED), returned

    def read(self, statement: str, values: Mapping[str, Any]) -> list[Any]:
        """Return the rows of a query. Raises StorageError if every attempt fails."""

        def read_once() -> list[Any]:
            with self.connection("read the log in") as connection:
                return list(connection.exec_driver_sql(statement, dict(values)))

        return read_until_answered(read_once)

    def _failure(self, action: str, error: DBAPIError | PoolTimeout) -> Error:
        """Return the error with what failed, where, and the remedy. No statement and no value is in its message."""
        url = self.server.url
        if not isinstance(error, DBAPIError):
            text = f"cannot {action} {url}: every connection is in use; try again later"
            return Code.STORE_UNAVAILABLE(text, url=url, transient=True)
        meaning = meaning_of(error)
        said = " ".join(str(error.orig).split())[:SAID_CHARS_MAX]
        code = Code.STORE_UNAVAILABLE if meaning.transient else Code.STORE_REFUSED
        return code(f"cannot {action} {url}: {meaning.remedy} ({said})", url=url, transient=meaning.transient)

    def _engine(self) -> sa.Engine:
        pid = os.getpid()
        engine = self._engines.get(pid)
        if engine is None:
            # Two threads may each make one: one of them is dropped before it connects.
            pool = _pools.get((pid, self.server)) or _pools.setdefault((pid, self.server), self.server.engine())
            engine = self._engines.setdefault(pid, pool)
        return engine


def _insert_and_look(connection: sa.Connection, values: dict[str, Any]) -> _Inserted:
    """Insert an entry, then read the log start: two statements in one message, which the server takes as one
    transaction.

    One statement would not do: its queries see what was committed when it began, however long its INSERT then waits,
    while the key of a deleted row is free at once. The second of two statements sees what was committed meanwhile,
    unless the server's default is a stricter isolation.
    """
    insert = _INSERT.format(condition=_LINKED if values["previous"] else "")
    cursor = connection.exec_driver_sql(insert + _LOOK, values).cursor
    inserted = cursor.fetchone()
    cursor.nextset()
    log_start, isolation, exists = cursor.fetchall()[0]
    cursor.close()
    stored = None if inserted is None else inserted[0]
    # At a stricter isolation an entry that was committed meanwhile is not seen.
    seen = isolation in _SEEING
    return _Inserted(stored, exists or not seen, seen, None if log_start is None else bytes(log_start))


def _utc(stored: datetime) -> datetime:
    """Return the time in UTC; the server gives it in the session's time zone."""
    return stored.astimezone(UTC)
