"""Schemas: what is allowed, what survives a round trip, and how rows are made to fit or refused."""

import datetime as dt
import json
import pickle
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from lakebed import BadKeyError, Schema, SchemaMismatchError, UsageError
from lakebed.write.conformer import Conformer

NESTED = {
    "flag": "bool",
    "price": "decimal128(10, 2)",
    "tags": pa.list_(pa.string()),
    "place": pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.float64(), nullable=False)]),
    "counts": pa.map_(pa.string(), pa.int64()),
    "raw": "fixed_size_binary[4]",
    "at": "timestamp[ns, tz=Europe/Berlin]",
    "small": "int8",
    "half": "float16",
}


def test_a_schema_survives_json_and_pickle_with_its_ids():
    """Everything, nested types and nullability included."""
    schema = Schema({"k": "string"}, {"t": "timestamp[us, tz=UTC]"}, NESTED | {"n": pa.field("n", pa.int32(), False)})
    assert Schema.from_json(json.dumps(schema.to_json())) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert [f.id for f in schema.fields] == list(range(1, len(schema.fields) + 1))
    assert schema.arrow.field("k").metadata == {b"PARQUET:field_id": b"1"}


def test_from_arrow_takes_one_layout_for_text():
    """Large and view types become the plain ones, in dictionaries too; other columns keep their nullability."""
    arrow = pa.schema(
        [
            ("k", pa.large_string()),
            ("d", pa.dictionary(pa.int8(), pa.large_string())),
            ("l", pa.large_list(pa.large_binary())),
        ]
    )
    schema = Schema.from_arrow(arrow, ["k"])
    assert [str(f.type) for f in schema.fields] == ["string", "string", "list<item: binary>"]
    assert [f.dictionary for f in schema.fields] == [False, True, False]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Schema({}), "at least one row key"),
        (lambda: Schema({"k": "float16"}), "is halffloat; keys are"),
        (lambda: Schema({"k": "list<string>"}), "is list<string>; keys are"),
        (lambda: Schema({"k": "fixed_size_binary[9000]"}), "at most 8192 bytes"),
        (lambda: Schema({"k": "nonsense"}), "not a type"),
        (lambda: Schema({"k": "string"}, values={"k": "int64"}), "unique"),
        (lambda: Schema({"": "string"}), "not empty"),
        (lambda: Schema({"k": pa.field("k", pa.string())}), "nullable"),
        (lambda: Schema({"k": "string"}, values={"v": pa.month_day_nano_interval()}), "cannot be"),
        (lambda: Schema.from_arrow(pa.schema([("a", pa.string())]), ["b"]), "not in the data"),
        (lambda: Schema.from_json("[]"), "not a schema"),
        (lambda: Schema.from_json('{"row_key": {"k": "string"}, "keys": {}}'), "keys"),
        (lambda: Schema({"k": "string"}).project(["v"]), "unknown column 'v'"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(make, says):
    """With a message that names what."""
    with pytest.raises(UsageError, match=says):
        make()


SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "float64", "w": pa.field("w", pa.list_(pa.int32()), False)})


def batch(**columns):
    base = {
        "k": pa.array(["a"]),
        "n": pa.array([1], pa.int64()),
        "v": pa.array([0.5]),
        "w": pa.array([[1]], pa.list_(pa.int32())),
    }
    return pa.RecordBatch.from_pydict({name: col for name, col in (base | columns).items() if col is not None})


def test_rows_fit_in_any_order_and_from_any_layout_that_loses_nothing():
    """Order of columns, large and dictionary text, narrower numbers; NaN is kept."""
    given = batch(
        k=pa.array(["a"]).dictionary_encode(),
        n=pa.array([7], pa.uint32()),
        v=pa.array([float("nan")], pa.float32()),
        w=pa.array([[1]], pa.large_list(pa.int16())),
    ).select(["w", "v", "n", "k"])
    fitted = Conformer(SCHEMA).conform(given, "here")
    assert fitted.schema == SCHEMA.arrow
    assert fitted.column("n").to_pylist() == [7]
    assert str(fitted.column("v")[0]) == "nan"


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ({"n": None}, SchemaMismatchError, "missing column n"),
        ({"x": pa.array([1])}, SchemaMismatchError, "extra column x"),
        ({"n": pa.array([1.5])}, SchemaMismatchError, "column n is double and holds a value that int64 cannot keep"),
        ({"n": pa.array([2**63], pa.uint64())}, SchemaMismatchError, "column n is uint64 and holds a value"),
        ({"n": pa.array(["1"])}, SchemaMismatchError, "column n is string; the table has int64"),
        ({"k": pa.array([None], pa.string())}, SchemaMismatchError, "column k is null, and is not nullable"),
        ({"w": pa.array([None], pa.list_(pa.int32()))}, SchemaMismatchError, "column w is null"),
        ({"k": pa.array(["x" * 9000])}, BadKeyError, "first row 0: 'xxx"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_their_source(columns, error, says):
    """Naming the column, both types and where the rows came from."""
    with pytest.raises(error, match=says) as caught:
        Conformer(SCHEMA).conform(batch(**columns), "part-7.parquet")
    assert "part-7.parquet" in str(caught.value)


def test_duplicate_columns_are_refused():
    """Neither of the two could be meant."""
    twice = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["k", "k"])
    with pytest.raises(UsageError, match="duplicate column k"):
        Conformer(Schema({"k": "string"})).conform(twice, "here")


def test_a_long_key_of_zero_bytes_counts_escaped():
    """5,000 zero bytes take 10,000 when encoded."""
    rows = pa.RecordBatch.from_pydict({"k": pa.array([b"a", b"\x00" * 5000])})
    with pytest.raises(BadKeyError, match="row 1"):
        Conformer(Schema({"k": "binary"})).conform(rows, "here")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int64", "-5", -5),
        ("date32", "2020-02-29", dt.date(2020, 2, 29)),
        ("timestamp[s, tz=UTC]", "2020-01-01T00:00:00", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("binary", "00ff", b"\x00\xff"),
        ("string", "007", "007"),
        ("bool", "true", True),
        ("uint64", "18446744073709551615", 2**64 - 1),
        ("double", "-inf", float("-inf")),
        ("decimal128(10, 2)", "1.50", Decimal("1.5")),
        ("time64[us]", "12:30:00", dt.time(12, 30)),
        ("time64[ns]", "12:30:00.123456789", 45_000_123_456_789),
        ("fixed_size_binary[2]", "00ff", b"\x00\xff"),
        ("uuid", "6f9619ff-8b86-d011-b42d-00c04fc964ff", UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")),
    ],
)
def test_key_values_are_read_from_a_command_line(kind, text, value):
    """By the field's type."""
    assert Schema({"k": kind}).row_key[0].parse(text) == value


def test_decimals_widen_only_where_every_digit_is_kept():
    """More digits before and after the point, never fewer."""
    schema = Schema({"k": "string"}, values={"p": "decimal128(10, 2)"})
    rows = pa.RecordBatch.from_pydict({"k": ["a"], "p": pa.array([Decimal("1.5")], pa.decimal128(4, 1))})
    assert Conformer(schema).conform(rows, "here").column("p").to_pylist() == [Decimal("1.50")]
    with pytest.raises(SchemaMismatchError, match="column p"):
        Conformer(schema).conform(rows.set_column(1, "p", pa.array([Decimal("1.555")])), "here")
