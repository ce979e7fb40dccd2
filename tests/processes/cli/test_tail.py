"""``lakebed tail``: what versions changed, and new versions as they come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange
from tests.tables.cli.conftest import Cli


@pytest.fixture
def changed(tmp_path: Path, cli: Cli) -> lakebed.Table:
    """A table that was written twice, and lost a key; ``cli`` is of the same instance."""
    assert cli("init").code == 0
    table = lakebed.open(str(tmp_path / "lake")).create_table("t", lakebed.Schema({"k": "string"}, {}, {"v": "int64"}))
    table.write(pa.table({"k": ["a", "b"], "v": [1, 2]}))
    table.remove(KeyRange.prefix("a"))
    table.write(pa.table({"k": ["c"], "v": [3]}))
    return table


def brief(line: dict[str, object]) -> tuple[object, ...]:
    return line["_version"], line["_change"], line["k"]


@pytest.mark.usefixtures("changed")
def test_the_changes_after_a_version_are_lines(cli: Cli) -> None:
    ran = cli("tail", "t", "--since", "1", "--json")
    assert [brief(line) for line in ran.lines] == [
        (2, "insert", "a"),
        (2, "insert", "b"),
        (3, "remove_range", None),
        (4, "insert", "c"),
    ]
    assert json.loads(ran.lines[2]["_range"]) == {"min": ["a"], "max": ["a"], "max_inclusive": True}
    assert ran.err == "up to version 4\n"
    text = cli("tail", "t", "--since", "3")
    assert text.out.splitlines()[0].split() == ["_version", "_change", "_range", "k", "v"]
    assert text.out.splitlines()[1].split() == ["4", "insert", "-", "c", "3"]


@pytest.mark.usefixtures("changed")
def test_changes_are_printed_in_a_format(cli: Cli) -> None:
    ran = cli("tail", "t", "--since", "3", "--format", "csv")
    assert ran.out.splitlines() == ["_version,_change,_range,k,v", "4,insert,,c,3"]
    refused = cli("tail", "t", "--follow", "--format", "parquet")
    assert refused.code == 2
    assert "--follow prints changes as they come, and parquet has an end: give --format csv or jsonl" in refused.err


@pytest.mark.usefixtures("changed")
def test_versions_columns_keys_and_rows_are_chosen(cli: Cli) -> None:
    assert [brief(line) for line in cli("tail", "t", "--since", "0", "--until", "2", "--json").lines] == [
        (2, "insert", "a"),
        (2, "insert", "b"),
    ]
    some = cli("tail", "t", "--since", "0", "--where", "v > 1", "--prefix", "b", "--columns", "v", "--json")
    assert some.lines == [{"_version": 2, "_change": "insert", "_range": None, "v": 2}]
    assert cli("tail", "t", "--since", "4").err == "no changes there\nup to version 4\n"


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "Give --since WHEN, or --follow"),
        (["--until", "3", "--follow"], 2, "exclude each other"),
        (["--since", "9"], 4, "versions up to 4"),
        (["--since", "9", "-f"], 4, "versions up to 4"),
        (["--since", "nothing"], 4, "no tag"),
        (["--since", "0", "--columns", "x"], 2, "unknown column"),
        (["-f", "--where", "x > 1"], 2, "not a predicate"),
    ],
)
def test_what_cannot_be_read_is_refused(cli: Cli, words: list[str], code: int, said: str) -> None:
    ran = cli("tail", "t", *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


@pytest.fixture
def following(changed: lakebed.Table, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that follows from version 3 on, and has printed the first change."""
    words = [sys.executable, "-m", "lakebed.cli", "tail", "t", "-f", "--since", "3", "--json"]
    process = subprocess.Popen(
        # A shell may start commands in the background, which ignore Ctrl-C.
        [sys.executable, "-c", _WITH_CTRL_C, *words],
        env=os.environ | {"LAKEBED_INSTANCE": str(tmp_path / "lake")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert brief(json.loads(process.stdout.readline())) == (4, "insert", "c")
    yield process
    process.kill()
    process.communicate()


_WITH_CTRL_C = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)


def test_new_versions_are_followed_and_ctrl_c_ends_it(following: subprocess.Popen[str], changed: lakebed.Table) -> None:
    assert following.stdout is not None
    for number in range(3):
        version = changed.write(pa.table({"k": [f"d{number}"], "v": [number]}))
        assert brief(json.loads(following.stdout.readline())) == (version, "insert", f"d{number}")
    changed.alter(lakebed.AddField("later", "string"))
    changed.remove(KeyRange.prefix("d1"))
    line = json.loads(following.stdout.readline())
    assert brief(line) == (changed.version, "remove_range", None)
    assert "later" not in line, "the columns are those of the beginning"
    following.send_signal(signal.SIGINT)
    out, said = following.communicate(timeout=120)
    assert (following.returncode, out) == (130, "")
    assert said.endswith("lakebed: interrupted\n")


def test_a_reader_that_goes_away_ends_it_though_nothing_changes(following: subprocess.Popen[str]) -> None:
    assert following.stdout is not None
    assert following.stderr is not None
    following.stdout.close()
    assert following.wait(60) == 0
    assert following.stderr.read() == ""


def test_a_table_that_is_dropped_meanwhile_ends_it_with_an_error(
    following: subprocess.Popen[str], changed: lakebed.Table, tmp_path: Path
) -> None:
    lakebed.open(str(tmp_path / "lake")).drop_table("t")
    _, said = following.communicate(timeout=60)
    assert following.returncode == 4
    assert "was dropped at version 5" in said


def test_a_column_that_is_dropped_meanwhile_ends_it_with_an_error(
    following: subprocess.Popen[str], changed: lakebed.Table
) -> None:
    changed.alter(lakebed.DropField("v"))
    _, said = following.communicate(timeout=60)
    assert following.returncode == 2
    assert "unknown column 'v'" in said
