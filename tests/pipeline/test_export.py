"""Exports and attach in worker processes: what is asked for comes out, and what does not fit stays out."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from tests.spark.cases import PARTS, SCHEMA, assert_holds, two_runs


@pytest.fixture
def table(lake):
    return two_runs(lake)


def test_an_export_is_attached_byte_for_byte(pipeline, lake, table, tmp_path):
    """Its files touch, so they are one run; the originals stay whose they were; a repeat adds nothing."""
    out = tmp_path / "out"
    progress = []
    exported = pipeline.export(table, str(out), partitions=3, progress=progress.append)
    assert (exported.rows, exported.files, progress[-1].rows_done) == (600, 3, 600)
    again = lake.create_table("again", SCHEMA, split_points=[("a",)])
    report = pipeline.attach("again", str(out), job_id="monday")
    assert (report.rows, report.files) == (600, 3)
    assert_holds(again, *PARTS)
    key = PARTS[0].select(["k", "part"]).to_pylist()[0]
    assert again.get(*key.values()).num_rows == table.get(*key.values()).num_rows > 0
    assert set(again.partitions().column("runs").to_pylist()) == {1}
    stored = {Path(url.removeprefix("file://")).read_bytes() for url in again.files().column("url").to_pylist()}
    assert stored == {path.read_bytes() for path in out.glob("part-*")}
    assert again.verify(files=True).sound
    assert pipeline.attach("again", str(out), job_id="monday").repeated


@pytest.mark.parametrize("where", [None, "v >= 0"])
def test_rows_after_the_first_nan_of_a_key_are_exported_to_the_same_file(pipeline, lake, tmp_path, where):
    """A data file ends before the row group that has the first NaN; an export took the rows before it only."""
    table = lake.create_table("t", lakebed.Schema({"k": "double"}, {}, {"v": "int64"}))
    table.set(row_group_rows=1000)
    keys = [float(n) for n in range(1500)] + [float("nan")] * 500
    table.write(pa.table({"k": keys, "v": list(range(2000))}))
    exported = pipeline.export(table, str(tmp_path / "out"), where=where, partitions=1)
    assert (exported.rows, exported.files) == (2000, 1)
    [path] = (tmp_path / "out").glob("part-*.parquet")
    found = pq.read_table(path)
    assert sorted(found["v"].to_pylist()) == list(range(2000))
    assert pq.read_table(path, filters=[("k", ">=", 1400.0)]).num_rows == 100
    again = lake.create_table("again", table.schema)
    assert pipeline.attach("again", str(tmp_path / "out")).rows == 2000
    assert again.get(float("nan")).num_rows == 500
    assert again.verify(files=True, deep=True).sound


def test_a_file_that_does_not_fit_keeps_all_from_being_attached(pipeline, table, tmp_path):
    """Spark writes no field ids, nor does Arrow unless asked to."""
    before = table.version
    good = pipeline.export(table, str(tmp_path / "out")).url
    pq.write_table(PARTS[0].replace_schema_metadata().cast(plain_schema()), tmp_path / "foreign.parquet")
    with pytest.raises(
        lakebed.SchemaMismatchError, match=r"cannot attach .*foreign\.parquet: .*no field ids.*Import it"
    ):
        pipeline.attach(table, [good.removeprefix("file://"), str(tmp_path / "foreign.parquet")])
    assert table.version == before


def plain_schema():
    return pa.schema([pa.field(field.name, field.type) for field in SCHEMA.arrow])


def test_what_is_asked_for_is_exported_as_it_was(pipeline, lake, table, tmp_path):
    """A range, a predicate and an older version, as lines of JSON."""
    ranges = [lakebed.KeyRange(("a",), ("b",))]
    report = pipeline.export(
        "t", str(tmp_path / "out"), ranges=ranges, where="v <= 0.5", format="json", at=table.version - 1
    )
    kept = [row for row in PARTS[0].to_pylist() if "a" <= row["k"] < "b" and row["v"] is not None and row["v"] <= 0.5]
    (path,) = (tmp_path / "out").glob("part-*.json")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((row["k"], row["part"], row["v"]) for row in found) == sorted(
        (r["k"], r["part"], r["v"]) for r in kept
    )
    assert report.rows == len(kept) > 0


def test_an_older_export_is_attached(pipeline, lake, tmp_path):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}))
    table.write(pa.table({"k": [1], "v": ["a"]}))
    pipeline.export(table, str(tmp_path / "out"))
    table.alter(lakebed.AddField("added", "int64"), lakebed.RenameField("v", "w"))
    table.remove(lakebed.KeyRange())
    pipeline.attach(table, tmp_path / "out")
    assert table.scan().read_all().to_pylist() == [{"k": 1, "w": "a", "added": None}]
