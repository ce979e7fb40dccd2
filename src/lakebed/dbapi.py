"""The Python Database API 2.0 (PEP 249): connections and cursors for programs that know no other interface.

    from lakebed import dbapi

    with dbapi.connect("/data/lake") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT origin, count(*) FROM flights WHERE tailnum = ? GROUP BY origin", ["N14228"])
        for origin, count in cursor:
            ...

A connection is a local instance, or a service over HTTP. *Each statement is its own commit*: ``commit`` has nothing to
do, and ``rollback`` raises NotSupportedError, because nothing can be taken back by it. ``executemany`` of an INSERT of
parameters is one write of all rows. Rows arrive as they are read, in batches; ``fetch_arrow_table`` and
``fetch_record_batch`` return the batches themselves.

Parameters are ``?``, in order; a mapping gives those of ``$name``. Type codes in ``Cursor.description`` are the names
of types, as in ``information_schema.columns``; they equal STRING, NUMBER and so on as the API says.

Threads may share a connection, and not a cursor. Errors. Error is :class:`lakebed.Error`; its subclasses here have the
code and the facts of the error that they stand for, which is their cause.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from weakref import WeakSet

from lakebed.engine.change_statements import changes
from lakebed.engine.tokens import tokens_of
from lakebed.errors import Code, Error
from lakebed.model.checks import check_text, check_whole_number, shown

if TYPE_CHECKING:
    from typing import Self, TypeAlias

    import pyarrow as pa

    from lakebed.engine.change_statements import InsertStatement
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.sql.limited import LimitedRows
    from lakebed.table.client.remote_rows import RemoteRows

    Rows: TypeAlias = RowStream | LimitedRows | RemoteRows
    Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

apilevel = "2.0"

threadsafety = 2
"""Threads may share the module and connections."""

paramstyle = "qmark"

# -- errors ---------------------------------------------------------------------------------------------------------


class Warning(Exception):  # noqa: N818 - the API's name
    """Never raised: nothing is cut or rounded in silence."""


class InterfaceError(Error):
    """The connection or cursor is closed, or has no rows to fetch."""


class DatabaseError(Error):
    """The base of all errors of the database."""


class DataError(DatabaseError):
    """A value that does not fit: an overflow, a division by zero, a type that has no such value."""


class OperationalError(DatabaseError):
    """The store, the service, a limit or another writer; the same statement may succeed later."""


class IntegrityError(DatabaseError):
    """A null in a key, or in a column without nulls."""


class InternalError(DatabaseError):
    """Stored bytes are damaged, or Lakebed is at fault."""


class ProgrammingError(DatabaseError):
    """An invalid statement, parameter or name."""


class NotSupportedError(DatabaseError):
    """What Lakebed does not do; the message says what to do instead."""


_BY_KIND: dict[str, type[Error]] = {
    "usage": ProgrammingError,
    "schema_mismatch": DataError,
    "bad_key": DataError,
    "not_found": ProgrammingError,
    "not_retained": OperationalError,
    "exists": ProgrammingError,
    "rejected": OperationalError,
    "access": OperationalError,
    "contention": OperationalError,
    "unknown_outcome": OperationalError,
    "storage": OperationalError,
    "unsafe_store": OperationalError,
    "damaged": InternalError,
    "unsupported_format": NotSupportedError,
    "error": InternalError,
}

_BY_CODE: dict[Code, type[Error]] = {
    Code.ALREADY_CLOSED: InterfaceError,
    Code.ANSWER_LIMIT_EXCEEDED: OperationalError,
    Code.COLUMN_MISSING: ProgrammingError,
    Code.COLUMN_UNEXPECTED: ProgrammingError,
    Code.DATA_FILE_MISSING: InternalError,
    Code.EXPRESSION_FAILED: DataError,
    Code.INSTANCE_NOT_FOUND: OperationalError,
    Code.KEY_NULL: IntegrityError,
    Code.OBJECT_NOT_FOUND: InternalError,
    Code.QUERY_MEMORY_EXCEEDED: OperationalError,
    Code.REMOTE_UNSUPPORTED: NotSupportedError,
    Code.SQL_READ_ONLY: NotSupportedError,
    Code.STATEMENT_KILLED: OperationalError,
    Code.STATEMENT_LIMIT_EXCEEDED: OperationalError,
    Code.TYPE_UNSUPPORTED: DataError,
    Code.VALUE_NULL: IntegrityError,
    Code.WORKER_KILLED: OperationalError,
}
"""Codes of which the class is not that of their kind."""


def _class_of(code: Code) -> type[Error]:
    return _BY_CODE.get(code) or _BY_KIND[code.group]


@contextmanager
def api_errors() -> Iterator[None]:
    """Raise errors of Lakebed as those of the API: for what an adapter calls on :attr:`SqlConnection.instance`."""
    try:
        yield
    except (InterfaceError, DatabaseError):
        raise
    except Error as error:
        raise _class_of(error.code)(error.message, code=error.code, **error.facts) from error


# -- types ----------------------------------------------------------------------------------------------------------

Date, Time, Timestamp, Binary = dt.date, dt.time, dt.datetime, bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802 - the API's name
    """Return the local date of a time in seconds since 1970."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802 - the API's name
    """Return the local time of day of a time in seconds since 1970."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802 - the API's name
    """Return the local time of a time in seconds since 1970, without a zone."""
    return dt.datetime(*time.localtime(ticks)[:6])  # noqa: DTZ001 - the API's own


class TypeGroup:
    """Equals the type codes of a group."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        """Return whether a type code is in the group; the parameters of a type do not matter."""
        return re.split(r"[\[(<]", other)[0] in self._names if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self._names)


STRING = TypeGroup("string", "large_string", "string_view", "json", "uuid")
BINARY = TypeGroup("binary", "large_binary", "binary_view", "fixed_size_binary")
NUMBER = TypeGroup(
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("halffloat", "float", "double"),
    *(f"decimal{bits}" for bits in (32, 64, 128, 256)),
)
DATETIME = TypeGroup("timestamp", "date32", "date64", "time32", "time64")
ROWID = TypeGroup()


def _described(field: pa.Field) -> tuple[str, str, None, None, int | None, int | None, bool]:
    """Return the name of a column, its type code, and its precision, scale and nullability."""
    import pyarrow as pa

    from lakebed.model.type_names import name_of

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    digits = (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (None, None)
    return field.name, name_of(kind), None, None, *digits, field.nullable


# -- connections ----------------------------------------------------------------------------------------------------


class ConnectedInstance(Protocol):
    """What a connection needs of an instance, a local one or that of a service."""

    def table(self, name: str) -> Any:
        """As :meth:`lakebed.Instance.table`."""

    def sql(
        self,
        statement: str,
        *,
        parameters: Parameters | None = None,
        memory_limit_bytes: int | None = None,
        timeout_s: float | None = None,
    ) -> Rows:
        """As :meth:`lakebed.Instance.sql`."""

    def close(self) -> None:
        """As :meth:`lakebed.Instance.close`."""


def connect(
    url: str | os.PathLike[str] | ConnectedInstance,
    *,
    token: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory_limit_bytes: int | None = None,
    timeout_s: float | None = None,
) -> SqlConnection:
    """Return a connection to the instance at a URL: a path, ``s3://…`` and so on, or ``http(s)://…`` of a service.

    ``token`` is for a service, ``storage_options`` for a store, as in :func:`lakebed.connect` and :func:`lakebed.open`.
    What needs other options is opened there, and given in place of the URL; the connection does not close it. The
    limits hold for each statement (:meth:`lakebed.Instance.sql`). No request is made to a service before the first
    statement.

    Raises OperationalError if there is no instance, or the store cannot be read; ProgrammingError for invalid
    arguments.
    """
    with api_errors():
        if not isinstance(url, str | os.PathLike):
            if not hasattr(url, "sql"):
                raise Code.ARGUMENT_INVALID(f"url = {shown(url)}: must be a path, a URL or an open instance")
            _refuse_options(token, storage_options, "an open instance")
            return SqlConnection(url, memory_limit_bytes, timeout_s, owned=False)
        place = str(url)
        if re.match(r"https?://", place):
            from lakebed.table.client.connect import connect as connected

            _refuse_options(None, storage_options, "a service")
            return SqlConnection(connected(place, token=token), memory_limit_bytes, timeout_s, owned=True)
        from lakebed.table.opening import open as opened

        _refuse_options(token, None, "a store")
        return SqlConnection(opened(place, storage_options=storage_options), memory_limit_bytes, timeout_s, owned=True)


def _refuse_options(token: str | None, storage_options: Mapping[str, str] | None, place: str) -> None:
    for name, value in (("token", token), ("storage_options", storage_options)):
        if value is not None:
            raise Code.ARGUMENTS_CONFLICT(f"{name} with {place}: it has no use for it; leave it out")


class SqlConnection:
    """A connection, on which each statement is its own commit."""

    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(
        self, instance: ConnectedInstance, memory_limit_bytes: int | None, timeout_s: float | None, *, owned: bool
    ) -> None:
        """``owned``: the instance is closed with the connection."""
        self._instance: ConnectedInstance | None = instance
        self._limits = {"memory_limit_bytes": memory_limit_bytes, "timeout_s": timeout_s}
        self._owned = owned
        self._lock = threading.Lock()
        self._cursors: WeakSet[Cursor] = WeakSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def instance(self) -> ConnectedInstance:
        """The instance: what SQL does not say is said by its methods. Raises InterfaceError on a closed connection."""
        if self._instance is None:
            raise InterfaceError("the connection is closed; connect again", code=Code.ALREADY_CLOSED)
        return self._instance

    @property
    def autocommit(self) -> bool:
        """True: each statement is its own commit. Setting it to anything else raises NotSupportedError."""
        return True

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        if value is not True:
            raise NotSupportedError(
                f"autocommit = {shown(value)}: each statement is its own commit, which holds when it returns; "
                "leave it True",
                code=Code.ARGUMENT_INVALID,
            )

    def cursor(self) -> Cursor:
        """Return a new cursor. Any number may read at the same time."""
        _ = self.instance
        made = Cursor(self)
        with self._lock:
            self._cursors.add(made)
        return made

    def commit(self) -> None:
        """Do nothing: each statement was committed when it returned."""
        _ = self.instance

    def rollback(self) -> NoReturn:
        """Raise NotSupportedError: each statement was committed when it returned."""
        _ = self.instance
        raise NotSupportedError(
            "there is nothing to roll back: each statement is its own commit. Table.restore (`lakebed restore`) takes "
            "a table back to a version",
            code=Code.SQL_INVALID,
        )

    def close(self) -> None:
        """Close all cursors, and release the instance. May be called again."""
        with self._lock:
            cursors, instance, self._instance = list(self._cursors), self._instance, None
        for one in cursors:
            one.close()
        if instance is not None and self._owned:
            with api_errors():
                instance.close()

    def query(self, statement: str, parameters: Parameters | None) -> Rows:
        """Return the rows of a query."""
        return self.instance.sql(statement, parameters=parameters, **self._limits)  # type: ignore[arg-type]

    def change(self, statement: str, parameters: Parameters | None, commit_id: str | None) -> int:
        """Run a statement that writes, and return the number of rows that it changed; -1 if they are not counted."""
        execute = getattr(self.instance, "execute", None)
        if execute is None:
            raise Code.REMOTE_UNSUPPORTED(
                "statements that write are not there through this service; connect to the instance by its own URL",
                name="execute",
            )
        rows = execute(statement, parameters=parameters, commit_id=commit_id, **self._limits).rows
        return -1 if rows is None else rows


class Cursor:
    """Runs statements, and fetches the rows of the latest; for one thread at a time.

    ``description`` is None after a statement without rows. ``rowcount`` is -1 if it is not known, as for a query, whose
    rows are read while they are fetched. Both stay when the cursor is closed.
    """

    def __init__(self, connection: SqlConnection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: list[tuple[str, str, None, None, int | None, int | None, bool]] | None = None
        self.rowcount = -1
        self._closed = False
        self._stream: Rows | None = None
        self._batch: pa.RecordBatch | None = None
        self._rows: list[tuple[Any, ...]] | None = None
        self._at = 0
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Any, ...]:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def close(self) -> None:
        """End the read, and release its files and memory. May be called again."""
        self._closed = True
        self._end()

    # -- statements -------------------------------------------------------------------------------------------------

    def execute(self, operation: str, parameters: Parameters | None = None, *, commit_id: str | None = None) -> Self:
        """Run a statement, and return this cursor. The rows of the statement before it are dropped.

        ``parameters`` are the values of ``?`` in order, or a mapping for ``$name``. A ``commit_id`` is for a statement
        that changes rows: a repeat, from any process, changes nothing (:meth:`lakebed.Instance.execute`).
        """
        self._begin(operation)
        with api_errors():
            if changes(operation):
                self.rowcount = self._change(operation, _given(parameters), commit_id)
                return self
            if commit_id is not None:
                raise Code.ARGUMENT_INVALID(f"commit_id = {shown(commit_id)} with a query: it changes nothing")
            self._stream = self.connection.query(operation, _given(parameters))
        self.description = [_described(field) for field in self._stream.schema]
        return self

    def executemany(
        self, operation: str, seq_of_parameters: Iterable[Parameters], *, commit_id: str | None = None
    ) -> Self:
        """Run a statement that writes for each set of parameters.

        ``INSERT INTO t (columns) VALUES (?, …)`` is one write of all rows, in one commit, with the ``commit_id`` if it
        is given. Any other statement is run once for each set, each in its own commit: those before one that fails
        stay.
        """
        self._begin(operation)
        with api_errors():
            if not changes(operation):
                raise NotSupportedError(
                    f"executemany of {shown(operation)}: run a query by execute, once for each set of parameters",
                    code=Code.SQL_INVALID,
                )
            insert = _inserted(operation)
            if insert is not None and insert[1] == 1:
                self.rowcount = self._insert(insert[0], list(seq_of_parameters), commit_id)
                return self
            if commit_id is not None:
                raise Code.ARGUMENT_INVALID(
                    f"commit_id = {shown(commit_id)}: {shown(operation)} is a commit for each set of parameters; give "
                    "each its own by execute"
                )
            counts = [self._change(operation, _given(one), None) for one in seq_of_parameters]
            self.rowcount = -1 if -1 in counts else sum(counts)
        return self

    def _change(self, operation: str, parameters: Parameters | None, commit_id: str | None) -> int:
        """Run a statement that writes once, and return the number of rows that it changed; -1 if it is not known."""
        # Values of an INSERT are written as they are: lists and structs have no literal.
        insert = _inserted(operation) if parameters and isinstance(parameters, list | tuple) else None
        if insert is None or not isinstance(parameters, list | tuple) or len(parameters) % insert[1]:
            return self.connection.change(operation, parameters, commit_id)
        width = len(parameters) // insert[1]
        rows = [parameters[at : at + width] for at in range(0, len(parameters), width)]
        return self._insert(insert[0], rows, commit_id)

    def _insert(self, insert: InsertStatement, rows: list[Any], commit_id: str | None) -> int:
        """Write the rows of an INSERT in one commit, and return their number."""
        table = self.connection.instance.table(insert.table)
        names = insert.columns or [one.name for one in table.schema.fields if not one.expression]
        values = insert.query.partition(")")[0].count("?")
        if len(names) != values:
            raise Code.SQL_INVALID(
                f"INSERT INTO {insert.table}: {values} values, and there are {len(names)} columns to fill: "
                f"{', '.join(names)}"
            )
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Sequence) or isinstance(row, str | bytes) or len(row) != values:
                raise Code.ARGUMENT_INVALID(
                    f"parameters {number} = {shown(row)}: must be a list of {values} values, one for each ?"
                )
        if rows:
            # As in SQL, a text is read as a value of its column; all other values are written as they are.
            texts = [name for at, name in enumerate(names) if any(isinstance(row[at], str) for row in rows)]
            table.write([dict(zip(names, row, strict=True)) for row in rows], commit_id=commit_id, casts=texts)
        return len(rows)

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing, as the API allows."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Do nothing, as the API allows."""

    # -- rows -------------------------------------------------------------------------------------------------------

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; None after the last."""
        rows = self._ready()
        if not rows:
            return None
        self._at += 1
        return rows[self._at - 1]

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows, at most ``size`` of them, by default ``arraysize``; an empty list after the last."""
        wanted = self.arraysize if size is None else size
        with api_errors():
            check_whole_number("size", wanted)
        found: list[tuple[Any, ...]] = []
        while len(found) < wanted and (rows := self._ready()):
            taken = rows[self._at : self._at + wanted - len(found)]
            self._at += len(taken)
            found += taken
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all remaining rows."""
        found: list[tuple[Any, ...]] = []
        while rows := self._ready():
            found += rows[self._at :]
            self._at = len(rows)
        return found

    def fetch_record_batch(self) -> RowStream:
        """Return the remaining rows as a stream of Arrow batches, which are not copied. It ends with this cursor."""
        from lakebed.read.rows.row_stream import RowStream

        return RowStream(self._reading().schema, self._batches(), again="run the statement again")

    def fetch_arrow_table(self) -> pa.Table:
        """Return the remaining rows as an Arrow table of the batches that were read, which are not copied."""
        with api_errors():
            return self.fetch_record_batch().read_all()

    # -- within -----------------------------------------------------------------------------------------------------

    def _begin(self, operation: str) -> None:
        self._check_open()
        self._end()
        self.description, self.rowcount = None, -1
        with api_errors():
            check_text("operation", operation)

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed; make another one", code=Code.ALREADY_CLOSED)
        _ = self.connection.instance

    def _reading(self) -> Rows:
        self._check_open()
        if self._stream is None:
            raise InterfaceError("there are no rows: execute a query first", code=Code.ARGUMENT_MISSING)
        return self._stream

    def _end(self) -> None:
        # A thread may read when another one closes the connection: a generator that runs cannot be closed.
        with self._turn, api_errors():
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.close()
        self._batch, self._rows, self._at = None, None, 0

    def _next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch with rows; None after the last. A stream that failed has neither rows nor an end."""
        try:
            with self._turn, api_errors():
                stream = self._reading()
                while (batch := next(stream, None)) is not None and not batch.num_rows:
                    pass
        except Error:
            self._end()
            raise
        return batch

    def _ready(self) -> list[tuple[Any, ...]]:
        """Return the rows of the batch that is being fetched, from ``_at`` on; none after the last batch."""
        self._reading()
        if self._rows is not None and self._at < len(self._rows):
            return self._rows
        if self._rows is not None or self._batch is None:
            self._batch, self._rows, self._at = self._next_batch(), None, 0
        if self._batch is None:
            return []
        from lakebed.model.python_values import python_rows

        # If it fails, the batch can still be fetched as Arrow.
        with api_errors():
            self._rows = python_rows(self._batch)
        return self._rows

    def _batches(self) -> Generator[pa.RecordBatch]:
        batch, at = self._batch, self._at
        self._batch, self._rows, self._at = None, None, 0
        if batch is not None and at < batch.num_rows:
            yield batch.slice(at)
        while (batch := self._next_batch()) is not None:
            yield batch


def _inserted(statement: str) -> tuple[InsertStatement, int] | None:
    """Return the parts of ``INSERT INTO t [(columns)] VALUES (?, …), …``, and the number of its rows.

    None for any other statement, such as one whose rows have other values than parameters.
    """
    from lakebed.engine.change_statements import InsertStatement, parse

    found = parse(statement)
    if not isinstance(found, InsertStatement) or not found.is_values:
        return None
    signs = [token.text for token in tokens_of(found.query)][1:]
    row = ["(", *",".join("?" * signs[: signs.index(")")].count("?")), ")"] if ")" in signs else []
    count = signs.count(")")
    return (found, count) if signs == [*row, *[",", *row] * (count - 1)] else None


def _given(parameters: Any) -> Parameters | None:
    """Return parameters as Lakebed takes them: any sequence but a text is a list."""
    if parameters is None or isinstance(parameters, Mapping | list | tuple | str | bytes):
        return parameters
    return list(parameters)
