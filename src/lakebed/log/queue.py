"""The queue of group commit in one process, and the backoff between processes.

Group commit. The first caller leads: it takes those that wait as its group, commits for them, and passes the lead to
the caller that has waited longest. Each caller sleeps on a lock of its own and is woken once: with its outcome, or to
lead. With one lock for all, those with an outcome would queue with those that commit next, each behind a whole commit
of others. The queue is bounded; a caller that finds it full gets an outcome that says so at once. A caller that is
interrupted, wherever that is, leaves the queue and lets the others go on.

Backoff. Writers of other processes are not known, and nothing correct depends on these waits. The loser of a race waits
a little, with full jitter, and tries again. That alone starves losers: the winner knows the head without a request, is
ready for the next version while the others still read, and wins again for as long as it has anything to commit. So the
winner gives way while others have competed lately, and after each long run of entries, for as long as a loser takes to
read what it missed and append its own.

Turns. Where the backend has turns (:meth:`~lakebed.log.backends.backend.LogBackend.turn`), a process that knows of
other writers waits for its own, reads what they have appended, and appends. No race is lost, and no wait is longer
than the turns of the others. A process that was stopped in its turn holds the others up for ``turn_wait_s``.

Core types. :class:`Queue`, :class:`Ticket`, :class:`CommitBackoff`. No I/O.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Generic

from lakebed import clock
from lakebed.errors import Error, StorageError
from lakebed.log.log_limits import LIMITS
from lakebed.log.outcomes import Crowded
from lakebed.model.state.machine import Proposed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from lakebed.log.outcomes import Outcome

GROUP_MAX = 256
"""Transactions in one entry; bounds its size and the time that the first of a group waits."""

WAIT_S = 0.001
WAIT_MAX_S = 0.05
"""The bounds of the first and of the longest wait of a loser; each may be twice the one before. With a maximum of
500 ms the slowest commits of eight processes took three times as long, and the log was idle meanwhile."""

ABOUT_S = 5.0
"""How long after a lost race other writers are assumed to be active."""

PUT_MAX_S = 0.05
"""A put that took longer did so because the machine is busy; a longer wait would not help the others."""

LOOK_MIN_S = 0.001
LOOK_MAX_S = 0.005
"""Bounds of the period of looking for a turn, which otherwise is as long as a put, most of a turn. With longer periods
writers on a busy disk waited in vain, and then lost races again."""

TURNLESS_S = 10.0
"""How long a writer does without turns after it has waited for one in vain."""

RUN_MAX = 64
RUN_S = 1.0
"""A run is long when it has as many entries *and* took as long. Where a request takes 30 ms, that is 64 entries: giving
way costs a lone writer a twentieth of its time, and a newcomer waits 10 s, not 30. Where one takes less than a
millisecond, newcomers win as soon without it."""


class Ticket(Generic[Proposed]):
    """One caller: its proposal and its outcome; None: no outcome yet. An error means that the proposal was not made.

    A caller sleeps on the lock ``asleep``, unless ``call`` is given. That is then called with the ticket instead, when
    it has its outcome, or is to lead. It must return at once, and must not use the queue. A leader has the
    ``followers`` that it commits for.
    """

    __slots__ = ("_call", "asleep", "followers", "outcome", "proposal")

    def __init__(self, proposal: Proposed, call: Callable[[Ticket[Proposed]], None] | None = None) -> None:
        self.proposal: Proposed = proposal
        self.outcome: Outcome | Error | None = None
        self.followers: Sequence[Ticket[Proposed]] = ()
        self.asleep = threading.Lock()
        self.asleep.acquire()
        self._call = call

    def wake(self) -> None:
        """Called when the ticket has its outcome, or is to lead. A second call has no effect."""
        call, self._call = self._call, None
        if call is not None:
            call(self)
        else:
            with suppress(RuntimeError):  # is awake already
                self.asleep.release()


class Queue(Generic[Proposed]):
    """The tickets that wait. Safe to use from many threads."""

    def __init__(self, waiting_max: Callable[[], int] = lambda: LIMITS.queue_max) -> None:
        self._waiting_max = waiting_max
        self._changing = threading.Lock()
        self._waiting: deque[Ticket[Proposed]] = deque()
        self._leader: Ticket[Proposed] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def commit(self, proposal: Proposed, lead: Callable[[Ticket[Proposed]], None]) -> Outcome:
        """Wait in the queue until the proposal has its outcome; ``lead`` is called if this caller is to lead."""
        ticket = Ticket(proposal)
        try:
            if not self.enter(ticket):
                return Crowded(len(self))
            if self.leads(ticket):
                lead(ticket)
        except BaseException:
            # An interrupt can come anywhere, also before the leader hands on, or while it does.
            self.hand_on(ticket)
            raise
        assert ticket.outcome is not None
        if isinstance(ticket.outcome, Error):
            # Several callers may raise it, each with a separate traceback.
            raise ticket.outcome.restated(ticket.outcome.message)
        return ticket.outcome

    def enter(self, ticket: Ticket[Proposed]) -> bool:
        """Join the queue at its end; False if it is full."""
        with self._changing:
            if len(self._waiting) >= self._waiting_max():
                return False
            self._waiting.append(ticket)
            if self._leader is None:
                self._wake_leader()
        return True

    def leads(self, ticket: Ticket[Proposed]) -> bool:
        """Sleep until this ticket has its outcome, or leads: True."""
        ticket.asleep.acquire()
        return ticket.outcome is None

    def take(self, leader: Ticket[Proposed]) -> Sequence[Ticket[Proposed]]:
        """Return the group: the leader's ticket and those that wait behind it, at most GROUP_MAX in all."""
        with self._changing:
            leader.followers = list(islice(self._waiting, 1, GROUP_MAX))
            group = [leader, *leader.followers]
            for _ in group:
                self._waiting.popleft()
        return group

    def hand_on(self, ticket: Ticket[Proposed], put: Collection[Ticket[Proposed]] = ()) -> None:
        """Leave the queue, and end the lead if this ticket has it: wake its followers that have an outcome, and the
        next leader. Those in ``put`` are woken later. May be repeated, whether it was interrupted or not.

        If the leader failed, its other followers are in front again: each caller meets the error (a damaged log, a
        store that refuses) in its own attempt, unless it was shared.
        """
        with self._changing:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            if self._leader is ticket:
                left = [t for t in ticket.followers if t.outcome is None and t not in put]
                self._waiting.extendleft(t for t in reversed(left) if t not in self._waiting)
                # Another leader may soon give them an outcome that is not yet theirs to read.
                ticket.followers = [t for t in ticket.followers if t not in left]
                self._leader = None
            self._wake_leader()
        self.wake(t for t in ticket.followers if t not in put)

    def wake(self, tickets: Iterable[Ticket[Proposed]]) -> None:
        """Wake those that have an outcome. None of them may be the leader, which is awake."""
        for ticket in tickets:
            if ticket.outcome is not None:
                ticket.wake()

    def _wake_leader(self) -> None:
        """Make the first waiting ticket lead if there is no leader. A leader without a group may be woken again."""
        first = self._waiting[0] if self._waiting else None
        if first is not None and self._leader in (None, first):
            self._leader = first
            first.wake()


