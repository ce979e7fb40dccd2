"""Entries as rows: the SQL, the pool of connections, and what becomes of an error.

Each message is a transaction of its own (the connections are in autocommit), so a create is one round trip and
holds no lock while Python runs. In it a look at the log start follows the INSERT, so nobody has to ask for it
afterwards. A create is sent once and never again by itself: whoever called settles what is unclear. Reads change
nothing, and are repeated within a bound, so that a restart of the server is no reader's trouble.
The log start of a log is a row too, version 0 of ``<log>/log-start``, and raised by one UPDATE where it still has the
old bytes.

All places in one database share one pool, for as long as one of them lives: a process that opens an instance again
and again must not fill the server. A connection cannot be shared with a forked child, who would take the parent's
answers. So each process has a pool of its own, found by its process id; a child keeps the parent's, unused, because
dropping it would close the parent's sessions.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.schema import CreateTable

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error, StorageError, UnsupportedFormatError
from lakebed.log.log_start import Rise, decode_log_start
from lakebed.log.sql.database import SAID_CHARS_MAX, Database, Inserted
from lakebed.storage.contract import PutOutcome
from lakebed.storage.object_size import OBJECT_BYTES_MAX, check_put, too_large
from lakebed.storage.retries import put_until_clear, read_until_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

VERSIONS_PER_PAGE = 10_000

REMOVED_AT_ONCE = 1_000
"""Entries that go in one DELETE: of a few kilobytes each, milliseconds in which SQLite has no other writer."""

ENTRIES = sa.Table(
    "lakebed_entries",
    sa.MetaData(),
    # By bytes: an index by a language's order breaks when the server's library changes its mind about that order.
    sa.Column("log", sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql"), primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Column("stored", sa.DateTime(timezone=True), nullable=False),
)

# Built once: making a statement anew costs as much as sending it.
_NEW = {name: sa.bindparam(f"new_{name}", type_=ENTRIES.c[name].type) for name in ("log", "version", "data")}
_OF_LOG = ENTRIES.c.log == sa.bindparam("of_log")
_THE_ENTRY = sa.and_(_OF_LOG, ENTRIES.c.version == sa.bindparam("of_version"))
# Null for more than an entry can have: the database looks at the length alone.
_READABLE = sa.func.length(ENTRIES.c.data) <= sa.literal_column(str(OBJECT_BYTES_MAX))
_DATA = sa.select(sa.case((_READABLE, ENTRIES.c.data))).where(_THE_ENTRY)
# A log start takes some 100 bytes. Of a larger row the first 4 KiB are read, and fail the check of the digest.
_BEGIN: sa.ColumnElement[bytes] = sa.func.substr(
    ENTRIES.c.data, sa.literal_column("1"), sa.literal_column("4096"), type_=sa.LargeBinary
)
_FLOOR = sa.select(_BEGIN).where(_THE_ENTRY)
_STORED = sa.select(ENTRIES.c.stored).where(_THE_ENTRY)
_REMOVE = sa.delete(ENTRIES).where(_OF_LOG, ENTRIES.c.version.in_(sa.bindparam("of_numbers", expanding=True)))
_LOGS = (
    sa.select(ENTRIES.c.log)
    .distinct()
    .where(ENTRIES.c.version > 0, ENTRIES.c.log.startswith(sa.bindparam("of_instance")))
)
_VERSIONS = sa.select(ENTRIES.c.version).where(_OF_LOG).order_by(ENTRIES.c.version)

Told = TypeVar("Told")

_pools: WeakValueDictionary[tuple[int, Database], sa.Engine] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class SqlLog:
    """A :class:`~lakebed.log.backend.LogBackend` on the rows of one log."""

    location: SqlLogs
    name: str
    _told: dict[int, Inserted] = field(default_factory=dict, repr=False, compare=False)

    def create(self, version: int, data: bytes) -> PutOutcome:
        """Put entry ``version`` if there is none."""
        check_put(self._title(version), data)
        values = _new(self.name, version, data) | self._log_start_row()
        database = self.location.database
        outcome, told = self.location.put(
            f"write entry {version} of {self.name} to",
            lambda connection: database.insert_and_look(connection, _insertion(database), _FLOOR, values),
        )
        if told is not None:
            # The newest is all that is asked for.
            self._told.clear()
            self._told[version] = told
        return outcome

    def get(self, version: int) -> bytes | None:
        """The bytes of an entry; None: there is none."""
        rows = self.location.read(_DATA, {"of_log": self.name, "of_version": version})
        if not rows:
            return None
        if rows[0][0] is None:
            raise too_large(self._title(version))
        return bytes(rows[0][0])

    def last_modified(self, version: int) -> datetime | None:
        """When the database stored the entry; None: there is none."""
        rows = self.location.read(_STORED, {"of_log": self.name, "of_version": version})
        return _utc(rows[0][0]) if rows else None

    def known_last_modified(self, version: int) -> datetime | None:
        """What the database told with the create, of the newest entry of this process; None: ask."""
        told = self._told.get(version)
        return None if told is None else _utc(told.returned)

    def now(self) -> datetime:
        """The database's clock."""
        return _utc(self.location.read(sa.select(self.location.database.clock()))[0][0])

    def versions(self) -> Iterator[int]:
        """The numbers of all entries, ascending, page by page: no transaction stays open between two of them."""
        last = None
        while True:
            page = _VERSIONS if last is None else _VERSIONS.where(ENTRIES.c.version > last)
            found = [row[0] for row in self.location.read(page.limit(VERSIONS_PER_PAGE), {"of_log": self.name})]
            yield from found
            if len(found) < VERSIONS_PER_PAGE:
                return
            last = found[-1]

    def log_start(self) -> int:
        """The version up to which entries may be deleted; 0: it was never raised."""
        return decode_log_start(self._log_start_data(), self.name)

    def known_log_start(self, version: int) -> int | None:
        """Likewise; it was read in the transaction that stored the entry, behind it."""
        told = self._told.get(version)
        if told is not None and told.looked:
            # The entry is stored, and must not look as if it failed. Who asks is told what is wrong with the log start.
            with suppress(DamagedError, UnsupportedFormatError):
                return decode_log_start(None if told.found is None else bytes(told.found), self.name)
        return None

    def supports_truncation(self) -> bool:
        """An UPDATE is a compare-and-set."""
        return True

    def advance_log_start(self, expected: int, to: int) -> bool:
        """Raise the log start if it is the expected one: a SELECT, and an INSERT or a conditional UPDATE."""
        rise, found, name = Rise(self.name, expected, to), self._log_start_data(), self._log_start_row()["of_log"]

        def put(data: bytes) -> PutOutcome:
            statement: sa.Insert | sa.Update
            if found is None:
                statement, values = _insertion(self.location.database), _new(name, 0, data)
            else:
                statement = _rise(self.location.database)
                values = {"of_log": name, "found": found, "raised": data}
            action = f"raise the log start of {self.name} in"
            return self.location.put(action, lambda connection: connection.execute(statement, values).first())[0]

        return rise.carry_out(found, put, self.log_start)

    def remove(self, versions: Iterable[int]) -> None:
        """Delete the rows of entries."""
        doomed = list(versions)
        for start in range(0, len(doomed), REMOVED_AT_ONCE):
            batch = doomed[start : start + REMOVED_AT_ONCE]
            with self.location.connection(f"delete {len(batch)} entries of {self.name} from") as connection:
                connection.execute(_REMOVE, {"of_log": self.name, "of_numbers": batch})
            for version in batch:
                self._told.pop(version, None)

    def _log_start_row(self) -> dict[str, Any]:
        return {"of_log": f"{self.name}/log-start", "of_version": 0}

    def _title(self, version: int) -> str:
        return f"entry {version} of {self.name} in {self.location.database.url}"

    def _log_start_data(self) -> bytes | None:
        rows = self.location.read(_FLOOR, self._log_start_row())
        return bytes(rows[0][0]) if rows else None

    def foreign(self) -> Iterator[str]:
        """Nothing: a row of a log is an entry."""
        return iter(())


