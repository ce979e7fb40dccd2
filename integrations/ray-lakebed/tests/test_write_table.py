"""The rows of a dataset are added in one commit, whatever fails on the way."""

import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest
import ray
from ray_lakebed import write_table

import lakebed

ROWS = [{"shop": shop, "id": n, "amount": n * 1.5} for shop in ("bern", "oslo", "rome") for n in range(20)]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, log_to_driver=False, logging_level="error", include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture
def table(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema(row_key={"shop": "string", "id": "int64"}, values={"amount": "double"})
    return lake.create_table("sales", schema, split_points=[("oslo",)], merge=lakebed.Latest())


def dataset(rows=ROWS):
    return ray.data.from_items(rows, override_num_blocks=4)


def rows_of(table):
    return table.scan().read_all().to_pylist()


def test_the_rows_of_all_tasks_are_one_commit(table):
    version = write_table(dataset(), table)
    assert version == table.version == 2
    assert rows_of(table) == ROWS
    assert table.at(1).scan().read_all().num_rows == 0


def test_columns_that_a_step_adds_are_written_and_unknown_ones_refused(table):
    doubled = dataset().map_batches(
        lambda rows: rows.set_column(2, "amount", pa.array([7.0] * len(rows))), batch_format="pyarrow"
    )
    write_table(doubled, table)
    assert {row["amount"] for row in rows_of(table)} == {7.0}
    more = dataset().add_column("more", lambda rows: rows["id"])
    with pytest.raises(Exception, match="more"):
        write_table(more, table)
    table.set(schema_growth="add")
    write_table(more, table)
    assert all(row["more"] == row["id"] for row in rows_of(table))


def test_a_repeat_under_a_commit_id_adds_nothing_and_runs_nothing(table, tmp_path):
    version = write_table(dataset(), table, commit_id="monday")

    def fails(row):
        raise AssertionError(row)

    assert write_table(dataset().map(fails), table, commit_id="monday") == version
    assert (table.version, rows_of(table)) == (version, ROWS)


def test_a_task_that_fails_leaves_the_table_as_it_was(table):
    def fails(row):
        if row["id"] == 19 and row["shop"] == "rome":
            raise ValueError("nineteen")
        return row

    version = table.version
    with pytest.raises(Exception, match="nineteen"):
        write_table(dataset().map(fails), table)
    assert (table.version, rows_of(table)) == (version, [])


def test_a_task_whose_worker_dies_runs_again_and_adds_its_rows_once(table, tmp_path):
    marker = tmp_path / "died"

    def dies_once(rows):
        if 19 in rows["id"].to_pylist():
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return rows
            os.kill(os.getpid(), signal.SIGKILL)
        return rows

    write_table(dataset().map_batches(dies_once, batch_format="pyarrow"), table)
    assert marker.exists()
    assert rows_of(table) == ROWS
    inserted = [one for one in table.changes(0).read_all().to_pylist() if one["_change"] == "insert"]
    assert len(inserted) == len(ROWS)


DRIVER = """
import sys
import time
import ray
import lakebed
from ray_lakebed import write_table
from tests_of_driver import ROWS
lake, marker = sys.argv[1:]
ray.init(num_cpus=2, log_to_driver=False, logging_level="error", include_dashboard=False)
def waits(row):
    if row["id"] == 19 and row["shop"] == "rome":
        open(marker, "w").close()
        time.sleep(3600)
    return row
rows = ray.data.from_items(ROWS, override_num_blocks=4).map(waits)
write_table(rows, lakebed.open(lake)["sales"], commit_id="tuesday")
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
    version = write_table(dataset(), table, commit_id="tuesday")
    assert rows_of(table) == ROWS
    assert write_table(dataset(), table, commit_id="tuesday") == version


def test_a_dataset_without_rows_adds_nothing(table):
    version = table.version
    assert write_table(dataset().filter(lambda row: False), table) == version
    assert write_table(dataset().filter(lambda row: False), table, commit_id="none") == version + 1


def test_a_table_that_tasks_cannot_open_is_refused():
    lake = lakebed.create("memory://ray-sink")
    made = lake.create_table("t", lakebed.Schema({"id": "int64"}))
    with pytest.raises(lakebed.UsageError, match="in the memory of this process"):
        write_table(dataset(), made)
