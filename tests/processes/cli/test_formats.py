"""``--format``, ``--quiet``, ``-v``, the pager, and tables that fit a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.cli import main
from lakebed.cli.pager import paged
from lakebed.cli.render import fit
from lakebed.model.first_rows import FirstRows
from lakebed.model.text_cells import cells, shorten
from lakebed.storage import telemetry
from tests.tables.cli.conftest import Cli
from tests.terminals import Terminal


@pytest.mark.parametrize(
    ("row_format", "lines"),
    [
        ("csv", ["place,sensor", '"Bad, Bank",7', "Ulm,-2"]),
        ("jsonl", ['{"place": "Bad, Bank", "sensor": 7}', '{"place": "Ulm", "sensor": -2}']),
        ("json", ["[", '{"place": "Bad, Bank", "sensor": 7},', '{"place": "Ulm", "sensor": -2}', "]"]),
        ("markdown", ["| place | sensor |", "| --- | --- |", "| Bad, Bank | 7 |", "| Ulm | -2 |"]),
        ("table", ["place      sensor", "Bad, Bank       7", "Ulm            -2"]),
    ],
)
def test_rows_in_text_formats(cli: Cli, table: str, row_format: str, lines: list[str]) -> None:
    ran = cli("scan", table, "--columns", "place,sensor", "--limit", 2, "--format", row_format)
    assert (ran.code, ran.out.splitlines(), ran.err) == (0, lines, "")


@pytest.mark.parametrize("words", [["--prefix", "nowhere"], []])
@pytest.mark.parametrize("row_format", ["arrow", "parquet"])
def test_rows_in_binary_formats(cli: Cli, table: str, words: list[str], row_format: str) -> None:
    expected = cli("scan", table, *words, "--json").lines
    written = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(written)) as output:
        assert main(["scan", table, *words, "--format", row_format]) == 0
        output.flush()
    source = io.BytesIO(written.getvalue())
    found = pq.read_table(source) if row_format == "parquet" else pa.ipc.open_stream(source).read_all()
    assert found.schema.names == ["place", "sensor", "at", "reading", "note"]
    assert found["sensor"].to_pylist() == [row["sensor"] for row in expected]


def test_a_binary_format_refuses_a_terminal(cli: Cli, table: str) -> None:
    with contextlib.redirect_stdout(Terminal()) as terminal:
        assert main(["scan", table, "--format", "parquet"]) == 2
    assert terminal.getvalue() == ""


def test_no_rows_are_an_array_without_items(cli: Cli, table: str) -> None:
    assert json.loads(cli("scan", table, "--prefix", "nowhere", "--format", "json").out) == []


def test_json_and_a_format_exclude_each_other(cli: Cli, table: str) -> None:
    assert "--json and --format exclude each other" in cli("scan", table, "--json", "--format", "csv").err


def test_listings_have_the_records_of_their_documents(cli: Cli, table: str) -> None:
    cli("tag", "create", table, "monday")
    assert cli("table", "list", "--format", "csv").out == "table\nreadings\n"
    assert cli("tag", "list", table, "--format", "markdown").out.splitlines()[2] == "| monday | 2 |"
    partitions = cli("table", "partitions", table, "--json").json["partitions"]
    assert [json.loads(line) for line in cli("table", "partitions", table, "--format", "jsonl").out.splitlines()] == (
        partitions
    )
    assert cli("history", table, "--format", "csv").out.startswith("version,time,")
    assert "split_rows,50000000" in cli("settings", "show", table, "--format", "csv").out


def test_a_cell_of_markdown_is_one_cell(cli: Cli, table: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a|b\nc"]}), tmp_path / "odd.parquet")
    cli("table", "create", "odd", "--schema-from", tmp_path / "odd.parquet", "--key", "k")
    cli("write", "odd", tmp_path / "odd.parquet")
    assert cli("scan", "odd", "--format", "markdown").out.splitlines()[2] == r"| a\|b<br>c |"


def test_quiet_leaves_notes_out(cli: Cli, table: str) -> None:
    assert cli("scan", table, "--prefix", "x").err == "no rows there\n"
    assert cli("scan", table, "--prefix", "x", "--quiet").err == ""
    assert cli("scan", "nothing", "-q").err.startswith("lakebed: no table named 'nothing'")


def test_verbose_logs_what_was_done(cli: Cli, table: str) -> None:
    try:
        assert "INFO lakebed.read: " in cli("get", table, "Ulm", 1, "-v").err
        (line,) = cli("get", table, "Ulm", 1, "-v", "--log-format", "json").err.splitlines()
        found = json.loads(line)
        assert (found["level"], found["logger"], found["kind"]) == ("info", "lakebed.read", "get")
    finally:
        telemetry.install(None)


@pytest.mark.parametrize(
    ("widths", "width", "fitted"),
    [
        ([5, 5], 80, [5, 5]),
        ([5, 50, 30], 60, [5, 25, 25]),
        ([5, 50, 8], 40, [5, 23, 8]),
        ([12] * 6, 50, [12, 12, None, None, None, 12]),
        ([3] * 20, 30, [3, 3, 3, *[None] * 15, 3, 3]),
        ([200], 20, [20]),
    ],
)
def test_columns_are_cut_and_then_left_out(widths: list[int], width: int, fitted: list[int | None]) -> None:
    found = fit(widths, width)
    shown = [one for one in found if one is not None]
    assert found == fitted
    assert sum(shown) + 2 * (len(shown) - 1) + 3 * (None in found) <= width


def test_texts_are_left_out_before_figures() -> None:
    assert fit([5, 20, 9, 9, 20, 30], 60, {2, 3}) == [5, 13, 9, 9, None, 13]
    assert fit([5, 20, 9, 9, 20, 30], 50, {2, 3}) == [5, None, 9, 9, None, 18]
    assert fit([5, 20, 9, 9, 20, 30], 40, {2, 3}) == [5, None, 9, None, None, 19]


def test_a_history_that_does_not_fit_keeps_its_figures_and_whole_times(
    cli: Cli, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LAKEBED_PAGER", "")
    monkeypatch.setenv("NO_COLOR", "1")
    with contextlib.redirect_stdout(Terminal()) as terminal:
        assert main(["history", table]) == 0
    heading, newest, *_ = terminal.getvalue().splitlines()
    assert max(map(cells, terminal.getvalue().splitlines())) <= 80
    assert {"version", "time", "rows", "removed", "dropped", "size", "detail"} <= set(heading.split())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", newest.split()[1])


@pytest.mark.parametrize(
    ("text", "wide"), [("e\u0301", 1), ("한국", 4), ("\U0001f468\u200d\U0001f469\u200d\U0001f467", 2), ("❤\ufe0f", 2)]
)
def test_what_is_shown_as_one_character_is_measured_as_one(text: str, wide: int) -> None:
    assert cells(text) == wide
    table = pa.table({"a": [text, "x" * wide], "b": ["|", "|"]})
    _, *rows, _ = str(FirstRows(table)).splitlines()
    assert len({cells(row.partition("|")[0]) for row in rows}) == 1


def test_a_cut_text_fits() -> None:
    assert shorten("readings", 8) == "readings"
    assert shorten("readings", 5) == "re…gs"
    assert shorten("two words", 5) == "two …"
    assert cells(shorten("日本語のテキスト", 8)) <= 8


def test_a_wide_table_says_what_it_leaves_out(
    cli: Cli, table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LAKEBED_PAGER", "")
    monkeypatch.setenv("NO_COLOR", "1")
    capsys.readouterr()
    with contextlib.redirect_stdout(Terminal()) as terminal:
        assert main(["scan", table]) == 0
    assert max(map(cells, terminal.getvalue().splitlines())) <= 40
    assert "not shown, since they do not fit: at; --format csv has all" in capsys.readouterr().err


@pytest.mark.parametrize(("lines", "pages"), [(3, ""), (30, "".join(f"{n}\n" for n in range(30)))])
def test_only_output_that_is_longer_than_the_screen_goes_to_the_pager(
    lines: int, pages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    seen.touch()
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("LAKEBED_PAGER", f"sh -c 'cat > {seen}'")
    with contextlib.redirect_stdout(Terminal()) as terminal, paged():
        for n in range(lines):
            print(n)
    assert seen.read_text("utf-8") == pages
    assert (terminal.getvalue() == "") is bool(pages)
