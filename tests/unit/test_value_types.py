"""Values of fixed-size lists, of the null type and half floats: the same through every door that does not need Java."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.model import types
from lakebed.model.defaults import default_column
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
def lake(tmp_path):
    return lakebed.create(tmp_path / "lake")


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
