"""``lakebed migrate`` on small tables of other systems, and each command of its page."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli import main
from lakebed.upkeep.migration.foreign_table import SourceLocation
from lakebed.upkeep.migration.run import SYSTEMS, Selection
from tests import pages
from tests.interop import foreign_tables as foreign
from tests.soaked import each_once

deltalake = pytest.importorskip("deltalake")
Config = pytest.importorskip("pyiceberg.utils.config").Config


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs one command line in an empty folder with an instance; returns its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_INSTANCE", str(tmp_path / "lake"))
    lakebed.create(str(tmp_path / "lake"))

    def cli(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out + err

    return cli


def ids(tmp_path, table, column="id"):
    return lakebed.open(str(tmp_path / "lake")).table(table).scan().read_all()[column].to_pylist()


def write_all(folder, monkeypatch):
    """The sources that the page names."""
    pq.write_table(foreign.ROWS, folder / "orders.parquet")
    pq.write_table(foreign.ROWS.select(["name", "day", "id"]), folder / "more.parquet")
    foreign.write_hive(folder / "sales")
    shutil.rmtree(folder / "sales" / "day=__HIVE_DEFAULT_PARTITION__")
    foreign.write_delta(folder / "delta" / "events")
    uri = f"sqlite:///{folder}/catalog.db"
    foreign.write_iceberg(folder / "iceberg" / "trips", uri)
    # PyIceberg has read its configuration when it was imported.
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__URI", uri)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    foreign.write_sleeper(folder / "bucket" / "readings-table-id")
    foreign.write_icedb(folder / "icedb" / "clicks")


def test_every_command_of_the_page_does_what_the_page_says(run, tmp_path, monkeypatch):
    write_all(tmp_path, monkeypatch)
    commands = [words for block in pages.blocks("docs/migrate.md") for words in pages.command_lines(block)]
    # The one with --spark is run by tests/spark/test_migrate.py, as a command and for each system.
    commands = [words for words in commands if "--spark" not in words]
    assert len(commands) == 9
    for words in commands:
        code, said = run(*words)
        assert code == 0, said
    live = [0, 1, 2, 4, 5, 6, 8, 9]
    assert ids(tmp_path, "orders") == sorted([*range(10), *range(10)])
    assert ids(tmp_path, "sales") == [*range(10)]
    assert ids(tmp_path, "events") == live
    assert ids(tmp_path, "events_before") == [*range(10)]
    assert ids(tmp_path, "trips") == ids(tmp_path, "trips_again") == live
    assert ids(tmp_path, "readings", "note") == ["low"] * 3 + ["wide"] * 3
    clicks = lakebed.open(str(tmp_path / "lake")).table("clicks").to_arrow()
    assert clicks["user"].to_pylist() == [*"abcde"]
    assert clicks["d"].to_pylist() == [1, 1, 1, 2, 2]
    # A second run of each with a job id adds nothing, even when the source is gone.
    shutil.rmtree(tmp_path / "delta")
    for words in commands:
        if "--job-id" in words:
            assert "nothing was added" in run(*words)[1]


def test_the_report_says_what_was_read_of_which_version(run, tmp_path):
    foreign.write_delta(tmp_path / "delta")
    code, said = run("--json", "migrate", "t", "delta", "--from", "delta", "--key", "id")
    assert code == 0
    assert json.loads(said.splitlines()[0]) == {
        "table": "t",
        "version": 2,
        "source": "delta",
        "source_version": "2",
        "rows_read": 8,
        "rows_expected": 8,
        "repeated": False,
        "since_version": None,
    }


KEYS = {"delta": "id", "iceberg": "id", "hive": "id", "sleeper": "device", "icedb": "user"}


def write_one(system, folder):
    """A small table of a system, and what names it."""
    if system == "iceberg":
        return foreign.write_iceberg(folder / "source", f"sqlite:///{folder}/catalog.db")
    {
        "delta": foreign.write_delta,
        "hive": foreign.write_hive,
        "sleeper": foreign.write_sleeper,
        "icedb": foreign.write_icedb,
    }[system](folder / "source")
    return folder / "source"


@each_once(system=SYSTEMS, first=[(), ("--job-id", "first")])
def test_a_version_is_added_once_however_it_is_spelled_with_job_ids_and_without(run, tmp_path, system, first):
    source = write_one(system, tmp_path)
    words = ("--from", system, "--key", KEYS[system])
    assert run("migrate", "t", source, *words, *first)[0] == 0
    table = lakebed.open(str(tmp_path / "lake")).table("t")
    rows, version = table.count().rows, table.version
    assert rows > 0
    assert table.outcome("first") == (version if first else None)
    for again, job in (
        (source, ()),
        (source.relative_to(tmp_path), ("--job-id", "second")),
        (f"{source.parent}/./{source.name}", ("--job-id", "first")),
    ):
        code, said = run("migrate", "t", again, *words, *job)
        assert (code, f"migrated before, at version {version}; nothing was added" in said) == (0, True), said
    opened = SYSTEMS[system](SourceLocation(str(source), table.storage))
    with lakebed.Pipeline(lakebed.open(str(tmp_path / "lake")), launcher="this-thread") as pipeline:
        assert pipeline.migrate("t", opened, Selection({})).repeated
        assert pipeline.migrate("t", opened, Selection({}), job_id="third").repeated
    assert table.count().rows == rows
    assert "--again needs --job-id" in run("migrate", "t", source, *words, "--again")[1]
    for _ in range(2):
        assert run("migrate", "t", source, *words, "--again", "--job-id", "once more")[0] == 0
        assert table.count().rows == 2 * rows


def append_to_iceberg(folder, rows):
    """Append to the table of :func:`foreign.write_iceberg`; returns its metadata file."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    table = catalog.load_table("shop.trips")
    table.append(rows)
    return table.metadata_location.removeprefix("file://")


