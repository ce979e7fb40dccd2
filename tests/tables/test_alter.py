"""Tables whose schema changes: whatever was written, altered and merged in any order, rows read as the newest schema
has them, by every way to read, now and as of each version before."""

import datetime as dt
import tempfile
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import (
    AddField,
    AllowNulls,
    DropField,
    KeyRange,
    RejectedError,
    RenameField,
    Schema,
    SchemaMismatchError,
    UsageError,
    WidenField,
)
from lakebed.model.keys import EncodedRange
from lakebed.model.state.transactions.schema_changes import describe
from lakebed.read.rows.request import ReadLimits
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.upkeep.splitting.run import split
from tests.soaked import few

KEYS = ["a", "b", "ba", "c", "é"]
SCHEMA = Schema(
    {"k": "string"},
    {"s": "int32"},
    {"n": "int8", "v": "string", "f": "float32", "list": pa.list_(pa.string()), "d": "decimal128(10, 2)"},
)
KINDS = [
    "int8", "int16", "int32", "uint8", "float32", "string", "timestamp[s]", "time32[s]", "decimal128(10, 2)",
    "bool", pa.list_(pa.timestamp("s")), pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))]),
    pa.map_(pa.string(), pa.int64()), pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.time32("s")))])),
]  # fmt: skip


def value_of(kind, version):
    """A value of the type, another for each version; null for every fourth."""
    if version % 4 == 0:
        return None
    if pa.types.is_integer(kind):
        return version % 100
    if pa.types.is_floating(kind):
        return version + 0.5
    if pa.types.is_boolean(kind):
        return version % 3 == 0
    if pa.types.is_timestamp(kind):
        return dt.datetime(2020, 1, 1) + dt.timedelta(seconds=version)  # noqa: DTZ001 - a column without a zone
    if pa.types.is_time(kind):
        return dt.time(0, version // 60 % 60, version % 60)
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, i) for i in range(version % 3)]
    if pa.types.is_map(kind):
        return [(f"k{version}", value_of(kind.item_type, version + 1))]
    if pa.types.is_struct(kind):
        return {f.name: value_of(f.type, version + 1) for f in kind}
    if pa.types.is_decimal(kind):
        # As many digits as the type has: a wider one holds values that the narrower does not.
        return Decimal(f"{10 ** (kind.precision - kind.scale - 1) + version}.25")
    return f"v{version}"


@contextmanager
def reading(way, *tables):
    """Reads inside go that way; without this, all tables of tests are narrow."""
    for table in tables:
        table.reader.limits = ReadLimits(page_rows=-1) if way == "wide" else ReadLimits()
    yield
    for table in tables:
        table.reader.limits = ReadLimits()


def merge(table, meanwhile=lambda: None):
    """Compact every partition; ``meanwhile`` happens between the opening of the jobs and their tasks."""

    def execute(tasks):
        meanwhile()
        with tempfile.TemporaryDirectory() as scratch:
            return [run_merge_task(task, table.storage, Path(scratch)) for task in tasks]

    assert not compact(table, prepare(table, "full"), execute, cores=1).failed


