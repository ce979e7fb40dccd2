"""Tests of the protocol alone: small casts at random, wrong forms by search, and two rules of which either suffices."""

import pytest

from ..engine import run_seeds, search
from ..known_bad import show_at_random
from .casts import (
    Cast,
    emptied_partition,
    halved_job,
    late_job,
    rejoined,
    restarted,
    small_table,
    two_writers,
    wide_job,
    wide_split,
)
from .model import PROTOCOL
from .rules import Rules
from .wrong_forms import CLIENT_RETRIES, LOOKS_RIGHT

CASTS = {
    "two writers": two_writers(2),
    "client retries": two_writers(2, ("client retry", "answer lost", "request lost")),
    "restarted": restarted(faults_max=2),
    "small table": small_table(2, 1, faults_max=2),
    "late job": late_job(looks=4),
    "halved job": halved_job(),
    "wide job": wide_job(),
    "wide split": wide_split(),
    "emptied partition": emptied_partition(looks=6),
    "rejoined": rejoined(),
}


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_random_schedules_of_a_small_cast_break_no_promise(cast: Cast, protocol_schedules: int) -> None:
    show_at_random(PROTOCOL, protocol_schedules // 20, cast)


@pytest.mark.parametrize("rules", LOOKS_RIGHT, ids=("exists is a lost race", "request keys forgotten"))
def test_two_rules_guard_against_a_retry_of_the_client(rules: Rules) -> None:
    counts = run_seeds(range(500), PROTOCOL.world_of(CLIENT_RETRIES, rules))
    assert not counts.bad, f"{counts.first_bad}"


@pytest.mark.parametrize(
    ("cast", "rules"),
    [
        (rejoined(), Rules(join_files="any")),
        (emptied_partition(), Rules(join_jobs="any")),
        (halved_job(), Rules(open_range="inputs somewhere in it")),
        (wide_job(), Rules(open_range="inputs somewhere in it")),
    ],
    ids=(
        "any two partitions join",
        "partitions with open jobs join",
        "inputs anywhere in the range",
        "a wide job of a part",
    ),
)
def test_the_search_finds_a_wrong_form_too(cast: Cast, rules: Rules) -> None:
    assert search(PROTOCOL.world_of(cast, rules), states_max=10_000).violation is not None
