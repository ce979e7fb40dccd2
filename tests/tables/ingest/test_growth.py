"""Rows with columns that the table lacks: fields are added with them, in one version, or nothing is."""

import contextlib
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import (
    AddField,
    DropField,
    RejectedError,
    RenameField,
    Schema,
    SchemaMismatchError,
    UsageError,
    WidenField,
    clock,
)
from lakebed.errors import Code
from lakebed.model.types import parse
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from tests.raising import raises
from tests.tables.ingest.cases import ingested
from tests.tables.ingest.columns import fields, put, read, rows
from tests.tables.retention.cases import Killed, Mortal, letters, made, objects, on
from tests.tables.test_alter import merge, reading


def growing(*texts, **changes):
    return made(*texts, schema_growth="add", **changes)


def nothing_is_left_over(table):
    """Small files have no summaries."""
    return len(objects(table)) == len(on(table).state().files)


def test_unknown_columns_become_nullable_fields_in_the_version_of_their_rows():
    table = growing("a")
    before = table.version
    version = table.write(rows("b", x=[1], y=["text"]))
    assert version == before + 1
    assert fields(table) == ["v: int64", "x: int64", "y: string"]
    assert read(table) == ["k=a v=0", "k=b x=1 y=text"]
    assert table.at(version=before).schema.names == ("k", "v")
    history = [(row.version, row.type) for row in table.history_rows(2)]
    assert history == [(version, "add_files"), (version, "alter_schema")]
    table.write(rows("c", x=[2]))
    assert len(table.state().schemas) == 2
    assert table.get("c").to_pylist() == [{"k": "c", "v": None, "x": 2, "y": None}]


def test_by_default_unknown_columns_are_refused():
    table = made("a")
    with pytest.raises(SchemaMismatchError, match=r"extra column x; the table has k, v"):
        table.write(rows("b", x=[1]))
    table.set(schema_growth="add")
    table.write(rows("b", x=[1]))
    table.set(schema_growth="refuse")
    with pytest.raises(SchemaMismatchError, match="extra column y"):
        table.write(rows("b", y=[1]))
    with pytest.raises(UsageError, match="schema_growth must be one of refuse, add"):
        table.set(schema_growth="maybe")


def test_the_setting_may_be_the_default_of_the_instance():
    instance = lakebed.create(f"memory://{clock.random_token()}")
    instance.set(schema_growth="add")
    table = instance.create_table("t", Schema({"k": "string"}))
    table.write(rows("a", x=[1]))
    assert fields(table) == ["x: int64"]


def test_a_conflicting_type_is_refused_with_both_types_and_nothing_is_added():
    table = growing("a")
    table.write(rows("b", x=pa.array([1], pa.int32()), s=[{"m": 1}]))
    before = table.version
    for column, says in [
        (pa.array([2**40], pa.int64()), "column x is int64 and holds a value that int32 cannot keep"),
        (pa.array(["text"]), "column x is string; the table has int32"),
    ]:
        with pytest.raises(SchemaMismatchError, match=says):
            table.write(rows("c", x=column, other=[1]))
    with pytest.raises(SchemaMismatchError, match=r"column s is struct<m: int64, n: int64>; the table has struct<m"):
        table.write(rows("c", s=[{"m": 1, "n": 2}]))
    assert on(table).state().version == before
    table.write(rows("c", x=pa.array([3], pa.int8())))
    assert read(table)[-1] == "k=c x=3"


WIDEST = [
    ("int64", "double", "double"),
    ("int8", "uint8", "int16"),
    ("float", "int64", "double"),
    ("decimal128(5, 2)", "decimal128(6, 4)", "decimal128(7, 4)"),
    ("timestamp[ms]", "timestamp[ns]", "timestamp[ns]"),
]


