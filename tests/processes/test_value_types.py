"""Values of fixed-size lists, of the null type and half floats: the same through every interface without Java."""

from __future__ import annotations

import json
import uuid
from datetime import time
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, UsageError, clock
from lakebed.model import types
from lakebed.model.validity import invalid, mended
from lakebed.write.conformer import default_column
from tests.workers import in_process

SCHEMA = lakebed.Schema(
    {"k": "int64"},
    values={
        "v": "fixed_size_list<float>[3]",
        "pairs": "list<fixed_size_list<int32>[2]>",
        "s": pa.struct([("p", pa.list_(pa.float16(), 2)), ("t", pa.list_(pa.string(), 1))]),
        "n": "null",
        "h": "halffloat",
    },
)
COUNT = 600


def value(n):
    return {
        "k": n,
        "v": None if n % 4 == 3 else [n, n + 0.5, None if n % 5 == 0 else -n],
        "pairs": None if n % 7 == 0 else [[n, None], None][: n % 3],
        "s": {"p": [n / 2, None], "t": [str(n)]} if n % 3 else None,
        "n": None,
        "h": None if n % 6 == 0 else n / 2,
    }


def rows(numbers):
    return pa.Table.from_pylist([value(n) for n in numbers], schema=SCHEMA.arrow)


@pytest.fixture
def table(lake):
    table = lake.create_table("t", SCHEMA)
    table.write(rows(range(0, COUNT, 2)))
    table.write(rows(range(1, COUNT, 2)))
    return table


def test_the_types_are_kept_in_documents_and_names():
    assert lakebed.Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert lakebed.Schema.from_json(SCHEMA.declaration()).arrow == SCHEMA.arrow
    assert SCHEMA.to_json()["values"][0]["type"] == {"fixed_size_list": ["float", 3]}
    assert SCHEMA.declaration()["values"]["n"] == "null"


def test_every_read_gives_them_back(table, lake):
    expected = rows(range(COUNT))
    assert table.scan().schema == SCHEMA.arrow
    assert table.to_arrow().equals(expected)
    assert table.scan(reverse=True).read_all().to_pylist() == expected.to_pylist()[::-1]
    assert table.get(5).equals(expected.slice(5, 1))
    assert table.get_many([3, 500]).equals(expected.take([3, 500]))
    assert table.scan(where="v is null and k < 10").read_all()["k"].to_pylist() == [3, 7]
    assert table.scan(where="v[1] = 5").read_all()["k"].to_pylist() == [5]
    assert table.scan(where="h > 1.5 and n is null and k < 9").read_all()["k"].to_pylist() == [4, 5, 7, 8]
    assert lake.sql("select * from t where k < 9 order by k").read_all().to_pylist() == expected.slice(0, 9).to_pylist()
    assert pa.concat_tables(map(pa.table, table.changes(0))).num_rows == COUNT


def test_they_survive_compaction_export_and_attach(table, lake, tmp_path):
    with in_process(lake) as pipeline:
        pipeline.compact(table, strategy="full")
        assert table.to_arrow().equals(rows(range(COUNT)))
        pipeline.export(table, str(tmp_path / "out"))
        pipeline.export(table, str(tmp_path / "json"), format="json")
        pipeline.attach(lake.create_table("attached", SCHEMA), str(tmp_path / "out"))
        assert lake.table("attached").to_arrow().equals(rows(range(COUNT)))
        lake.create_table("read", SCHEMA).write(next((tmp_path / "json").glob("part-*")))
        assert lake.table("read").to_arrow().equals(rows(range(COUNT)))
        table.alter(lakebed.AddField("later", "fixed_size_list<double>[2]"))
        assert table.get(5)["later"].to_pylist() == [None]
        pipeline.rewrite(table, delete_where="k = 5", set={"h": "h + 1"}, where="k = 7")
        assert table.get(5).num_rows == 0
        assert table.get(7)["h"].to_pylist() == [4.5]


def test_merged_rows_have_them_too(lake):
    table = lake.create_table("m", SCHEMA, merge=lakebed.Latest())
    table.write(rows(range(20)))
    table.write([{"k": 5, "v": [9.0, 8.0, 7.0]}], partial=True)
    assert table.get(5).to_pylist() == [value(5) | {"v": [9.0, 8.0, 7.0]}]


def test_frames_of_other_libraries_have_types_of_a_fixed_size(table):
    assert table.to_polars().schema["v"] == pl.Array(pl.Float32, 3)
    assert table.to_pandas()["v"][1].tolist() == [1.0, 1.5, -1.0]
    plain = table.to_arrow(columns=["k", "v"])
    assert str(duckdb.from_arrow(plain).types[1]) == "FLOAT[3]"
    with pytest.raises(lakebed.UsageError, match="DuckDB takes no half floats from Arrow"):
        table.to_duckdb()


