"""The store of the log, the processes, and what truly happens.

Faults strike puts only: reads can be repeated at will, and what happens inside a process is not observable. A crash
ends a committer in the middle of a put: its callers are told "unknown", as they would find out after a restart, and a
new committer starts by reading the log. A put that is late is an actor of its own.
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
    "request late",  # the client gives up waiting, the put takes effect later, or never
    "client retry",  # the store's client repeats by itself and reports "exists" for our own write
    "crash after effect",
    "crash before effect",
    "crash, request late",
]
PutAnswer = Literal["created", "exists", "unclear"]


class Outcome(NamedTuple):
    """How a commit ended.

    committed      in the log, in the entry of this number
    rejected       not valid on a state that the log has had since the offer
    not committed  every attempt lost its race; the transaction is not in the log and never will be
    unknown        a put of ours may still be under way; the transaction may be in the log, or come to be
    """

    end: Literal["committed", "rejected", "not committed", "unknown"]
    number: int = 0
    reason: str = ""


class Offer:
    """A transaction that waits for its outcome. `base` is the head of the log when it was offered."""

    __slots__ = ("base", "caller", "outcome", "planned_on", "transaction")

    def __init__(self, transaction: Transaction, planned_on: TableState, base: int, caller: Actor) -> None:
        self.transaction = transaction
        self.planned_on = planned_on
        self.base = base
        self.caller = caller
        self.outcome: Outcome | None = None

    def __hash__(self) -> int:
        """The same for the same offer of another run."""
        return hash((self.transaction.attempt, self.base))

    def __repr__(self) -> str:
        return self.transaction.attempt


class Desk:
    """What the actors of one process share: the committer's view and the transactions that wait for it."""

    def __init__(self, store: "Store", name: str, clients: int) -> None:
        self.store = store
        self.name = name
        self.view = store.start
        self.clients = clients
        self.waiting: list[Offer] = []
        self.open: list[Offer] = []  # those that wait, and those taken but not told
        self.idle: Actor | None = None  # the committer, while it waits
        self.entries = 0  # put so far; never set back, so that entry ids stay unique

    def __repr__(self) -> str:
        return self.name


