"""Compaction without Spark: what its jobs say of themselves, when they are begun, and how they are committed."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.state.table_state import IngestRequest, Source
from lakebed.model.state.transactions import RaiseWatermark, RejectRequest, SetTag, SubmitRequests, Watermark
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.compaction.plan import CompactionLimits
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.write.batches import BatchSizes
from tests.tables.retention.cases import on

PARTITIONS = 4


@pytest.fixture
def table(tmp_path):
    """Two runs, each of which reaches all of four partitions."""
    schema = lakebed.Schema({"k": "int64"})
    found = lakebed.create(str(tmp_path / "instance")).create_table("t", schema, split_points=[(1,), (2,), (3,)])
    for _ in range(2):
        found.write(pa.table({"k": range(PARTITIONS)}))
    return found


ONE_BY_ONE = CompactionLimits(batches=BatchSizes(tasks_per_core=1, tasks_min=1, at_once=1))
"""Waves of one job, one after another."""


def merged(table, tmp_path, tasks):
    return [run_merge_task(task, table.storage, tmp_path) for task in tasks]


def runs(table):
    return table.partitions().column("runs").to_pylist()


def keys(table):
    return Counter(table.scan().read_all().column("k").to_pylist())


MANY = [f"request-{number:04d}" for number in range(1_001)]


def submitted(table, *names):
    table.commit(
        SubmitRequests(
            tuple(IngestRequest.new(name, (Source("s3://in/f", 1, "v"),), table.version) for name in names), 0
        )
    )


def test_a_job_holds_the_orphan_horizon_below_all_that_it_writes(table, tmp_path):
    """It began after its inputs were stored and before its output was, by the store's own last-modified times."""
    written = max(file.last_modified_us for file in table.state().referenced().values())
    outcomes = []

    def execute(tasks):
        began_us = min(job.began_us for job in table.state().jobs.values())
        raises = [RaiseWatermark(Watermark.ORPHAN_CUTOFF, began_us + later) for later in (1, 0)]
        outcomes.extend(type(table.try_commit(proposal)).__name__ for proposal in raises)
        return merged(table, tmp_path, tasks)

    report = compact(table, prepare(table, "full"), execute, cores=1)

    assert outcomes == ["NotCommitted", "Committed"]
    assert (report.partitions, report.jobs, report.rows) == (PARTITIONS, PARTITIONS, 2 * PARTITIONS)
    assert written <= table.state().orphan_cutoff_us


def test_partitions_whose_boundary_has_line_breaks_are_merged(tmp_path):
    boundary = "b\nSortExec: c\r\n  d"
    lake = lakebed.create(str(tmp_path / "texts"))
    table = lake.create_table("t", lakebed.Schema({"k": "string"}), split_points=[(boundary,)])
    for _ in range(2):
        table.write(pa.table({"k": ["a", boundary, "z"]}))
    compact(table, prepare(table, "full"), lambda tasks: merged(table, tmp_path, tasks), cores=1)
    assert runs(table) == [1, 1]
    assert keys(table) == {"a": 2, boundary: 2, "z": 2}


def test_a_large_partition_is_merged_by_several_tasks_and_committed_at_once(tmp_path):
    table = lakebed.create(str(tmp_path / "large")).create_table("t", lakebed.Schema({"k": "int64"}))
    for _ in range(3):
        table.write(pa.table({"k": range(2_000)}))
    before = table.version
    shared = prepare(table, "full", CompactionLimits(share_bytes_min=1_000))
    report = compact(table, shared, lambda tasks: merged(table, tmp_path, tasks), cores=2)
    assert (report.partitions, report.files_out, report.version) == (1, 2, before + 2)
    assert runs(table) == [1]
    assert keys(table) == dict.fromkeys(range(2_000), 3)


def test_what_a_wave_made_is_committed_before_the_next_one_runs(table, tmp_path):
    seen = []

    def execute(tasks):
        seen.append(sorted(runs(table)))
        return merged(table, tmp_path, tasks)

    compact(table, prepare(table, "full", ONE_BY_ONE), execute, cores=1)
    assert seen == [[2, 2, 2, 2], [1, 2, 2, 2], [1, 1, 2, 2], [1, 1, 1, 2]]


def test_the_jobs_of_a_wave_are_opened_together(table, tmp_path):
    """While the first entry is put all others wait, and are the second."""

    def wait():
        while table.version == before and len(table.log.local.queue) < PARTITIONS - 1:
            pass

    table = on(table, Meanwhile(table.storage, "create", "*/log/*", wait, again=True))
    prepared, before = prepare(table, "full"), table.version

    def execute(tasks):
        assert (len(table.state().jobs), table.version - before) == (PARTITIONS, 2)
        return merged(table, tmp_path, tasks)

    assert compact(table, prepared, execute, cores=1).jobs == PARTITIONS


