"""The libraries whose threads a forked child lacks: the engine, and the client of object stores.

A fork copies the memory of a process, and only the thread that forks. Both libraries run their work on threads that
start with the first use, once a process. A child that is forked later has the library without its threads, and would
wait for them for ever. So every use passes :meth:`Runtime.enter`, which raises an error in such a child. A child that
is forked before the first use starts threads of its own.

Errors: UsageError. Source: fork(2).
"""

from __future__ import annotations

import os

from lakebed.errors import Code


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
