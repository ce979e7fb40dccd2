"""Who opened a job: a text that lets a later process on the same host see that its opener is gone.

``host:<boot id>:<pid namespace>:<pid>:<start time>``, read from ``/proc``. A pid alone comes round again, after a
restart and in another container; with the other parts it names one process for ever. Where there is no ``/proc`` the
text is empty, and only a job's deadline releases it.

To be wrong costs work and no rows: a job that was released commits nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_START_TIME_FIELD = 21
"""In /proc/<pid>/stat, counted from 0: clock ticks from boot to the start of the process."""


def this_process() -> str:
    """The owner text of the calling process; empty where that cannot be told."""
    try:
        return _owner(os.getpid())
    except (OSError, IndexError):
        return ""


def is_gone(owner: str) -> bool:
    """Whether the owner was a process of this very host and container and has ended. False if that cannot be told."""
    parts = owner.split(":")
    mine = this_process().split(":")
    if len(parts) != len(mine) or len(parts) < 2 or parts[:3] != mine[:3]:
        return False
    try:
        return _owner(int(parts[3])) != owner
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, IndexError, ValueError):
        return False


def _owner(pid: int) -> str:
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    namespace = (_PROC / "self/ns/pid").readlink().name.removeprefix("pid:")
    # The name of the program, in parentheses, may itself hold blanks and parentheses; it is field 1.
    stat = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if stat[0] in "ZX":
        raise ProcessLookupError(pid)
    return f"host:{boot}:{namespace}:{pid}:{stat[_START_TIME_FIELD - 2]}"
