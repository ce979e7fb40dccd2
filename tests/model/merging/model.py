"""The exhibits of the model of tables that merge rows."""

from ..known_bad import Model
from .casts import (
    AGED,
    BACK,
    CHANGED,
    EMPTIED,
    ERASED,
    HALVES,
    HIDDEN,
    KINDS,
    LATE_ADD,
    OLD_ROWS,
    REMOVED,
    REVIVED,
    SORTED,
    SORTED_PARTS,
    SPANS,
    SUBSETS,
    TIED,
    TIED_WHOLE,
    WHOLE,
    Cast,
    swarm,
    world_of,
)
from .rules import Rules
from .wrong_forms import WRONG_FORMS

QUOTA: dict[str, int] = {
    "add committed": 1_000,
    "add refused: of another mode": 5,
    "add refused: under a fence": 15,
    "close committed": 3,
    "cut committed": 200,
    "cut refused: not above the cut": 40,
    "filter committed": 200,
    "join committed": 100,
    "join refused: a file reaches over": 100,
    "join refused: a partition has an open job": 30,
    "mode committed": 30,
    "mode refused: the table has rows": 30,
    "open committed": 400,
    "open refused: an input is gone": 50,
    "open refused: an input is in another open job": 40,
    "open refused: no such partitions": 50,
    "open refused: older files": 50,
    "open refused: other files between them": 100,
    "open refused: other files between them in another partition": 3,
    "open refused: rows of an input are missing": 50,
    "remove committed": 200,
    "replace committed": 400,
    "replace refused: of another filter": 3,
    "replace refused: under a fence": 1,
    "restore committed": 50,
    "restore refused: of another mode": 1,
    "split committed": 300,
}

TINY = {
    "three files, a compactor": SUBSETS,
    "a compactor, two writers": LATE_ADD,
    "a compactor, a writer, a fenced removal": ERASED,
    "a writer, a removal": REMOVED,
    "a compactor, a removal, a join": EMPTIED,
    "a compactor, a removal of half its rows, a join": HALVES,
    "a job over two partitions, a split, a join": WHOLE,
    "outputs with one span, jobs over two partitions, a split": TIED_WHOLE,
    "deletes and partial rows, a compactor": KINDS,
    "a row, a delete, a partial row": REVIVED,
    "rows by sort key, a late writer": SORTED,
    "partial rows by sort key": SORTED_PARTS,
    "a compactor, a writer, a restore": BACK,
    "a compactor, two changes of the filter": HIDDEN,
    "a compactor, a cut raised and lowered": AGED,
    "a compactor, a cut, rows with ages": OLD_ROWS,
    "a writer, a removal, a restore, another mode": CHANGED,
}
SMALL = {
    "four files, a compactor, a split and a join": SPANS,
    "outputs with one span, a compactor, splits and a join": TIED,
}
LARGE = {
    "two compactors, a split and a join": Cast(
        files=("+...", "..+.", "..-.", "+..."), compactors=(2, 1), splits=(2,), joiners=1
    ),
    "a compactor, a writer, a fenced removal, a split and a join": Cast(
        files=("++++", "+..+"), batches=("-+-+",), compactors=(1,), splits=(2,), joiners=1, removals=((1, 3, 1),)
    ),
    "jobs over two partitions, a writer of partial rows, a restore, a split and a join": Cast(
        files=("++.+", "+.-."), batches=("ab.-",), compactors=(2,), whole=True, restorers=1, splits=(2,), joiners=1
    ),
}

MERGING = Model("merging", Rules, swarm, world_of, QUOTA, WRONG_FORMS, TINY, small=SMALL, large=LARGE)
