"""Handlers that block, in threads.

Litestar's ``sync_to_thread`` does the same, but hides the function's name, by which the OpenAPI document calls its
operations.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio.to_thread

Answer = TypeVar("Answer")


def threaded(function: Callable[..., Answer]) -> Callable[..., Awaitable[Answer]]:
    """The function as a coroutine that runs it in a thread; below a decorator of a route."""

    @functools.wraps(function)
    async def run(**arguments: Any) -> Answer:
        return await anyio.to_thread.run_sync(functools.partial(function, **arguments))

    return run
