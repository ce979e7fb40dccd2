"""The model of ordered tables on show."""

from ..known_bad import Model
from .casts import EMPTIED, ERASED, HALVES, LATE_ADD, REMOVED, SPANS, SUBSETS, Cast, swarm, world_of
from .rules import Rules
from .wrong_forms import WRONG_FORMS

QUOTA: dict[str, int] = {
    "add committed": 1_000,
    "add refused: under a fence": 20,
    "open committed": 500,
    "open refused: another file is in their span": 100,
    "open refused: an input is gone": 50,
    "open refused: an input is in another open job": 40,
    "open refused: no such partition": 100,
    "replace committed": 500,
    "replace refused: under a fence": 1,
    "close committed": 3,
    "split committed": 300,
    "join committed": 100,
    "join refused: a file reaches over": 100,
    "join refused: a partition has an open job": 30,
    "remove committed": 200,
}

TINY = {
    "three files, a compactor": SUBSETS,
    "four files, a compactor, a split and a join": SPANS,
    "a compactor, two writers": LATE_ADD,
    "a compactor, a writer, a fenced removal": ERASED,
    "a writer, a removal": REMOVED,
    "a compactor, a removal, a join": EMPTIED,
    "a compactor, a removal of half its rows, a join": HALVES,
}
LARGE = {
    "two compactors, a split and a join": Cast(
        files=("+...", "..+.", "..-.", "+..."), compactors=(2, 1), splits=(2,), joiners=1
    ),
    "a compactor, a writer, a fenced removal, a split and a join": Cast(
        files=("++++", "+..+"), batches=("-+-+",), compactors=(1,), splits=(2,), joiners=1, removals=((1, 3, 1),)
    ),
}

MERGING = Model("merging", Rules, swarm, world_of, QUOTA, WRONG_FORMS, TINY, large=LARGE)
