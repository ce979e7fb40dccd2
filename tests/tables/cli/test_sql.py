"""``lakebed sql``: one query, several from stdin, or a prompt."""

from __future__ import annotations

import io
import json
import re

import pytest

import lakebed
from lakebed.cli import sql
from lakebed.cli.render import Output
from lakebed.cli.sql import MORE, PROMPT
from tests.machine import hide_packages
from tests.terminals import CTRL_C, Terminal, set_stdin


@pytest.fixture
def typed(monkeypatch):
    """Stands for lines on stdin; ``terminal`` says that they are typed."""

    def lines(text, *, terminal=False):
        set_stdin(monkeypatch, Terminal(text) if terminal else io.StringIO(text))

    return lines


def test_a_query_prints_rows(cli, table):
    ran = cli("sql", "SELECT place, count(*) AS n FROM readings GROUP BY place ORDER BY place")
    assert ran.code == 0
    assert ran.out.splitlines() == ["place      n", "Bad, Bank  1", "Ulm        4"]


def test_a_query_prints_json(cli, table):
    ran = cli("sql", "SELECT reading FROM readings WHERE place = 'Ulm' AND sensor = 1 ORDER BY at", "--json")
    assert ran.lines == [{"reading": 3.5}, {"reading": 4.5}]


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"], ["--format", "jsonl"]])
def test_json_has_no_two_columns_of_one_name(cli, table, words):
    ran = cli("sql", "SELECT a.place, b.place FROM readings a JOIN readings b ON a.sensor = b.sensor", *words)
    assert (ran.code, ran.out.strip("[]\n")) == (2, "")
    assert "two columns are named place" in ran.err


def test_a_query_prints_csv(cli, table):
    ran = cli(
        "sql",
        "SELECT place, reading, note, sensor > 5 AS high FROM readings WHERE sensor IN (7, -2)",
        "--format",
        "csv",
    )
    assert sorted(ran.out.splitlines()) == ['"Bad, Bank",NaN,"",true', "Ulm,,y,false", "place,reading,note,high"]
    assert cli("sql", "SELECT 1", "--csv").code == 2


def test_a_difference_of_times_is_a_text(cli, table):
    ran = cli("sql", "SELECT max(at) - min(at) AS span FROM readings", "--json")
    assert ran.lines == [{"span": "0:01:00"}]


def test_columns_of_one_name_are_not_lost_in_json(cli, table):
    statement = "SELECT a.sensor, b.sensor FROM readings a JOIN readings b ON a.place = b.place"
    assert "AS" in cli("sql", statement, "--json").err
    assert cli("sql", statement).code == 0


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("SELECT strange FROM readings", 2, "No field named strange"),
        ("SELECT * FROM strange", 4, "its tables"),
        ("BEGIN", 2, "not supported"),
        ("SELECT * FROM readings@99", 4, "version 99 does not exist"),
    ],
)
def test_an_error_has_its_exit_code(cli, table, statement, code, message):
    ran = cli("sql", statement)
    assert ran.code == code
    assert message in ran.err or "instance's tables" in ran.err


def test_statements_are_read_from_stdin(cli, table, typed):
    typed("SELECT 1 AS one;\nSELECT ';'\n  AS two;\nSELECT 3 AS three")
    ran = cli("sql", "--json")
    assert ran.lines == [{"one": 1}, {"two": ";"}, {"three": 3}]


def test_the_first_error_on_stdin_ends_it(cli, table, typed):
    typed("SELECT 1 AS one; SELECT strange FROM readings; SELECT 3 AS three;")
    ran = cli("sql", "--json")
    assert ran.code == 2
    assert ran.lines == [{"one": 1}]


@pytest.fixture
def prompted(typed, monkeypatch):
    """Stands for lines that are typed at the prompt, one by one."""
    hide_packages(monkeypatch, "prompt_toolkit")
    return lambda *lines: typed("".join(f"{line}\n" for line in lines), terminal=True)


def test_a_prompt_goes_on_after_an_error_and_ctrl_c(cli, table, prompted):
    prompted("SELECT strange", "FROM readings;", "SELECT 'forgotten", CTRL_C, "SELECT 2 AS two;", "quit")
    ran = cli("sql", "--json")
    assert ran.code == 0
    assert json.loads(ran.out.replace(PROMPT, "").replace(MORE, "")) == {"two": 2}
    assert "tables: readings" in ran.err
    assert "No field named strange" in ran.err
    assert re.findall(f"{re.escape(PROMPT)}|{re.escape(MORE)}", ran.out) == [PROMPT, MORE, PROMPT, MORE, PROMPT, PROMPT]


def test_a_prompt_takes_a_statement_of_several_lines_and_completes_names(cli, table, tmp_path, monkeypatch):
    """The session of prompt_toolkit itself, with keys that a user presses."""
    pytest.importorskip("prompt_toolkit")
    from prompt_toolkit.document import Document
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lake = lakebed.open(str(tmp_path / "lake"))
    with create_pipe_input() as keys:
        ask = sql.asking(lake, Output(as_json=False), input=keys, output=DummyOutput())
        keys.send_text("SELECT 1 AS a,\n2 AS b;\n.help\n")
        assert [ask(""), ask("")] == ["SELECT 1 AS a,\n2 AS b;", ".help"]
    history = sql.history_path()
    assert "+SELECT 1 AS a,\n+2 AS b;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    completer = sql._completer(lake)
    for typed, found in (("SELECT pl", ["place"]), ("SELECT * FROM re", ["readings"]), (".mode ma", ["markdown"])):
        assert [one.text for one in completer.get_completions(Document(typed), None)] == found


@pytest.mark.parametrize(
    ("text", "whole"),
    [("", True), ("SELECT 1", False), ("SELECT ';'", False), ("SELECT 1;", True), ("exit", True), (".tables", True)],
)
def test_enter_ends_a_statement_at_its_semicolon(text, whole):
    assert sql.is_whole(text) is whole


def test_commands_of_the_prompt(cli, table, prompted):
    prompted(
        ".tables", ".schema readings", ".mode csv", "SELECT 1 AS one;", ".mode xml", ".other", ".schema x", ".quit"
    )
    ran = cli("sql")
    assert ran.code == 0
    tables, schema, *rows = ran.out.replace(PROMPT, "").splitlines()
    assert tables == "readings"
    assert lakebed.Schema.from_json(schema).row_key_names == ("place", "sensor")
    assert rows == ["one", "1"]
    assert ".mode takes one of table, csv, json" in ran.err
    assert "no command '.other'; .help lists them" in ran.err
    assert "no table named 'x'" in ran.err


def test_values_of_parameters(cli, table):
    ran = cli(
        "sql", "SELECT ? AS a, ? AS b, ? AS c, ? AS d", *(f"--param={v}" for v in ("7", "x y", '"7"', "null")), "--json"
    )
    assert ran.lines == [{"a": 7, "b": "x y", "c": "7", "d": None}]
    ran = cli("sql", "SELECT count(*) AS n FROM readings WHERE place = $place", "--param", "place=Ulm", "--json")
    assert ran.lines == [{"n": 4}]
    assert "give NAME=VALUE" in cli("sql", "SELECT $a", "--param", "7").err
    assert "--param goes with a statement" in cli("sql", "--param", "7").err
    assert "has 2 parameters" in cli("sql", "SELECT ?, ?", "--param", "7").err


def test_a_plan_keeps_its_lines(cli, table):
    ran = cli("sql", "EXPLAIN SELECT place FROM readings")
    assert ran.out.startswith("logical_plan\n  ")
    assert "physical_plan\n  " in ran.out
