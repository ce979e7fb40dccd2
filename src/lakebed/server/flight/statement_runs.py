"""Statements of Flight calls: as handles, as they run, and the errors that end a call.

*Runs.* A Flight call ends a stream only when the next batch is sent. A statement may take long until its first batch,
so another thread reads it, and the thread of the call checks regularly whether the caller is still connected. One batch
is read ahead; then the statement waits, so a slow caller slows it down and does not fill memory.

*Handles.* A prepared statement is its own handle: the SQL and the values bound to its parameters. So a service keeps
nothing between two calls: a handle survives a restart, and any service of the instance accepts it. It grants no rights:
it runs as the principal that sends it. Parameters (``?``, or ``$1`` for the first value) are written into the SQL as
literals before it runs. Drivers need their types before they bind values: JDBC's ``setInt`` refuses a parameter that is
declared as text, and ``setString`` one that is a number. The engine does not report the types that it expects, so they
are derived from the tokens of the statement (:func:`parameter_types`). They only affect what a driver accepts: a value
is bound in its own type.

*Errors.* The class decides the gRPC status, the message begins with the code. PyArrow has no class for two of these
statuses. It makes them of a ValueError and a KeyError, with the traceback in the message; :class:`_Untraced` keeps the
traceback, and with it paths of this machine, away from callers.

=============================  =======================
class                          status
=============================  =======================
AccessError                    UNAUTHENTICATED, PERMISSION_DENIED
NotFoundError                  NOT_FOUND
UsageError, and what an        INVALID_ARGUMENT
object's state refuses
ContentionError, StorageError  UNAVAILABLE
UnknownOutcomeError            DEADLINE_EXCEEDED
any other                      INTERNAL
=============================  =======================

Core types: :class:`StatementRuns`, :class:`Statement`. Errors: ContentionError if too many statements run.
"""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyarrow import flight

from lakebed import clock, errors
from lakebed.engine.compared_columns import PLACE, compared_name, openings
from lakebed.engine.statement_parameters import filled, literal, places
from lakebed.engine.tokens import Token, tokens_of
from lakebed.errors import Code, Error, encode_error
from lakebed.model.documents import UNREADABLE, dump, load
from lakebed.read.sql.limited import Limits
from lakebed.server.flight.kept_statements import KeptStatements
from lakebed.server.security.sql import execute_statement, run_statement
from lakebed.server.service.room import Room, TakenRoom

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.read.sql.spare_workers import SpareWorkers
    from lakebed.server.security.principal import Principal
    from lakebed.table.instance import Instance
    from lakebed.table.statement_run import ChangeReport


_LOG = logging.getLogger("lakebed.flight")


class _Untraced(Exception):  # noqa: N818 - the base of two errors
    """An exception that :mod:`traceback` cannot format: PyArrow then adds only the name of the class, no traceback."""

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise RuntimeError("has no traceback to show")


class InvalidArgument(_Untraced, ValueError):  # noqa: N818 - callers see the name
    """Sent as INVALID_ARGUMENT."""


class NotFound(_Untraced, KeyError):  # noqa: N818 - callers see the name
    """Sent as NOT_FOUND."""


_OWN = (
    (errors.NotFoundError, NotFound),
    ((errors.UsageError, errors.ExistsError, errors.RejectedError), InvalidArgument),
)
_OF_FLIGHT = (
    (errors.AccessError, flight.FlightUnauthorizedError),
    ((errors.ContentionError, errors.StorageError), flight.FlightUnavailableError),
    (errors.UnknownOutcomeError, flight.FlightTimedOutError),
    (Error, flight.FlightInternalError),
)

_CLASSES: tuple[type[Exception], ...] = (flight.FlightError, _Untraced)


def call_error(error: Exception) -> Exception:
    """Return the error that ends a call. Unexpected errors are logged, and their messages are not sent."""
    if isinstance(error, _CLASSES):
        return error
    if not isinstance(error, Error):
        _LOG.error("a Flight call failed", exc_info=error)
        bug: Exception = flight.FlightInternalError("bug: the service failed; its log says why")
        return bug
    text = f"{error.code.value}: {error.message}"
    for kinds, own in _OWN:
        if isinstance(error, kinds):
            return own(text)
    if error.code is Code.NOT_AUTHENTICATED:
        kind = flight.FlightUnauthenticatedError
    else:
        kind = next(cls for kinds, cls in _OF_FLIGHT if isinstance(error, kinds))
    found: Exception = kind(text, dump(encode_error(error)))
    return found


