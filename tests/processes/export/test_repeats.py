"""An export with a job id is written once, however often it is tried: after a kill, and beside another attempt."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest

import lakebed
from lakebed import Pipeline, Schema
from lakebed.errors import ExistsError, UsageError
from tests.soaked import each_once

SCHEMA = Schema({"k": "int64"}, values={"v": "int64"})

OF_A_TABLE = "pipeline.export('t', out, where='v < 8', partitions=2, job_id='monday')"
OF_A_STATEMENT = "pipeline.export_sql('SELECT k, v FROM t WHERE v < 8', out, job_id='monday')"
BOTH = pytest.mark.parametrize("call", [OF_A_TABLE, OF_A_STATEMENT], ids=["table", "statement"])

KILLED = """
import os, sys
import lakebed
from lakebed import Pipeline
from lakebed.upkeep.export import publication

def dies(target, name, data):
    if name == sys.argv[4]:
        os._exit(9)
    return creates(target, name, data)

creates = publication.create_until_clear
publication.create_until_clear = dies
out = sys.argv[2]
with Pipeline(lakebed.open(sys.argv[1]), launcher="this-thread") as pipeline:
    eval(sys.argv[3])
"""


@pytest.fixture
def lake(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    lake.create_table("t", SCHEMA, split_points=[5]).write(pa.table({"k": range(10), "v": range(10)}))
    return lake


@pytest.fixture
def pipeline(lake):
    with Pipeline(lake, launcher="this-thread") as pipeline:
        yield pipeline


def made(call, pipeline, out):
    return eval(call, {"pipeline": pipeline, "out": str(out)})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def listed(folder):
    """The names of the files that the manifest counts, and the two that every export has."""
    manifest = json.loads((folder / "_manifest.json").read_bytes())
    return sorted([file[0] for file in manifest["files"]] + ["_SUCCESS", "_manifest.json"])


@BOTH
def test_a_repeat_writes_nothing_and_reports_the_first(lake, pipeline, tmp_path, call):
    out = tmp_path / "out"
    first = made(call, pipeline, out)
    before = names(out)
    lake["t"].write([{"k": 20, "v": 0}])
    again = made(call, pipeline, out)
    assert (again.rows, again.files, again.size_bytes) == (first.rows, first.files, first.size_bytes)
    assert (again.rows, names(out), listed(out)) == (8, before, before)


@each_once(call=[OF_A_TABLE, OF_A_STATEMENT], at=["_manifest.json", "_SUCCESS"])
def test_a_killed_export_is_repeated_into_its_folder(lake, pipeline, tmp_path, call, at):
    """What the first attempt sent is deleted, or counts if its manifest was there."""
    out = tmp_path / "out"
    died = subprocess.run([sys.executable, "-c", KILLED, lake.url, str(out), call, at], check=False)
    assert died.returncode == 9
    left = names(out)
    assert "_SUCCESS" not in left
    assert any(name.startswith("part-") for name in left)
    with pytest.raises(ExistsError, match="not empty"):
        pipeline.export("t", str(out), job_id="tuesday")
    assert names(out) == left
    assert made(call, pipeline, out).rows == 8
    assert names(out) == listed(out)
    assert (set(left) <= set(names(out))) == (at == "_SUCCESS")


def test_another_request_with_the_job_id_is_refused(pipeline, tmp_path):
    out = tmp_path / "out"
    made(OF_A_TABLE, pipeline, out)
    with pytest.raises(ExistsError, match="of another request: where differ"):
        pipeline.export("t", str(out), where="v < 9", job_id="monday")
    with pytest.raises(UsageError, match="job_id = ''"):
        pipeline.export("t", str(tmp_path / "new"), job_id="")


def test_files_of_others_stay_in_the_way(pipeline, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ExistsError, match=r"notes\.txt"):
        made(OF_A_TABLE, pipeline, out)
    assert names(out) == ["notes.txt"]
