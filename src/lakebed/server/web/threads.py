"""Handlers that block, in threads.

Litestar's ``sync_to_thread`` does the same, but hides the function's name, by which the OpenAPI document calls its
operations.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

import anyio.to_thread

Answer = TypeVar("Answer")


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
