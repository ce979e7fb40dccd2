"""Row encoders: what the rows of a source become before they are stored, for each operation."""

import pyarrow as pa
import pytest

from lakebed import Aggregate, First, KeepAll, Latest, Schema
from lakebed.errors import Code, SchemaMismatchError, UsageError
from lakebed.model.row_kinds import KIND, RowKind, presence_name
from lakebed.model.schema import Field, Generated
from lakebed.write.conformer import REASON, Conformer, default_column
from lakebed.write.row_encoder import DELETE, LETTERS, UPSERT, Action, Operation, RowEncoder

SCHEMA = Schema({"k": "string"}, {"at": "int64"}, {"a": "int64", "b": pa.field("b", pa.string(), nullable=False)})
HAS_A, HAS_B = (presence_name(SCHEMA.by_name[name]) for name in "ab")
PARTIAL = Operation(Action.PARTIAL)
BY_OP = Operation(row_kind="op")


def encoder(operation=UPSERT, mode=None, schema=SCHEMA, **how):
    return RowEncoder(Conformer(schema, **how), mode or Latest(), operation)


def encoded(rows, *args, **how):
    batch = rows.combine_chunks().to_batches()[0]
    made = encoder(*args, **how)
    made.check(batch.schema, "rows")
    return made.conform(batch, "rows").to_pylist()


def refused(rows, code, *args, **how):
    with pytest.raises(SchemaMismatchError) as caught:
        encoded(rows, *args, **how)
    assert caught.value.code is code
    return str(caught.value)


def test_an_upsert_has_no_hidden_column():
    rows = pa.table({"b": ["x"], "at": [1], "k": ["a"]})
    assert encoded(rows) == [{"k": "a", "at": 1, "a": None, "b": "x"}]
    assert encoder().schema is SCHEMA


def test_a_partial_row_says_which_columns_its_source_has():
    rows = pa.table({"k": ["a"], "at": [1], "b": ["x"]})
    (row,) = encoded(rows, PARTIAL)
    assert row == {"k": "a", "at": 1, "a": None, "b": "x", KIND: RowKind.PARTIAL, HAS_A: False, HAS_B: True}


def test_a_null_that_a_partial_row_gives_is_not_a_column_that_it_lacks():
    rows = pa.table({"k": ["a"], "at": [1], "a": pa.array([None], pa.int64()), "b": ["x"]})
    assert encoded(rows, PARTIAL)[0][HAS_A] is True


def test_a_partial_row_needs_every_field_that_may_not_be_null():
    assert "missing column b" in refused(pa.table({"k": ["a"], "at": [1]}), Code.COLUMN_MISSING, PARTIAL)


def test_a_partial_row_needs_what_its_key_is_generated_from():
    schema = Schema(
        {"k": "string", "day": Generated("date32", "cast(at as date)")}, {}, {"at": "timestamp[us]", "a": "int64"}
    )
    schema = checked(schema)
    said = refused(pa.table({"k": ["a"], "a": [1]}), Code.COLUMN_MISSING, PARTIAL, schema=schema)
    assert "of which day is generated" in said


def checked(schema):
    from lakebed.engine.computed_columns import checked

    return checked(schema)


def test_a_delete_keeps_its_key_alone_and_has_defaults_where_null_is_not_allowed():
    rows = pa.table({"k": ["a"], "a": [7]})
    (row,) = encoded(rows, DELETE)
    assert row == {"k": "a", "at": 0, "a": None, "b": "", KIND: RowKind.DELETE, HAS_A: None, HAS_B: None}


def test_a_delete_by_sort_key_needs_the_sort_key():
    by_sort_key = Latest(by="sort_key")
    said = refused(pa.table({"k": ["a"]}), Code.COLUMN_MISSING, DELETE, by_sort_key)
    assert "need the column at" in said
    assert "delete(where=" in said
    (row,) = encoded(pa.table({"k": ["a"], "at": [4]}), DELETE, by_sort_key)
    assert (row["at"], row["b"]) == (4, "")


