"""The rows of a frame are added in one commit, whatever fails on the way."""

import os
import pickle
import signal
import subprocess
import sys
import time

import daft
import pytest
from daft import DataType, col
from daft_lakebed import LakebedSink, read_table, write_table

import lakebed

ROWS = [{"shop": shop, "id": n, "amount": n * 1.5} for shop in ("bern", "oslo", "rome") for n in range(20)]


@pytest.fixture
def table(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema(row_key={"shop": "string", "id": "int64"}, values={"amount": "double"})
    return lake.create_table("sales", schema, split_points=[("oslo",)], merge=lakebed.Latest())


def frame():
    return daft.from_pylist(ROWS)


def rows_of(table):
    return table.scan().read_all().to_pylist()


def test_the_rows_of_all_tasks_are_one_commit(table):
    assert write_table(frame(), table) == table.version == 2
    assert rows_of(table) == ROWS


def test_a_table_is_written_into_another_one_by_the_tasks_that_read_it(table, tmp_path):
    schema = lakebed.Schema(row_key={"shop": "string", "id": "int64"}, values={"amount": "double"})
    splits = [("bern", 7), ("oslo",), ("oslo", 19)]
    source = lakebed.open(str(tmp_path / "lake")).create_table("source", schema, split_points=splits)
    source.write(ROWS)
    write_table(read_table(source).where(col("id") > 3), table)
    assert rows_of(table) == [row for row in ROWS if row["id"] > 3]


def test_the_sink_returns_the_version_and_the_rows(table):
    write = lakebed.DistributedWrite.of(table)
    found = frame().write_sink(LakebedSink(table, write)).to_pydict()
    assert found == {"version": [2], "rows": [60]}


def test_tasks_of_other_processes_need_no_table(table):
    sink = pickle.loads(pickle.dumps(LakebedSink(table, lakebed.DistributedWrite.of(table))))
    (written,) = sink.write(iter(frame().collect().iter_partitions()))
    assert (written.rows_written, rows_of(table)) == (60, [])
    LakebedSink(table, lakebed.DistributedWrite.of(table)).finalize([pickle.loads(pickle.dumps(written))])
    assert rows_of(table) == ROWS


def test_unknown_columns_are_refused_before_anything_runs_or_become_fields(table):
    more = frame().with_column("more", col("id"))
    with pytest.raises(lakebed.SchemaMismatchError, match="more"):
        write_table(more, table)
    table.set(schema_growth="add")
    write_table(more, table)
    assert all(row["more"] == row["id"] for row in rows_of(table))


def test_a_repeat_under_a_commit_id_adds_nothing_and_runs_nothing(table):
    version = write_table(frame(), table, commit_id="monday")

    def fails(number):
        raise AssertionError(number)

    never = frame().with_column("amount", col("id").apply(fails, return_dtype=DataType.float64()))
    assert write_table(never, table, commit_id="monday") == version
    assert (table.version, rows_of(table)) == (version, ROWS)


def test_a_task_that_fails_leaves_the_table_as_it_was_and_a_repeat_adds_the_rows_once(table):
    def fails(number):
        if number == 19:
            raise ValueError("nineteen")
        return number * 1.5

    version = table.version
    failing = frame().with_column("amount", col("id").apply(fails, return_dtype=DataType.float64()))
    with pytest.raises(Exception, match="User-defined function"):
        write_table(failing, table, commit_id="tuesday")
    assert (table.version, rows_of(table)) == (version, [])
    write_table(frame(), table, commit_id="tuesday")
    inserted = [one for one in table.changes(0).read_all().to_pylist() if one["_change"] == "insert"]
    assert (rows_of(table), len(inserted)) == (ROWS, len(ROWS))


def test_a_value_that_does_not_fit_is_named(table):
    broken = daft.from_pylist([{"shop": None, "id": 1, "amount": 1.0}, {"shop": "rome", "id": 2, "amount": 1.0}])
    with pytest.raises(RuntimeError, match="shop"):
        write_table(broken, table)
    assert rows_of(table) == []


DRIVER = """
import sys, time
import daft
from daft import DataType, col
import lakebed
from daft_lakebed import write_table
from tests_of_driver import ROWS
lake, marker = sys.argv[1:]
def waits(number):
    if number == 19:
        open(marker, "w").close()
        time.sleep(3600)
    return number * 1.5
frame = daft.from_pylist(ROWS)
frame = frame.with_column("amount", col("id").apply(waits, return_dtype=DataType.float64()))
write_table(frame, lakebed.open(lake)["sales"], commit_id="wednesday")
"""


def test_a_driver_that_is_killed_leaves_the_table_and_its_repeat_adds_the_rows(table, tmp_path):
    marker = tmp_path / "waits"
    (tmp_path / "tests_of_driver.py").write_text(f"ROWS = {ROWS!r}\n")
    words = [sys.executable, "-c", DRIVER, str(tmp_path / "lake"), str(marker)]
    driver = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(tmp_path)}, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while not marker.exists():
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert rows_of(table) == []
    version = write_table(frame(), table, commit_id="wednesday")
    assert rows_of(table) == ROWS
    assert write_table(frame(), table, commit_id="wednesday") == version


def test_a_frame_without_rows_adds_nothing(table):
    version = table.version
    assert write_table(frame().where(col("id") < 0), table) == version
    assert write_table(frame().where(col("id") < 0), table, commit_id="none") == version + 1


def test_a_table_that_tasks_cannot_open_is_refused():
    lake = lakebed.create("memory://daft-sink")
    schema = lakebed.Schema({"id": "int64"}, values={"shop": "string", "amount": "double"})
    with pytest.raises(lakebed.UsageError, match="in the memory of this process"):
        write_table(frame(), lake.create_table("t", schema))
