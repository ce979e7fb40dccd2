"""``history`` and ``log``: what happened, the entries that say so, and whether they are sound."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Cli


def test_history_is_told_newest_first_and_a_limit_cuts_it(cli: Cli, table: str, parquet: Path) -> None:
    cli("write", table, parquet, "--commit-id", "monday")
    ran = cli("history", table)
    assert ran.code == 0, ran.err
    heading, *lines = ran.out.splitlines()
    assert heading.split()[:3] == ["number", "time", "type"]
    assert [line.split()[0] for line in lines] == ["3", "2", "1"]
    assert "monday" in lines[0]
    assert "create_table" in lines[-1]
    newest = cli("history", table, "--limit", 1, "--json").lines
    assert [(row["number"], row["request_key"], row["rows_added"]) for row in newest] == [(3, "monday", 5)]
    assert cli("history", table, "--limit", -1).code == 2
    assert cli("history", "nothing").code == 4
