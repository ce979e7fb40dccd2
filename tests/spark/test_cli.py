"""The commands that start Spark, in this process and on the session of all tests.

Those that do without: tests/pipeline/test_cli.py.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli import main
from tests.spark.commands import ROWS, counted, ran, table_beside_files

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lakebed.Table:
    return table_beside_files(tmp_path, monkeypatch)


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


def test_progress_and_result_stay_apart(lake: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "t", "in"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("table t at version 2: 3,000 rows imported as ")
    assert "import t: 3,000 rows in " in said.err


def test_import_makes_a_table_of_text_with_the_options_of_write(
    lake: lakebed.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("users.csv").write_text("nr|born|more\n1|31.01.1990|x\n2|nix|y\n")
    words = ["import", "users", "users.csv", "--column", "id=nr", "--null", "nix", "--date-format", "%d.%m.%Y"]
    assert main(words) == 4
    assert "to make it from the file, give --key A,B: its row key columns" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["import", "users", "users.csv", "--key", "nr", *words[5:], "--ignore-extra"]) == 0
    said = capsys.readouterr()
    assert "table users created: nr int64 (row key), born date32[day], more string" in said.out
    assert "CSV with delimiter '|'" in said.err
    assert ran(capsys, "get", "users", "1") == {"nr": 1, "born": "1990-01-31", "more": "x"}
    Path("more.json").write_text('[{"nr": 3, "colour": "red"}, {"nr": 4, "born": "soon"}]')
    assert main(["import", "users", "more.json", "--ignore-extra"]) == 3
    assert "more.json, line 1, column born: 'soon' is not date32" in capsys.readouterr().err
    kept = ran(capsys, "import", "users", "more.json", "--ignore-extra", "--quarantine", "bad")
    assert (kept["rows"], kept["rejected"]) == (1, 1)
    assert main(["import", "users", "-"]) == 2
    assert main(["import", "users", "more.json", "--quarantine", "bad", "--timezone", "UTC"]) == 2