@pytest.mark.parametrize(("first", "second", "kind"), WIDEST)
def test_a_new_column_of_several_types_is_a_field_of_the_widest(tmp_path, first, second, kind):
    for one, other in ((first, second), (second, first)):
        table = growing()
        for number, name in enumerate((one, other)):
            column = pa.array([str(number)] if "decimal" in name else [number]).cast(parse(name))
            pq.write_table(rows(str(number), x=column), tmp_path / f"{number}.parquet")
        table.write(str(tmp_path))
        assert fields(table) == ["v: int64", f"x: {kind}"]
        assert table.count().rows == 2


def test_new_columns_of_text_files_are_of_the_widest_type_too(tmp_path):
    for suffix, lines in (
        (".csv", ("k,x\na,1\n", "k,x\nb,1.5\n")),
        (".json", ('{"k":"a","x":1}', '{"k":"b","x":1.5}')),
    ):
        table, folder = growing(), tmp_path / suffix
        folder.mkdir()
        for number, text in enumerate(lines):
            (folder / f"{number}{suffix}").write_text(text)
        table.write(str(folder))
        assert fields(table) == ["v: int64", "x: double"]
        assert read(table) == ["k=a x=1.0", "k=b x=1.5"]


def test_a_new_column_of_text_and_numbers_is_refused(tmp_path):
    table = growing()
    for number, column in enumerate([pa.array([1]), pa.array(["x"]), pa.array([b"x"])]):
        pq.write_table(rows(str(number), x=column), tmp_path / f"{number}.parquet")
    for pair in ("01", "12", "02"):
        with pytest.raises(SchemaMismatchError, match="one field cannot hold both"):
            table.write([tmp_path / f"{number}.parquet" for number in pair])
    assert fields(table) == ["v: int64"]


def test_what_no_field_can_be_is_refused_with_the_name_of_the_column():
    table = growing()
    for column, reason in [
        (pa.array([None], pa.list_(pa.null())), "column x cannot be list<item: null>"),
        (pa.array([None], pa.month_day_nano_interval()), "column x cannot be month_day_nano_interval"),
    ]:
        with pytest.raises(SchemaMismatchError, match=f"no field can be added for column 'x': {reason}"):
            table.write(rows("a", x=column))
    with pytest.raises(SchemaMismatchError, match=r"no field can be added for column 'x.n'"):
        table.write(pa.table({"k": ["a"], "x\n": [1]}))
    with pytest.raises(UsageError, match="duplicate column x"):
        table.write(pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([1])], names=["k", "x", "x"]))
    assert nothing_is_left_over(table)
    assert fields(table) == ["v: int64"]


def test_nulls_without_a_type_and_columns_without_rows_add_nothing():
    table = growing()
    table.write(rows("a", x=pa.nulls(1)))
    before = table.version
    table.write(rows("", x=pa.array([], pa.int64())))
    assert table.version == before
    table.write(rows("", x=pa.array([], pa.int64())), commit_id="empty")
    assert fields(table) == ["v: int64"]
    table.write(rows("b", x=pa.nulls(1, pa.int64())))
    assert fields(table) == ["v: int64", "x: int64"]


def test_other_layouts_are_kept_in_the_canonical_one():
    table = growing()
    table.write(rows("a", x=pa.array(["t"]).dictionary_encode(), y=pa.array([[1]], pa.large_list(pa.int8()))))
    assert fields(table) == ["v: int64", "x: string", "y: list<item: int8>"]
    assert read(table) == ["k=a x=t y=[1]"]


# -- races ------------------------------------------------------------------------------------------------------


def overtaken(table, happening, data, **named):
    """A write before whose entry something else happens to the table; returns the version."""
    storage = Meanwhile(table.storage, "create", "*/log/*", happening)
    slow = on(table, storage)
    slow.state()
    return slow.write(data, **named)


def test_two_writers_of_one_new_column_make_one_field():
    table = growing()
    overtaken(table, lambda: on(table).write(rows("a", y=["t"], x=[1])), rows("b", x=[2], z=[True]))
    assert fields(table) == ["v: int64", "y: string", "x: int64", "z: bool"]
    assert read(table) == ["k=a y=t x=1", "k=b x=2 z=True"]
    assert on(table).verify(files=True, deep=True).sound


