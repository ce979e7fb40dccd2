"""Compaction without Spark: what its jobs say of themselves."""

import pyarrow as pa

import lakebed
from lakebed.compaction.run import compact, prepare, run_merge_task
from lakebed.state.transactions import Mark, RaiseMark


def test_a_job_holds_the_orphan_horizon_below_all_that_it_writes(tmp_path):
    """It began after its inputs were stored and before its output was, by the store's own stamps."""
    table = lakebed.create(str(tmp_path / "instance")).create_table("t", lakebed.Schema({"k": "int64"}))
    for _ in range(2):
        table.write(pa.table({"k": [1, 2]}))
    written = max(committed.file.stamp_us for committed in table.state().files.values())
    outcomes = []

    def execute(tasks):
        (job,) = table.state().jobs.values()
        raises = [RaiseMark(Mark.ORPHAN_HORIZON, job.began_us + later) for later in (1, 0)]
        outcomes.extend(type(table.try_commit(offer)).__name__ for offer in raises)
        return [run_merge_task(task, table.storage, tmp_path) for task in tasks]

    report = compact(table, prepare(table), execute, cores=1)

    assert outcomes == ["NotCommitted", "Committed"]
    assert (report.leaves, report.rows) == (1, 4)
    assert written <= table.state().orphan_horizon_us
