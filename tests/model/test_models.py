"""Each model keeps its promises, in random schedules and in all of the tiny ones; each of its rules is needed."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from . import known_bad
from .deletion.model import DELETION
from .known_bad import Model, WrongForm
from .lost_entries.model import LOST_ENTRIES
from .merging.model import MERGING
from .protocol.model import PROTOCOL
from .truncation.model import TRIMMING

MODELS = (PROTOCOL, TRIMMING, MERGING, DELETION, LOST_ENTRIES)


SLOWER = {
    "protocol: one writer, splitter, compactor",
    "deletion: a reader with a pin, two collectors",
    "deletion: a compactor, one that closes its job, a sweep",
    "deletion: pins, then the marks of others",
    "truncation: a writer and a reader that slept, a trimmer",
    "truncation: a writer whose put is late, a trimmer",
    "truncation: a listing whose entries are read without the log start",
}
"""Exhibits with the most schedules, searched in the soak; each model has others in which the same actors meet."""


def each(exhibits: Callable[[Model], Iterable[tuple[str, Any]]]) -> list[Any]:
    """Return exhibits of each model, by its name."""
    named = [(f"{model.name}: {name}", model, value) for model in MODELS for name, value in exhibits(model)]
    return [pytest.param(*exhibit, id=id, marks=[pytest.mark.slow] * (id in SLOWER)) for id, *exhibit in named]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_random_schedules_break_no_promise(model: Model, protocol_schedules: int) -> None:
    known_bad.show_at_random(model, protocol_schedules)


@pytest.mark.parametrize(("model", "cast"), each(lambda model: model.tiny.items()))
def test_no_schedule_of_a_tiny_cast_breaks_a_promise(model: Model, cast: Any) -> None:
    known_bad.show_every_schedule(model, cast)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "cast"), each(lambda model: model.small.items()))
def test_no_schedule_of_a_small_cast_breaks_a_promise(model: Model, cast: Any) -> None:
    known_bad.show_every_schedule(model, cast)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "cast"), each(lambda model: model.large.items()))
def test_no_state_within_reach_of_a_large_cast_breaks_a_promise(model: Model, cast: Any) -> None:
    known_bad.show_within_reach(model, cast)


@pytest.mark.parametrize(("model", "form"), each(lambda model: ((form.name, form) for form in model.wrong_forms)))
def test_a_wrong_form_is_found(model: Model, form: WrongForm) -> None:
    known_bad.show_found(model, form)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_wrong_value_of_every_rule_is_in_the_museum(model: Model) -> None:
    assert not known_bad.untried(model)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_seed_replays_its_schedule(model: Model) -> None:
    known_bad.show_replay(model)
