"""The limits of requests, the threads of those that block, and waits that take none.

Requests wait for a version of a table, for a time, or for their turn without a thread. :func:`while_connected` ends a
wait when the client has gone, so that it frees what it took. :class:`AwaitedVersions` looks for the versions of a table
once for all requests that wait for one. Handlers that block run in threads by :func:`threaded`: Litestar's
``sync_to_thread`` does the same, but hides the function's name, by which the OpenAPI document calls its operations.
:class:`Lookups` has threads for short reads alone. Errors: NotFoundError. Source: docs/service.md.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from lakebed import clock
from lakebed.errors import Code
from lakebed.read.snapshot.versions import LOOK_FIRST_S, LOOK_S, WAIT_S, version_missing
from lakebed.server.service.query_work import QueryLimits

if TYPE_CHECKING:
    from litestar import Request

    from lakebed.server.service.room import Room, TakenRoom
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one request, and of all of them together."""

    request_bytes: int = 256 * 1024 * 1024
    """The body of a request."""
    request_s: float = 60.0
    """For the body of a request to arrive; for an answer, from its begin to its end."""
    answer_rows: int = 10_000_000
    answer_bytes: int = 16 * 1024 * 1024 * 1024
    sql_memory_bytes: int = 1024 * 1024 * 1024
    """What the process of one SQL statement may take."""
    sql_statements: int = 4
    """Statements that run at once; others wait."""
    answer_memory_bytes: int = 1024 * 1024 * 1024
    """What all open answers may hold; others wait. Those of statements are bounded by their number."""
    wait_s: float = 10.0
    """How long a request waits for room."""
    query_s: float = 6 * 3600.0
    """A submitted statement."""
    query_kept_s: float = 86_400.0
    """How long a submitted query and its rows are kept."""
    query_threads: int = 2
    """Submitted queries that run at once."""
    threads: int = 32
    """Requests that work at once; others wait."""
    sources: tuple[str, ...] = ()
    """Places that may be read for ingest, and written for results, with the service's credentials."""

    def of_queries(self) -> QueryLimits:
        """Return the limits of submitted queries."""
        return QueryLimits(self.query_threads, self.query_kept_s, self.sql_memory_bytes, self.query_s)


Answer = TypeVar("Answer")


@asynccontextmanager
async def place_in(
    room: Room, holder: str, request: Request[Any, Any, Any], wait_s: float, size: int = 1
) -> AsyncIterator[TakenRoom]:
    """Wait for a place, as long as the client is there, and hold it until it is freed; an error frees it.

    Raises ContentionError if there is no room in time.
    """
    place = await while_connected(request, partial(wait_for_place, room, holder, size, wait_s))
    try:
        yield place
    except BaseException:
        place.free()
        raise


async def wait_for_place(room: Room, holder: str, size: int, wait_s: float) -> TakenRoom:
    """Wait for a place. Raises ContentionError if there is no room in time."""
    asked = room.ask(holder, size)
    try:
        with anyio.fail_after(wait_s):
            return await asyncio.wrap_future(asked)
    except BaseException as error:
        if not asked.cancel():
            # It was given at the same moment.
            asked.result().free()
        if isinstance(error, TimeoutError):
            room.refuse()
            raise room.full(holder) from None
        raise


async def while_connected(request: Request[Any, Any, Any], work: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return what the work returns. Ends it, and raises UsageError, when the client closes the connection.

    The body of the request has been received, if there is one.
    """
    found: list[Answer] = []
    failed: list[Exception] = []

    async def run() -> None:
        try:
            found.append(await work())
        except Exception as error:  # noqa: BLE001 - raised below, outside of the group, which would wrap it
            failed.append(error)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while (await request.receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not found:
        raise Code.ALREADY_CLOSED("the client closed the connection")
    return found[0]


class AwaitedVersions:
    """Waits for versions of tables. For one event loop."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._looks: dict[str, asyncio.Future[None]] = {}

    async def wait(self, table: Table, at: str | None, at_least: int | None) -> None:
        """Wait until a read of the table ``at`` a moment, and of ``at_least`` a version, need not wait.

        Raises NotFoundError if the version does not come.
        """
        if at is not None and (seconds := await anyio.to_thread.run_sync(table.versions.seconds_until, at)):
            await anyio.sleep(seconds)
        began, pause = clock.monotonic_s(), 0.0
        while at_least is not None and table.log.head.version < at_least:
            if clock.monotonic_s() - began >= self._wait_s:
                raise version_missing(table.log.head.version, at_least, self._wait_s)
            await self._look(table, pause)
            pause = min(max(LOOK_FIRST_S, 2 * pause), LOOK_S)

    async def _look(self, table: Table, pause_s: float) -> None:
        """Follow the log of the table once, after a pause; one look at a time is for all that wait."""
        look = self._looks.get(table.id)
        # One that has just ended is still there, and to wait for it would not let the loop forget it.
        if look is None or look.done():
            look = asyncio.ensure_future(self._followed(table, pause_s))
            self._looks[table.id] = look
            look.add_done_callback(partial(self._forget, table.id))
        # A caller that goes away leaves the look to the others.
        await asyncio.shield(look)

    def _forget(self, table_id: str, look: asyncio.Future[None]) -> None:
        if self._looks.get(table_id) is look:
            del self._looks[table_id]

    @staticmethod
    async def _followed(table: Table, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        await anyio.to_thread.run_sync(table.state)


def threaded(function: Callable[..., Answer]) -> Callable[..., Awaitable[Answer]]:
    """Return the function as a coroutine that runs it in a thread; below a decorator of a route."""

    @functools.wraps(function)
    async def run(**arguments: Any) -> Answer:
        return await anyio.to_thread.run_sync(functools.partial(function, **arguments))

    return run


LOOKUP_THREADS = 4
"""On a local disk. Lookups hold the interpreter for most of their time: more threads take turns more often, and finish
later."""

REMOTE_LOOKUP_THREADS = 32
"""On other stores lookups wait for answers for most of their time."""


class Lookups:
    """Threads for lookups of one key, in the order of arrival; not for what may take long, since others wait behind it.

    For one event loop. Its own futures take less time than those of an executor, which have locks for many threads.
    """

    def __init__(self, threads: int) -> None:
        """``threads`` work at most at a time."""
        self._work: queue.SimpleQueue[_Lookup | None] = queue.SimpleQueue()
        self._threads_max = threads
        self._started = 0

    def close(self) -> None:
        """End the threads, after the lookups that were asked for."""
        for _ in range(self._started):
            self._work.put(None)

    async def run(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return what the function returns, or raises, in one of the threads."""
        if self._started < self._threads_max:
            self._started += 1
            threading.Thread(target=self._do, name=f"lakebed-lookup-{self._started}", daemon=True).start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._work.put((loop, future, functools.partial(copy_context().run, function, *arguments)))
        return await future

    def _do(self) -> None:
        while (lookup := self._work.get()) is not None:
            loop, future, call = lookup
            try:
                settle = functools.partial(future.set_result, call())
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                settle = functools.partial(future.set_exception, error)
            # A loop that has ended waits for nothing.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, settle)
            # Until the next lookup comes, this thread would keep the rows.
            del lookup, future, call, settle


_Lookup = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]


def _settle(future: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not future.done():
        settle()
