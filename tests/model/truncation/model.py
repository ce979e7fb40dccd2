"""The exhibits of the model of a truncated log."""

from ..known_bad import Model
from .casts import LATE_LISTING, LATE_PUT_LISTED, LATE_PUTS, LATE_READER, ROTTEN, TWO_TRIMMERS, Cast, Truncated, swarm
from .rules import Rules
from .wrong_forms import WRONG_FORMS

QUOTA: dict[str, int] = {
    "answer lost": 50,
    "request late": 50,
    "crash after effect": 50,
    "crash, request late": 50,
    "late put landed": 20,
    "race lost": 500,
    "truncated": 400,
    "floor race lost": 10,
    "opened again": 100,
    "listed": 50,
    "truncated version won again": 15,
    "woke below the log start": 15,
    "checkpoint torn": 30,
    "checkpoint rotten": 80,
    "reported committed": 1_000,
    "reads": 2_000,
}

TINY = {
    "a writer that slept, a trimmer": Cast(writers=1, snapshots=(0,)),
    "two writers, a trimmer": Cast(writers=2, snapshots=(0, 2)),
    "a writer whose put is late, a trimmer": LATE_PUTS,
    "a writer and a reader that slept, a trimmer": LATE_READER,
    "a writer, a process that lists, a trimmer": LATE_LISTING,
    "a writer, a trimmer, checkpoints that are damaged": ROTTEN,
}
SMALL = {
    "two writers, one answer lost, a trimmer": Cast(writers=2, snapshots=(0, 2), faults=1),
    "a stream started again, one answer lost, a trimmer": Cast(writers=2, again=1, snapshots=(0, 2), faults=1),
    "a writer, a reader, two trimmers": TWO_TRIMMERS,
    "two writers, one that slept, a process that lists, a trimmer": LATE_PUT_LISTED,
}

TRIMMING = Model("truncation", Rules, swarm, Truncated, QUOTA, WRONG_FORMS, TINY, small=SMALL)