NEW = pa.table({"id": pa.array([20, 21], pa.int64()), "name": ["n20", "n21"], "day": ["wed", "mon"]})


@pytest.mark.parametrize(
    ("system", "in_process", "merge"),
    [
        ("delta", False, ()),
        ("delta", True, ("--merge", "latest")),
        ("iceberg", False, ("--merge", "first")),
        ("iceberg", True, ()),
    ],
)
def test_of_a_later_version_only_the_new_rows_are_added(run, tmp_path, system, in_process, merge):
    """Rows that were written here since stay, and so do those that were removed here."""
    source = write_one(system, tmp_path)
    (tmp_path / "schema.json").write_text(
        json.dumps({"row_key": {"id": "int64"}, "values": {"name": "string", "day": "string"}})
    )
    assert run("table", "create", "t", "--schema", "schema.json", *merge)[0] == 0
    words = ("--from", system, *["--in-process"] * in_process)
    assert run("migrate", "t", source, *words)[0] == 0
    table = lakebed.open(str(tmp_path / "lake")).table("t")
    table.remove(lakebed.KeyRange(0, 2))
    before = table.count().rows
    if system == "delta":
        deltalake.write_deltalake(source, NEW, mode="append")
    else:
        source = append_to_iceberg(tmp_path, NEW)
    code, said = run("--json", "migrate", "t", source, *words, "--job-id", "the rest")
    report = json.loads(said.splitlines()[0])
    assert (code, report["rows_read"], report["rows_expected"]) == (0, 2, 2), said
    assert report["since_version"] not in (None, report["source_version"])
    assert ids(tmp_path, "t")[-2:] == [20, 21]
    assert table.count().rows == before + 2
    assert "nothing was added" in run("migrate", "t", source, *words)[1]


def _delete_a_row(source):
    deltalake.DeltaTable(source).delete("id = 4")


def _hide_a_row(source):
    foreign.hide_in_delta(source, "mon", [0])