class Oracle:
    """A table beside plain dicts: rows by field id. ``late`` is a second process that looks only when it must."""

    def __init__(self, folder, **settings):
        self.folder = Path(folder)
        instance = lakebed.create(self.folder / "lake")
        self.table = instance.create_table("t", SCHEMA, split_points=["b"], settings=settings)
        self.late = lakebed.open(self.folder / "lake").table("t")
        self.late.state()
        self.rows = []
        self.then = {}
        self.count = 0

    def alter(self, changes):
        self.table.alter(*changes)
        self.then[self.table.version] = (self.table.schema, list(self.rows))

    def write(self, keys, *, late):
        """Rows of all fields that the writer knows of, values in the types that it knows."""
        table = self.late if late else self.table
        schema = table.schema
        rows = []
        for key in keys:
            self.count += 1
            rows.append([key, self.count, *(value_of(f.type, self.count + f.id) for f in schema.values)])
        columns = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema.fields)]
        table.write(pa.Table.from_arrays(columns, schema=schema.arrow))
        ids = [field.id for field in schema.fields]
        self.rows += [dict(zip(ids, row, strict=True)) for row in rows]
        self.table.state()
        self.then[self.table.version] = (self.table.schema, list(self.rows))

    def compact(self, changes=None):
        """Merge all partitions; the schema may change while the tasks are under way."""
        merge(self.table, lambda: changes is None or self.alter(changes))

    def split(self):
        self.table.set(split_rows=2)
        split(self.table)

    def expected(self, schema, rows, columns, keys=None):
        """The rows as a table of the schema, in order."""
        fields = [schema.by_name[name] for name in columns]
        key, order = (field.id for field in (*schema.row_key, *schema.sort_key))
        found = [row for row in rows if keys is None or row[key] in keys]
        held = sorted(found, key=lambda row: (row[key].encode(), row[order]))
        arrays = [pa.array([row.get(f.id) for row in held], f.type) for f in fields]
        return pa.Table.from_arrays(arrays, schema=pa.schema([f.arrow for f in fields]))

    def check(self, table, schema, rows, columns):
        assert table.schema == schema
        for way in ("narrow", "wide"):
            with reading(way, self.table, self.late):
                assert_same(table.scan(columns=columns).read_all(), self.expected(schema, rows, columns))
                for key in KEYS:
                    assert_same(table.get(key, columns=columns), self.expected(schema, rows, columns, [key]))
                some = table.scan(KeyRange("b", "c"), columns=columns).read_all()
                assert_same(some, self.expected(schema, rows, columns, ["b", "ba"]))


def assert_same(found, expected):
    assert found.schema == expected.schema
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    "changes",
    few(
        [
            [AddField(f"x{i}", kind) for i, kind in enumerate(KINDS)],
            [RenameField("k", "key"), RenameField("s", "k")],
            [RenameField("n", "m"), RenameField("v", "n"), RenameField("m", "v")],
            [WidenField("n", "int64"), WidenField("f", "double")],
            [DropField("v"), AddField("v", "int8")],
            [DropField("v"), AddField("v", "string")],
            [DropField("list"), AddField("list", pa.list_(pa.string()))],
            [RenameField("list", "v2"), DropField("v"), RenameField("v2", "v")],
            [AddField("x", "int8")],
            [DropField("v")],
            [DropField("n"), DropField("v"), DropField("list")],
            [WidenField("d", "decimal128(20, 2)")],
        ],
        8,
    ),
    ids=lambda changes: " ".join(map(describe, changes))[:60],
)
def test_files_of_two_schemas_are_read_and_merged_as_one(changes, tmp_path):
    """Several pages and row groups of each, and a file of a writer that came late with the old schema."""
    oracle = Oracle(tmp_path, page_rows=100, row_group_rows=1000)
    oracle.write(KEYS * 50, late=False)
    oracle.table.alter(*changes)
    oracle.write(KEYS * 50, late=False)
    oracle.write(KEYS * 10, late=True)
    assert {file.schema_version for file in oracle.table.state().referenced().values()} == {1, 2}
    schema = oracle.table.schema
    oracle.check(oracle.table, schema, oracle.rows, list(schema.names))
    for merged in (False, True):
        if merged:
            oracle.compact()
            assert {file.schema_version for file in oracle.table.state().referenced().values()} == {2}
        for name in schema.names:
            for way in ("narrow", "wide"):
                with reading(way, oracle.table):
                    found = oracle.table.scan(columns=[name]).read_all()
                assert_same(found, oracle.expected(schema, oracle.rows, [name]))
    again = lakebed.open(tmp_path / "lake").table("t")
    oracle.check(again, schema, oracle.rows, list(schema.names))
    oracle.check(again.at(version=2), SCHEMA, oracle.rows[:250], list(SCHEMA.names))