def test_files_that_lack_columns_of_their_version_are_merged_with_others():
    """The file of the loser is of the newest version, and has neither ``y`` nor ``v``."""
    table = growing()
    changes = AddField("w", "int8"), DropField("v")
    meanwhile = [lambda: on(table).alter(*changes), lambda: on(table).write(rows("bd", y=["t", "u"], x=[1, 2]))]
    overtaken(table, lambda: [change() for change in meanwhile], rows("ace", v=[7, 8, 9], x=[3, 4, 5], z=[True] * 3))
    expected = ["k=a x=3 z=True", "k=b y=t x=1", "k=c x=4 z=True", "k=d y=u x=2", "k=e x=5 z=True"]
    fresh = on(table)
    assert fields(fresh) == ["w: int8", "y: string", "x: int64", "z: bool"]
    assert [file.schema_version for file in fresh.state().files_of(1)] == [3, 4]
    for way in ("narrow", "wide"):
        with reading(way, fresh):
            assert read(fresh) == expected
            values = fresh.scan(columns=["w", "z"]).read_all()
            assert values.column("z").to_pylist() == [True, None, True, None, True]
    merge(fresh)
    assert [file.schema_version for file in on(table).state().files_of(1)] == [4]
    assert read(table) == expected
    assert on(table).verify(files=True, deep=True).sound


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [(pa.int64(), pa.int32(), "int64"), (pa.int16(), pa.uint8(), "int16"), (pa.float64(), pa.float32(), "double")],
)
def test_the_loser_with_a_narrower_column_fits_it_to_the_field_that_won(first, second, kind):
    table = growing()
    overtaken(table, lambda: on(table).write(rows("a", x=pa.array([1], first))), rows("b", x=pa.array([2], second)))
    assert fields(table) == ["v: int64", f"x: {kind}"]
    values = on(table).scan().read_all().column("x")
    assert values.to_pylist() == [1, 2]
    assert nothing_is_left_over(table)


def test_the_loser_with_a_wider_column_adds_nothing():
    table = growing()
    first = rows("a", x=pa.array([1], pa.int32()))
    with pytest.raises(SchemaMismatchError, match="column x is int64 and holds a value that int32 cannot keep"):
        overtaken(table, lambda: on(table).write(first), rows("b", x=[2**40], y=[2]))
    assert fields(table) == ["v: int64", "x: int32"]
    assert letters(on(table)) == "a"
    assert nothing_is_left_over(table)


@pytest.mark.parametrize(
    ("changes", "after", "row"),
    [
        ((AddField("x", "int64"),), ["v: int64", "x: int64"], "k=b v=7 x=2"),
        ((AddField("w", "int64"), DropField("v")), ["w: int64", "x: int64"], "k=b x=2"),
        ((RenameField("v", "w"),), ["w: int64", "x: int64"], "k=b w=7 x=2"),
        ((RenameField("v", "w"), AddField("v", "int8")), ["w: int64", "v: int8", "x: int64"], "k=b w=7 x=2"),
    ],
)
def test_a_schema_that_is_altered_meanwhile_gets_the_rows_all_the_same(changes, after, row):
    table = growing()
    overtaken(table, lambda: on(table).alter(*changes), rows("b", v=[7], x=[2]))
    assert fields(table) == after
    assert read(table) == [row]
    assert on(table).get("b").num_rows == 1
    assert nothing_is_left_over(table)


def test_a_field_that_was_widened_meanwhile_is_read_in_its_new_type():
    table = growing()
    table.write(rows("a", n=pa.array([1], pa.int8())))
    overtaken(table, lambda: on(table).alter(WidenField("n", "int64")), rows("b", n=pa.array([2], pa.int8()), x=[3]))
    for snapshot in (on(table).snapshot(), on(table)):
        assert snapshot.scan().read_all().column("n").to_pylist() == [1, 2]
        assert snapshot.get("b").to_pylist() == [{"k": "b", "v": None, "n": 2, "x": 3}]


