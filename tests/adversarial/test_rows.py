"""Invalid rows, proposed through every interface that writes: each is refused with its column and row, and nothing is
committed.
"""

import struct
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import Error, Schema, SchemaMismatchError, clock
from lakebed.files.parquet import row_groups
from lakebed.model import types, validity
from lakebed.model.state.transactions import ProposeFiles
from lakebed.upkeep.compaction.run import compact as compaction
from lakebed.upkeep.compaction.run import prepare, run_merge_task
from lakebed.write.attach import check_sorted
from lakebed.write.conformer import REASON, Conformer
from lakebed.write.run import send_run
from tests.tables.cases import compact
from tests.tables.ingest.cases import ingested

LAYOUTS = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def text(*values, kind=None):
    """Return text of these bytes, valid or not."""
    kind = kind or pa.string()
    return pa.array(values, pa.binary()).cast(LAYOUTS[kind]).view(kind)


def decimals(kind, *digits):
    content = b"".join(number.to_bytes(16, "little", signed=True) for number in digits)
    return pa.Array.from_buffers(kind, len(digits), [None, pa.py_buffer(content)])


def lists(values, *offsets):
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


BAD = text(b"ok", b"\xc3\xa4", b"a\xff")
FAULTS = {
    "text": BAD,
    "large text": text(b"ok", b"", b"\xc3", kind=pa.large_string()),
    "text view": text(b"ok", b"", b"a long text, not inlined \xed\xa0\x80", kind=pa.string_view()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), BAD),
    "large dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 4]), text(b"a", b"b", b"\xff", b"c", b"\x80")),
    "list": lists(BAD, 0, 1, 2, 3),
    "sliced list": lists(text(b"\xff", b"a", b"b", b"\xff"), 0, 1, 2, 3, 4).slice(1),
    "list view": pa.ListViewArray.from_arrays(pa.array([2, 0, 1], pa.int32()), pa.array([0, 2, 2], pa.int32()), BAD),
    "struct": pa.StructArray.from_arrays([BAD], names=["x"]),
    "map": pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), BAD),
    "map key": pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), BAD, pa.array([1, 2, 3])),
    "deep": lists(pa.StructArray.from_arrays([lists(BAD, 0, 1, 2, 3)], names=["x"]), 0, 1, 2, 3),
    "decimal": decimals(pa.decimal128(3, 1), 999, -999, 1000),
    "list of decimals": lists(decimals(pa.decimal128(3, 1), 999, -999, -1000), 0, 1, 2, 3),
    "time": pa.array([0, 86_399, 86_400], pa.int32()).view(pa.time32("s")),
    "time before midnight": pa.array([0, 1, -1], pa.int64()).view(pa.time64("ns")),
}
"""In each, the last of three rows is invalid."""


def table_of(column, *, key=False):
    schema = Schema({"k": "string"} if key else {"k": "int64"}, {}, {"v": types.canonical(column.type)})
    instance = lakebed.create(f"memory://{clock.random_token()}")
    return instance.create_table("t", schema)


def rows(column):
    return pa.table({"k": pa.array(range(len(column)), pa.int64()), "v": column})


def is_empty(table):
    return table.version == 1 and table.scan().read_all().num_rows == 0


@pytest.mark.parametrize("name", FAULTS)
def test_a_value_that_its_type_does_not_allow_is_refused_with_column_and_row(name):
    column = FAULTS[name]
    table = table_of(column)
    says = r"column v is .* and holds (text that is not UTF-8|a value that .* does not allow); .* first row \d: "
    with pytest.raises(SchemaMismatchError, match=says) as found:
        table.write(rows(column))
    assert found.value.facts["column"] == "v"
    assert found.value.facts["row"] == 2
    assert is_empty(table)


