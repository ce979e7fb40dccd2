"""Counts the requests that this process sent to object stores in the last hour, to estimate their cost.

Core type: :class:`RequestCounts`; :data:`SENT` is the one of this process. A request is counted when it is sent,
whether it succeeds or not; retries by the client are not counted. A local disk takes no requests.
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
    """``puts`` are requests at the price of a put, including lists; ``gets`` read an object or its metadata."""

    puts: int
    gets: int


class RequestCounts:
    """Counts requests by the minute. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._puts: dict[int, int] = {}
        self._gets: dict[int, int] = {}

    def add(self, action: str) -> None:
        """Count a request; ``action`` is its kind, such as ``list``."""
        if action == "delete":
            return
        counts = self._puts if action in _WRITES else self._gets
        minute = int(clock.monotonic_s() // 60)
        with self._lock:
            counts[minute] = counts.get(minute, 0) + 1
            if len(counts) > MINUTES:
                del counts[min(counts)]

    def last_hour(self) -> SentRequests:
        """Return the requests of the last hour, to the minute."""
        first = int(clock.monotonic_s() // 60) - MINUTES
        with self._lock:
            puts, gets = (
                sum(count for minute, count in counts.items() if minute > first) for counts in (self._puts, self._gets)
            )
        return SentRequests(puts, gets)


SENT = RequestCounts()
"""The counts of this process."""
