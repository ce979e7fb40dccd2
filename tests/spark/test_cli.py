"""The commands that start Spark, in this process and on the session of all tests."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli import main
from tests.unit.cli.shapes import differences, documented

pytestmark = pytest.mark.usefixtures("spark")

ROWS = 3_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lakebed.Table:
    """An empty table; three files of rows lie beside the instance."""
    monkeypatch.setenv("LAKEBED_INSTANCE", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for part in range(3):
        keys = [f"k{(i * 7919 + part) % ROWS:05}" for i in range(part, ROWS, 3)]
        pq.write_table(pa.table({"k": keys, "n": range(len(keys))}), tmp_path / "in" / f"{part}.parquet")
    instance = lakebed.create(str(tmp_path / "lake"))
    return instance.create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    code = main([*words, "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    document = json.loads(said.out)
    command = " ".join(words[:2]) if words[0] == "requests" else words[0]
    assert not differences(document, documented()[command], command)
    return document


def counted(rows: pa.Table) -> collections.Counter[tuple[str, int]]:
    return collections.Counter(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))


def test_import_takes_files_folders_and_globs_once(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    first = ran(capsys, "import", "t", "in/0.parquet", "in/[12].parquet", "--job-id", "monday")
    assert (first["rows"], first["source_files"], first["repeated"]) == (ROWS, 3, False)
    again = ran(capsys, "import", "t", "in", "--job-id", "monday")
    assert (again["rows"], again["version"], again["repeated"]) == (0, first["version"], True)
    assert counted(lake.scan().read_all()) == counted(pq.read_table("in"))


def test_import_takes_csv(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    pa.csv.write_csv(pq.read_table("in"), "rows.csv")
    assert ran(capsys, "import", "t", "rows.csv", "--format", "csv")["rows"] == ROWS
    assert counted(lake.scan().read_all()) == counted(pq.read_table("in"))


def test_import_maps_casts_queries_and_keeps_bad_rows_apart(
    lake: lakebed.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"Key": ["a", "b", None], "n": ["1", "two", "3"]}), "texts.parquet")
    words = ["import", "t", "texts.parquet", "--column", "k=Key", "--cast", "n"]
    report = ran(capsys, *words, "--quarantine", "bad", "--job-id", "j")
    assert (report["rows"], report["rejected"], Path(report["quarantine"]).name) == (1, 2, "j")
    assert len(list(Path("bad/j").iterdir())) == 2
    assert ran(capsys, *words, "--select", "SELECT * FROM source WHERE n = '1'")["rejected"] == 0
    assert counted(lake.scan().read_all()) == {("a", 1): 2}


def test_import_that_finds_nothing_is_not_found(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "t", "in/*.orc"]) == 4
    assert "in/*.orc" in capsys.readouterr().err


def test_a_field_comes_from_one_column(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "t", "in", "--column", "k=k", "--column", "k=n"]) == 2
    assert "--column names a field twice: k=k, k=n" in capsys.readouterr().err


def test_compact_leaves_one_run(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    for part in range(3):
        lake.write(pq.read_table(f"in/{part}.parquet"))
    report = ran(capsys, "compact", "t", "--strategy", "full")
    assert (report["partitions"], report["files_in"], report["files_out"], report["rows"]) == (1, 3, 1, ROWS)
    assert lake.partitions()["runs"].to_pylist() == [1]
    assert ran(capsys, "compact", "t", "--strategy", "full")["version"] is None


def test_maintain_does_all_that_is_due(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    lake.set(split_rows=ROWS // 2, history_s=0, compaction_strategy="full", ingest_age_s=0)
    for part in range(2):
        lake.write(pq.read_table(f"in/{part}.parquet"))
    lake.submit("in/2.parquet")
    report = ran(capsys, "maintain", "t")
    assert report["online"]
    assert report["ingest"]["requests"] == 1
    assert report["compactions"]
    assert report["splits"]
    assert lake.partitions().num_rows > 1
    assert set(lake.partitions()["runs"].to_pylist()) == {1}
    assert counted(lake.scan().read_all()) == counted(pq.read_table("in"))


def test_what_is_submitted_is_ingested_once(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "requests", "submit", "t", "in/[01].parquet")["submitted"] == 2
    assert ran(capsys, "ingest", "t")["waiting"] == 2
    pq.write_table(pa.table({"k": ["x"], "m": [1]}), "in/3.parquet")
    second = ran(capsys, "requests", "submit", "t", "in")
    assert (second["open"], second["submitted"]) == (2, 2)
    report = ran(capsys, "ingest", "t", "--force")
    assert (report["requests"], report["rows"], len(report["failed"])) == (3, ROWS, 1)
    (told,) = ran(capsys, "requests", "list", "t")["requests"]
    assert (told["state"], told["failures"], told["url"].endswith("3.parquet")) == ("open", 1, True)
    assert "extra column m" in told["reason"]
    assert ran(capsys, "requests", "submit", "t", "in")["ingested"] == 3
    assert counted(lake.scan().read_all()) == counted(pq.read_table(["in/0.parquet", "in/1.parquet", "in/2.parquet"]))


def test_progress_and_result_stay_apart(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "t", "in"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("table t at version 2: 3,000 rows imported as ")
    assert "import t: 3,000 rows in " in said.err


def alive(mark: str) -> list[psutil.Process]:
    """Processes that were started with the mark in their environment, wherever in the tree they are now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("LAKEBED_TEST") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def is_spark(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("org.apache.spark" in word for word in process.cmdline())
    return False


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_ctrl_c_while_spark_starts_ends_quietly_and_leaves_no_process(lake: lakebed.Table, tmp_path: Path) -> None:
    program = (
        "import signal, sys\nfrom lakebed.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nsys.exit(main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "import", "t", "in"],
        env=os.environ | {"LAKEBED_TEST": str(tmp_path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # Its JVM is there, and will need seconds more until it answers.
    until(lambda: any(map(is_spark, alive(str(tmp_path)))))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "lakebed: stopping …; again to stop hard\n" in said
    assert said.endswith("lakebed: interrupted: nothing was committed\n")
    assert lake.scan().read_all().num_rows == 0
    until(lambda: not alive(str(tmp_path)))


def test_a_master_that_is_none_is_named(lake: lakebed.Table) -> None:
    command = [sys.executable, "-m", "lakebed.cli", "import", "t", "in", "--master", "nonsense"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1].startswith("lakebed: Spark did not start at nonsense (")
    assert lake.state().version == 1


def test_an_export_is_a_folder_that_another_table_imports(
    lake: lakebed.Table, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ran(capsys, "import", "t", "in")
    report = ran(
        capsys, "export", "t", "out", "--from", "k00100", "--where", "n % 2 = 0", "--at", str(lake.state().version)
    )
    found = pq.read_table(tmp_path / "out")
    assert found["k"].to_pylist() == sorted(found["k"].to_pylist())
    assert (report["rows"], report["files"]) == (found.num_rows, 1)
    assert counted(found) == counted(
        lake.scan(lakebed.KeyRange(("k00100",))).read_all().filter(pc.bit_wise_and(pc.field("n"), 1) == 0)
    )