def test_a_schema_that_changes_every_time_is_an_error_in_the_end():
    table = growing()
    changes = iter(range(100))

    def alter():
        number = next(changes)
        name = next(field.name for field in on(table).snapshot().schema.values if field.name.startswith("v"))
        on(table).alter(RenameField(name, f"v{number}"))

    class Always(Meanwhile):
        def _count(self, operation, name):
            if operation == "create" and "/log/" in name:
                alter()
            super()._count(operation, name)

    slow = on(table, Always(table.storage, "create", "nothing", None))
    slow.state()
    with pytest.raises(RejectedError, match="the schema was changed while its rows were written; write them again"):
        slow.write(rows("b", v=[7], x=[2]))
    assert letters(on(table)) == ""
    assert nothing_is_left_over(table)


def test_threads_that_add_the_same_columns_at_once_all_succeed():
    table = growing()
    failures = []

    def write(number):
        try:
            on(table).write(rows(chr(97 + number), x=[number], **{f"only_{number}": [number]}))
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(fields(table)) == sorted(["v: int64", "x: int64", *(f"only_{number}: int64" for number in range(8))])
    assert on(table).scan().read_all().column("x").to_pylist() == list(range(8))
    assert on(table).verify(files=True, deep=True).sound


@pytest.mark.parametrize(("operation", "name"), [("send", "*.parquet"), ("create", "*/log/*")])
def test_a_write_that_the_store_refuses_adds_no_field(operation, name):
    table = growing("a")
    before = on(table).state().version
    broken = on(table, FaultyStorage(table.storage, FaultPlan([Rule(Fault.FULL, operation, name, calls={1})])))
    with raises(Code.STORE_FULL):
        broken.write(rows("b", x=[1]))
    assert on(table).state().version == before
    assert fields(table) == ["v: int64"]
    broken.write(rows("b", x=[1]))
    assert read(table) == ["k=a v=0", "k=b x=1"]


def test_a_repeat_with_the_commit_id_adds_nothing():
    table = growing()
    first = table.write(rows("a", x=[1]), commit_id="one")
    assert on(table).write(rows("a", x=[1], y=[1]), commit_id="one") == first
    assert fields(table) == ["v: int64", "x: int64"]


# -- ingest jobs ------------------------------------------------------------------------------------------------


def test_an_ingest_job_adds_the_columns_of_its_files(tmp_path):
    table = growing()
    inbox = put(
        tmp_path / "in", rows("a", x=pa.array([1], pa.int32())), rows("b", x=[2], y=["t"]), rows("c", n=pa.nulls(1))
    )
    table.submit(inbox)
    before = table.version
    report = ingested(table)
    assert (report.jobs, report.version, report.failed) == (1, before + 1, ())
    assert fields(table) == ["v: int64", "x: int64", "y: string"]
    assert read(table) == ["k=a x=1", "k=b x=2 y=t", "k=c"]


def test_a_file_with_a_conflicting_column_is_rejected_and_costs_its_neighbours_nothing(tmp_path):
    table = growing(ingest_tries_max=1)
    inbox = put(tmp_path / "in", rows("a", x=[1]), rows("b", x=["t"], z=[1]), rows("c", y=[3]))
    table.submit(inbox)
    report = ingested(table)
    (failed,) = report.failed
    assert failed.url.endswith("1.parquet")
    assert "column x is string; the table has int64" in failed.reason
    assert fields(table) == ["v: int64", "x: int64", "y: int64"]
    assert read(table) == ["k=a x=1", "k=c y=3"]


def test_a_file_that_no_field_can_be_added_for_is_rejected_by_name(tmp_path):
    table = growing(ingest_tries_max=1)
    inbox = put(tmp_path / "in", pa.table({"k": ["a"], "x\n": [1]}))
    table.submit(inbox)
    (failed,) = ingested(table).failed
    assert failed.rejected
    assert "no field can be added for column 'x\\n'" in failed.reason


