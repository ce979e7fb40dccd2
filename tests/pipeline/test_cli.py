"""The commands of the pipeline that need no Spark, with ``--in-process``."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli import main
from tests.spark.commands import ROWS, counted, ran, table_beside_files
from tests.tables.cli.shapes import differences, documented
from tests.terminals import set_stdin
from tests.workers import shared_workers


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[lakebed.Table]:
    with shared_workers():
        yield table_beside_files(tmp_path, monkeypatch)


def test_maintain_does_all_that_is_due(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    lake.set(split_rows=ROWS // 2, history_s=0, compaction_strategy="full", ingest_age_s=0)
    for part in range(2):
        lake.write(pq.read_table(f"in/{part}.parquet"))
    lake.submit("in/2.parquet")
    report = ran(capsys, "maintain", "t", "--in-process")
    assert report["online"]
    assert report["ingest"]["requests"] == 1
    assert report["compactions"]
    assert report["splits"]
    assert lake.partitions().num_rows > 1
    assert set(lake.partitions()["runs"].to_pylist()) == {1}
    assert counted(lake.scan().read_all()) == counted(pq.read_table("in"))


def test_what_is_submitted_is_ingested_once(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "requests", "submit", "t", "in/[01].parquet")["submitted"] == 2
    assert ran(capsys, "ingest", "t", "--in-process")["waiting"] == 2
    assert main(["ingest", "t", "--in-process"]) == 0
    assert capsys.readouterr().out.endswith("2 requests open, not due yet: --force ingests now\n")
    pq.write_table(pa.table({"k": ["x"], "m": [1]}), "in/3.parquet")
    second = ran(capsys, "requests", "submit", "t", "in")
    assert (second["open"], second["submitted"]) == (2, 2)
    report = ran(capsys, "ingest", "t", "--force", "--in-process")
    assert (report["requests"], report["rows"], len(report["failed"])) == (3, ROWS, 1)
    (request,) = ran(capsys, "requests", "list", "t")["requests"]
    assert (request["state"], request["failures"], request["url"].endswith("3.parquet")) == ("open", 1, True)
    assert "extra column m" in request["reason"]
    assert ran(capsys, "requests", "submit", "t", "in")["ingested"] == 3
    assert counted(lake.scan().read_all()) == counted(pq.read_table(["in/0.parquet", "in/1.parquet", "in/2.parquet"]))


def test_an_export_is_a_folder_that_another_table_imports(
    lake: lakebed.Table, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lake.write(pq.read_table("in"))
    report = ran(
        capsys,
        "export",
        "t",
        "out",
        "--in-process",
        "--from",
        "k00100",
        "--where",
        "n % 2 = 0",
        "--at",
        str(lake.state().version),
    )
    found = pq.read_table(tmp_path / "out")
    assert found["k"].to_pylist() == sorted(found["k"].to_pylist())
    assert (report["rows"], report["files"]) == (found.num_rows, 1)
    assert counted(found) == counted(
        lake.scan(lakebed.KeyRange(("k00100",))).read_all().filter(pc.bit_wise_and(pc.field("n"), 1) == 0)
    )
    ran(capsys, "export", "t", "turned", "--in-process", "--columns", "n,k")
    assert pq.read_schema(next((tmp_path / "turned").glob("*.parquet"))).names == ["n", "k"]


def test_a_rewrite_deletes_and_changes_rows_after_it_was_asked_for(
    lake: lakebed.Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(pq.read_table("in"))
    words = ["table", "rewrite", "t", "--delete-where", "n < 10", "--set", "n=n + 1", "--where", "n % 2 = 0"]
    asked = ran(capsys, *words, "--dry-run")
    assert (asked["files"], asked["rows"]) == (1, ROWS)
    set_stdin(monkeypatch, io.StringIO("t\n"))
    assert main([*words, "--in-process"]) == 2
    assert "whether to rewrite rows of t" in capsys.readouterr().err
    report = ran(capsys, *words, "--in-process", "--yes")
    expected = [n + (n % 2 == 0) for n in pq.read_table("in").column("n").to_pylist() if n >= 10]
    assert sorted(lake.scan().read_all().column("n").to_pylist()) == sorted(expected)
    assert (report["rows_deleted"], report["rows_deleted"] + len(expected)) == (30, ROWS)
    assert main([*words, "--in-process", "--yes"]) == 0
    assert capsys.readouterr().out == "table t: no row differs; nothing was changed, 1 file read\n"
    assert main(["table", "rewrite", "t", "--set", "n=1", "--set", "n=2", "--yes"]) == 2
    assert "--set names a column twice" in capsys.readouterr().err


def test_an_erasure_report_lists_where_rows_are_until_they_are_gone(
    lake: lakebed.Table, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lake.write(pq.read_table("in"))
    lake.set(history_s=0)
    words = ["erase-report", "t", "--where", "n = 7", "--in-process"]
    ran(capsys, "export", "t", "out", "--in-process")
    ran(capsys, "table", "rewrite", "t", "--delete-where", "n = 7", "--in-process", "--yes")
    assert main([*words, "--json"]) == 3
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert not differences(found, documented()["erase-report"], "erase-report")
    assert {(place["where"], place["rows"], place["live_rows"]) for place in found["places"]} == {
        ("older versions", 3, 0),
        ("export", 3, 0),
    }
    assert main(words) == 3
    said = capsys.readouterr()
    assert "older versions" in said.out
    assert "table t: 2 objects with such rows or keys, 0 objects that could not be read" in said.err
    shutil.rmtree(tmp_path / "out")
    assert main(["gc", "t"]) == 0
    assert ran(capsys, *words)["erased"]
    assert main(words) == 0
    assert "no object has such rows\n" in capsys.readouterr().out
