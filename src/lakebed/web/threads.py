"""Handlers that block, in threads.

Litestar's ``sync_to_thread`` does the same, but hides the function's name, by which the OpenAPI document calls its
operations.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import anyio.to_thread

Answer = TypeVar("Answer")


def threaded(function: Callable[..., Answer]) -> Callable[..., Awaitable[Answer]]:
    """The function as a coroutine that runs it in a thread; below a decorator of a route."""

    @functools.wraps(function)
    async def run(**arguments: Any) -> Answer:
        return await anyio.to_thread.run_sync(functools.partial(function, **arguments))

    return run


LOOKUP_THREADS = 4
"""Lookups hold the interpreter for most of their time: more threads take turns more often, and finish later."""

_LOOKUPS = ThreadPoolExecutor(LOOKUP_THREADS, "lakebed-lookup")


async def run_lookup(function: Callable[..., Answer], *arguments: Any) -> Answer:
    """Run a lookup of one key in one of few threads, in the order of arrival.

    Not for what may take long: others wait behind it.
    """
    return await asyncio.get_running_loop().run_in_executor(_LOOKUPS, function, *arguments)
