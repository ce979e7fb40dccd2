"""Exports on Spark, and the way back: the same rows in a new table, whatever form they took meanwhile."""

import json
import signal
from pathlib import Path

import pytest

import lakebed
from lakebed.model.schema import Schema
from tests.spark.cases import SCHEMA, assert_holds, rows
from tests.spark.test_crashes import begin, child, wait_for

PARTS = [rows(seed, 300) for seed in range(2)]


@pytest.fixture
def table(instance):
    """Two partitions, two runs, and an older version with less in it."""
    made = instance.create_table("t", SCHEMA, split_points=[("b",)])
    for part in PARTS:
        made.write(part)
    return made


def test_an_export_comes_back_as_the_same_table(pipeline, instance, table, tmp_path):
    """The manifest has the schema; the folder is a source as it is."""
    told = []
    report = pipeline.export(table, str(tmp_path / "out"), partitions=3, progress=told.append)
    assert (report.rows, report.files, told[-1].rows_done) == (600, 3, 600)
    schema = Schema.from_json(json.loads((tmp_path / "out" / "_manifest.json").read_text())["schema"])
    again = instance.create_table("again", schema)
    pipeline.bulk_import(again, str(tmp_path / "out"))
    assert again.schema == table.schema
    assert_holds(again, *PARTS)


def test_an_export_is_attached_byte_for_byte(pipeline, instance, table, tmp_path):
    """Its files touch, so they are one run; the originals stay whose they were; a repeat adds nothing."""
    out = tmp_path / "out"
    pipeline.export(table, str(out), partitions=3)
    again = instance.create_table("again", SCHEMA, split_points=[("a",)])
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


@pytest.mark.slow
def test_an_export_that_is_killed_is_not_taken_for_whole(pipeline, instance, tmp_path):
    """It left files and no _SUCCESS; another place gets all rows."""
    settings = {"file_bytes": 16_384, "row_group_rows": 1000}
    table = instance.create_table("t", SCHEMA, settings=settings)
    table.write(rows(1, 4000))
    out = tmp_path / "out"
    with child("export", Path(instance.url.removeprefix("file://")), out) as process:
        begin(process)
        wait_for(lambda: any(out.glob("part-*")), process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (out / "_SUCCESS").exists()
    with pytest.raises(lakebed.ExistsError, match="did not finish"):
        pipeline.export(table, str(out))
    assert pipeline.export(table, str(tmp_path / "again")).rows == 4000
