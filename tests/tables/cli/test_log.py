"""``history`` and ``log``: what happened, the entries that say so, and whether they are sound."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed.log.log_limits import LogLimits
from tests.tables.cli.conftest import Cli
from tests.tables.cli.shapes import differences, documented


def test_history_is_listed_newest_first_and_a_limit_cuts_it(cli: Cli, table: str, parquet: Path) -> None:
    cli("write", table, parquet, "--commit-id", "monday")
    ran = cli("history", table)
    assert ran.code == 0, ran.err
    heading, *lines = ran.out.splitlines()
    assert heading.split()[:3] == ["version", "time", "type"]
    assert [line.split()[0] for line in lines] == ["3", "2", "1"]
    assert "monday" in lines[0]
    assert "create_table" in lines[-1]
    newest = cli("history", table, "--limit", 1, "--json").lines
    assert [(row["version"], row["request_key"], row["rows_added"]) for row in newest] == [(3, "monday", 5)]
    assert cli("history", table, "--limit", -1).code == 2
    assert cli("history", "nothing").code == 4


def test_history_before_a_damaged_entry_is_listed_all_the_same(cli: Cli, table: str, url: str) -> None:
    """The damage lies before the checkpoint, so the table itself still opens."""
    opened = lakebed.open(url).table(table)
    last = 0
    while (opened.log.checkpoints.read() or opened.log.head).version < 5:
        last = opened.set(page_rows=500 + last)
        opened.log.wait_for_checkpoint()
    (entry,) = Path(url).glob(f"tables/*/log/{4:020d}.ndjson")
    entry.write_bytes(entry.read_bytes()[:-9])
    ran = cli("history", table, "--json")
    assert ran.code == 3
    assert [row["version"] for row in ran.lines] == [*range(last, 4, -1)]
    assert "entry 4" in ran.err


def test_the_newest_entries_are_shown_and_one_in_full(cli: Cli, table: str, parquet: Path) -> None:
    for count in range(11):
        cli("write", table, parquet, "--commit-id", f"day {count}")
    lines = cli("history", table, "--entries").out.splitlines()
    assert [line.split()[1].rstrip(",") for line in lines if line.startswith("entry")] == [*map(str, range(13, 3, -1))]
    assert [entry["version"] for entry in cli("history", table, "--entries", "--limit", 2, "--json").lines] == [13, 12]
    one = cli("history", table, "--entry", 13)
    assert one.out.count("entry ") == 1
    assert "request_key: day 10" in one.out
    (document,) = cli("history", table, "--entry", 13, "--json").lines
    assert document["transactions"][0]["request_key"] == "day 10"
    assert not differences(document, documented()["history --entries"])
    assert document["previous"] == cli("history", table, "--entry", 12, "--json").json["digest"]


def test_an_entry_with_a_sidecar_says_so(cli: Cli, table: str, url: str, parquet: Path) -> None:
    """Which, and how much is in it; and the claim that stands in place of the list."""
    opened = lakebed.open(url).table(table)
    opened.log.limits = LogLimits(inline_references=0)
    opened.write(parquet)
    (document,) = cli("history", table, "--entry", 3, "--json").lines
    (sidecar,) = document["sidecars"]
    assert (sidecar["version"], sidecar["references"]) == (3, 1)
    assert document["transactions"][0]["references"]["sidecar"] == sidecar["digest"]
    assert not differences(document, documented()["history --entries"])
    lines = cli("history", table, "--entry", 3).out.splitlines()
    assert any(line.startswith(f"  sidecar {sidecar['digest']} of 3: 1 reference, ") for line in lines)
    assert any("1 reference in 1 partition" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--entry", "9"], 4), (["--entry", "0"], 2), (["--entry", "x"], 2), (["--entries", "--limit", "-1"], 2)],
)
def test_an_entry_that_cannot_be_shown(cli: Cli, table: str, words: list[str], code: int) -> None:
    assert cli("history", table, *words).code == code


def test_a_sound_table_is_reported_as_such(cli: Cli, table: str) -> None:
    ran = cli("verify", table)
    assert (ran.code, ran.out.splitlines()[-1], ran.err) == (0, "sound", "")
    assert cli("verify", table, "--log", "--json").json["objects"] is None


def test_damage_is_listed_with_its_remedy_and_exits_with_3(cli: Cli, table: str, url: str) -> None:
    """A file that is gone, and beside it what is only worth knowing."""
    (data,) = Path(url).rglob("*.parquet")
    data.unlink()
    (log,) = (folder for folder in Path(url).glob("tables/*/log"))
    (log / "notes.txt").write_text("mine", "utf-8")
    ran = cli("verify", table)
    assert ran.code == 3
    reported = [line.split()[0] for line in ran.out.splitlines()[1:]]
    assert reported == ["note", "DAMAGE"]
    assert "restore" in ran.out
    assert ran.err == "lakebed: table readings: 1 finding of damage\n"
    document = cli("verify", table, "--json").json
    assert document["sound"] is False
    assert [(f["kind"], f["damage"]) for f in document["findings"]] == [("foreign", False), ("file_missing", True)]
    assert not differences(document, documented()["verify --log"])
    assert cli("verify", table, "--log").code == 0


def test_a_table_is_verified_to_the_depth_that_is_asked_for(cli: Cli, table: str) -> None:
    ran = cli("verify", table)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "sound")
    assert "read " not in ran.out
    ran = cli("verify", table, "--deep")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "sound")
    assert ran.out.splitlines()[1].startswith("read 1 of 1 file, ")
    assert ran.err.startswith(f"verify {table}: ")
    document = cli("verify", table, "--sample", "50%", "--seed", 7, "--json").json
    assert (document["checked"]["files"], document["checked"]["seed"]) == (1, 7)
    assert cli("verify", table, "--sample", "0.5", "--digests").code == 0
    assert cli("verify", "nothing", "--deep").code == 4


def test_damage_is_reported_with_its_file_keys_rows_and_remedy(cli: Cli, table: str, url: str) -> None:
    (path,) = Path(url).glob("tables/*/data/*/*.parquet")
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    assert cli("verify", table).code == 0
    ran = cli("verify", table, "--deep")
    assert ran.code == 3
    (line,) = (line for line in ran.out.splitlines() if line.startswith("DAMAGE"))
    assert path.name in line
    assert f"; table {table}, keys " in line
    assert "5 rows at risk; restore the object from a copy" in line
    (finding,) = cli("verify", table, "--deep", "--json").json["findings"]
    assert (finding["kind"], finding["file"], finding["rows"]) == ("file_damaged", path.stem, 5)
    assert finding["object"].endswith(path.name)


@pytest.mark.parametrize(
    "words",
    [
        ["--sample", "0"],
        ["--sample", "101%"],
        ["--sample", "-5%"],
        ["--sample", "some"],
        ["--sample", "nan"],
        ["--sample", ""],
        ["--sample", "5%", "--deep"],
        ["--seed", "1"],
        ["--deep", "--seed", "1"],
        ["--digests"],
        ["--log", "--deep"],
    ],
    ids=" ".join,
)
def test_a_verification_that_cannot_be_meant_is_refused(cli: Cli, table: str, words: list[str]) -> None:
    assert cli("verify", table, *words).code == 2