def test_a_delete_takes_a_generated_key_or_what_it_is_generated_from():
    day = Generated("string", "substr(name, 1, 1)")
    schema = checked(Schema({"first": day}, {}, {"name": pa.field("name", pa.string(), nullable=False)}))
    assert encoded(pa.table({"first": ["x"]}), DELETE, schema=schema)[0]["first"] == "x"
    assert encoded(pa.table({"name": ["xy"]}), DELETE, schema=schema)[0]["first"] == "x"
    said = refused(pa.table({"first": ["z"], "name": ["xy"]}), Code.GENERATED_VALUE_MISMATCH, DELETE, schema=schema)
    assert "first" in said
    refused(pa.table({"other": ["z"]}), Code.COLUMN_MISSING, DELETE, schema=schema)


def test_a_column_of_no_field_is_refused_by_every_operation():
    for operation in (UPSERT, PARTIAL, DELETE):
        rows = pa.table({"k": ["a"], "at": [1], "b": ["x"], "c": [1]})
        said = refused(rows, Code.COLUMN_UNEXPECTED, operation)
        assert "extra column c; the table has k, at, a, b" in said


@pytest.mark.parametrize("operation", [PARTIAL, DELETE, BY_OP])
def test_a_hidden_column_of_a_source_is_refused(operation):
    rows = pa.table({"k": ["a"], "at": [1], "b": ["x"], "op": ["c"], KIND: pa.array([2], pa.int8())})
    assert "reserved" in refused(rows, Code.COLUMN_UNEXPECTED, operation)


def test_row_kinds_of_debezium_and_paimon_in_the_order_of_the_rows():
    letters = ["c", "r", "u", "d", "+I", "-U", "+U", "-D"]
    assert set(letters) == set(LETTERS)
    rows = pa.table({"op": letters, "k": list("abcdefgh"), "at": [1] * 8, "a": range(8), "b": list("ABCDEFGH")})
    found = [(row["k"], row[KIND], row["a"], row["b"]) for row in encoded(rows, BY_OP)]
    assert found == [
        ("a", 0, 0, "A"), ("b", 0, 1, "B"), ("c", 0, 2, "C"), ("d", 2, None, ""), ("e", 0, 4, "E"), ("g", 0, 6, "G"),
        ("h", 2, None, ""),
    ]  # fmt: skip


def test_a_delete_among_others_may_be_null_in_every_column_but_its_key():
    rows = pa.table(
        {"op": ["d", "c"], "k": ["a", "b"], "at": [None, 1], "a": [None, 1], "b": pa.array([None, "x"], pa.string())}
    )
    assert [row[KIND] for row in encoded(rows, BY_OP)] == [2, 0]
    assert [row[KIND] for row in encoded(pa.table({"op": ["d"], "k": ["a"]}), BY_OP)] == [2]
    assert "column b is null" in refused(
        pa.table({"op": ["d", "c"], "k": ["a", "b"], "at": [1, 1]}), Code.VALUE_NULL, BY_OP
    )
    null_key = pa.table({"op": ["d"], "k": pa.array([None], pa.string()), "at": [1], "b": ["x"]})
    assert "column k is null" in refused(null_key, Code.VALUE_NULL, BY_OP)
    whole = pa.table({"op": ["c"], "k": ["a"], "at": [1], "b": pa.array([None], pa.string())})
    assert "column b is null" in refused(whole, Code.VALUE_NULL, BY_OP)
    by_sort_key = rows.set_column(2, "at", pa.array([None, 1], pa.int64()))
    assert "column at is null" in refused(by_sort_key, Code.VALUE_NULL, BY_OP, Latest(by="sort_key"))


def test_updates_among_row_kinds_may_be_partial():
    rows = pa.table({"op": ["u", "d"], "k": ["a", "b"], "at": [1, 1], "b": ["x", None]})
    first, second = encoded(rows, Operation(Action.PARTIAL, "op"))
    assert (first[KIND], first[HAS_A], first[HAS_B]) == (RowKind.PARTIAL, False, True)
    assert second[KIND] == RowKind.DELETE


@pytest.mark.parametrize("letter", ["x", "C", "", None])
def test_an_unknown_row_kind_is_refused_with_its_row(letter):
    rows = pa.table({"op": pa.array(["c", letter]), "k": ["a", "b"], "at": [1, 1], "b": ["x", "y"]})
    said = refused(rows, Code.VALUE_INVALID, BY_OP)
    assert "first row 1" in said
    assert "c, r, u, d, +I, +U, -U, -D" in said


