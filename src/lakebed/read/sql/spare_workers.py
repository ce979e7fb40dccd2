"""Spare workers for statements, started in advance, so that the next statement need not wait.

Each worker runs one statement and exits, so no data of one caller is accessible to the next. The first statement starts
its own worker, and the spare ones; each that is taken is replaced at once. Spare workers that no statement took for
:data:`IDLE_S` are ended: a service without statements holds no memory for them.

Core types: :class:`SpareWorkers`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.read.sql.limited import WORKER, StatementWorker

if TYPE_CHECKING:
    from collections.abc import Mapping

SPARE = 2
"""Workers that wait: drivers that prepare a statement first need one for its columns and one for its rows."""

IDLE_S = 300.0


class SpareWorkers:
    """The spare workers of one instance, for one module. Safe to use from many threads."""

    def __init__(self, place: Mapping[str, Any], module: str = WORKER, count: int | None = None) -> None:
        """``count`` workers wait, by default ``SPARE``."""
        self._place = place
        self._count = SPARE if count is None else count
        self._module = module
        self._lock = threading.Lock()
        self._waiting: list[StatementWorker] = []
        self._taken_s = 0.0
        self._is_closed = False

    def take(self) -> StatementWorker:
        """Return a worker without a statement, which no other caller gets. Raises UsageError if none can be started."""
        with self._lock:
            self._taken_s = clock.monotonic_s()
            found = self._waiting.pop(0) if self._waiting else None
        if found is not None and not found.is_alive:
            found.end()
            found = None
        worker = StatementWorker(self._place, self._module) if found is None else found
        threading.Thread(target=self._refill, name="lakebed-spare-workers", daemon=True).start()
        return worker

    def end_idle(self) -> None:
        """End the workers if no statement came for a while."""
        with self._lock:
            is_idle = clock.monotonic_s() - self._taken_s >= IDLE_S
            ended, self._waiting = (self._waiting, []) if is_idle else ([], self._waiting)
        for worker in ended:
            worker.end()

    def close(self) -> None:
        """End the waiting workers; workers that were taken are not affected."""
        with self._lock:
            self._is_closed = True
            ended, self._waiting = self._waiting, []
        for worker in ended:
            worker.end()

    def _refill(self) -> None:
        while True:
            with self._lock:
                if self._is_closed or len(self._waiting) >= self._count:
                    return
                self._waiting.append(StatementWorker(self._place, self._module))
