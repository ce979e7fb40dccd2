"""Who waits to commit to one log in this process, in the order of arrival, and who commits for all of them.

The first to come leads: it takes those that wait as its group, commits for them, and hands the lead to whoever waits
longest then. Each caller sleeps on a lock of its own, and is woken once: with its outcome, or to lead. Were all to
sleep on one lock, those who have their outcome would wait in the same line as those who commit next, each behind a
whole commit of others.

The queue is bounded: a caller who finds it full is told so at once, and proposals again when it likes. No I/O here.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic

from lakebed.state.machine import Proposed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lakebed.log.outcomes import Outcome

GROUP_MAX = 256
"""Transactions in one entry; bounds its size and the time that the first of a group waits."""

QUEUE_MAX = 4096
"""Callers that wait at a time: sixteen groups, so half a second where an entry takes 30 ms."""


class Ticket(Generic[Proposed]):
    """One caller: what it proposals, and what became of it; None: nothing yet."""

    __slots__ = ("asleep", "outcome", "proposal")

    def __init__(self, proposal: Proposed) -> None:
        self.proposal: Proposed = proposal
        self.outcome: Outcome | None = None
        self.asleep = threading.Lock()
        self.asleep.acquire()


class Queue(Generic[Proposed]):
    """The tickets that wait. Safe to use from many threads."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._waiting: deque[Ticket[Proposed]] = deque()
        self._leader: Ticket[Proposed] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, ticket: Ticket[Proposed]) -> bool:
        """Wait at the end of the line; False if it is full."""
        with self._changing:
            if len(self._waiting) >= QUEUE_MAX:
                return False
            self._waiting.append(ticket)
            if self._leader is None:
                self._lead_next()
        return True

    def leads(self, ticket: Ticket[Proposed]) -> bool:
        """Sleep until this ticket has its outcome, or leads: True. An interrupt takes it out of the line."""
        try:
            ticket.asleep.acquire()
        except BaseException:
            with self._changing:
                # If it was taken already, its group's leader tells it, and nobody listens.
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                    if self._leader is ticket:
                        self._lead_next()
            raise
        return ticket.outcome is None

    def take(self) -> list[Ticket[Proposed]]:
        """The leader's ticket and those that wait behind it, at most GROUP_MAX in all."""
        with self._changing:
            return [self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting)))]

    def hand_on(self, group: Sequence[Ticket[Proposed]], put: Collection[Ticket[Proposed]] = ()) -> None:
        """End the lead: wake who was told, and who leads next. Those in ``put`` are told and woken later.

        If the leader failed, the others of its group are in front again: an error (a damaged log, a store that
        refuses) is everyone's own to see.
        """
        with self._changing:
            if self._leader is not None and self._leader in self._waiting:
                # Interrupted before it took anyone.
                self._waiting.remove(self._leader)
            left = [t for t in group if t.outcome is None and t is not self._leader and t not in put]
            self._waiting.extendleft(reversed(left))
            self._lead_next()
        self.wake(t for t in group[1:] if t not in put)

    def wake(self, tickets: Iterable[Ticket[Proposed]]) -> None:
        """Wake those that were told. None of them may be a leader, who is awake."""
        for ticket in tickets:
            if ticket.outcome is not None:
                ticket.asleep.release()

    def _lead_next(self) -> None:
        self._leader = self._waiting[0] if self._waiting else None
        if self._leader is not None:
            self._leader.asleep.release()
