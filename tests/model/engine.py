"""Schedules for the models: an integer seeds one random schedule; a depth-first search covers all of them.

An actor is a generator. It yields a request, `(function, *arguments)`, and is sent the answer; between two requests it
runs alone, as a process does. The request takes effect when the schedule resumes the actor, so an actor that is not
chosen for a while represents a stopped process or a late packet. An actor that waits for another one of its process
parks until that one wakes it. No clock, no I/O.

The state of an actor is a function of the answers it has received since it last restarted. The search uses their hash
as its state, and so visits each state of the world once.
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Request = tuple[Any, ...]
Steps = Generator[Request, Any, T]

STEPS_MAX = 3_000  # no schedule needs a tenth of it
SLICE_SCHEDULES = 10_000  # run by one process before it gets more; some seconds


class Violation(Exception):
    """A broken promise; `kind` names it."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind

    def __str__(self) -> str:
        return ": ".join(self.args)


class Crash(Exception):
    """Raised by a request whose sender dies: it restarts without its memory."""


class Actor:
    """A generator and its next request."""

    __slots__ = ("history", "index", "make", "name", "request", "steps")

    def __init__(self, index: int, name: str, make: Callable[[], Steps[None]]) -> None:
        self.index = index
        self.name = name
        self.make = make

    def start(self, history: Hashable) -> None:
        self.history = hash(history)
        self.steps = self.make()
        self.request: Request = next(self.steps)


class Chooser(Protocol):
    """Makes all decisions that a model leaves open."""

    def actor(self, actors: Sequence[Actor]) -> Actor:
        """Choose the next actor."""

    def below(self, options: int) -> int:
        """Choose a number below `options`."""

    def fault(self, kinds: int) -> int | None:
        """Choose the fault, if any, of a request."""


class World:
    """One run of a model: the actors, and whatever a subclass keeps for them."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self.actors: list[Actor] = []  # those that can run
        self.parked: list[Actor] = []
        self.running: Actor | None = None
        self.counts: Counter[str] = Counter()
        self._spawned = 0

    def spawn(self, name: str, make: Callable[[], Steps[None]], knows: Hashable = None) -> Actor:
        """Add an actor, with this initial knowledge. `make` is called again after a crash."""
        actor = Actor(self._spawned, name, make)
        self._spawned += 1
        self.actors.append(actor)
        spawning, self.running = self.running, actor
        actor.start(knows)
        self.running = spawning
        return actor

    def choose(self, options: int) -> int:
        """A request: leave a decision to the schedule."""
        return self.chooser.below(options)

    # -- what an actor may call between two requests ----------------------------------------------------------------

    def begin(self, knows: Hashable) -> None:
        """Restart the running actor: it keeps only this from before."""
        assert self.running is not None, "called by an actor"
        self.running.history = hash(knows)

    def park(self) -> Actor:
        """Make the running actor wait with its next request until it is woken."""
        assert self.running is not None, "called by an actor"
        self.actors.remove(self.running)
        self.parked.append(self.running)
        return self.running

    def wake(self, actor: Actor) -> None:
        """Let a parked actor run."""
        self.parked.remove(actor)
        self.actors.append(actor)

    # -- what the explorers ask -------------------------------------------------------------------------------------

    def private(self) -> Actor | None:
        """Return an actor whose next step no other can observe or disturb, so that its place in the order does not
        matter.
        """
        return None

    def fingerprint(self) -> Hashable:
        """Equal for two runs only if everything that the actors can find in the world is equal."""
        raise NotImplementedError

    def finish(self) -> None:
        """No actor can run: do the last checks."""
        raise NotImplementedError


def run_alone(steps: Steps[T]) -> T:
    """Run steps to their end without other actors."""
    try:
        request = next(steps)
        while True:
            request = steps.send(request[0](*request[1:]))
    except StopIteration as end:
        value: T = end.value
        return value


def advance(world: World, actor: Actor, answered: Callable[[Actor, Any], None] | None = None) -> None:
    """Let the actor's request take effect, and run it to its next one."""
    world.running = actor
    request = actor.request
    try:
        answer = request[0](*request[1:])
        if answered is not None:
            answered(actor, answer)
        actor.request = actor.steps.send(answer)
    except StopIteration:
        world.actors.remove(actor)
    except Crash:
        actor.steps.close()
        actor.start(("crash", actor.history))


class RandomChooser:
    """Draws every decision. Often one actor sleeps for a while, since rare races need a very slow actor."""

    __slots__ = ("_asleep", "_awake", "_fault_share", "_random", "_sleeper", "_step")

    def __init__(self, random: Random) -> None:
        self._random = random.random
        self._fault_share = 0.1 if random.random() < 0.5 else 0.3
        self._sleeper = int(random.random() * 6)
        self._asleep = int(random.random() * 30)
        self._awake = self._asleep + int(random.random() * 90)
        self._step = 0

    def actor(self, actors: Sequence[Actor]) -> Actor:
        self._step += 1
        count = len(actors)
        place = int(self._random() * count)
        chosen = actors[place]
        if chosen.index == self._sleeper and self._asleep <= self._step < self._awake and count > 1:
            return actors[place - 1]
        return chosen

    def below(self, options: int) -> int:
        return int(self._random() * options)

    def fault(self, kinds: int) -> int | None:
        return int(self._random() * kinds) if self._random() < self._fault_share else None