def test_rows_of_an_unknown_kind_are_put_aside_with_all_their_columns():
    rows = pa.table({"op": ["c", "x", "c"], "k": ["a", "b", None], "at": [1, 1, 1], "b": ["x", "y", "z"]})
    kept, rejected = encoder(BY_OP).separate(rows.to_batches()[0], "rows")
    assert kept.column("k").to_pylist() == ["a"]
    assert {row["k"]: row["op"] for part in rejected for row in part.to_pylist()} == {"b": "x", None: "c"}
    assert all(KIND not in part.schema.names and REASON in part.schema.names for part in rejected)


def test_the_column_of_row_kinds_must_be_one_column_of_text():
    rows = pa.table({"k": ["a"], "at": [1], "b": ["x"]})
    assert "there must be one column op" in refused(rows, Code.COLUMN_MISSING, BY_OP)
    assert "row kinds are text" in refused(rows.append_column("op", [[1]]), Code.COLUMN_TYPE_MISMATCH, BY_OP)
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        column = pa.chunked_array([pa.array(["d"]).cast(kind)])
        assert encoded(rows.append_column("op", column), BY_OP)[0][KIND] == RowKind.DELETE


def test_a_row_whose_kind_is_too_large_is_refused_as_any_other():
    rows = pa.table({"op": ["c" * 9000], "k": ["a"], "at": [1], "b": ["x"]})
    kinds = rows.set_column(0, "op", [["c"]]).append_column("extra", [["y" * 9000]])
    made = encoder(BY_OP, value_bytes_max=4096)
    with pytest.raises(SchemaMismatchError, match="no row kind"):
        made.conform(rows.to_batches()[0], "rows")
    ignoring = RowEncoder(Conformer(SCHEMA, value_bytes_max=4096, ignored=frozenset({"extra"})), Latest(), BY_OP)
    with pytest.raises(SchemaMismatchError, match="most of them in column extra") as caught:
        ignoring.conform(kinds.to_batches()[0], "rows")
    assert caught.value.code is Code.ROW_TOO_LARGE


def test_a_column_of_row_kinds_is_stored_if_the_table_has_its_field():
    schema = Schema({"k": "string"}, {}, {"op": "string"})
    (row, delete) = encoded(pa.table({"k": ["a", "b"], "op": ["c", "d"]}), BY_OP, schema=schema)
    assert (row["op"], delete["op"]) == ("c", "d")


def test_a_missing_column_of_counts_counts_rows():
    schema = Schema({"k": "string"}, {}, {"n": "int64", "s": "int64"})
    mode = Aggregate({"n": "count", "s": "sum"})
    assert encoded(pa.table({"k": ["a", "b"], "s": [5, 6]}), UPSERT, mode, schema) == [
        {"k": "a", "n": 1, "s": 5}, {"k": "b", "n": 1, "s": 6},
    ]  # fmt: skip
    assert encoded(pa.table({"k": ["a"], "n": [4]}), UPSERT, mode, schema)[0]["n"] == 4


@pytest.mark.parametrize("mode", [KeepAll(), First(), Aggregate({"a": "sum", "b": "last"})])
@pytest.mark.parametrize("operation", [PARTIAL, DELETE, BY_OP])
def test_only_latest_takes_markers(mode, operation):
    with pytest.raises(UsageError) as caught:
        encoder(operation, mode)
    assert caught.value.code is Code.MERGE_MODE_MISMATCH
    assert "merge=Latest()" in str(caught.value)


MEMBERS = [pa.field("x", pa.int8(), nullable=False), pa.field("y", pa.int8())]
TYPES = [
    pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.binary(3), pa.date32(),
    pa.timestamp("us", "UTC"), pa.time64("ns"), pa.decimal128(5, 2), pa.list_(pa.int8()),
    pa.map_(pa.string(), pa.int8()), pa.struct(MEMBERS),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_has_a_default_value(kind):
    column = default_column(kind, 2)
    assert column.type == kind
    assert (len(column), column.null_count) == (2, 0)
    schema = Schema({"k": "string"}, {}, [Field(2, "v", kind)])
    assert encoded(pa.table({"k": ["a"]}), DELETE, schema=schema)[0]["v"] == column[0].as_py()
