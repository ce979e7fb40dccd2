"""How writers of one log take turns though none knows of another: waits only, nothing correct depends on them.

Who loses waits a little, with full jitter, and tries again. That alone starves: who has just won knows the head without
a request, is ready for the next version while the others still read, and wins again for as long as it has anything to
commit. So the winner gives way: while others are about (a race was lost not long ago), and after each long run of
entries, lest it never find out. It waits for as long as a loser takes to read what it missed and put its own.
"""

from __future__ import annotations

from lakebed import clock

WAIT_S = 0.001
WAIT_MAX_S = 0.05
"""The bounds of the first and of the longest wait of a loser; each may be twice the one before. With 500 ms instead of
50 the slowest commits of eight processes took three times as long, and the log stood idle meanwhile."""

ABOUT_S = 5.0
"""How long after a lost race others are taken to be about."""

PUT_MAX_S = 0.05
"""A put that took longer did so because the machine is busy, and to wait the longer for it makes no turns."""

RUN_MAX = 64
RUN_S = 1.0
"""A run is long when it has as many entries *and* took as long. Where a request takes 30 ms, that is 64 entries: giving
way costs a lone writer a twentieth of its time, and who comes to it waits 10 s, not 30. Where one takes less than a
millisecond, newcomers win as soon without, for the winner is as long at its own work as they at reading."""


class CommitBackoff:
    """What one process knows of its turns at one log."""

    def __init__(self) -> None:
        self._about_until_s: float | None = None
        self._put_s = 0.0
        self._run = 0
        self._run_since_s = 0.0

    def won(self, put_s: float) -> None:
        """The last put took so long and won."""
        self._put_s = put_s
        if self._run == 0:
            self._run_since_s = clock.monotonic_s()
        self._run += 1

    def lost(self) -> None:
        """The last put lost its version to another writer."""
        self._run = 0
        self._about_until_s = clock.monotonic_s() + ABOUT_S

    def after_losing_s(self, times: int) -> float:
        """The wait after so many lost races in a row."""
        return clock.jitter_s(min(WAIT_MAX_S, WAIT_S * 2 ** min(times, 10)))

    def before_putting_s(self) -> float:
        """The wait before the next entry: none if the last one in the log is another's, or nobody else writes."""
        if self._run == 0:
            return 0.0
        now_s = clock.monotonic_s()
        alone = self._about_until_s is None or now_s > self._about_until_s
        if alone and (self._run < RUN_MAX or now_s - self._run_since_s < RUN_S):
            return 0.0
        self._run = 0
        put_s = min(self._put_s, PUT_MAX_S)
        return 2 * put_s + clock.jitter_s(2 * put_s)
