"""Standard streams in place of a user's."""

from __future__ import annotations

import io
from typing import TextIO

import pytest


class Terminal(io.StringIO):
    """A terminal: what is typed there, or what it shows."""

    def isatty(self) -> bool:
        return True


def set_stdin(patch: pytest.MonkeyPatch, stream: TextIO) -> None:
    """Read standard input from this stream, for as long as the patch lasts."""
    patch.setattr("sys.stdin", stream)
