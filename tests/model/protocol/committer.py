"""The committer: one per process, it commits all waiting transactions in one entry.

    take all that wait
    validate each on the snapshot after its neighbours      -> changes, refusals, repeats
    put the entry at the next version                       -> ours, another's, unknown
      ours      report every outcome
      another's read forward and validate again, at most ATTEMPTS times, then "not committed"
      unknown   report "unknown" to all: the entry may still appear, whole

A repeat of a key that the snapshot, a prefix of the log, has on record is answered early. A refusal is answered late:
it holds on the state it was validated on, so that state must be in the log (our entry was created) or be its head (a
read of the next version, made after the proposal, finds nothing). A snapshot that was once the head is not enough: the
caller may have read more of the log than its committer.
"""

from typing import NamedTuple

from ..engine import Steps
from .rules import Rules
from .state import Change, Entry, TableState, apply_change, apply_entry
from .store import Desk, Outcome, Proposal, PutAnswer
from .transactions import Refusal, resolve

ATTEMPTS = 3
PUTS = 2


class Validated(NamedTuple):
    """A group of proposals validated one after the other. `state` is the snapshot with all the changes applied."""

    state: TableState
    changes: tuple[Change, ...]
    outcomes: tuple[tuple[Proposal, Outcome], ...]  # as they will be once the entry is in the log


def commit_forever(desk: Desk) -> Steps[None]:
    """Serve the desk for the life of the process. A new process reads the log first."""
    store = desk.store
    yield from read_forward(desk)
    while True:
        store.begin(desk.snapshot)
        if not desk.waiting:
            desk.idle = store.park()
        proposals: tuple[Proposal, ...] = yield store.take, desk
        yield from commit_group(desk, proposals)


def read_forward(desk: Desk) -> Steps[bool]:
    """Apply entries until the next version does not exist; return whether there were any."""
    store = desk.store
    start = desk.snapshot
    while True:
        entry: Entry | None = yield store.read, desk.snapshot.version + 1
        if entry is None:
            return desk.snapshot is not start
        store.see(desk, apply_entry(desk.snapshot, entry, store.rules))


def commit_group(desk: Desk, proposals: tuple[Proposal, ...]) -> Steps[None]:
    """Bring each proposal to an outcome and report it."""
    rules = desk.store.rules
    skipped = 0  # versions given up as unclear: only in a wrong form
    for _ in range(ATTEMPTS):
        proposals = tell_recorded(desk, proposals, rules)
        validated = validate(desk.snapshot, proposals, rules)
        proposals = tell_early(desk, proposals, validated, rules)
        if not proposals:
            return
        if not validated.changes:
            stale = rules.rejection == "of a committed head" and (yield from read_forward(desk))
            if stale:
                continue
            tell_all(desk, validated.outcomes)
            return
        fate = yield from put_entry(desk, validated, desk.snapshot.version + 1 + skipped)
        if fate == "ours":
            tell_all(desk, [(proposal, outcome) for proposal, outcome in validated.outcomes if proposal in proposals])
            return
        if fate in {"unknown", "not there"}:
            end = Outcome("unknown" if fate == "unknown" else "not committed")
            tell_all(desk, [(proposal, end) for proposal in proposals])
            return
        if fate == "next version":
            skipped += 1
            continue
        if fate == "other bytes":
            continue
        yield from read_forward(desk)
    tell_all(desk, [(proposal, Outcome("not committed")) for proposal in tell_recorded(desk, proposals, rules)])