def _optimize(source):
    deltalake.write_deltalake(source, NEW, mode="append")
    deltalake.DeltaTable(source).optimize.compact()


def _forget_the_old_version(source):
    deltalake.write_deltalake(source, NEW, mode="append")
    deltalake.DeltaTable(source).create_checkpoint()
    for number in range(3):
        (source / "_delta_log" / f"{number:020}.json").unlink()


@pytest.mark.parametrize("change", [_delete_a_row, _hide_a_row, _optimize, _forget_the_old_version])
@pytest.mark.parametrize(
    ("merge", "means"),
    [
        ((), "adds rows that are there a second time"),
        (("--merge", "latest"), "replaces rows with equal keys"),
        (("--merge", "first"), "adds those with new keys"),
    ],
    ids=["all", "latest", "first"],
)
def test_a_version_of_which_more_than_new_rows_differ_is_refused(run, tmp_path, change, merge, means):
    foreign.write_delta(tmp_path / "d")
    (tmp_path / "schema.json").write_text(
        json.dumps({"row_key": {"id": "int64"}, "values": {"name": "string", "day": "string"}})
    )
    assert run("table", "create", "t", "--schema", "schema.json", *merge)[0] == 0
    words = ("migrate", "t", "d", "--from", "delta")
    assert run(*words)[0] == 0
    before = ids(tmp_path, "t")
    change(tmp_path / "d")
    code, said = run(*words)
    assert (code, "version 2 of d was migrated at version" in said, "--again" in said) == (2, True, True), said
    assert means in said
    assert ids(tmp_path, "t") == before
    assert run(*words, "--again", "--job-id", "all of it")[0] == 0
    assert set(ids(tmp_path, "t")) >= set(before)


def test_a_folder_without_versions_is_known_by_its_files(run, tmp_path):
    foreign.write_hive(tmp_path / "sales")
    words = ("migrate", "t", "sales", "--from", "hive", "--key", "id")
    assert run(*words)[0] == 0
    pq.write_table(foreign.ROWS.select(["id", "name"]), tmp_path / "sales" / "day=wed.parquet")
    code, said = run(*words)
    assert (code, "sales was migrated" in said, "its files have changed since" in said) == (2, True, True), said
    assert len(ids(tmp_path, "t")) == 11


def test_equality_deletes_are_refused(run, tmp_path):
    file = foreign.write_iceberg(tmp_path / "trips", f"sqlite:///{tmp_path}/catalog.db", deletes="equality")
    code, said = run("migrate", "t", file, "--from", "iceberg", "--key", "id")
    assert code == 2
    assert "equality deletes" in said.lower()


def test_a_folder_of_iceberg_without_a_hint_is_refused_with_the_file_to_give(run, tmp_path):
    file = foreign.write_iceberg(tmp_path / "trips", f"sqlite:///{tmp_path}/catalog.db")
    code, said = run("migrate", "t", file.parents[1], "--from", "iceberg", "--key", "id")
    assert (code, str(file) in said) == (2, True)
    (file.parent / "version-hint.text").write_text("1", "utf-8")
    assert run("migrate", "t", file.parents[1], "--from", "iceberg", "--key", "id")[0] == 0


def test_fewer_rows_than_the_source_says_are_not_added(run, tmp_path):
    foreign.write_sleeper(tmp_path / "t")
    # The file of the lower partition lost a row.
    path = tmp_path / "t" / "data" / "partition_L" / "low.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    code, said = run("migrate", "r", "t", "--from", "sleeper", "--key", "device")
    assert (code, "gave 5 rows, and its metadata says 6" in said) == (3, True)
    assert lakebed.open(str(tmp_path / "lake")).tables() == []


