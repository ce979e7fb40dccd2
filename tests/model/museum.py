"""What the museums of the models share: a wrong form, how it is found, and whether any is missing."""

import dataclasses
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .engine import Chooser, World, run_seeds, search

ENOUGH = 3
SEARCHED = 50_000  # states


@dataclass(frozen=True, slots=True)
class WrongForm:
    """A protocol to be found out, why it is wrong, and how it shows.

    `one_in` is the rate measured in random schedules, of the swarm or of a small cast where the swarm is too diffuse; a
    find is demanded within twenty times as many. Where it is None the form is too rare, and all schedules are searched.
    """

    name: str
    rules: Any
    because: str
    shows: str
    one_in: int | None
    cast: Any = None


def find(form: WrongForm, build: Callable[[Chooser], World]) -> set[str]:
    """The kinds of violation that the form was found by; empty if it was not."""
    if form.one_in is None:
        violation = search(build, SEARCHED).violation
        return set() if violation is None else {violation.kind}
    tally = run_seeds(range(max(1_000, 20 * form.one_in)), build, enough=ENOUGH)
    print(f"{form.name}: {tally.bad.total()} of {tally.schedules:,} schedules: {dict(tally.bad)}")
    return set(tally.bad)


def untried(rules: type[Any], forms: Iterable[WrongForm]) -> list[str]:
    """The wrong values of rules that no form in the museum has."""
    shown = {(f.name, getattr(form.rules, f.name)) for form in forms for f in dataclasses.fields(rules)}
    missing = []
    for name, values in typing.get_type_hints(rules).items():
        right, *wrong = typing.get_args(values)
        assert getattr(rules(), name) == right, "the first value is the right form"
        missing += [f"{name} = {value!r}" for value in wrong if (name, value) not in shown]
    return missing