@contextmanager
def call_errors() -> Iterator[None]:
    """Raise exceptions in the block as errors of the call."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - every failure ends the call, and none of them the service
        raise call_error(error) from None


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with parameters, and the values as SQL literals; empty if none are bound."""

    query: str
    values: tuple[str, ...] = ()
    run_id: str = ""
    """Identifies one run of the statement; a prepared statement has none."""

    @property
    def handle(self) -> bytes:
        """Return the statement as bytes; :meth:`of` is the inverse."""
        return dump({"query": self.query, "values": self.values, "run": self.run_id})

    @classmethod
    def of(cls, handle: bytes) -> Statement:
        """Return the statement of a handle. Raises UsageError for invalid bytes."""
        try:
            document = load(handle)
            query, values, run_id = document["query"], document["values"], document["run"]
        except UNREADABLE:
            query, values, run_id = None, None, None
        if not isinstance(values, list) or not all(isinstance(text, str) for text in (query, run_id, *values)):
            raise Code.REQUEST_INVALID("not a handle of this service; prepare the statement again")
        return cls(str(query), tuple(values), str(run_id))

    def run(self, run_id: str) -> Statement:
        """Return one run of the statement."""
        return replace(self, run_id=run_id)

    @property
    def parameters(self) -> int:
        """The number of values that it needs."""
        found = [place.value for place in places(self.query)]
        if names := [name for name in found if isinstance(name, str)]:
            raise Code.SQL_INVALID(f"${names[0]} has a name, and values are bound by position; write ? or $1")
        return max((number for number in found if isinstance(number, int)), default=0)

    def bound(self, rows: pa.Table) -> Statement:
        """Return the statement with the values of a row. Raises UsageError for a wrong number of rows or values."""
        if rows.num_rows != 1:
            raise Code.ARGUMENT_INVALID(
                f"a query takes one row of parameters, and {rows.num_rows:,} were bound; run it once for each row, or "
                "write many rows with bulk ingest"
            )
        return replace(self, values=tuple(literal(column[0]) for column in rows.columns))

    @property
    def sql(self) -> str:
        """The SQL with its values. Raises UsageError unless every parameter has a value."""
        needed = self.parameters
        if needed != len(self.values):
            raise Code.ARGUMENT_INVALID(
                f"the statement has {needed} parameters, and {len(self.values)} values were bound; bind as many"
            )
        return self._filled(self.values)

    @property
    def sql_for_columns(self) -> str:
        """The SQL with NULL for each unbound value, to find the columns of its result."""
        return self._filled(self.values or ("NULL",) * self.parameters)

    def _filled(self, values: Sequence[str]) -> str:
        return filled(self.query, places(self.query), dict(enumerate(values, 1)))


def parameter_types(query: str, schemas: Mapping[str, Schema]) -> list[pa.DataType]:
    """Return the type of each parameter, by its number. ``schemas`` are those of the tables that the caller may read.

    A parameter that is compared with a column (``n = ?``, ``n BETWEEN ? AND ?``, ``n IN (?, ?)``) has the type of the
    column, one of LIMIT and OFFSET is a whole number, and any other is text.
    """
    found = places(query)
    numbers = {place.start: place.value for place in found if isinstance(place.value, int)}
    tokens = list(_with_places(tokens_of(query), numbers, {place.end for place in found}))
    columns = _types_by_name(schemas[name] for name in {one.name for one in tokens} & schemas.keys())
    types: dict[int, set[pa.DataType]] = {number: set() for number in numbers.values()}
    for index, opening in enumerate(openings(tokens)):
        if tokens[index].kind == PLACE:
            types[numbers[tokens[index].start]].add(_type_at(tokens, opening, index, columns))
    last = max(types, default=0)
    return [_only(types.get(number, set())) for number in range(1, last + 1)]


def _with_places(tokens: Iterable[Token], numbers: Mapping[int, int], ends: set[int]) -> Iterable[Token]:
    """Return the tokens with each parameter as one: ``$`` and ``1`` are two."""
    for token in tokens:
        if token.start in numbers:
            yield Token(PLACE, "?", token.start)
        elif not (token.kind == "number" and token.end in ends):
            yield token