def test_rows_of_an_older_snapshot_and_approximate_counts(run, tmp_path):
    foreign.write_sleeper(tmp_path / "t", approximate=True)
    assert run("migrate", "r", "t", "--from", "sleeper", "--key", "device", "--version", "7")[0] == 0
    assert ids(tmp_path, "r", "device") == [*"abxyz"]
    code, said = run("migrate", "s", "t", "--from", "sleeper", "--key", "device")
    assert (code, "the source has no exact count" in said) == (0, True)
    code, said = run("migrate", "s", "t", "--from", "sleeper", "--key", "device", "--version", "8")
    assert (code, "there are 7, 12" in said) == (4, True)


def test_a_file_of_another_size_than_the_log_says_is_refused(run, tmp_path):
    foreign.write_icedb(tmp_path / "t")
    path = tmp_path / "t" / "_data" / "d=2" / "c.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    code, said = run("migrate", "c", "t", "--from", "icedb", "--key", "user")
    assert (code, "c.parquet has" in said) == (3, True)
    path.unlink()
    assert "c.parquet has no bytes" in run("migrate", "c", "t", "--from", "icedb", "--key", "user")[1]


def test_columns_are_renamed_cast_and_left_out(run, tmp_path):
    foreign.write_hive(tmp_path / "sales")
    schema = {"row_key": {"number": "int32"}, "values": {"day": "string"}}
    (tmp_path / "schema.json").write_text(json.dumps(schema), "utf-8")
    assert run("table", "create", "t", "--schema", "schema.json")[0] == 0
    words = ("migrate", "t", "sales", "--from", "hive", "--column", "number=id")
    assert "extra column name" in run(*words)[1]
    # As in a write, int64 becomes int32 without being asked for, where every value fits.
    code, said = run(*words, "--ignore", "name")
    assert code == 0, said
    rows = lakebed.open(str(tmp_path / "lake")).table("t").to_arrow()
    assert rows["number"].to_pylist() == [*range(11)]
    assert rows["day"].to_pylist() == ["mon"] * 5 + ["tue"] * 5 + [None]
    assert rows.schema.field("number").type == pa.int32()


def test_a_value_that_a_field_cannot_keep_and_a_text_are_refused_by_name(run, tmp_path):
    rows = pa.table({"id": [1, 2**40], "size": ["3", "many"]})
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "a.parquet")
    words = ("migrate", "t", "in", "--from", "hive")
    for fields, more, expected in (
        ({"row_key": {"id": "int32"}, "values": {"size": "string"}}, (), "1099511627776"),
        ({"row_key": {"id": "int64"}, "values": {"size": "int64"}}, (), "--cast size"),
        ({"row_key": {"id": "int64"}, "values": {"size": "int64"}}, ("--cast", "size"), "'many'"),
    ):
        (tmp_path / "schema.json").write_text(json.dumps(fields), "utf-8")
        assert run("table", "create", "t", "--schema", "schema.json")[0] == 0
        code, said = run(*words, *more)
        assert (code, expected in said) == (3, True), said
        assert ids(tmp_path, "t") == []
        run("table", "drop", "t", "--yes")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("delta", "--from", "delta", "--key", "id", "--master", "local"), "add --spark"),
        (("nothing", "--from", "hive", "--key", "id"), "no files below nothing"),
        (("delta", "--from", "hive"), "no table named 't'"),
        (("delta", "--from", "delta", "--sort-key", "id"), "--sort-key needs --key"),
        (("delta", "--from", "delta", "--key", "nope"), "nope"),
        (("delta", "--from", "delta", "--key", "id", "--version", "x"), "--version x is not a number"),
        (("delta", "--from", "delta", "--key", "id", "--version", "99"), "99"),
        (("delta", "--from", "delta", "--key", "id", "--catalog", "c"), "--catalog goes with --from iceberg"),
        (("nothing", "--from", "delta", "--key", "id"), "no table of Delta Lake at nothing"),
        (("parquet", "--from", "delta", "--key", "id"), "is read with --from hive"),
        (("delta", "--from", "delta", "--key", "id", "--version", "3"), "delta has no version 3; there are 0 to 0"),
        (("https://lake.example/t", "--from", "delta", "--key", "id"), "curl -fLO https://lake.example/t"),
        (("delta", "--from", "iceberg", "--key", "id"), "no table of Iceberg at delta"),
        (("delta", "--from", "icedb", "--key", "id"), "no files below delta/_log"),
        (("delta", "--from", "sleeper", "--key", "id"), "no files below delta/statestore/snapshots"),
    ],
)
def test_mistakes_are_reported(run, tmp_path, words, said):
    deltalake.write_deltalake(tmp_path / "delta", foreign.ROWS)
    (tmp_path / "parquet").mkdir()
    pq.write_table(foreign.ROWS, tmp_path / "parquet" / "a.parquet")
    code, text = run("migrate", "t", *words)
    assert code in (2, 3, 4)
    assert said in text
    assert len(text.splitlines()) == 1
    assert lakebed.open(str(tmp_path / "lake")).tables() == []


