"""The committer: one per process, it commits all waiting transactions in one entry.

    take all that wait
    judge each on the view as its neighbours leave it      -> changes, refusals, repeats
    put the entry at the next number                       -> ours, another's, unknown
      ours      tell every outcome
      another's read forward and judge again, at most ATTEMPTS times, then "not committed"
      unknown   tell everybody "unknown": the entry may yet be there, whole

What is told early: a repeat of a key that the view, a prefix of the log, has on record. What is told late: a refusal.
It holds on the state it was judged on, so that state must be in the log (our entry was created) or be its head (a read
of the next number, made after the offer, finds nothing). A view that merely was the head once is not enough: the caller
may have seen more of the log than its committer has.
"""

from typing import NamedTuple

from ..engine import Steps
from .rules import Rules
from .state import Change, Entry, TableState, apply_change, apply_entry
from .store import Desk, Offer, Outcome, PutAnswer
from .transactions import Refusal, resolve

ATTEMPTS = 3
PUTS = 2


class Judged(NamedTuple):
    """A group of offers judged one after the other. `state` is the view with all the changes applied."""

    state: TableState
    changes: tuple[Change, ...]
    outcomes: tuple[tuple[Offer, Outcome], ...]  # as they will be once the entry is in the log


def commit_forever(desk: Desk) -> Steps[None]:
    """Serve the desk for as long as the process lives. A new process reads the log first."""
    store = desk.store
    yield from read_forward(desk)
    while True:
        store.begin(desk.view)
        if not desk.waiting:
            desk.idle = store.park()
        offers: tuple[Offer, ...] = yield store.take, desk
        yield from commit_group(desk, offers)


def read_forward(desk: Desk) -> Steps[bool]:
    """Apply entries until the next number is not there; whether there were any."""
    store = desk.store
    start = desk.view
    while True:
        entry: Entry | None = yield store.read, desk.view.number + 1
        if entry is None:
            return desk.view is not start
        store.see(desk, apply_entry(desk.view, entry, store.rules))


def commit_group(desk: Desk, offers: tuple[Offer, ...]) -> Steps[None]:
    """Bring each offer to an outcome and tell it."""
    rules = desk.store.rules
    skipped = 0  # numbers given up as unclear: only a wrong form ever does that
    for _ in range(ATTEMPTS):
        offers = tell_recorded(desk, offers, rules)
        judged = judge(desk.view, offers, rules)
        offers = tell_early(desk, offers, judged, rules)
        if not offers:
            return
        if not judged.changes:
            stale = rules.rejection == "of a committed head" and (yield from read_forward(desk))
            if stale:
                continue
            tell_all(desk, judged.outcomes)
            return
        fate = yield from put_entry(desk, judged, desk.view.number + 1 + skipped)
        if fate == "ours":
            tell_all(desk, [(offer, outcome) for offer, outcome in judged.outcomes if offer in offers])
            return
        if fate in {"unknown", "not there"}:
            end = Outcome("unknown" if fate == "unknown" else "not committed")
            tell_all(desk, [(offer, end) for offer in offers])
            return
        if fate == "next number":
            skipped += 1
            continue
        if fate == "other bytes":
            continue
        yield from read_forward(desk)
    tell_all(desk, [(offer, Outcome("not committed")) for offer in tell_recorded(desk, offers, rules)])


