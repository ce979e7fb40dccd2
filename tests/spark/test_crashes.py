"""Processes killed in the middle, interrupted, and working against each other: the rows are all there, once."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lakebed
from tests.spark.cases import SCHEMA, assert_holds, rows, write_parquet

TIMEOUT_S = 300
DATA = [rows(seed, 4000) for seed in range(4)]
MANY_FILES = {"file_bytes": 4096, "row_group_rows": 1000, "split_rows": 2000, "compaction_strategy": "full"}


@contextlib.contextmanager
def child(*arguments):
    """A child process that has its session and waits for a line before it begins."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.child", *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def begin(process):
    process.stdin.write("go\n")
    process.stdin.flush()


def wait_for(seen, process):
    """Wait until something has been seen to happen, without a guess at how long it takes."""
    until = time.monotonic() + TIMEOUT_S
    while not seen():
        assert time.monotonic() < until
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)


def objects(url, suffix):
    return len(list(Path(url).glob(f"tables/*/data/*/*{suffix}")))


@pytest.fixture
def url(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def table(url):
    return lakebed.create(url).create_table("t", SCHEMA, settings=MANY_FILES)


@pytest.mark.parametrize("moment", [pytest.param("when it begins", marks=pytest.mark.slow), "while files are sent"])
def test_an_import_that_is_killed_adds_all_or_nothing_and_can_be_repeated(table, url, tmp_path, pipeline_at, moment):
    source = tmp_path / "in"
    write_parquet(source, *DATA)
    table.write(DATA[0])
    sent = objects(url, ".parquet")
    with child("import", url, source, "monday") as process:
        begin(process)
        if moment == "while files are sent":
            wait_for(lambda: objects(url, ".parquet") > sent + 3, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    fresh = lakebed.open(url).table("t")
    committed = "monday" in fresh.state().requests
    assert_holds(fresh, DATA[0], *(DATA if committed else []))

    report = pipeline_at(url).bulk_import("t", source, job_id="monday")
    assert report.repeated == committed
    assert_holds(fresh, DATA[0], *DATA)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_compaction_that_is_stopped_changes_nothing_and_its_job_is_released(table, url, pipeline_at, how):
    for part in DATA:
        table.write(part)
    sent = objects(url, ".parquet")
    with child("compact", url) as process:
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

    pipeline = pipeline_at(url)
    report = pipeline.compact("t", strategy="full")
    assert report.partitions == (0 if finished else 1)
    assert len(report.released) == (1 if how == signal.SIGKILL and not finished else 0)
    pipeline.maintain("t")
    assert_holds(fresh, *DATA)


def test_two_processes_that_compact_one_table_do_no_harm(table, url, pipeline_at):
    """Each partition goes to whoever opens its job first; the other leaves it alone, or finds nothing to do."""
    for part in DATA:
        table.write(part)
    with child("compact", url) as other:
        begin(other)
        ours = pipeline_at(url).compact("t", strategy="full")
        said = other.stdout.readline()
        assert other.wait(TIMEOUT_S) == 0
    assert (ours.partitions, "partitions=1," in said) in {(1, False), (0, True)}
    assert_holds(table, *DATA)
    assert table.partitions().column("runs").to_pylist() == [1]


@pytest.fixture
def pipeline_at(spark):
    from lakebed.spark import Pipeline

    return lambda url: Pipeline(lakebed.open(url), spark)
