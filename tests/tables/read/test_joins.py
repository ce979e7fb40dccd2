"""Joins: any statement gives DuckDB's rows by hash joins and by joins of sorted rows, and in a small memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import Error, Schema
from lakebed.clock import random_token
from lakebed.engine.datafusion import statement_context
from lakebed.errors import Code
from lakebed.files.parquet.open_files import copies_folder
from lakebed.read.sql.planned_statement import failed

SMALL_BATCHES = {"datafusion.execution.batch_size": "2"}
BY_SORTING = {"datafusion.optimizer.prefer_hash_join": "false"}
SCHEMA = Schema({"id": "int64"}, values={"a": "int32", "b": "int64", "s": "string", "f": "double"})
VALUES = {
    "a": [None, 0, 1, 2, 3],
    "b": [None, -1, 0, 1, 5],
    "s": [None, "", "x", "y"],
    # NaN is among the faults of the engine: docs/engine-faults.md.
    "f": [None, 0.0, -0.0, 1.5, float("inf")],
}


def rows(seed: int, count: int) -> pa.Table:
    """Rows of few values, so that keys repeat on both sides, are null, and are on one side alone."""
    pick = random.Random(seed)
    columns = {name: [pick.choice(values) for _ in range(count)] for name, values in VALUES.items()}
    return pa.table({"id": list(range(count)), **columns}, schema=SCHEMA.arrow)


TABLES = {"l": rows(1, 23), "r": rows(2, 17), "e": rows(3, 0)}


@pytest.fixture(scope="module")
def lake():
    lake = lakebed.create(f"memory://{random_token()}")
    for name, found in TABLES.items():
        table = lake.create_table(name, SCHEMA)
        for half in (found.slice(0, 9), found.slice(9)):
            table.write(half)
    return lake


@pytest.fixture(scope="module")
def peer():
    connection = duckdb.connect()
    for name, found in TABLES.items():
        connection.register(name, found)
    return connection


EQUAL = [
    "l.a = r.a", "l.a = r.a AND l.s = r.s", "r.a = l.a + 1", "l.s = r.s", "l.f = r.f", "l.a = r.b",
    "l.a IS NOT DISTINCT FROM r.a", "l.f IS NOT DISTINCT FROM r.f AND l.a = r.a", "upper(l.s) = upper(r.s)",
]  # fmt: skip
BESIDE = [
    "TRUE", "l.b < r.b", "l.b <> r.b", "l.b < r.b OR r.s IS NULL", "l.id > r.id", "l.b > 0", "r.b IS NULL",
    "coalesce(l.b, r.b) > 0", "l.f <= r.f",
]  # fmt: skip
WHERE = [
    "TRUE",
    "l.s = r.s",
    "l.b = r.b AND l.f = r.f",
    "l.b > 0 OR r.b IS NULL",
    "r.id IS NULL",
    "l.s = 'x' OR r.s = 'y'",
    "l.a < r.b OR l.id > 3",
]


@st.composite
def statements(draw) -> str:
    equal, beside = draw(st.sampled_from(EQUAL)), draw(st.sampled_from(BESIDE))
    other = draw(st.sampled_from(["r", "r", "r", "l", "e"]))
    on = f"{equal} AND ({beside})"
    column = draw(st.sampled_from("absf"))
    match draw(st.sampled_from(["join", "join", "exists", "in", "scalar", "three"])):
        case "join":
            kind = draw(st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]))
            where = draw(st.sampled_from(WHERE))
            columns = draw(
                st.sampled_from(["l.id, r.id, l.s, r.s", "l.a, r.a AS other", "r.s, l.f", "l.b", "l.s, r.b"])
            )
            return f"SELECT {columns} FROM l {kind} JOIN {other} r ON {on} WHERE {where}"
        case "exists":
            word = draw(st.sampled_from(["EXISTS", "NOT EXISTS"]))
            return f"SELECT l.id, l.f FROM l WHERE {word} (SELECT 1 FROM {other} r WHERE {on})"
        case "in":
            word = draw(st.sampled_from(["IN", "NOT IN"]))
            return f"SELECT l.id FROM l WHERE l.{column} {word} (SELECT r.{column} FROM {other} r WHERE r.b <> 0)"
        case "scalar":
            found = f"(SELECT max(r.b) FROM {other} r WHERE r.{column} = l.{column})"
            return f"SELECT l.id, {found} AS m FROM l WHERE l.b < {found} OR l.a = 1"
        case _:
            kinds = draw(st.tuples(*[st.sampled_from(["JOIN", "LEFT JOIN", "FULL JOIN"])] * 2))
            return (
                f"SELECT l.id, r.id, x.id, x.s FROM l {kinds[0]} {other} r ON {on} "
                f"{kinds[1]} l x ON x.{column} = r.{column} WHERE l.id < 15 OR x.b > 0"
            )


def shown(found: pa.Table) -> list[str]:
    """The rows as texts, in order; 0.0 and -0.0 are one value."""
    columns = [column.to_pylist() for column in found.columns]
    return sorted(repr([0 if one == 0 else one for one in row]) for row in zip(*columns, strict=True))


def answered(run: Callable[[], pa.RecordBatchReader]) -> pa.RecordBatchReader | None:
    """The rows; None of a statement that is refused because the engine would mistake columns."""
    try:
        return run()
    except Error as error:
        if error.code is Code.SQL_INVALID and "over other columns" in error.message:
            return None
        raise


@given(statements())
def test_a_join_has_the_rows_of_duckdb_by_hash_and_by_sorting(lake, peer, statement):
    """Unless the engine would mistake columns."""
    wanted = shown(peer.sql(statement).to_arrow_table())
    engine, pool_bytes = lake.sql_engine()
    for options in (SMALL_BATCHES, SMALL_BATCHES | BY_SORTING):
        engine.options = options
        found = answered(partial(engine.run, statement, pool_bytes))
        assert found is None or shown(found.read_all()) == wanted, options


POOL_BYTES = 4 * 1024 * 1024
LARGE_JOIN = "FROM range(400000) a JOIN range(400000) b ON a.value = b.value"
"""Both sides have about the memory of the pool, and a hash table of one more than that."""


@pytest.fixture
def engine():
    return lakebed.create(f"memory://{random_token()}").sql_engine()[0]


def test_a_join_larger_than_memory_starts_again_and_spills(engine):
    with engine.run(f"SELECT count(*) AS n, sum(a.value + b.value) AS s {LARGE_JOIN}", POOL_BYTES) as rows:
        assert rows.read_all().to_pylist() == [{"n": 400_000, "s": 400_000 * 399_999}]


UNION = f"SELECT value FROM range(100000) UNION ALL SELECT a.value {LARGE_JOIN}"
"""Its first rows come before the join has read its sides."""


def test_no_row_of_a_statement_that_starts_again_comes_twice(engine):
    with engine.run(UNION, POOL_BYTES) as rows:
        assert sorted(rows.read_all().column(0).to_pylist()) == sorted([*range(100_000), *range(400_000)])


def test_a_statement_that_returned_rows_fails_and_its_order_helps(engine):
    engine.held_bytes = 0
    with engine.run(UNION, POOL_BYTES) as rows, pytest.raises(Error, match="with ORDER BY") as raised:
        rows.read_all()
    assert raised.value.code is Code.QUERY_MEMORY_EXCEEDED
    with engine.run(f"SELECT value FROM ({UNION}) ORDER BY value", POOL_BYTES) as rows:
        assert rows.read_all().num_rows == 500_000


def test_what_spills_is_in_the_folder_of_the_process(engine):
    before = set(copies_folder().rglob("*"))
    with engine.run("SELECT value FROM range(1000000) ORDER BY value DESC", POOL_BYTES) as rows:
        assert rows.read_next_batch().column(0)[0].as_py() == 999_999
        assert [path for path in set(copies_folder().rglob("*")) - before if path.is_file()]


def test_a_statement_beyond_the_limit_of_disk_space_says_so():
    context = statement_context({}, ("c", "s"), POOL_BYTES, copies_folder())
    context.sql("SET datafusion.runtime.max_temp_directory_size = '1M'")
    with pytest.raises(Exception, match="max_temp_directory_size") as raised:
        context.sql("SELECT value FROM range(1000000) ORDER BY value DESC").to_arrow_table()
    assert failed(raised.value).code is Code.TEMPORARY_STORAGE_FAILED


def test_columns_of_a_statement_that_starts_again_are_those_that_were_announced():
    lake = lakebed.create(f"memory://{random_token()}")
    count = 300_000
    table = lake.create_table("t", Schema({"id": "int64"}, values={"b": "int64"}))
    table.write(pa.table({"id": pa.array(range(count)), "b": pa.array(range(count))}))
    statement = "SELECT l.id, r.b FROM t l LEFT JOIN t r ON l.id = r.id"
    with lake.sql_engine()[0].run(statement, POOL_BYTES) as rows:
        assert not rows.schema.field("id").nullable
        assert {batch.schema for batch in rows} == {rows.schema}


def test_a_key_of_an_extension_type_keeps_it_where_columns_are_made_nullable():
    """A filter over two columns of one name: the engine joins by sorting from the beginning."""
    lake = lakebed.create(f"memory://{random_token()}")
    schema = Schema({"k": "uuid"}, values={"a": "int64"})
    keys = [UUID(int=number) for number in range(5)]
    for name in "lr":
        lake.create_table(name, schema).write([{"k": key, "a": key.int} for key in keys])
    statement = "SELECT l.k AS left, r.k AS right FROM l RIGHT JOIN r ON l.a = r.a + 1 WHERE l.a > 0 OR r.a IS NULL"
    found = lake.sql(statement).read_all()
    assert found.schema.types == [schema.arrow.field("k").type] * 2
    assert sorted(row["left"].int for row in found.to_pylist()) == [1, 2, 3, 4]


def test_a_join_whose_condition_the_engine_would_mistake_does_not_start_again():
    """Joins of sorted rows take the places of its columns in the rows before they are narrowed."""
    lake = lakebed.create(f"memory://{random_token()}")
    count = 300_000
    table = lake.create_table("t", Schema({"id": "int64"}, values={"a": "int64", "b": "int64"}))
    table.write(pa.table({"id": range(count), "a": range(count), "b": [number % 2 for number in range(count)]}))
    statement = "SELECT l.a, r.a AS ra FROM t l JOIN t r ON l.a = r.a AND l.b + r.b > 1"
    engine = lake.sql_engine()[0]
    with (
        engine.run(statement, POOL_BYTES) as rows,
        pytest.raises(Error, match="conditions beside equalities") as raised,
    ):
        rows.read_all()
    assert raised.value.code is Code.QUERY_MEMORY_EXCEEDED
    with engine.run(statement, 64 * POOL_BYTES) as rows:
        assert rows.read_all().num_rows == count // 2


@pytest.mark.parametrize("compared", ["IS NOT DISTINCT FROM", "is not distinct /* of */ from", "<=>"])
@pytest.mark.parametrize("more", ["JOIN l x ON x.b = r.b", "WHERE l.s = r.s"])
def test_a_join_by_nulls_keeps_its_meaning_beside_equalities(lake, peer, compared, more):
    statement = f"SELECT l.id, r.id FROM l LEFT JOIN r ON l.a {{}} r.a {more}"
    wanted = peer.sql(statement.format("IS NOT DISTINCT FROM")).to_arrow_table()
    assert shown(lake.sql(statement.format(compared)).read_all()) == shown(wanted)


def test_an_explanation_of_a_join_of_sorted_rows(lake):
    engine, pool_bytes = lake.sql_engine()
    engine.options = BY_SORTING
    statement = "EXPLAIN SELECT l.id, r.id FROM l JOIN r ON l.a = r.a WHERE l.id < 15 OR r.b > 0"
    try:
        assert "SortMergeJoinExec" in str(engine.run(statement, pool_bytes).read_all())
    finally:
        engine.options = {}
