"""The actors of a schedule, and the files at its start: drawn from the seed, or a tiny cast."""

from dataclasses import dataclass
from functools import partial

from ..engine import Chooser, World
from . import actors
from .rows import KEYS, Kind, Mode, Row
from .rules import Rules
from .state import File
from .store import Store


@dataclass(frozen=True, slots=True)
class Cast:
    """`files` and `batches` are drawings, one character per key: `+` a whole row, `-` a delete, `a` and `b` a partial
    row with that column, `.` no row. Digits after a `/` are the ages of the rows. Drawings of one write are separated
    by blanks, in input order.
    """

    files: tuple[str, ...]
    mode: Mode = "latest"
    spans: tuple[tuple[int, int], ...] = ()  # of the files, if jobs and joins made them
    batches: tuple[str, ...] = ()  # each of one writer
    compactors: tuple[int, ...] = ()  # the number of jobs of each
    whole: bool = False  # also jobs over two partitions
    closers: int = 0
    splits: tuple[int, ...] = ()
    joiners: int = 0
    looks: int = 2
    removals: tuple[tuple[int, int, int], ...] = ()  # min, max, fence
    restorers: int = 0
    filters: tuple[int | None, ...] = ()
    cuts: tuple[int, ...] = ()
    modes: tuple[Mode, ...] = ()


def rows_of(drawings: str, label: str) -> tuple[Row, ...]:
    """Return the rows of the drawings of one write."""
    rows = []
    for turn, drawing in enumerate(drawings.split()):
        marks, _, ages = drawing.partition("/")
        name = f"{label}{turn or ''}"
        for key, mark in enumerate(marks):
            age = int(ages[key]) if ages else 0
            match mark:
                case "+":
                    rows.append(Row(key, Kind.WHOLE, name, name, age))
                case "a":
                    rows.append(Row(key, Kind.PARTIAL, name, None, age))
                case "b":
                    rows.append(Row(key, Kind.PARTIAL, None, name, age))
                case "-":
                    rows.append(Row(key, Kind.DELETE, name, None, age))
                case _:
                    assert mark == ".", f"a drawing with {mark}"
    return tuple(rows)


def world_of(chooser: Chooser, rules: Rules, cast: Cast) -> World:
    """Return a world of this cast."""
    spans = cast.spans or tuple((number, number) for number in range(1, len(cast.files) + 1))
    files = tuple(
        File(f"f{index}", *spans[index], rows_of(drawing, f"f{index}")) for index, drawing in enumerate(cast.files)
    )
    store = Store(chooser, rules, files, cast.mode)
    for index, drawing in enumerate(cast.batches):
        store.spawn(f"w{index}", partial(actors.write, store, f"w{index}", (rows_of(drawing, f"w{index}"),)))
    for index, jobs in enumerate(cast.compactors):
        store.spawn(f"c{index}", partial(actors.compact, store, f"c{index}", jobs, cast.whole))
    for index in range(cast.closers):
        store.spawn(f"d{index}", partial(actors.close, store))
    for at in cast.splits:
        store.spawn(f"s{at}", partial(actors.cut, store, at))
    for index in range(cast.joiners):
        store.spawn(f"j{index}", partial(actors.unite, store, cast.looks))
    for lower, upper, fence in cast.removals:
        store.spawn(f"x{lower}{upper}", partial(actors.erase, store, lower, upper, fence))
    for index in range(cast.restorers):
        store.spawn(f"r{index}", partial(actors.go_back, store))
    if cast.filters:
        store.spawn("h", partial(actors.hide, store, cast.filters))
    if cast.cuts:
        store.spawn("a", partial(actors.age, store, cast.cuts))
    for mode in cast.modes:
        store.spawn(f"m{mode}", partial(actors.change_mode, store, mode, cast.looks))
    return store