def _types_by_name(schemas: Iterable[Schema]) -> dict[str, pa.DataType]:
    """Return the types of the columns whose name has the same type in all the tables."""
    types: dict[str, set[pa.DataType]] = {}
    for schema in schemas:
        for one in schema.fields:
            types.setdefault(one.name, set()).add(one.type)
    return {name: _only(some) for name, some in types.items() if len(some) == 1}


def _only(types: set[pa.DataType]) -> pa.DataType:
    return next(iter(types)) if len(types) == 1 else pa.string()


def _type_at(tokens: Sequence[Token], opening: int, index: int, columns: Mapping[str, pa.DataType]) -> pa.DataType:
    """Return the type of the parameter at this index; text if it cannot be derived."""
    before = tokens[index - 1] if index else None
    if before is not None and (before.says("limit") or before.says("offset")):
        return pa.int64()
    name = compared_name(tokens, opening, index)
    return pa.string() if name is None else columns.get(tokens[name[-1]].name, pa.string())


LOOK_S = 0.1
"""The maximum time until a statement ends after its caller disconnects."""

MEMORY_BYTES, TIME_S = 1024 * 1024 * 1024, 3600.0


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """The limits of one statement, and of all of them together."""

    statement: Limits | None = field(default_factory=lambda: Limits(MEMORY_BYTES, TIME_S))
    """Memory of the process of one statement, and the time from its start to its last row. None: no process."""
    statements_max: int = 16
    """Maximum statements that run at once; one more is refused. One principal gets three quarters of them at most."""
    stall_s: float = 300.0
    """How long a caller may take no rows; then the statement ends."""

    @classmethod
    def of_memory(cls, memory_bytes: int) -> StatementLimits:
        """Return the defaults with another limit on memory."""
        return cls(Limits(memory_bytes, TIME_S))


class StatementRuns:
    """The statements that this service runs for Flight calls. Safe to use from many threads."""

    def __init__(
        self, instance: Instance, limits: StatementLimits, spare: SpareWorkers, share: int | None = None
    ) -> None:
        """``share`` is the number of statements of one principal, as of :class:`Room`."""
        self.room = Room("flight statements", limits.statements_max, share=share, queue_max=0)
        self._instance = instance
        self._spare = spare
        self._limits = limits
        self._lock = threading.Lock()
        self._running: dict[_Run, bytes] = {}
        self._kept = KeptStatements[_Run]()
        self._is_stopped = False

    def columns(self, principal: Principal, statement: str) -> pa.Schema:
        """Return the columns of a statement's result, if no rows are needed."""
        with self._begun(principal, statement, b"") as run:
            return run.schema

    def prepare(self, principal: Principal, statement: str) -> pa.Schema:
        """Return the columns of a statement's result; the plan is kept for :meth:`start`."""
        seen = self._seen(principal, statement)
        run = self._begun(principal, statement, b"")
        schema = run.schema
        self._forget(run)
        self._kept.keep((principal, statement), run, seen)
        if self._is_stopped:
            self._kept.close()
        return schema

    def start(
        self, principal: Principal, statement: str, ticket: bytes, is_cancelled: Callable[[], bool]
    ) -> flight.GeneratorStream:
        """Run a statement for a call with this ticket."""
        kept = self._kept.take((principal, statement), lambda: self._seen(principal, statement))
        if kept is None:
            run = self._begun(principal, statement, ticket)
        else:
            run = kept
            with self._lock:
                self._running[run] = ticket
        try:
            return flight.GeneratorStream(run.schema, _Batches(run, is_cancelled))
        except BaseException:
            run.end()
            raise

    def execute(self, principal: Principal, statement: str) -> ChangeReport:
        """Run a statement that changes something."""
        with self._counted(principal, b""):
            return execute_statement(
                principal,
                self._instance,
                statement,
                lambda query: run_statement(principal, self._instance, query, self._limits.statement, self._spare),
            )

    def cancel(self, tickets: set[bytes]) -> bool:
        """End the statements that run for these tickets; return whether there was one."""
        with self._lock:
            found = [run for run, ticket in self._running.items() if ticket in tickets]
        for run in found:
            run.cancel(flight.FlightCancelledError("the statement was cancelled"))
        return bool(found)

    def running(self) -> int:
        """Return the number of running statements."""
        with self._lock:
            return len(self._running)

    def stop(self) -> None:
        """Refuse new statements, and end those that run."""
        with self._lock:
            self._is_stopped = True
            running = list(self._running)
        self._kept.close()
        for run in running:
            run.cancel(flight.FlightUnavailableError("the service is being stopped; run the statement again"))

    def _begun(self, principal: Principal, statement: str, ticket: bytes) -> _Run:
        """Start a statement and count it as running until its end. Raises ContentionError if there are too many."""
        run = self._counted(principal, ticket)
        try:
            run.reader = run_statement(principal, self._instance, statement, self._limits.statement, self._spare)
        except BaseException:
            run.end()
            raise
        return run

    def _seen(self, principal: Principal, statement: str) -> object:
        """Return the state that determines a statement's result: the catalog, and the versions of its tables."""
        catalog = self._instance.catalog().version
        named = [name for name in principal.visible(self._instance.tables()) if name in statement]
        return catalog, [(name, self._instance.table(name).state().version) for name in named]

    def _counted(self, principal: Principal, ticket: bytes) -> _Run:
        place = self.room.take(principal.name)
        while place is None and self._kept.end_oldest():
            place = self.room.take(principal.name)
        if place is None:
            self.room.refuse()
            raise self.room.full(principal.name)
        run = _Run(partial(self._ended, place), self._limits)
        with self._lock:
            if not self._is_stopped:
                self._running[run] = ticket
                return run
        place.free()
        raise Code.STORE_UNAVAILABLE("the service is being stopped; ask another one, or ask again")

    def _ended(self, place: TakenRoom, run: _Run) -> None:
        place.free()
        self._forget(run)

    def _forget(self, run: _Run) -> None:
        with self._lock:
            self._running.pop(run, None)


