"""Requests that wait: for a version of a table, for a time, for their turn. None of them takes a thread meanwhile.

:func:`while_connected` ends a wait when the client has gone, so that it frees what it took. :class:`AwaitedVersions`
looks for the versions of a table once for all requests that wait for one. Errors: NotFoundError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from lakebed import clock
from lakebed.errors import Code
from lakebed.read.snapshot.versions import LOOK_FIRST_S, LOOK_S, WAIT_S, version_missing

if TYPE_CHECKING:
    from litestar import Request

    from lakebed.server.service.room import Room, TakenRoom
    from lakebed.table.table import Table

Answer = TypeVar("Answer")


@asynccontextmanager
async def place_in(
    room: Room, holder: str, request: Request[Any, Any, Any], wait_s: float, size: int = 1
) -> AsyncIterator[TakenRoom]:
    """Wait for a place, as long as the client is there, and hold it until it is freed; an error frees it.

    Raises ContentionError if there is no room in time.
    """
    place = await while_connected(request, partial(_place, room, holder, size, wait_s))
    try:
        yield place
    except BaseException:
        place.free()
        raise


async def _place(room: Room, holder: str, size: int, wait_s: float) -> TakenRoom:
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
        if look is None:
            look = asyncio.ensure_future(self._followed(table, pause_s))
            self._looks[table.id] = look
            look.add_done_callback(lambda _: self._looks.pop(table.id, None))
        # A caller that goes away leaves the look to the others.
        await asyncio.shield(look)

    @staticmethod
    async def _followed(table: Table, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        await anyio.to_thread.run_sync(table.state)
