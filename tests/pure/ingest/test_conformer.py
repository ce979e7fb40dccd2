"""What comes in: columns of other names, casts, and rows that are rejected with the reason."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lakebed import BadKeyError, Schema, SchemaMismatchError, UsageError
from lakebed.write.conformer import REASON, SOURCE, Conformer

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "double"})


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def test_a_field_is_read_from_the_column_that_was_named():
    """And the column's own name is then no field's."""
    conformer = Conformer(SCHEMA, {"k": "Customer Id", "v": "n2"})
    given = batch(n2=[0.5], n=pa.array([7], pa.int64()), **{"Customer Id": ["a"]})
    assert conformer.conform(given, "here").to_pylist() == [{"k": "a", "n": 7, "v": 0.5}]
    with pytest.raises(SchemaMismatchError, match=r"missing column Customer Id; .* k from column Customer Id"):
        conformer.conform(batch(k=["a"], n=[7], n2=[0.5]), "here")


def test_one_column_may_be_read_as_two_fields():
    """A number and its text, say."""
    conformer = Conformer(SCHEMA, {"k": "n"}, frozenset({"k"}))
    assert conformer.conform(batch(n=[7], v=[0.5]), "here").to_pylist() == [{"k": "7", "n": 7, "v": 0.5}]


@pytest.mark.parametrize("wrong", [{"columns": {"x": "n"}}, {"casts": frozenset({"x"})}])
def test_a_column_or_cast_for_no_field_is_refused(wrong):
    with pytest.raises(UsageError, match="no field 'x'; the table has k, n, v"):
        Conformer(SCHEMA, **wrong)


def test_a_cast_that_was_not_asked_for_is_refused_and_proposed():
    given = batch(k=["a"], n=["7"], v=[0.5])
    with pytest.raises(SchemaMismatchError, match=r"column n is string; .* int64.* only if asked: casts=\[.n.\]"):
        Conformer(SCHEMA).conform(given, "here")
    assert Conformer(SCHEMA, casts=frozenset({"n"})).conform(given, "here").column("n").to_pylist() == [7]


def test_a_cast_that_there_is_not_is_refused():
    given = batch(k=["a"], n=[b"7"], v=[0.5])
    with pytest.raises(SchemaMismatchError, match="column n is binary; the table has int64, and no cast makes it one"):
        Conformer(SCHEMA, casts=frozenset({"n"})).conform(given, "here")


DAY, MOMENT = dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 10, 30, tzinfo=dt.UTC)
UTC_S, UTC_US = pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")
NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "given", "wanted", "expected"),
    [
        (pa.string(), ["7", "-8", "x", "", "7.5", "9999999999"], pa.int32(), [7, -8, None, None, None, None]),
        (pa.string(), ["0.5", "1e3", "x"], pa.float64(), [0.5, 1000.0, None]),
        (pa.string(), ["true", "no!"], pa.bool_(), [True, None]),
        (pa.string(), ["1.5", "1.555", "1.550"], pa.decimal128(9, 2), [Decimal("1.50"), None, Decimal("1.55")]),
        (pa.string(), ["2020-02-29", "2020-02-30", "2020-02-29T01:00:00"], pa.date32(), [DAY, None, None]),
        (pa.string(), ["2020-02-29T10:30:00Z", "2020-02-29 12:30:00+02:00", "soon"], UTC_US, [MOMENT, MOMENT, None]),
        (pa.string(), ["2020-02-29T10:30:00", "2020-02-29T10:30:00.5"], UTC_S, [MOMENT, None]),
        (pa.dictionary(pa.int8(), pa.string()), ["7", "x"], pa.int64(), [7, None]),
        (pa.float64(), [7.0, 7.5, NAN, 2.0**63], pa.int64(), [7, None, None, None]),
        (pa.float64(), [0.5, 0.1], pa.float32(), [0.5, None]),
        (pa.int64(), [7, 300, -1], pa.uint8(), [7, None, None]),
        (pa.int64(), [2**53, 2**53 + 1], pa.float64(), [2.0**53, None]),
        (pa.decimal128(9, 2), [Decimal("2.00"), Decimal("2.50")], pa.int32(), [2, None]),
        (pa.date32(), [DAY], pa.timestamp("us"), [dt.datetime(2020, 2, 29)]),  # noqa: DTZ001 - it has no zone
        (pa.int64(), [7], pa.string(), ["7"]),
        (pa.date32(), [DAY], pa.string(), ["2020-02-29"]),
    ],
    ids=str,
)
def test_a_cast_keeps_each_value_or_says_which_it_cannot(kind, given, wanted, expected):
    """The others are not touched by it."""
    schema = Schema({"k": "string"}, values={"v": wanted})
    conformer = Conformer(schema, casts=frozenset({"v"}))
    rows = pa.RecordBatch.from_arrays([pa.array(["k"] * len(given)), pa.array(given, kind)], names=["k", "v"])
    kept, rejected = conformer.separate(rows, "here")
    assert kept.column("v").to_pylist() == [value for value in expected if value is not None]
    lost = [value for value, made in zip(given, expected, strict=True) if made is None]
    assert [str(value) for part in rejected for value in part.column("v").to_pylist()] == list(map(str, lost))
    if lost:
        with pytest.raises(SchemaMismatchError, match=f"{len(lost)} of {len(given)} rows"):
            conformer.conform(rows, "here")


def test_a_cast_keeps_nulls_and_nan():
    """Neither is a value that was lost."""
    conformer = Conformer(Schema({"k": "string"}, values={"v": "float"}), casts=frozenset({"v"}))
    rows = batch(k=["a", "b"], v=pa.array([None, NAN]))
    assert str(conformer.conform(rows, "here").column("v").to_pylist()) == "[None, nan]"


@pytest.mark.parametrize("kinds", [("us", "s"), ("s", "us"), ("ns", "ms")])
def test_another_unit_of_time_is_taken_by_itself_if_it_keeps_each_value(kinds):
    """Parquet has no seconds, and Spark nothing but microseconds."""
    finer, field = kinds
    schema = Schema({"k": "string"}, values={"at": pa.timestamp(field)})
    whole = pa.array([5, 86_400], pa.timestamp("s")).cast(pa.timestamp(finer))
    assert Conformer(schema).conform(batch(k=["a", "b"], at=whole), "x").column("at").cast("timestamp[s]").cast(
        "int64"
    ).to_pylist() == [5, 86_400]


def test_a_time_finer_than_the_field_is_refused():
    """Nothing is rounded unasked."""
    schema = Schema({"k": "string"}, values={"at": pa.timestamp("s")})
    given = batch(k=["a", "b"], at=pa.array([1_000_000, 1_500_000], pa.timestamp("us")))
    with pytest.raises(SchemaMismatchError, match=r"column at is timestamp\[us\] .* cannot keep; 1 of 2 .* row 1: "):
        Conformer(schema).conform(given, "here")


def test_rows_that_do_not_fit_are_rejected_with_the_reason_and_the_others_are_kept():
    """Each once, as it came, whatever else is wrong with it."""
    schema = Schema({"k": "string"}, {"n": "int64"}, {"w": pa.field("w", pa.float64(), False)})
    given = batch(
        k=["a", None, "b", "x" * 9000, None, "c"],
        n=["1", "2", "two", "4", "five", "6"],
        w=[0.5, 0.5, 0.5, 0.5, None, None],
    )
    kept, rejected = Conformer(schema, casts=frozenset({"n"})).separate(given, "part-7")
    assert kept.to_pylist() == [{"k": "a", "n": 1, "w": 0.5}]
    assert kept.schema == schema.arrow
    reasons = {row["n"]: row[REASON] for part in rejected for row in part.to_pylist()}
    assert reasons == {
        "2": "column k is null, and is not nullable",
        "five": "column k is null, and is not nullable",
        "two": "column n is string and holds a value that int64 cannot keep",
        "6": "column w is null, and is not nullable",
        "4": "the key is too long; at most 8192 bytes are allowed when encoded",
    }
    assert {row[SOURCE] for part in rejected for row in part.to_pylist()} == {"part-7"}
    assert sum(part.num_rows for part in rejected) == 5


def test_text_of_another_form_than_usual_is_rejected_unless_its_field_is_to_be_cast():
    schema = Schema({"k": "string"}, values={"n": "int64", "m": "int64"})
    rows = batch(k=["a", "b", "c", "d"], n=["7", "007", "0x1f", None], m=["007", "7", "7", "7"])
    conformer = Conformer(schema, casts=frozenset(["n", "m"]), usual=frozenset(["n"]))
    kept, rejected = conformer.separate(rows, "rows")
    assert kept.to_pylist() == [{"k": "a", "n": 7, "m": 7}, {"k": "d", "n": None, "m": 7}]
    assert [row["k"] for part in rejected for row in part.to_pylist()] == ["b", "c"]
    with pytest.raises(SchemaMismatchError, match=r"column n holds text that is not int64 .* row 1: '007'.*--cast n"):
        conformer.conform(rows, "rows")


def test_columns_that_do_not_fit_are_no_rows_to_reject():
    """Then none would fit."""
    with pytest.raises(SchemaMismatchError, match="missing column n"):
        Conformer(SCHEMA).separate(batch(k=["a"], v=[1.0]), "here")


def test_a_long_key_is_named_without_a_quarantine():
    with pytest.raises(BadKeyError, match="the key is too long"):
        Conformer(SCHEMA).conform(batch(k=["x" * 9000], n=[1], v=[0.5]), "here")


# -- large values -----------------------------------------------------------------------------------------------

LARGE = Schema({"k": "int64"}, values={"v": "string", "tags": pa.list_(pa.string())})


def large_rows(*sizes):
    return pa.record_batch({"k": range(len(sizes)), "v": ["x" * n for n in sizes], "tags": [["t"]] * len(sizes)})


def test_a_value_above_the_limit_is_refused_with_column_row_and_size():
    conformer = Conformer(LARGE, value_bytes_max=8192)
    assert conformer.conform(large_rows(1, 8000), "here").num_rows == 2
    with pytest.raises(SchemaMismatchError, match=r"here: the row takes 90\d\d bytes, most of them in column v.*8192"):
        conformer.conform(large_rows(1, 2, 9000), "here")
    tags = pa.record_batch({"k": [1], "v": ["x"], "tags": [["t" * 100] * 100]})
    with pytest.raises(SchemaMismatchError, match="most of them in column tags"):
        conformer.conform(tags, "here")


def test_rows_above_the_limit_are_put_aside_without_their_large_values():
    kept, rejected = Conformer(LARGE, value_bytes_max=8192).separate(large_rows(1, 9000, 2, 20_000), "here")
    assert kept.column("k").to_pylist() == [0, 2]
    assert [part.column("k").to_pylist() for part in rejected] == [[1, 3]]
    assert rejected[0].column("v").to_pylist() == [None, None]
    assert "value_bytes_max" in rejected[0].column(REASON)[0].as_py()


def test_references_to_a_large_value_are_judged_before_they_are_followed():
    """A list of a million of them would be a terabyte."""
    value = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1_000_000, np.int32)), pa.array(["x" * 1_000_000]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1_000_000], pa.int32()), value)
    rows = pa.record_batch({"k": [1], "v": ["x"], "tags": lists})
    with pytest.raises(SchemaMismatchError, match="the row takes 1000004000"):
        Conformer(LARGE).conform(rows, "here")
    _, (rejected,) = Conformer(LARGE).separate(rows, "here")
    assert rejected.column("tags").to_pylist() == [None]