NAMES = ("n", "v", "list", "x")
"""Few, so that a name is often that of a field which was dropped or renamed before."""
WIDER = {pa.int8(): "int16", pa.int16(): "int32", pa.int32(): "int64", pa.uint8(): "uint64", pa.float32(): "float64",
         pa.decimal128(10, 2): "decimal128(12, 2)", pa.decimal128(12, 2): "decimal128(38, 2)"}  # fmt: skip


def changes_of(schema):
    """Changes that the schema allows. A field is often dropped and another of its name and type added."""
    unused = [name for name in NAMES if name not in schema.names]
    kept = [field for field in schema.values if field.name in NAMES]
    dropped = [(DropField(field.name),) for field in kept]
    replaced = [(DropField(field.name), AddField(field.name, field.type)) for field in kept]
    widened = [(WidenField(field.name, WIDER[field.type]),) for field in kept if field.type in WIDER]
    added = st.builds(AddField, st.sampled_from(unused), st.sampled_from(KINDS))
    renamed = st.builds(RenameField, st.sampled_from(schema.names), st.sampled_from(unused))
    sampled = [st.sampled_from(some) for some in (dropped, replaced, widened) if some]
    return st.one_of(*sampled, *([st.tuples(added), st.tuples(renamed)] if unused else []))


@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(st.data())
def test_rows_are_read_as_the_newest_schema_has_them_after_any_history(data):
    """Changes, a write in time or late, then maybe a compaction, with a change of the schema in the midst of it."""
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(folder)
        for _ in range(data.draw(st.integers(2, 5))):
            for _ in range(data.draw(st.integers(0, 2))):
                oracle.alter(data.draw(changes_of(oracle.table.schema)))
            keys = data.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
            oracle.write(keys, late=data.draw(st.booleans()))
            then = data.draw(st.sampled_from(["write", "compact", "compact and alter", "split"]))
            if then == "split":
                oracle.split()
            elif then != "write":
                oracle.compact(data.draw(changes_of(oracle.table.schema)) if then == "compact and alter" else None)
        schema = oracle.table.schema
        names = list(schema.names)
        oracle.check(oracle.table, schema, oracle.rows, names)
        oracle.late.state()
        version = data.draw(st.sampled_from(sorted(oracle.then)))
        then, rows = oracle.then[version]
        with reading(data.draw(st.sampled_from(["narrow", "wide"])), oracle.table, oracle.late):
            for name in names:
                found = oracle.table.scan(columns=[name]).read_all()
                assert_same(found, oracle.expected(schema, oracle.rows, [name]))
            assert_same(oracle.late.scan().read_all(), oracle.expected(schema, oracle.rows, names))
            found = oracle.table.at(version=version).scan().read_all()
            assert_same(found, oracle.expected(then, rows, then.names))
        assert oracle.table.verify(files=True).sound


def rows(*keys, **columns):
    kinds = {"n": pa.int32(), "w": pa.int8()}
    return pa.table({"k": keys, **{name: pa.array(column, kinds.get(name)) for name, column in columns.items()}})


@pytest.fixture
def table(tmp_path):
    schema = Schema({"k": "int64"}, values={"v": "string", "n": pa.field("n", pa.int32(), nullable=False)})
    return lakebed.create(tmp_path / "lake").create_table("t", schema)


def test_an_alter_is_shown_by_its_number_in_history_and_by_the_views_around_it(table):
    table.write(rows(1, v=["x"], n=[1]))
    assert table.alter(AddField("w", "int8"), RenameField("v", "text"), AllowNulls("n")) == 3
    table.write(rows(2, text=["y"], n=[None], w=[7]))
    assert table.schema.version == 2
    assert table.get(1).to_pylist() == [{"k": 1, "text": "x", "n": 1, "w": None}]
    assert table.at(version=2).schema.names == ("k", "v", "n")
    assert table.at(version=2).scan().read_all().to_pylist() == [{"k": 1, "v": "x", "n": 1}]
    assert table.at(version=3).scan().read_all().to_pylist() == [{"k": 1, "text": "x", "n": 1, "w": None}]
    newest, altered, *_ = table.history_rows()
    assert (newest.type, altered.type, altered.rows_added) == ("add_files", "alter_schema", 0)
    assert altered.detail == "add w: int8, rename v to text, allow nulls in n"


