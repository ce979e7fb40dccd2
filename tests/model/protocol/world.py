"""The world: a store, the processes, and one step after the other, each decided by a chooser.

A step sends one actor the answer to its call, or lets a put that is still under way take effect. Faults strike puts
only: reads can be repeated at will, and what happens inside a process is not observable. A crash ends a committer in
the middle of a put: its callers are told "unknown", as they would find out after a restart, and a new committer starts
by reading the log. All that happens is decided by the chooser, so the same choices give the same run.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

from .calls import Call, Choose, Commit, Look, Offer, Outcome, Put, PutAnswer, Read, Rejected, Steps, Take, Unknown
from .checks import Oracle, Violation
from .clients import run
from .committer import Desk, commit_forever
from .rules import Rules
from .scenario import Fault, Scenario
from .state import Entry, Replace

STEPS_MAX = 2_000  # no schedule needs a tenth of it


class Chooser(Protocol):
    """Decides everything that the protocol leaves open."""

    def step(self, options: list[int]) -> int:
        """Which of the options goes next: an actor by its index, or `~index` of a put under way."""

    def fault(self, kinds: tuple[Fault, ...]) -> Fault | None:
        """Which fault, if any, strikes a put."""

    def below(self, options: int) -> int:
        """Any number below `options`."""


@dataclass(slots=True)
class Actor:
    """A generator and what it waits for.

    Its place is a function of the answers it has had; `history` is their hash. Actors take turns, and remember nothing
    of an earlier turn but that it was: a client's turn begins where it looks, a committer's where it takes, knowing its
    view alone. There the history starts anew, so that runs which differ only in their past are seen to be in one state.
    """

    name: str
    desk: Desk
    steps: Steps[None]
    call: Call | None = None
    ready: bool = True  # whether its call can be answered
    reply: Outcome | None = None
    history: int = 0
    turns: int = 0


def attempts_in(entry: Entry) -> tuple[str, ...]:
    return tuple(change.transaction.attempt for change in entry.changes)


class World:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, rules: Rules, chooser: Chooser, trace: list[str] | None = None) -> None:
        self.scenario = scenario
        self.rules = rules
        self.chooser = chooser
        self.trace = trace
        self.log: dict[int, Entry] = {}
        self.under_way: list[tuple[int, Entry]] = []
        self.faults_left = scenario.faults_max
        self.offers = 0
        self.pending: dict[str, tuple[Actor, Offer]] = {}
        self.oracle = Oracle(scenario.start, rules)
        self.counts: Counter[str] = Counter()
        names = sorted({client.process for client in scenario.clients})
        self.desks = {name: Desk(name, scenario.start, self._tell) for name in names}
        self.committers = {name: Actor(name, desk, commit_forever(desk, rules)) for name, desk in self.desks.items()}
        self.actors = list(self.committers.values())
        self.actors += [Actor(client.name, self.desks[client.process], run(client)) for client in scenario.clients]
        self.clients_of = Counter(client.process for client in scenario.clients)
        for actor in self.actors:
            self._send(actor, None)

    def options(self) -> list[int]:
        """What could happen next. Empty when all clients are done and only puts under way are left, or nothing."""
        ready = [index for index, actor in enumerate(self.actors) if actor.ready]
        return [*ready, *(~index for index in range(len(self.under_way)))] if ready and self.under_way else ready

    def private(self) -> int | None:
        """An actor whose next step nobody else can notice or disturb, so that its place in the order does not matter.

        Where a process has one client, client and committer take turns: what passes between them is their own affair.
        A plan made on another process's view is not.
        """
        for index, actor in enumerate(self.actors):
            if not actor.ready or self.clients_of[actor.desk.name] > 1 or isinstance(actor.call, Read | Put):
                continue
            idle = isinstance(self.committers[actor.desk.name].call, Take)
            if not isinstance(actor.call, Look) or (idle and self.scenario.looks == "own process"):
                return index
        return None

    def step(self, option: int) -> None:
        """One actor goes on, or one put under way arrives."""
        if option < 0:
            number, entry = self.under_way.pop(~option)
            self._note("late put {} at {}: {}", entry.id, number, self._land(number, entry))
            self.counts["late put landed"] += self.log[number] is entry
            return
        actor = self.actors[option]
        view = actor.desk.view
        self._answer(actor)
        if actor.desk.view is not view:
            self.oracle.viewed(actor.desk.view, actor.desk.name)

    def finish(self) -> None:
        """When nobody has anything to do: puts under way arrive or never do; then the last checks."""
        while self.under_way:
            if self.chooser.below(2):
                self.step(~0)
            else:
                self.under_way.pop(0)
        if self.pending:
            raise Violation("stuck", f"waiting for ever: {sorted(self.pending)}")
        self.oracle.finished()

    def _answer(self, actor: Actor) -> None:
        match actor.call:
            case Read(number=number):
                entry = self.log.get(number)
                self._note("{} reads {}: {}", actor.name, number, entry)
                self._send(actor, entry, entry is not None)
            case Put(number=number, entry=entry):
                self._put(actor, number, entry)
            case Take():
                offers, actor.desk.waiting = tuple(actor.desk.waiting), []
                self.counts["transactions grouped"] += len(offers) > 1
                self._note("{} takes {} transactions", actor.name, len(offers))
                self._send(actor, offers, *(offer.transaction.attempt for offer in offers))
            case Commit():
                outcome, actor.reply = actor.reply, None
                self._send(actor, outcome, type(outcome).__name__)
            case Look():
                desk = self._planning_desk(actor)
                self._note("{} plans on the view of {} at {}", actor.name, desk.name, desk.view.number)
                self._send(actor, desk.view, desk.name, desk.view.number)
            case Choose(options=options):
                chosen = self.chooser.below(options)
                self._send(actor, chosen, chosen)
            case None:
                raise AssertionError("a finished actor was scheduled")

    def _planning_desk(self, actor: Actor) -> Desk:
        if self.scenario.looks == "own process":
            return actor.desk
        return list(self.desks.values())[self.chooser.below(len(self.desks))]

    def _put(self, actor: Actor, number: int, entry: Entry) -> None:
        fault = self.chooser.fault(self.scenario.faults) if self.faults_left and self.scenario.faults else None
        self.faults_left -= fault is not None
        answer: PutAnswer = "unclear"
        if fault in ("request late", "crash, request late"):
            self.under_way.append((number, entry))
        elif fault not in ("request lost", "crash before effect"):
            answer = self._land(number, entry)
        if fault == "client retry":
            answer = "exists"
        elif fault is not None:
            answer = "unclear"
            self.counts[fault] += 1
        self.counts["race lost"] += answer == "exists" and self.log[number].id != entry.id
        self.counts["client retry"] += fault == "client retry"
        self._note("{} puts {} at {}: {} (fault: {})", actor.name, entry, number, answer, fault)
        if fault is not None and fault.startswith("crash"):
            self._crash(actor)
        else:
            self._send(actor, answer, number, answer)

    def _land(self, number: int, entry: Entry) -> PutAnswer:
        """The put takes effect, if it can."""
        if number in self.log and self.rules.put == "create if absent":
            return "exists"
        if self.log.get(number) != entry:
            self.log[number] = entry
            self.oracle.grown(number, entry)
            self._count(entry)
        if self.rules.put == "create if absent":
            self.under_way = [pair for pair in self.under_way if pair[0] not in self.log]  # these can do nothing now
        return "created"

    def _count(self, entry: Entry) -> None:
        for change in entry.changes:
            effect = change.transaction.effect
            self.counts[f"{type(effect).__name__} committed"] += 1
            if isinstance(effect, Replace) and len({at for at, _ in change.drops}) > 1:
                self.counts["job committed into several leaves"] += 1

    def _crash(self, actor: Actor) -> None:
        desk = actor.desk
        actor.steps.close()
        desk.waiting = []
        for _, offer in [pair for pair in self.pending.values() if pair[0].desk is desk]:
            self._tell(offer, Unknown())
        desk.view = self.scenario.start
        actor.steps = commit_forever(desk, self.rules)
        actor.history = hash((actor.history, "crash"))
        self._send(actor, None)

    def _tell(self, offer: Offer, outcome: Outcome) -> None:
        actor, _ = self.pending.pop(offer.id)
        actor.reply, actor.ready = outcome, True
        self.counts[f"told {type(outcome).__name__}"] += 1
        if isinstance(outcome, Rejected):
            self.counts[f"refused: {outcome.reason}"] += 1
        self._note("{} is told {} of {}", actor.name, outcome, offer.transaction.attempt)
        self.oracle.told(offer, outcome)

    def _send(self, actor: Actor, answer: Any, *seen: object) -> None:
        """Let the actor run to its next call; a transaction it commits waits at its desk at once."""
        actor.history = hash((actor.history, seen))
        try:
            call = actor.call = actor.steps.send(answer)
        except StopIteration:
            actor.call, actor.ready = None, False
            return
        actor.ready = True
        if isinstance(call, Take):
            actor.ready = bool(actor.desk.waiting)
            actor.history = actor.desk.view.number
        elif isinstance(call, Look):
            actor.turns += 1
            actor.history = actor.turns
        elif isinstance(call, Commit):
            actor.ready = False
            self.offers += 1
            offer = Offer(f"{actor.name}.{self.offers}", call.transaction, call.planned_on, base=len(self.log))
            self.pending[offer.id] = (actor, offer)
            actor.desk.waiting.append(offer)
            committer = self.committers[actor.desk.name]
            committer.ready = committer.ready or isinstance(committer.call, Take)

    def _note(self, line: str, *facts: object) -> None:
        if self.trace is not None:
            self.trace.append(line.format(*facts))

    def fingerprint(self) -> int:
        """Equal for two runs that can only go on alike: the store, the queues and what each actor knows.

        The attempts stand for their entry: how it was resolved follows from the log before it.
        """
        denied = self.oracle.denied
        return hash(
            (
                tuple(attempts_in(entry) for entry in self.oracle.entries),
                tuple((attempts_in(e), n, not denied.isdisjoint(attempts_in(e))) for n, e in self.under_way),
                tuple(tuple(offer.transaction.attempt for offer in desk.waiting) for desk in self.desks.values()),
                tuple((actor.history, actor.ready) for actor in self.actors),
                self.faults_left,
            )
        )
