"""The store of the log, the processes, and the actual events.

Faults strike puts only: reads can be repeated at will, and what happens inside a process is not observable. A crash
ends a committer in the middle of a put: its callers get "unknown", as after a restart, and a new committer starts by
reading the log. A late put is an actor of its own.
"""

from collections.abc import Hashable
from functools import partial
from typing import Literal, NamedTuple

from ..engine import Actor, Chooser, Crash, Steps, Violation, World
from .checks import Oracle
from .rules import Rules
from .state import Entry, Replace, TableState, Transaction

Fault = Literal[
    "answer lost",  # the put takes effect, the answer does not arrive
    "request lost",  # the put never takes effect
    "request late",  # the client stops waiting, the put takes effect later, or never
    "client retry",  # the store's client repeats by itself and reports "exists" for our own write
    "crash after effect",
    "crash before effect",
    "crash, request late",
]
PutAnswer = Literal["created", "exists", "unclear"]


class Outcome(NamedTuple):
    """How a commit ended.

    committed      in the log, in the entry of this version
    rejected       not valid on a state that the log has had since the proposal
    not committed  every attempt lost its race; the transaction is not in the log and never will be
    unknown        a put of ours may still be under way; the transaction may be in the log, or come to be
    """

    end: Literal["committed", "rejected", "not committed", "unknown"]
    version: int = 0
    reason: str = ""


class Proposal:
    """A transaction that waits for its outcome. `base` is the head of the log when it was proposed."""

    __slots__ = ("base", "caller", "outcome", "planned_on", "transaction")

    def __init__(self, transaction: Transaction, planned_on: TableState, base: int, caller: Actor) -> None:
        self.transaction = transaction
        self.planned_on = planned_on
        self.base = base
        self.caller = caller
        self.outcome: Outcome | None = None

    def __hash__(self) -> int:
        """The same for the same proposal of another run."""
        return hash((self.transaction.attempt, self.base))

    def __repr__(self) -> str:
        return self.transaction.attempt


class Desk:
    """The shared state of the actors of one process: the committer's view and the transactions that wait for it."""

    def __init__(self, store: "Store", name: str, clients: int) -> None:
        self.store = store
        self.name = name
        self.snapshot = store.start
        self.clients = clients
        self.waiting: list[Proposal] = []
        self.open: list[Proposal] = []  # those that wait, and those taken but not answered
        self.idle: Actor | None = None  # the committer, while it waits
        self.entries = 0  # put so far; never reset, so that entry ids stay unique

    def __repr__(self) -> str:
        return self.name


