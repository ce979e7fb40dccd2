"""Rows by indexed fields: what makes an entry outdated, or a row without one; and with each rule left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import Aggregate, First, KeyRange, Latest, Pipeline, Schema
from lakebed.errors import Code
from lakebed.files.parquet.read_cache import READ_CACHE
from lakebed.model.row_filters import SetFilter
from lakebed.model.state.transactions.schema_changes import AddField, DropField, RenameField, WidenField
from lakebed.model.state.transactions.view_feeds import EARLIER_MAX
from lakebed.read.rows import second_key
from lakebed.read.rows.request import ReadLimits
from lakebed.read.rows.second_key import TEXT_BYTES_MAX, Values
from lakebed.table.instance import Instance
from lakebed.table.table import Table
from lakebed.upkeep import index_feed
from lakebed.upkeep.index_feed import feed_index
from lakebed.upkeep.retention.run import collect_garbage
from tests.raising import raises
from tests.tables.cases import compact, rewritten
from tests.variants import Variant, instead, planted

SCHEMA = Schema({"k": "int64"}, values={"a": "int32", "b": "string"})


@pytest.fixture
def table(memory_lake: Instance) -> Table:
    made = memory_lake.create_table("t", SCHEMA, merge=Latest())
    memory_lake.create_index("by_a", table="t", on=["a"])
    memory_lake.create_index("by_b_a", table="t", on=["b", "a"])
    return made


def put(table: Table, *rows: tuple[Any, ...], **options: Any) -> int:
    names = table.schema.names[: len(rows[0])]
    schema = pa.schema([table.schema.arrow.field(name) for name in names])
    columns = zip(*rows, strict=True)
    return table.write(
        pa.table([pa.array(one, kind.type) for one, kind in zip(columns, schema, strict=True)], names), **options
    )


def fed(instance: Instance, *names: str, anew: bool = False) -> None:
    for name in names or ("by_a", "by_b_a"):
        feed_index(instance.table(name), instance.table("t"), anew=anew)


def keys(table: Any, **by: Any) -> list[int]:
    found = [row["k"] for row in table.get(by=by).to_pylist()]
    assert found == [row["k"] for row in table.scan(by=by).read_all().to_pylist()]
    assert table.count(by=by).rows == len(found)
    return found


# -- what each rule is for ------------------------------------------------------------------------------------------


def outdated_entry(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"), (2, 5, "x"))
    fed(instance)
    put(table, (1, 6, "x"))
    fed(instance)
    assert (keys(table, a=5), keys(table, a=6)) == ([2], [1])


def new_file(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    put(table, (2, 5, "x"))
    assert keys(table, a=5) == [1, 2]


def merged_file(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    put(table, (2, 5, "x"))
    compact(table)
    assert keys(table, a=5) == [1, 2]


def rewritten_file(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    rewritten(table, set={"a": "a + 1"})
    assert (keys(table, a=5), keys(table, a=6)) == ([], [1])
    fed(instance)
    assert keys(table, a=6) == [1]


def older_version(instance: Instance, table: Table) -> None:
    version = put(table, (1, 5, "x"))
    fed(instance)
    table.remove(KeyRange())
    put(table, (2, 5, "x"))
    fed(instance, anew=True)
    assert (keys(table, a=5), keys(table.at(version=version), a=5)) == ([2], [1])


def version_between_feeds(instance: Instance, table: Table) -> None:
    """The row that was replaced is in no file any more when the index is fed."""
    put(table, (1, 4, "x"))
    fed(instance)
    version = put(table, (1, 5, "x"))
    put(table, (1, 6, "x"))
    compact(table)
    for _ in range(EARLIER_MAX + 8):
        put(table, (2, 7, "x"))
        fed(instance)
    assert (keys(table, a=5), keys(table.at(version=version), a=5)) == ([], [1])
    view = instance.table("by_a").state().view
    assert view is not None
    assert view.index is not None
    assert EARLIER_MAX // 2 < len(view.index.earlier) <= EARLIER_MAX


def restored_version(instance: Instance, table: Table) -> None:
    version = put(table, (1, 5, "x"))
    fed(instance)
    table.remove(KeyRange())
    fed(instance, anew=True)
    table.restore(version=version)
    assert keys(table, a=5) == [1]


def restored_and_fed(instance: Instance, table: Table) -> None:
    restored_version(instance, table)
    fed(instance)
    assert keys(table, a=5) == [1]


def file_after_a_feed(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    put(table, (2, 5, "x"))
    fed(instance)
    put(table, (3, 5, "x"))
    assert keys(table, a=5) == [1, 2, 3]


def partial_row(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    table.write(pa.table({"k": [1], "b": ["y"]}), partial=True)
    assert keys(table, a=5, b="y") == [1]
    fed(instance)
    put(table, (2, 5, "y"))
    fed(instance)
    assert (keys(table, a=5, b="y"), keys(table, a=5, b="x")) == ([1, 2], [])


def partial_row_merged(instance: Instance, table: Table) -> None:
    partial_row(instance, table)
    compact(table)
    fed(instance)
    assert keys(table, a=5, b="y") == [1, 2]
    state, view = table.state(), instance.table("by_b_a").state().view
    assert view is not None
    assert not second_key.uncovered(state, view)


def null_of_one_field(instance: Instance, table: Table) -> None:
    put(table, (1, 5, None), (2, None, "x"))
    fed(instance)
    assert (keys(table, a=5), keys(table, a=5, b="x")) == ([1], [])


def deleted_row(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    table.delete([1])
    fed(instance)
    assert keys(table, a=5) == []


Case = Callable[[Instance, Table], None]
CASES: tuple[Case, ...] = (
    outdated_entry,
    new_file,
    merged_file,
    rewritten_file,
    older_version,
    version_between_feeds,
    restored_version,
    restored_and_fed,
    file_after_a_feed,
    partial_row,
    partial_row_merged,
    null_of_one_field,
    deleted_row,
)


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_with_the_values(memory_lake, table, case):
    case(memory_lake, table)


def _uncovered_by_sequence(state: Any, view: Any) -> Sequence[Any]:
    least = view.index.sequence
    return [file for file in state.referenced().values() if state.files[file.id].sequence_hi >= least]


def _one_file_too_many(self: Any, files: Any) -> Any:
    return files, self._snapshot.state.next_sequence + 1


BUGS: tuple[tuple[str, Variant, Case], ...] = (
    ("rows are not compared", instead(Values, "among", lambda _, rows: rows), outdated_entry),
    ("files without entries are not searched", instead(second_key, "uncovered", lambda _state, _view: ()), new_file),
    ("merged files have entries", instead(second_key, "uncovered", lambda _state, _view: ()), merged_file),
    ("rewritten files have entries", instead(second_key, "uncovered", _uncovered_by_sequence), rewritten_file),
    (
        "an index that was built later answers",
        instead(second_key, "as_of", lambda view, _version: view),
        older_version,
    ),
    (
        "an index has what it had not yet",
        instead(second_key, "as_of", lambda view, _version: view),
        version_between_feeds,
    ),
    (
        "files that were brought back have entries",
        instead(second_key, "answers", lambda _view, _state: True),
        restored_version,
    ),
    (
        "a feed forgets what was brought back",
        instead(index_feed, "_missing", lambda _, state, view: list(second_key.uncovered(state, view))),
        restored_and_fed,
    ),
    ("a feed says more than it has", instead(index_feed._Planning, "coverable", _one_file_too_many), file_after_a_feed),
    (
        "partial rows have entries",
        instead(index_feed._Planning, "_has_partial_rows", lambda _self, _file: False),
        partial_row,
    ),
    ("a partial row has all values", instead(Values, "possible", Values.among), partial_row),
)


@pytest.mark.parametrize(("variant", "case"), [pytest.param(variant, case, id=name) for name, variant, case in BUGS])
def test_a_planted_bug_is_found(memory_lake, table, variant, case):
    with planted(variant), pytest.raises(AssertionError):
        case(memory_lake, table)


def test_a_table_that_keeps_all_rows_has_all_rows_of_a_key(memory_lake):
    """Those with entries, and those of a file that the index lacks."""
    table = memory_lake.create_table("t", SCHEMA)
    memory_lake.create_index("by_a", table="t", on=["a"])
    put(table, (1, 5, "x"), (1, 5, "y"), (1, 6, "z"))
    fed(memory_lake, "by_a")
    assert keys(table, a=5) == [1, 1]
    put(table, (1, 5, "x"), (2, 5, "x"))
    assert keys(table, a=5) == [1, 1, 1, 2]


def test_values_that_no_read_takes_are_refused_with_the_remedy(memory_lake, table):
    put(table, (1, 5, "x"))
    for code, by in (
        (Code.ARGUMENT_INVALID, {}),
        (Code.ARGUMENT_INVALID, {"k": 1}),
        (Code.ARGUMENT_INVALID, {"b": "x"}),
        (Code.COLUMN_UNKNOWN, {"nope": 1}),
        (Code.KEY_NULL, {"a": None}),
        (Code.KEY_TYPE_MISMATCH, {"a": "five"}),
        (Code.KEY_NOT_REPRESENTABLE, {"a": 2**40}),
    ):
        with raises(code):
            table.get(by=by)
    index = memory_lake.table("by_a")
    for read in (lambda: index.get(5, 1), index.scan, index.count, lambda: index.at(1), index.snapshot):
        with raises(Code.INDEX_NOT_READ):
            read()
    with raises(Code.INDEX_NOT_READ):
        memory_lake.sql("SELECT * FROM by_a")
    with raises(Code.INDEX_NOT_READ):
        memory_lake.create_view_table("of_index", source="by_a", select="SELECT a, k FROM source", row_key=["a"])
    listed = memory_lake.sql("SELECT DISTINCT table_name FROM information_schema.columns").read_all().to_pylist()
    assert listed == [{"table_name": "t"}]
    with raises(Code.VIEW_READ_ONLY):
        memory_lake.table("by_a").write(pa.table({"a": [1], "k": [1]}))


def test_an_index_that_would_be_wrong_is_refused(memory_lake, table):
    sums = memory_lake.create_table("sums", SCHEMA, merge=Aggregate({"a": "sum", "b": "last"}))
    nested = memory_lake.create_table("nested", Schema({"k": "int64"}, values={"l": pa.list_(pa.int64())}))
    for code, name, on in (
        (Code.INDEX_UNFIT, sums.name, ["a"]),
        (Code.INDEX_UNFIT, nested.name, ["l"]),
        (Code.INDEX_EXISTS, "t", ["a"]),
        (Code.COLUMN_UNKNOWN, "t", ["nope"]),
        (Code.ARGUMENT_INVALID, "t", []),
        (Code.ARGUMENT_INVALID, "t", "a"),
    ):
        with raises(code):
            memory_lake.create_index("new", table=name, on=on)
    with raises(Code.ARGUMENT_INVALID):
        memory_lake.create_index("new", table="t", on=["b"], include=["a"])
    assert "new" not in memory_lake.tables()
    for change in (DropField("a"), WidenField("a", "int64")):
        with raises(Code.INDEX_UNFIT):
            table.alter(change)


@pytest.mark.parametrize("names", [["k", "k"], ["a", "a"], ["k", "a", "k"], ["a", "k"], ["b"]])
def test_columns_come_as_they_are_named_even_twice(memory_lake, names):
    """Of one row, which is looked up, and of two."""
    table = memory_lake.create_table(
        "two", Schema({"k": "int64"}, values={"a": "int64", "b": "string"}), merge=Latest()
    )
    index = memory_lake.create_index("two_by_a", table="two", on=["a"])
    table.write(pa.table({"k": [1, 2, 3], "a": [7, 8, 8], "b": ["x", "y", "z"]}))
    feed_index(index, table)
    for value in (7, 8):
        found = table.get(by={"a": value}, columns=names)
        assert found.equals(table.scan(where=f"a = {value}", columns=names).read_all())


def test_a_field_that_is_renamed_is_found_by_its_new_name(memory_lake, table):
    put(table, (1, 5, "x"))
    table.alter(RenameField("a", "n"), AddField("a", "int32"))
    fed(memory_lake)
    assert keys(table, n=5) == [1]
    with raises(Code.ARGUMENT_INVALID):
        table.get(by={"a": 5})


def test_rows_without_entries_are_decoded_once(memory_lake, table):
    put(table, (1, 5, "x"), (2, 6, "y"))
    fed(memory_lake, "by_a")
    put(table, (3, 5, "x"))
    assert keys(table, a=5) == [1, 3]
    before = READ_CACHE.stats().rows
    assert table.get(by={"a": 5}).num_rows == 2
    after = READ_CACHE.stats().rows
    assert (after.misses, after.hits > before.hits) == (before.misses, True)
    table.alter(RenameField("a", "n"), AddField("a", "int32"))
    assert keys(table, n=5) == [1, 3]
    table.reader.limits = ReadLimits(kept_rows_bytes=0)
    assert keys(table, n=5) == [1, 3]


def test_late_rows_are_kept_within_a_bound_of_decoded_bytes(memory_lake):
    """The same long text in all rows of a file takes few bytes there, and many once it is decoded."""
    table = memory_lake.create_table("t", Schema({"k": "int64"}, values={"b": "string"}), merge=First())
    memory_lake.create_index("by_b", table="t", on=["b"])
    fed(memory_lake, "by_b")
    table.write(pa.table({"k": range(1000), "b": ["b" * 10_000] * 1000}))
    assert sum(file.size_bytes for file in table.state().referenced().values()) < 100_000
    table.reader.limits = ReadLimits(kept_rows_bytes=1_000_000)
    assert table.count(by={"b": "b" * 10_000}).rows == 1000
    kept = [one for (_, name), one in READ_CACHE._entries.items() if "stored" in name]
    assert all(size_bytes <= 1_000_000 for _, size_bytes in kept)


def test_long_texts_are_compared_whole(memory_lake):
    table = memory_lake.create_table("t", Schema({"k": "int64"}, values={"b": "string"}), merge=First())
    memory_lake.create_index("by_b", table="t", on=["b"])
    long = "é" * TEXT_BYTES_MAX
    table.write(pa.table({"k": [1, 2, 3], "b": [long + "a", long + "b", "short"]}))
    fed(memory_lake, "by_b")
    assert (keys(table, b=long + "a"), keys(table, b=long), keys(table, b="short")) == ([1], [], [3])


def test_floats_are_equal_as_keys_are(memory_lake):
    table = memory_lake.create_table("t", Schema({"k": "int64"}, values={"x": "double"}))
    memory_lake.create_index("by_x", table="t", on=["x"])
    table.write(pa.table({"k": [1, 2, 3, 4], "x": [0.0, -0.0, float("nan"), None]}))
    for _ in range(2):
        assert [row["k"] for row in table.get(by={"x": 0.0}).to_pylist()] == [1, 2]
        assert [row["k"] for row in table.get(by={"x": float("nan")}).to_pylist()] == [3]
        fed(memory_lake, "by_x")


def test_an_index_goes_with_its_table_and_leaves_it(memory_lake, table):
    assert memory_lake.indexes("t") == {"by_a": ["a"], "by_b_a": ["b", "a"]}
    memory_lake.drop_index("by_a")
    assert memory_lake.indexes("t") == {"by_b_a": ["b", "a"]}
    with raises(Code.ARGUMENT_INVALID):
        memory_lake.drop_index("t")
    memory_lake.drop_table("t")
    assert memory_lake.tables() == []


def test_what_was_erased_is_in_an_index_until_it_is_built_anew(memory_lake, table):
    put(table, (1, 5, "x"), (2, 6, "y"))
    fed(memory_lake)
    rewritten(table, delete_where="k = 1")
    pipeline = Pipeline(memory_lake, launcher="this-thread")
    assert any("indexes" in text for text in pipeline.erase_report("t", where="k = 1").not_searched)
    assert [place.rows for place in pipeline.erase_report("by_a", where="k = 1").places if place.rows] == [1]
    fed(memory_lake, anew=True)
    found = pipeline.erase_report("by_a", where="k = 1").places
    assert {place.live_rows for place in found} == {0}


def test_many_outdated_entries_have_an_index_built_anew(memory_lake, table):
    put(table, *[(k, k, "x") for k in range(4)])
    fed(memory_lake, "by_a")
    variant = instead(index_feed, "STALE_ROWS", 3)
    with planted(variant):
        for turn in range(1, 4):
            put(table, *[(k, 10 * turn + k, "x") for k in range(4)])
            compact(table)
            fed(memory_lake, "by_a")
    entries = sum(file.rows for file in memory_lake.table("by_a").state().referenced().values())
    assert entries <= 4 * 1.5 + 3
    assert keys(table, a=31) == [1]


def test_predicates_that_need_a_value_use_the_index(memory_lake):
    table = memory_lake.create_table("t", SCHEMA, merge=Latest())
    memory_lake.create_index("by_a", table="t", on=["a"])
    rows = 5_000
    table.write(
        pa.table({"k": range(rows), "a": pa.array([k % 500 for k in range(rows)], pa.int32()), "b": ["x"] * rows})
    )
    fed(memory_lake, "by_a")
    table.write(pa.table({"k": [7, rows], "a": pa.array([8, 7], pa.int32()), "b": ["new", "new"]}))
    of_7 = [*range(507, rows, 500), rows]
    of_7_or_8 = sorted([7, *of_7, *range(8, rows, 500)])
    for where, wanted in (
        ("a = 7", of_7),
        ("a = 7 AND b = 'new'", [rows]),
        ("a IN (7, 8)", of_7_or_8),
        ("(a = 7 AND k > 600) OR a = 8", [k for k in of_7_or_8 if k > 507 or k % 500 == 8 or k == 7]),
        ("a = 7 AND k = 1", []),
    ):
        assert [row["k"] for row in table.scan(where=where, columns=["k"]).read_all().to_pylist()] == wanted
        assert sorted(memory_lake.sql(f"SELECT k FROM t WHERE {where}").read_all()["k"].to_pylist()) == wanted
        explained = table.explain(where=where)
        assert explained.keys_by_index is not None
        assert f"{explained.keys_by_index:,} keys that may have such rows" in str(explained)
    assert table.scan(where="a < 2").read_all().num_rows == 20
    for where in ("a = 7 OR b = 'new'", "a < 2", "a <> 7", "b = 'new'"):
        assert table.explain(where=where).keys_by_index is None


def test_an_index_whose_files_were_collected_meanwhile_is_read_again(tmp_path):
    """A reader that knows an older state of the index looks for a newer one."""
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA, merge=Latest())
    lake.create_index("by_a", table="t", on=["a"])
    put(table, (1, 5, "x"))
    fed(lake, "by_a")
    put(table, (2, 5, "x"))
    fed(lake, "by_a")
    reader = lakebed.open(lake.url)["t"]
    assert keys(reader, a=5) == [1, 2]
    index = lake.table("by_a")
    fed(lake, "by_a", anew=True)
    index.set(history_s=0)
    assert collect_garbage(index).files
    bytes_max = READ_CACHE.stats().bytes_max
    READ_CACHE.limit(0)
    READ_CACHE.limit(bytes_max)
    assert keys(reader, a=5) == [1, 2]


def test_an_index_has_no_filter_and_no_index(memory_lake, table):
    with raises(Code.FILTER_CHANGE_REJECTED):
        memory_lake.table("by_a").alter(SetFilter("a > 3"))
    with raises(Code.INDEX_UNFIT):
        memory_lake.create_index("of_it", table="by_a", on=["a"])


def test_a_table_with_a_damaged_log_and_its_index_can_be_dropped(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA)
    lake.create_index("by_a", table="t", on=["a"])
    lake.close()
    folder = tmp_path / "lake" / "tables" / table.id
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    entry = min((folder / "log").glob("*.ndjson"))
    entry.write_bytes(entry.read_bytes()[:-9])
    lake = lakebed.open(lake.url)
    with raises(Code.ENTRY_DAMAGED):
        lake["t"].state()
    lake.drop_index("by_a")
    with raises(Code.ENTRY_DAMAGED):
        lake.drop_table("t")
    assert lake.tables() == []
