"""Handles Ctrl-C and SIGTERM on the command line.

The first signal is acknowledged at once and raises KeyboardInterrupt, so that the command can clean up. The second one
kills the process and every process that it started, without cleaning up.

Python calls handlers in the main thread, and only between its own instructions: never while the engine computes a join
there. So a thread reads the numbers of the signals as they arrive (``signal.set_wakeup_fd``), and does what the
handlers would, except for raising the exception.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from lakebed.system import process_parents

INTERRUPTED = 130
"""The exit code of a command that was interrupted."""

_SHOW_CURSOR = "\x1b[?25h"
_STOPPING = "lakebed: stopping …; again to stop hard\n"
_HARD = (
    "lakebed: stopped hard; `lakebed history` lists what was committed. Files that were written and not committed are "
    "deleted by `lakebed gc`; temporary folders (spark-*, blockmgr-*, lakebed-*) may be left in {folder}\n"
)


def handle_interrupts() -> None:
    """Handle Ctrl-C and SIGTERM for the rest of the process. Must be called in the main thread.

    A signal that the process was started to ignore, as shells do with Ctrl-C in the background, stays ignored.
    """

    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    for number, handler in _on_signals(interrupt).items():
        signal.signal(number, handler)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    # A child would report its own signals to this process.
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    threading.Thread(target=_watch, args=(read_end,), name="lakebed-signals", daemon=True).start()


@contextlib.contextmanager
def stop_on_signal(stop: Callable[[], object]) -> Iterator[None]:
    """In the block, the first Ctrl-C or SIGTERM calls ``stop`` and interrupts nothing; the second one stops hard."""
    with handled(_on_signals(stop)):
        yield


@contextlib.contextmanager
def at_a_prompt() -> Iterator[None]:
    """In the block, every Ctrl-C raises a plain KeyboardInterrupt, and SIGTERM ends the process."""
    plain: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread() or len(listened()) < len(plain):
        yield
        return
    with handled(plain):
        yield


@contextlib.contextmanager
def handled(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """In the block, signals have these handlers."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listened() -> list[signal.Signals]:
    """Return those of Ctrl-C and SIGTERM that the process was not started to ignore."""
    return [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]


@dataclass
class _Counts:
    """Signals that arrived, those of them whose handler was called, and those acknowledged before it was called."""

    arrived: int = 0
    handled: int = 0
    acknowledged: int = 0

    @property
    def waiting(self) -> int:
        return self.arrived - self.handled


_COUNTS = _Counts()
_PATIENCE_S = 0.5
"""How long a handler may take to be called until the main thread counts as waiting in native code."""


@dataclass(eq=False)
class _Interrupt:
    """Handles signals: the first one calls ``stop``, and the second one stops hard.

    ``arrived`` counts the signals that the thread has seen, ``count`` the calls of the handler.
    """

    stop: Callable[[], object]
    count: int = 0
    arrived: int = 0

    def __call__(self, _number: int, _frame: object) -> None:
        _COUNTS.handled += 1
        self.count += 1
        if self.count > 1:
            _stop_hard()
        if _COUNTS.acknowledged < _COUNTS.handled:
            _say(_STOPPING)
        self.stop()


def _on_signals(stop: Callable[[], object]) -> dict[signal.Signals, Any]:
    """Return handlers of signals: the first signal calls ``stop``, and the second one stops hard."""
    return dict.fromkeys(listened(), _Interrupt(stop))


def _watch(read_end: int) -> None:
    """Acknowledge a signal whose handler is not called, and stop hard at the second one."""
    while True:
        for number in os.read(read_end, 1):
            interrupt = signal.getsignal(number)
            if not isinstance(interrupt, _Interrupt):
                continue
            _COUNTS.arrived += 1
            interrupt.arrived += 1
            again, _, _ = select.select([read_end], [], [], _PATIENCE_S)
            # The first one may have been handled: the command then cleans up, in native code. Python also calls the
            # handler once for two signals that arrive together.
            if _COUNTS.waiting and interrupt.arrived > 1:
                _stop_hard()
            if _COUNTS.waiting and not again:
                _COUNTS.acknowledged = _COUNTS.arrived
                _say(_STOPPING)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C and SIGTERM from here on: the command has ended, and a signal would disturb Python's shutdown."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _say(text: str) -> None:
    # Not through sys.stderr: the signal may have interrupted a write to it.
    with contextlib.suppress(OSError):
        os.write(2, text.encode())


def _stop_hard() -> NoReturn:
    # Spark's JVM comes first; its Python workers end with it.
    for process in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    # A progress bar hides the cursor.
    import tempfile

    _say((_SHOW_CURSOR if os.isatty(2) else "") + _HARD.format(folder=tempfile.gettempdir()))
    os._exit(INTERRUPTED)


def _descendants(ancestor: int) -> list[int]:
    """Return all direct and indirect child processes."""
    children: dict[int, list[int]] = {}
    for process, parent in process_parents():
        children.setdefault(parent, []).append(process)
    found, left = [], [ancestor]
    while left:
        left += (started := children.get(left.pop(), []))
        found += started
    return found
