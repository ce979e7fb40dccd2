"""Runs statements: streams their rows, and ends them when the caller disconnects.

A Flight call ends a stream only when the next batch is sent. A statement may take long until its first batch, so
another thread reads it, and the thread of the call checks regularly whether the caller is still connected. One batch is
read ahead; then the statement waits, so a slow caller slows it down and does not fill memory.

Core type: :class:`StatementRuns`. Errors: ContentionError if too many statements run.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyarrow import flight

from lakebed import clock
from lakebed.errors import Code
from lakebed.read.sql.limited import Limits
from lakebed.server.flight.call_errors import call_error
from lakebed.server.flight.kept_statements import KeptStatements
from lakebed.server.security.sql import run_statement
from lakebed.server.service.room import Room, TakenRoom

if TYPE_CHECKING:
    from lakebed.read.sql.spare_workers import SpareWorkers
    from lakebed.server.security.principal import Principal
    from lakebed.table.instance import Instance

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
