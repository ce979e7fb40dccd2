"""Ctrl-C and SIGTERM on the command line.

The first one is acknowledged at once and raises KeyboardInterrupt, which ends the command in good order. The second
one ends the process and all that it started, without order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

INTERRUPTED = 130
"""The exit code of a command that was interrupted."""

_SHOW_CURSOR = "\x1b[?25h"
_STOPPING = "lakebed: stopping …; again to stop hard\n"
_HARD = (
    "lakebed: stopped hard; `lakebed history` lists what was committed. Files that were written and not committed are "
    "deleted by `lakebed gc`; temporary folders (spark-*, blockmgr-*, lakebed-*) may be left in {folder}\n"
)


def hear_interrupts() -> None:
    """Handle Ctrl-C and SIGTERM as this module says, for the rest of the process. Called in the main thread.

    A process that was started to ignore Ctrl-C, as a shell does in the background, goes on ignoring it.
    """
    heard = 0

    def hear(_number: int, _frame: object) -> None:
        nonlocal heard
        heard += 1
        if heard > 1:
            _stop_hard()
        _say(_STOPPING)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, hear)


@contextlib.contextmanager
def at_a_prompt() -> Iterator[None]:
    """Let Ctrl-C raise a plain KeyboardInterrupt in the block, as often as it comes, and SIGTERM end the process."""
    plain: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.getsignal(number) for number in plain}
    if threading.current_thread() is not threading.main_thread() or signal.SIG_IGN in before.values():
        yield
        return
    for number, handler in plain.items():
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C and SIGTERM from here on: all is done and said, and Python's own end would be disturbed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _say(text: str) -> None:
    # Not through sys.stderr: the signal may have come while that was being written to.
    with contextlib.suppress(OSError):
        os.write(2, text.encode())


def _stop_hard() -> NoReturn:
    # Spark's JVM first: its Python workers end with it.
    for process in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    # A progress bar hides the cursor.
    _say((_SHOW_CURSOR if os.isatty(2) else "") + _HARD.format(folder=tempfile.gettempdir()))
    os._exit(INTERRUPTED)


def _descendants(ancestor: int) -> list[int]:
    """All processes that this one started, and those that they started."""
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    found, left = [], [ancestor]
    while left:
        left += (started := children.get(left.pop(), []))
        found += started
    return found


def _parents() -> list[tuple[int, int]]:
    """Each process with the one that started it."""
    stats = list(Path("/proc").glob("[0-9]*/stat"))
    if not stats:
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)  # noqa: S607 - wherever the system keeps it
        return [(int(process), int(parent)) for process, parent in map(str.split, listed.stdout.splitlines())]
    found = []
    for stat in stats:
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may hold anything.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            found.append((int(stat.parent.name), int(fields[1])))
    return found
