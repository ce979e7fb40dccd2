"""``lakebed sql``: one query, several from stdin, or a prompt."""

from __future__ import annotations

import io
import sys

import pytest

from lakebed.cli import sql


@pytest.fixture
def typed(monkeypatch):
    """Stands for lines on stdin; ``terminal`` says that somebody types them."""

    def lines(text, *, terminal=False):
        stream = io.StringIO(text)
        stream.isatty = lambda: terminal
        monkeypatch.setattr(sys, "stdin", stream)

    return lines


def test_a_query_prints_rows(cli, table):
    ran = cli("sql", "SELECT place, count(*) AS n FROM readings GROUP BY place ORDER BY place")
    assert ran.code == 0
    assert ran.out.splitlines() == ["place      n", "Bad, Bank  1", "Ulm        4"]


def test_a_query_prints_json(cli, table):
    ran = cli("sql", "SELECT reading FROM readings WHERE place = 'Ulm' AND sensor = 1 ORDER BY at", "--json")
    assert ran.lines == [{"reading": 3.5}, {"reading": 4.5}]


def test_a_query_prints_csv(cli, table):
    ran = cli("sql", "SELECT place, reading, note, sensor > 5 AS high FROM readings WHERE sensor IN (7, -2)", "--csv")
    assert sorted(ran.out.splitlines()) == ['"Bad, Bank",NaN,,true', "Ulm,,y,false", "place,reading,note,high"]
    assert cli("sql", "SELECT 1", "--csv", "--json").code == 2


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
        ("DROP TABLE readings", 2, "only SQL that reads"),
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


def test_a_prompt_goes_on_after_an_error_and_ctrl_c(cli, table, typed, monkeypatch):
    typed("", terminal=True)
    said = iter(
        ["SELECT strange", "FROM readings;", "SELECT 'forgotten", KeyboardInterrupt, "SELECT 2 AS two;", "quit"]
    )
    prompts = []

    def ask(prompt):
        prompts.append(prompt)
        line = next(said)
        if line is KeyboardInterrupt:
            raise line
        return line

    monkeypatch.setattr(sql, "_asking", lambda lake, out: ask)
    ran = cli("sql", "--json")
    assert ran.code == 0
    assert ran.lines == [{"two": 2}]
    assert "tables: readings" in ran.err
    assert "No field named strange" in ran.err
    assert [prompt.strip() for prompt in prompts] == ["lakebed>", "...", "lakebed>", "...", "lakebed>", "lakebed>"]


def test_a_prompt_knows_tables_and_columns_and_keeps_its_history(cli, table, tmp_path, monkeypatch):
    toolkit = pytest.importorskip("prompt_toolkit")
    import lakebed
    from lakebed.cli.render import Output

    made = {}

    class Session:
        def __init__(self, history, completer):
            made.update(history=history, completer=completer)

        def prompt(self, text):
            raise EOFError

    monkeypatch.setattr(toolkit, "PromptSession", Session)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    sql._asking(lakebed.open(str(tmp_path / "lake")), Output(as_json=False))
    assert {"readings", "place", "sensor", "SELECT"} <= set(made["completer"].words)
    made["history"].store_string("SELECT 1;")
    assert "SELECT 1;" in sql.history_path().read_text()
    assert sql.history_path().stat().st_mode & 0o077 == 0
