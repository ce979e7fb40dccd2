"""Exports of statements in SQL: the rows of a query as files, all of them or none."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Pipeline, Schema
from lakebed.errors import Error, ExistsError, NotFoundError, UsageError
from lakebed.read.inspect.history import read_copies


@pytest.fixture
def lake(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    for name in ("flights", "fares"):
        table = lake.create_table(name, Schema({"k": "int64"}, values={"v": "int64", "tags": pa.list_(pa.string())}))
        table.write(pa.table({"k": range(10), "v": range(10), "tags": [["x"]] * 10}, schema=table.schema.arrow))
    return lake


@pytest.fixture
def pipeline(lake):
    with Pipeline(lake, launcher="this-thread") as pipeline:
        yield pipeline


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_the_rows_of_a_query_are_files_in_their_order(lake, pipeline, tmp_path):
    query = "SELECT f.v + $1 AS v, count(*) AS n FROM flights f JOIN fares USING (k) GROUP BY f.v ORDER BY v DESC"
    report = pipeline.export_sql(query, str(tmp_path / "out"), parameters=[5])
    assert (report.rows, report.files, report.committed) == (10, 1, None)
    assert report.tables == {"flights": lake["flights"].version, "fares": lake["fares"].version}
    part, manifest, success = sorted(names(tmp_path / "out"), key=lambda name: (not name.startswith("part"), name))
    assert (manifest, success) == ("_SUCCESS", "_manifest.json")
    assert pq.read_table(tmp_path / "out" / part).column("v").to_pylist() == list(range(14, 4, -1))
    assert [copy.url for copy in read_copies(lake.storage, lake["fares"].id)] == [(tmp_path / "out").as_uri()]


def test_rows_are_text_if_it_is_asked_for(pipeline, tmp_path):
    pipeline.export_sql("SELECT k FROM flights WHERE k < 2 ORDER BY k", str(tmp_path / "csv"), format="csv")
    pipeline.export_sql("SELECT k FROM flights WHERE k < 2 ORDER BY k", str(tmp_path / "json"), format="json")
    (csv,) = (tmp_path / "csv").glob("*.csv")
    lines = next(path for path in (tmp_path / "json").glob("part-*"))
    assert csv.read_text().split() == ['"k"', "0", "1"]
    assert [json.loads(line) for line in lines.read_text().splitlines()] == [{"k": 0}, {"k": 1}]


@pytest.mark.parametrize(
    ("query", "format", "error"),
    [
        ("SELECT nope FROM flights", "parquet", UsageError),
        ("SELECT k FROM nowhere", "parquet", NotFoundError),
        ("SELECT k, tags FROM flights", "csv", UsageError),
        ("SELECT k FROM flights", "orc", UsageError),
        ("SELECT 10 / (v - 9) AS v FROM flights", "parquet", Error),
    ],
)
def test_nothing_is_left_by_an_export_that_fails(pipeline, tmp_path, query, format, error):
    with pytest.raises(error):
        pipeline.export_sql(query, str(tmp_path / "out"), format=format)
    assert names(tmp_path / "out") == []


def test_a_folder_with_files_is_refused(lake, pipeline, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ExistsError, match=r"notes\.txt"):
        pipeline.export_sql("SELECT k FROM flights", str(tmp_path / "out"))
    assert names(tmp_path / "out") == ["notes.txt"]
    assert list(read_copies(lake.storage, lake["flights"].id)) == []
