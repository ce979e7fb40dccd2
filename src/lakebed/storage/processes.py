"""Identifies processes by texts that are never reused, and detects whether a process has ended.

Jobs have such a text as their owner, and scratch folders a short one in their names.

*The libraries whose threads a forked child lacks: the engine, and the client of object stores.*

A fork copies the memory of a process, and only the thread that forks. Both libraries run their work on threads that
start with the first use, once a process. A child that is forked later has the library without its threads, and would
wait for them for ever. So every use passes :meth:`Runtime.enter`, which raises an error in such a child. A child that
is forked before the first use starts threads of its own.

Errors: UsageError. Source: fork(2).
"""

from __future__ import annotations

import os
from functools import lru_cache

from lakebed.errors import Code
from lakebed.system import process_identity


class Runtime:
    """The threads of one library in this process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: int | None = None

    def enter(self) -> None:
        """Note that this process uses the library. Raises UsageError if the threads are those of another process."""
        process = os.getpid()
        if self._process is None:
            self._process = process
        elif self._process != process:
            raise Code.PROCESS_FORKED(
                f"process {process} was forked from process {self._process} after that had used {self._name}, whose "
                'threads do not survive a fork: start processes with multiprocessing.get_context("spawn") (or '
                '"forkserver"), or fork before the first use of Lakebed'
            )


ENGINE = Runtime("DataFusion")
"""DataFusion: scans, SQL, predicates, sorts and merges."""

STORE_CLIENT = Runtime("the client of object stores")
"""obstore, except for stores in memory."""


def this_process() -> str:
    """Return the owner text of the calling process; empty if it is unknown.

    ``host:<boot id>:<pid namespace>:<pid>:<start time>``. A pid alone is reused, after a restart and in another
    container; the other parts make it unique. A wrong text wastes work but loses no rows: a job that was closed
    commits nothing.
    """
    return _this_process(os.getpid())


@lru_cache(maxsize=1)
def _this_process(pid: int) -> str:
    # A forked child has another pid. Every write asks, and finding out takes 0.2 ms or more.
    try:
        return _owner(pid)
    except (OSError, IndexError):
        return ""


def owner_mark() -> str:
    """Return a short text for names of folders that says which process they belong to; empty if it is unknown."""
    return _marked(this_process())


def is_mark_gone(mark: str) -> bool:
    """Return whether a mark is of a process of this host and container that has ended. False if that is unknown."""
    parts, mine = mark.split("."), owner_mark().split(".")
    if len(parts) != len(mine) or len(parts) < 2 or parts[:2] != mine[:2]:
        return False
    try:
        return _marked(_owner(int(parts[2]))) != mark
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, IndexError, ValueError):
        return False


def _marked(owner: str) -> str:
    """Return ``<boot>.<pid namespace>.<pid>.<start time>``, the boot by the first digits of its id."""
    if not owner:
        return ""
    _, boot, namespace, pid, start = owner.split(":")
    return f"{boot[:8]}.{namespace.strip('[]')}.{pid}.{start}"


def is_gone(owner: str) -> bool:
    """Return whether the owner was a process of this host and container and has ended. False if that is unknown."""
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
    boot, namespace, start = process_identity(pid)
    return f"host:{boot}:{namespace}:{pid}:{start}"
