"""pandas and Polars read and write tables through an engine."""

import datetime as dt

import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa

import lakebed

FRAME = pd.DataFrame(
    {
        "id": [3, 1, 2],
        "name": ["c", None, "b"],
        "price": [1.5, float("nan"), 0.1],
        "sold": pd.to_datetime(["2026-01-01 10:00:00.000001", None, "2026-01-03 00:00:00.5"]),
        "fresh": [True, False, True],
    }
)


def rows(lake, name):
    return sorted(lake.sql(f'SELECT * FROM "{name}"').to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("options", [{}, {"chunksize": 2}, {"method": "multi"}, {"method": "multi", "chunksize": 2}])
def test_a_frame_is_written_replaced_appended_and_read(engine, lake, options):
    FRAME.to_sql("sales", engine, index=False, **options)
    first = rows(lake, "sales")
    assert first[0] == {"id": 1, "name": None, "price": None, "sold": None, "fresh": False}
    assert first[2]["sold"] == dt.datetime(2026, 1, 1, 10, 0, 0, 1)  # noqa: DTZ001 - a time without a zone
    FRAME.to_sql("sales", engine, index=False, if_exists="append", **options)
    assert len(rows(lake, "sales")) == 6
    FRAME.to_sql("sales", engine, index=False, if_exists="replace", **options)
    assert rows(lake, "sales") == first
    if pd.__version__ >= "2.3":  # Superset's pandas is older
        FRAME.to_sql("sales", engine, index=False, if_exists="delete_rows", **options)
        assert rows(lake, "sales") == first
    with pytest.raises(ValueError, match="already exists"):
        FRAME.to_sql("sales", engine, index=False, **options)


def test_a_chunk_is_one_commit(engine, lake):
    pd.DataFrame({"id": range(1000)}).to_sql("numbers", engine, index=False, chunksize=500)
    table = lake.table("numbers")
    created = 1
    assert (table.snapshot().version, len(rows(lake, "numbers"))) == (created + 2, 1000)


def test_the_index_of_a_frame_is_the_key(engine, lake):
    FRAME.set_index(["fresh", "id"])[["price"]].to_sql("sales", engine)
    assert lake.table("sales").schema.row_key_names == ("fresh", "id")


def test_rows_of_a_frame_replace_those_of_a_table_with_a_primary_key(engine, lake):
    lake.execute("CREATE TABLE sales (id BIGINT PRIMARY KEY, name VARCHAR)")
    for name in ("old", "new"):
        pd.DataFrame({"id": [1, 2], "name": name}).to_sql("sales", engine, index=False, if_exists="append")
    assert rows(lake, "sales") == [{"id": 1, "name": "new"}, {"id": 2, "name": "new"}]


def test_pandas_reads_tables_and_queries(engine, lake):
    FRAME.to_sql("sales", engine, index=False)
    whole = pd.read_sql_table("sales", engine).sort_values("id", ignore_index=True)
    assert whole["sold"].dtype.kind == "M"
    assert whole[["id", "fresh"]].to_dict("list") == {"id": [1, 2, 3], "fresh": [False, True, True]}
    query = sa.text("SELECT id, price FROM sales WHERE id >= :least ORDER BY id")
    found = pd.read_sql(query, engine, params={"least": 2}, index_col="id")
    assert found.to_dict() == {"price": {2: 0.1, 3: 1.5}}
    chunks = pd.read_sql("SELECT id FROM sales ORDER BY id", engine, chunksize=2)
    assert [chunk["id"].tolist() for chunk in chunks] == [[1, 2], [3]]


def test_polars_reads_and_writes(engine, lake):
    lake.create_table("sales", lakebed.Schema({"id": "int64"}, values={"price": "double", "tags": "list<string>"}))
    lake.table("sales").write([{"id": 1, "price": 1.5, "tags": ["a"]}, {"id": 2, "price": None, "tags": []}])
    found = pl.read_database("SELECT * FROM sales ORDER BY id", engine)
    assert found.to_dicts() == [{"id": 1, "price": 1.5, "tags": ["a"]}, {"id": 2, "price": None, "tags": []}]
    with engine.connect() as connection:
        one = pl.read_database(
            sa.text("SELECT price FROM sales WHERE id = :id"), connection, execute_options={"parameters": {"id": 1}}
        )
    assert one.to_dicts() == [{"price": 1.5}]
    found.drop("tags").write_database("copied", engine)
    assert rows(lake, "copied") == [{"id": 1, "price": 1.5}, {"id": 2, "price": None}]
