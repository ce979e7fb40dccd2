"""An import whose driver is killed in the middle: the rows are all there, once.

On a cluster, and in each run of the tests: tests/cluster/test_cluster.py. Compactions that are killed:
tests/pipeline/test_crashes.py.
"""

import signal

import pytest

import lakebed
from lakebed import Pipeline
from tests.spark.cases import SCHEMA, assert_holds, rows, write_parquet
from tests.spark.killing import begin, child, objects, wait_for

DATA = [rows(seed, 4000) for seed in range(4)]
MANY_FILES = {"file_bytes": 4096, "row_group_rows": 1000, "split_rows": 2000, "compaction_strategy": "full"}


@pytest.fixture
def url(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def table(url):
    return lakebed.create(url).create_table("t", SCHEMA, settings=MANY_FILES)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["when it begins", "while files are sent"])
def test_an_import_that_is_killed_adds_all_or_nothing_and_can_be_repeated(table, url, tmp_path, spark, moment):
    source = tmp_path / "in"
    write_parquet(source, *DATA)
    table.write(DATA[0])
    sent = objects(url, ".parquet")
    with child("local[2,4]", "import", url, source, "monday") as process:
        begin(process)
        if moment == "while files are sent":
            wait_for(lambda: objects(url, ".parquet") > sent + 3, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    fresh = lakebed.open(url).table("t")
    committed = "monday" in fresh.state().requests
    assert_holds(fresh, DATA[0], *(DATA if committed else []))

    report = Pipeline(lakebed.open(url), spark).bulk_import("t", source, job_id="monday")
    assert report.repeated == committed
    assert_holds(fresh, DATA[0], *DATA)
