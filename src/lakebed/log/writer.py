"""Who writes an entry, as a short text for people: nothing decides by it."""

from __future__ import annotations

import os
import platform
from functools import cache

from lakebed.version import VERSION

WRITER_CHARS_MAX = 200


def this_writer() -> str:
    """``lakebed 1.2.3 on host, pid 4711``; asked anew each time, for a fork has another pid."""
    return _writer(os.getpid())


@cache
def _writer(pid: int) -> str:
    host = "".join(c for c in platform.node() if c.isascii() and c.isprintable()) or "?"
    return f"lakebed {VERSION} on {host[:100]}, pid {pid}"[:WRITER_CHARS_MAX]