@pytest.mark.parametrize("name", FAULTS)
def test_rows_beside_an_invalid_one_are_kept_and_the_rejected_one_can_be_stored_and_read(name):
    column = FAULTS[name]
    if "view" in name:
        column = validity.canonical(column)
    batch = rows(column).to_batches()[0]
    schema = Schema({"k": "int64"}, {}, {"v": types.canonical(column.type)})
    kept, (rejected,) = Conformer(schema).separate(batch, "here")
    bad = validity.invalid(column).to_pylist()
    assert kept.column("k").to_pylist() == [row for row in range(len(column)) if not bad[row]]
    assert rejected.column("k").to_pylist() == [row for row in range(len(column)) if bad[row]]
    assert "column v is" in rejected.column(REASON)[0].as_py()
    rejected.validate(full=True)
    assert rejected.drop_columns([REASON]).to_pylist()


@pytest.mark.parametrize("offsets", [(0, 100_000_000, 6), (0, 4, 2)])
@pytest.mark.parametrize("wrap", ["plain", "list", "dictionary"])
def test_an_array_that_points_outside_its_buffers_is_refused_before_it_is_read(offsets, wrap):
    column = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<iii", *offsets)), pa.py_buffer(b"abcdef")]
    )
    if wrap == "list":
        column = lists(column, 0, 1, 2)
    if wrap == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([1, 0]), column)
    table = table_of(column)
    with pytest.raises(SchemaMismatchError, match=r"column v is not a valid .* array"):
        table.write(rows(column))
    assert is_empty(table)


def test_a_key_that_is_not_utf8_is_refused_and_named_by_its_bytes():
    schema = Schema({"k": "string"}, {"s": "string"})
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", schema)
    for column in ("k", "s"):
        given = {"k": text(b"a", b"b"), "s": text(b"a", b"b")} | {column: text(b"a", b"b\xfe")}
        with pytest.raises(SchemaMismatchError, match=rf"write: column {column} is string .* first row 1: .*b.\\xfe"):
            table.write(pa.table(given))
    assert is_empty(table)


def test_a_null_over_bytes_that_are_no_text_is_a_null():
    """The bytes below a null are not a value."""
    column = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\1"), pa.py_buffer(struct.pack("<iii", 0, 1, 2)), pa.py_buffer(b"a\xff")]
    )
    table = table_of(column)
    table.write(rows(column))
    assert table.scan().read_all().column("v").to_pylist() == ["a", None]


def test_floats_that_are_no_numbers_and_every_moment_are_values():
    schema = Schema({"k": "int64"}, {}, {"v": "double", "at": "timestamp[ns]", "d": "date32"})
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", schema)
    edges = pa.array([-(2**63), 2**63 - 1]).view(pa.timestamp("ns"))
    days = pa.array([-(2**31), 2**31 - 1], pa.int32()).view(pa.date32())
    table.write(pa.table({"k": [1, 2], "v": [float("nan"), float("inf")], "at": edges, "d": days}))
    found = table.scan().read_all()
    assert found.column("at").combine_chunks().equals(edges)
    assert found.column("d").combine_chunks().equals(days)


@pytest.mark.parametrize(("kind", "field"), [("s", "ms"), ("s", "ns"), ("us", "ns"), ("ms", "us")])
def test_a_moment_that_the_unit_of_the_field_cannot_reach_is_refused(kind, field):
    column = pa.array([0, 2**62], pa.int64()).view(pa.timestamp(kind))
    table = lakebed.create(f"memory://{clock.random_token()}").create_table(
        "t", Schema({"k": "int64"}, {}, {"v": f"timestamp[{field}]"})
    )
    with pytest.raises(SchemaMismatchError, match=r"holds a value that timestamp.* cannot keep; .* first row 1"):
        table.write(rows(column))
    assert is_empty(table)


# -- the ways in ------------------------------------------------------------------------------------------------


def stored(path, column=BAD):
    """Return a Parquet file as written by a careless program, sorted by its key."""
    pq.write_table(rows(column), path)
    return str(path)


