"""The rate and the latency of a service's reads in the last minutes, for the status.

The metrics have the same since the start, by table and kind. Times are counted in steps of a fifth, so a percentile is
at most a fifth above the true one, and memory is bounded. Pure except for the clock.

Core type: :class:`RecentReads`.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from dataclasses import dataclass, field

from lakebed import clock
from lakebed.server.service.status import ReadRates

MINUTES = 5
"""What is shown: the minute that runs, and as many before it."""

KINDS = frozenset({"get", "get_many", "count", "scan", "sql"})
"""Reads by the label ``kind`` of the metrics; others are parts of these."""

_STEPS = 4
"""Steps of time to its double: each is 19% above the one before."""


@dataclass(slots=True)
class _Minute:
    times: Counter[int] = field(default_factory=Counter)
    errors: int = 0


class RecentReads:
    """Counts the reads of this process. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[int, _Minute] = {}
        self._since_s = clock.monotonic_s()

    def add(self, seconds: float) -> None:
        """Count a read that took this long."""
        step = math.ceil(_STEPS * math.log2(max(seconds, 1e-6)))
        with self._lock:
            self._now().times[step] += 1

    def fail(self) -> None:
        """Count a failed read."""
        with self._lock:
            self._now().errors += 1

    def rates(self) -> ReadRates:
        """Return the recent reads."""
        now_s = clock.monotonic_s()
        first = int(now_s // 60) - MINUTES
        with self._lock:
            found = [one for minute, one in self._minutes.items() if minute >= first]
            times = sum((one.times for one in found), Counter[int]())
        window_s = min(now_s - self._since_s, now_s - 60 * first)
        reads = times.total()
        return ReadRates(
            window_s=round(window_s, 1),
            reads=reads,
            errors=sum(one.errors for one in found),
            per_second=round(reads / max(window_s, 1.0), 2),
            p50_s=_percentile(times, reads, 0.5),
            p99_s=_percentile(times, reads, 0.99),
        )

    def _now(self) -> _Minute:
        minute = int(clock.monotonic_s() // 60)
        found = self._minutes.get(minute)
        if found is None:
            found = self._minutes[minute] = _Minute()
            for old in [one for one in self._minutes if one < minute - MINUTES]:
                del self._minutes[old]
        return found


def _percentile(times: Counter[int], reads: int, share: float) -> float | None:
    left = math.ceil(share * reads)
    for step in sorted(times):
        left -= times[step]
        if left <= 0:
            return float(f"{2 ** (step / _STEPS):.2g}")
    return None
