"""Compaction, splitting, joining and collection, in worker processes: what each does, and what it leaves alone."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from lakebed import DamagedError, Pipeline, UsageError
from lakebed.model.keys import ALL_KEYS
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import OpenJob
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.write.batches import BATCHES
from tests.spark.cases import SCHEMA, SMALL, anything_in_any_order, assert_holds, rows, write_parquet
from tests.tables.retention.cases import on


@pytest.fixture
def table(lake):
    return lake.create_table("t", SCHEMA, settings=SMALL)


@pytest.mark.parametrize("seed", range(1, 3))
def test_the_same_rows_come_back_after_anything_in_any_order(pipeline, lake, tmp_path, seed):
    def ingested(table, *parts):
        table.submit(write_parquet(tmp_path / str(table.version), *parts))
        assert not pipeline.ingest(table, force=True).failed

    anything_in_any_order(pipeline, lake, seed, ingested)


def test_a_compaction_makes_one_run_of_many_and_says_what_it_did(pipeline, table):
    parts = [rows(seed, 300) for seed in range(4)]
    for part in parts:
        table.write(part)
    progress = []
    report = pipeline.compact(table, strategy="full", progress=progress.append)
    assert (report.partitions, report.files_in, report.rows, report.version) == (1, 4, 1200, 7)
    assert (progress[0].rows_done, progress[-1].rows_done, progress[-1].rows_total) == (0, 1200, 1200)
    assert pipeline.compact(table, strategy="full").partitions == 0
    assert_holds(table, *parts)


def test_many_jobs_go_in_waves_several_at_once_and_progress_never_goes_back(pipeline, lake):
    """Three batches of jobs, of which each is opened, run and committed by a thread of its own."""
    parts = [rows(seed, 400) for seed in range(2)]
    keys = sorted(set(zip(*(parts[0].column(name).to_pylist() for name in ("k", "part")), strict=True)))
    table = lake.create_table("many", SCHEMA, split_points=keys[10::10])
    for part in parts:
        table.write(part)
    progress = []
    report = pipeline.compact(table, strategy="full", progress=progress.append)
    assert report.jobs > 2 * BATCHES.tasks_min
    assert set(table.partitions().column("runs").to_pylist()) <= {0, 1}
    done = [one.rows_done for one in progress]
    assert done == sorted(done)
    assert done[-1] == report.rows
    assert_holds(table, *parts)


def test_damage_is_named_and_never_merged_into_a_new_file(pipeline, table, lake):
    """A flipped bit in a page is often read without an error: only the digest shows it."""
    for seed in range(2):
        table.write(rows(seed, 500))
    before = table.files()
    name = before.column("url")[0].as_py().removeprefix(f"{lake.url}/")
    path = Path(lake.url.removeprefix("file://")) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=path.name):
        pipeline.compact(table, strategy="full")
    assert table.files() == before
    assert not table.state().jobs


def test_a_partition_with_an_open_job_is_left_alone(pipeline, table):
    parts = [rows(seed, 100) for seed in range(2)]
    for part in parts:
        table.write(part)
    inputs = tuple(table.state().files)
    table.commit(OpenJob(Job("job-00001", ALL_KEYS, inputs, "someone else", 3600, 0)))
    report = pipeline.compact(table, strategy="full")
    assert (report.partitions, [s.reason for s in report.skipped]) == (0, ["job job-00001 is open in the partition"])
    assert pipeline.split(table).split == ()
    assert_holds(table, *parts)


def test_a_job_past_its_deadline_is_released(pipeline, table):
    for seed in range(2):
        table.write(rows(seed, 100))
    table.commit(OpenJob(Job("job-00001", ALL_KEYS, tuple(table.state().files), "someone else", 0, 0)))
    report = pipeline.compact(table, strategy="full")
    assert (report.released, report.partitions) == (("job-00001",), 1)


def test_a_strategy_that_does_not_exist_is_refused(pipeline, table):
    with pytest.raises(UsageError, match="unknown compaction strategy 'magic'"):
        pipeline.compact(table, strategy="magic")


def test_garbage_goes_after_its_delay_and_a_dry_run_only_tells(pipeline, table, lake):
    parts = [rows(seed, 300) for seed in range(3)]
    for part in parts:
        table.write(part)
    pipeline.compact(table, strategy="full")
    table.set(history_s=3600)
    assert collect_garbage(table).files == 0
    table.set(history_s=0)

    planned = collect_garbage(table, dry_run=True)
    done = collect_garbage(table)
    assert (planned.files, planned.size_bytes, planned.version) == (done.files, done.size_bytes, None)
    assert done.files == 3
    left = {o.name.rpartition("/")[2] for o in lake.storage.list("tables") if "/data/" in o.name}
    kept = set(table.files().column("file_id").to_pylist())
    assert left == {f"{name}.parquet" for name in kept}
    assert set(table.state().files) == kept
    assert_holds(table, *parts)


def test_a_collection_that_a_crash_cut_short_is_finished_first(pipeline, table):
    for seed in range(3):
        table.write(rows(seed, 300))
    merged = pipeline.compact(table, strategy="full").files_in

    def crash():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_garbage(on(table, Meanwhile(table.storage, "delete", "*", crash)))
    assert sum(c.retired for c in table.state().files.values()) == merged
    assert collect_garbage(table).files == merged
    assert len(table.state().files) == table.files().num_rows


def test_a_summary_that_is_lost_is_made_again(pipeline, table, lake, small_summaries):
    held = rows(1, 2000)
    table.write(held)
    lost = [o.name for o in lake.storage.list("tables") if o.name.endswith(".summary")]
    lake.storage.delete(lost)
    assert pipeline.split(table).split
    assert all(lake.storage.get(name) is not None for name in lost)
    assert_holds(table, held)


def test_maintenance_merges_whole_what_can_be_split_only_then(pipeline, table, monkeypatch):
    """Two runs are none that the table's strategy would merge, and too coarsely known here to be cut."""
    monkeypatch.setattr("lakebed.upkeep.splitting.plan.ERROR_SHARE_MAX", 0)
    parts = [rows(seed, 2000) for seed in range(2)]
    for part in parts:
        table.write(part)
    assert pipeline.compact(table).version is None
    assert pipeline.split(table).compact_first == (1,)
    report = pipeline.maintain(table)
    assert [one.jobs for one in report.compactions] == [1]
    assert report.splits
    assert_holds(table, *parts)


