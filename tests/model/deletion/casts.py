"""Who takes part in a schedule: drawn from the seed, or one of a few tiny casts.

A schedule begins with a table of some age: files were added, and the first of them merged away, so that there is
something to collect; whoever takes part may hold an older state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..engine import Chooser, Steps, World
from . import actors
from .rules import Rules
from .state import Job, State, add, open_job, replace
from .store import TICKS, Store


@dataclass(frozen=True, slots=True)
class Cast:
    """How many of each (`waking`: writers who ask again late), and by how many entries their states are old at most."""

    writers: int = 0
    waking: int = 0
    compactors: int = 0
    closers: int = 0
    readers: int = 0
    taggers: int = 0
    collectors: int = 0
    sweepers: int = 0
    age: int = 2
    faults: int = 0


def _past() -> tuple[State, ...]:
    """Files a and b are added; a job merges a to c."""
    job = Job("past", ("a",), 2)
    changes: tuple[Callable[[State], State | None], ...] = (
        lambda state: add(state, "a", "a"),
        lambda state: add(state, "b", "b"),
        lambda state: open_job(state, job),
        lambda state: replace(state, job, "c", Rules()),
    )
    states = [State()]
    for change in changes:
        after = change(states[-1])
        assert after is not None, "the past was valid"
        states.append(after)
    return tuple(states)


PAST = _past()


class Aged(Store):
    """A table with a past, and its cast."""

    def __init__(self, chooser: Chooser, rules: Rules, cast: Cast) -> None:
        super().__init__(chooser, rules, cast.faults)
        self.history, self.stamps = list(PAST), list(range(len(PAST)))
        self.objects = {"a": 0, "b": 1, "c": 3}
        self.committed = {"a", "b"}
        self.ticks = TICKS * len(PAST) - 3  # the next object is as old as the newest entry
        for index in range(cast.writers):
            self._hold(f"w{index}", partial(actors.write, key=f"batch{index}"), cast)
        for index in range(cast.waking):
            self._hold(f"v{index}", actors.ask_again, cast)
        for index in range(cast.compactors):
            self._hold(f"c{index}", actors.compact, cast)
        for index in range(cast.closers):
            self._hold(f"d{index}", actors.close, cast)
        for index in range(cast.readers):
            self._hold(f"r{index}", actors.read_pinned, cast)
        for index in range(cast.taggers):
            self._hold(f"t{index}", actors.put_tag, cast)
        for index in range(cast.collectors):
            self._hold(f"g{index}", actors.collect, cast)
        for index in range(cast.sweepers):
            self._hold(f"s{index}", actors.sweep, cast)

    def _hold(self, name: str, make: Callable[..., Steps[None]], cast: Cast) -> None:
        view = self.views[name] = self.history[-1 - self.chooser.below(cast.age + 1)]
        self.spawn(name, partial(make, self, name), knows=view)


def swarm(chooser: Chooser, rules: Rules) -> World:
    """A cast drawn by the chooser; each draw leaves much out."""
    below = chooser.below
    cast = Cast(
        writers=below(3),
        waking=below(3) == 0,
        compactors=below(3),
        closers=below(3) == 0,
        readers=below(2),
        taggers=below(3) == 0,
        collectors=1 + (below(3) == 0) if below(3) else 0,
        sweepers=1 + (below(4) == 0) if below(3) else 0,
        age=below(3),
        faults=below(3),
    )
    return Aged(chooser, rules, cast)


def world_of(cast: Cast | None, rules: Rules) -> Callable[[Chooser], World]:
    """What builds a world: of this cast, or of one that is drawn."""
    return partial(swarm, rules=rules) if cast is None else partial(Aged, rules=rules, cast=cast)


# The fewest actors in which a race can show.
PIN = Cast(compactors=1, readers=1, collectors=1, age=1)
OLD_PIN = Cast(readers=1, collectors=2)
TAG = Cast(taggers=1, collectors=1)
SWEEP = Cast(writers=1, sweepers=1)
SWEPT_JOB = Cast(compactors=1, sweepers=1, age=0)
LATE_JOB = Cast(compactors=1, closers=1, sweepers=1, age=0)
REPEAT = Cast(waking=1, collectors=1)
