"""The command line: a module a noun. A command parses, makes one library call, and renders the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lakebed.cli.interrupts import INTERRUPTED, hear_interrupts

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without ``argv``, that of this process."""
    if argv is None:
        hear_interrupts()
    try:
        # Takes a while, in which Ctrl-C is heard already.
        from lakebed.cli.run import main as run

        return run(argv)
    except KeyboardInterrupt:
        print("lakebed: interrupted", file=sys.stderr)
        return INTERRUPTED
