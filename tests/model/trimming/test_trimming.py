"""A log that is trimmed keeps every promise, in random schedules and in all of the tiny ones; each rule is needed."""

import pytest

from ..engine import run_seed, run_seeds, search
from ..museum import WrongForm, find, untried
from .casts import LATE_PUTS, LATE_READER, ROTTEN, TWO_TRIMMERS, Cast, world_of
from .rules import Rules
from .wrong_forms import WRONG_FORMS

# What must have happened, how often in 1,000 schedules at least: a green run in which nothing happens proves nothing.
QUOTA: dict[str, int] = {
    "answer lost": 50,
    "request late": 50,
    "crash after effect": 50,
    "crash, request late": 50,
    "late put landed": 20,
    "race lost": 500,
    "trimmed": 400,
    "floor race lost": 10,
    "opened again": 100,
    "trimmed number won again": 15,
    "woke below the floor": 15,
    "snapshot torn": 30,
    "snapshot rotten": 80,
    "told committed": 1_000,
    "reads": 2_000,
}

TINY = {
    "a writer who slept, a trimmer": Cast(writers=1, views=(0,)),
    "two writers, a trimmer": Cast(writers=2, views=(0, 2)),
    "a writer whose put is late, a trimmer": LATE_PUTS,
    "a writer and a reader who slept, a trimmer": LATE_READER,
    "a writer, a trimmer, snapshots that are damaged": ROTTEN,
}
SMALL = {
    "two writers, one answer lost, a trimmer": Cast(writers=2, views=(0, 2), faults=1),
    "a stream started again, one answer lost, a trimmer": Cast(writers=2, again=1, views=(0, 2), faults=1),
    "a writer, a reader, two trimmers": TWO_TRIMMERS,
}


def test_a_trimmed_log_keeps_its_promises(protocol_schedules: int) -> None:
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
def test_no_schedule_of_a_small_cast_breaks_a_promise(cast: Cast) -> None:
    _search(cast, states_max=2_000_000)


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
