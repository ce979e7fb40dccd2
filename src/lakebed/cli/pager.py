"""A pager for output that is longer than the terminal.

Lines are kept until they exceed the screen; then a pager is started and receives these and all later lines. Shorter
output is printed as it is.

Not Click's pager, which starts before the first line: Ctrl-C would then go to the pager, and not end a read that is
slow to find its first row. An error also ends it, before the lines above the error are seen.

The pager is ``LAKEBED_PAGER``, else ``PAGER``, else ``less``; a variable that is empty, or ``cat``, stands for none.
``less`` shows colours, leaves the last screen, and cuts long lines (``LESS=FRSX``) unless the variable ``LESS`` is set.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

VARIABLES = ("LAKEBED_PAGER", "PAGER")
_DEFAULT = "less"
_LINES_BESIDE = 2
"""The prompt before the command and the one after it."""


def pager_command() -> list[str]:
    """Return the words of the pager's command line; empty if there is none."""
    given = next((os.environ[name] for name in VARIABLES if name in os.environ), _DEFAULT)
    words = shlex.split(given)
    return words if words and words != ["cat"] and shutil.which(words[0]) else []


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """In the block, output to stdout is shown in a pager if stdout is a terminal and the output exceeds the screen.

    When the user leaves the pager, the next write raises BrokenPipeError.
    """
    command = pager_command() if sys.stdout.isatty() else []
    if not command:
        yield
        return
    stdout = sys.stdout
    pages = _PagedText(command, shutil.get_terminal_size().lines - _LINES_BESIDE)
    sys.stdout = pages
    try:
        yield
    finally:
        sys.stdout = stdout
        pages.end()


class _PagedText(io.StringIO):
    """A stdout that keeps its text until a pager takes it."""

    def __init__(self, command: list[str], lines_max: int) -> None:
        super().__init__()
        self._command = command
        self._left = lines_max
        self._process: subprocess.Popen[str] | None = None
        self._before: object = None

    def isatty(self) -> bool:
        """True: what is printed is for the terminal."""
        return True

    def write(self, text: str) -> int:
        """Keep the text, or pass it to the pager."""
        if self._process is None:
            self._left -= text.count("\n")
            if self._left >= 0:
                return super().write(text)
            self._start()
        return self._to_pager().write(text)

    def flush(self) -> None:
        """Pass on what the pager has not yet."""
        if self._process is not None:
            self._to_pager().flush()

    def end(self) -> None:
        """Print what was kept, or wait until the user leaves the pager."""
        if self._process is None:
            sys.stdout.write(self.getvalue())
            sys.stdout.flush()
            return
        with contextlib.suppress(BrokenPipeError):
            self._to_pager().close()
        self._process.wait()
        signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _start(self) -> None:
        environment = {"LESS": "FRSX"} | os.environ
        self._process = subprocess.Popen(  # noqa: S603 - the command that the user names
            self._command, stdin=subprocess.PIPE, env=environment, text=True, encoding="utf-8"
        )
        # The pager now handles Ctrl-C; the user leaves it with q.
        self._before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._to_pager().write(self.getvalue())

    def _to_pager(self) -> io.TextIOWrapper:
        assert self._process is not None
        stream = self._process.stdin
        assert isinstance(stream, io.TextIOWrapper)
        return stream
