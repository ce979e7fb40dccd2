"""Deletion keeps every promise, in random schedules and in all of the tiny ones; each rule is needed."""

import pytest

from ..engine import run_seed, run_seeds, search
from ..museum import WrongForm, find, untried
from .casts import LATE_JOB, OLD_PIN, PIN, REPEAT, SWEEP, SWEPT_JOB, TAG, Cast, world_of
from .rules import Rules
from .wrong_forms import WRONG_FORMS

# What must have happened, how often in 1,000 schedules at least: a green run in which nothing happens proves nothing.
QUOTA: dict[str, int] = {
    "answer lost": 50,
    "request lost": 50,
    "crash after effect": 50,
    "crash before effect": 50,
    "race lost": 1_000,
    "added": 500,
    "jobs changed": 500,
    "tags changed": 100,
    "horizon changed": 300,
    "retained_from changed": 200,
    "object deleted": 200,
    "orphan swept": 50,
    "refused for its age": 20,
    "pin refused": 20,
    "read with a pin": 200,
}

TINY = {
    "a reader with a pin, two collectors": OLD_PIN,
    "a compactor, a reader with a pin, a collector": PIN,
    "a tagger, a collector": TAG,
    "a writer who asks again, a collector": REPEAT,
    "a writer, a sweep": SWEEP,
    "a compactor, a sweep": SWEPT_JOB,
    "a compactor, one who closes its job, a sweep": LATE_JOB,
}
SMALL = {
    "a compactor, a reader with a pin, two collectors": Cast(compactors=1, readers=1, collectors=2, age=0),
    "a tagger, a reader with a pin, two collectors": Cast(taggers=1, readers=1, collectors=2, age=1),
    "two writers, two sweeps": Cast(writers=2, sweepers=2, age=0),
    "a writer, a sweep, a collector, two faults": Cast(writers=1, sweepers=1, collectors=1, age=0, faults=2),
}


def test_deletion_keeps_its_promises(protocol_schedules: int) -> None:
    tally = run_seeds(range(protocol_schedules), world_of(None, Rules()))
    for name, count in sorted(tally.counts.items()):
        print(f"{count:>10,}  {name}")
    assert not tally.bad, f"{tally.first_bad}"
    for name, per_thousand in QUOTA.items():
        assert tally.counts[name] * 1_000 >= per_thousand * protocol_schedules, f"{name}: {tally.counts[name]}"


@pytest.mark.parametrize("cast", TINY.values(), ids=TINY)
def test_no_schedule_of_a_tiny_cast_breaks_a_promise(cast: Cast) -> None:
    _search(cast, states_max=30_000)


@pytest.mark.slow
@pytest.mark.parametrize("cast", SMALL.values(), ids=SMALL)
def test_no_state_within_reach_of_a_small_cast_breaks_a_promise(cast: Cast) -> None:
    result = search(world_of(cast, Rules()), states_max=100_000)
    print(f"{result.states:,} states, {result.runs:,} runs, {'all' if result.complete else 'cut short'}")
    assert result.violation is None, str(result.violation)


@pytest.mark.parametrize("form", WRONG_FORMS, ids=lambda form: form.name)
def test_a_wrong_form_is_found(form: WrongForm) -> None:
    kinds = find(form, world_of(form.cast, form.rules))
    assert kinds, "not found"
    assert kinds <= set(form.shows.split(", "))


def test_every_wrong_value_of_every_rule_is_in_the_museum() -> None:
    assert not untried(Rules, WRONG_FORMS)


def test_a_seed_replays_its_schedule() -> None:
    for seed in range(20):
        traces: list[list[str]] = [[], []]
        for trace in traces:
            run_seed(seed, world_of(None, Rules()), trace)
        assert traces[0] == traces[1]
        assert traces[0]


def _search(cast: Cast, states_max: int) -> None:
    result = search(world_of(cast, Rules()), states_max)
    print(f"{result.states:,} states, {result.runs:,} runs")
    assert result.violation is None, str(result.violation)
    assert result.complete, f"more than {states_max:,} states"
