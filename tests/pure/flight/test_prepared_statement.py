"""Parameters become literals that the engine reads as the same values, and handles survive a round trip."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from datafusion import SessionContext

from lakebed.engine.statement_parameters import literal
from lakebed.errors import Code, UsageError
from lakebed.server.flight.statement_runs import Statement

UTC = dt.UTC


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar(None, pa.int64()),
        pa.scalar(True),
        pa.scalar(-(2**63)),
        pa.scalar(2**64 - 1, pa.uint64()),
        pa.scalar(0.1),
        pa.scalar(5e-324),
        pa.scalar(float("inf")),
        pa.scalar(0.5, pa.float32()),
        pa.scalar("O'Hare; -- ''"),
        pa.scalar("a\\'b"),
        pa.scalar("Zürich\n飛行機", pa.large_string()),
        pa.scalar(b"\x00\xff'"),
        pa.scalar(Decimal("-12345678901234567890.12"), pa.decimal128(38, 2)),
        pa.scalar(dt.date(1969, 12, 31)),
        pa.scalar(dt.datetime(2026, 3, 29, 2, 30, 0, 1), pa.timestamp("us")),  # noqa: DTZ001
        pa.scalar(1_234_567_890_123_456_789, pa.int64()).cast(pa.timestamp("ns")),
        pa.scalar(dt.datetime(1960, 1, 1, tzinfo=UTC), pa.timestamp("s", "UTC")),
        pa.scalar(dt.datetime(2026, 7, 1, 12, tzinfo=UTC), pa.timestamp("ms", "Europe/Berlin")),
        pa.scalar(dt.time(23, 59, 59, 999_999), pa.time64("us")),
        pa.scalar("x", pa.dictionary(pa.int8(), pa.string())),
    ],
    ids=lambda scalar: f"{scalar.type}:{scalar}"[:40],
)
def test_a_literal_is_the_value_itself(value):
    (batch,) = SessionContext().sql(f"SELECT {literal(value)} AS v").collect()
    found = batch.column(0)[0]
    assert found.as_py() == value.as_py()
    if pa.types.is_timestamp(value.type):
        assert found.type == value.type
        assert found.cast(pa.int64()) == value.cast(pa.int64())


def test_a_value_without_literals_is_refused():
    with pytest.raises(UsageError, match="cannot be of type list"):
        literal(pa.scalar([1]))


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT 1", 0),
        ("SELECT ? + ?", 2),
        ("SELECT $2, $1, $2", 2),
        ("SELECT '?', \"?\", ? -- ?\n /* ? */", 1),
        ("SELECT $$ ? $1 $$, $1", 1),
    ],
)
def test_places_are_signs_outside_of_texts_names_and_comments(query, count):
    assert Statement(query).parameters == count


def test_values_are_written_in_order_and_rebinding_replaces_them():
    statement = Statement("SELECT ?, '?', ?")
    first = statement.bound(pa.table({"a": [1], "b": ["x?"]}))
    assert first.sql == "SELECT 1, '?', 'x?'"
    again = Statement.of(first.handle).bound(pa.table({"a": [2], "b": [None]}))
    assert again.sql == "SELECT 2, '?', NULL"
    assert Statement("SELECT $2, $1").bound(pa.table({"a": [1], "b": [2]})).sql == "SELECT 2, 1"


def test_columns_are_found_with_nulls_in_place_of_values():
    assert Statement("SELECT ?, ?").sql_for_columns == "SELECT NULL, NULL"


@pytest.mark.parametrize(
    ("query", "values", "match"),
    [
        ("SELECT ?", [], "1 parameters, and 0 values"),
        ("SELECT 1", [1], "0 parameters, and 1 values"),
        ("SELECT ?, $1", [1], "of several kinds"),
        ("SELECT $0", [1], "parameters are"),
        ("SELECT $99999999999999999999", [1], "parameters are"),
    ],
)
def test_values_that_do_not_fit_the_places_are_refused(query, values, match):
    rows = pa.Table.from_arrays([pa.array([value]) for value in values], [str(n) for n in range(len(values))])
    with pytest.raises(UsageError, match=match):
        _ = (Statement(query).bound(rows) if values else Statement(query)).sql


@pytest.mark.parametrize("rows", [0, 2])
def test_a_query_takes_one_row_of_values(rows):
    with pytest.raises(UsageError, match="one row of parameters"):
        Statement("SELECT ?").bound(pa.table({"a": pa.array([1] * rows, pa.int64())}))


@pytest.mark.parametrize(
    "handle", [b"", b"\xff", b"[]", b"{}", b'{"query":1,"values":[],"run":""}', b'{"query":"","values":[1],"run":""}']
)
def test_bytes_that_are_no_handle_are_refused(handle):
    with pytest.raises(UsageError) as caught:
        Statement.of(handle)
    assert caught.value.code is Code.REQUEST_INVALID
