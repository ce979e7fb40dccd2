"""What a process notes of its runs: when it is written, what is kept back, and that nothing stands in the way."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import lakebed
from lakebed.errors import Code
from lakebed.table.tracker.listing import RunFilter, job_runs, open_in_log, run_details
from lakebed.table.tracker.recorder import NO_RUN, Recorder, current_run, noting
from lakebed.table.tracker.runs import Begun, JobRun, RunOutcome, TaskRun, read_newest_first
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from tests.raising import raises

EXPORT = Begun(operation="export", table="t", table_id="00000000-table", base_version=3)


@pytest.fixture
def tracker(lake: lakebed.Instance) -> Recorder:
    # The thread writes nothing in the time of a test: each test says when.
    lake.tracker.flush_s = 3600.0
    return lake.tracker


Away = tuple[Recorder, FaultyStorage]


@pytest.fixture
def away(lake: lakebed.Instance) -> Away:
    """A recorder, and its store, which takes no record until its plan is another."""
    storage = FaultyStorage(lake.storage, FaultPlan([Rule(Fault.FAIL_BEFORE, "create")]))
    recorder = Recorder(storage)
    recorder.flush_s = 3600.0
    return recorder, storage


def objects(lake: lakebed.Instance) -> int:
    return len(list(lake.storage.list("jobs/runs")))


def only(lake: lakebed.Instance) -> JobRun:
    (run,) = job_runs(lake.storage)
    return run


def test_a_run_that_ended_before_it_was_written_is_written_once(lake: lakebed.Instance, tracker: Recorder) -> None:
    with tracker.running(EXPORT) as run:
        run.progress(rows_done=7, rows_total=9)
        run.ended(4, "7 rows")
    assert objects(lake) == 0
    tracker.flush()
    tracker.flush()
    assert objects(lake) == 1, "a second flush has nothing to write"
    found = only(lake)
    assert (found.outcome, found.rows_done, found.rows_total, found.version) == (RunOutcome.SUCCEEDED, 7, 9, 4)
    assert (found.operation, found.table, found.base_version, found.detail) == ("export", "t", 3, "7 rows")
    assert found.where.process
    assert found.finished is not None


def test_runs_of_many_tables_share_an_object(lake: lakebed.Instance, tracker: Recorder) -> None:
    for number in range(50):
        with tracker.running(Begun(operation="gc", table=f"t{number}", table_id=f"0000000{number}")):
            pass
    tracker.flush()
    assert objects(lake) == 1
    assert [run.table for run in job_runs(lake.storage)] == [f"t{number}" for number in reversed(range(50))]


def test_the_newest_record_of_a_run_counts(lake: lakebed.Instance, tracker: Recorder) -> None:
    with tracker.running(EXPORT) as run:
        tracker.flush()
        assert only(lake).outcome is RunOutcome.RUNNING
        run.progress(rows_done=5, rows_total=10)
        tracker.flush()
        assert only(lake).rows_done == 5
    tracker.flush()
    assert only(lake).outcome is RunOutcome.SUCCEEDED
    assert objects(lake) == 3


def test_work_that_found_nothing_to_do_leaves_no_record(lake: lakebed.Instance, tracker: Recorder) -> None:
    with tracker.running(EXPORT) as run:
        run.nothing()
    tracker.flush()
    assert objects(lake) == 0
    with tracker.running(EXPORT) as run:
        tracker.flush()
        run.nothing()
    tracker.flush()
    assert only(lake).outcome is RunOutcome.SUCCEEDED, "it was seen, so its end is too"


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (Code.OBJECT_NOT_FOUND("gone"), "failed", "object_not_found"),
        (Code.STORE_UNAVAILABLE("no answer"), "failed", "store_unavailable"),
        (RuntimeError("a bug"), "failed", "foreign_error"),
        (KeyboardInterrupt(), "cancelled", None),
    ],
)
def test_an_exception_ends_the_run(
    lake: lakebed.Instance, tracker: Recorder, error: BaseException, outcome: str, code: str | None
) -> None:
    with pytest.raises(type(error)), tracker.running(EXPORT):
        raise error
    tracker.flush()
    found = only(lake)
    assert found.outcome == outcome
    if code is not None:
        assert found.error is not None
        assert found.error.code == code


def test_a_call_that_was_refused_leaves_no_record(lake: lakebed.Instance, tracker: Recorder) -> None:
    with raises(Code.ARGUMENT_INVALID), tracker.running(EXPORT):
        raise Code.ARGUMENT_INVALID("no format 'xls'")
    tracker.flush()
    assert objects(lake) == 0


def test_an_error_that_a_run_recorded_is_known_to_its_caller(tracker: Recorder) -> None:
    error = Code.STORE_UNAVAILABLE("no answer")
    with noting() as recorded, raises(Code.STORE_UNAVAILABLE), tracker.running(EXPORT):
        raise error
    assert recorded == [error]


def test_a_failure_without_an_exception_fails_the_run(lake: lakebed.Instance, tracker: Recorder) -> None:
    with tracker.running(EXPORT) as run:
        run.ended(5, "2 partitions, 1 failed")
        run.failed(Code.OBJECT_DAMAGED("its digest is wrong"))
    tracker.flush()
    found = only(lake)
    assert (found.outcome, found.version) == (RunOutcome.FAILED, 5)
    assert found.error is not None
    assert found.error.code == "object_damaged"


def test_tasks_are_counted_and_listed_with_their_run(lake: lakebed.Instance, tracker: Recorder) -> None:
    with tracker.running(EXPORT) as run:
        assert current_run() is run
        assert run.plan_tasks(2, "workers") == 0
        assert run.plan_tasks(1, "workers") == 2
        run.task(TaskRun(job=run.id, number=0, rows=5, host="a"))
        run.task(TaskRun(job=run.id, number=1, attempt=3, host="b"), Code.WORKER_FAILED("it exited"))
        tracker.flush()
        run.task(TaskRun(job=run.id, number=2, rows=6, host="a"))
    assert current_run() is NO_RUN
    tracker.flush()
    details = run_details(lake.storage, run.id[-12:])
    found = details.run
    assert (found.tasks, found.tasks_done, found.tasks_failed, found.retries) == (3, 2, 1, 2)
    assert found.where.executor == "workers"
    assert [(task.number, task.rows, task.attempt) for task in details.tasks] == [(0, 5, 1), (1, 0, 3), (2, 6, 1)]
    failure = details.tasks[1].error
    assert failure is not None
    assert failure.message == "it exited"


def test_more_tasks_than_are_kept_are_counted(lake: lakebed.Instance, tracker: Recorder) -> None:
    tracker.tasks_max = 10
    with tracker.running(EXPORT) as run:
        run.plan_tasks(100, "workers")
        for number in range(100):
            run.task(TaskRun(job=run.id, number=number), None if number % 2 else RuntimeError("x"))
    tracker.flush()
    details = run_details(lake.storage, run.id)
    assert (details.run.tasks_done, details.run.tasks_failed) == (50, 50)
    assert len(details.tasks) == 20


def test_a_store_that_takes_no_record_gets_it_later(
    lake: lakebed.Instance, away: tuple[Recorder, FaultyStorage]
) -> None:
    tracker, storage = away
    with tracker.running(EXPORT) as run:
        run.plan_tasks(1, "workers")
        run.task(TaskRun(job=run.id, number=0))
    tracker.flush()
    assert isinstance(tracker.failing, lakebed.StorageError)
    storage.plan = FaultPlan([])
    tracker.flush()
    assert tracker.failing is None
    assert len(run_details(lake.storage, run.id).tasks) == 1


def test_notes_are_bounded_while_the_store_is_away(
    lake: lakebed.Instance, away: tuple[Recorder, FaultyStorage]
) -> None:
    tracker, storage = away
    tracker.notes_max = 5
    for number in range(20):
        with tracker.running(Begun(operation="gc", table=f"t{number}")):
            pass
        tracker.flush()
    storage.plan = FaultPlan([])
    tracker.flush()
    assert [run.table for run in job_runs(lake.storage)] == ["t19", "t18", "t17", "t16", "t15"]


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "'quotes\"\n", "é" * 2000])
def test_any_text_can_be_recorded(lake: lakebed.Instance, tracker: Recorder, text: str) -> None:
    begun = Begun(operation="export", table=text, key=text, detail=text)
    tracker.record_failure(begun, RuntimeError(text))
    tracker.flush()
    assert tracker.failing is None
    assert only(lake).outcome is RunOutcome.FAILED


def test_a_thread_writes_what_was_noted(lake: lakebed.Instance) -> None:
    lake.tracker.flush_s = 0.01
    with lake.tracker.running(EXPORT):
        thread = lake.tracker._thread
        assert thread is not None
        while objects(lake) == 0:
            thread.join(0.01)
    while only(lake).running:
        thread.join(0.01)


def test_a_process_writes_at_its_end_and_one_that_was_killed_loses_its_runs(lake: lakebed.Instance) -> None:
    program = """