def share(group: Iterable[Ticket[Proposed]], error: StorageError) -> None:
    """Give the error of a leader to its whole group if the store does not answer: none of it was proposed.

    If each caller retried on its own, hundreds would wait for hours in the queue.
    """
    if error.facts.get("transient"):
        for ticket in group:
            ticket.outcome = ticket.outcome or error


class CommitBackoff:
    """The waits of one process at one log."""

    def __init__(self) -> None:
        self._about_until_s: float | None = None
        self._turnless_until_s: float | None = None
        self._takes_turns = False
        self._put_s = 0.0
        self._won_s = 0.0
        self._run = 0
        self._run_since_s = 0.0

    def won(self, put_s: float) -> None:
        """Record the duration of the last put, which won."""
        self._put_s = put_s
        self._won_s = clock.monotonic_s()
        if self._run == 0:
            self._run_since_s = clock.monotonic_s()
        self._run += 1

    def lost(self) -> None:
        """Record that the last put lost its version to another writer."""
        self._run = 0
        self.saw_others()

    def saw_others(self) -> None:
        """Record that another writer has appended an entry."""
        self._about_until_s = clock.monotonic_s() + ABOUT_S

    def wants_turn(self) -> bool:
        """Return whether to wait for a turn: other writers have been active, and the last wait succeeded."""
        now_s = clock.monotonic_s()
        if self._about_until_s is None or now_s > self._about_until_s:
            return False
        return self._turnless_until_s is None or now_s > self._turnless_until_s

    def had_turn(self, *, has_turn: bool, others: bool) -> None:
        """Note whether this process got a turn, and whether it then read entries of ``others``."""
        self._takes_turns = has_turn
        if others:
            self.saw_others()
        if not has_turn:
            self._turnless_until_s = clock.monotonic_s() + TURNLESS_S

    @property
    def look_s(self) -> float:
        """The period of looking for a turn."""
        return min(max(self._put_s, LOOK_MIN_S), LOOK_MAX_S)

    def after_losing_s(self, times: int) -> float:
        """Return the wait after `times` lost races in a row."""
        return clock.jitter_s(min(WAIT_MAX_S, WAIT_S * 2 ** min(times, 10)))

    def before_putting_s(self) -> float:
        """Return the wait before the next entry: none if the last is another writer's, or no other writer is active."""
        if self._run == 0:
            return 0.0
        now_s = clock.monotonic_s()
        alone = self._about_until_s is None or now_s > self._about_until_s
        if alone and (self._run < RUN_MAX or now_s - self._run_since_s < RUN_S):
            return 0.0
        self._run = 0
        if self._takes_turns and not alone:
            # Otherwise a process with many waiting callers would take every turn, while others sleep between two
            # checks.
            return max(0.0, self._won_s + self.look_s - now_s)
        put_s = min(self._put_s, PUT_MAX_S)
        return 2 * put_s + clock.jitter_s(2 * put_s)
