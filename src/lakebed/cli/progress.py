"""A long command: its progress on stderr, and the pipeline that carries it out.

Progress is a bar of Rich on a terminal, and a line now and then otherwise: rows or bytes, how many a second, and the
time left if the total is known. It never goes to stdout.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from lakebed import clock
from lakebed.cli.render import count_text, size_text
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from types import TracebackType

    from rich import progress as rich_progress

    from lakebed.cli.grammar import Invocation
    from lakebed.spark import Pipeline, Progress

BAR_WIDTH = 24
BAR_EVERY_S = 0.1
LINE_EVERY_S = 5.0
"""In a log file a line every five seconds shows that the command is alive, and a night's work still fits."""


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Shows the rows done of all rows, or bytes; used as a ``with`` block, which removes the bar at its end."""

    def __init__(self, what: str, stream: TextIO | None = None, *, in_bytes: bool = False) -> None:
        self._what = what
        self._in_bytes = in_bytes
        self._stream = sys.stderr if stream is None else stream
        self._on_terminal = self._stream.isatty()
        self._quiet = _is_quiet()
        self._bar: rich_progress.Progress | None = None
        self._began_s = clock.monotonic_s()
        self._shown_s: float | None = None
        self._done = 0
        self._total: int | None = None

    def update(self, done: int, total: int | None = None) -> None:
        """Report ``done`` rows or bytes, of ``total`` if that is known."""
        self._done, self._total = done, total
        if self._quiet:
            return
        now = clock.monotonic_s()
        if not done:
            # The time before the first row, in which Spark starts, does not count for the rate.
            self._began_s = now
        if self._shown_s is None and not self._on_terminal:
            self._shown_s = now
        every = BAR_EVERY_S if self._on_terminal else LINE_EVERY_S
        if self._shown_s is None or now - self._shown_s >= every:
            self._shown_s = now
            self._show(now)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar, and leave one line with the result; none after an error, or if nothing was done."""
        if self._bar is not None:
            self._bar.stop()
        if self._done and kind is None and not self._quiet:
            seconds = max(clock.monotonic_s() - self._began_s, 1e-9)
            text = f"{self._amount(self._done)} in {seconds:.1f} s ({self._rate(seconds)})"
            self._stream.write(f"{self._what}: {text}\n")
        self._stream.flush()

    def _show(self, now: float) -> None:
        seconds = max(now - self._began_s, 1e-9)
        text = f"{self._amount(self._done)}, {self._rate(seconds)}"
        if self._total:
            share = min(1.0, self._done / self._total)
            left = f", {_duration(seconds / share - seconds)} left" if 0 < share < 1 else ""
            done = self._amount(self._done).removesuffix("s").removesuffix(" row")
            text = f"{done} of {self._amount(self._total)}, {self._rate(seconds)}{left}"
        if self._on_terminal:
            self._draw(text)
        else:
            self._stream.write(f"{self._what}: {text}\n")
            self._stream.flush()

    def _amount(self, done: int) -> str:
        return size_text(done) if self._in_bytes else count_text(done, "row")

    def _rate(self, seconds: float) -> str:
        rate = self._done / seconds
        if self._in_bytes:
            return f"{size_text(rate)}/s"
        return f"{rate / 1e6:.2f} M rows/s" if rate >= 1e6 else f"{rate:,.0f} rows/s"

    def _draw(self, text: str) -> None:
        if self._bar is None:
            self._bar = _bar(self._what, self._stream)
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=self._done, total=self._total, text=text, refresh=True)


def _is_quiet() -> bool:
    """Whether the command that runs was given ``--quiet``."""
    context = click.get_current_context(silent=True)
    return context is not None and context.obj.quiet


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _bar(what: str, stream: TextIO) -> rich_progress.Progress:
    """A bar that is drawn when it is updated: no thread of its own, which a fork would lose."""
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


@contextlib.contextmanager
def open_pipeline(cli: Invocation, launcher: str | None = None) -> Iterator[Pipeline]:
    """The pipeline of the instance, with Spark where ``launcher`` says.

    Raises UsageError where PySpark is needed and not installed.
    """
    # Py4J logs what it is about to raise, and one Ctrl-C becomes several tracebacks.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_by_py4j)
    with optional_imports():
        from lakebed.spark import Pipeline

        with Pipeline(cli.instance(), launcher=launcher) as pipeline:
            yield pipeline


def _not_by_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr; yields the function that updates it."""
    with ProgressBar(what) as bar:
        yield lambda progress: bar.update(progress.rows_done, progress.rows_total)