class _Run:
    """One running statement: its reader, and the batch read ahead by another thread."""

    def __init__(self, ended: Callable[[_Run], None], limits: StatementLimits) -> None:
        self.reader: pa.RecordBatchReader | None = None
        self.why: Exception | None = None
        self.ready: queue.Queue[pa.RecordBatch | Exception | None] = queue.Queue(1)
        self._ended = ended
        self._has_process = limits.statement is not None
        self._stall_s = limits.stall_s
        self._over = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def schema(self) -> pa.Schema:
        """The columns of its result."""
        assert self.reader is not None
        return self.reader.schema

    def cancel(self, why: Exception) -> None:
        """Make the call end with this error at its next check."""
        self.why = why

    def end(self) -> None:
        """End the process of the statement, and with it the current read. May be called repeatedly."""
        self._over.set()
        if self._has_process and self.reader is not None:
            self.reader.close()
        self._ended(self)

    def read(self) -> None:
        """Read to the end, or until the run is ended."""
        try:
            for batch in self.reader or ():
                if not self._put(batch):
                    break
            self._put(None)
        except Exception as error:  # noqa: BLE001 - raised in the thread of the call
            self._put(error)

    def _put(self, item: pa.RecordBatch | Exception | None) -> bool:
        began_s = clock.monotonic_s()
        while not self._over.is_set():
            with suppress(queue.Full):
                self.ready.put(item, timeout=LOOK_S)
                return True
            if clock.monotonic_s() - began_s > self._stall_s:
                self.cancel(
                    flight.FlightTimedOutError(
                        f"the caller took no rows for {self._stall_s:g} s; run the statement again, and read it to its "
                        "end or close it"
                    )
                )
                self.end()
        return False


class _Batches:
    """The batches of a run, for Flight, which drops this when the call ends, whether it has read any or not."""

    def __init__(self, run: _Run, is_cancelled: Callable[[], bool]) -> None:
        self._run = run
        self._is_cancelled = is_cancelled
        self._end = weakref.finalize(self, run.end)
        threading.Thread(target=run.read, name="lakebed-flight", daemon=True).start()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        while True:
            why = self._run.why
            if why is not None or self._is_cancelled():
                self._end()
                raise why or flight.FlightCancelledError("the caller went away")
            with suppress(queue.Empty):
                item = self._run.ready.get(timeout=LOOK_S)
                break
        if isinstance(item, pa.RecordBatch):
            return item
        self._end()
        if item is None:
            raise StopIteration
        raise call_error(item) from None
