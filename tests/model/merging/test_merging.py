"""Ordered tables answer right, in random schedules and in all of the tiny ones; each rule is needed."""

import pytest

from ..engine import run_seed, run_seeds, search
from ..museum import WrongForm, find, untried
from .casts import EMPTIED, ERASED, HALVES, LATE_ADD, REMOVED, SPANS, SUBSETS, Cast, world_of
from .rules import Rules
from .wrong_forms import WRONG_FORMS

# What must have happened, how often in 1,000 schedules at least: a green run in which nothing happens proves nothing.
QUOTA: dict[str, int] = {
    "add committed": 1_000,
    "add refused: under a fence": 20,
    "open committed": 500,
    "open refused: another file is in their span": 100,
    "open refused: an input is gone": 50,
    "open refused: an input is in another open job": 40,
    "open refused: no such leaf": 100,
    "replace committed": 500,
    "replace refused: under a fence": 1,
    "close committed": 3,
    "split committed": 300,
    "join committed": 100,
    "join refused: a file reaches over": 100,
    "join refused: a leaf has an open job": 30,
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
SMALL = {
    "two compactors, a split and a join": Cast(
        files=("+...", "..+.", "..-.", "+..."), compactors=(2, 1), splits=(2,), joiners=1
    ),
    "a compactor, a writer, a fenced removal, a split and a join": Cast(
        files=("++++", "+..+"), batches=("-+-+",), compactors=(1,), splits=(2,), joiners=1, removals=((1, 3, 1),)
    ),
}


def test_an_ordered_table_answers_right(protocol_schedules: int) -> None:
    tally = run_seeds(range(protocol_schedules), world_of(None, Rules()))
    for name, count in sorted(tally.counts.items()):
        print(f"{count:>10,}  {name}")
    assert not tally.bad, f"{tally.first_bad}"
    for name, per_thousand in QUOTA.items():
        assert tally.counts[name] * 1_000 >= per_thousand * protocol_schedules, f"{name}: {tally.counts[name]}"


@pytest.mark.parametrize("cast", TINY.values(), ids=TINY)
def test_no_schedule_of_a_tiny_cast_breaks_a_promise(cast: Cast) -> None:
    _search(cast, states_max=20_000)


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
