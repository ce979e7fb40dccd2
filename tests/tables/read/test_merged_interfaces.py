"""Interfaces that hand rows to engines, for tables that merge rows: each gives what a scan gives."""

from __future__ import annotations

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Aggregate, Custom, First, KeyRange, Latest, Schema
from lakebed.errors import Code, UsageError
from lakebed.files.parquet.open_files import copies_folder
from lakebed.model.files import DataFile
from lakebed.model.keys import ALL_KEYS
from lakebed.read.rows.plan import PartitionQuery, QueryPlan, divided
from tests.soaked import few

SCHEMA = Schema({"k": "int64"}, values={"v": "int64", "s": "string"})


def rows(keys, v):
    return pa.table({"k": keys, "v": [v] * len(keys), "s": [f"s{v}"] * len(keys)}, schema=SCHEMA.arrow)


QUERY = """
SELECT k, sum(v) AS v, last_value(s ORDER BY __lakebed_arrival) AS s FROM rows GROUP BY k
"""
MODES = {
    "latest": Latest(),
    "first": First(),
    "aggregate": Aggregate({"v": "sum", "s": "last"}),
    "custom": Custom(sql=QUERY),
}


@pytest.fixture(params=MODES.values(), ids=MODES)
def table(request, lake):
    """Files that overlap below 300, and one that overlaps no other from 1,000 on."""
    made = lake.create_table("t", SCHEMA, split_points=[500], merge=request.param)
    made.write(rows(range(200), 1))
    made.write(rows(range(100, 300), 2))
    made.write(rows(range(150, 160), 3))
    made.write(rows(range(1_000, 1_100), 4))
    return made


def wanted(table):
    found = table.scan().read_all()
    assert found.num_rows == 400
    return found.to_pylist()


def in_order(found):
    return sorted(found, key=lambda row: row["k"])


def test_sql_reads_merged_rows(table, lake):
    merged = wanted(table)
    assert in_order(lake.sql("SELECT * FROM t").read_all().to_pylist()) == merged
    total = lake.sql("SELECT count(*) AS n, sum(v) AS v FROM t WHERE k >= 100").read_all().to_pylist()
    assert total == [{"n": 300, "v": sum(row["v"] for row in merged if row["k"] >= 100)}]
    least = lake.sql("SELECT k FROM t WHERE v = 3 AND k % 2 = 0 ORDER BY k").read_all().column("k").to_pylist()
    assert least == [row["k"] for row in merged if row["v"] == 3 and row["k"] % 2 == 0]


@pytest.mark.parametrize("where", few(["k IS NOT NULL", "k = k", "v < 0 OR k IS NOT NULL", "NOT (k IS NULL)"], 2))
def test_a_statement_may_ask_whether_a_key_is_null(table, lake, where):
    """The copy of merged rows has nulls for columns that a statement does not read."""
    assert lake.sql(f"SELECT v FROM t WHERE {where}").read_all().num_rows == 400
    assert lake.sql(f"SELECT sum(CASE WHEN {where} THEN 1 END) AS n FROM t").read_all()["n"].to_pylist() == [400]


def test_a_statement_without_columns_counts_merged_rows(table, lake):
    assert lake.sql("SELECT count(*) AS n FROM t a, t b WHERE a.k = b.k").read_all().to_pylist() == [{"n": 400}]
    assert lake.sql("SELECT count(*) AS n FROM t").read_all().to_pylist() == [{"n": 400}]


def test_duckdb_reads_merged_rows(table):
    connection = duckdb.connect()
    assert in_order(table.to_duckdb(connection=connection).to_arrow_table().to_pylist()) == wanted(table)
    found = table.to_duckdb(KeyRange(150, 160), connection=connection)
    assert in_order(found.to_arrow_table().to_pylist()) == table.scan(KeyRange(150, 160)).read_all().to_pylist()


def test_datafusion_reads_merged_rows(table):
    context = datafusion.SessionContext()
    table.register(context, "t")
    assert in_order(context.sql("SELECT * FROM t").to_arrow_table().to_pylist()) == wanted(table)


