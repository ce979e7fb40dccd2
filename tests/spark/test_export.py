"""Exports on Spark, and the way back: the same rows in a new table.

What an export holds, and attach: tests/pipeline/test_export.py.
"""

import json
import signal
from pathlib import Path

import pytest

import lakebed
from lakebed.model.schema import Schema
from tests.spark.cases import PARTS, SCHEMA, assert_holds, rows, two_runs
from tests.spark.killing import begin, child, wait_for


@pytest.fixture
def table(lake):
    return two_runs(lake)


def test_an_export_comes_back_as_the_same_table(pipeline, lake, table, tmp_path):
    """The manifest has the schema; the folder is a source as it is."""
    progress = []
    report = pipeline.export(table, str(tmp_path / "out"), partitions=3, progress=progress.append)
    assert (report.rows, report.files, progress[-1].rows_done) == (600, 3, 600)
    schema = Schema.from_json(json.loads((tmp_path / "out" / "_manifest.json").read_text())["schema"])
    again = lake.create_table("again", schema)
    pipeline.bulk_import(again, str(tmp_path / "out"))
    assert again.schema == table.schema
    assert_holds(again, *PARTS)


@pytest.mark.slow
def test_an_export_that_is_killed_is_not_taken_for_whole(pipeline, lake, tmp_path):
    """It left files and no _SUCCESS; another place gets all rows."""
    settings = {"file_bytes": 16_384, "row_group_rows": 1000}
    table = lake.create_table("t", SCHEMA, settings=settings)
    table.write(rows(1, 4000))
    out = tmp_path / "out"
    with child("local[2,4]", "export", Path(lake.url.removeprefix("file://")), out) as process:
        begin(process)
        wait_for(lambda: any(out.glob("part-*")), process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (out / "_SUCCESS").exists()
    with pytest.raises(lakebed.ExistsError, match="did not finish"):
        pipeline.export(table, str(out))
    assert pipeline.export(table, str(tmp_path / "again")).rows == 4000
