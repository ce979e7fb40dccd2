"""How many statements run at once. Each has a process of its own, so memory bounds their number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class StatementSlots:
    """Slots of statements, for the loop of one server; those who find none free wait in order."""

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
