"""What a service does next: what is due on a table, and whose turn it is."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lakebed.model.operations import REST_S
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.transactions import ProposeFiles
from lakebed.model.table_summary import Backlog, Record, TableSummary, TableView
from lakebed.server.service.plan import (
    HELD_BACK_MAX_S,
    IDLE_MAX_S,
    PILED_S,
    RETRY_MAX_S,
    Due,
    ServiceLimits,
    choose,
    due,
    failed,
    succeeded,
)
from lakebed.server.service.summary import summarise
from tests.pure.state.cases import new_file, step
from tests.pure.state.cases import table as empty_table

INGEST, COMPACTION, SPLITTING = "ingest", "compaction", "splitting"
REFRESH, GC = "refresh", "gc"
LIMITS = ServiceLimits()
COLLECTED = {GC: Record(0.0, 0.0, 5)}
QUIET = TableSummary(version=5, ingest_bytes_min=1000, ingest_age_s=300)
RUNS = Backlog(runs_due=4)


def view(summary: TableSummary, **facts: object) -> TableView:
    given = {"online": True, "paused": (), "records": COLLECTED} | facts
    return TableView("t", summary=summary, **given)  # type: ignore[arg-type]


def operations(table: TableView, now_s: float = 100.0) -> list[str]:
    return [one.operation for one in due(replace(table, now_s=now_s), LIMITS)[0]]


DUE = {
    "nothing": (view(QUIET), []),
    "few bytes of young requests": (
        view(replace(QUIET, backlog=Backlog(requests=2, size_bytes=999)), oldest_s=299.0),
        [],
    ),
    "many bytes": (view(replace(QUIET, backlog=Backlog(requests=2, size_bytes=1000))), [INGEST]),
    "an old request": (view(replace(QUIET, backlog=Backlog(requests=2, size_bytes=1)), oldest_s=300.0), [INGEST]),
    "runs": (view(replace(QUIET, backlog=RUNS)), [COMPACTION]),
    "runs while requests pile up": (view(replace(QUIET, backlog=RUNS, crowded=True)), []),
    "a job that may be left over": (view(replace(QUIET, jobs=1)), [COMPACTION]),
    "a large partition": (view(replace(QUIET, splits=1)), [SPLITTING]),
    "small partitions": (view(replace(QUIET, joins=1)), [SPLITTING]),
    "a view that lags": (view(replace(QUIET, source="s", fed=3), source_version=4), [REFRESH]),
    "a view that is fed": (view(replace(QUIET, source="s", fed=4), source_version=4), []),
    "all of an offline table": (
        view(replace(QUIET, backlog=Backlog(requests=1, size_bytes=1000, runs_due=4), splits=1, jobs=1), online=False),
        [INGEST],
    ),
    "what is not paused": (
        view(replace(QUIET, backlog=RUNS, splits=1), paused={COMPACTION}),
        [SPLITTING],
    ),
    "what is not parked": (
        view(replace(QUIET, backlog=RUNS, splits=1), records=COLLECTED | {COMPACTION: Record(parked=True)}),
        [SPLITTING],
    ),
}


@pytest.mark.parametrize("case", DUE)
def test_an_operation_is_due_when_there_is_something_to_do(case: str) -> None:
    table, expected = DUE[case]
    assert operations(table) == expected


def test_garbage_is_collected_of_tables_that_changed_and_of_all_once_a_day() -> None:
    period_s = LIMITS.periods[GC]
    changed = view(replace(QUIET, version=6))
    assert operations(changed, period_s - 1) == []
    assert operations(changed, period_s) == [GC]
    assert operations(view(QUIET), REST_S - 1) == []
    assert operations(view(QUIET), REST_S) == [GC]


def test_an_operation_is_not_due_before_its_period_has_passed() -> None:
    table = view(replace(QUIET, backlog=RUNS), records=COLLECTED | {COMPACTION: Record(90.0, 95.0, 4)})
    found, look_s = due(replace(table, now_s=100.0), LIMITS)
    assert not found
    assert look_s == 95.0 + LIMITS.periods[COMPACTION]
    assert operations(table, look_s) == [COMPACTION]


PILED = replace(QUIET, version=9, backlog=RUNS, splits=1, piled=True)
BEGUN = {operation: Record(1000.0, 1000.0, 5) for operation in (COMPACTION, SPLITTING, GC)}


def first_begin(table: TableView, operation: str, limits: ServiceLimits = LIMITS) -> float | None:
    """How long after its last run, at 1000 s, an operation begins again; None: not within two hours."""
    for after in range(2 * 3600):
        if operation in [one.operation for one in due(replace(table, now_s=1000.0 + after), limits)[0]]:
            return after
    return None


def test_a_table_whose_runs_pile_up_is_compacted_before_it_is_split_and_collected() -> None:
    often = ServiceLimits(periods=LIMITS.periods | {GC: 5.0})
    piled, merged = (view(replace(PILED, piled=one), records=BEGUN) for one in (True, False))
    begins = {one: (first_begin(merged, one, often), first_begin(piled, one, often)) for one in BEGUN}
    assert begins == {
        COMPACTION: (10.0, PILED_S),
        SPLITTING: (30.0, 30.0 + HELD_BACK_MAX_S),
        GC: (5.0, 5.0 + HELD_BACK_MAX_S),
    }


@pytest.mark.parametrize(
    "facts",
    [
        {"paused": {COMPACTION}},
        {"records": BEGUN | {COMPACTION: Record(1000.0, 1000.0, 5, parked=True)}},
        {"summary": replace(PILED, crowded=True)},
    ],
    ids=["paused", "parked", "waiting for ingest"],
)
def test_nothing_is_held_back_for_a_compaction_that_cannot_begin(facts: dict[str, object]) -> None:
    table = replace(view(PILED, records=BEGUN), **facts)  # type: ignore[arg-type]
    assert first_begin(table, COMPACTION) is None
    assert first_begin(table, SPLITTING) == 30.0


def test_ingest_is_not_held_back_where_runs_pile_up() -> None:
    backlog = replace(RUNS, requests=1, size_bytes=1000)
    ingested = BEGUN | {INGEST: Record(1000.0, 1000.0, 5)}
    assert first_begin(view(replace(PILED, backlog=backlog), records=ingested), INGEST) == 1.0


@pytest.mark.parametrize(
    ("runs", "changes", "piled"),
    [
        (48, {}, False),
        (49, {}, True),
        (8, {"compaction_batch_runs": 2}, False),
        (9, {"compaction_batch_runs": 2}, True),
        (11, {"runs_max": 20}, True),
        (49, {"compaction_run_bytes": 1024, "compaction_strategy": Strategy.BASIC, "runs_max": 0}, True),
        (49, {"compaction_strategy": Strategy.BY_BYTES}, False),
    ],
    ids=["four batches", "more", "small batches", "more of them", "half of the bound", "no bound", "no merge is due"],
)
def test_runs_pile_up_where_merges_are_due_and_more_than_a_few_batches_wait(
    runs: int, changes: dict[str, object], piled: bool
) -> None:
    state = empty_table("m")
    for number in range(runs):
        state = step(state, ProposeFiles((new_file(f"f{number}", "abc"),)))
    assert summarise(state, Settings(**changes), online=True).piled is piled  # type: ignore[arg-type]
    assert not summarise(state, Settings(**changes), online=False).piled  # type: ignore[arg-type]


def test_an_operation_that_changed_nothing_waits_longer_until_the_table_changes() -> None:
    record = Record()
    waits = []
    now_s = 1000.0
    for _ in range(12):
        record = succeeded(record, now_s, 5, 5)
        table = view(replace(QUIET, splits=1), records=COLLECTED | {SPLITTING: record})
        waits.append(due(replace(table, now_s=now_s), LIMITS)[1] - now_s)
        now_s += waits[-1]
    assert waits == sorted(waits)
    assert waits[-1] == IDLE_MAX_S
    changed = view(replace(QUIET, version=6, splits=1), records=COLLECTED | {SPLITTING: record})
    assert SPLITTING in operations(changed, record.ended_s + LIMITS.periods[SPLITTING])


def test_requests_that_wait_for_their_age_are_looked_at_when_they_have_it() -> None:
    table = view(replace(QUIET, backlog=Backlog(requests=1, size_bytes=1)), oldest_s=100.0)
    assert due(replace(table, now_s=1000.0), LIMITS)[1] == 1200.0


def test_a_failure_waits_twice_as_long_each_time_and_for_ever_if_it_is_no_fault() -> None:
    record = Record()
    waits = []
    for _ in range(100):
        record = failed(record, 10.0, LIMITS.retry, 1.0, fault=False)
        waits.append(record.next_s - 10.0)
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == RETRY_MAX_S
    assert not record.parked


def test_an_operation_is_parked_after_so_many_faults_in_a_row() -> None:
    record = Record()
    for _ in range(LIMITS.failures_max - 1):
        record = failed(record, 10.0, LIMITS.retry, 0.0, fault=True)
    assert not record.parked
    assert (
        failed(failed(record, 10.0, LIMITS.retry, 0.0, fault=False), 10.0, LIMITS.retry, 0.0, fault=True).parked
        is False
    )
    assert failed(record, 10.0, LIMITS.retry, 0.0, fault=True).parked


def one(table: str, operation: str, served_s: float = -math.inf) -> Due:
    return Due(table, operation, "", 0, served_s, served_s)


def test_a_lane_has_so_many_operations_at_once_and_one_of_each_table() -> None:
    waiting = [one("a", COMPACTION), one("a", SPLITTING), one("b", SPLITTING), one("c", GC), one("a", INGEST)]
    found = choose(waiting, (), ServiceLimits(at_once=2))
    assert [(due.table, due.operation) for due in found] == [("a", COMPACTION), ("c", GC), ("a", INGEST)]
    assert choose(waiting, [("a", COMPACTION), ("c", GC)], ServiceLimits(at_once=2)) == [one("a", INGEST)]


def test_a_table_that_always_has_work_keeps_no_other_from_its_turn() -> None:
    served = dict.fromkeys("abc", -math.inf)
    turns: list[str] = []
    for now in range(9):
        waiting = [one(table, COMPACTION, served[table]) for table in "abc"]
        (chosen,) = choose(waiting, (), ServiceLimits(at_once=1))
        served[chosen.table] = float(now)
        turns.append(chosen.table)
    assert turns == list("abc" * 3)
