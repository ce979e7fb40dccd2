"""Statements that were planned for their columns, and wait for the call that reads their rows.

A driver that prepares a statement asks twice: for its columns, then for its rows. What was planned for the first call
is kept for the second, so that it need not be planned in another process again. It is taken once, by the same principal
for the same text, and only while the tables that the text names, and the catalog, are as they were when it was planned.

Nothing depends on it: a call that finds nothing here plans its statement itself. So a ticket may be lost, sent twice,
or sent to another service.

Rules. At most :data:`KEPT_MAX` are kept, each for :data:`KEPT_S` and in the memory that one statement may take.

Core type: :class:`KeptStatements`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

KEPT_S = 5.0
"""Drivers ask for the rows within milliseconds; a person who prepares a statement by hand plans it twice."""

KEPT_MAX = 4


class Endable(Protocol):
    """A statement under way."""

    def end(self) -> None:
        """End it. May be called again."""


Run = TypeVar("Run", bound=Endable)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Run]):
    run: Run
    seen: object
    timer: threading.Timer


class KeptStatements(Generic[Run]):
    """The statements of one service that wait, by who asked what. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _Kept[Run]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, asked: Hashable, run: Run, seen: object) -> None:
        """Keep a run, in place of one of the same question, or of the oldest. ``seen`` is what it was planned on."""
        timer = threading.Timer(KEPT_S, lambda: self._end(asked, run))
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
        """The run that was kept for a question, which is then the caller's; None if there is none that is current.

        Raises what ``seen`` raises.
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
        """End the run that waits longest; False if none does."""
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
        """Its time is over, unless it was taken, or another one is in its place."""
        with self._lock:
            found = self._kept.get(asked)
            if found is None or found.run is not run:
                return
            del self._kept[asked]
        run.end()


def _end(kept: _Kept[Run]) -> None:
    kept.timer.cancel()
    kept.run.end()
