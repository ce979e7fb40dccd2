"""How tests wait: for a condition, never for a time.

A slow machine needs longer for everything, so no test counts on what happens within some seconds. The limits here only
end a test that would hang.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

# Within this all comes true that ever will, on a machine with much else to do.
WAIT_S = 300


def until(condition: Callable[[], Found], *, every_s: float = 0.02) -> Found:
    """What the condition returns once that is true; fails if it does not come true."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {WAIT_S} s"
        time.sleep(every_s)
    return found


def join_checkpoints() -> None:
    """Wait for the checkpoints that this process is writing: afterwards its commits change no file any more."""
    for thread in threading.enumerate():
        if thread.name == "lakebed-checkpoint":
            thread.join()


def unclaimed_port() -> int:
    """A port of this machine for a server that starts later, or again.

    It lies below those that the system gives to connections, and to servers that ask for any: one of these may be given
    away before the server listens.
    """
    above = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    # Tests that run at the same time begin at different ones.
    for number in range(above):
        port = above - 1 - (os.getpid() * 37 + number) % (above - 1024)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
