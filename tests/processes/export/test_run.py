"""Exports of real tables to real folders, their tasks run here: what a reader of the folder finds in any case."""

import io
import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Aggregate, Custom, First, Generated, KeyRange, Latest
from lakebed.errors import Code, ExistsError, StorageError, UsageError
from lakebed.model.schema import Schema
from lakebed.storage import connect
from lakebed.upkeep.export.publication import MANIFEST, SUCCESS, names_of, read_published
from lakebed.upkeep.export.run import ExportRequest, export, run_export_task
from tests.raising import raises

SCHEMA = Schema({"userId": "int64"}, {"part": "int32"}, {"at": "timestamp[us, tz=UTC]", "note": "string"})


@pytest.fixture
def table(tmp_path):
    """Two partitions, two runs: 200 rows, in any order."""
    made = lakebed.create(tmp_path / "lake").create_table("t", SCHEMA, split_points=[(100,)])
    made.write(rows(range(0, 200, 2)))
    made.write(rows(range(1, 200, 2)))
    return made


@pytest.fixture
def target(tmp_path):
    return connect(tmp_path / "out")


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
@pytest.mark.parametrize("where", [None, "part = 1 AND at IS NOT NULL"])
def test_columns_are_written_in_their_order(table, target, tmp_path, format, where):
    report = exported(table, target, tmp_path, columns=["note", "userId"], where=where, format=format)
    expected = table.scan(columns=["note", "userId"], where=where).read_all()
    assert report.rows == expected.num_rows
    manifest = read_published(target)
    assert manifest["columns"] == ["note", "userId"]
    found = [target.get(name) for name in names_of(manifest)]
    if format == "parquet":
        assert pa.concat_tables(pq.read_table(io.BytesIO(data)) for data in found).equals(expected)
    elif format == "csv":
        assert found[0].splitlines()[0] == b'"note","userId"'
    else:
        assert all(json.loads(line).keys() <= {"note", "userId"} for data in found for line in data.splitlines())


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Latest(), [3, 2]),
        (First(), [1, 2]),
        (Aggregate({"v": "sum", "w": "last"}), [4, 2]),
        (Custom(sql="SELECT k, max(v) AS v, min(w) AS w FROM rows GROUP BY k"), [3, 2]),
    ],
    ids=str,
)
def test_columns_of_merged_rows_are_those_of_whole_rows(tmp_path, target, mode, expected):
    schema = Schema({"k": "string"}, values={"v": "int64", "w": "string"})
    made = lakebed.create(tmp_path / "merged").create_table("m", schema, merge=mode)
    made.write(pa.table({"k": ["a", "b"], "v": [1, 2], "w": ["x", "y"]}))
    made.write(pa.table({"k": ["a"], "v": [3], "w": ["z"]}))
    exported(made, target, tmp_path, columns=["v"])
    (name,) = names_of(read_published(target))
    assert pq.read_table(io.BytesIO(target.get(name))).to_pydict() == {"v": expected}


def test_keys_that_are_generated_can_be_exported_alone(tmp_path, target):
    schema = Schema({"half": Generated("int64", "whole / 2")}, values={"whole": "int64", "w": "string"})
    made = lakebed.create(tmp_path / "generated").create_table("g", schema)
    made.write(pa.table({"whole": [4, 2], "w": ["x", "y"]}))
    exported(made, target, tmp_path, columns=["w", "half"])
    (name,) = names_of(read_published(target))
    assert pq.read_table(io.BytesIO(target.get(name))).to_pydict() == {"w": ["y", "x"], "half": [1, 2]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["nope"], "unknown column 'nope'"), ([], "no column is named"), (["at", "at"], "named twice"), ("at", "a list")],
)
def test_columns_that_are_none_of_the_table_are_refused_before_anything_is_written(
    table, target, tmp_path, columns, message
):
    with pytest.raises(UsageError, match=message):
        exported(table, target, tmp_path, columns=columns)
    assert not list(target.list(""))


def rows(numbers):
    notes = [None if n % 5 == 0 else "" if n % 5 == 1 else f'n,"{n}"\n' for n in numbers]
    values = {"userId": list(numbers), "part": [1] * len(numbers), "at": list(numbers), "note": notes}
    return pa.table(values, schema=SCHEMA.arrow)


def tried(table, target, tmp_path, times=1):
    """Runs each task so many times, as an engine may; the last attempt counts."""

    def execute(tasks):
        results = []
        for task in tasks:
            for _ in range(times):
                try:
                    made = run_export_task(task, table.storage, target, tmp_path)
                except lakebed.Error as error:
                    made = error
            results.append(made)
        return results

    return execute


