"""The protocol keeps every promise in random schedules, and those schedules are worth something."""

import pytest

from .casts import emptied_leaf, halved_job, late_job, rejoined, restarted, small_table, two_writers
from .rules import Rules
from .scenario import FAULTS, Scenario
from .schedule import run_seed, run_seeds

# What must have happened, how often in 1,000 schedules at least: a green run in which nothing happens proves nothing.
QUOTA: dict[str, int] = {
    "late put landed": 40,
    "race lost": 400,
    "transactions grouped": 400,
    "AddFile committed": 1_000,
    "OpenJob committed": 400,
    "Replace committed": 400,
    "CloseJob committed": 10,
    "Split committed": 300,
    "Join committed": 40,
    "Remove committed": 100,
    "job committed into several leaves": 20,
    "told Unknown": 200,
    "told NotCommitted": 3,
    "refused: no such open job": 10,
    "refused: an input is gone": 20,
    "refused: an input is in another open job": 20,
    "refused: no such leaf": 200,
    "refused: a file reaches over": 3,
    "refused: a leaf has an open job": 3,
    "refused: nothing to remove": 20,
}

CASTS = {
    "two writers": two_writers(2),
    "client retries": two_writers(2, ("client retry", "answer lost", "request lost")),
    "restarted": restarted(faults_max=2),
    "small table": small_table(2, 1, faults_max=2),
    "late job": late_job(looks=4),
    "halved job": halved_job(),
    "emptied leaf": emptied_leaf(looks=6),
    "rejoined": rejoined(),
}


def test_the_protocol_keeps_its_promises(protocol_schedules: int) -> None:
    tally = run_seeds(range(protocol_schedules), Rules(), enough=1)
    for name, count in sorted(tally.counts.items()):
        print(f"{count:>10,}  {name}")
    assert not tally.bad, f"{tally.first_bad}"
    for name, per_thousand in (QUOTA | dict.fromkeys(FAULTS, 40)).items():
        assert tally.counts[name] * 1_000 >= per_thousand * protocol_schedules, f"{name}: {tally.counts[name]}"


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_it_keeps_them_in_each_small_cast(cast: Scenario, protocol_schedules: int) -> None:
    tally = run_seeds(range(protocol_schedules // 20), Rules(), cast=cast, enough=1)
    assert not tally.bad, f"{tally.first_bad}"


def test_a_seed_replays_its_schedule() -> None:
    for seed in range(20):
        traces: list[list[str]] = [[], []]
        for trace in traces:
            run_seed(seed, Rules(), trace=trace)
        assert traces[0] == traces[1]
        assert traces[0]
