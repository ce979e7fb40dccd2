"""Each rule is needed: stated more simply, it is found out. A model that could not see that would prove nothing."""

import dataclasses
import typing

import pytest

from .rules import Rules
from .schedule import run_seeds
from .wrong_forms import CLIENT_RETRIES, LOOKS_RIGHT, WRONG_FORMS, WrongForm

ENOUGH = 3


@pytest.mark.parametrize("form", WRONG_FORMS, ids=lambda form: form.name)
def test_a_wrong_form_is_found(form: WrongForm) -> None:
    tally = run_seeds(range(form.seeds_max), form.rules, cast=form.cast, enough=ENOUGH)
    print(f"{form.name}: {tally.bad.total()} of {tally.schedules:,} schedules: {dict(tally.bad)}")
    assert tally.first_bad is not None, f"not found in {form.seeds_max:,} schedules"
    print(f"first by seed {tally.first_bad.seed}: {tally.first_bad.violation}")
    assert set(tally.bad) <= form.shows


@pytest.mark.parametrize("rules", LOOKS_RIGHT, ids=("exists is a lost race", "request keys forgotten"))
def test_two_rules_guard_against_a_retry_of_the_client(rules: Rules) -> None:
    tally = run_seeds(range(500), rules, cast=CLIENT_RETRIES, enough=1)
    assert not tally.bad, f"{tally.first_bad}"


def test_every_wrong_value_of_every_rule_is_in_the_museum() -> None:
    shown = {(f.name, getattr(form.rules, f.name)) for form in WRONG_FORMS for f in dataclasses.fields(Rules)}
    for name, values in typing.get_type_hints(Rules).items():
        right, *wrong = typing.get_args(values)
        assert getattr(Rules(), name) == right
        for value in wrong:
            assert (name, value) in shown, f"{name} = {value!r} is tried nowhere"
