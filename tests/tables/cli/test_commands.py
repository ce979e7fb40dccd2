"""What commands do, say and exit with, in this process and on local disk."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli.run import exit_code
from lakebed.errors import Code
from tests.tables.cli.conftest import Cli, readings
from tests.terminals import Terminal, set_stdin


def keys(ran_lines: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(row["place"], row["sensor"]) for row in ran_lines]


# -- instances and tables ---------------------------------------------------------------------------------------


def test_a_command_needs_an_instance(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKEBED_INSTANCE")
    ran = cli("table", "list")
    assert (ran.code, ran.out) == (2, "")
    assert "LAKEBED_INSTANCE" in ran.err


def test_the_instance_may_be_named_before_and_after_the_command(cli: Cli, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert cli("--instance", elsewhere, "init").code == 0
    assert cli("table", "list", "--instance", elsewhere).code == 0
    assert cli("table", "list").code == 4


def test_an_instance_is_made_once(cli: Cli) -> None:
    assert cli("init").code == 0
    assert cli("init").code == 2


def test_storage_options_of_both_places_arrive(cli: Cli) -> None:
    ran = cli("--option", "region=x", "table", "list", "--option", "colour=red", "--instance", "s3://bucket")
    assert ran.code == 2
    assert "'colour' is not supported" in ran.err
    assert cli("table", "list", "--option", "region").code == 2


def test_a_table_is_made_from_a_data_file(cli: Cli, parquet: Path) -> None:
    cli("init")
    made = cli("table", "create", "t", "--schema-from", parquet, "--key", "place,sensor", "--sort-key", "at")
    assert made.code == 0, made.err
    shown = cli("table", "show", "t", "--json").json["schema"]
    assert [f["name"] for f in shown["row_key"]] == ["place", "sensor"]
    assert [f["name"] for f in shown["sort_key"]] == ["at"]
    assert [f["name"] for f in shown["values"]] == ["reading", "note"]


def test_a_shown_schema_makes_the_same_table(cli: Cli, table: str, tmp_path: Path) -> None:
    shown = cli("table", "show", table, "--json").json["schema"]
    path = tmp_path / "again.json"
    path.write_text(json.dumps(shown), "utf-8")
    cli("table", "create", "again", "--schema", path)
    assert cli("table", "show", "again", "--json").json["schema"] == shown


def test_split_points_are_keys_as_in_csv(cli: Cli, schema_file: Path, tmp_path: Path) -> None:
    cli("init")
    points = tmp_path / "points"
    points.write_text('"Bad, Bank",-3\n\nUlm\n', "utf-8")
    made = cli("table", "create", "t", "--schema", schema_file, "--split-points", points, "--set", "split_rows=9")
    assert made.code == 0, made.err
    bounds = [partition["max"] for partition in cli("table", "partitions", "t", "--json").json["partitions"]]
    assert bounds == [{"place": "Bad, Bank", "sensor": -3}, {"place": "Ulm", "sensor": None}, None]
    assert cli("settings", "show", "t", "--json").json["settings"]["split_rows"] == 9


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["t"], 2, "--schema"),
        (["t", "--schema", "{missing}"], 4, "no file"),
        (["t", "--schema", "{schema}", "--key", "a"], 2, "--key"),
        (["t", "--schema-from", "{parquet}"], 2, "--key"),
        (["t", "--schema-from", "{parquet}", "--key", "nothing"], 2, "nothing"),
        (["t/x", "--schema", "{schema}"], 2, "t/x"),
        (["readings", "--schema", "{schema}"], 2, "exists already"),
        (["t", "--schema", "{schema}", "--set", "colour=red"], 2, "colour"),
        (["t", "--schema", "{schema}", "--split-points", "{bad_points}"], 3, "sensor"),
    ],
)
def test_a_table_is_refused_that_cannot_be(
    cli: Cli, table: str, schema_file: Path, parquet: Path, tmp_path: Path, *, words: list[str], code: int, says: str
) -> None:
    bad_points = tmp_path / "points"
    bad_points.write_text("Ulm,x\n", "utf-8")
    places = {"schema": schema_file, "parquet": parquet, "missing": tmp_path / "no", "bad_points": bad_points}
    ran = cli("table", "create", *(word.format(**places) for word in words))
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err
    assert cli("table", "list", "--json").json == {"tables": [table]}


def test_a_table_may_be_made_offline(cli: Cli, schema_file: Path) -> None:
    cli("init")
    assert cli("table", "create", "t", "--schema", schema_file, "--offline").code == 0
    assert cli("table", "show", "t", "--json").json["online"] is False


def test_a_table_is_shown_renamed_and_taken_off_and_on(cli: Cli, table: str) -> None:
    shown = cli("table", "show", table).out
    assert "5 rows" in shown
    assert "1 partition" in shown
    assert cli("table", "alter", table, "--rename-to", "other").code == 0
    assert cli("table", "list").out == "other\n"
    assert cli("table", "show", table).code == 4
    cli("table", "alter", "other", "--offline")
    assert cli("table", "show", "other", "--json").json["online"] is False
    cli("table", "alter", "other", "--online")
    assert cli("table", "show", "other", "--json").json["online"] is True


@pytest.mark.parametrize(
    ("typed", "code", "left"), [("readings\n", 0, []), ("yes\n", 2, ["readings"]), ("", 2, ["readings"])]
)
def test_on_a_terminal_drop_wants_the_name_typed(
    cli: Cli, table: str, monkeypatch: pytest.MonkeyPatch, *, typed: str, code: int, left: list[str]
) -> None:
    set_stdin(monkeypatch, Terminal(typed))
    assert cli("table", "drop", table).code == code
    assert cli("table", "list", "--json").json["tables"] == left


def test_away_from_a_terminal_drop_wants_yes(cli: Cli, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_stdin(monkeypatch, io.StringIO("readings\n"))
    assert cli("table", "drop", table).code == 2
    assert cli("table", "drop", table, "--yes").code == 0
    assert cli("get", table, "Ulm", "1").code == 4


@pytest.mark.parametrize(
    "words",
    [
        ["table", "drop", "gone"],
        ["table", "rewrite", "gone", "--delete-where", "reading > 1"],
        ["delete", "gone", "--where", "reading > 1"],
        ["remove", "gone", "--prefix", "Ulm"],
        ["restore", "gone", "--to", "1"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("table")
def test_a_command_that_asks_first_says_that_there_is_no_such_table(
    cli: Cli, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_stdin(monkeypatch, io.StringIO("gone\n"))

    ran = cli(*words)

    assert (ran.code, ran.err.partition(" at ")[0]) == (4, "lakebed: no table named 'gone'")


def test_remove_says_what_would_go_and_asks_before_it_goes(
    cli: Cli, table: str, parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("write", table, parquet).code == 0
    before = len(cli("--json", "scan", table).lines)
    going = len(cli("--json", "scan", table, "--prefix", "Ulm").lines)
    assert 0 < going < before

    asked = cli("--json", "remove", table, "--prefix", "Ulm", "--dry-run").json
    assert (asked["rows"], asked["version"]) == (going, None)
    set_stdin(monkeypatch, Terminal("no\n"))
    assert cli("remove", table, "--prefix", "Ulm").code == 2
    set_stdin(monkeypatch, io.StringIO("readings\n"))
    assert cli("remove", table, "--prefix", "Ulm").code == 2
    assert cli("remove", table, "--yes").code == 2
    assert len(cli("--json", "scan", table).lines) == before

    set_stdin(monkeypatch, Terminal("readings\n"))
    assert cli("remove", table, "--prefix", "Ulm", "--fence").code == 0
    assert len(cli("--json", "scan", table).lines) == before - going
    assert "for good" in cli("history", table, "--limit", "1").out


# -- settings ---------------------------------------------------------------------------------------------------


def test_a_setting_of_the_instance_holds_until_a_table_has_its_own(cli: Cli, table: str) -> None:
    def in_force() -> object:
        return cli("settings", "show", table, "--json").json["settings"]["runs_max"]

    assert in_force() == 10_000
    cli("settings", "set", "runs_max=5")
    assert in_force() == 5
    cli("settings", "set", table, "runs_max=7", "bloom_fpp=0.01")
    assert in_force() == 7
    assert cli("settings", "show", "--json").json["settings"]["runs_max"] == 5
    cli("settings", "set", table, "runs_max=")
    assert in_force() == 5


@pytest.mark.parametrize("words", [["readings"], ["readings", "split_rows=x"], ["split_rows=0"], ["a=1"], ["a", "b"]])
def test_a_setting_is_refused_before_anything_is_opened(cli: Cli, words: list[str]) -> None:
    assert cli("settings", "set", *words).code == 2


def test_the_list_of_settings_needs_no_instance(cli: Cli) -> None:
    assert "split_rows" in cli("settings", "show", "--defaults").out


# -- rows -------------------------------------------------------------------------------------------------------


def test_a_commit_id_counts_once(cli: Cli, table: str, parquet: Path) -> None:
    first = cli("write", table, parquet, "--commit-id", "monday", "--json").json
    again = cli("write", table, parquet, "--commit-id", "monday", "--json").json
    assert (first["rows_read"], again["rows_read"]) == (5, 0)
    assert first["version"] == again["version"]
    assert len(cli("scan", table, "--json").lines) == 10


def test_files_of_all_kinds_are_written_as_one(cli: Cli, table: str, tmp_path: Path) -> None:
    rows = readings(("Aa", 1, 0, 1.0, "x"), ("Ab", 2, 1_000_000, None, ""))
    pq.write_table(rows, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
        file.write_table(rows)
    with pa.OSFile(str(tmp_path / "a.arrows"), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    pa.csv.write_csv(rows, tmp_path / "a.csv")
    # Not named for what it is: its first bytes tell.
    (tmp_path / "unnamed").write_bytes((tmp_path / "a.parquet").read_bytes())
    names = ["a.parquet", "a.arrow", "a.arrows", "a.csv", "unnamed"]
    before = cli("table", "show", table, "--json").json["version"]
    ran = cli("write", table, *(tmp_path / name for name in names), "--json").json
    assert (ran["version"], ran["rows_read"], ran["rows_added"]) == (before + 1, 10, 10)
    found = cli("scan", table, "--starts-with", "A", "--columns", "place,reading,note", "--json").lines
    assert (
        found == [{"place": "Aa", "reading": 1.0, "note": "x"}] * 5 + [{"place": "Ab", "reading": None, "note": ""}] * 5
    )


@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("missing.parquet", None, 4, "no file"),
        ("folder.parquet", b"folder", 4, "no file or folder with data files"),
        ("cut.parquet", b"PAR1 and then nothing", 3, "cut.parquet"),
        ("text.parquet", b"a,b\n1,2\n", 3, "text.parquet"),
        ("text.txt", b"a,b\n1,2\n", 2, "text.txt"),
        ("short.csv", b"place,sensor\nUlm,1\n", 3, "missing column at;"),
        ("word.csv", b"place,sensor,at,reading,note\nUlm,x,2024-01-01T00:00:00Z,1,\n", 3, "word.csv"),
        ("null.csv", b"place,sensor,at,reading,note\nUlm,,2024-01-01T00:00:00Z,1,\n", 3, "sensor"),
    ],
)
def test_a_bad_file_is_named_and_nothing_is_written(
    cli: Cli, table: str, parquet: Path, tmp_path: Path, *, name: str, content: bytes | None, code: int, says: str
) -> None:
    path = tmp_path / name
    if content == b"folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    before = cli("table", "show", table, "--json").json["version"]
    ran = cli("write", table, parquet, path)
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert says in ran.err
    assert cli("table", "show", table, "--json").json["version"] == before


def test_a_write_adds_the_columns_of_all_files_if_the_table_takes_them(cli: Cli, table: str, tmp_path: Path) -> None:
    rows = readings(("Aa", 1, 0, 1.0, "x"))
    pq.write_table(rows.append_column("wind", pa.array([3], pa.int32())), tmp_path / "a.parquet")
    pq.write_table(rows.append_column("wind", pa.array([4])), tmp_path / "b.parquet")
    pa.csv.write_csv(rows.append_column("code", pa.array([7])), tmp_path / "c.csv")
    names = [tmp_path / name for name in ("a.parquet", "b.parquet", "c.csv")]
    ran = cli("write", table, *names)
    assert (ran.code, ran.out) == (3, "")
    assert "a.parquet: extra column wind; the table has" in ran.err
    assert cli("settings", "set", table, "schema_growth=add").code == 0
    assert cli("write", table, *names).code == 0
    found = cli("scan", table, "--starts-with", "Aa", "--columns", "wind,code", "--json").lines
    assert sorted(map(str, found)) == sorted(
        ["{'wind': 3, 'code': None}", "{'wind': 4, 'code': None}", "{'wind': None, 'code': 7}"]
    )
    shown = cli("table", "show", table, "--json").json["schema"]["values"][-2:]
    assert [(field["name"], field["type"], field["nullable"]) for field in shown] == [
        ("wind", "int64", True),
        ("code", "int64", True),
    ]


def test_a_key_is_a_word_for_each_field(cli: Cli, table: str) -> None:
    assert [row["note"] for row in cli("get", table, "Ulm", "1", "--json").lines] == ["x", None]
    assert [row["note"] for row in cli("get", table, "Ulm", "-2", "--json").lines] == ["y"]
    assert [row["reading"] for row in cli("get", table, "Bad, Bank", "7", "--json").lines] == ["NaN"]
    assert cli("get", table, "--json", "--", "Ulm", "1").code == 0


def test_a_key_without_rows_is_no_error(cli: Cli, table: str) -> None:
    ran = cli("get", table, "Rom", "1", "--json")
    assert (ran.code, ran.out, ran.err) == (0, "", "no rows with that key\n")


@pytest.mark.parametrize(
    ("words", "code"),
    [(["Ulm"], 3), (["Ulm", "x"], 3), (["Ulm", "1", "2"], 3), (["Ulm", "1", "--columns", "colour"], 2)],
)
def test_a_bad_key_or_column_is_refused(cli: Cli, table: str, words: list[str], code: int) -> None:
    ran = cli("get", table, *words)
    assert (ran.code, ran.out) == (code, "")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], [("Bad, Bank", 7), ("Ulm", -2), ("Ulm", 1), ("Ulm", 1), ("Ulm", 30)]),
        (["--from", "Ulm", "1"], [("Ulm", 1), ("Ulm", 1), ("Ulm", 30)]),
        (["--to", "Ulm", "1"], [("Bad, Bank", 7), ("Ulm", -2)]),
        (["--from", "Ulm", "-2", "--to", "Ulm", "2"], [("Ulm", -2), ("Ulm", 1), ("Ulm", 1)]),
        (["--prefix", "Bad, Bank"], [("Bad, Bank", 7)]),
        (["--prefix", "Ulm", "30", "--prefix", "Ulm", "-2"], [("Ulm", -2), ("Ulm", 30)]),
        (["--starts-with", "Ba"], [("Bad, Bank", 7)]),
        (["--prefix", "Ulm", "--from", "Ulm", "30"], [("Ulm", -2), ("Ulm", 1), ("Ulm", 1), ("Ulm", 30)]),
        (["--limit", "2"], [("Bad, Bank", 7), ("Ulm", -2)]),
        (["--limit", "0"], []),
    ],
)
def test_a_scan_takes_ranges(cli: Cli, table: str, words: list[str], found: list[tuple[str, int]]) -> None:
    ran = cli("scan", table, *words, "--json")
    assert ran.code == 0, ran.err
    assert keys(ran.lines) == found


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--limit", "-1"], 2),
        (["--limit", "x"], 2),
        (["--from", "Ulm", "x"], 3),
        (["--from", "b", "--to", "a"], 3),
        (["--starts-with", "Ulm", "3"], 3),
        (["--lim", "3"], 2),
    ],
)
def test_a_scan_is_refused_that_means_nothing(cli: Cli, table: str, words: list[str], code: int) -> None:
    ran = cli("scan", table, *words)
    assert (ran.code, ran.out) == (code, ""), ran.err


def test_a_scan_takes_a_predicate_and_runs_from_the_end(cli: Cli, table: str) -> None:
    ran = cli("scan", table, "--where", "sensor > 0 AND place = 'Ulm'", "--reverse", "--limit", "2", "--json")
    assert keys(ran.lines) == [("Ulm", 30), ("Ulm", 1)]
    ran = cli("scan", table, "--where", "sensors > 0")
    assert (ran.code, ran.out) == (2, "")
    assert "No field named sensors" in ran.err


def test_many_keys_come_from_a_file(cli: Cli, table: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    path.write_text('Ulm,30\n"Bad, Bank",7\nRom,1\n\nUlm,30\n', "utf-8")
    assert keys(cli("get", table, "--keys", path, "--json").lines) == [("Bad, Bank", 7), ("Ulm", 30)]
    path.write_text("Rom,1\n", "utf-8")
    assert cli("get", table, "--keys", path).err == "no rows with these keys\n"
    path.write_text("Rom\n", "utf-8")
    assert cli("get", table, "--keys", path).code == 3
    assert cli("get", table, "--keys", tmp_path / "nowhere").code == 4


def test_rows_are_counted_and_sampled(cli: Cli, table: str) -> None:
    assert cli("count", table).out == "5\n"
    assert cli("count", table, "--prefix", "Ulm", "1", "--exact", "--json").json["rows"] == 2
    some = cli("sample", table, "3", "--seed", "4", "--json").lines
    assert len(some) == 3
    assert some == cli("sample", table, "3", "--seed", "4", "--json").lines
    assert cli("sample", table, "-1").code == 2


def test_a_bar_is_for_terminals_that_do_not_show_the_rows(
    cli: Cli, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("scan", table).err == ""
    with contextlib.redirect_stderr(Terminal()) as terminal:
        cli("scan", table)
    assert "scan readings: 5 rows" in terminal.getvalue()


def test_text_comes_in_columns(cli: Cli, table: str) -> None:
    assert cli("scan", table, "--columns", "place,sensor,reading,note").out.splitlines() == [
        "place      sensor  reading  note",
        "Bad, Bank       7  NaN",
        "Ulm            -2  -        y",
        "Ulm             1      3.5  x",
        "Ulm             1      4.5  -",
        "Ulm            30      1.0  \U0001f980",
    ]


# -- maintenance without Spark, and reports -----------------------------------------------------------------------


def test_a_partition_is_split_and_reported(cli: Cli, table: str) -> None:
    assert cli("split", table).out == "table readings: no partition is too large\n"
    cli("settings", "set", table, "split_rows=3")
    assert "5" in cli("split", table, "--dry-run").out
    assert len(cli("table", "partitions", table, "--json").json["partitions"]) == 1
    assert "partition 1 cut into" in cli("split", table).out
    partitions = cli("table", "partitions", table, "--json").json["partitions"]
    assert len(partitions) > 1
    assert [partition["max"] for partition in partitions[:-1]] == [partition["min"] for partition in partitions[1:]]
    assert sum(partition["rows"] for partition in partitions) == 5
    files = cli("table", "files", table, "--json").json["files"]
    assert [file["partition"] for file in files] == [partition["partition"] for partition in partitions]
    assert len(cli("table", "files", table).out.splitlines()) == 1 + len(files)


def test_partitions_are_joined_and_a_dry_run_lists_them_before(cli: Cli, table: str) -> None:
    assert cli("join", table).out == "table readings: no neighbours are small enough to be joined\n"
    cli("settings", "set", table, "split_rows=3")
    cli("split", table)
    cli("settings", "set", table, "split_rows=1000")
    count = len(cli("table", "partitions", table, "--json").json["partitions"])
    assert cli("join", table, "--dry-run").out.startswith(f"{count} partitions (2, 3")
    assert cli("join", table).out.endswith(") made one\n")
    (joined,) = cli("table", "partitions", table, "--json").json["partitions"]
    assert joined["parents"] == list(range(2, 2 + count))
    assert cli("table", "partitions", table).out.splitlines()[1].endswith(", ".join(map(str, joined["parents"])))


def test_files_without_references_are_counted(cli: Cli, table: str, url: str) -> None:
    document = cli("table", "show", table, "--json").json
    assert (document["unreferenced_files"], document["unreferenced_bytes"]) == (0, 0)
    assert "without references" not in cli("table", "show", table).out + cli("table", "partitions", table).out
    lakebed.open(url).table(table).remove(lakebed.KeyRange())
    for command in ("show", "partitions"):
        found = cli("table", command, table, "--json").json
        assert found["unreferenced_files"] == document["files"]
        assert found["unreferenced_bytes"] == document["bytes"]
        assert f"{document['files']} file" in cli("table", command, table).out
        assert "without references" in cli("table", command, table).out


def test_what_compaction_would_do_is_printed_without_spark(cli: Cli, table: str, parquet: Path) -> None:
    assert cli("compact", table, "--dry-run").out == "nothing to compact\n"
    assert cli("compact", table, "--strategy", "magic", "--dry-run").code == 2
    cli("write", table, parquet)
    assert cli("compact", table, "--dry-run").out == "nothing to compact\n"
    full = cli("compact", table, "--strategy", "full", "--dry-run", "--json").json
    assert (full["merges"][0]["runs"], full["concatenations"]) == (2, [])
    assert cli("settings", "set", table, "compaction_strategy=full").code == 0
    assert cli("compact", table, "--dry-run", "--json").json == full
    assert cli("settings", "set", table, "compaction_strategy=magic").code == 2


def test_garbage_is_collected_without_spark(cli: Cli, table: str) -> None:
    dry = cli("gc", table, "--dry-run").out.splitlines()
    assert dry == [
        "table readings: 0 files of 0 bytes would be deleted",
        "table readings: 0 orphans of 0 bytes would be deleted, of 1 object",
    ]
    assert cli("gc", table).out.splitlines() == [line.replace("would be ", "") for line in dry]


def test_the_files_of_a_dropped_table_are_deleted_with_those_of_all_others(
    cli: Cli, table: str, schema_file: Path
) -> None:
    assert cli("table", "create", "other", "--schema", schema_file).code == 0
    cli("settings", "set", "history_s=3600")
    cli("table", "drop", table, "--yes")
    other = ["table other: 0 files of 0 bytes deleted", "table other: 0 orphans of 0 bytes deleted, of 0 objects"]
    *lines, waits = cli("gc").out.splitlines()
    assert lines == other
    assert "stay: it was dropped too short a time ago" in waits
    assert cli("gc", "other").out.splitlines() == other
    cli("settings", "set", "history_s=0")
    would = cli("gc", "--dry-run").out
    assert "dropped table" in would
    assert "1 object of" in would
    assert "would be deleted" in would
    assert cli("gc").out == would.replace("would be deleted", "deleted")
    assert cli("gc").out.splitlines() == other


def test_orphans_are_deleted_without_spark(cli: Cli, table: str, url: str) -> None:
    """One of a dead upload; the one object of the table itself is too little for it to be few."""
    held = lakebed.open(url).table(table)
    left = f"tables/{held.id}/data/dead-job/{held.id}.parquet"
    held.storage.create(left, b"rows")
    held.set(orphan_age_s=0)
    # An orphan is strictly older than the cutoff: not of the same tick of the store's clock.
    before = held.storage.now()
    while held.storage.now() <= before:
        pass
    dry = cli("gc", table, "--dry-run").out.splitlines()
    assert dry[1] == "table readings: 1 orphan of 4 bytes would be deleted, of 2 objects"
    assert dry[2].startswith("in doubt: 1 of 2 objects are orphans")
    refused = cli("gc")
    assert refused.code == 3
    assert "table readings: 0 orphans of 0 bytes deleted, of 2 objects" in refused.out
    assert "delete anyway with force" in refused.err
    assert held.storage.get(left) == b"rows"
    assert "1 orphan of 4 bytes deleted" in cli("gc", table, "--force").out
    assert held.storage.get(left) is None
    stray = f"tables/{held.id}/data/notes.txt"
    held.storage.create(stray, b"?")
    assert stray in cli("gc", table).err
    assert f"unknown, and left alone: {stray}" in cli("gc", table, "--force").out


def test_a_table_that_cannot_be_collected_does_not_keep_the_others_from_it(
    cli: Cli, table: str, url: str, schema_file: Path
) -> None:
    assert cli("table", "create", "other", "--schema", schema_file).code == 0
    held = lakebed.open(url).table(table)
    held.storage.delete([f"tables/{held.id}/log/{1:020}.ndjson"])
    held.storage.delete([listed.name for listed in held.storage.list(f"tables/{held.id}/checkpoints")])
    ran = cli("gc", "--json")
    assert ran.code != 0
    assert [one["table"] for one in ran.lines[0]["orphans"]] == ["other"]
    assert len(ran.lines[0]["errors"]) == 1


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lakebed.UsageError, 2),
        (lakebed.ExistsError, 2),
        (lakebed.SchemaMismatchError, 3),
        (lakebed.BadKeyError, 3),
        (lakebed.DamagedError, 3),
        (lakebed.RejectedError, 3),
        (lakebed.UnsupportedFormatError, 3),
        (lakebed.NotFoundError, 4),
        (lakebed.StorageError, 5),
        (lakebed.UnsafeStoreError, 5),
        (lakebed.ContentionError, 5),
        (lakebed.UnknownOutcomeError, 6),
    ],
)
def test_each_error_has_its_exit_code(error: type[lakebed.Error], code: int) -> None:
    assert exit_code(next(code for code in Code if code.group == error.kind)("it went wrong")) == code


# -- alter ------------------------------------------------------------------------------------------------------


def test_fields_are_altered_one_after_another(cli: Cli, table: str) -> None:
    """Each says what it did and at which number; rows read as the schema has them then, and as it had them before."""
    assert (
        cli("table", "alter", table, "--add", "battery", "int8").out
        == "table readings at version 3: add battery: int8\n"
    )
    assert cli("table", "alter", table, "--widen", "battery", "int32").code == 0
    assert cli("table", "alter", table, "--rename", "place", "site").code == 0
    assert cli("table", "alter", table, "--drop", "note").code == 0
    shown = cli("table", "alter", table, "--add", "tags", '{"list": "string"}', "--json").json
    assert (shown["version"], shown["schema"]["version"]) == (7, 6)
    assert shown["schema"]["values"][-1] == {"id": 7, "name": "tags", "type": {"list": "string"}, "nullable": True}
    (row,) = cli("get", table, "Ulm", "30", "--json").lines
    assert list(row) == ["site", "sensor", "at", "reading", "battery", "tags"]
    assert (row["site"], row["battery"], row["tags"]) == ("Ulm", None, None)
    (before,) = cli("get", table, "Ulm", "30", "--json", "--at", "2").lines
    assert before["note"] == "\U0001f980"
    assert "rename place to site" in cli("history", table).out


def test_a_filter_and_an_age_off_are_set_shown_and_ended(cli: Cli, table: str) -> None:
    ran = cli("table", "alter", table, "--filter", "reading > 2")
    assert ran.out == "table readings at version 3: filter: reading > 2\n"
    ran = cli("table", "alter", table, "--age-off", "at=30d")
    assert "age-off: 30 days by at, hidden is what is before 20" in ran.out
    shown = cli("table", "show", table)
    assert "filter: reading > 2\nage-off: 30 days by at" in shown.out
    shown = cli("table", "show", table, "--json").json
    assert shown["filter"] == "reading > 2"
    assert (shown["age_off"]["field"], shown["age_off"]["age_s"]) == ("at", 30 * 86_400)
    assert cli("scan", table).out == ""
    assert cli("table", "alter", table, "--no-filter").code == 0
    assert cli("table", "alter", table, "--no-age-off").out.endswith("all rows are shown\n")
    assert cli("scan", table).out != ""
    assert cli("table", "show", table, "--json").json["age_off"] is None


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--filter", "reading >"], 2, "not a predicate"),
        (["--age-off", "at=soon"], 2, "give an age as 30d"),
        (["--age-off", "at=1d of min"], 2, "give an age as 30d"),
        (["--age-off", "sensor=1d"], 2, "unit"),
        (["--age-off", "place=1d"], 2, "timestamp, a date or an integer"),
        (["--filter", "reading > 1", "--no-filter"], 2, "exclude each other"),
        (["--drop", "place"], 3, "place is a key field"),
        (["--drop", "colour"], 3, "no field 'colour'"),
        (["--add", "note", "string"], 3, "a field 'note' already"),
        (["--widen", "reading", "string"], 3, "cannot become string"),
        (["--add", "colour", "blue"], 2, "not a type: 'blue'"),
        (["--add", "colour", "{blue}"], 2, "unknown type"),
        (["--allow-nulls", "note"], 3, "may be null already"),
        (["--rename", "note"], 2, "requires 2 arguments"),
        (["--drop", "note", "--offline"], 2, "--drop and --offline exclude each other"),
        ([], 2, "give one of --add"),
    ],
)
def test_an_alter_that_cannot_be_is_refused_with_its_reason(
    cli: Cli, table: str, words: list[str], code: int, said: str
) -> None:
    ran = cli("table", "alter", table, *words)
    assert ran.code == code
    assert said in ran.err


@pytest.mark.usefixtures("table")
def test_a_round_over_all_tables_fails_if_a_table_was_not_published(cli: Cli, url: str) -> None:
    merge = lakebed.Aggregate({"n": "sum"})
    schema = lakebed.Schema({"id": "int64"}, values={"n": "int64"})
    lake = lakebed.open(url)
    table = lake.create_table("sums", schema, merge=merge, settings={"publish": "iceberg"})
    lake.pause("sums", "compaction")
    for _ in range(2):
        table.write([{"id": 1, "n": 1}])
    ran = cli("maintain", "--all", "--in-process")
    assert (ran.code, "table sums: not published: " in ran.err) == (2, True), "what a cron job prints is not read"


def test_a_round_over_all_tables_prints_each_error_once_with_its_table(cli: Cli, table: str, url: str) -> None:
    broken = lakebed.open(url).create_table("broken", lakebed.Schema({"id": "int64"}))
    broken.write([{"id": 1}])
    broken.log.wait_for_checkpoint()
    shutil.rmtree(Path(url) / "tables" / broken.id / "log")
    ran = cli("maintain", "--all", "--in-process")
    assert ran.code == 3
    (line,) = [line for line in (ran.out + ran.err).splitlines() if "is missing" in line]
    assert line.startswith("lakebed: table broken: ")
    assert line in ran.err
