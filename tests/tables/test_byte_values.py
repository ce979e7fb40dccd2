"""Bytes of a fixed size and UUIDs: in predicates, in SQL, in rewrites, and written as bytes of any length."""

import re
import uuid

import polars as pl
import pyarrow as pa
import pytest

from lakebed import BadKeyError, Schema, SchemaMismatchError, UsageError
from tests.tables.cases import rewritten

IDS = [uuid.UUID(int=n << 100) for n in range(8)]
SCHEMA = Schema({"k": "int64"}, values={"id": "uuid", "code": "fixed_size_binary[4]", "raw": "binary"})


@pytest.fixture
def table(memory_lake):
    """Eight rows, numbered by their UUIDs and codes."""
    found = memory_lake.create_table("t", SCHEMA)
    found.write([{"k": n, "id": one, "code": bytes([n] * 4)} for n, one in enumerate(IDS)])
    return found


def as_bytes(one):
    return f"X'{one.hex}'"


def as_text(one):
    return f"'{one}'"


@pytest.mark.parametrize("low", [as_text, as_bytes])
@pytest.mark.parametrize("high", [as_text, as_bytes])
def test_a_range_of_uuids_has_bounds_as_text_or_bytes(memory_lake, table, low, high):
    where = f"id BETWEEN {low(IDS[2])} AND {high(IDS[4])}"
    assert table.scan(where=where).read_all()["k"].to_pylist() == [2, 3, 4]
    assert sorted(memory_lake.sql(f"SELECT k FROM t WHERE {where}").to_arrow()["k"].to_pylist()) == [2, 3, 4]


@pytest.mark.parametrize("where", ["id BETWEEN 'a' AND 'b'", "id = 'a'", "id IN ('a')", "code > 'a'", "id LIKE '00%'"])
def test_text_that_is_no_value_of_bytes_is_refused_with_how_to_write_one(memory_lake, table, where):
    for read in (lambda: table.scan(where=where), lambda: memory_lake.sql(f"SELECT k FROM t WHERE {where}")):
        with pytest.raises(UsageError, match=r"write bytes as X'…' .* and a uuid as text such as '6f9619ff") as caught:
            read()
        assert not re.search("DataFusion|bug|Internal error|type_coercion", str(caught.value))


@pytest.mark.parametrize(
    ("column", "expression", "value"),
    [
        ("id", as_bytes(IDS[5]), IDS[5]),
        ("id", f"CASE WHEN id = {as_text(IDS[1])} THEN {as_bytes(IDS[5])} END", IDS[5]),
        ("code", "X'0a0b0c0d'", b"\n\x0b\x0c\r"),
        ("code", "CAST('abcd' AS bytea)", b"abcd"),
        ("raw", "code", bytes([1] * 4)),
        ("raw", "id", IDS[1].bytes),
    ],
)
def test_a_rewrite_sets_bytes_of_a_fixed_size_by_literals(table, column, expression, value):
    rewritten(table, set={column: expression}, where="k = 1")
    assert table.get(1)[column].to_pylist() == [value]


@pytest.mark.parametrize(("column", "kind"), [("id", "uuid"), ("code", r"fixed_size_binary\[4\]")])
def test_bytes_of_another_size_are_refused(table, column, kind):
    with pytest.raises(SchemaMismatchError, match=f"holds a value that {kind} cannot keep"):
        rewritten(table, set={column: "X'0a'"}, where="k = 1")
    with pytest.raises(SchemaMismatchError, match=f"column {column} is binary and holds a value that {kind} cannot"):
        table.write(pa.table({"k": [9], column: pa.array([b"1"])}))


def test_keys_are_a_series_of_polars(table):
    assert table.get_many(pl.Series([2, 3])).num_rows == 2
    assert table.get_many(pl.Series([{"k": 2}, {"k": 3}])).num_rows == 2
    with pytest.raises(BadKeyError, match="key field k is int64; the keys have string"):
        table.get_many(pl.Series(["a"]))


def test_one_key_where_several_are_read_and_several_where_one_is(table):
    with pytest.raises(BadKeyError, match=r"int was given \(for one key, a list of one\)"):
        table.get_many(2)
    with pytest.raises(BadKeyError, match=r"\[1, 2\] is list \(get_many reads several keys\)"):
        table.get([1, 2])


def test_a_frame_of_polars_is_written_back(table):
    frame = table.to_polars()
    assert frame.schema["id"] == pl.Binary
    table.write(frame.with_columns(k=pl.col("k") + 10))
    assert table.get(12).to_pylist() == [{"k": 12, "id": IDS[2], "code": bytes([2] * 4), "raw": None}]