def put_entry(desk: Desk, validated: Validated, version: int) -> Steps[str]:
    """Put one entry and find its outcome: "ours", "another's" (then applied to the snapshot) or "unknown".

    An unclear put is settled by putting the same bytes at the same version again, until the version is taken; then no
    put of ours that is still under way can win it. "Exists" may be our own earlier put, or our client's silent retry,
    so the entry is read.
    """
    store, rules = desk.store, desk.store.rules
    desk.entries += 1
    entry = Entry(f"{desk.name}#{desk.entries}", validated.changes)
    before = desk.snapshot
    if rules.own_entry == "applied when put":
        store.see(desk, validated.state)
    for _ in range(PUTS):
        answer: PutAnswer = yield store.put, desk, version, entry
        if answer == "created":
            store.see(desk, validated.state)
            return "ours"
        if answer == "unclear" and rules.unclear == "same bytes again":
            continue
        if answer == "unclear" and rules.unclear in ("next version", "other bytes"):
            return rules.unclear
        found: Entry | None = yield store.read, version
        if found is None:
            return "not there"  # only after an unclear put, and then it proves nothing
        if found.id == entry.id and rules.exists == "look whose":
            store.see(desk, validated.state)
            return "ours"
        if rules.own_entry == "applied when settled":
            store.see(desk, apply_entry(before, found, rules))
        return "another's"
    return "unknown"


def validate(snapshot: TableState, proposals: tuple[Proposal, ...], rules: Rules) -> Validated:
    """Validate each proposal on the state after its valid neighbours. A refused one changes nothing for the others."""
    state = snapshot
    changes: list[Change] = []
    outcomes: list[tuple[Proposal, Outcome]] = []
    version = snapshot.version + 1
    for proposal in proposals:
        on = state if rules.validated_on == "evolving state" else snapshot
        verdict = validate_one(on, proposal, rules)
        if isinstance(verdict, Change):
            state = apply_change(state, verdict, version, rules)
            changes.append(verdict)
            outcomes.append((proposal, Outcome("committed", version)))
        else:
            outcomes.append((proposal, verdict))
    if rules.neighbours == "all or none" and len(changes) < len(proposals):
        return Validated(snapshot, (), tuple((proposal, rejected("a neighbour was refused")) for proposal in proposals))
    return Validated(state, tuple(changes), tuple(outcomes))


def rejected(reason: str) -> Outcome:
    return Outcome("rejected", reason=reason)


def validate_one(state: TableState, proposal: Proposal, rules: Rules) -> Change | Outcome:
    """Answer a repeat of a request key with the first outcome and add nothing; resolve anything else."""
    recorded = state.record_of(proposal.transaction.key)
    if recorded is not None and rules.repeat != "forgotten":
        if rules.repeat == "compare content" and recorded.attempt != proposal.transaction.attempt:
            return rejected("same key, other content")
        return Outcome("committed", recorded.version)
    late = rules.add == "resolved when planned" and proposal.transaction.key.startswith("batch")
    verdict = resolve(proposal.transaction, proposal.planned_on if late else state, rules)
    return rejected(verdict.reason) if isinstance(verdict, Refusal) else verdict


def tell_recorded(desk: Desk, proposals: tuple[Proposal, ...], rules: Rules) -> tuple[Proposal, ...]:
    """Answer the repeats of keys on record in the snapshot, a prefix of the log; return the remaining proposals."""
    left = []
    for proposal in proposals:
        known = desk.snapshot.record_of(proposal.transaction.key) if rules.repeat == "first outcome" else None
        if known is None:
            left.append(proposal)
        else:
            desk.store.tell(desk, proposal, Outcome("committed", known.version))
    return tuple(left)


def tell_early(desk: Desk, proposals: tuple[Proposal, ...], validated: Validated, rules: Rules) -> tuple[Proposal, ...]:
    """Wrong forms: report refusals, or repeats of a neighbour's key, before their entry is put; return the remaining
    proposals.
    """
    early: list[tuple[Proposal, Outcome]] = []
    own = {change.transaction.attempt for change in validated.changes}
    for proposal, outcome in validated.outcomes:
        if outcome.end == "rejected":
            at_once = rules.rejection == "reported at once"
        else:
            at_once = rules.repeat_beside == "reported at once" and proposal.transaction.attempt not in own
        if at_once:
            early.append((proposal, outcome))
    tell_all(desk, early)
    return (
        tuple(proposal for proposal in proposals if all(proposal is not gone for gone, _ in early))
        if early
        else proposals
    )


def tell_all(desk: Desk, outcomes: tuple[tuple[Proposal, Outcome], ...] | list[tuple[Proposal, Outcome]]) -> None:
    for proposal, outcome in outcomes:
        desk.store.tell(desk, proposal, outcome)
