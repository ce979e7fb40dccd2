"""Ingest jobs on Spark: by a shuffle, as few Spark jobs as can be, and with tasks that die.

Jobs whose tasks sort: tests/pipeline/test_ingest.py.
"""

import os
import signal
from pathlib import Path

from lakebed.jobs import tasks
from tests.spark.cases import assert_holds, rows, write_parquet


def test_requests_are_carried_out_by_a_shuffle(pipeline, table, tmp_path):
    parts = [rows(seed, 300) for seed in range(5)]
    table.submit(write_parquet(tmp_path / "in", *parts))
    report = pipeline.ingest(table, force=True, method="shuffle")
    assert (report.jobs, report.requests, report.rows) == (1, 5, 1500)
    assert_holds(table, *parts)


def test_a_file_at_fault_costs_no_other_its_work(pipeline, table, tmp_path):
    """Of two jobs that are shuffled; what is left of them is small enough for a task each."""
    parts = [rows(seed, 300) for seed in range(6)]
    paths = write_parquet(tmp_path / "in", *parts)
    for path in paths[2], paths[5]:
        # Its end is whole: what is no Parquet at all is refused by submit.
        with Path(path).open("r+b") as file:
            file.seek(4)
            file.write(bytes(400))
    table.set(ingest_bytes_max=3 * max(Path(path).stat().st_size for path in paths))
    table.submit(tmp_path / "in")
    report = pipeline.ingest(table, force=True, method="shuffle")
    assert sorted(Path(one.url).name for one in report.failed) == ["part-002.parquet", "part-005.parquet"]
    assert_holds(table, parts[0], parts[1], parts[3], parts[4])


def test_many_small_files_are_one_spark_job(pipeline, table, tmp_path, spark):
    parts = [rows(seed, 20) for seed in range(40)]
    table.submit(write_parquet(tmp_path / "in", *parts))
    begun = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    assert pipeline.ingest(table, force=True).jobs == 1
    # Spark counts the shuffle that places the task as a job of its own.
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) - begun <= 2
    assert_holds(table, *parts)


def test_a_file_whose_task_does_not_survive_it_is_found(pipeline, table, tmp_path, monkeypatch):
    """Spark gives up on the task and all of its batch; the others are ingested all the same."""
    parts = [rows(seed, 100) for seed in range(2)]
    paths = write_parquet(tmp_path / "in", *parts)
    deadly = paths[1]

    def sort(target, place, document):
        from lakebed.jobs.tasks import _sort

        if deadly in str(document):
            os.kill(os.getpid(), signal.SIGKILL)
        return _sort(target, place, document)

    monkeypatch.setattr(tasks, "_sort", sort)
    table.submit(paths)
    report = pipeline.ingest(table, force=True)
    assert [(one.url, one.rejected) for one in report.failed] == [(deadly, False)]
    assert "Spark failed" in report.failed[0].reason
    assert_holds(table, parts[0])
