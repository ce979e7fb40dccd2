"""Standard streams in place of a user's."""

from __future__ import annotations

import io
from typing import TextIO

import pytest

CTRL_C = "\x03"


class Terminal(io.StringIO):
    """A terminal: what is typed there, or what it shows. A line with Ctrl-C interrupts."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:
        line = super().readline(-1 if size is None else size)
        if CTRL_C in line:
            raise KeyboardInterrupt
        return line


def set_stdin(patch: pytest.MonkeyPatch, stream: TextIO) -> None:
    """Read standard input from this stream, for as long as the patch lasts."""
    patch.setattr("sys.stdin", stream)
