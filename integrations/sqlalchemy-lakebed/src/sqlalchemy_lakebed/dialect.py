"""The dialect: connections by URL, what reflection finds, and what SQLAlchemy has to know of Lakebed.

Each statement is a commit of its own, so the isolation level is AUTOCOMMIT, and ``rollback`` does nothing: there is
never anything to take back. Reflection reads no rows.

Core. :class:`LakebedDialect`. Errors. Those of :mod:`lakebed.dbapi`, as SQLAlchemy wraps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from sqlalchemy import exc, schema, text
from sqlalchemy.engine import URL, Connection, default
from sqlalchemy.engine.reflection import cache

import lakebed
from lakebed import dbapi
from lakebed.errors import Code, NotFoundError
from sqlalchemy_lakebed.compilers import (
    LakebedCompiler,
    LakebedDDLCompiler,
    LakebedPreparer,
    LakebedTypeCompiler,
)
from sqlalchemy_lakebed.types import GENERIC, type_of

SCHEMA = "tables"
"""The schema of all tables, as in ``information_schema``."""

_LIMITS = {"memory_limit_bytes": int, "timeout_s": float}
"""Arguments of :func:`lakebed.dbapi.connect` that a URL may have in its query; all others are storage options."""


class LakebedDialect(default.DefaultDialect):
    """Lakebed, over a local instance, one on a store, or a service."""

    name = "lakebed"
    driver = "lakebed"
    supports_statement_cache = True

    statement_compiler = LakebedCompiler
    ddl_compiler = LakebedDDLCompiler
    # SQLAlchemy 2.0 has other names for the class and its instance, and takes these from dialects written for 1.4.
    type_compiler = LakebedTypeCompiler
    preparer = LakebedPreparer
    construct_arguments = [(schema.Table, {"key": None, "sort_key": None, "merge": None, "*": None})]  # noqa: RUF012

    colspecs = GENERIC
    default_paramstyle = "qmark"
    max_identifier_length = 128
    supports_alter = False
    supports_comments = False
    supports_default_values = False
    supports_empty_insert = False
    supports_for_update_of = False
    supports_multivalues_insert = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_native_uuid = True
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = True
    supports_sequences = False
    supports_server_side_cursors = False
    postfetch_lastrowid = False
    supports_schemas = False
    tuple_in_values = False
    div_is_floordiv = True

    cte_follows_insert = True

    omit_constraints = False
    """Whether UNIQUE and CHECK are left out of CREATE TABLE, in place of an error."""

    def __init__(
        self,
        omit_constraints: bool | None = None,
        json_serializer: Callable[[Any], str] | None = None,
        json_deserializer: Callable[[str], Any] | None = None,
        **kw: Any,
    ) -> None:
        super().__init__(**kw)
        # The names are those that SQLAlchemy's type JSON asks for.
        self._json_serializer, self._json_deserializer = json_serializer, json_deserializer
        if omit_constraints is not None:
            self.omit_constraints = omit_constraints

    # -- connections --------------------------------------------------------------------------------------------------

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """Return :mod:`lakebed.dbapi`."""
        return dbapi

    dbapi = import_dbapi
    """The same, as SQLAlchemy 1.4 calls it."""

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of :func:`lakebed.dbapi.connect`.

        ``lakebed:///folder`` and ``lakebed:////folder`` are a relative and an absolute path,
        ``lakebed+s3://bucket/lake`` a store, and ``lakebed+https://:TOKEN@host:8017`` a service. Raises ArgumentError
        for any other form.
        """
        _, _, scheme = url.drivername.partition("+")
        options: dict[str, Any] = {name: url.query[name] for name in url.query if name not in _LIMITS}
        arguments: dict[str, Any] = {
            name: _number(name, url.query[name], kind) for name, kind in _LIMITS.items() if name in url.query
        }
        if url.username:
            raise exc.ArgumentError(
                f"user {url.username!r}: there are no users; a token stands in the place of the password, as in "
                "lakebed+https://:TOKEN@host"
            )
        place = "" if url.host is None else url.host if url.port is None else f"{url.host}:{url.port}"
        path = "" if url.database is None else url.database
        if scheme in ("http", "https"):
            if options:
                raise exc.ArgumentError(f"{', '.join(options)}: a service takes no storage options")
            arguments["token"] = url.password
            return [f"{scheme}://{place}{'/' if path else ''}{path}"], arguments
        if url.password is not None:
            raise exc.ArgumentError("a token is for a service (lakebed+https://:TOKEN@host); leave it out")
        if options:
            arguments["storage_options"] = options
        if scheme not in ("", "file"):
            return [f"{scheme}://{place}{'/' if path else ''}{path}"], arguments
        if place:
            raise exc.ArgumentError(
                f"host {place!r}: a folder has none; lakebed:///folder is a relative path, lakebed:////folder absolute"
            )
        # Without a path, connect_args has the URL, or an open instance.
        return [path] if path else [], arguments

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Do nothing: each statement was committed when it returned."""

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        """Run a statement, with the execution option ``lakebed_commit_id``."""
        cursor.execute(statement, parameters, commit_id=_commit_id(context))

    def do_executemany(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        """Run a statement for each set of parameters; an INSERT of plain values is one commit."""
        cursor.executemany(statement, parameters, commit_id=_commit_id(context))

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """Return whether a connection was closed: no other failure ends one, since each request stands alone."""
        return isinstance(e, dbapi.InterfaceError) and e.code is Code.ALREADY_CLOSED

    def get_isolation_level_values(self, dbapi_conn: Any) -> list[Any]:
        """Return the one level that there is."""
        return ["AUTOCOMMIT"]

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        """Return AUTOCOMMIT: each statement is a commit of its own."""
        return "AUTOCOMMIT"

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        """Return AUTOCOMMIT."""
        return "AUTOCOMMIT"

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Do nothing. Raises ArgumentError for any other level, which SQLAlchemy 1.4 does not refuse."""
        if level != "AUTOCOMMIT":
            raise exc.ArgumentError(f"isolation level {level!r}: each statement is its own commit; use 'AUTOCOMMIT'")

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        """Return True."""
        return True

    # -- reflection ---------------------------------------------------------------------------------------------------

    def _get_default_schema_name(self, connection: Connection) -> str:
        return SCHEMA

    def _get_server_version_info(self, connection: Connection) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", lakebed.__version__)[:3])

    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        """Return the one schema."""
        return [SCHEMA]

    def has_schema(self, connection: Connection, schema_name: str, **kw: Any) -> bool:
        """Return whether it is the one schema."""
        return schema_name == SCHEMA

    # The cache of SQLAlchemy 1.4 takes no function that says what it returns.
    @cache
    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any):  # noqa: ANN201
        """Return whether there is a table of that name."""
        with _wrapped_errors(self):
            return _in_schema(schema) and table_name in _instance(connection).tables()

    def has_index(
        self, connection: Connection, table_name: str, index_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Return whether a table has an index of that name."""
        if not self.has_table(connection, table_name, schema, **kw):
            return False
        return any(one["name"] == index_name for one in self.get_indexes(connection, table_name, schema, **kw))

    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Return the names of tables, without views and indexes, sorted."""
        return self._names(connection, schema, "BASE TABLE")

    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Return the names of views, which are tables that a refresh fills."""
        return self._names(connection, schema, "VIEW")

    def get_temp_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Return none: there are no temporary tables."""
        return []

    def get_view_definition(self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any) -> str:
        """Return the query of a view."""
        found = self._described(connection, view_name, schema, **kw)
        if found.query is None:
            raise exc.NoSuchTableError(view_name)
        return found.query

    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> list[Any]:
        """Return the columns, in order."""
        fields = self._described(connection, table_name, schema, **kw).schema.fields
        return [
            {"name": one.name, "type": type_of(one.returned_type), "nullable": one.nullable, "default": None}
            | ({"computed": {"sqltext": one.expression, "persisted": True}} if one.expression else {})
            for one in fields
        ]

    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return the columns of which each row has other values; none where the key may repeat."""
        return {
            "name": None,
            "constrained_columns": list(self._described(connection, table_name, schema, **kw).unique),
        }

    def get_table_options(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return ``lakebed_key``, ``lakebed_sort_key`` and ``lakebed_merge``, as far as the table differs by them."""
        return self._described(connection, table_name, schema, **kw).options

    def get_indexes(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> list[Any]:
        """Return the indexes, by name."""
        indexes = self._described(connection, table_name, schema, **kw).indexes
        return [{"name": name, "column_names": list(columns), "unique": False} for name, columns in indexes.items()]

    def get_foreign_keys(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Return none: there are no such constraints."""
        self._described(connection, table_name, schema, **kw)
        return []

    def get_unique_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Return none: there are no such constraints."""
        self._described(connection, table_name, schema, **kw)
        return []

    def get_check_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Return none: there are no such constraints."""
        self._described(connection, table_name, schema, **kw)
        return []

    def _names(self, connection: Connection, schema: str | None, kind: str) -> list[str]:
        if not _in_schema(schema):
            return []
        query = "SELECT table_name FROM information_schema.tables WHERE table_type = :kind ORDER BY table_name"
        return list(connection.execute(text(query), {"kind": kind}).scalars())

    @cache
    def _described(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any):  # noqa: ANN202
        with _wrapped_errors(self):
            if not _in_schema(schema):
                raise exc.NoSuchTableError(f"{schema}.{table_name}")
            try:
                return _ReflectedTable.of(_instance(connection), table_name)
            except NotFoundError as error:
                raise exc.NoSuchTableError(table_name) from error


def _number(name: str, value: Any, kind: type[int | float]) -> int | float:
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise exc.ArgumentError(f"{name} = {value!r} in the URL: must be a number") from error


def _commit_id(context: Any) -> str | None:
    return None if context is None else context.execution_options.get("lakebed_commit_id")


def _in_schema(schema: str | None) -> bool:
    return schema is None or schema == SCHEMA


def _instance(connection: Connection) -> Any:
    """Return the instance of a connection."""
    return connection.connection.driver_connection.instance  # type: ignore[union-attr]


@contextmanager
def _wrapped_errors(dialect: LakebedDialect) -> Iterator[None]:
    """Raise errors of an instance's methods as those of a statement."""
    try:
        with dbapi.api_errors():
            yield
    except dbapi.Error as error:
        raise exc.DBAPIError.instance(None, None, error, dbapi.Error, dialect=dialect) from error


@dataclass(frozen=True, slots=True)
class _ReflectedTable:
    """What reflection finds of a table.

    ``unique`` are the columns of its primary key, and ``query`` is that of a view.
    """

    schema: lakebed.Schema
    unique: tuple[str, ...]
    options: dict[str, str]
    indexes: dict[str, list[str]]
    query: str | None

    @classmethod
    def of(cls, instance: Any, name: str) -> _ReflectedTable:
        """Return what is known of a table. Raises NotFoundError."""
        table = instance.table(name)
        if hasattr(table, "state"):
            state = table.state()
            found, merge, view = state.created, state.merge.document(), state.view
            query = None if view is None or view.index is not None else view.select
        else:
            described = instance.described(name)
            found, merge, view = table.schema, described["merge"], described["view"]
            query = None if view is None else view.get("select")
        row_key, sort_key = found.row_key_names, tuple(one.name for one in found.sort_key)
        # Rows that are kept all have no unique key; those that are aggregated become one by both keys.
        unique = () if merge is None else row_key + sort_key if merge["mode"] == "aggregate" else row_key
        options = {"lakebed_key": ", ".join(row_key)} if not unique else {}
        if sort_key:
            options["lakebed_sort_key"] = ", ".join(sort_key)
        if unique and merge != _LATEST:
            options["lakebed_merge"] = json.dumps(merge)
        return cls(found, unique, options, instance.indexes(name), query)


_LATEST = lakebed.Latest().document()