def test_duckdb_reads_lists_of_a_fixed_size(lake):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": "fixed_size_list<float>[2]"}))
    table.write([{"k": 1, "v": [1.0, 2.0]}, {"k": 2, "v": None}])
    table.write([{"k": 1, "v": [3.0, 4.0]}])
    assert sorted(table.to_duckdb().fetchall(), key=repr) == [(1, (1.0, 2.0)), (1, (3.0, 4.0)), (2, None)]


@pytest.mark.parametrize(
    "data",
    [
        [{"k": 1, "v": [1.0, 2.0, 3.0]}],
        {"k": np.array([1]), "v": np.array([[1, 2, 3]], np.float32)},
        pl.DataFrame({"k": [1], "v": [[1.0, 2.0, 3.0]]}, schema={"k": pl.Int64, "v": pl.Array(pl.Float32, 3)}),
        pa.table({"k": [1], "v": pa.array([[1, 2, 3]], pa.list_(pa.float32()))}),
        pa.table({"k": [1], "v": pa.array([[1, 2, 3]], pa.large_list(pa.float32()))}),
    ],
    ids=["dicts", "numpy", "polars", "lists", "large lists"],
)
def test_lists_of_the_right_length_are_taken(lake, data):
    table = lake.create_table("t", SCHEMA)
    table.write(data)
    assert table.get(1)["v"].to_pylist() == [[1.0, 2.0, 3.0]]


def test_a_list_of_another_length_is_refused_with_its_row(lake):
    table = lake.create_table("t", SCHEMA)
    wrong = pa.table({"k": [1, 2], "v": pa.array([[1, 2, 3], [1, 2]], pa.list_(pa.float32()))})
    with pytest.raises(lakebed.SchemaMismatchError, match=r"fixed_size_list.*cannot keep.*first row 1"):
        table.write(wrong)
    with pytest.raises(lakebed.SchemaMismatchError, match="no form of it"):
        table.write(wrong.set_column(1, "v", pa.array([[1, 2], [1, 2]], pa.list_(pa.float32(), 2))))
    assert table.count().rows == 0


def test_a_list_of_a_fixed_size_goes_into_a_list(lake):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": "list<float>"}))
    table.write(pa.table({"k": [1, 2], "v": pa.array([[1, 2], None], pa.list_(pa.float32(), 2))}))
    assert table.to_arrow()["v"].to_pylist() == [[1.0, 2.0], None]


def test_lists_of_no_and_of_too_many_items_are_refused():
    for size in (0, types.LIST_SIZE_MAX + 1):
        with pytest.raises(lakebed.UsageError, match="1 to 65,536 items"):
            types.check_new_type("v", pa.list_(pa.int8(), size))


def test_the_default_of_a_fixed_size_list_has_its_length():
    assert default_column(pa.list_(pa.int8(), 2), 1).to_pylist() == [[0, 0]]


def test_views_in_dictionaries_are_taken_inside_other_types_too(lake):
    """Polars gives categories so, and PyArrow cannot look them up."""
    views = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view()))
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": "string", "s": "struct<x: string>"}))
    table.write(pa.table({"k": range(3), "v": views, "s": pa.StructArray.from_arrays([views], ["x"])}))
    assert table.to_arrow()["v"].to_pylist() == ["a", None, "b"]
    assert table.to_arrow()["s"].to_pylist() == [{"x": "a"}, {"x": None}, {"x": "b"}]
    frame = pl.DataFrame({"k": [3], "v": pl.Series(["c"], dtype=pl.Categorical)})
    table.write(frame)
    assert table.get(3)["v"].to_pylist() == ["c"]


def test_views_of_bytes_that_are_no_text_in_a_dictionary_are_refused(lake):
    raw = pa.array([b"\xff"], pa.binary_view()).view(pa.string_view())
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"c": "string"}))
    with pytest.raises(lakebed.SchemaMismatchError, match="text that is not UTF-8"):
        table.write(pa.table({"k": [1], "c": pa.DictionaryArray.from_arrays(pa.array([0]), raw)}))


