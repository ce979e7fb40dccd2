"""Compactions and rewrites that are killed, interrupted, or at work on one table: the rows are all there, once."""

import signal

import pyarrow.compute as pc
import pytest

import lakebed
from tests.spark.cases import SCHEMA, assert_holds, rows
from tests.spark.killing import TIMEOUT_S, begin, child, objects, wait_for

DATA = [rows(seed, 1500) for seed in range(4)]
MANY_FILES = {"file_bytes": 4096, "row_group_rows": 1000, "split_rows": 2000, "compaction_strategy": "full"}


@pytest.fixture
def url(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def instance(lake):
    return lake


@pytest.fixture
def table(instance):
    table = instance.create_table("t", SCHEMA, settings=MANY_FILES)
    for part in DATA:
        table.write(part)
    return table


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_compaction_that_is_stopped_changes_nothing_and_its_job_is_released(pipeline, table, url, how):
    sent = objects(url, ".parquet")
    with child("in-process", "compact", url) as process:
        begin(process)
        wait_for(lambda: objects(url, ".parquet") > sent, process)
        process.send_signal(how)
        process.wait(TIMEOUT_S)
    fresh = lakebed.open(url).table("t")
    assert_holds(fresh, *DATA)
    # It may have been too late to stop it.
    finished = fresh.partitions().column("runs").to_pylist() == [1]
    if how == signal.SIGINT:
        assert not fresh.state().jobs

    report = pipeline.compact("t", strategy="full")
    assert report.partitions == (0 if finished else 1)
    assert len(report.released) == (1 if how == signal.SIGKILL and not finished else 0)
    pipeline.maintain("t")
    assert_holds(fresh, *DATA)


def test_two_processes_that_compact_one_table_do_no_harm(pipeline, table, url):
    """Each partition goes to the process that opens its job first; the other skips it, or finds nothing to do."""
    with child("in-process", "compact", url) as other:
        begin(other)
        ours = pipeline.compact("t", strategy="full")
        said = other.stdout.readline()
        assert other.wait(TIMEOUT_S) == 0
    assert (ours.partitions, "partitions=1," in said) in {(1, False), (0, True)}
    assert_holds(table, *DATA)
    assert table.partitions().column("runs").to_pylist() == [1]


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_rewrite_that_is_stopped_changes_nothing_and_its_jobs_are_released(pipeline, table, url, how):
    sent = objects(url, ".parquet")
    with child("in-process", "rewrite", url, "part = 1") as process:
        begin(process)
        wait_for(lambda: objects(url, ".parquet") > sent, process)
        process.send_signal(how)
        process.wait(TIMEOUT_S)
    fresh = lakebed.open(url).table("t")
    left = [part.filter(pc.not_equal(part["part"], 1)) for part in DATA]
    # It may have been too late to stop it: then all of it was done.
    finished = fresh.count(exact=True).rows == sum(part.num_rows for part in left)
    assert_holds(fresh, *(left if finished else DATA))
    if how == signal.SIGINT:
        assert not fresh.state().jobs

    pipeline.rewrite("t", delete_where="part = 1")
    assert_holds(fresh, *left)
    assert not fresh.state().jobs
    pipeline.maintain("t")
    assert_holds(fresh, *left)