@dataclass(frozen=True, slots=True)
class SqlLogs:
    """A :class:`~lakebed.log.backend.LogLocation`: the logs of one instance in a database that may hold others'."""

    database: Database
    instance: str
    _engines: dict[int, sa.Engine] = field(default_factory=dict, repr=False, compare=False)

    def open(self, prefix: str) -> SqlLog:
        """The log of that prefix."""
        return SqlLog(self, f"{self.instance}/{prefix}")

    def prefixes(self) -> Iterator[str]:
        """The prefixes of all logs of the instance."""
        own = f"{self.instance}/"
        for (name,) in self.read(_LOGS, {"of_instance": own}):
            prefix = name.removeprefix(own)
            if not prefix.startswith(".probe/"):
                yield prefix

    def check(self) -> None:
        """Make the table if it is not there, and try it out.

        Raises:
            UnsafeStoreError: the database may lose what it acknowledged, or two racing entries would both be stored.
            StorageError: it cannot be reached or written.
        """
        self.database.make()
        with self.connection("check") as connection:
            self.database.check(connection)
            self._make_table(connection)
        self._probe()

    @contextmanager
    def connection(self, action: str) -> Iterator[sa.Connection]:
        """One of this process's connections. Raises StorageError if there is none to be had, or for what it raises."""
        try:
            connection = self._engine().connect()
        except (DBAPIError, PoolTimeout) as error:
            raise self.failure(action, error) from error
        try:
            yield connection
        except DBAPIError as error:
            raise self.failure(action, error) from error
        finally:
            # A session that breaks while it is given back takes no answer back with it.
            with suppress(DBAPIError):
                connection.close()

    def put(self, action: str, send: Callable[[sa.Connection], Told | None]) -> tuple[PutOutcome, Told | None]:
        """Send what stores a row on a condition, once: its outcome, and what is told of the row; None: it stored none.

        Raises:
            StorageError: it was refused, and nothing is stored.
        """
        with self.connection(action) as connection:
            try:
                told = send(connection)
            except DBAPIError as error:
                if self.database.meaning(error).unclear:
                    return PutOutcome.UNCLEAR, None
                raise
        return (PutOutcome.EXISTS if told is None else PutOutcome.CREATED), told

    def read(self, statement: sa.Select[Any], values: Mapping[str, Any] | None = None) -> list[Any]:
        """The rows of a query. Raises StorageError if they cannot be had within the tries."""

        def read_once() -> list[Any]:
            with self.connection("read the log in") as connection:
                return list(connection.execute(statement, values))

        return read_until_answered(read_once)

    def failure(self, action: str, error: DBAPIError | PoolTimeout) -> Error:
        """The error as one that says what, where and the remedy. No statement and no value is in its message."""
        if not isinstance(error, DBAPIError):
            said = f"cannot {action} {self.database.url}: every connection is in use; try again later"
            return Code.STORE_UNAVAILABLE(said, url=self.database.url, transient=True)
        meaning = self.database.meaning(error)
        said = " ".join(str(error.orig).split())[:SAID_CHARS_MAX]
        message = f"cannot {action} {self.database.url}: {meaning.remedy} ({said})"
        code = Code.STORE_UNAVAILABLE if meaning.transient else Code.STORE_REFUSED
        return code(message, url=self.database.url, transient=meaning.transient)

    def _engine(self) -> sa.Engine:
        pid = os.getpid()
        engine = self._engines.get(pid)
        if engine is None:
            # Two threads may each make one: the other's is dropped before it connects.
            pool = _pools.get((pid, self.database)) or _pools.setdefault((pid, self.database), self.database.engine())
            engine = self._engines.setdefault(pid, pool)
        return engine

    def _make_table(self, connection: sa.Connection) -> None:
        try:
            connection.execute(CreateTable(ENTRIES, if_not_exists=True))
        except DBAPIError:
            # PostgreSQL refuses the loser of two racing "if not exists", and who may not create even where it exists.
            if not sa.inspect(connection).has_table(ENTRIES.name):
                raise

    def _probe(self) -> None:
        """Create, create again with other bytes, read: in a log of a fresh name, which is deleted."""
        log = self.open(f".probe/{clock.random_token()}")
        probe = f"a probe of {self.database.url}"
        try:
            first = put_until_clear(lambda: log.create(1, b"first"), probe)
            self._expect(first is PutOutcome.CREATED or log.get(1) == b"first", "a fresh version was taken")
            second = put_until_clear(lambda: log.create(1, b"second"), probe)
            self._expect(second is PutOutcome.EXISTS, "a version was won twice")
            self._expect(log.get(1) == b"first", "a refused entry changed the one that is there")
        finally:
            self._forget(log)

    def _forget(self, log: SqlLog) -> None:
        # Who may not delete, or lost the connection, keeps one short row, which no log reads.
        with suppress(StorageError), self.connection("clear the probe in") as connection:
            connection.execute(sa.delete(ENTRIES).where(ENTRIES.c.log == log.name))

    def _expect(self, retained: bool, fault: str) -> None:  # noqa: FBT001 - an assertion's shape
        if not retained:
            raise Code.CREATE_NOT_EXCLUSIVE(
                f"{self.database.url} is not safe for commits: {fault}. The table {ENTRIES.name} was not made by "
                "Lakebed, or something between changes what is asked: use a database of its own",
                url=self.database.url,
                transient=False,
            )