def test_a_submitted_file_is_given_up_by_name_and_the_others_are_ingested(tmp_path):
    table = table_of(BAD)
    bad, good = stored(tmp_path / "bad.parquet"), stored(tmp_path / "good.parquet", text(b"a", b"b"))
    table.submit([bad, good])
    report = ingested(table, ingest_tries_max=1)
    assert [failed.url for failed in report.failed] == [bad]
    assert f"{bad}: column v is string and holds text that is not UTF-8; 1 of 3 rows" in report.failed[0].reason
    assert table.scan().read_all().column("v").to_pylist() == ["a", "b"]


def test_a_sorted_file_is_not_attached_and_its_row_is_counted_from_its_beginning(tmp_path):
    schema = Schema({"k": "int64"}, {}, {"v": "string"})
    path = tmp_path / "sorted.parquet"
    before = row_groups.BATCH_ROWS
    columns = [pa.array(range(before + len(BAD))), pa.concat_arrays([pa.array(["a"] * before), BAD])]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema.arrow), path)
    with pytest.raises(SchemaMismatchError, match=rf"^far.parquet: column v .* not UTF-8; row {before + 2}: .*a.\\xff"):
        check_sorted(path, [schema], (), "far.parquet")


@pytest.mark.parametrize("form", ["csv", "arrow", "parquet"])
def test_the_command_line_names_the_file_the_column_and_the_row(form, tmp_path, capsys):
    from lakebed.cli import main

    url = str(tmp_path / "lake")
    table = lakebed.create(url).create_table("t", Schema({"k": "int64"}, {}, {"v": "string"}))
    path = tmp_path / f"in.{form}"
    if form == "csv":
        path.write_bytes(b"k,v\n1,a\n2,\xff\n")
    elif form == "parquet":
        stored(path, text(b"a", b"\xff"))
    else:
        with pa.ipc.new_file(str(path), rows(BAD).schema) as writer:
            writer.write_table(rows(text(b"a", b"\xff")))
    assert main(["--instance", url, "write", "t", str(path)]) != 0
    said = " ".join(capsys.readouterr().err.split())
    if form == "csv":
        assert f"{path}, line 3: the byte 0xff is not UTF-8; give the encoding of the file" in said
    else:
        assert (
            f"{path}: column v is string and holds text that is not UTF-8; 1 of 2 rows in a batch, first row 1" in said
        )
    assert is_empty(table)


# -- what decides -----------------------------------------------------------------------------------------------

RAW = st.lists(st.one_of(st.none(), st.binary(max_size=6), st.text(max_size=6).map(str.encode)), max_size=40)


def is_text(value):
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


@given(RAW, st.integers(0, 5), st.sampled_from(["plain", "dictionary", "struct", "list"]))
def test_the_rows_at_fault_are_those_that_python_cannot_decode(values, skip, wrap):
    """In any layout, and in a slice of it."""
    column = text(*values)
    if wrap == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int32()), column)
    if wrap == "struct":
        column = pa.StructArray.from_arrays([column], names=["x"])
    if wrap == "list":
        column = lists(column, *range(len(values) + 1))
    column, values = column.slice(skip), values[skip:]
    bad = validity.invalid(column)
    assert (bad.to_pylist() if bad else [False] * len(values)) == [not is_text(value) for value in values]
    if wrap == "plain":
        mended = [None if value is None else value.decode("utf-8", "replace") for value in values]
        assert validity.mended(column).to_pylist() == mended


def test_mended_values_keep_all_that_is_allowed():
    kind = pa.struct([("at", pa.timestamp("ns", "UTC")), ("d", pa.decimal128(38, 4)), ("m", pa.map_("string", "int8"))])
    good = pa.array([{"at": 1, "d": Decimal("-1234567890123456789012345678901234.5678"), "m": [("a", 1)]}, None], kind)
    assert validity.mended(good).equals(good)


