"""Rows of any Python object through ``Table.write``: what is taken, what is converted, and what is refused how."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import NamedTuple

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pydantic
import pytest

import lakebed
from lakebed import Schema, SchemaMismatchError, UsageError
from lakebed.clock import new_id
from tests.soaked import few

ROWS = [{"id": 1, "name": "a", "n": 10, "x": 0.5}, {"id": 2, "name": None, "n": 20, "x": 2.0}]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


def new_instance():
    return lakebed.create(f"memory://{new_id()}")


@dataclasses.dataclass
class Point:
    id: int
    name: str | None
    n: int
    x: float


class Model(pydantic.BaseModel):
    id: int
    name: str | None
    n: int
    x: float


@pytest.fixture
def table():
    schema = Schema({"id": "int64"}, values={"name": "string", "n": "int32", "x": "double"})
    return new_instance().create_table("t", schema)


def generated():
    yield from ROWS


def frame():
    return pd.DataFrame(COLUMNS)


def relation():
    given = pa.table(COLUMNS)
    return duckdb.from_arrow(given)


@pytest.mark.parametrize(
    "data",
    [
        pa.table(COLUMNS),
        pa.table(COLUMNS).to_batches()[0],
        ds.dataset(pa.table(COLUMNS)),
        ds.dataset(pa.table(COLUMNS)).scanner(),
        frame(),
        frame()[["x", "n", "name", "id"]].iloc[::-1],
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).lazy(),
        relation(),
        COLUMNS,
        {name: np.array(values) if name != "name" else values for name, values in COLUMNS.items()},
        ROWS,
        [Point(**row) for row in ROWS],
        [Model(**row) for row in ROWS],
        generated(),
        (pa.RecordBatch.from_pylist([row]) for row in ROWS),
        (pl.DataFrame([row]) for row in ROWS),
    ],
    ids=lambda data: type(data).__module__ + "." + type(data).__name__,
)
def test_rows_of_any_kind_of_object_are_written(table, data):
    table.write(data)
    assert table.to_arrow().to_pylist() == ROWS


def test_rows_may_lack_nullable_fields_one_by_one(table):
    table.write([{"id": 1}, {"id": 2, "name": "b"}, {"n": 7, "id": 3}])
    assert table.to_arrow().column("n").to_pylist() == [None, None, 7]
    assert table.write([]) == table.version


def test_chunks_of_a_generator_may_have_other_types(table):
    table.write({"id": i, "x": i if i < 10_000 else i + 0.5} for i in range(10_002))
    assert table.get(10_001).column("x").to_pylist() == [10_001.5]


def test_pandas_nulls_are_nulls_and_its_floats_become_integers(table):
    table.write(pd.DataFrame({"id": [1, 2], "n": [7.0, np.nan], "name": ["a", np.nan]}))
    assert table.to_arrow().select(["n", "name"]).to_pylist() == [{"n": 7, "name": "a"}, {"n": None, "name": None}]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("int32", pa.array([1, -5], "int64")),
        ("uint8", pa.array([1.0, 255.0])),
        ("float", pa.array([1, 16_777_216])),
        ("decimal128(5, 2)", pa.array([1, 999])),
        ("date32", pa.array([0, 86_400_000_000], pa.timestamp("us"))),
        ("timestamp[us]", pa.array([0, 1], "date32")),
        ("timestamp[s, tz=UTC]", pa.array([0, 10**9], pa.timestamp("ns", "Europe/Berlin"))),
        ("string", pa.array(["a", "b"], pa.large_string())),
        ("string", pa.array(["a", "b"], pa.string_view())),
        ("string", pa.array(["a", "b"]).dictionary_encode()),
        (pa.list_(pa.int32()), pa.array([[1], [2, 3]], pa.large_list(pa.int64()))),
    ],
    ids=str,
)
def test_values_are_converted_where_each_is_kept(field, values):
    table = new_instance().create_table("t", Schema({"id": "int64"}, values={"v": field}))
    table.write(pa.table({"id": [1, 2], "v": values}))
    found = table.to_arrow().column("v").combine_chunks()
    back = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    assert found.cast(back).to_pylist() == values.to_pylist()


@pytest.mark.parametrize(
    ("field", "values", "says"),
    [
        (
            "int32",
            [1, 2**31],
            "column v is int64 and holds a value that int32 cannot keep; .* row 1: '2147483648'; widen",
        ),
        ("int64", [1.0, 1.5], "row 1: '1.5'"),
        ("float", [0.5, 0.1], "row 1: '0.1'; widen field v to double"),
        ("double", [1, 2**53 + 1], "row 1: '9007199254740993'"),
        ("date32", pa.array([0, 5 * 3_600], pa.timestamp("s")), "row 1: '1970-01-01 05:00:00'"),
        ("timestamp[s]", pa.array([0, 5], pa.timestamp("us")), "row 1"),
        (pa.list_(pa.int8()), [[1], [300]], "row 1: '\\[300\\]'"),
    ],
    ids=str,
)
def test_the_first_value_that_is_not_kept_is_refused_with_its_row(field, values, says):
    table = new_instance().create_table("t", Schema({"id": "int64"}, values={"v": field}))
    with pytest.raises(SchemaMismatchError, match=says):
        table.write({"id": [1, 2], "v": values})
    assert table.count().rows == 0


def test_rows_are_counted_from_the_first_of_all(table):
    given = ({"id": i, "n": 2**40 if i == 25_003 else i} for i in range(30_000))
    with pytest.raises(SchemaMismatchError, match="first row 25003: '1099511627776'") as caught:
        table.write(given)
    assert caught.value.row == 25_003


def test_text_is_cast_only_if_asked_for(table):
    text = {"id": ["1", "2"], "n": ["10", "20"], "name": ["a", "b"]}
    with pytest.raises(SchemaMismatchError, match=r"column id is string; .* int64.* casts=\['id'\]"):
        table.write(text)
    with pytest.raises(SchemaMismatchError, match=r"column n is string"):
        table.write(text, casts=["id"])
    table.write(text, casts=["id", "n"])
    table.write(text | {"id": ["3", "4"], "n": ["30", "x"], "name": ["c", "d"]} | {"n": ["30", "40"]}, casts="text")
    assert table.to_arrow().column("n").to_pylist() == [10, 20, 30, 40]
    with pytest.raises(SchemaMismatchError, match="row 1: 'x'"):
        table.write({"id": [5, 6], "n": ["30", "x"]}, casts="text")
    for wrong in ("strict", 5, [1]):
        with pytest.raises(UsageError, match=r"casts = .* must be 'lossless', 'text'"):
            table.write(text, casts=wrong)
    with pytest.raises(UsageError, match="no field 'nn'"):
        table.write(text, casts=["nn"])


def test_extra_columns_are_left_out_if_asked(table):
    with pytest.raises(SchemaMismatchError, match="extra column colour"):
        table.write([{"id": 1, "colour": "red"}])
    table.write([{"id": 1, "colour": "red"}], ignore_extra=True)
    assert table.schema.names == ("id", "name", "n", "x")
    assert table.count().rows == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (frame().set_index("id"), r"has id as its index.*reset_index\(\)"),
        (frame().rename(columns={"n": 5}), "a column named 5; names of columns are texts"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "two columns named id"),
        (pd.DataFrame({"id": [1, 2], "name": ["a", 3]}), r"column name has 3 \(int\) in row 1, and row 0 has 'a'"),
        ({"id": 1, "n": 2}, r"column id is 1, not a list of values; one row is a list of one dict"),
        ({"id": [1, 2], "n": [2]}, "column n has 1 values, and id has 2"),
        ([{"id": 1, "n": 5}, {"id": 2, "n": "x"}], r"column n has 'x' \(str\) in row 1, and row 0 has 5"),
        ([(1, "a")], r"a row is \(1, 'a'\); give dicts, dataclasses or Pydantic models"),
        ([{1: 2}], "a column is named 1; names of columns are texts"),
        (5, "cannot read rows from int: give Arrow data"),
        (None, "cannot read rows from NoneType"),
        ("missing.csv", "no file missing.csv"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_has_no_rows_is_refused_with_a_remedy(table, data, says):
    with pytest.raises((UsageError, LookupError), match=says):
        table.write(data)


def test_an_error_of_a_generator_is_named(table):
    def broken():
        yield {"id": 1}
        raise KeyError("gone")

    with pytest.raises(UsageError, match="cannot read rows from their source: KeyError: 'gone'"):
        table.write(broken())


def test_values_without_an_arrow_type_of_their_own_are_read_by_the_field():
    schema = Schema({"id": "int64"}, values={"m": pa.map_(pa.string(), pa.int64()), "d": "decimal128(10, 2)"})
    table = new_instance().create_table("t", schema)
    table.write([{"id": 1, "m": {"a": 1}, "d": 5}, {"id": 2, "m": {"b": 2, "c": 3}}])
    assert table.to_arrow().column("m").to_pylist() == [[("a", 1)], [("b", 2), ("c", 3)]]


AROUND = [
    (lambda kind: kind, lambda value: value),
    (pa.list_, lambda value: [value]),
    (lambda kind: pa.struct([("x", pa.int64()), ("m", kind)]), lambda value: {"x": 1, "m": value}),
    (lambda kind: pa.map_(pa.string(), kind), lambda value: {"a": value}),
]
NO_LISTS = ["ab", b"ab", bytearray(b"ab"), memoryview(b"ab")]
LISTS = [pa.list_(pa.string()), pa.list_(pa.uint8()), pa.list_(pa.int64(), 2), pa.large_list(pa.binary())]


class Named(NamedTuple):
    a: int
    b: str


def written(kind, value, *, as_frame=False):
    table = new_instance().create_table("t", Schema({"id": "int64"}, values={"v": kind}))
    values = pd.Series([value, value], dtype=object)
    table.write(
        pd.DataFrame({"id": [1, 2], "v": values}) if as_frame else [{"id": 1, "v": value}, {"id": 2, "v": value}]
    )
    return table.to_arrow().column("v").to_pylist()


@pytest.mark.parametrize(("kind_around", "around"), AROUND)
@pytest.mark.parametrize("as_frame", [False, True])
def test_a_text_is_no_list_of_its_characters(kind_around, around, as_frame):
    for kind in LISTS:
        for value in NO_LISTS:
            with pytest.raises(SchemaMismatchError, match="column v"):
                written(kind_around(kind), around(value), as_frame=as_frame)


@pytest.mark.parametrize(("kind_around", "around"), AROUND)
@pytest.mark.parametrize("as_frame", few([True, False], 1))
def test_missing_values_of_pandas_are_null_at_any_depth(kind_around, around, as_frame):
    for kind in (pa.int64(), pa.string(), pa.bool_(), pa.timestamp("us"), pa.float64(), pa.list_(pa.int64())):
        wanted = written(kind_around(kind), around(None))
        for value in (pd.NA, pd.NaT) if pa.types.is_timestamp(kind) else (pd.NA,):
            assert written(kind_around(kind), around(value), as_frame=as_frame) == wanted


def test_what_is_no_number_is_not_null_beside_missing_values_of_pandas():
    for kind, nan in (("double", float("nan")), ("decimal(5, 2)", Decimal("NaN"))):
        with pytest.raises(SchemaMismatchError, match="row 0"):
            written(f"struct<a: {kind}, b: int64>", {"a": nan, "b": pd.NA})
    with pytest.raises(SchemaMismatchError, match="column v has Decimal\\('NaN'\\)"):
        written("decimal(5, 2)", Decimal("NaN"))


@pytest.mark.parametrize("value", [(1, "x"), Named(1, "x"), [("a", 1), ("a", 2)], [("a", 1, 2)]], ids=str)
def test_a_struct_is_given_by_the_names_of_its_members(value):
    for around, given in AROUND:
        with pytest.raises(SchemaMismatchError, match="column v"):
            written(around(pa.struct([("a", pa.int64()), ("b", pa.string())])), given(value))