@dataclass(slots=True)
class Tally:
    """The results of a number of random schedules."""

    schedules: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    first_bad: tuple[int, Violation] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Add the results of later seeds."""
        self.schedules += other.schedules
        self.bad += other.bad
        self.first_bad = self.first_bad or other.first_bad
        self.counts += other.counts


def run_seed(seed: int, build: Callable[[Chooser], World], trace: list[str] | None = None) -> World:
    """Run the schedule of this seed, always the same one. Raises Violation if it breaks a promise."""

    def note(actor: Actor, answer: Any) -> None:
        assert trace is not None, "noted only on demand"
        trace.append(f"{actor.name}: {actor.request[0].__name__}{actor.request[1:]} -> {answer}")

    chooser = RandomChooser(Random(seed))
    world = build(chooser)
    actors = world.actors
    answered = None if trace is None else note
    for _ in range(STEPS_MAX):
        if not actors:
            world.finish()
            return world
        advance(world, chooser.actor(actors), answered)
    raise Violation("stuck", f"still busy after {STEPS_MAX} steps")


def run_seeds(seeds: Iterable[int], build: Callable[[Chooser], World], enough: int = 1) -> Tally:
    """Run many seeds; stop once `enough` were bad."""
    counts = Tally()
    for seed in seeds:
        counts.schedules += 1
        try:
            world = run_seed(seed, build)
        except Violation as violation:
            counts.bad[violation.kind] += 1
            counts.first_bad = counts.first_bad or (seed, violation)
            if counts.bad.total() >= enough:
                break
        else:
            for name, count in world.counts.items():
                counts.counts[name] += count
    return counts


def run_slices(schedules: int, build: Callable[[Chooser], World], slice_schedules: int = SLICE_SCHEDULES) -> Tally:
    """Run the seeds below a number up to the first bad one; more than a slice of them on all cores."""
    slices = [range(first, schedules)[:slice_schedules] for first in range(0, schedules, slice_schedules)]
    if len(slices) == 1:
        return run_seeds(slices[0], build)
    counts = Tally()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for part in pool.map(partial(run_seeds, build=build), slices):
            counts.add(part)
            if counts.bad:
                pool.shutdown(cancel_futures=True)
                break
    return counts


class _PathChooser:
    """Follows a path of decisions, then takes the first option each time and records the number of options."""

    def __init__(self, path: list[int]) -> None:
        self.path = path
        self.widths: list[int] = []

    def below(self, options: int) -> int:
        if options == 1:
            return 0
        depth = len(self.widths)
        if depth == len(self.path):
            self.path.append(0)
        self.widths.append(options)
        return self.path[depth]

    def actor(self, actors: Sequence[Actor]) -> Actor:
        # The last take away what the others need: a search that begins with them finds wrong forms sooner.
        return actors[-1 - self.below(len(actors))]

    def fault(self, kinds: int) -> int | None:
        chosen = self.below(kinds + 1)
        return chosen - 1 if chosen else None


@dataclass(slots=True)
class Search:
    """The result of a search. `complete` unless it reached its limit of states."""

    states: int = 0
    runs: int = 0
    violation: Violation | None = None
    complete: bool = True


def search(build: Callable[[Chooser], World], states_max: int) -> Search:
    """Every schedule of a world, depth first, each state once.

    A generator cannot be copied, so each run starts again and replays the path to its branch. A run ends at a state
    seen before, which is explored already, or is being explored further up this path.
    """
    result = Search()
    seen: set[int] = set()
    path: list[int] = []
    while True:
        chooser = _PathChooser(path)
        result.runs += 1
        try:
            _run_path(build(chooser), chooser, seen)
        except Violation as violation:
            result.violation = violation
            break
        widths = chooser.widths
        while path and path[-1] + 1 == widths[len(path) - 1]:
            path.pop()
        if not path:
            break
        path[-1] += 1
        if len(seen) >= states_max:
            result.complete = False
            break
    result.states = len(seen)
    return result


def _run_path(world: World, chooser: _PathChooser, seen: set[int]) -> None:
    actors = world.actors
    while actors:
        actor = world.private()
        if actor is None:
            if len(chooser.widths) >= len(chooser.path):
                fingerprint = hash((_knowledge(actors), _knowledge(world.parked), world.fingerprint()))
                if fingerprint in seen:
                    return
                seen.add(fingerprint)
            actor = chooser.actor(actors)
        advance(world, actor, _remember)
    world.finish()


def _knowledge(actors: list[Actor]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted([(actor.name, actor.history) for actor in actors]))


def _remember(actor: Actor, answer: Hashable) -> None:
    actor.history = hash((actor.history, answer))
