"""Commits several proposals without a thread for each: for a service with hundreds of waiting requests.

The proposals join the queue of the log like those of other callers. A leader runs in one of the given threads, so the
number of busy threads is that of entries in progress, however many proposals wait.

Core type. :func:`commit_batch`.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Generic

from lakebed.errors import Code, Error
from lakebed.log.outcomes import Crowded, Outcome
from lakebed.log.queue import Ticket
from lakebed.model.state.machine import Change, Proposed, State
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.log.log import Log


def commit_batch(
    log: Log[State, Proposed, Change], proposals: Sequence[Proposed], threads: Executor
) -> Future[list[Outcome | Error]]:
    """Propose changes, each by itself; the result has the outcomes in their order.

    An error stands for a proposal that is not in the log, and never will be. ``threads`` must outlive the result.
    """
    batch = _BatchTickets(log, len(proposals), threads)
    for proposal in proposals:
        batch.enter(proposal)
    batch.ready()
    return batch.result


class _BatchTickets(Generic[State, Proposed, Change]):
    """The tickets of one call, and the number without an outcome."""

    def __init__(self, log: Log[State, Proposed, Change], count: int, threads: Executor) -> None:
        self.result: Future[list[Outcome | Error]] = Future()
        self._log = log
        self._threads = threads
        self._tickets: list[Ticket[Proposed]] = []
        self._counting = threading.Lock()
        # One more than the tickets, so that the result is not set before all have entered.
        self._left = count + 1

    def enter(self, proposal: Proposed) -> None:
        """Join the queue, or be refused because it is full."""
        span = telemetry.Span("commit", {"table": self._log.identity, "outcome": "error"}, nests=False)
        span.begin()
        ticket = Ticket(proposal, partial(self._woken, span))
        self._tickets.append(ticket)
        if not self._log.local.queue.enter(ticket):
            ticket.outcome = Crowded(len(self._log.local.queue))
            self._end(ticket, span)

    def ready(self) -> None:
        """Decrement the number of tickets without an outcome."""
        with self._counting:
            self._left -= 1
            if self._left:
                return
        self.result.set_result([ticket.outcome for ticket in self._tickets if ticket.outcome is not None])

    def _woken(self, span: telemetry.Span, ticket: Ticket[Proposed]) -> None:
        if ticket.outcome is not None:
            self._end(ticket, span)
        else:
            self._threads.submit(self._lead, ticket, span)

    def _lead(self, ticket: Ticket[Proposed], span: telemetry.Span) -> None:
        try:
            self._log.local.lead(ticket)
        except Error as error:
            # It has an outcome if it may be in the log despite the error.
            ticket.outcome = ticket.outcome or error
        except BaseException as error:
            failed = Code.INTERNAL_ERROR(f"the commit failed: {type(error).__name__}: {error}")
            ticket.outcome = ticket.outcome or failed
            raise
        finally:
            self._end(ticket, span)

    def _end(self, ticket: Ticket[Proposed], span: telemetry.Span) -> None:
        """End the span of a ticket by its outcome."""
        if isinstance(ticket.outcome, Error):
            span.end(ticket.outcome)
        else:
            span.labels["outcome"] = type(ticket.outcome).__name__.lower()
            span.end()
        self.ready()
