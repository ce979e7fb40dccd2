"""Interrupts a call of a pipeline: cancels its tasks, and reports what was committed.

A call runs in a thread of its own while the calling thread waits (:func:`call`). A KeyboardInterrupt reaches only the
waiting thread, so it breaks neither a request to Spark's JVM nor a commit. The waiting thread then asks the call to
stop, and cancels its tasks until the call has ended, as the executor that runs them says (:meth:`Stop.cancelling`).

Core types: :class:`Stop`.

Rules. The call checks :class:`Stop` before its tasks run and before it commits. A commit that has begun is finished.
The KeyboardInterrupt that leaves the call has a note that says what was committed
(:mod:`lakebed.read.inspect.history`). A second KeyboardInterrupt does not wait for the call.

Source: docs/decisions/0033-a-call-runs-in-a-separate-thread.md.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import TypeVar

from lakebed import clock

LOOK_EVERY_S = 0.2
"""Period of looking for an interrupt. A library that replaces the signal handler, as polars does, lets system calls
restart: a wait without an end then goes on until the work has ended, and the interrupt with it."""

CANCEL_EVERY_S = 0.5
"""Period of cancelling: a job that was submitted just after its tag was cancelled is cancelled in the next round."""

T = TypeVar("T")


class Stop:
    """Whether one call was asked to stop, and its ``tag``, by which an executor knows its jobs. Used by all threads of
    the call.
    """

    def __init__(self) -> None:
        self.tag = f"lakebed-{clock.random_token()}"
        self._asked = threading.Event()
        self._cancels: dict[object, Callable[[], object]] = {}

    @property
    def asked(self) -> bool:
        """Whether the call was asked to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask the call to stop."""
        self._asked.set()

    def check(self) -> None:
        """Raise KeyboardInterrupt if the call was asked to stop."""
        if self.asked:
            raise KeyboardInterrupt

    def cancel(self) -> None:
        """Cancel the tasks of the call. Failures are ignored: a session that has ended has no jobs."""
        for cancel in list(self._cancels.values()):
            with contextlib.suppress(Exception):
                cancel()

    @contextlib.contextmanager
    def cancelling(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Have :meth:`cancel` call ``cancel`` during the block. Errors of cancelled tasks become a KeyboardInterrupt.

        Raises KeyboardInterrupt if the call was asked to stop.
        """
        block = object()
        self.check()
        self._cancels[block] = cancel
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            del self._cancels[block]
        self.check()


_current: ContextVar[Stop | None] = ContextVar("lakebed_stop", default=None)


def current_stop() -> Stop:
    """Return the stop of the call that runs in this thread; outside of a call, one that is never asked to stop."""
    return _current.get() or Stop()


def is_in_call() -> bool:
    """Return whether a call runs in this thread."""
    return _current.get() is not None


def stoppable(stop: Stop, work: Callable[[], T]) -> T:
    """Run work that ends when the stop is requested, for callers that run it in their own thread.

    Calls of a pipeline within it are part of it. Raises KeyboardInterrupt if it was stopped.
    """

    def run() -> T:
        _current.set(stop)
        stop.check()
        return work()

    return copy_context().run(run)


def call_thread(run: Callable[[], object]) -> threading.Thread:
    """Return a thread for a call, not started: a daemon, because after a second interrupt not even the end of the
    process waits for it.
    """
    return threading.Thread(target=run, name="lakebed-call", daemon=True)


def call(work: Callable[[], T], thread: Callable[[Callable[[], object]], threading.Thread] = call_thread) -> T:
    """Do the work in a thread of its own, which ``thread`` makes.

    In threads other than the main one, which KeyboardInterrupt does not reach, the work is done in place.
    """
    stop = Stop()
    done: list[T] = []
    raised: list[BaseException] = []
    begun, ended = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        _current.set(stop)
        try:
            # The interrupt may have come while the thread was started.
            stop.check()
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            raised.append(error)
        finally:
            ended.set()

    if threading.current_thread() is not threading.main_thread():
        copy_context().run(run)
    else:
        _wait(thread(functools.partial(copy_context().run, run)), stop, begun, ended)
    if stop.asked:
        # Another error that it raised, such as one of closing jobs, becomes the cause.
        cause = next((error for error in raised if not isinstance(error, KeyboardInterrupt)), None)
        raise KeyboardInterrupt from cause
    if raised:
        raise raised[0]
    return done[0]


def _wait(thread: threading.Thread, stop: Stop, begun: threading.Event, ended: threading.Event) -> None:
    """Wait until the thread has ended. After an interrupt, Thread.join treats a running thread as ended.

    A thread whose start was interrupted may never begin: Python keeps the lock for which it waits.
    """
    try:
        thread.start()
        while not ended.wait(LOOK_EVERY_S):
            pass
    except KeyboardInterrupt:
        stop.ask()
        # A thread that has not begun checks the stop first.
        while begun.is_set() and not ended.is_set():
            stop.cancel()
            ended.wait(CANCEL_EVERY_S)
