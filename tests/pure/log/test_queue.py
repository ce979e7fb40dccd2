"""The queue of callers that wait to commit, and how the writers of one log take turns."""

import threading
from functools import partial

import pytest

from lakebed.log import queue as log_queue
from lakebed.log.outcomes import Committed, Unknown
from lakebed.log.queue import ABOUT_S, RUN_MAX, RUN_S, TURNLESS_S, WAIT_MAX_S, CommitBackoff, Queue, Ticket
from tests.clocks import set_clock
from tests.interrupts import interrupted_at
from tests.waiting import WAIT_S, until


def lined_up(count):
    """A queue with so many tickets, of which the first leads."""
    queue, tickets = Queue(), [Ticket(number) for number in range(count)]
    assert all(queue.enter(ticket) for ticket in tickets)
    return queue, tickets


def test_a_caller_with_an_outcome_wakes_while_the_next_one_leads():
    """No caller that has an outcome waits for a commit of others."""
    queue, tickets = lined_up(3)
    assert queue.leads(tickets[0])
    group = queue.take(tickets[0])
    late = Ticket("late")
    queue.enter(late)
    for ticket in group:
        ticket.outcome = Committed(7)
    queue.hand_on(tickets[0])
    assert queue.leads(late)
    assert [queue.leads(ticket) for ticket in tickets[1:]] == [False, False]


def test_after_a_leader_that_failed_the_others_try_for_themselves_in_order():
    queue, tickets = lined_up(3)
    queue.leads(tickets[0])
    queue.take(tickets[0])
    queue.hand_on(tickets[0])
    assert queue.leads(tickets[1])
    assert queue.take(tickets[1]) == tickets[1:]


@pytest.mark.parametrize("interrupted", [0, 1])
def test_a_caller_that_is_interrupted_while_it_waits_keeps_no_other_waiting(interrupted):
    queue, tickets = lined_up(3)
    queue.hand_on(tickets.pop(interrupted))
    assert queue.leads(tickets[0])
    assert queue.take(tickets[0]) == tickets


def test_to_hand_on_once_more_wakes_no_caller_without_an_outcome():
    """The second leader has put its group, and does not know yet whether it is in the log."""
    queue, tickets = lined_up(3)
    queue.leads(tickets[0])
    queue.take(tickets[0])
    queue.hand_on(tickets[0])
    queue.leads(tickets[1])
    for ticket in queue.take(tickets[1]):
        ticket.outcome = Unknown(7)
    queue.hand_on(tickets[0])
    assert tickets[2].asleep.locked()


def test_an_interrupt_at_any_call_of_a_commit_leaves_no_caller_waiting():
    """The interrupted one leads, two others wait behind it in threads of their own, and one comes later."""
    place, interrupted = 0, True
    while interrupted:
        queue, outcomes = Queue(), []
        *others, late = [
            threading.Thread(target=_commit, args=(queue, outcomes, number), daemon=True) for number in (1, 2, 3)
        ]
        interrupted = interrupted_at(place, partial(_commit, queue, outcomes, 0, others), [log_queue])
        _enter(queue, others)
        late.start()
        for thread in (*others, late):
            thread.join(WAIT_S)
            assert not thread.is_alive(), place
        assert {1, 2, 3} <= {outcome.version for outcome in outcomes}, place
        assert len(queue) == 0, place
        place += 1
    assert place > 20


def _commit(queue, outcomes, number, others=()):
    def lead(ticket):
        _enter(queue, others)
        try:
            for one in queue.take(ticket):
                one.outcome = Committed(one.proposal)
        finally:
            queue.hand_on(ticket)

    outcomes.append(queue.commit(number, lead))


def _enter(queue, others):
    """Start the others that have not been started, and wait until they are in the queue, or done."""
    for thread in others:
        if thread.ident is None:
            thread.start()
    until(lambda: len(queue._waiting) == 1 + len(others) or not any(thread.is_alive() for thread in others))


def test_a_waiting_caller_is_woken_in_another_thread():
    queue, tickets = lined_up(2)
    woken = threading.Thread(target=queue.leads, args=(tickets[1],))
    woken.start()
    queue.leads(tickets[0])
    for ticket in queue.take(tickets[0]):
        ticket.outcome = Committed(2)
    queue.hand_on(tickets[0])
    woken.join(120)
    assert not woken.is_alive()


@pytest.fixture
def now_s(monkeypatch):
    """A clock that stands still, and the longest of each random wait."""
    now = [100.0]
    set_clock(monkeypatch, monotonic_s=lambda: now[0], jitter_s=lambda limit: limit)
    return now


@pytest.mark.parametrize(("entry_s", "run"), [(0.03, RUN_MAX), (RUN_S / 256, 257)])
def test_a_lone_writer_gives_way_after_many_entries_that_took_long(now_s, entry_s, run):
    backoff = CommitBackoff()
    waits = []
    for _ in range(2 * run):
        backoff.won(entry_s)
        waits.append(backoff.before_putting_s())
        now_s[0] += entry_s
    assert [version for version, wait_s in enumerate(waits, 1) if wait_s] == [run, 2 * run]
    assert max(waits) == pytest.approx(4 * entry_s)


def test_a_winner_gives_way_while_others_are_about(now_s):
    backoff = CommitBackoff()
    backoff.lost()
    assert backoff.before_putting_s() == 0
    backoff.won(0.03)
    assert backoff.before_putting_s() > 0
    now_s[0] += ABOUT_S + 1
    assert backoff.before_putting_s() == 0


def test_the_waits_of_a_loser_grow_to_a_bound(now_s):
    waits = [CommitBackoff().after_losing_s(times) for times in (1, 2, 3, 50, 10_000)]
    assert waits == [0.002, 0.004, 0.008, WAIT_MAX_S, WAIT_MAX_S]


def test_turns_are_wanted_while_others_are_about(now_s):
    backoff = CommitBackoff()
    assert not backoff.wants_turn()
    backoff.lost()
    assert backoff.wants_turn()
    now_s[0] += ABOUT_S - 1
    backoff.had_turn(has_turn=True, others=True)
    now_s[0] += 2
    assert backoff.wants_turn(), "an entry of another writer was read"
    now_s[0] += ABOUT_S
    assert not backoff.wants_turn()


def test_a_turn_that_was_not_free_is_not_waited_for_again(now_s):
    backoff = CommitBackoff()
    backoff.lost()
    backoff.had_turn(has_turn=False, others=False)
    now_s[0] += TURNLESS_S - 1
    backoff.lost()
    assert not backoff.wants_turn()
    now_s[0] += 2
    assert backoff.wants_turn()


def test_a_writer_that_had_a_turn_lets_others_look_once_before_the_next(now_s):
    backoff = CommitBackoff()
    backoff.lost()
    backoff.had_turn(has_turn=True, others=True)
    backoff.won(0.004)
    assert backoff.before_putting_s() == pytest.approx(0.004)
    backoff.won(0.004)
    now_s[0] += 0.005
    assert backoff.before_putting_s() == 0
