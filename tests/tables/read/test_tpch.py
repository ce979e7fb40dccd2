"""The 22 queries of TPC-H: every answer is DuckDB's, over tables of four overlapping runs each."""

from __future__ import annotations

import duckdb
import pytest

import lakebed
from benchmarks.tpch_queries import KEYS, QUERIES, make_data, query, same_rows, write_tables
from lakebed.engine.workarounds.same_names import HASH_JOIN

SCALE = 0.01


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tpch")
    make_data(folder / "source", SCALE)
    return folder


@pytest.fixture(scope="module")
def lake(folder):
    lake = lakebed.create(str(folder / "lake"))
    write_tables(lake, folder / "source")
    return lake


@pytest.fixture(scope="module")
def peer(folder):
    connection = duckdb.connect()
    for name in KEYS:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder}/source/{name}.parquet')")
    return connection


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_has_the_rows_of_duckdb(lake, peer, number):
    text = query(number, SCALE)
    assert same_rows(lake.sql(text).read_all(), peer.sql(text).to_arrow_table())


@pytest.mark.parametrize("number", [7, 9, 17, 18])
def test_joins_of_sorted_rows_give_the_same(lake, number):
    text = query(number, SCALE)
    engine, pool_bytes = lake.sql_engine()
    by_hash = engine.run(text, pool_bytes).read_all()
    engine.options = {HASH_JOIN: "false"}
    try:
        assert same_rows(engine.run(text, pool_bytes).read_all(), by_hash)
    finally:
        engine.options = {}
