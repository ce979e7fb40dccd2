"""Runs of jobs on Spark are on record: where, how many attempts their tasks took, and what failed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Pipeline
from lakebed.errors import Code
from lakebed.jobs.interrupt import Stop
from lakebed.spark.spark_executor import SparkExecutor
from lakebed.table.tracker.listing import RunFilter, job_runs, run_details
from lakebed.table.tracker.recorder import RunHandle
from lakebed.table.tracker.runs import Begun, JobRun, RunOutcome
from tests.raising import raises


@pytest.fixture
def table(lake: lakebed.Instance) -> lakebed.Table:
    found = lake.create_table("t", lakebed.Schema({"k": "int64"}, {}, {"n": "int64"}))
    for start in range(4):
        found.write(pa.table({"k": range(start, 4_000, 4), "n": range(1_000)}))
    return found


def only(instance: lakebed.Instance, operation: str) -> JobRun:
    instance.tracker.flush()
    (run,) = job_runs(instance.storage, RunFilter(operation=operation))
    return run


def test_a_compaction_is_recorded_with_its_tasks(lake: lakebed.Instance, pipeline: Pipeline, table: Any) -> None:
    report = pipeline.compact(table, strategy="full")
    run = only(lake, "compaction")
    assert (run.outcome, run.version, run.rows_done) == (RunOutcome.SUCCEEDED, report.version, 4_000)
    assert run.where.executor == pipeline.session.sparkContext.applicationId
    details = run_details(lake.storage, run.id)
    assert sum(task.rows for task in details.tasks) == 4_000
    assert (run.tasks, run.tasks_done, run.retries) == (len(details.tasks), len(details.tasks), 0)
    assert all(task.host and task.seconds is not None for task in details.tasks)


def test_an_import_is_recorded_with_its_tasks(
    lake: lakebed.Instance, pipeline: Pipeline, table: Any, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"k": range(500), "n": range(500)}), tmp_path / "a.parquet")
    pipeline.bulk_import(table, tmp_path / "a.parquet")
    run = only(lake, "import")
    tasks = run_details(lake.storage, run.id).tasks
    assert (run.tasks, run.tasks_done) == (len(tasks), len(tasks))
    assert sum(task.rows for task in tasks) == 500
    assert all(task.host and task.seconds is not None for task in tasks)


def test_a_damaged_file_fails_its_task_and_the_run(
    lake: lakebed.Instance, pipeline: Pipeline, table: lakebed.Table
) -> None:
    name = next(found.name for found in table.storage.list(f"tables/{table.id}/data") if ".parquet" in found.name)
    path = Path(lake.url.removeprefix("file://")) / name
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    with raises(Code.OBJECT_DAMAGED):
        pipeline.compact(table, strategy="full")
    run = only(lake, "compaction")
    assert run.outcome is RunOutcome.FAILED
    assert run.error is not None
    assert run.error.kind == "damaged"
    (failed,) = [task for task in run_details(lake.storage, run.id).tasks if task.error is not None]
    assert failed.error is not None
    assert run.tasks_failed == 1


def dies_once(marker: str) -> int:
    """A task whose worker dies at its first attempt."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return 7
    os._exit(1)


def test_attempts_of_a_task_whose_worker_died_are_counted(
    lake: lakebed.Instance, pipeline: Pipeline, tmp_path: Path
) -> None:
    tasks = SparkExecutor(lambda: pipeline.session)
    with lake.tracker.running(Begun(operation="ingest")) as run:
        assert isinstance(run, RunHandle)
        made = tasks.run([str(tmp_path / "died")], dies_once, int, Stop(), memory_limit_bytes=2**26, run=run)
    assert made == [7]
    found = only(lake, "ingest")
    assert (found.tasks_done, found.retries) == (1, 1)
    (task,) = run_details(lake.storage, found.id).tasks
    assert task.attempt == 2


def test_an_import_is_recorded_with_its_job_id(
    lake: lakebed.Instance, pipeline: Pipeline, table: Any, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"k": range(500), "n": range(500)}), tmp_path / "in.parquet")
    pipeline.bulk_import(table, str(tmp_path / "in.parquet"), job_id="monday")
    run = only(lake, "import")
    assert (run.outcome, run.key, run.rows_done) == (RunOutcome.SUCCEEDED, "monday", 500)
    with raises(Code.SOURCE_NOT_FOUND):
        pipeline.bulk_import(table, str(tmp_path / "nothing"), job_id="tuesday")
    lake.tracker.flush()
    failed = job_runs(lake.storage, RunFilter(outcomes=frozenset([RunOutcome.FAILED])))
    assert [one.key for one in failed] == ["tuesday"], "once, although the call and its run failed"