def test_a_refused_change_leaves_the_table_as_it_is(table):
    with pytest.raises(RejectedError, match="no field 'x'; the fields are: k, v, n"):
        table.alter(AddField("w", "int8"), DropField("x"))
    assert table.schema.version == 1
    assert table.version == 1
    with pytest.raises(UsageError, match="alter takes"):
        table.alter("drop v")


def test_a_writer_whose_rows_only_fit_what_another_process_made_of_the_table_need_not_look_first(table, tmp_path):
    """Columns are looked at before a row is read; nulls are found too late for this call, and known to the next."""
    late, later = (lakebed.open(tmp_path / "lake").table("t") for _ in range(2))
    assert late.schema == later.schema
    table.alter(AddField("w", "int8"), AllowNulls("n"))
    late.write(rows(1, v=["x"], n=[1], w=[1]))
    unknown = rows(2, v=["x"], n=[None])
    table.alter(DropField("w"))
    with pytest.raises(SchemaMismatchError, match="not nullable"):
        later.write(unknown)
    later.write(unknown)
    with pytest.raises(SchemaMismatchError, match="extra column w"):
        later.write(rows(3, v=["x"], w=[1]))
    assert table.scan().read_all().to_pylist() == [{"k": 1, "v": "x", "n": 1}, {"k": 2, "v": "x", "n": None}]


def test_a_repeat_gets_its_number_though_its_rows_fit_the_table_no_more(table):
    given = rows(1, v=["x"], n=[1])
    assert table.write(given, commit_id="monday") == 2
    table.alter(DropField("v"))
    assert table.write(given, commit_id="monday") == 2
    with pytest.raises(SchemaMismatchError, match="v"):
        table.write(given, commit_id="tuesday")
    assert table.scan().read_all().to_pylist() == [{"k": 1, "n": 1}]


@pytest.fixture
def altered(table):
    """Two rows as they were first, tagged ``old``; then an alter, and one more row. Garbage goes at once."""
    table.set(history_s=0, log_s=0)
    table.write(rows(1, 2, v=["x", "y"], n=[1, 2]))
    table.tag("old")
    table.alter(DropField("v"), RenameField("n", "v"), AddField("w", "int8"))
    table.write(rows(3, w=[7]).append_column("v", pa.array([3], pa.int32())))
    return table


OLD = [{"k": 1, "v": "x", "n": 1}, {"k": 2, "v": "y", "n": 2}]
NEW = [{"k": 1, "v": 1, "w": None}, {"k": 2, "v": 2, "w": None}, {"k": 3, "v": 3, "w": 7}]


def in_rows(found):
    return found.scan().read_all().to_pylist()


def test_what_a_tag_keeps_is_read_by_its_own_schema_though_all_was_merged_collected_and_truncated(altered, tmp_path):
    """Two rounds, for the first keeps a checkpoint and the second truncates up to it; entry by entry nothing is
    left."""
    merge(altered)
    for _ in range(2):
        collect_garbage(altered)
        altered.set(page_rows=1000 + altered.version)
    altered.log.wait_for_checkpoint()
    assert min(altered.log.backend.versions()) > altered.tags()["old"] + 1
    for reader in (altered, lakebed.open(tmp_path / "lake").table("t")):
        assert in_rows(reader.at(tag="old")) == OLD
        assert reader.at(tag="old").schema.version == 1
        assert in_rows(reader) == NEW
        assert reader.verify(files=True).sound
    altered.untag("old")
    collect_garbage(altered)
    state = altered.state()
    living = [*state.referenced().values(), *(c.facts for c in state.files.having("dropped") if not c.retired)]
    assert {file.schema_version for file in living} == {2}
    altered.alter(AddField("x", "string"))
    assert (altered.schema.version, altered.schema.by_name["x"].id) == (3, 5)