def exported(table, target, tmp_path, *, at=None, times=1, **wanted):
    with table.pin(at) as snapshot:
        return export(table, snapshot, target, ExportRequest(**wanted), tried(table, target, tmp_path, times))


@pytest.fixture
def sensors(tmp_path):
    """Two partitions, ten files of 20 rows: file n has ten keys from 10n on, ten from 500 + 10n on, and the hour n."""
    schema = Schema({"key": "int64", "hour": "int64"}, {}, {"value": "int64"})
    made = lakebed.create(tmp_path / "sensors").create_table("s", schema, split_points=[(500, 0)])
    for n in range(10):
        keys = [begin + 10 * n + i for begin in (0, 500) for i in range(10)]
        made.write(pa.table({"key": keys, "hour": [n] * 20, "value": keys}))
    return made


@pytest.mark.parametrize(
    ("where", "read_of"),
    [
        ("value >= 0", (10, 2)),
        ("key < 25", (3, 1)),
        ("key BETWEEN 35 AND 520 AND value > 0", (10, 2)),
        ("hour = 7", (1, 2)),
        ("hour IN (1, 8) AND key > 500", (2, 1)),
        ("key IN (1, 2, 3, 25, 512) AND hour < 2", (2, 5)),
        (f"key IN ({', '.join(map(str, range(0, 80, 2)))})", (8, 1)),
        ("key = 1000", (0, 0)),
        ("hour = 7 AND key < 10", (0, 0)),
    ],
)
def test_a_predicate_reads_only_files_that_can_match(sensors, target, tmp_path, where, read_of):
    """By their keys, as a scan does, and by the bounds of the later key fields; so many files, in so many cells."""
    held = []
    run = tried(sensors, target, tmp_path)

    def execute(tasks):
        held.extend(cell for task in tasks for cell in task.cells)
        return run(tasks)

    with sensors.pin() as snapshot:
        report = export(sensors, snapshot, target, ExportRequest(where=where), execute)
    assert (len({file.id for cell in held for file in cell.files}), len(held)) == read_of
    expected = sensors.scan(where=where).read_all()
    assert report.rows == expected.num_rows
    if report.rows:
        assert read(tmp_path, target).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("mode", [lakebed.Latest(), lakebed.First(), lakebed.Aggregate({"value": "sum"})], ids=str)
@pytest.mark.parametrize("where", [None, "value < 30", "key < 7", "key < 7 AND value > 4"])
def test_an_export_has_merged_rows(target, tmp_path, mode, where):
    """A predicate over values selects merged rows: of a key whose newest row it hides there is none."""
    schema = Schema({"key": "int64"}, {}, {"value": "int64"})
    made = lakebed.create(tmp_path / "merged").create_table("s", schema, split_points=[(5,)], merge=mode)
    for n in range(4):
        keys = list(range(n, 10, n + 1))
        made.write(pa.table({"key": keys, "value": [10 * n + key for key in keys]}))
    if mode == lakebed.Latest():
        made.delete([(3,), (9,)])
    report = exported(made, target, tmp_path, where=where, partitions=2)
    expected = made.scan(where=where).read_all()
    assert report.rows == expected.num_rows
    assert read(tmp_path, target).to_pylist() == expected.to_pylist()


def names(target):
    return sorted(found.name for found in target.list(""))


def manifest(target):
    return json.loads(target.get(MANIFEST))


def read(tmp_path, target, format="parquet"):
    """What a reader of the folder finds, file after file."""
    paths = [tmp_path / "out" / name for name in names(target) if not name.startswith("_")]
    if format == "parquet":
        return pa.concat_tables([pq.read_table(path) for path in paths])
    if format == "json":
        return pa.concat_tables([pajson.read_json(path) for path in paths], promote_options="default")
    options = pacsv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parse = pacsv.ParseOptions(newlines_in_values=True)
    return pa.concat_tables([pacsv.read_csv(path, convert_options=options, parse_options=parse) for path in paths])


@pytest.mark.parametrize("partitions", [None, 2, 7])
def test_the_files_of_an_export_hold_all_rows_in_key_order(table, target, tmp_path, partitions):
    report = exported(table, target, tmp_path, partitions=partitions)
    assert read(tmp_path, target).column("userId").to_pylist() == list(range(200))
    assert (report.rows, report.files, report.version) == (200, len(names(target)) - 2, table.version)
    assert report.files == (partitions or 1)


