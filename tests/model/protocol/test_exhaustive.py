"""Every schedule of the tiny casts, with their states counted."""

import pytest

from .casts import emptied_leaf, halved_job, late_job, rejoined, restarted, small_table, two_writers
from .rules import Rules
from .scenario import Scenario
from .schedule import search

SECONDS = {
    "one writer, splitter, compactor": small_table(1, 1, faults_max=0),
    "two writers of two batches, one answer lost": two_writers(2, faults_max=1),
    "two writers of two batches, two answers lost": two_writers(2, faults_max=2),
    "two writers of one batch, two answers lost": two_writers(1, faults_max=2),
    "a stream started again, two answers lost": restarted(faults_max=2),
}
MINUTES = {
    "one writer, splitter, compactor, one answer lost": small_table(1, 1, faults_max=1),
    "two writers, splitter, compactor": small_table(2, 1, faults_max=0),
    "two compactors, closer": late_job(),
    "compactor, remover, joiner": emptied_leaf(),
}
TOO_MANY = {
    "two writers, splitter, compactor, one answer lost": small_table(2, 1, faults_max=1),
    "two compactors, splitter": halved_job(),
    "compactor, joiner, writer, one answer lost": rejoined(),
}


@pytest.mark.parametrize("cast", SECONDS.values(), ids=SECONDS)
def test_no_schedule_of_a_tiny_cast_breaks_a_promise(cast: Scenario) -> None:
    _search(cast, states_max=100_000)


@pytest.mark.slow
@pytest.mark.parametrize("cast", MINUTES.values(), ids=MINUTES)
def test_no_schedule_of_a_small_cast_breaks_a_promise(cast: Scenario) -> None:
    _search(cast, states_max=3_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("cast", TOO_MANY.values(), ids=TOO_MANY)
def test_no_state_within_reach_of_a_larger_cast_breaks_a_promise(cast: Scenario) -> None:
    assert search(cast, Rules(), states_max=200_000).violation is None


def test_the_search_finds_a_wrong_form() -> None:
    assert search(emptied_leaf(), Rules(join_jobs="any"), states_max=10_000).violation is not None


def _search(cast: Scenario, states_max: int) -> None:
    result = search(cast, Rules(), states_max)
    print(f"{result.states:,} states, {result.runs:,} runs, {result.ends:,} of them to the end")
    assert result.violation is None, str(result.violation)
    assert result.complete, f"more than {states_max:,} states"