def test_list_views_are_taken_as_the_lists_that_they_are():
    """In any order, with gaps and overlaps, and nulls; also inside structs."""
    values = pa.array(["a", "b", None, "c", "d"])
    view = pa.ListViewArray.from_arrays(
        pa.array([3, 0, 0, 1], pa.int32()), pa.array([2, 3, 0, 1], pa.int32()), values,
        mask=pa.array([False, False, True, False]),
    )  # fmt: skip
    wanted = [["c", "d"], ["a", "b", None], None, ["b"]]
    for column, expected in (
        (view, wanted),
        (view.slice(1), wanted[1:]),
        (pa.StructArray.from_arrays([view], names=["x"]), [{"x": value} for value in wanted]),
    ):
        table = table_of(column)
        table.write(rows(column))
        assert table.scan().read_all().column("v").to_pylist() == expected


# -- columns that are not there ---------------------------------------------------------------------------------

GROWN = Schema({"k": "int64"}, {}, {"v": "string", "must": pa.field("must", pa.int64(), nullable=False)})
"""``v`` is nullable and so may be missing; ``must`` is not."""


def grown(url=None):
    instance = lakebed.create(url or f"memory://{clock.random_token()}")
    return instance.create_table("t", GROWN)


def full(*keys):
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [str(k) for k in keys], "must": pa.array(keys, pa.int64())})


def added(table):
    return table.scan().read_all().column("added").to_pylist()


def test_a_writer_goes_on_without_a_field_that_was_added():
    table = grown()
    table.write(full(1))
    table.alter(lakebed.AddField("added", "int64"))
    table.write(full(2))
    table.write(full(3).append_column("added", pa.array([3])))
    assert added(table) == [None, None, 3]


def test_a_file_that_was_submitted_before_a_field_was_added_is_ingested(tmp_path):
    table = grown()
    pq.write_table(full(1, 2), tmp_path / "before.parquet")
    table.submit(tmp_path / "before.parquet")
    table.alter(lakebed.AddField("added", "int64"))
    assert not ingested(table).failed
    assert added(table) == [None, None]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (full(1).drop_columns(["must"]), "missing column must"),
        (full(1).drop_columns(["k"]), "missing column k"),
        (full(1).rename_columns(["k", "vv", "must"]), "extra column vv; the table has k, v, must"),
        (full(1).append_column("aded", pa.array([1])), "extra column aded"),
        (full(1).rename_columns(["a", "b", "c"]), "missing columns k, must"),
        (full(1).append_column("v", pa.array(["x"])), "duplicate column v"),
        (pa.table({}), "missing columns k, must"),
    ],
)
def test_a_misspelt_column_is_an_error_and_never_a_null(given, says):
    table = grown()
    with pytest.raises(lakebed.UsageError, match=says):
        table.write(given)
    assert table.version == 1


def test_a_column_that_was_named_has_to_be_there():
    conformer = Conformer(GROWN, {"v": "text"})
    with pytest.raises(SchemaMismatchError, match=r"missing column text; .* v from column text"):
        conformer.conform(full(1).drop_columns(["v"]).to_batches()[0], "here")


def test_a_key_is_generated_from_a_column_that_is_missing_as_from_a_null():
    made = lakebed.Generated("string", "coalesce(region, 'none')")
    schema = Schema({"bucket": made}, {}, {"region": "string", "n": "int64"})
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", schema)
    table.write(pa.table({"n": [1]}))
    assert table.get("none").to_pylist() == [{"bucket": "none", "region": None, "n": 1}]
    with pytest.raises(SchemaMismatchError, match="no columns found"):
        table.write(pa.table({}))
    strict = Schema({"bucket": lakebed.Generated("string", "upper(region)")}, {}, {"region": "string", "n": "int64"})
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", strict)
    with pytest.raises(SchemaMismatchError, match=r"made of region as upper.region., is null, and is not nullable"):
        table.write(pa.table({"n": [1]}))