UUIDS = pa.array([uuid.UUID(int=5).bytes, None], pa.binary(16)).cast(pa.uuid())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("list<uuid>", pa.ListArray.from_arrays([0, 1, 2], UUIDS)),
        ("fixed_size_list<uuid>[1]", pa.FixedSizeListArray.from_arrays(UUIDS, 1)),
        ("struct<x: json>", pa.StructArray.from_arrays([pa.array(["1", None]).cast(pa.json_())], ["x"])),
        ("map<string, uuid>", pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), UUIDS)),
        ("list<fixed_size_binary[2]>", pa.array([[b"ab", None], None], pa.list_(pa.binary(2)))),
    ],
)
def test_uuids_and_json_inside_other_types_go_through_every_interface(lake, kind, values):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": kind}))
    table.write(pa.table({"k": [1, 2], "v": values}))
    table.write(pa.table({"k": [3], "v": values[:1]}))
    expected = [*values.to_pylist(), *values[:1].to_pylist()]
    shown = ["k", "v"]
    for found in (
        table.to_arrow(),
        table.get_many([1, 2, 3]),
        table.scan(where="k > 0").read_all(),
        table.sample(3),
        pa.table(table.changes(0)).select(shown).sort_by("k"),
    ):
        assert found["v"].to_pylist() == expected
    assert table.get_many([]).schema == table.get(9).schema == table.schema.arrow
    assert lake.sql("select * from t order by k").read_all().num_rows == 3
    assert lake.sql("select k from t where v is not null order by k").read_all()["k"].to_pylist()[-1] == 3
    assert table.lazy_polars().select("k").collect()["k"].to_list() == [1, 2, 3]
    assert table.to_polars().shape == (3, 2)
    assert table.to_duckdb().count("*").fetchall() == [(3,)]
    frame = table.to_pandas()
    assert frame["k"].tolist() == [1, 2, 3]
    assert (frame["v"][1] is None) == (expected[1] is None)
    assert len(frame["v"][0]) == len(expected[0])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("decimal256(50, 2)", r"column d is decimal256.*Polars has decimals of up to 38"),
        ("timestamp[us, tz=+05:30]", r"column d is timestamp.*Polars has no time zone '\+05:30'"),
        ("list<timestamp[s, tz=+05:30]>", r"column d is list.*Polars has no time zone '\+05:30'"),
    ],
)
def test_polars_names_a_column_that_it_cannot_have(lake, kind, reason):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"d": kind}))
    for read in (table.to_polars, table.lazy_polars):
        with pytest.raises(lakebed.UsageError, match=reason):
            read()
    assert table.to_polars(columns=["k"]).columns == ["k"]


@pytest.mark.parametrize(("kind", "number"), [("time64[ns]", 1), ("list<time64[ns]>", 1), ("date32", 2**30)])
def test_pandas_names_a_column_of_which_it_cannot_hold_a_value(lake, kind, number):
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"d": kind}))
    wanted = table.schema.arrow.field("d").type
    values = pa.array([number], pa.int64() if "time" in kind else pa.int32())
    column = pa.ListArray.from_arrays([0, 1], values.view(wanted.value_type)) if "list" in kind else values.view(wanted)
    table.write(pa.table({"k": [1], "d": column}))
    for read in (table.to_pandas, lake.sql("select * from t").to_pandas):
        with pytest.raises(lakebed.UsageError, match=r"column d is .*, and pandas cannot hold a value of it"):
            read()
    assert table.to_pandas(columns=["k"]).columns.tolist() == ["k"]


def test_exports_as_text_are_read_back(lake, tmp_path):
    """UUIDs, JSON and times of day in CSV and JSON; maps as objects."""
    plain = {"u": "uuid", "j": "json", "t": "time32[s]", "n": "time64[ns]"}
    row = {"k": 1, "u": str(uuid.UUID(int=5)), "j": '{"a": 1}', "t": "12:30:00", "n": "00:00:00.000000005"}
    with in_process(lake) as pipeline:
        for form, values in (("csv", plain), ("json", plain | {"m": "map<string, int64>", "l": "list<uuid>"})):
            schema = lakebed.Schema({"k": "int64"}, values=values)
            nested = {"m": {"a": 1, "b": 2}, "l": [row["u"]]} if form == "json" else {}
            (tmp_path / f"in-{form}.jsonl").write_text("\n".join(map(json.dumps, (row | nested, {"k": 2}))))
            table = lake.create_table(form, schema)
            table.write(tmp_path / f"in-{form}.jsonl")
            pipeline.export(table, str(tmp_path / form), format=form)
            part = next((tmp_path / form).glob("part-*"))
            assert row["u"] in part.read_text()
            again = lake.create_table(f"{form}-again", schema)
            again.write(part)
            assert again.to_arrow().equals(table.to_arrow())
            assert [found is None for found in again.to_arrow()["n"].to_pylist()] == [False, True]
    assert again.to_arrow()["m"].to_pylist() == [[("a", 1), ("b", 2)], None]
    (tmp_path / "bad.jsonl").write_text('{"k": 1, "t": "25:00:00"}')
    with pytest.raises(lakebed.SchemaMismatchError, match=r"line 1, column t: '25:00:00' is not time32\[s\]"):
        lake.table("csv").write(tmp_path / "bad.jsonl")