class Store(World):
    """One run: the log, the processes, the puts under way, the oracle. `looks`: whose view a client plans on."""

    def __init__(
        self, chooser: Chooser, rules: Rules, start: TableState, *, faults: tuple[Fault, ...], faults_max: int
    ) -> None:
        super().__init__(chooser)
        self.rules = rules
        self.start = start
        self.faults = faults
        self.faults_left = faults_max if faults else 0
        self.looks: Literal["own process", "any process"] = "any process"
        self.log: dict[int, Entry] = {}
        self.contents = 0  # a hash of the log
        self.under_way: dict[Actor, tuple[int, Entry]] = {}
        self.desks: list[Desk] = []
        self.desk_of: dict[Actor, Desk] = {}
        self.oracle = Oracle(start, rules)

    # -- requests to the store --------------------------------------------------------------------------------------

    def read(self, version: int) -> Entry | None:
        """Return an entry, or None."""
        return self.log.get(version)

    def put(self, desk: Desk, version: int, entry: Entry) -> PutAnswer:
        """Put an entry at a version if none exists; faults may make the answer unclear."""
        chosen = self.chooser.fault(len(self.faults)) if self.faults_left else None
        if chosen is None:
            return self._land(version, entry)
        self.faults_left -= 1
        fault = self.faults[chosen]
        self.counts[fault] += 1
        if fault in ("request late", "crash, request late"):
            late = self.spawn(f"late put at {version}", partial(self._arrive, version, entry), knows=entry)
            self.under_way[late] = version, entry
        elif fault not in ("request lost", "crash before effect"):
            self._land(version, entry)
        if fault.startswith("crash"):
            self._crash(desk)
        return "exists" if fault == "client retry" else "unclear"

    def land_late(self, version: int, entry: Entry) -> None:
        """A late put arrives; once no actor can do anything any more, it may also be lost."""
        assert self.running is not None, "a late put runs"
        del self.under_way[self.running]
        if len(self.actors) == 1 + len(self.under_way) and self.chooser.below(2):
            return
        self.counts["late put landed"] += self._land(version, entry) == "created"

    # -- requests within a process ----------------------------------------------------------------------------------

    def take(self, desk: Desk) -> tuple[Proposal, ...]:
        """Return all transactions that wait at the desk."""
        proposals, desk.waiting = tuple(desk.waiting), []
        self.counts["transactions grouped"] += len(proposals) > 1
        return proposals

    def learn_outcome(self, proposal: Proposal) -> Outcome:
        """Return the outcome of an answered proposal."""
        assert proposal.outcome is not None, "woken when it had its outcome"
        return proposal.outcome

    def look(self, desk: Desk) -> TableState:
        """Return a state to plan on: the view of any process, so it may be older or newer than the actor's own."""
        return (desk if self.looks == "own process" else self.desks[self.chooser.below(len(self.desks))]).snapshot

    # -- what an actor does between two requests --------------------------------------------------------------------

    def proposal(self, desk: Desk, transaction: Transaction, planned_on: TableState) -> Proposal:
        """Add a transaction to the desk; the caller parks until it is answered."""
        proposal = Proposal(transaction, planned_on, len(self.log), self.park())
        desk.open.append(proposal)
        desk.waiting.append(proposal)
        if desk.idle is not None:
            self.wake(desk.idle)
            desk.idle = None
        return proposal

    def tell(self, desk: Desk, proposal: Proposal, outcome: Outcome) -> None:
        """Answer a caller with the outcome."""
        desk.open.remove(proposal)
        proposal.outcome = outcome
        self.wake(proposal.caller)
        self.counts[f"reported {outcome.end}"] += 1
        if outcome.end == "rejected":
            self.counts[f"refused: {outcome.reason}"] += 1
        self.oracle.reported(proposal.transaction, proposal.base, outcome.end, outcome.version)

    def see(self, desk: Desk, snapshot: TableState) -> None:
        """A process holds this state from now on."""
        desk.snapshot = snapshot
        self.oracle.viewed(snapshot, desk.name)

    # -- what truly happens -----------------------------------------------------------------------------------------

    def _arrive(self, version: int, entry: Entry) -> Steps[None]:
        yield self.land_late, version, entry

    def _land(self, version: int, entry: Entry) -> PutAnswer:
        """The put takes effect, if it can."""
        there = self.log.get(version)
        if there is not None and self.rules.put == "create if absent":
            self.counts["race lost"] += there.id != entry.id
            return "exists"
        if there != entry:
            self.log[version] = entry
            self.contents = hash((self.contents, version, entry))
            self.oracle.grown(version, entry)
            self._count(entry)
        if self.rules.put == "create if absent":
            for late in [late for late, (at, _) in self.under_way.items() if at == version]:
                del self.under_way[late]  # it can have no effect now
                self.actors.remove(late)
        return "created"

    def _count(self, entry: Entry) -> None:
        for change in entry.changes:
            effect = change.transaction.effect
            self.counts[f"{type(effect).__name__} committed"] += 1
            if isinstance(effect, Replace) and len({at for at, _ in change.drops}) > 1:
                self.counts["job committed into several partitions"] += 1

    def _crash(self, desk: Desk) -> None:
        desk.waiting = []
        for proposal in tuple(desk.open):
            self.tell(desk, proposal, Outcome("unknown"))
        desk.snapshot = self.start
        raise Crash

    def finish(self) -> None:
        """Check that only committers wait for ever, for transactions."""
        if waiting := [proposal for desk in self.desks for proposal in desk.open]:
            raise Violation("stuck", f"waiting for ever: {waiting}")

    # -- for the search ---------------------------------------------------------------------------------------------

    def private(self) -> Actor | None:
        """If a process has one client, it and its committer take turns: the exchange between them is private.

        A plan made on another process's view is not private.
        """
        for actor in self.actors:
            desk = self.desk_of.get(actor)
            if desk is None or desk.clients > 1:
                continue
            asks = actor.request[0]
            if asks in (self.take, self.learn_outcome, self.choose):
                return actor
            if asks == self.look and self.looks == "own process" and desk.idle is not None:
                return actor
        return None

    def fingerprint(self) -> Hashable:
        """The store, the queues, and the puts under way that must not land any more."""
        denied = self.oracle.denied
        return (
            self.contents,
            tuple([tuple(desk.waiting) for desk in self.desks]),
            tuple([not denied.isdisjoint(entry.attempts()) for _, entry in self.under_way.values()]),
            self.faults_left,
        )