def test_an_export_from_before_an_alter_is_attached_as_a_file_from_before_it_is(tmp_path):
    """Fields are added, renamed, widened and dropped meanwhile."""
    schema = Schema({"k": "int64"}, {}, {"a": "int32", "b": "string", "c": "string"})
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema)
    rows = pa.table({"k": [1, 2], "a": pa.array([1, 2], pa.int32()), "b": ["x", "y"], "c": ["", None]})
    path = tmp_path / "export.parquet"
    pq.write_table(rows.cast(schema.arrow), path)
    table.alter(
        lakebed.AddField("added", "int64"), lakebed.RenameField("b", "bee"), lakebed.WidenField("a", "int64"),
        lakebed.DropField("c"),
    )  # fmt: skip
    found = check_sorted(path, table.state().schemas, (), "export.parquet")
    assert found.schema_version == 1
    run = send_run(table.storage, table.id, [found], job=clock.new_id())
    table.commit(ProposeFiles(run, None, table.version))
    wanted = [{"k": k, "a": k, "bee": b, "added": None} for k, b in ((1, "x"), (2, "y"))]
    assert table.scan().read_all().to_pylist() == wanted
    assert table.get(2).to_pylist() == wanted[1:]
    table.write(pa.table({"k": [3]}))
    wanted += [{"k": 3, "a": None, "bee": None, "added": None}]
    compact(table)
    assert table.scan().read_all().to_pylist() == wanted


def test_an_export_with_a_null_where_the_newest_schema_has_none_is_not_attached(tmp_path):
    table = grown()
    table.alter(lakebed.AddField("added", "int64"))
    nulls = full(1).set_column(2, "must", pa.array([None], pa.int64()))
    path = tmp_path / "in.parquet"
    free = pa.schema([field.with_nullable(nullable=True) for field in GROWN.arrow])
    pq.write_table(nulls.cast(free), path)
    with pytest.raises(SchemaMismatchError, match="has a null in must"):
        check_sorted(path, table.state().schemas, (), "in.parquet")
    table.alter(lakebed.AllowNulls("must"))
    assert check_sorted(path, table.state().schemas, (), "in.parquet").rows == 1


# -- schemas that no table can have -----------------------------------------------------------------------------


def nested(levels, wrap, kind="int8"):
    kind = types.parse(kind)
    for _ in range(levels):
        kind = wrap(kind)
    return kind


WRAPS = {
    "list": pa.list_,
    "struct": lambda kind: pa.struct([("x", kind)]),
    "map": lambda kind: pa.map_("string", kind),
    "mixed": lambda kind: pa.list_(pa.struct([("x", kind)])),
}
TYPES = {
    "empty struct": pa.struct([]),
    "list of empty structs": pa.list_(pa.struct([])),
    "struct with one name twice": pa.struct([("a", "int8"), ("a", "int8")]),
    "struct with a nameless member": pa.struct([("", "int8")]),
    "NUL in a member": pa.struct([("a\0b", "int8")]),
    "negative scale": pa.decimal128(5, -2),
    "scale above precision": pa.list_(pa.decimal128(5, 10)),
    "no bytes": pa.binary(0),
    "NUL in a zone": pa.timestamp("us", "a\0"),
    **{f"deep {name}": nested(31, wrap) for name, wrap in WRAPS.items()},
    **{f"very deep {name}": nested(1_500, wrap) for name, wrap in WRAPS.items()},
}
NAMES = ["a\0b", "\ud800", "a\nb", "\u2028", "\x85", "\x1b[31m", "", 7, None]


def refused(schema, says):
    instance = lakebed.create(f"memory://{clock.random_token()}")
    with pytest.raises(lakebed.UsageError, match=says):
        instance.create_table("t", schema())
    assert not instance.tables()