def test_polars_and_pandas_read_merged_rows(table):
    merged = wanted(table)
    assert table.to_polars().to_dicts() == merged
    assert table.to_pandas().to_dict("records") == merged
    found = table.lazy_polars().filter(pl.col("v") == 2).sort("k").collect()
    assert found.to_dicts() == [row for row in merged if row["v"] == 2]


def test_copies_are_deleted_with_what_reads_them(table, lake):
    before = set(copies_folder().glob("*.parquet"))
    connection = duckdb.connect()
    found = table.to_duckdb(connection=connection)
    assert len(set(copies_folder().glob("*.parquet")) - before) == 1
    del found, connection
    lake.sql("SELECT max(v) FROM t").read_all()
    assert set(copies_folder().glob("*.parquet")) == before


def test_files_are_handed_out_where_none_overlap(table):
    alone = table.files(KeyRange(500))
    assert alone.column("rows").to_pylist() == [100]
    path = alone.column("url")[0].as_py().removeprefix("file://")
    assert pq.read_table(path).column("k").to_pylist() == list(range(1_000, 1_100))
    with pytest.raises(UsageError, match="compact --strategy full") as caught:
        table.files()
    assert caught.value.code is Code.MERGE_MODE_MISMATCH


def test_a_merging_table_refuses_attached_files(table, tmp_path):
    from lakebed import InProcess, Pipeline

    pq.write_table(rows([1], 9), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="import them"):
        Pipeline(lakebed.open(str(tmp_path / "lake")), launcher=InProcess()).attach("t", str(tmp_path / "a.parquet"))


def file(name, low, high, markers=0):
    key = SCHEMA.codec.encode
    return DataFile(name, "job-0001", 2, 200, key((low,)), key((high,)), 1, 0, "digest", 8, "footer", b"", markers)


def parts(plan):
    return [[one.id for one in query.files] for query in plan.partitions]


def test_files_are_read_as_they_are_only_where_a_single_one_without_markers_has_the_keys():
    files = (file("c", 5, 6), file("a", 1, 3), file("b", 3, 4), file("d", 8, 9, markers=1))
    plan = QueryPlan((PartitionQuery(1, (ALL_KEYS,), files),), SCHEMA, merge=Latest())
    direct, merged = divided(plan)
    assert (parts(direct), parts(merged)) == ([["c"]], [["a", "b"], ["d"]])
    from msgspec.structs import replace

    direct, merged = divided(replace(plan, merge=lakebed.KeepAll()))
    assert (direct.partitions, merged.partitions) == (plan.partitions, ())


@pytest.fixture
def with_nan(lake):
    """Two files of the same keys, whose merged rows have one NaN."""
    schema = Schema({"k": "int64"}, values={"v": "float64", "of": "struct<v: float64>"})
    made = lake.create_table("t", schema, merge=Latest())
    for second in (2.0, float("nan")):
        values = [1.0, second, 1.0]
        made.write(pa.table({"k": [1, 2, 3], "v": values, "of": [{"v": v} for v in values]}, schema=schema.arrow))
    return made


# Statistics of Parquet leave NaN out: by them the engine would take the column for constant, or skip its rows.
@pytest.mark.parametrize("where", ["v > three", "NOT (v <= three)", "of['v'] > three"])
def test_statements_find_nan(lake, with_nan, where):
    # The engine looks at such conditions itself.
    where = where.replace("three", "arrow_cast('3.0', 'Float64')")
    assert lake.sql(f"SELECT k FROM t WHERE {where}").read_all().to_pylist() == [{"k": 2}]


def test_a_registered_table_has_nan(with_nan):
    context = datafusion.SessionContext()
    with_nan.register(context, "t")
    found = context.sql("SELECT * FROM t").to_arrow_table()
    assert str(in_order(found.to_pylist())) == str(with_nan.scan().read_all().to_pylist())