class Store(World):
    """One run: the log, the processes, the puts under way, the oracle. `looks` says whose view a client plans on."""

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

    def read(self, number: int) -> Entry | None:
        """An entry, or None."""
        return self.log.get(number)

    def put(self, desk: Desk, number: int, entry: Entry) -> PutAnswer:
        """Put an entry at a number if none is there; faults may blur the answer."""
        chosen = self.chooser.fault(len(self.faults)) if self.faults_left else None
        if chosen is None:
            return self._land(number, entry)
        self.faults_left -= 1
        fault = self.faults[chosen]
        self.counts[fault] += 1
        if fault in ("request late", "crash, request late"):
            late = self.spawn(f"late put at {number}", partial(self._arrive, number, entry), knows=entry)
            self.under_way[late] = number, entry
        elif fault not in ("request lost", "crash before effect"):
            self._land(number, entry)
        if fault.startswith("crash"):
            self._crash(desk)
        return "exists" if fault == "client retry" else "unclear"

    def land_late(self, number: int, entry: Entry) -> None:
        """What was under way arrives; once nobody does anything any more, it may also be lost."""
        assert self.running is not None, "a late put runs"
        del self.under_way[self.running]
        if len(self.actors) == 1 + len(self.under_way) and self.chooser.below(2):
            return
        self.counts["late put landed"] += self._land(number, entry) == "created"

    # -- requests within a process ----------------------------------------------------------------------------------

    def take(self, desk: Desk) -> tuple[Offer, ...]:
        """All transactions that wait at the desk."""
        offers, desk.waiting = tuple(desk.waiting), []
        self.counts["transactions grouped"] += len(offers) > 1
        return offers

    def hear(self, offer: Offer) -> Outcome:
        """The outcome of an offer that has been told."""
        assert offer.outcome is not None, "woken when it was told"
        return offer.outcome

    def look(self, desk: Desk) -> TableState:
        """A state to plan on: the view of any process, so it may be old, or newer than one's own."""
        return (desk if self.looks == "own process" else self.desks[self.chooser.below(len(self.desks))]).view

    # -- what an actor does between two requests --------------------------------------------------------------------

    def offer(self, desk: Desk, transaction: Transaction, planned_on: TableState) -> Offer:
        """Lay a transaction on the desk; the caller parks until it is told."""
        offer = Offer(transaction, planned_on, len(self.log), self.park())
        desk.open.append(offer)
        desk.waiting.append(offer)
        if desk.idle is not None:
            self.wake(desk.idle)
            desk.idle = None
        return offer

    def tell(self, desk: Desk, offer: Offer, outcome: Outcome) -> None:
        """Tell a caller the outcome."""
        desk.open.remove(offer)
        offer.outcome = outcome
        self.wake(offer.caller)
        self.counts[f"told {outcome.end}"] += 1
        if outcome.end == "rejected":
            self.counts[f"refused: {outcome.reason}"] += 1
        self.oracle.told(offer.transaction, offer.base, outcome.end, outcome.number)

    def see(self, desk: Desk, view: TableState) -> None:
        """A process holds this state from now on."""
        desk.view = view
        self.oracle.viewed(view, desk.name)

    # -- what truly happens -----------------------------------------------------------------------------------------

    def _arrive(self, number: int, entry: Entry) -> Steps[None]:
        yield self.land_late, number, entry

    def _land(self, number: int, entry: Entry) -> PutAnswer:
        """The put takes effect, if it can."""
        there = self.log.get(number)
        if there is not None and self.rules.put == "create if absent":
            self.counts["race lost"] += there.id != entry.id
            return "exists"
        if there != entry:
            self.log[number] = entry
            self.contents = hash((self.contents, number, entry))
            self.oracle.grown(number, entry)
            self._count(entry)
        if self.rules.put == "create if absent":
            for late in [late for late, (at, _) in self.under_way.items() if at == number]:
                del self.under_way[late]  # it can do nothing now
                self.actors.remove(late)
        return "created"

    def _count(self, entry: Entry) -> None:
        for change in entry.changes:
            effect = change.transaction.effect
            self.counts[f"{type(effect).__name__} committed"] += 1
            if isinstance(effect, Replace) and len({at for at, _ in change.drops}) > 1:
                self.counts["job committed into several leaves"] += 1

    def _crash(self, desk: Desk) -> None:
        desk.waiting = []
        for offer in tuple(desk.open):
            self.tell(desk, offer, Outcome("unknown"))
        desk.view = self.start
        raise Crash

    def finish(self) -> None:
        """Nobody waits for ever but committers for transactions."""
        if waiting := [offer for desk in self.desks for offer in desk.open]:
            raise Violation("stuck", f"waiting for ever: {waiting}")

    # -- for the search ---------------------------------------------------------------------------------------------

    def private(self) -> Actor | None:
        """Where a process has one client, it and its committer take turns: what passes between them is their affair.

        A plan made on another process's view is not.
        """
        for actor in self.actors:
            desk = self.desk_of.get(actor)
            if desk is None or desk.clients > 1:
                continue
            asks = actor.request[0]
            if asks in (self.take, self.hear, self.choose):
                return actor
            if asks == self.look and self.looks == "own process" and desk.idle is not None:
                return actor
        return None

    def fingerprint(self) -> Hashable:
        """The store, the queues, and which puts under way must not land any more."""
        denied = self.oracle.denied
        return (
            self.contents,
            tuple([tuple(desk.waiting) for desk in self.desks]),
            tuple([not denied.isdisjoint(entry.attempts()) for _, entry in self.under_way.values()]),
            self.faults_left,
        )