@pytest.mark.parametrize("name", TYPES)
def test_a_type_that_some_reader_or_writer_cannot_hold_is_refused_at_creation_and_alter(name):
    kind = TYPES[name]
    refused(lambda: Schema({"k": "int64"}, {}, {"v": kind}), "v cannot be|not a name|nested too deeply")
    refused(lambda: Schema({"k": "int64"}, {}, {"v": pa.field("v", kind)}), "v cannot be|not a name|nested too deeply")
    with pytest.raises(lakebed.UsageError, match=r"v cannot be|not a name|nested too deeply"):
        lakebed.AddField("v", kind)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_that_some_layer_cannot_hold_is_refused_at_creation_and_alter(name):
    refused(lambda: Schema({name: "int64"}), "not a name for a field|must be unique and not empty")
    refused(lambda: Schema({"k": "int64"}, {}, {name: "int64"}), "not a name for a field|must be unique and not empty")
    for change in (lambda: lakebed.AddField(name, "int8"), lambda: lakebed.RenameField("v", name)):
        with pytest.raises(lakebed.UsageError, match="not a name for a field"):
            change()


@pytest.mark.parametrize("name", WRAPS)
def test_what_is_nested_as_deep_as_may_be_is_written_read_and_compacted(name):
    levels = 15 if name in ("map", "mixed") else 30
    kind = nested(levels, WRAPS[name])
    table = table_of(pa.nulls(0, kind))
    value = 1
    for _ in range(levels):
        value = {"list": [value], "struct": {"x": value}, "map": [("a", value)], "mixed": [{"x": value}]}[name]
    for k in (1, 2, 3):
        table.write(pa.table({"k": [k], "v": pa.array([value], kind)}))
    compact_by_merge(table)
    assert table.scan().read_all().column("v").to_pylist() == [value] * 3
    assert table.get(2).column("v").to_pylist() == [value]


def compact_by_merge(table, jobs=1):
    """Compact with the merge of compaction tasks."""

    def execute(tasks):
        with tempfile.TemporaryDirectory() as scratch:
            return [merged(task, Path(scratch)) for task in tasks]

    def merged(task, scratch):
        try:
            return run_merge_task(task, table.storage, scratch)
        except Error as error:
            return error

    report = compaction(table, prepare(table, "full"), execute, cores=1)
    for failed in report.failed:
        raise failed.error
    assert report.jobs == jobs or (jobs is None and report.jobs)


@pytest.mark.parametrize("wrap", [lambda kind: kind, pa.list_, lambda kind: pa.map_("string", kind)])
def test_a_null_in_a_member_that_has_none_is_refused_and_full_members_are_taken(wrap):
    strict, loose = (pa.struct([pa.field("a", pa.int8(), nullable), ("b", pa.int8())]) for nullable in (False, True))
    values = [{"a": 1, "b": None}, None, {"a": None, "b": 1}]
    if pa.types.is_list(wrap(strict)):
        values = [[values[0]], None, [values[0], values[2]]]
    if pa.types.is_map(wrap(strict)):
        values = [[("x", values[0])], [], [("x", values[0]), ("y", values[2])]]
    column = pa.array(values, wrap(loose))
    table = table_of(pa.nulls(0, wrap(strict)))
    with pytest.raises(SchemaMismatchError, match=r"has a null in a member that is not nullable; .*first row 2"):
        table.write(rows(column))
    assert is_empty(table)
    table.write(rows(column.slice(0, 2)))
    assert table.scan().read_all().column("v").to_pylist() == values[:2]


def test_rows_nested_deeper_than_arrow_hands_over_are_refused():
    table = table_of(BAD)
    with pytest.raises(SchemaMismatchError, match=r"cannot read rows from Table: .*level"):
        table.write(rows(pa.nulls(1, nested(80, pa.list_))))


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.list_(pa.timestamp("s"))], ids=str)
def test_seconds_that_parquet_has_no_milliseconds_for_are_refused(kind):
    column = pa.array([0, 2**62], pa.int64()).view(pa.timestamp("s"))
    column = lists(column, 0, 1, 2) if pa.types.is_list(kind) else column
    table = table_of(column)
    with pytest.raises(SchemaMismatchError, match=r"holds a value of .* that Parquet cannot keep; .*first row 1"):
        table.write(rows(column))
    assert is_empty(table)