def test_a_pinned_view_keeps_its_schema_and_its_files(altered, tmp_path):
    other = lakebed.open(tmp_path / "lake").table("t")
    altered.untag("old")
    with altered.pin() as snapshot:
        other.alter(DropField("w"))
        merge(other)
        assert collect_garbage(other).pinned > 0
        assert in_rows(snapshot) == NEW
        assert in_rows(altered) == [{"k": row["k"], "v": row["v"]} for row in NEW]
        assert in_rows(snapshot) == NEW


def test_a_table_made_with_the_schema_of_another_begins_with_version_one(table, tmp_path):
    table.alter(DropField("v"))
    taken = Schema.from_json(table.schema.to_json())
    assert taken == table.schema
    made = lakebed.open(tmp_path / "lake").create_table("u", taken)
    assert made.schema.version == 1
    made.write(rows(1, n=[1]))
    assert made.alter(AddField("v", "int8")) == 3
    assert made.get(1).to_pylist() == [{"k": 1, "n": 1, "v": None}]


def test_a_summary_is_made_of_a_small_file_with_other_names(table):
    """A split needs it, and none is stored; keys are found under the name that the file has for them."""
    table.write(rows(*range(100), v=["x"] * 100, n=[1] * 100))
    table.alter(RenameField("k", "key"), RenameField("v", "k"))
    assert not any(file.summarised for file in table.state().referenced().values())
    table.set(split_rows=50)
    assert split(table).version is not None
    # Even to a hundredth of the rows: a short boundary is worth that much.
    parts = table.partitions().column("rows").to_pylist()
    assert len(parts) == 3
    assert max(parts) - min(parts) <= 2


def test_a_merge_in_levels_goes_without_files_of_which_no_row_can_pass(table):
    """Their rows have null for a field that came later, and one file is left: there is nothing to merge."""
    table.reader.limits = ReadLimits(page_rows=-1, fan_in=1)
    table.write(rows(0, 2, v=["x"] * 2, n=[1] * 2))
    table.write(rows(0, 2, v=["x"] * 2, n=[1] * 2))
    table.alter(AddField("w", "int8"))
    table.write(rows(1, 3, v=["x"] * 2, n=[1] * 2, w=[1] * 2))
    assert table.scan(where="w = 1", columns=["k"]).read_all().column("k").to_pylist() == [1, 3]


def test_a_plan_over_files_of_two_schemas_streams_and_prunes(table):
    """The filter reaches the scan of a file that has other names for the keys; nothing is sorted."""
    from lakebed.engine.datafusion import operators_of
    from lakebed.files.sorting.merge import check_plan
    from lakebed.read.rows.datafusion_scan import ScanEngine
    from lakebed.read.rows.request import ReadRequest

    table.write(rows(0, 2, v=["x"] * 2, n=[1] * 2))
    table.alter(RenameField("k", "key"), WidenField("n", "int64"), AddField("w", "int8"))
    table.write(rows(1, 3, v=["x"] * 2, n=[1] * 2, w=[1] * 2).rename_columns({"k": "key"}))
    state, reader = table.state(), table.reader
    opened = [reader._files.open(file, state.created) for file in state.referenced().values()]
    codec = state.created.codec
    request = ReadRequest(state.created, EncodedRange(codec.encode((1,)), codec.encode((3,))), ("n", "w"), 10)
    engine = ScanEngine(table.snapshot().reader._files)
    for used in (opened[:1], opened[1:], opened):
        for _, condition in engine.conditions(used, request):
            made = engine.frame(used, condition, request).execution_plan()
            check_plan(operators_of(made))
            drawing = made.display_indent()
            assert drawing.count("pruning_predicate=") == len(used)
