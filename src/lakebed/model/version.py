"""Which Lakebed this is, and which process runs it. Imports no other module of the package."""

from __future__ import annotations

import os
from functools import cache

VERSION = "0.9.0"

_WRITER_CHARS_MAX = 200


def this_writer() -> str:
    """Return this process as text for people: ``lakebed 1.2.3 on host, pid 4711``. Nothing decides by it."""
    # Not cached without the process id: a forked child has another.
    return _writer(os.getpid())


@cache
def _writer(pid: int) -> str:
    import platform

    host = "".join(c for c in platform.node() if c.isascii() and c.isprintable()) or "?"
    return f"lakebed {VERSION} on {host[:100]}, pid {pid}"[:_WRITER_CHARS_MAX]