def put_entry(desk: Desk, judged: Judged, number: int) -> Steps[str]:
    """Put one entry and find out what became of it: "ours", "another's" (then applied to the view) or "unknown".

    An unclear put is settled by putting the same bytes at the same number again, until the number is seen filled; then
    nothing of ours that is still under way can win it. "Exists" may be our own earlier put, or our client's silent
    retry: look whose it is.
    """
    store, rules = desk.store, desk.store.rules
    desk.entries += 1
    entry = Entry(f"{desk.name}#{desk.entries}", judged.changes)
    before = desk.view
    if rules.own_entry == "applied when put":
        store.see(desk, judged.state)
    for _ in range(PUTS):
        answer: PutAnswer = yield store.put, desk, number, entry
        if answer == "created":
            store.see(desk, judged.state)
            return "ours"
        if answer == "unclear" and rules.unclear == "same bytes again":
            continue
        if answer == "unclear" and rules.unclear in ("next number", "other bytes"):
            return rules.unclear
        found: Entry | None = yield store.read, number
        if found is None:
            return "not there"  # only after an unclear put, and then it proves nothing
        if found.id == entry.id and rules.exists == "look whose":
            store.see(desk, judged.state)
            return "ours"
        if rules.own_entry == "applied when settled":
            store.see(desk, apply_entry(before, found, rules))
        return "another's"
    return "unknown"


def judge(view: TableState, offers: tuple[Offer, ...], rules: Rules) -> Judged:
    """Judge each offer on the state its valid neighbours leave. A refused one changes nothing for the others."""
    state = view
    changes: list[Change] = []
    outcomes: list[tuple[Offer, Outcome]] = []
    number = view.number + 1
    for offer in offers:
        on = state if rules.judged_on == "evolving state" else view
        verdict = judge_one(on, offer, rules)
        if isinstance(verdict, Change):
            state = apply_change(state, verdict, number, rules)
            changes.append(verdict)
            outcomes.append((offer, Outcome("committed", number)))
        else:
            outcomes.append((offer, verdict))
    if rules.neighbours == "all or none" and len(changes) < len(offers):
        return Judged(view, (), tuple((offer, rejected("a neighbour was refused")) for offer in offers))
    return Judged(state, tuple(changes), tuple(outcomes))


def rejected(reason: str) -> Outcome:
    return Outcome("rejected", reason=reason)


def judge_one(state: TableState, offer: Offer, rules: Rules) -> Change | Outcome:
    """A repeat of a request key answers with the first outcome and adds nothing; anything else is resolved."""
    recorded = state.record_of(offer.transaction.key)
    if recorded is not None and rules.repeat != "forgotten":
        if rules.repeat == "compare content" and recorded.attempt != offer.transaction.attempt:
            return rejected("same key, other content")
        return Outcome("committed", recorded.number)
    late = rules.add == "resolved when planned" and offer.transaction.key.startswith("batch")
    verdict = resolve(offer.transaction, offer.planned_on if late else state, rules)
    return rejected(verdict.reason) if isinstance(verdict, Refusal) else verdict


def tell_recorded(desk: Desk, offers: tuple[Offer, ...], rules: Rules) -> tuple[Offer, ...]:
    """Answer the repeats of keys on record in the view, a prefix of the log; the offers that are left."""
    left = []
    for offer in offers:
        known = desk.view.record_of(offer.transaction.key) if rules.repeat == "first outcome" else None
        if known is None:
            left.append(offer)
        else:
            desk.store.tell(desk, offer, Outcome("committed", known.number))
    return tuple(left)


def tell_early(desk: Desk, offers: tuple[Offer, ...], judged: Judged, rules: Rules) -> tuple[Offer, ...]:
    """Wrong forms: tell refusals, or repeats of a neighbour's key, before their entry is put; the offers left."""
    early: list[tuple[Offer, Outcome]] = []
    own = {change.transaction.attempt for change in judged.changes}
    for offer, outcome in judged.outcomes:
        if outcome.end == "rejected":
            told = rules.rejection == "told at once"
        else:
            told = rules.repeat_beside == "told at once" and offer.transaction.attempt not in own
        if told:
            early.append((offer, outcome))
    tell_all(desk, early)
    return tuple(offer for offer in offers if all(offer is not gone for gone, _ in early)) if early else offers


def tell_all(desk: Desk, outcomes: tuple[tuple[Offer, Outcome], ...] | list[tuple[Offer, Outcome]]) -> None:
    for offer, outcome in outcomes:
        desk.store.tell(desk, offer, outcome)
