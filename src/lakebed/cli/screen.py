"""``lakebed top``: the status of an instance, live in a terminal until q or Ctrl-C is pressed.

The status is read in a thread, so that a key ends the screen at once, even if the store is slow. If the store does not
respond, the last status is shown with the error and its time.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from typing import TYPE_CHECKING

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lakebed import clock
from lakebed.cli import completions
from lakebed.cli.grammar import command
from lakebed.cli.interrupts import handled, listened
from lakebed.cli.invocation import Invocation
from lakebed.cli.render import TextColumns, shown
from lakebed.cli.status import cost_line, next_title, run_columns, step_lines, table_columns, urgent_first
from lakebed.errors import Code, Error
from lakebed.model.json_values import plain
from lakebed.server.service.store_status import status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from lakebed.server.service.store_status import StoreStatus

QUIT = b"qQ\x03\x04"

BESIDE_LINES = 12
"""Lines of the screen that are not tables."""

STEPS_SHOWN = 6
RUNS_SHOWN = 6


@command
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=completions.tables, help="Only these tables.")
@click.option("--every", metavar="SECONDS", type=click.FloatRange(min=0.2), default=2.0, help="Default: 2.")
def top(cli: Invocation, *, tables: tuple[str, ...], every: float) -> None:
    """Show the status live, in a terminal.

    q or Ctrl-C ends it.

    Each refresh reads the store, as `lakebed status` does.
    """
    if cli.out.as_json:
        raise Code.ARGUMENTS_CONFLICT("top is a screen and has no JSON; use `lakebed status --json`")
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise Code.ARGUMENT_INVALID("top needs a terminal; use `lakebed status`")
    instance = cli.instance()
    instance.tables()
    show_live(lambda: status(instance, tables or None), every)


def show_live(read: Callable[[], StoreStatus], every_s: float) -> None:
    """Show what ``read`` returns, read again every few seconds, until a key ends it."""
    reader = _Reader(read, every_s)
    console = Console()
    reader.start()
    try:
        with (
            _signals() as signalled,
            _keys(),
            Live(reader.picture(console), console=console, screen=True, auto_refresh=False) as live,
        ):
            while not (signalled.is_set() or _quit_pressed(min(every_s, 0.2))):
                live.update(reader.picture(console), refresh=True)
    finally:
        reader.stop()


class _Reader:
    """Reads the status repeatedly in a thread."""

    def __init__(self, read: Callable[[], StoreStatus], every_s: float) -> None:
        self._read = read
        self._every_s = every_s
        self._latest: StoreStatus | None = None
        self._failure: str | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        # A daemon thread: an unresponsive store does not keep the process alive.
        threading.Thread(target=self._run, name="lakebed-top", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._latest, self._failure = self._read(), None
            except Error as error:
                self._failure = f"{clock.now():%H:%M:%S} {error.message}"
            except Exception as error:  # noqa: BLE001 - shown on the screen, and tried again
                self._failure = f"{clock.now():%H:%M:%S} {type(error).__name__}: {error}"
            self._ended.wait(self._every_s)

    def picture(self, console: Console) -> RenderableType:
        """Return the contents of the screen."""
        lines = list(self._lines(console.size.width, console.size.height))
        return Group(*lines)

    def _lines(self, width: int, height: int) -> Iterator[RenderableType]:
        found = self._latest
        if self._failure is not None:
            yield Text(f"not read: {shown(self._failure)}", style="bold red", overflow="ellipsis", no_wrap=True)
        if found is None:
            yield Text("reading …" if self._failure is None else "", style="dim")
            return
        yield _line(f"{found.url}   {plain(found.at.replace(microsecond=0))}   q ends", "bold")
        tables = urgent_first(found.tables)
        room = max(3, height - BESIDE_LINES - 2 * bool(found.running) - 2 * bool(found.failed))
        yield from _grid(table_columns(tables[:room]), width)
        if len(tables) > room:
            yield _line(f"… and {len(tables) - room:,} more", "dim")
        for title, runs in (("running", found.running), ("failed last", found.failed)):
            if runs:
                yield _line(title, "bold")
                yield from _grid(run_columns(runs[:RUNS_SHOWN]), width)
        steps = step_lines(tables)
        yield _line(next_title(steps), "bold")
        for step in steps[:STEPS_SHOWN]:
            yield _line(step)
        if len(steps) > STEPS_SHOWN:
            yield _line(f"… and {len(steps) - STEPS_SHOWN:,} more", "dim")
        yield _line(cost_line(found), "dim")


def _line(text: str, style: str = "") -> Text:
    return Text(shown(text), style=style, overflow="ellipsis", no_wrap=True)


def _grid(cells: TextColumns, width: int) -> Iterator[Text]:
    heading, *rows = cells.fitted(width, [])[0]
    yield _line(heading, "dim")
    yield from map(_line, rows)


# -- keys and signals -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set. An exception could be raised where it is only printed, and be lost."""
    signalled = threading.Event()
    with handled(dict.fromkeys(listened(), lambda *_: signalled.set())):
        yield signalled


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Read keys without echo; restores the terminal afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _quit_pressed(timeout_s: float) -> bool:
    """Return whether a key that ends the screen is pressed within this time, or the terminal is gone."""
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    if not ready:
        return False
    pressed = os.read(sys.stdin.fileno(), 64)
    return not pressed or any(key in QUIT for key in pressed)