def test_summarize_shows_types_of_every_kind(lake):
    lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": "list<uuid>", "d": "dictionary<string>"}))
    found = lake.sql("summarize t").to_arrow().to_pylist()
    assert [(row["column_name"], row["column_type"]) for row in found] == [
        ("k", "int64"), ("v", "list<uuid>"), ("d", "string"),
    ]  # fmt: skip


ONE = pa.map_(pa.string(), pa.int64())
REPEATED, DISTINCT = [("a", 1), ("b", 2), ("a", 3)], [("a", 1), ("b", 1)]
IN_MAPS = {
    "map<string, int64>": lambda value: value,
    "list<map<string, int64>>": lambda value: [None, [], DISTINCT, value],
    "struct<x: int64, m: map<string, int64>>": lambda value: {"x": 1, "m": value},
    "map<int64, map<string, int64>>": lambda value: [(1, DISTINCT), (2, value)],
    "fixed_size_list<map<string, int64>>[2]": lambda value: [DISTINCT, value],
}


@pytest.mark.parametrize("kind", IN_MAPS)
def test_a_map_with_equal_keys_is_refused_by_its_row_at_any_depth(lake, kind):
    """DuckDB refuses to read one, Spark to make one, and the Parquet specification has readers drop a value."""
    schema = lakebed.Schema({"k": "int64"}, values={"m": kind})
    table = lake.create_table("t", schema)
    around = IN_MAPS[kind]
    good = [around(DISTINCT), None, around([])]
    table.write(pa.table({"k": range(3), "m": good}, schema.arrow))
    with pytest.raises(lakebed.SchemaMismatchError, match=r"holds a map with equal keys; 1 of 4 rows .* row 2: .*a.*b"):
        table.write(pa.table({"k": range(4), "m": [*good[:2], around(REPEATED), around([])]}, schema.arrow))
    assert len(table.to_duckdb().fetchall()) == 3


KEYS = {
    "string": ["x", "y"], "double": [0.5, 1.5], "bool": [True, False], "decimal128(5, 2)": [Decimal(1), Decimal(2)],
    "time64[us]": [time(1), time(2)], "binary": [b"x", b"y"],
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_equal_keys_of_a_map_are_found_whatever_their_type(key):
    kind = lakebed.Schema({"k": "int64"}, values={"m": f"map<{key}, int64>"}).by_name["m"].type
    first, second = KEYS[key]
    column = pa.array([[(first, 1), (second, 1)], None, [(second, 1), (second, 2)]], kind)
    assert invalid(column).to_pylist() == [False, False, True]
    assert invalid(column.slice(0, 2)) is None
    assert mended(column).to_pylist(maps_as_pydicts="strict")[2] == {second: 2}


LARGE = 2**53 + 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), LARGE),
        (pa.uint64(), 2**64 - 1),
        (pa.list_(pa.int64()), [LARGE, None]),
        (pa.struct([("x", pa.int64())]), {"x": -LARGE}),
        (pa.map_(pa.string(), pa.int64()), [("a", LARGE), ("b", None)]),
        (pa.struct([("x", pa.list_(pa.int64()))]), {"x": [LARGE, None]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
def test_a_frame_of_pandas_has_each_whole_number_beside_nulls_as_it_is(kind, value, backend):
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": kind}))
    table.write(pa.table({"k": [1, 2], "v": pa.array([value, None], kind)}))
    for read in (
        table.to_pandas,
        table.snapshot().to_pandas,
        table.scan().to_pandas,
        lake.sql("select * from t").to_pandas,
    ):
        frame = read(dtype_backend=backend)
        assert (
            pa.array(frame["v"].tolist(), kind, from_pandas=True).to_pylist()[0]
            == pa.array([value], kind).to_pylist()[0]
        )
        assert pd.isna(frame["v"][1])


def test_columns_of_a_frame_have_the_types_of_the_backend_that_is_asked_for():
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", Schema({"k": "int64"}, values={"n": "int32", "b": "bool", "s": "string"}))
    table.write([{"k": 1, "n": 5, "b": True, "s": "x"}, {"k": 2}])
    assert str(table.to_pandas()["n"].dtype) == "float64"
    assert [str(kind) for kind in table.to_pandas(dtype_backend="numpy_nullable").dtypes] == [
        "Int64",
        "Int32",
        "boolean",
        "string",
    ]
    assert {type(kind) for kind in table.to_pandas(dtype_backend="pyarrow").dtypes} == {pd.ArrowDtype}
    with pytest.raises(UsageError, match="dtype_backend = 'polars'"):
        table.to_pandas(dtype_backend="polars")
