"""Limits of requests, and of concurrent statements.

Core types: :class:`RequestLimits`, the values; :class:`StatementSlots`, which lets some statements run at once, and
others wait in order. A slot is held until the last row of an answer is sent, since the process of the statement lives
that long. Source: docs/service.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lakebed.service.query_work import QueryLimits


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


class StatementSlots:
    """Slots of statements, for the loop of one server; statements wait in order for a free slot.

    Each statement has a process of its own, so memory bounds their number.
    """

    def __init__(self, count: int) -> None:
        self._slots = asyncio.Semaphore(count)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Slot]:
        """Hold a slot until :meth:`Slot.free`; an error in the block frees it."""
        await self._slots.acquire()
        slot = Slot(self._slots)
        try:
            yield slot
        except BaseException:
            slot.free()
            raise


class Slot:
    """A slot that a statement holds."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots: asyncio.Semaphore | None = slots
        self._loop = asyncio.get_running_loop()

    def free(self) -> None:
        """Let the next statement run; from any thread, and more than once."""
        slots, self._slots = self._slots, None
        if slots is not None:
            self._loop.call_soon_threadsafe(slots.release)
