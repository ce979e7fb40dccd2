"""A column that is named like a missing field in another case is neither ignored nor a new field, by any way in."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema, SchemaMismatchError, clock
from lakebed.errors import Code
from lakebed.model.checks import near_names
from tests.soaked import each_once


@pytest.fixture
def table():
    schema = Schema({"id": "int64"}, values={"name": "string", "Größe": "int64", "n": "int64"})
    return lakebed.create(f"memory://{clock.new_id()}").create_table("t", schema)


def as_csv(path, row):
    path.with_suffix(".csv").write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
    return path.with_suffix(".csv")


def as_json(path, row):
    path.with_suffix(".json").write_text(json.dumps(row) + "\n")
    return path.with_suffix(".json")


def as_parquet(path, row):
    pq.write_table(pa.Table.from_pylist([row]), path)
    return path


def as_arrow(_path, row):
    return pa.Table.from_pylist([row])


def as_dicts(_path, row):
    return [row]


WAYS = [as_csv, as_json, as_parquet, as_arrow, as_dicts]


@each_once(
    lambda value: getattr(value, "__name__", str(value)),
    how=[{}, {"ignore_extra": True}, {"growth": "add"}, {"partial": True}],
    names=[("NAME", "name"), ("Name", "name"), ("GRÖSSE", "Größe")],
    way=WAYS,
)
def test_a_name_in_another_case_is_refused_and_the_field_is_named(table, tmp_path, way, names, how):
    column, field = names
    if "growth" in how:
        table.set(schema_growth="add")
    if "partial" in how:
        table = lakebed.create(f"memory://{clock.new_id()}").create_table("t", table.schema, merge=lakebed.Latest())
    options = {name: value for name, value in how.items() if name != "growth"}
    row = {"id": 1, column: 7, "n": 2}

    with pytest.raises(SchemaMismatchError, match=f"a column {column}, .* did you mean {field}.*--column") as caught:
        table.write(way(tmp_path / "rows", row), **options)
    assert caught.value.code is Code.COLUMN_UNEXPECTED
    assert table.count().rows == 0
    assert table.schema.names == ("id", "name", "Größe", "n")


@pytest.mark.parametrize("way", WAYS)
def test_a_name_in_another_case_beside_the_field_is_a_column_of_its_own(table, tmp_path, way):
    row = {"id": 1, "name": "x", "NAME": "y"}

    table.write(way(tmp_path / "rows", row), ignore_extra=True)
    table.set(schema_growth="add")
    table.write(way(tmp_path / "rows", row | {"id": 2}))
    assert [one["NAME"] for one in table.scan().read_all().to_pylist()] == [None, "y"]


def test_names_are_near_if_only_case_differs_and_the_other_is_missing():
    assert near_names(["A", "b", "c"], ["a", "b", "C", "B"]) == {"A": "a", "c": "C"}
    assert near_names(["A", "a"], ["a"]) == {}
    assert near_names(["A", "x"], ["a", "A"]) == {}


def test_columns_that_do_not_fit_have_a_code_for_each_fault(table):
    columns = [pa.array([1]), pa.array(["x"]), pa.array(["y"])]
    for names, code in [
        (["name", "n", "Größe"], Code.COLUMN_MISSING),
        (["id", "name", "colour"], Code.COLUMN_UNEXPECTED),
        (["id", "name", "name"], Code.COLUMN_DUPLICATE),
    ]:
        with pytest.raises(lakebed.Error) as caught:
            table.write(pa.Table.from_arrays(columns, names))
        assert caught.value.code is code
