"""The exhibits of each model: it keeps its promises, and each of its rules is needed.

Random schedules of casts drawn from a seed, and all schedules of the tiny casts, break no promise. Each wrong form, a
protocol with one rule stated too simply, is found. A model that missed one would prove nothing.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .engine import Chooser, Search, World, run_seed, run_seeds, run_slices, search

SEARCHED = 50_000  # states, of a wrong form
STATES_MAX = 3_000_000  # of a cast whose schedules are all searched
WITHIN_REACH = 100_000  # states of a cast that has too many


@dataclass(frozen=True, slots=True)
class WrongForm:
    """A wrong protocol, why it is wrong, and the violations that it causes.

    `one_in` is the rate measured in random schedules, of the swarm or of a small cast if the swarm is too diffuse; it
    must be found within twenty times as many. If it is None, the form is too rare, and all schedules are searched.
    """

    name: str
    rules: Any
    because: str
    shows: str
    one_in: int | None
    cast: Any = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model with its exhibits. Casts are by name; the model defines what a cast and the rules are.

    The schedules of a tiny cast are searched in seconds, of a small one in minutes, of a large one only in part.
    `quota` has the minimum number of events in 1,000 random schedules: a green run without events proves nothing.
    """

    name: str
    rules: type[Any]
    draw: Callable[[Chooser], Any]  # a cast
    stage: Callable[[Chooser, Any, Any], World]  # by these rules, with this cast
    quota: Mapping[str, int]
    wrong_forms: tuple[WrongForm, ...]
    tiny: Mapping[str, Any]
    small: Mapping[str, Any] = field(default_factory=dict)
    large: Mapping[str, Any] = field(default_factory=dict)

    def world_of(self, cast: Any, rules: Any) -> Callable[[Chooser], World]:
        """Return a function that builds a world: of this cast, or of a drawn one if it is None."""
        if cast is None:
            return partial(_drawn_world, self.draw, self.stage, rules)
        return partial(_cast_world, self.stage, rules, cast)


def _drawn_world(draw: Callable[[Chooser], Any], stage: Callable[..., World], rules: Any, chooser: Chooser) -> World:
    return stage(chooser, rules, draw(chooser))


def _cast_world(stage: Callable[..., World], rules: Any, cast: Any, chooser: Chooser) -> World:
    return stage(chooser, rules, cast)


def show_at_random(model: Model, schedules: int, cast: Any = None) -> None:
    """Check that this many random schedules break no promise and, with drawn casts, that enough events happen in
    them.
    """
    counts = run_slices(schedules, model.world_of(cast, model.rules()))
    for name, count in sorted(counts.counts.items()):
        print(f"{count:>10,}  {name}")
    assert counts.first_bad is None, "seed {}: {}".format(*counts.first_bad)
    for name, per_thousand in model.quota.items() if cast is None else ():
        assert counts.counts[name] * 1_000 >= per_thousand * schedules, f"{name}: {counts.counts[name]}"


def show_every_schedule(model: Model, cast: Any) -> None:
    """Check that no schedule of a cast breaks a promise."""
    result = _searched(model, cast, STATES_MAX)
    assert result.complete, f"more than {STATES_MAX:,} states"


def show_within_reach(model: Model, cast: Any) -> None:
    """Check that no state visited before the limit of the search breaks a promise."""
    _searched(model, cast, WITHIN_REACH)


def _searched(model: Model, cast: Any, states_max: int) -> Search:
    result = search(model.world_of(cast, model.rules()), states_max)
    print(f"{result.states:,} states, {result.runs:,} runs, {'all' if result.complete else 'cut short'}")
    assert result.violation is None, str(result.violation)
    return result


def show_found(model: Model, form: WrongForm) -> None:
    """Check that a wrong form is found, with the stated violation."""
    build = model.world_of(form.cast, form.rules)
    kinds: set[str] = set()
    if form.one_in is None:
        violation = search(build, SEARCHED).violation
        kinds.update([] if violation is None else [violation.kind])
    else:
        counts = run_seeds(range(max(1_000, 20 * form.one_in)), build)
        print(f"{counts.bad.total()} of {counts.schedules:,} schedules: {dict(counts.bad)}")
        kinds.update(counts.bad)
    assert kinds, "not found"
    assert kinds <= set(form.shows.split(", "))


def show_replay(model: Model, seeds: Iterable[int] = range(20)) -> None:
    """Check that a seed gives the same schedule again."""
    for seed in seeds:
        traces: list[list[str]] = [[], []]
        for trace in traces:
            run_seed(seed, model.world_of(None, model.rules()), trace)
        assert traces[0] == traces[1]
        assert traces[0]


def untried(model: Model) -> list[str]:
    """Return the wrong values of rules that no known-bad variant has."""
    rules = model.rules
    shown = {(f.name, getattr(form.rules, f.name)) for form in model.wrong_forms for f in dataclasses.fields(rules)}
    missing = []
    for name, values in typing.get_type_hints(rules).items():
        right, *wrong = typing.get_args(values)
        assert getattr(rules(), name) == right, "the first value is the right form"
        missing += [f"{name} = {value!r}" for value in wrong if (name, value) not in shown]
    return missing
