"""The code of docs/import.md, docs/spark.md, docs/streaming.md and docs/clusters.md, on the session of all tests.

Only addresses are changed. Commands that need another cluster are parsed by tests/processes/test_docs.py.
"""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Pipeline
from lakebed.cli import main
from tests import pages

FLIGHTS = pa.table({"tail": ["N14228", "N24211", "N14228"], "origin": ["EWR", "LGA", "JFK"]})
ROWS = sorted(map(tuple, (row.values() for row in FLIGHTS.to_pylist())))
SCHEMA = lakebed.Schema({"tail": "string"}, {}, {"origin": "string"})

# For each command of docs/import.md: the fields of its table besides the key, the columns of its file, and a row.
IMPORTS = {
    "--cast": (
        {"origin": "string", "distance": "int32", "at": "timestamp[s]"},
        {"TailNum": ["N1"], "From": ["EWR"], "distance": ["719"], "at": ["2020-01-31 12:00:00"]},
        {"tail": "N1", "origin": "EWR", "distance": 719, "at": dt.datetime(2020, 1, 31, 12)},  # noqa: DTZ001
    ),
    "--select": (
        {"km": "double"},
        {"TailNum": ["N1", "N2"], "Distance": [100.0, 1.0], "Cancelled": [False, True]},
        {"tail": "N1", "km": 160.9},
    ),
}


@pytest.fixture
def bucket(tmp_path):
    """Where the pages say ``s3://bucket``: an instance at ``lake``, files of flights at ``in``."""
    lakebed.create(tmp_path / "lake").create_table("flights", SCHEMA)
    (tmp_path / "in").mkdir()
    pq.write_table(FLIGHTS, tmp_path / "in" / "flights.parquet")
    return tmp_path


@pytest.fixture
def flights(bucket):
    return lakebed.open(bucket / "lake").table("flights")


def sorted_rows(table):
    found = table.scan().read_all().select(FLIGHTS.column_names)
    return sorted(map(tuple, (row.values() for row in found.to_pylist())))


@pytest.mark.parametrize("option", IMPORTS)
def test_the_commands_of_the_page_on_import_do_what_they_say(spark, lake, tmp_path, monkeypatch, option):
    values, columns, row = IMPORTS[option]
    table = lake.create_table("flights", lakebed.Schema({"tail": "string"}, {}, values))
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(columns), "day.parquet")
    lines = [words for block in pages.blocks("docs/import.md") for words in pages.command_lines(block)]
    imports = [words for words in lines if words[0] == "import" and words[1] == "flights"]
    assert len(imports) == len(IMPORTS)
    (words,) = [words for words in imports if option in words]
    assert main(["--instance", lake.url, *words]) == 0
    assert table.scan().read_all().to_pylist() == [row]


def test_the_schema_of_the_page_on_import_generates_its_key(lake):
    (block,) = pages.blocks("docs/import.md", "python")
    table = lake.create_table("t", eval(block.text, {"lakebed": lakebed}))
    table.write(pa.table({"device": ["d-17"], "at": [dt.datetime(2026, 1, 31, 23, tzinfo=dt.UTC)], "reading": [0.5]}))
    assert table.get(dt.date(2026, 1, 31), "d-17").num_rows == 1


def test_the_code_of_the_page_on_spark_reads_and_writes_a_table(spark, bucket, flights):
    flights.write(FLIGHTS)
    python, upserts, changes = pages.blocks("docs/spark.md", "python")
    names = {"spark": spark}
    pages.run(python.replace(("s3://bucket", str(bucket))), names)
    assert sorted_rows(flights) == sorted(ROWS * 2)
    assert names["frame"].count() == len(ROWS), "a frame is the table at one version"
    assert names["added"].isStreaming
    # The page's table has changed thirteen times.
    pages.run(changes.replace(('"12"', '"0"')), names)
    assert names["changes"].isStreaming
    assert {"_version", "_change", "_range"} <= set(names["changes"].columns)
    users = lakebed.open(bucket / "lake").create_table(
        "users", lakebed.Schema({"id": "int64"}, {}, {"name": "string"}), merge=lakebed.Latest()
    )
    rows = [{"op": "+I", "id": 1, "name": "ann"}, {"op": "+I", "id": 2, "name": "bob"}, {"op": "-D", "id": 1}]
    finished(streamed(upserts, bucket, "users", rows, names))
    assert users.scan().read_all().to_pylist() == [{"id": 2, "name": "bob"}]
    (sql,) = pages.blocks("docs/spark.md", "sql")
    # The page's table has the column `tailnum`.
    create, count = sql.replace(("s3://bucket", str(bucket)), ("tailnum", "tail")).text.split(";\n")[:2]
    spark.sql(create)
    try:
        assert spark.sql(count).collect()[0][0] == 4
    finally:
        spark.sql("DROP VIEW flights")


def streamed(block, bucket, folder, rows, names):
    """The query that a block starts, from JSON lines in the folder that it names."""
    (bucket / folder).mkdir(exist_ok=True)
    (bucket / folder / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    pages.run(block.replace(("s3://bucket", str(bucket))), names)
    return names["query"]


def finished(query):
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_the_code_of_the_page_on_streams_adds_what_comes(spark, bucket):
    schema = lakebed.Schema({"device": "string"}, {"at": "int64"}, {"celsius": "double"})
    readings = lakebed.open(bucket / "lake").create_table("readings", schema)
    (block,) = (one for one in pages.blocks("docs/streaming.md", "python") if "spark." in one.text)
    rows = [{"device": "d1", "at": at, "celsius": at + 0.5} for at in range(3)]
    finished(streamed(block, bucket, "new", rows, {"spark": spark}))
    assert readings.scan().read_all().to_pylist() == rows


def test_the_commands_of_the_page_on_clusters_run_and_report(spark, bucket, flights):
    """Where the page has a master or a submission, here is the session of all tests."""
    seen = set()
    for block in pages.blocks("docs/clusters.md"):
        for line in pages.command_lines(block):
            words = list(line)
            if "--master" in words:
                at = words.index("--master")
                del words[at : at + 2]
            reports = bucket / "report.json"
            words = [
                word.replace("gs://", "s3://").replace("s3://bucket/reports/monday.json", "monday.json")
                .replace("monday.json", str(reports)).replace("s3://bucket", str(bucket)) for word in words
            ]  # fmt: skip
            if tuple(words) in seen:
                continue
            seen.add(tuple(words))
            assert main(words) == 0, line
            if "--report" in words:
                assert json.loads(reports.read_text())["exit_code"] == 0
    assert {word for words in seen for word in words} >= {"import", "maintain", "compact"}
    without_id = sum("import" in words and "--job-id" not in words for words in seen)
    assert sorted_rows(flights) == sorted(ROWS * (1 + without_id)), "all others have the same job id"


def test_the_python_of_the_page_on_clusters_runs(spark, bucket, flights):
    in_process, with_session = pages.blocks("docs/clusters.md", "python")
    names = {"lakebed": lakebed, "Pipeline": Pipeline, "lake": lakebed.open(bucket / "lake"), "spark": spark}
    pages.run(with_session.replace(("s3://bucket", str(bucket))), names)
    pages.run(in_process, names)
    assert sorted_rows(flights) == ROWS
