"""The command line, with a module for each noun or family of commands.

A command parses its arguments, makes one library call, and prints the result. This module imports nothing else before
Ctrl-C is handled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lakebed.cli.interrupts import INTERRUPTED, handle_interrupts

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without ``argv``, that of this process."""
    if argv is None:
        handle_interrupts()
    try:
        # The import takes some time, during which Ctrl-C is already handled.
        from lakebed.cli.run import main as run

        return run(argv)
    except KeyboardInterrupt:
        print("lakebed: interrupted", file=sys.stderr)
        return INTERRUPTED
