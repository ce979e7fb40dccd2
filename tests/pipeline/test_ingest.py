"""Ingest jobs whose tasks sort: the same rows, once, and a file at fault given up by name."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Pipeline, UsageError
from tests.spark.cases import assert_holds, rows, write_parquet


def test_requests_are_carried_out_by_tasks_that_sort(pipeline, table, tmp_path):
    parts = [rows(seed, 300) for seed in range(5)]
    table.submit(write_parquet(tmp_path / "in", *parts))
    report = pipeline.ingest(table, force=True, method="sort")
    assert (report.jobs, report.requests, report.rows) == (1, 5, 1500)
    assert_holds(table, *parts)
    assert pipeline.ingest("t", force=True).version is None


def test_a_file_at_fault_costs_no_other_its_work(pipeline, table, tmp_path):
    parts = [rows(seed, 300) for seed in range(3)]
    paths = write_parquet(tmp_path / "in", *parts)
    with Path(paths[1]).open("r+b") as file:
        file.seek(4)
        file.write(bytes(400))
    table.submit(tmp_path / "in")
    report = pipeline.ingest(table, force=True)
    assert [Path(one.url).name for one in report.failed] == ["part-001.parquet"]
    assert_holds(table, parts[0], parts[2])


def test_an_ingest_gives_up_the_file_by_name(pipeline, lake, tmp_path):
    table = lake.create_table("text", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}))
    table.set(ingest_tries_max=1)
    (tmp_path / "in").mkdir()
    v = pa.array([b"a", b"b\xff"]).view(pa.string())
    pq.write_table(pa.table({"k": [1, 2], "v": v}), tmp_path / "in" / "bad.parquet")
    pq.write_table(pa.table({"k": [3], "v": ["c"]}), tmp_path / "in" / "good.parquet")
    table.submit(tmp_path / "in")
    report = pipeline.ingest(table, force=True)
    (failed,) = report.failed
    assert failed.url.endswith("bad.parquet")
    assert "bad.parquet: column v is string and holds text that is not UTF-8" in failed.reason
    assert report.rows == 1


def test_tasks_add_the_columns_of_their_files(pipeline, lake, tmp_path):
    table = lake.create_table("grows", lakebed.Schema({"k": "int64"}), settings={"schema_growth": "add"})
    (tmp_path / "in").mkdir()
    for number in range(2):
        pq.write_table(pa.table({"k": [number], f"x{number}": [["t"]]}), tmp_path / "in" / f"{number}.parquet")
    table.submit(tmp_path / "in")
    report = pipeline.ingest(table, force=True)
    assert (report.jobs, report.rows) == (1, 2)
    assert [f"{field.name}: {field.type}" for field in table.schema.values] == [
        "x0: list<item: string>",
        "x1: list<item: string>",
    ]
    assert table.get(1).to_pylist() == [{"k": 1, "x0": None, "x1": ["t"]}]


def test_nothing_to_ingest_starts_no_spark(lake, table, tmp_path):
    pipeline = Pipeline(lake)
    table.submit(write_parquet(tmp_path / "in", rows(1, 10)))
    assert pipeline.ingest("t").waiting == 1
    with pytest.raises(UsageError, match="unknown method 'merge'; methods: sort, shuffle"):
        pipeline.ingest("t", method="merge")
    assert "session" not in vars(pipeline)