def test_offline_tables_only_have_their_garbage_collected(pipeline, table, lake):
    for seed in range(2):
        table.write(rows(seed, 600))
    merged = pipeline.compact(table, strategy="full").files_in
    table.write(rows(2, 600))
    lake.set_online("t", online=False)
    report = pipeline.maintain(table)
    assert (report.online, report.compactions, report.splits, report.collection.files) == (False, (), (), merged)
    lake.set_online("t", online=True)
    table.set(compaction_strategy="full")
    report = pipeline.maintain("t")
    assert report.compactions
    assert report.splits


def test_splitting_and_collection_start_no_spark(lake, table):
    pipeline = Pipeline(lake)
    table.write(rows(1, 2000))
    assert pipeline.split("t").split
    assert collect_garbage(pipeline.instance.table("t")).files == 0
    assert pipeline.compact("t", strategy="full").partitions == 0
    assert "session" not in vars(pipeline)


def test_partitions_that_an_old_file_keeps_apart_are_compacted_and_then_joined(pipeline, lake):
    """The first partition merged the file away; joined as they are, the second would bring its rows back there."""
    table = lake.create_table("t", SCHEMA, split_points=[("b",)], settings=SMALL | {"split_rows": 10_000})
    wide, low = rows(1, 100), rows(2, 100)
    low = low.filter(pc.less(low.column("k"), "b"))
    for part in (wide, low):
        table.write(part)
    assert pipeline.compact(table, strategy="full").partitions == 1
    first, second = table.state().partitions.ids
    assert pipeline.join_partitions(table).joined == ((first, second),)
    assert table.partitions().column("files").to_pylist() == [2]
    assert_holds(table, wide, low)
