"""How many requests this process sent to object stores in the last hour: what a service costs, its reads included.

Core type: :class:`RequestCounts`; :data:`SENT` is the one of this process. A request is counted where it is sent,
whether it succeeds or not; those that the client repeats by itself count once. A local disk takes no requests.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from lakebed import clock

MINUTES = 60

_WRITES = {"create", "replace", "send", "list"}
"""The first words of actions whose requests cost as much as a put; deletes are free."""


@dataclass(frozen=True, slots=True)
class SentRequests:
    """``puts`` are requests at the price of a put, lists among them; ``gets`` those that read an object or its head."""

    puts: int
    gets: int


class RequestCounts:
    """Counts requests by the minute. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._puts: dict[int, int] = {}
        self._gets: dict[int, int] = {}

    def add(self, action: str) -> None:
        """Count a request; ``action`` is what it does, such as ``list``."""
        if action == "delete":
            return
        counts = self._puts if action in _WRITES else self._gets
        minute = int(clock.monotonic_s() // 60)
        with self._lock:
            counts[minute] = counts.get(minute, 0) + 1
            if len(counts) > MINUTES:
                del counts[min(counts)]

    def last_hour(self) -> SentRequests:
        """The requests of the last hour, to the minute."""
        first = int(clock.monotonic_s() // 60) - MINUTES
        with self._lock:
            puts, gets = (
                sum(count for minute, count in counts.items() if minute > first) for counts in (self._puts, self._gets)
            )
        return SentRequests(puts, gets)


SENT = RequestCounts()
"""Those of this process."""
