"""The exhibits of the model of a log that loses entries."""

from ..known_bad import Model
from .actors import APPENDED, DELETED, FAILED_OVER, Cast, swarm, world_of
from .rules import Rules
from .wrong_forms import WRONG_FORMS

QUOTA: dict[str, int] = {
    "appended": 500,
    "append refused": 50,
    "race lost": 200,
    "lost": 300,
    "reported lost": 100,
    "reads": 500,
    "appended meanwhile": 5,
}

TINY = {
    "two writers, a fail-over": FAILED_OVER,
    "a writer, a reader, a deletion": DELETED,
    "a writer, a reader": APPENDED,
}
SMALL = {"two writers, a reader, a fail-over, a deletion": Cast(2, 1, 1, 2, (2, 1), 2, 1)}

LOST_ENTRIES = Model("lost entries", Rules, swarm, world_of, QUOTA, WRONG_FORMS, TINY, SMALL)
