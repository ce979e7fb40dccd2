"""Connections: an instance that is opened directly or through a service, and what runs a statement in it.

Each statement is a commit of its own, so there are no transactions to begin or to end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState, Credentials
from dbt.adapters.lakebed.relation import DATABASE, PLAIN_SCHEMA, check_schema
from dbt.adapters.lakebed.store import BuildError, Key, Store
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

import lakebed
from lakebed import dbapi
from lakebed.engine.change_statements import changes

_CREATE_VIEW = re.compile(
    rf'(?:/\*.*?\*/\s*)?create\s+view\s+"{PLAIN_SCHEMA}"\."(?P<name>[^"]+)"\s+as\s+(?P<query>.*)',
    re.DOTALL | re.IGNORECASE,
)
_CREATE_TABLE = re.compile(
    rf'(?:/\*.*?\*/\s*)?create\s+table\s+"{PLAIN_SCHEMA}"\."(?P<name>[^"]+)"\s+'
    r"(?P<unique>primary\s+)?key\s+\((?P<key>[^)]*)\)\s+as\s+(?P<query>.*)",
    re.DOTALL | re.IGNORECASE,
)
_REPLACE_ROWS = re.compile(
    rf'(?:/\*.*?\*/\s*)?replace\s+rows\s+of\s+"{PLAIN_SCHEMA}"\."(?P<name>[^"]+)"\s+by\s+(?P<query>.*)',
    re.DOTALL | re.IGNORECASE,
)
"""The statements that only the adapter's own macros make: of a view, of a table that is no model, of a snapshot."""


@dataclass
class LakebedCredentials(Credentials):
    """Where the instance is. ``url`` is a folder, the URL of a store, or that of a service (``http://…``)."""

    url: str = ""
    database: str = DATABASE
    schema: str = PLAIN_SCHEMA
    token: str | None = None
    ca_file: str | None = None
    log_url: str | None = None
    storage_options: dict[str, str] = field(default_factory=dict)

    _ALIASES = {"path": "url"}  # noqa: RUF012 - as the class above has it

    def __post_init__(self) -> None:
        if not self.url:
            raise DbtRuntimeError("url is missing: the folder or URL of an instance, or the URL of a service")
        if self.database != DATABASE:
            raise DbtRuntimeError(f"database = {self.database!r}: an instance is one database, {DATABASE!r}")
        check_schema(self.schema)

    @property
    def type(self) -> str:
        """The name of the adapter."""
        return "lakebed"

    @property
    def unique_field(self) -> str:
        """What names the instance."""
        return self.url

    def _connection_keys(self) -> tuple[str, ...]:
        return ("url", "database", "schema", "log_url")

    def opened(self) -> Any:
        """Return the instance. Raises lakebed.Error."""
        if self.url.startswith(("http://", "https://")):
            return lakebed.connect(self.url, token=self.token, ca_file=self.ca_file)
        return lakebed.open(self.url, storage_options=self.storage_options or None, log_url=self.log_url)


class Cursor:
    """Runs a statement, and has its rows: :class:`lakebed.dbapi.Cursor`, with views and the statements above."""

    def __init__(self, store: Store, cursor: dbapi.Cursor) -> None:
        self._store = store
        self._cursor = cursor
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self.description: list[tuple[Any, ...]] | None = None
        self.affected = -1
        self.done = "OK"

    def execute(self, sql: str, bindings: Any = None) -> None:
        """Run one statement, and read its rows. Raises lakebed.Error, BuildError."""
        self._rows, self.description, self.affected, self.done = iter(()), None, -1, "OK"
        text = _unwrapped(sql)
        if view := _CREATE_VIEW.fullmatch(text):
            self._store.create_view(view["name"], view["query"])
            self.done = "CREATE VIEW"
        elif table := _CREATE_TABLE.fullmatch(text):
            key = Key(tuple(re.findall(r'"([^"]+)"', table["key"])), unique=bool(table["unique"]))
            self.affected = self._store.build(table["name"], key, self._store.query(table["query"]))
            self.done = "CREATE TABLE"
        elif rows := _REPLACE_ROWS.fullmatch(text):
            self.affected = self._store.add(rows["name"], self._store.query(rows["query"]), replace=True)
            self.done = "MERGE"
        elif changes(text):
            report = self._store.change(text, bindings)
            self.affected, self.done = -1 if report.rows is None else report.rows, report.statement
        else:
            self._cursor.execute(self._store.expanded(text), bindings)
            self.description, self.affected = self._cursor.description, self._cursor.rowcount
            if self.description is not None:
                found = self._cursor.fetchall()
                self._rows, self.affected = iter(found), len(found)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that were not fetched yet."""
        return list(self._rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; None after the last one."""
        return next(self._rows, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """Return the next rows."""
        return list(islice(self._rows, size))

    def close(self) -> None:
        """Release the rows."""
        self._cursor.close()


def _unwrapped(query: str) -> str:
    return query.strip().rstrip(";")


class Handle:
    """An open connection."""

    def __init__(self, instance: Any) -> None:
        self.store = Store(instance)
        self._connection = dbapi.connect(instance)

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        return Cursor(self.store, self._connection.cursor())

    def close(self) -> None:
        """Close the connection and the instance."""
        self._connection.close()
        self.store.instance.close()


class LakebedConnectionManager(SQLConnectionManager):
    """Opens a connection for each thread of dbt."""

    TYPE = "lakebed"

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Open the instance of the profile."""
        if connection.state == ConnectionState.OPEN:
            return connection
        try:
            connection.handle = Handle(connection.credentials.opened())
        except lakebed.Error as error:
            connection.state, connection.handle = ConnectionState.FAIL, None
            raise DbtRuntimeError(str(error)) from error
        connection.state = ConnectionState.OPEN
        return connection

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """Raise the errors of Lakebed as those of dbt, with the same text."""
        try:
            yield
        except (lakebed.Error, BuildError) as error:
            self.release()
            raise DbtDatabaseError(str(error)) from error

    @classmethod
    def get_response(cls, cursor: Cursor) -> AdapterResponse:
        """Return what a statement did."""
        rows = max(cursor.affected, 0)
        message = cursor.done if cursor.affected < 0 else f"{cursor.done} {rows}"
        return AdapterResponse(_message=message, code=cursor.done, rows_affected=rows)

    @classmethod
    def data_type_code_to_name(cls, type_code: Any) -> str:
        """Return the name of a column's type."""
        return str(type_code)

    def cancel(self, connection: Connection) -> None:
        """Leave a statement that another thread runs: it ends by itself, and commits all or nothing."""

    def begin(self) -> Connection:
        """Begin nothing: each statement is a commit of its own."""
        return self.get_thread_connection()

    def commit(self) -> Connection:
        """Commit nothing: each statement was committed."""
        return self.get_thread_connection()

    def clear_transaction(self) -> None:
        """End nothing."""