def _lose_file(delta):
    next(delta.glob("*.parquet")).unlink()


def _damage_file(delta):
    next(delta.glob("*.parquet")).write_bytes(b"x" * 200)


def _damage_log(delta):
    (delta / "_delta_log" / f"{1:020}.json").write_text("{oops")


def _lose_entry(delta):
    (delta / "_delta_log" / f"{1:020}.json").unlink()


def _need_feature(delta):
    path = delta / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    features = {"readerFeatures": ["futureThing"], "writerFeatures": ["futureThing"]}
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    path.write_text("\n".join(map(json.dumps, actions)), "utf-8")


@pytest.mark.parametrize(
    ("harm", "code", "said"),
    [
        (_lose_file, "source_damaged", "migrate its latest version"),
        (_damage_file, "source_damaged", "restore them"),
        (_damage_log, "source_damaged", "the log of delta cannot be read"),
        (_lose_entry, "source_damaged", "the log of delta cannot be read"),
        (_need_feature, "source_unsupported", "lakebed import --format delta"),
    ],
)
def test_errors_of_the_library_of_delta_have_codes_and_remedies(run, tmp_path, harm, code, said):
    for mode in ("error", "append", "append"):
        deltalake.write_deltalake(tmp_path / "delta", foreign.ROWS, mode=mode)
    harm(tmp_path / "delta")
    text = run("--json", "migrate", "t", "delta", "--from", "delta", "--key", "id")[1]
    error = json.loads(text.splitlines()[-1])["error"]
    assert error["code"] == code, text
    assert said in error["message"]
    assert lakebed.open(str(tmp_path / "lake")).tables() == []


def test_tasks_refuse_a_delta_table_with_renamed_columns_which_one_process_reads(run, tmp_path):
    """The log says that the column n of the table is the column name of the files."""
    deltalake.write_deltalake(tmp_path / "delta", foreign.ROWS)
    path = tmp_path / "delta" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
            schema = json.loads(action["metaData"]["schemaString"])
            for number, column in enumerate(schema["fields"], 1):
                physical = {"id": number, "physicalName": column["name"]}
                column["metadata"] = {f"delta.columnMapping.{name}": value for name, value in physical.items()}
                column["name"] = {"name": "n"}.get(column["name"], column["name"])
            action["metaData"]["schemaString"] = json.dumps(schema)
    path.write_text("\n".join(map(json.dumps, actions)), "utf-8")
    code, said = run("migrate", "t", "delta", "--from", "delta", "--key", "id")
    assert code == 0, said
    assert ids(tmp_path, "t", "n") == [f"n{i}" for i in range(10)]
    source = SYSTEMS["delta"](SourceLocation("delta", lakebed.open(str(tmp_path / "lake")).storage))
    with pytest.raises(
        lakebed.UsageError,
        match="the feature columnMapping, which tasks cannot read: leave out --spark",
    ):
        source.parts()