def test_the_manifest_says_what_makes_the_same_table_again(table, target, tmp_path):
    exported(table, target, tmp_path, partitions=3)
    written = manifest(target)
    again = lakebed.create(tmp_path / "other").create_table("t", Schema.from_json(written["schema"]))
    for name, count, size_bytes, _ in written["files"]:
        part = pq.read_table(tmp_path / "out" / name)
        assert (part.num_rows, (tmp_path / "out" / name).stat().st_size) == (count, size_bytes)
        again.write(part)
    assert again.schema == table.schema
    assert again.scan().read_all() == table.scan().read_all()


@pytest.mark.parametrize("format", ["csv", "json"])
def test_text_formats_hold_the_same_values(table, target, tmp_path, format):
    """A null and an empty text are two things."""
    exported(table, target, tmp_path, format=format, partitions=2)
    found, whole = read(tmp_path, target, format), table.scan().read_all()
    assert found.column("userId").to_pylist() == whole.column("userId").to_pylist()
    assert found.column("note").to_pylist() == whole.column("note").to_pylist()


@pytest.mark.parametrize("format", ["csv", "json"])
def test_text_formats_keep_times_of_zones_that_were_off_by_seconds(tmp_path, target, format):
    """Berlin was 53 minutes and 28 seconds ahead of UTC until 1893."""
    kind = pa.timestamp("s", "Europe/Berlin")
    lake = lakebed.create(f"file://{tmp_path}/zones")
    schema = Schema({"k": "int64"}, values={"at": kind} | ({"all": pa.list_(kind)} if format == "json" else {}))
    table, copy = (lake.create_table(name, schema) for name in ("times", "copy"))
    at = pa.array([-62_135_596_800, -2_840_140_800, 0], pa.int64()).cast(kind)
    data = {"k": range(3), "at": at} | ({"all": pa.ListArray.from_arrays([0, 1, 2, 3], at)} if format == "json" else {})
    table.write(pa.table(data))
    exported(table, target, tmp_path, format=format)
    copy.write(tmp_path / "out")
    assert copy.to_arrow().equals(table.to_arrow())


def test_a_range_and_a_predicate_choose_the_rows(table, target, tmp_path):
    """The name of a column is written as the schema has it."""
    wanted = {"ranges": (KeyRange((50,), (150,)),), "where": "userId % 10 = 5 AND note IS NULL"}
    report = exported(table, target, tmp_path, **wanted)
    assert read(tmp_path, target).column("userId").to_pylist() == list(range(55, 150, 10))
    assert (report.rows, manifest(target)["where"]) == (10, wanted["where"])


def test_an_export_of_no_rows_is_a_manifest_that_says_so(table, target, tmp_path):
    assert exported(table, target, tmp_path, where="userId < 0").files == 0
    assert names(target) == [SUCCESS, MANIFEST]
    assert manifest(target)["rows"] == 0


@pytest.mark.parametrize(
    ("where", "days"),
    [
        ("DATE '2026-01-05' = day", [5]),
        ("DATE '2026-01-05' = day AND hour <= 7", [5]),
        ("'2026-01-05' IN (day)", [5]),
        ("'2026-01-05' BETWEEN day AND day", [5]),
        ("day <= '2026-01-05' AND '2026-01-05' > day", [1, 2, 3, 4]),
        ("NOT ('2026-01-05' <> day)", [5]),
        ("DATE '2026-01-05' = day AND day IN ('2026-01-04', '2026-01-05')", [5]),
    ],
)
def test_a_constant_may_stand_before_a_column(tmp_path, target, where, days):
    """The engine joined such a condition wrongly with the bounds of the key that it implies: no row was exported."""
    schema = lakebed.Schema({"day": pa.date32(), "hour": pa.int8()}, {}, {})
    table = lakebed.create(tmp_path / "days").create_table("days", schema)
    table.write(pa.table({"day": [date(2026, 1, n) for n in range(1, 10)], "hour": pa.array([7] * 9, pa.int8())}))
    exported(table, target, tmp_path, where=where)
    assert [one.day for one in read(tmp_path, target).column("day").to_pylist()] == days
    assert [one.day for one in table.scan(where=where).read_all().column("day").to_pylist()] == days


def test_an_older_number_is_exported_as_it_was(table, target, tmp_path):
    before = table.version
    table.write(rows([7_000]))
    assert exported(table, target, tmp_path, at=before).rows == 200