def test_no_job_is_begun_while_many_requests_are_open(table, tmp_path):
    submitted(table, *MANY)
    report = compact(table, prepare(table, "full"), partial(pytest.fail, "a task ran"), cores=1)
    assert (report.jobs, report.version) == (0, None)
    assert report.waits == "1001 requests are open; compaction goes on when they are 1000"
    table.commit(RejectRequest(MANY[0], "gone"))
    report = compact(table, prepare(table, "full"), partial(merged, table, tmp_path), cores=1)
    assert (report.jobs, report.waits) == (PARTITIONS, None)


def test_when_requests_pile_up_meanwhile_what_was_begun_is_ended_and_no_more_is_begun(table, tmp_path):
    def execute(tasks):
        submitted(table, *MANY)
        return merged(table, tmp_path, tasks)

    report = compact(table, prepare(table, "full", ONE_BY_ONE), execute, cores=1)
    assert (report.jobs, report.waits) == (1, "1001 requests are open; compaction goes on when they are 1000")
    assert (sorted(runs(table)), len(table.state().jobs)) == ([1, 2, 2, 2], 0)


def test_no_job_is_begun_while_many_commits_wait(table):
    held = threading.Event()
    table = on(table, Meanwhile(table.storage, "create", "*/log/*", held.wait, again=True))
    with ThreadPoolExecutor(8) as pool:
        for version in range(8):
            pool.submit(table.commit, SetTag(f"tag-{version}", 1))
        while len(table.log.local.queue) < 3:
            pass
        waits = prepare(table, "full", CompactionLimits(commits_waiting_max=2)).waits
        held.set()
    assert waits.endswith("commits wait in this process; compaction goes on when they are 2")
    assert prepare(table, "full").waits is None


def test_an_interrupt_begins_no_more_and_leaves_no_job_open(table, tmp_path):
    ran = []

    def execute(tasks):
        ran.append(tasks)
        if len(ran) == 2:
            raise KeyboardInterrupt
        return merged(table, tmp_path, tasks)

    with pytest.raises(KeyboardInterrupt):
        compact(table, prepare(table, "full", ONE_BY_ONE), execute, cores=1)
    assert len(ran) == 2
    assert (sorted(runs(table)), len(table.state().jobs)) == ([1, 2, 2, 2], 0)


def test_two_that_compact_at_once_merge_each_partition_once(table, tmp_path):
    """Both have planned all partitions before either begins; each partition is whose job is opened first."""
    tables = [lakebed.open(str(tmp_path / "instance")).table("t") for _ in range(2)]
    plans = [prepare(one, "full") for one in tables]
    with ThreadPoolExecutor(2) as pool:
        works = [
            pool.submit(compact, one, planned, partial(merged, one, tmp_path), cores=1)
            for one, planned in zip(tables, plans, strict=True)
        ]
    reports = [work.result() for work in works]
    assert sum(report.jobs for report in reports) == PARTITIONS
    assert sum(len(report.skipped) for report in reports) == PARTITIONS
    assert keys(table) == Counter(dict.fromkeys(range(PARTITIONS), 2))
    assert runs(table) == [1] * PARTITIONS


def test_keys_that_grow_with_time_compact_without_being_rewritten(tmp_path):
    schema = lakebed.Schema({"k": "int64"})
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, settings={"file_bytes": 4096})
    for day in range(5):
        table.write(pa.table({"k": range(10 * day, 10 * day + 10)}))
    files = set(table.state().files)
    report = compact(table, prepare(table), partial(pytest.fail, "a task ran"), cores=1)
    assert (report.jobs, report.concatenated, report.version) == (0, 4, table.version)
    assert (runs(table), set(table.state().files)) == ([1], files)
    assert keys(table) == Counter(range(50))
    assert compact(table, prepare(table), partial(pytest.fail, "a task ran"), cores=1).version is None
    # A key that two runs share keeps them apart: they are merged.
    table.write(pa.table({"k": [49]}))
    report = compact(table, prepare(table, "full"), partial(merged, table, tmp_path), cores=1)
    assert (report.jobs, runs(table), keys(table)[49]) == (1, [1], 2)


def test_a_partition_that_changed_since_the_plan_is_left_alone(table, tmp_path):
    prepared = prepare(table, "full")
    table.remove(lakebed.KeyRange(0, 1))
    report = compact(table, prepared, partial(merged, table, tmp_path), cores=1)
    assert (report.jobs, len(report.skipped)) == (PARTITIONS - 1, 1)