def test_a_job_that_another_writer_overtakes_is_done_again_with_the_field_that_won(tmp_path):
    table = growing()
    inbox = put(tmp_path / "in", rows("b", x=pa.array([2], pa.int16()), y=[True]))
    table.submit(inbox)
    first = rows("a", x=[1])
    slow = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: on(table).write(first)))
    slow.state()
    report = ingested(slow)
    assert (report.requests, report.errors, report.waiting) == (1, (), 0)
    assert fields(table) == ["v: int64", "x: int64", "y: bool"]
    assert read(table) == ["k=a x=1", "k=b x=2 y=True"]
    assert nothing_is_left_over(table)


@pytest.mark.parametrize("after", [False, True], ids=["before it takes effect", "after it took effect"])
@pytest.mark.parametrize("change", [1, 2, 3])
def test_an_ingest_that_is_killed_adds_fields_with_their_rows_or_not_at_all(tmp_path, change, after):
    table = growing(ingest_bytes_max=1)
    inbox = put(tmp_path / "in", rows("x", x=[1]), rows("y", y=[2]))
    table.submit(inbox)
    with contextlib.suppress(Killed):
        ingested(on(table, Mortal(table.storage, change, after=after)))
    fresh = on(table)
    assert letters(fresh) == "xy"[: change - 1 + after]
    assert fresh.snapshot().schema.names == ("k", "v", *letters(fresh))
    ingested(fresh)
    assert read(table) == ["k=x x=1", "k=y y=2"]
    assert on(table).verify(files=True).sound


@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_loses_answers_adds_rows_and_fields_once(seed):
    """A caller that gets an unknown outcome, or none, asks again."""
    table = growing()
    plan = FaultPlan([Rule(Fault.FAIL_AFTER, name="*/log/*", probability=0.3)], seed=seed)
    faulty = on(table, FaultyStorage(table.storage, plan))
    for number in range(6):
        data = rows(f"{number}", **{f"c{number % 3}": [number]})
        for attempt in range(20):
            with contextlib.suppress(lakebed.Error):
                faulty.write(data, commit_id=f"w{number}", base_version=1)
                break
            assert attempt < 19
    assert fields(table) == ["v: int64", "c0: int64", "c1: int64", "c2: int64"]
    assert read(table) == [f"k={number} c{number % 3}={number}" for number in range(6)]


# -- any columns ------------------------------------------------------------------------------------------------

KINDS = {
    "int32": (pa.int32(), 5),
    "int64": (pa.int64(), 2**40),
    "string": (pa.string(), "t"),
    "null": (pa.null(), None),
}
BATCHES = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "é", "k2"]), st.sampled_from(sorted(KINDS)), max_size=4), max_size=6
)


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(BATCHES)
def test_any_columns_in_any_order_give_the_rows_of_a_dict(batches):
    table, expected, kinds = growing(), {}, {}
    for number, batch in enumerate(batches):
        key = f"{number:03d}"
        columns = {name: pa.array([KINDS[kind][1]], KINDS[kind][0]) for name, kind in batch.items()}
        known = {name: kind for name, kind in batch.items() if kind != "null"}
        fits = all(
            kinds.get(name, kind) == kind or (kind, kinds[name]) == ("int32", "int64") for name, kind in known.items()
        )
        before = table.version
        if fits:
            table.write(rows([key], **columns))
            kinds = {**known, **kinds}
            expected[key] = {name: KINDS[kind][1] for name, kind in known.items()}
        else:
            with raises(Code.COLUMN_TYPE_MISMATCH, Code.VALUE_NOT_REPRESENTABLE):
                table.write(rows([key], **columns))
            assert on(table).state().version == before
    fresh = on(table)
    found = {row.pop("k"): row for row in fresh.scan().read_all().to_pylist()}
    names = ["v", *kinds]
    assert sorted(fresh.snapshot().schema.names) == sorted(["k", *names])
    assert found == {key: {name: row.get(name) for name in names} for key, row in expected.items()}
