"""A progress bar: on a terminal, in a notebook, or as lines in a log file.

It shows the phase of the work, the rows, bytes or tasks done, the rate per second, and the time left if the total is
known. On a terminal a thread redraws it between reports, so that the elapsed time advances. It is never written to
stdout. The thread ends with the block.

Core types: :class:`ProgressBar`.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO

from lakebed import clock
from lakebed.model.wording import count_text, size_text

if TYPE_CHECKING:
    from types import TracebackType

    from rich import progress as rich_progress

BAR_WIDTH = 24
BAR_EVERY_S = 0.1
TICK_S = 0.5
LINE_EVERY_S = 5.0
"""Seconds between lines in a log file: often enough to show that the command is alive, and a night's log stays
short."""
RATE_AFTER_S = 1.0
"""Seconds before the rate and the time left are shown: an earlier rate is that of two rows."""


def is_interactive(stream: TextIO | None = None) -> bool:
    """Return whether the output is interactive: the stream, by default stderr, is a terminal, or this is a notebook."""
    stream = sys.stderr if stream is None else stream
    return stream.isatty() or in_notebook()


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return found is not None and type(found).__name__ == "ZMQInteractiveShell"


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Shows the rows done of all rows, or bytes; used as a ``with`` block, which removes the bar at its end."""

    def __init__(self, what: str, stream: TextIO | None = None, *, in_bytes: bool = False, quiet: bool = False) -> None:
        self._what = what
        self._in_bytes = in_bytes
        self._stream = sys.stderr if stream is None else stream
        self._on_terminal = self._stream.isatty()
        self._in_notebook = not self._on_terminal and in_notebook()
        self._quiet = quiet
        self._bar: rich_progress.Progress | None = None
        self._drawing = threading.RLock()
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None
        self._shown_s: float | None = None
        self._shown_width = 0
        self._has_begun = False
        self._most = 0
        self._done = 0
        self._total: int | None = None
        self._tasks = (0, 0)
        self._phase = ""
        self._before = 0
        self._began_s = self._phase_began_s = clock.monotonic_s()

    def update(self, done: int, total: int | None = None, *, phase: str = "", tasks: tuple[int, int] = (0, 0)) -> None:
        """Report ``done`` rows or bytes, of ``total`` if that is known, and the tasks done of all tasks.

        Each ``phase`` has its own rate and time.
        """
        with self._drawing:
            now = clock.monotonic_s()
            new_phase = phase != self._phase
            if new_phase:
                self._phase, self._phase_began_s, self._before = phase, now, done
            self._done, self._total, self._tasks = done, total, tasks
            self._has_begun = self._has_begun or bool(done or tasks[0])
            if not self._has_begun:
                # The time before the first row, in which Spark starts, is not part of the rate.
                self._began_s = self._phase_began_s = now
            self._most = max(self._most, done)
            if self._quiet:
                return
            live = self._on_terminal or self._in_notebook
            if self._shown_s is None and not live:
                self._shown_s = now
            if self._shown_s is None or (new_phase and live) or now - self._shown_s >= self._every_s:
                self._show(now)
            if self._on_terminal and self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, name="lakebed-progress", daemon=True)
                self._ticker.start()

    @property
    def _every_s(self) -> float:
        return BAR_EVERY_S if self._on_terminal else TICK_S if self._in_notebook else LINE_EVERY_S

    def _tick(self) -> None:
        while not self._ended.wait(TICK_S):
            with self._drawing:
                self._show(clock.monotonic_s())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar, and leave one line with the result; none after an error, or if nothing was done."""
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        if self._bar is not None:
            self._bar.stop()
        if self._shown_width:
            self._stream.write("\r" + " " * self._shown_width + "\r")
        if self._most and kind is None and not self._quiet:
            seconds = max(clock.monotonic_s() - self._began_s, 1e-9)
            rate = f" ({self._rate(self._most, seconds)})" if seconds >= RATE_AFTER_S else ""
            self._stream.write(f"{self._what}: {self._amount(self._most)} in {seconds:.1f} s{rate}\n")
        self._stream.flush()

    def _show(self, now: float) -> None:
        self._shown_s = now
        text = self._text(max(now - self._phase_began_s, 1e-9))
        what = f"{self._what}: {self._phase}" if self._phase else self._what
        if self._on_terminal:
            self._draw(what, text)
        elif self._in_notebook:
            # Overwrites the previous line without widgets, which not every notebook supports.
            line = f"{what}: {text}"
            self._stream.write("\r" + line.ljust(self._shown_width))
            self._shown_width = len(line)
            self._stream.flush()
        else:
            self._stream.write(f"{what}: {text}\n")
            self._stream.flush()

    def _text(self, seconds: float) -> str:
        tasks, all_tasks = self._tasks
        parts = []
        if self._total:
            done = self._amount(self._done).removesuffix("s").removesuffix(" row")
            parts.append(f"{done} of {self._amount(self._total)}")
        elif self._done:
            parts.append(self._amount(self._done))
        elif all_tasks:
            parts.append(f"{tasks:,} of {all_tasks:,} tasks")
        if self._done > self._before and seconds >= RATE_AFTER_S:
            parts.append(self._rate(self._done - self._before, seconds))
        # Relative to the rest at the beginning of the phase.
        left = (self._total or 0) - self._before
        share = (self._done - self._before) / left if left > 0 else tasks / all_tasks if all_tasks else 0
        if 0 < share < 1 and seconds >= RATE_AFTER_S:
            parts.append(f"{_duration(seconds / share - seconds)} left")
        elif self._on_terminal or not parts:
            parts.append(_duration(seconds))
        return ", ".join(parts)

    def _amount(self, done: int) -> str:
        return size_text(done) if self._in_bytes else count_text(done, "row")

    def _rate(self, done: int, seconds: float) -> str:
        rate = done / seconds
        if self._in_bytes:
            return f"{size_text(rate)}/s"
        return f"{rate / 1e6:.2f} M rows/s" if rate >= 1e6 else f"{rate:,.0f} rows/s"

    def _draw(self, what: str, text: str) -> None:
        if self._bar is None:
            self._bar = _bar(what, self._stream)
        (task,) = self._bar.task_ids
        tasks, all_tasks = self._tasks
        done, total = (self._done, self._total) if self._total else (tasks, all_tasks or None)
        self._bar.update(task, description=what, completed=done, total=total, text=text, refresh=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _bar(what: str, stream: TextIO) -> rich_progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    before, after = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[text]"))
    bar = Progress(
        before,
        BarColumn(BAR_WIDTH),
        after,
        console=Console(file=stream),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(what, total=None, text="")
    bar.start()
    return bar