def _utc(stored: datetime) -> datetime:
    """Aware, UTC: SQLite's times are UTC by our own expression, PostgreSQL's come in the session's time zone."""
    return stored.replace(tzinfo=UTC) if stored.tzinfo is None else stored.astimezone(UTC)


def _new(log: str, version: int, data: bytes) -> dict[str, Any]:
    return {"new_log": log, "new_version": version, "new_data": data}


@cache
def _insertion(database: Database) -> sa.Insert:
    """Stores a row unless its version is taken, and tells its last-modified time; no row if it stored none."""
    # The conflict is named, so that a table without that key refuses every entry instead of taking it twice.
    statement = database.insert_absent(ENTRIES, ["log", "version"])
    return statement.values(_NEW | {"stored": database.clock()}).returning(ENTRIES.c.stored)


@cache
def _rise(database: Database) -> sa.Update:
    """Changes the row of a log start if it is the one that was found, and tells its last-modified time; no row if it
    changed none.
    """
    found = sa.and_(_OF_LOG, ENTRIES.c.version == 0, ENTRIES.c.data == sa.bindparam("found"))
    raised = sa.bindparam("raised", type_=sa.LargeBinary)
    statement = sa.update(ENTRIES).where(found).values(data=raised, stored=database.clock())
    return statement.returning(ENTRIES.c.stored)
