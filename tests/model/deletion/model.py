"""The exhibits of the model of deletion."""

from ..known_bad import Model
from .casts import LATE_JOB, OLD_PIN, PIN, REPEAT, SWEEP, SWEPT_JOB, TAG, Aged, Cast, swarm
from .rules import Rules
from .wrong_forms import WRONG_FORMS

QUOTA: dict[str, int] = {
    "answer lost": 50,
    "request lost": 50,
    "crash after effect": 50,
    "crash before effect": 50,
    "race lost": 1_000,
    "added": 500,
    "jobs changed": 500,
    "tags changed": 100,
    "cutoff changed": 300,
    "earliest_retained_version changed": 200,
    "object deleted": 200,
    "orphan swept": 50,
    "refused for its age": 20,
    "pin refused": 20,
    "read with a pin": 200,
}

TINY = {
    "a reader with a pin, two collectors": OLD_PIN,
    "a tagger, a collector": TAG,
    "a writer that asks again, a collector": REPEAT,
    "a writer, a sweep": SWEEP,
    "a compactor, a sweep": SWEPT_JOB,
    "a compactor, one that closes its job, a sweep": LATE_JOB,
}
SMALL = {"a compactor, a reader with a pin, a collector": PIN}
LARGE = {
    "a compactor, a reader with a pin, two collectors": Cast(compactors=1, readers=1, collectors=2, age=0),
    "a tagger, a reader with a pin, two collectors": Cast(taggers=1, readers=1, collectors=2, age=1),
    "two writers, two sweeps": Cast(writers=2, sweepers=2, age=0),
    "a writer, a sweep, a collector, two faults": Cast(writers=1, sweepers=1, collectors=1, age=0, faults=2),
}

DELETION = Model("deletion", Rules, swarm, Aged, QUOTA, WRONG_FORMS, TINY, SMALL, LARGE)
