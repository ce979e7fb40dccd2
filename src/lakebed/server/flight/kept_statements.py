"""Caches statements that were planned for their columns, for the call that reads their rows.

A driver that prepares a statement makes two requests: for its columns, then for its rows. The plan of the first call is
kept for the second, so that the statement is not planned again in another process. It is taken once, by the same
principal for the same text, and only while the catalog and the tables named in the text are unchanged.

Correctness does not depend on it: a call that finds nothing plans its statement itself. So a ticket may be lost, sent
twice, or sent to another service.

Rules. At most :data:`KEPT_MAX` are kept, each for :data:`KEPT_S` and within the memory limit of one statement.

Core type: :class:`KeptStatements`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

KEPT_S = 5.0
"""Drivers request the rows within milliseconds; a statement that a person prepares by hand is planned twice."""

KEPT_MAX = 4


class Endable(Protocol):
    """A running statement."""

    def end(self) -> None:
        """End it. May be called repeatedly."""


Run = TypeVar("Run", bound=Endable)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Run]):
    run: Run
    seen: object
    timer: threading.Timer


class KeptStatements(Generic[Run]):
    """The cached statements of one service, by principal and text. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _Kept[Run]] = {}
        self.kept_s = KEPT_S

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, asked: Hashable, run: Run, seen: object) -> None:
        """Keep a run in place of one for the same text and principal, or the oldest. It was planned on the state
        ``seen``.
        """
        timer = threading.Timer(self.kept_s, lambda: self._end(asked, run))
        timer.daemon = True
        with self._lock:
            ended = [self._kept.pop(asked)] if asked in self._kept else []
            while len(self._kept) >= KEPT_MAX:
                ended.append(self._kept.pop(next(iter(self._kept))))
            self._kept[asked] = _Kept(run, seen, timer)
        timer.start()
        for one in ended:
            _end(one)

    def take(self, asked: Hashable, seen: Callable[[], object]) -> Run | None:
        """Remove and return the run for a principal and text; None if there is no current one.

        Raises the errors of ``seen``.
        """
        with self._lock:
            found = self._kept.pop(asked, None)
        if found is None:
            return None
        found.timer.cancel()
        is_current = False
        try:
            is_current = found.seen == seen()
        finally:
            if not is_current:
                found.run.end()
        return found.run if is_current else None

    def end_oldest(self) -> bool:
        """End the oldest run; False if there is none."""
        with self._lock:
            found = self._kept.pop(next(iter(self._kept))) if self._kept else None
        if found is not None:
            _end(found)
        return found is not None

    def close(self) -> None:
        """End all."""
        while self.end_oldest():
            pass

    def _end(self, asked: Hashable, run: Run) -> None:
        """End a run whose time is over, unless it was taken or replaced."""
        with self._lock:
            found = self._kept.get(asked)
            if found is None or found.run is not run:
                return
            del self._kept[asked]
        run.end()


def _end(kept: _Kept[Run]) -> None:
    kept.timer.cancel()
    kept.run.end()
