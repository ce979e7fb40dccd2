"""A cast of a column is hidden from the optimizer, whatever its form, and means the same as in a projection."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Latest, Schema, UsageError
from lakebed.clock import random_token
from lakebed.engine.workarounds.opaque_casts import with_opaque_casts, with_opaque_columns


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("CAST(p AS BIGINT) > 1", "greatest(CAST(p AS BIGINT)) > 1"),
        ('try_cast("P" AS INT) IN (1)', 'greatest(try_cast("P" AS INT)) IN (1)'),
        ("arrow_cast(a, 'Int64') = 1", "greatest(arrow_cast(a, 'Int64')) = 1"),
        ("CAST(CAST(a AS INT) AS TEXT)", "greatest(CAST(greatest(CAST(a AS INT)) AS TEXT))"),
        ("a::int = 1 AND t.b::decimal(10,2)::int IN (2)",
         "greatest(a::int) = 1 AND greatest(t.b::decimal(10,2)::int) IN (2)"),
        ("(a+b)::double precision > -c::int", "greatest((a+b)::double precision) > -greatest(c::int)"),
        ("NOT (a)::int = f(a, 'x')::text", "NOT greatest((a)::int) = greatest(f(a, 'x')::text)"),
        ("x IN (a::int, m['k']::int[])", "x IN (greatest(a::int), greatest(m['k']::int[]))"),
        ("CASE WHEN a THEN 1 ELSE b END::int", "greatest(CASE WHEN a THEN 1 ELSE b END::int)"),
        ("sum(x) OVER (ORDER BY y)::int", "greatest(sum(x) OVER (ORDER BY y)::int)"),
        ("a AT TIME ZONE 'UTC' + b", "greatest(a AT TIME ZONE 'UTC') + b"),
        ("a::timestamp with time zone, b", "greatest(a::timestamp with time zone), b"),
        # Constants stay in sight: they are computed once.
        ("d > CAST('2020-01-01' AS DATE)", "d > CAST('2020-01-01' AS DATE)"),
        ("DATE '2020-01-01'::timestamp < '1'::int", "DATE '2020-01-01'::timestamp < '1'::int"),
        ("CAST(NULL AS INT) = $1::int", "CAST(NULL AS INT) = $1::int"),
        ("s = 'CAST(a AS INT)' -- b::int", "s = 'CAST(a AS INT)' -- b::int"),
        # The engine refuses these.
        ("CAST(a", "CAST(a"),
        ("a::", "a::"),
    ],
)  # fmt: skip
def test_casts_of_columns_are_hidden(text, wanted):
    assert with_opaque_casts(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("DATE '2026-01-01' > x.d AND '1' <> \"D\"", "DATE '2026-01-01' > greatest(x.d) AND '1' <> greatest(\"D\")"),
        ("1 + 4 >= k OR (1) = k OR f('a') < k", "1 + 4 >= greatest(k) OR (1) = greatest(k) OR f('a') < greatest(k)"),
        ("'a' BETWEEN low AND t.high", "'a' BETWEEN greatest(low) AND greatest(t.high)"),
        ("5 > k AND f(a) = b AND k > 'x' AND 'x' = f(k) AND 'x' < DATE 'y'",
         "5 > k AND f(a) = b AND k > 'x' AND 'x' = f(k) AND 'x' < DATE 'y'"),
    ],
)  # fmt: skip
def test_columns_on_the_right_of_computed_constants_are_hidden(text, wanted):
    assert with_opaque_columns(text) == wanted


def test_a_cast_without_an_operand_is_refused_with_the_other_form():
    with pytest.raises(UsageError, match=r"at character 1 .* write CAST"):
        with_opaque_casts("= ::int")


def test_conditions_with_constants_on_the_left_are_all_kept_in_statements():
    lake = lakebed.create(f"memory://{random_token()}")
    table = lake.create_table("t", Schema({"d": "date32"}, values={"s": "string"}))
    table.write(pa.table({"d": pa.array([1, 2, 3], pa.int32()).cast(pa.date32()), "s": ["a", "b", "c"]}))
    for where, wanted in [
        ("d <= DATE '1970-01-03' AND DATE '1970-01-03' > d", ["a"]),
        ("d = DATE '1970-01-03' AND DATE '1970-01-03' = d", ["b"]),
        ("d >= '1970-01-02' AND '1970-01-04' > d AND '1970-01-02' < d", ["b"]),
    ]:
        assert lake.sql(f"SELECT s FROM t WHERE {where}").read_all()["s"].to_pylist() == wanted
        assert table.scan(where=where).read_all()["s"].to_pylist() == wanted


NOON = dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001 - a local time
ROWS = [
    {"k": number, "p": Decimal(p), "at": at}
    for number, (p, at) in enumerate(
        [("-0.50", NOON.replace(hour=1)), ("1.00", NOON), ("1.50", NOON + dt.timedelta(hours=13)), ("2.00", None)]
    )
]


@pytest.fixture
def lake():
    lake = lakebed.create(f"memory://{random_token()}")
    schema = Schema({"k": "int64"}, values={"p": "decimal(10,2)", "at": "timestamp[us]"})
    table = lake.create_table("t", schema, merge=Latest())
    table.write(pa.Table.from_pylist(ROWS, schema.arrow))
    return lake


def test_a_condition_on_an_alias_of_a_cast_means_the_cast(lake):
    statement = "SELECT k FROM (SELECT k, CAST(p AS BIGINT) AS c FROM t) WHERE c = 1 ORDER BY k"
    assert lake.sql(statement).read_all()["k"].to_pylist() == [1, 2]


def test_a_join_on_a_cast_and_an_order_by_a_cast_find_all_rows(lake):
    join = "SELECT a.k FROM t a JOIN t b ON CAST(a.p AS BIGINT) = b.k WHERE b.k = 1 ORDER BY a.k"
    assert lake.sql(join).read_all()["k"].to_pylist() == [1, 2]
    first = "SELECT k FROM t ORDER BY p::bigint DESC, k LIMIT 2"
    assert lake.sql(first).read_all()["k"].to_pylist() == [3, 1]


def test_the_columns_of_a_result_have_the_names_that_they_have_without_hiding(lake):
    assert lake.sql("SELECT CAST(p AS BIGINT), k + p::int AS s FROM t").schema.names == ["t.p", "s"]


def test_a_time_in_a_zone_is_compared_in_that_zone(lake):
    where = "at AT TIME ZONE 'Europe/Berlin' = TIMESTAMP '2026-01-01T12:00:00'"
    assert lake.table("t").scan(where=where).read_all()["k"].to_pylist() == [1]
