"""The actors of a schedule: drawn from the seed, or one of a few tiny casts.

A schedule begins with a table with a history: files were added, and the first of them merged away, so that there is
something to collect. Actors may hold an older state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..engine import Chooser, Steps
from . import actors
from .rules import Rules
from .state import Job, State, add, open_job, replace
from .store import TICKS, Store


@dataclass(frozen=True, slots=True)
class Cast:
    """The number of each actor (`waking`: writers that retry late), and the maximum age of their states in entries."""

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
    """Files a and b are added; a job merges them to c."""
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
    """A table with a history, and its cast."""

    def __init__(self, chooser: Chooser, rules: Rules, cast: Cast) -> None:
        super().__init__(chooser, rules, cast.faults)
        self.history, self.last_modified_times = list(PAST), list(range(len(PAST)))
        self.objects = {"a": 0, "b": 1, "c": 3}
        self.committed = {"a", "b"}
        self.ticks = TICKS * len(PAST) - 3  # the next object is as old as the newest entry
        for letter, count, make in (
            ("w", cast.writers, actors.write),
            ("v", cast.waking, actors.ask_again),
            ("c", cast.compactors, actors.compact),
            ("d", cast.closers, actors.close),
            ("r", cast.readers, actors.read_pinned),
            ("t", cast.taggers, actors.put_tag),
            ("g", cast.collectors, actors.collect),
            ("s", cast.sweepers, actors.sweep),
        ):
            for index in range(count):
                self._hold(f"{letter}{index}", make, cast)

    def _hold(self, name: str, make: Callable[[Store, str], Steps[None]], cast: Cast) -> None:
        snapshot = self.snapshots[name] = self.history[-1 - self.chooser.below(cast.age + 1)]
        self.spawn(name, partial(make, self, name), knows=snapshot)


def swarm(chooser: Chooser) -> Cast:
    """Return a cast drawn by the chooser; each draw leaves out many actors."""
    below = chooser.below
    return Cast(
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


# The fewest actors in which a race can show.
PIN = Cast(compactors=1, readers=1, collectors=1, age=1)
OLD_PIN = Cast(readers=1, collectors=2)
TAG = Cast(taggers=1, collectors=1)
SWEEP = Cast(writers=1, sweepers=1)
SWEPT_JOB = Cast(compactors=1, sweepers=1, age=0)
LATE_JOB = Cast(compactors=1, closers=1, sweepers=1, age=0)
REPEAT = Cast(waking=1, collectors=1)