@pytest.mark.parametrize(
    "where",
    ["userid = 1", "userId", "userId >", "count(userId) > 1", "userId > (SELECT 1)", "true; drop table t", ""],
)
def test_a_predicate_that_means_nothing_is_refused_before_anything_is_written(table, target, tmp_path, where):
    with pytest.raises(UsageError, match=r"not a predicate over a row.*columns are userId, part, at, note"):
        exported(table, target, tmp_path, where=where)
    assert names(target) == []


@pytest.mark.parametrize(
    ("wanted", "says"), [({"format": "orc"}, "unknown export format"), ({"partitions": 0}, "1 or more")]
)
def test_what_cannot_be_is_refused(table, target, tmp_path, wanted, says):
    with pytest.raises(UsageError, match=says):
        exported(table, target, tmp_path, **wanted)


def test_csv_has_no_form_for_nested_values(tmp_path, target):
    schema = Schema({"k": "int64"}, values={"list": pa.list_(pa.int64())})
    table = lakebed.create(tmp_path / "lake").create_table("t", schema)
    with pytest.raises(UsageError, match="CSV cannot represent field list"):
        exported(table, target, tmp_path, format="csv")


def test_a_place_that_is_not_empty_is_refused(table, target, tmp_path):
    exported(table, target, tmp_path)
    before = names(target)
    with pytest.raises(ExistsError, match="an export that was finished"):
        exported(table, target, tmp_path)
    assert names(target) == before


def test_what_attempts_wrote_in_vain_is_gone_before_success(table, target, tmp_path):
    report = exported(table, target, tmp_path, times=3, partitions=2)
    assert (report.files, len(names(target))) == (2, 4)
    assert read(tmp_path, target).num_rows == 200


DYING = """
import os, sys
from lakebed.storage import connect, local
local.LocalStorage._sync = lambda *_: os._exit(9)
connect(sys.argv[1]).send("part-00000-0192-x.parquet", sys.argv[2])
"""


def test_what_a_process_was_sending_when_it_was_killed_is_gone_after_the_next_export(table, target, tmp_path):
    """It has no name yet, so the folder looks empty."""
    (tmp_path / "rows").write_bytes(b"some")
    died = subprocess.run([sys.executable, "-c", DYING, str(tmp_path / "out"), str(tmp_path / "rows")], check=False)
    assert died.returncode == 9
    assert [one.size_bytes for one in target.temporaries("")] == [4]
    exported(table, target, tmp_path)
    assert not list(target.temporaries(""))


def test_an_attempt_that_ends_after_the_export_takes_its_file_away(table, target, tmp_path):
    """It was given up, and goes on all the same."""
    late = []

    def execute(tasks):
        late.extend(tasks)
        return tried(table, target, tmp_path)(tasks)

    with table.pin() as snapshot:
        export(table, snapshot, target, ExportRequest(), execute)
    before = names(target)
    with pytest.raises(StorageError, match="finished without"):
        run_export_task(late[0], table.storage, target, tmp_path)
    assert names(target) == before


def test_a_failed_task_leaves_nothing_at_the_place(table, target, tmp_path):
    """The other tasks' files go; an input is named that is not what was written."""
    damaged = Path(table.files().column("url")[0].as_py().removeprefix("file://"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.chmod(0o644)
    damaged.write_bytes(data)
    with raises(Code.OBJECT_DAMAGED):
        exported(table, target, tmp_path, partitions=4)
    assert names(target) == []


@pytest.mark.parametrize("step", ["manifest", "list", "success"])
def test_a_driver_that_dies_leaves_an_export_that_is_seen_to_be_incomplete(table, target, tmp_path, step):
    """At any step, there is no _SUCCESS; and another export there reports it."""
    broken = Dying(target, step)
    with pytest.raises(SystemExit):
        exported(table, broken, tmp_path)
    assert SUCCESS not in names(target)
    with pytest.raises(ExistsError, match="did not finish"):
        exported(table, target, tmp_path)


class Dying:
    """A store whose process ends at one step, with nothing done after it."""

    def __init__(self, inner, step):
        self._inner, self._step, self._lists, self._dead = inner, step, 0, False

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create(self, name, data):
        if (name, self._step) in ((MANIFEST, "manifest"), (SUCCESS, "success")):
            self._dead = True
            raise SystemExit
        return self._inner.create(name, data)

    def list(self, prefix):
        self._lists += 1
        if self._dead or (self._step == "list" and self._lists > 1):
            raise SystemExit
        return self._inner.list(prefix)
