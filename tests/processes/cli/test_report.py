"""``--report URL``: the outcome of a command, for callers that see neither its stdout nor its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.cli import grammar
from lakebed.cli.invocation import Report
from lakebed.errors import Code
from tests.tables.cli.conftest import Cli

SECRET = "not-for-everyone"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "monday.json"


def reported(path: Path) -> Any:
    (line,) = path.read_text("utf-8").splitlines()
    return json.loads(line)


def test_a_report_holds_what_json_prints(cli: Cli, table: str, path: Path) -> None:
    printed = cli("count", table, "--json", "--report", path)
    assert reported(path) == {"exit_code": 0, "report": printed.json}
    cli("--report", path, "split", table)
    assert reported(path)["report"]["table"] == table
    assert list(path.parent.iterdir()) == [path]


def test_rows_are_not_in_the_report(cli: Cli, table: str, path: Path) -> None:
    assert len(cli("scan", table, "--json", "--report", path).lines) == 5
    assert reported(path) == {"exit_code": 0, "report": None}


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["count", "no-such-table"], 4, "not_found"),
        (["count", "readings", "--where", "nope = 1"], 2, "usage"),
        (["compact", "readings", "--strategy", "magic"], 2, "usage"),
        (["get", "readings"], 2, "usage"),
        (["scam"], 2, "usage"),
    ],
)
@pytest.mark.parametrize("given", ["--report", "--report="])
def test_a_command_that_fails_reports_kind_and_message(  # noqa: PLR0917
    cli: Cli, table: str, path: Path, words: list[str], code: int, kind: str, given: str
) -> None:
    """Words that cannot be parsed, too."""
    assert table == "readings"
    ran = cli(*words, *([f"{given}{path}"] if given.endswith("=") else [given, path]))
    assert ran.code == code
    found = reported(path)
    assert (found["exit_code"], found["error"]["kind"]) == (code, kind)
    assert ran.err.startswith(f"lakebed: {found['error']['message']}\n")


def test_a_bug_is_reported(cli: Cli, table: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakebed.Table, "count", lambda *_args, **_kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli("count", table, "--report", path)
    assert reported(path) == {
        "exit_code": 1,
        "error": {"kind": "bug", "code": "bug", "message": "ZeroDivisionError: division by zero"},
    }


def test_an_interrupted_command_reports_what_was_committed(
    cli: Cli, table: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_args: object, **_kwargs: object) -> None:
        assert reported(path) == {"exit_code": None}, "the command runs"
        stop = KeyboardInterrupt()
        stop.add_note("nothing was committed")
        raise stop

    path.parent.mkdir()
    path.write_text('{"exit_code": 0, "report": "of an earlier command"}\n')
    monkeypatch.setattr(lakebed.Table, "count", interrupted)
    ran = cli("count", table, "--report", path)
    assert (ran.code, ran.err) == (130, "lakebed: interrupted: nothing was committed\n")
    assert reported(path) == {"exit_code": 130, "interrupted": "nothing was committed"}


def test_a_relative_path_is_of_the_working_folder(
    cli: Cli, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("count", table, "--report", "monday.json").code == 0
    assert cli("count", table, "--report", (tmp_path / "tuesday.json").as_uri()).code == 0
    assert reported(tmp_path / "monday.json") == reported(tmp_path / "tuesday.json")


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("s3://report.json", "bucket"),
        ("reports/", "--report reports/ must name a file, such as s3://bucket/reports/monday.json"),
        ("ftp://host/report.json", "unknown scheme ftp://"),
        ("s3://user:secret@bucket/report.json", "a URL must not contain credentials"),
    ],
)
def test_a_url_that_cannot_be_is_refused_before_anything_is_done(cli: Cli, report: str, said: str) -> None:
    ran = cli("init", "--report", report)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert cli("table", "list").code == 4, "no instance was created"


def test_a_place_that_cannot_be_written_to_stops_the_command(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = cli("init", "--report", tmp_path / "file" / "report.json")
    assert (ran.code, len(ran.err.splitlines())) == (5, 1)
    assert cli("table", "list").code == 4, "no instance was created"


def test_a_report_that_is_lost_leaves_the_outcome_unknown(
    cli: Cli, table: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller, which sees the report alone, has to repeat the command."""
    write = Report.write

    def fail(self: Report, exit_code: int | None, outcome: Any) -> None:
        if exit_code is not None:
            raise Code.STORE_UNAVAILABLE("the store is gone")
        write(self, exit_code, outcome)

    monkeypatch.setattr(Report, "write", fail)
    lost = f"lakebed: cannot write the report to {path}: the store is gone\n"
    ran = cli("count", table, "--report", path)
    assert (ran.code, ran.err) == (6, lost)
    ran = cli("count", "no-such-table", "--report", path)
    assert (ran.code, ran.err.splitlines(keepends=True)[1:]) == (4, [lost])


def test_storage_options_come_from_the_environment_and_the_command_line_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(grammar.OPTIONS_VARIABLE, json.dumps({"region": "a", "secret": SECRET}))
    invocation = grammar.Invocation(storage_options={"region": "b"})
    assert invocation.options_in_force() == {"region": "b", "secret": SECRET}


@pytest.mark.parametrize("text", [f"token={SECRET}", f'["{SECRET}"]', f'{{"n": 3, "token": "{SECRET}"}}'])
def test_storage_options_that_cannot_be_read_are_refused_and_not_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(grammar.OPTIONS_VARIABLE, text)
    ran = cli("init")
    assert ran.code == 2
    assert "LAKEBED_STORAGE_OPTIONS is not a JSON object of texts" in ran.err
    assert SECRET not in ran.err


def test_the_application_runs_the_command_line_from_wherever_it_lies(
    cli: Cli, table: str, tmp_path: Path, path: Path
) -> None:
    """What lies beside it, as `sql.py` does at home, is no module of the top level."""
    application = Path(cli("--application").out.strip())
    copied = tmp_path / "elsewhere" / "copied.py"
    copied.parent.mkdir()
    copied.write_bytes(application.read_bytes())
    (copied.parent / "click.py").write_text("raise AssertionError")
    for program in (application, copied):
        ran = subprocess.run(
            [sys.executable, str(program), "count", table, "--report", str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (0, "")
        assert reported(path)["report"]["rows"] == 5


def test_messages_that_are_not_read_hide_no_failure(url: str, table: str, path: Path) -> None:
    """The reader of a driver's stderr is a JVM, which may be gone."""
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, "-m", "lakebed.cli", "--instance", url, "count", f"no-{table}", "--report", str(path)],
        stderr=write, check=False,
    )  # fmt: skip
    os.close(write)
    assert ran.returncode == 4
    assert reported(path)["error"]["kind"] == "not_found"
