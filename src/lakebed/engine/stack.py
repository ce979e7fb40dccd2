"""Runs code on a thread with a large stack: the engine walks expressions by recursion, on the thread of its caller.

A thread of a host program may have a stack of 256 KiB, and a stack overflow ends the process. A flat statement
(:mod:`lakebed.engine.complexity`) needs no such thread. Objects made on the thread are dropped there as well, because a
deep expression is dropped by recursion.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")

STACK_BYTES = 32 * 1024 * 1024
"""Bytes of a large stack, as address space: untouched pages cost nothing. The deepest accepted text needs 1 MiB of
it."""

_size_lock = threading.Lock()
_END: Any = object()


class DeepStack(AbstractContextManager["DeepStack"]):
    """One thread with a large stack, for the duration of the block."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon thread: after a Ctrl-C the engine may take long to return, and the process can end before.
        thread = threading.Thread(target=_make_calls, args=(self._calls,), name="lakebed-deep", daemon=True)
        with _size_lock:
            # The size is global: a thread started elsewhere meanwhile gets a large stack, too.
            before = threading.stack_size(STACK_BYTES)
            try:
                thread.start()
            finally:
                threading.stack_size(before)

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function on the thread, and return or raise its result."""
        return self.start(function, *args, **kwargs).result()

    def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start the function on the thread, after earlier ones; do not wait."""
        future: Future[T] = Future()
        self._calls.put(partial(_settle, future, partial(function, *args, **kwargs)))
        return future

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the thread end after the work that was started; do not wait."""
        self._calls.put(None)


def on_deep_stack(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the function on a thread of its own with a large stack, and return or raise its result."""
    with DeepStack() as stack:
        return stack.call(function, *args, **kwargs)


def deep_items(items: Generator[T]) -> Generator[T]:
    """Return the items of a generator that has not begun: it runs, and is closed, on a thread with a large stack."""
    with DeepStack() as stack:
        try:
            while (item := stack.call(next, items, _END)) is not _END:
                yield item
        finally:
            stack.start(items.close)


def _make_calls(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        # Dropped here, and not when the next call comes.
        del call


def _settle(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
        # A traceback refers to frames, and frames to objects made here.
        seen: BaseException | None = error
        while seen is not None:
            traceback.clear_frames(seen.__traceback__)
            seen = seen.__cause__ or seen.__context__
        future.set_exception(error)
        # The traceback refers to this frame, too.
        del future, function