import os, signal, sys, lakebed
from lakebed.table.tracker.runs import Begun
tracker = lakebed.open(sys.argv[1]).tracker
with tracker.running(Begun(operation="export", table="ended")):
    pass
tracker.begin(Begun(operation="export", table="killed"))
if sys.argv[2] == "kill":
    tracker.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program, lake.url, "end"], check=True)
    assert {run.table: run.outcome for run in job_runs(lake.storage)} == {
        "ended": RunOutcome.SUCCEEDED,
        "killed": RunOutcome.LOST,
    }
    subprocess.run([sys.executable, "-c", program, lake.url, "kill"], check=False)
    lost = job_runs(lake.storage, RunFilter(outcomes=frozenset([RunOutcome.LOST])))
    assert len(lost) == 2


def test_filters(lake: lakebed.Instance, tracker: Recorder) -> None:
    for operation, table_id in (("gc", "a"), ("export", "a"), ("export", "b")):
        with tracker.running(Begun(operation=operation, table=table_id, table_id=table_id)):
            pass
    tracker.record_failure(Begun(operation="export", table="b", table_id="b"), RuntimeError("x"))
    tracker.flush()

    def count(**given: object) -> int:
        return len(job_runs(lake.storage, RunFilter(**given)))  # type: ignore[arg-type]

    assert count() == 4
    assert count(tables=frozenset("a")) == 2
    assert count(operation="export") == 3
    assert count(outcomes=frozenset([RunOutcome.FAILED])) == 1
    assert count(tables=frozenset("a"), operation="export", outcomes=frozenset([RunOutcome.FAILED])) == 0
    assert len(job_runs(lake.storage, limit=2)) == 2


