"""Who takes part in a schedule, and the files that are there before: drawn from the seed, or a tiny cast."""

from dataclasses import dataclass
from functools import partial

from ..engine import Chooser, World
from . import actors
from .rules import Rules
from .state import KEYS, Row
from .store import Store


@dataclass(frozen=True, slots=True)
class Cast:
    """`files` and `batches` are drawings, a character a key: `+` puts, `-` deletes, `.` partitions alone."""

    files: tuple[str, ...]
    batches: tuple[str, ...] = ()  # each a writer's
    compactors: tuple[int, ...] = ()  # the jobs of each
    closers: int = 0
    splits: tuple[int, ...] = ()
    joiners: int = 0
    looks: int = 2
    removals: tuple[tuple[int, int, int], ...] = ()  # min, max, fence


def rows_of(drawing: str, label: str) -> tuple[Row, ...]:
    """The rows of a drawing."""
    return tuple(Row(key, label, mark == "-") for key, mark in enumerate(drawing) if mark != ".")


def world_of(chooser: Chooser, rules: Rules, cast: Cast) -> World:
    """A world of this cast."""
    store = Store(chooser, rules, tuple(rows_of(drawing, f"f{index}") for index, drawing in enumerate(cast.files)))
    for index, drawing in enumerate(cast.batches):
        store.spawn(f"w{index}", partial(actors.write, store, f"w{index}", (rows_of(drawing, f"w{index}"),)))
    for index, jobs in enumerate(cast.compactors):
        store.spawn(f"c{index}", partial(actors.compact, store, f"c{index}", jobs))
    for index in range(cast.closers):
        store.spawn(f"d{index}", partial(actors.close, store))
    for at in cast.splits:
        store.spawn(f"s{at}", partial(actors.cut, store, at))
    for index in range(cast.joiners):
        store.spawn(f"j{index}", partial(actors.unite, store, cast.looks))
    for lower, upper, fence in cast.removals:
        store.spawn(f"x{lower}{upper}", partial(actors.erase, store, lower, upper, fence))
    return store


def swarm(chooser: Chooser) -> Cast:
    """A cast drawn by the chooser; each draw partitions much out."""
    below = chooser.below

    def drawing() -> str:
        drawn = "".join("..++-"[below(5)] for _ in range(KEYS))
        return drawn if drawn.strip(".") else "+" * KEYS

    removals = []
    if below(2):
        lower = below(KEYS)
        removals.append((lower, lower + 1 + below(KEYS - lower), below(2)))
    return Cast(
        files=tuple(drawing() for _ in range(1 + below(4))),
        batches=tuple(drawing() for _ in range(below(3))),
        compactors=tuple(1 + below(3) for _ in range(1 + below(2))),
        closers=below(4) == 0,
        splits=tuple({1 + below(KEYS - 1) for _ in range(below(3))}),
        joiners=below(2),
        looks=4,
        removals=tuple(removals),
    )


# The fewest actors in which a form shows.
SUBSETS = Cast(files=("++..", "+-..", "-+.."), compactors=(1,))
SPANS = Cast(files=("+...", "..+.", "..-.", "+..."), compactors=(2,), splits=(2,), joiners=1)
LATE_ADD = Cast(files=("+...",), batches=("-+..", "+-.."), compactors=(1,))
ERASED = Cast(files=("++++", "+..+"), batches=("-+-+",), compactors=(1,), removals=((1, 3, 1),))
REMOVED = Cast(files=("++++",), batches=("-+-+",), removals=((1, 3, 0),))
EMPTIED = Cast(files=("++++", "++++"), compactors=(1,), joiners=1, removals=((0, 2, 0),))
HALVES = Cast(files=("++..", "..++"), compactors=(1,), joiners=1, looks=3, removals=((0, 2, 0),))