def swarm(chooser: Chooser) -> Cast:
    """Return a cast drawn by the chooser; each draw leaves out many actors."""
    below = chooser.below
    mode: Mode = ("latest", "latest", "latest", "by sort key", "first")[below(5)]
    marks = {"latest": "..++-ab", "by sort key": "..++-", "first": "..+++"}[mode]

    def drawing() -> str:
        drawn = "".join(marks[below(len(marks))] for _ in range(KEYS))
        drawn = drawn if drawn.strip(".") else "+" * KEYS
        return f"{drawn}/{''.join(str(below(4)) for _ in range(KEYS))}" if mode == "by sort key" else drawn

    removals = []
    modes: tuple[Mode, ...] = ()
    if below(2):
        lower = below(KEYS)
        removals.append((lower, lower + 1 + below(KEYS - lower), below(2)))
    elif below(4) == 0:
        removals.append((0, KEYS, 0))
        modes = ("first",) if mode == "latest" else ("latest",)
    return Cast(
        files=tuple(drawing() for _ in range(1 + below(4))),
        mode=mode,
        batches=tuple(drawing() for _ in range(below(3))),
        compactors=tuple(1 + below(3) for _ in range(1 + below(2))),
        whole=below(2) == 0,
        closers=below(4) == 0,
        splits=tuple({1 + below(KEYS - 1) for _ in range(below(3))}),
        joiners=below(3),
        looks=4,
        removals=tuple(removals),
        restorers=below(3) == 0,
        filters=((0,), (1, None))[below(2)] if below(4) == 0 else (),
        cuts=((1,), (1, 2), (2, 1))[below(3)] if below(3) == 0 else (),
        modes=modes,
    )


# The fewest actors in which a form shows.
SUBSETS = Cast(files=("++..", "+-..", "-+.."), compactors=(1,))
SPANS = Cast(files=("+...", "..+.", "..-.", "+..."), compactors=(2,), splits=(2,), joiners=1)
LATE_ADD = Cast(files=("+...",), batches=("-+..", "+-.."), compactors=(1,))
ERASED = Cast(files=("++++", "+..+"), batches=("-+-+",), compactors=(1,), removals=((1, 3, 1),))
REMOVED = Cast(files=("++++",), batches=("-+-+",), removals=((1, 3, 0),))
EMPTIED = Cast(files=("++++", "++++"), compactors=(1,), joiners=1, removals=((0, 2, 0),))
HALVES = Cast(files=("++..", "..++"), compactors=(1,), joiners=1, looks=3, removals=((0, 2, 0),))
WHOLE = Cast(files=("+...", "+.+.", "..+."), compactors=(1,), whole=True, splits=(2,), joiners=1)
LONG = Cast(files=("..+.", "+.+."), spans=((3, 3), (1, 6)), splits=(2,), joiners=1)
TIED = Cast(files=("..+.", "+...", "..+."), spans=((2, 2), (1, 4), (1, 4)), compactors=(1,), splits=(1, 3), joiners=1)
TIED_WHOLE = Cast(
    files=("..+.", "+...", "..+."), spans=((2, 2), (1, 4), (1, 4)), compactors=(2,), whole=True, splits=(1,)
)
KINDS = Cast(files=("++..", "-a..", "ab..", "bb.."), compactors=(2,))
REVIVED = Cast(files=("+...", "-...", "a..."), compactors=(1,))
SORTED = Cast(files=("+/1", "-/3"), mode="by sort key", batches=("+/2",), compactors=(1,))
SORTED_PARTS = Cast(files=("+/1",), mode="by sort key", batches=("b/3", "a/2"), compactors=(1,))
BACK = Cast(files=("++..",), batches=("+-..",), compactors=(1,), restorers=1)
HIDDEN = Cast(files=("++..", "++.."), compactors=(1,), filters=(0, None))
AGED = Cast(files=("++..", "+-.."), compactors=(1,), cuts=(1, 0))
OLD_ROWS = Cast(files=("+/2", "+/2", "+/0"), compactors=(1,), cuts=(1,))
CHANGED = Cast(files=("++..",), batches=("..+. ..+.",), removals=((0, 4, 0),), restorers=1, modes=("first",))