def test_old_records_are_trimmed_by_the_store_s_clock(lake: lakebed.Instance, tracker: Recorder) -> None:
    with tracker.running(EXPORT):
        pass
    tracker.flush()
    assert tracker.trim() == 0
    lake.set(jobs_kept_s=0)
    assert tracker.trim() == 1
    assert job_runs(lake.storage) == []


def test_an_object_that_is_damaged_is_named(lake: lakebed.Instance, tracker: Recorder) -> None:
    with tracker.running(EXPORT):
        pass
    tracker.flush()
    (name,) = [found.name for found in lake.storage.list("jobs/runs")]
    data = lake.storage.get(name) or b""
    header = json.loads(data.splitlines()[0])
    for damaged in (b"", b"[]\n", data.splitlines()[0], data + b"{}\n", data[:-20], b"\xff" + data):
        lake.storage.replace(name, damaged)
        with pytest.raises(lakebed.DamagedError) as raised:
            list(read_newest_first(lake.storage))
        assert raised.value.code is Code.DOCUMENT_DAMAGED
    lake.storage.replace(name, json.dumps(header | {"format": 99}).encode() + b"\n")
    with pytest.raises(lakebed.UnsupportedFormatError) as raised:
        list(read_newest_first(lake.storage))
    assert raised.value.code is Code.FORMAT_TOO_NEW


def test_a_run_that_is_not_on_record_is_not_found(lake: lakebed.Instance) -> None:
    with pytest.raises(lakebed.NotFoundError, match="jobs_kept_s"):
        run_details(lake.storage, "0192aaaa-0000-7000-8000-000000000000")
    with pytest.raises(lakebed.UsageError, match="last 8 characters"):
        run_details(lake.storage, "abc")


def test_a_write_of_rows_leaves_no_record(lake: lakebed.Instance, tracker: Recorder) -> None:
    import pyarrow as pa

    table = lake.create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))
    table.write(pa.table({"k": ["a"], "n": [1]}))
    tracker.flush()
    assert objects(lake) == 0
    assert open_in_log({}, table.log.last_modified_or_epoch, (table.id, "t"), []) == []
