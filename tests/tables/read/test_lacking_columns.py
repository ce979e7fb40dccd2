"""Conditions on columns that a file lacks, or has in another form, wherever an engine reads the file.

What each condition selects is computed by DuckDB from the rows of a scan.
"""

from __future__ import annotations

from datetime import date

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed import AddField, DropField, RenameField, Schema, WidenField
from tests.tables.read.merging_tables import reading_by

ADDED = {
    "n": "int64", "t": "string", "x": "double", "ts": "timestamp[us]", "b": "bool", "d": "decimal128(5, 2)",
    "y": "binary", "day": "date32", "c": "time64[us]", "l": "list<int64>", "j": "json", "u": "uuid",
}  # fmt: skip
VALUES = {
    "n": "3", "t": "'s3'", "x": "1.5", "ts": "TIMESTAMP '2026-01-01 00:00:00'", "b": "true", "d": "1.50",
    "day": "DATE '1970-01-04'", "v": "3", "w": "3.0", "text": "'s3'",
}  # fmt: skip
"""An SQL literal for columns that can be compared; the last three are widened and renamed."""

OPERATORS = ("=", "!=", "<", ">=", "IS DISTINCT FROM")
CONDITIONS = [
    *(f"{name} {operator} {value}" for name, value in VALUES.items() for operator in OPERATORS),
    *(f"{name} IS {null}" for name in (*ADDED, "v", "w", "text") for null in ("NULL", "NOT NULL")),
    *(f"NOT ({name} = {value}) OR k = 1" for name, value in VALUES.items()),
    "b", "NOT b", "n IN (1, 2, 3)", "n NOT IN (1, 2, 3)", "t LIKE 's%'", "text LIKE 's1%'", "coalesce(n, v) = 3",
    "n = v", "n BETWEEN 1 AND 3", "(n = 3) IS NULL", "n = 3 OR v = 4", "n IS NULL AND v > 4", "k = 5 AND n IS NULL",
]  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """The first file lacks most columns, and has others by other names and in narrower types; the second has all.

    A dropped column of the first has the name of an added one.
    """
    lake = lakebed.create(tmp_path_factory.mktemp("lake"))
    values = {"v": "int32", "s": "string", "w": "float", "n": "string"}
    table = lake.create_table("t", Schema({"k": "int64"}, values=values))
    numbers = range(20)
    texts = [f"s{number}" for number in numbers]
    table.write(pa.table({"k": numbers, "v": pa.array(numbers, "int32"), "s": texts, "n": texts,
                          "w": pa.array(numbers, "float")}))  # fmt: skip
    table.alter(DropField("n"), WidenField("v", "int64"), WidenField("w", "double"), RenameField("s", "text"))
    table.alter(*(AddField(name, kind) for name, kind in ADDED.items()))
    table.write([
        {"k": 100 + n, "v": n, "text": f"s{n}", "w": n, "n": n, "t": f"s{n}", "x": n / 2, "b": n % 2 == 0, "l": [n],
         "day": date.fromordinal(date(1970, 1, 1).toordinal() + n), "j": "1"}
        for n in range(6)
    ])  # fmt: skip
    return lake


@pytest.fixture(scope="module")
def expected(lake):
    """The keys of the rows for which a condition is true, as DuckDB finds them."""
    table = lake["t"]
    rows = table.scan(columns=[name for name in table.schema.names if name not in "lju"]).read_all()
    for name in "lju":
        valid = table.scan(columns=[name]).read_all()[name].is_valid()
        rows = rows.append_column(name, pc.if_else(valid, 1, None))
    with duckdb.connect() as connection:
        connection.register("t", rows)
        return {one: _keys(connection.sql(f"SELECT k FROM t WHERE {one}").to_arrow_table()) for one in CONDITIONS}


def _keys(rows):
    return sorted(rows.column("k").to_pylist())


@pytest.mark.parametrize("way", ["pages", "slices"])
def test_conditions_on_columns_that_a_file_lacks(lake, expected, way):
    """In statements, and in a context of the caller; of a store, and of local files."""
    table = lake["t"]
    with reading_by(table, way, copied_share=-1.0):
        context = datafusion.SessionContext()
        table.snapshot().register(context, "t")
        found = {one: _keys(context.sql(f"SELECT k FROM t WHERE {one}").to_arrow_table()) for one in CONDITIONS}
        assert found == expected
        some = CONDITIONS[::7]
        assert {one: _keys(lake.sql(f"SELECT k FROM t WHERE {one}").read_all()) for one in some} == {
            one: expected[one] for one in some
        }


def test_conditions_on_columns_that_a_file_lacks_at_a_path_with_control_characters(tmp_path):
    """The engine reads such a path through PyArrow, too."""
    lake = lakebed.create(tmp_path / "a\nb")
    table = lake.create_table("t", Schema({"k": "int64"}))
    table.write(pa.table({"k": range(20)}))
    table.alter(AddField("n", "int64"))
    with reading_by(table, "levels", copied_share=-1.0):
        context = datafusion.SessionContext()
        table.snapshot().register(context, "t")
        for one in ("n = 3", "n IN (1, 2)", "NOT (n = 3)"):
            assert context.sql(f"SELECT k FROM t WHERE {one}").to_arrow_table().num_rows == 0
