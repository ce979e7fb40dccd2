"""Two explorers: one integer is one random schedule, and a depth-first search is all of them."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from .checks import Violation
from .rules import Rules
from .scenario import Fault, Scenario, swarm
from .world import STEPS_MAX, World


class RandomChooser:
    """Draws every decision; often one actor sleeps for a while, since rare races need somebody very slow."""

    def __init__(self, random: Random, actors: int) -> None:
        self._random = random.random
        self._fault_share = random.choice((0.15, 0.4))
        self._sleeper = random.randrange(actors) if random.random() < 0.7 else None
        self._sleeps_from = random.randrange(25)
        self._sleeps_until = self._sleeps_from + random.randrange(5, 60)
        self._step = 0

    def step(self, options: list[int]) -> int:
        self._step += 1
        if self._sleeps_from <= self._step < self._sleeps_until and len(options) > 1 and self._sleeper in options:
            options = [option for option in options if option != self._sleeper]
        return options[int(self._random() * len(options))]

    def fault(self, kinds: tuple[Fault, ...]) -> Fault | None:
        return kinds[int(self._random() * len(kinds))] if self._random() < self._fault_share else None

    def below(self, options: int) -> int:
        return int(self._random() * options)


@dataclass(frozen=True, slots=True)
class Run:
    """How one schedule ended."""

    seed: int
    violation: Violation | None
    counts: Counter[str]
    steps: int


def run_seed(seed: int, rules: Rules, cast: Scenario | None = None, trace: list[str] | None = None) -> Run:
    """The schedule of this seed, always the same one. Without a cast the seed draws that too."""
    random = Random(seed)
    scenario = cast or swarm(random)
    processes = {client.process for client in scenario.clients}
    world = World(scenario, rules, RandomChooser(random, len(processes) + len(scenario.clients)), trace)
    steps = 0
    try:
        while options := world.options():
            world.step(world.chooser.step(options))
            steps += 1
            if steps > STEPS_MAX:
                raise Violation("stuck", f"still busy after {STEPS_MAX} steps")
        world.finish()
    except Violation as violation:
        return Run(seed, violation, world.counts, steps)
    return Run(seed, None, world.counts, steps)


@dataclass(slots=True)
class Tally:
    """What a number of random schedules showed."""

    schedules: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    first_bad: Run | None = None
    counts: Counter[str] = field(default_factory=Counter)


def run_seeds(seeds: Iterable[int], rules: Rules, *, cast: Scenario | None = None, enough: int | None = None) -> Tally:
    """Run many seeds; stop early once `enough` were bad."""
    tally = Tally()
    for seed in seeds:
        run = run_seed(seed, rules, cast)
        tally.schedules += 1
        for name, count in run.counts.items():
            tally.counts[name] += count
        if run.violation is not None:
            tally.bad[run.violation.kind] += 1
            tally.first_bad = tally.first_bad or run
            if enough is not None and tally.bad.total() >= enough:
                break
    return tally


class _Visited(Exception):
    """This run has reached a state that was explored before."""


class _PathChooser:
    """Follows a path of decisions, then takes the first option each time and notes how many there were."""

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

    def step(self, options: list[int]) -> int:
        return options[self.below(len(options))]

    def fault(self, kinds: tuple[Fault, ...]) -> Fault | None:
        chosen = self.below(len(kinds) + 1)
        return kinds[chosen - 1] if chosen else None

    def replaying(self) -> bool:
        return len(self.widths) < len(self.path)


@dataclass(slots=True)
class Search:
    """What a search has seen. `complete` unless it was cut at its limit of states."""

    states: int = 0
    runs: int = 0
    ends: int = 0
    violation: Violation | None = None
    complete: bool = True


def search(
    scenario: Scenario, rules: Rules, states_max: int, progress: Callable[[Search], None] | None = None
) -> Search:
    """Every schedule of a scenario, depth first, each state once.

    A generator cannot be copied, so each run starts anew and replays the path to where it branches off. A run ends
    where it meets a state seen before: that one is explored already, or is being so further up this very path.
    """
    result = Search()
    seen: set[int] = set()
    path: list[int] = []
    while True:
        chooser = _PathChooser(path)
        result.runs += 1
        try:
            _run_path(World(scenario, rules, chooser), chooser, seen)
            result.ends += 1
        except _Visited:
            pass
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
        if progress is not None and result.runs % 10_000 == 0:
            progress(result)
    result.states = len(seen)
    return result


def _run_path(world: World, chooser: _PathChooser, seen: set[int]) -> None:
    while options := world.options():
        private = world.private()
        if private is not None:
            options = [private]
        elif not chooser.replaying():
            fingerprint = world.fingerprint()
            if fingerprint in seen:
                raise _Visited
            seen.add(fingerprint)
        world.step(chooser.step(options))
    world.finish()
