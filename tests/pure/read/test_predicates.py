"""Predicates become key ranges that hold every row that passes, and as few others as their words allow."""

from __future__ import annotations

import bisect
import datetime as dt
import itertools

import pyarrow as pa
import pytest
from datafusion import SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.engine.predicate import check_where, keep
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.read.rows.conditions import keys_of
from lakebed.read.rows.expressions import condition_of
from lakebed.read.rows.key_ranges import RANGES_MAX, key_ranges

INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1

SCHEMA = Schema(row_key={"a": "int32", "t": "string", "n": "int64"}, values={"v": "int64"})

INTEGERS = [-INT32 - 1, -7, -1, 0, 1, 2, 3, 255, 256, INT32]
TEXTS = ["", "a", "ab", "abc", "abd", "a\x00", "a%", "b", "ß", "\U0010ffff"]
LARGE = [-INT64 - 1, -(1 << 53) - 1, -1, 0, 1, 5, (1 << 53), (1 << 53) + 1, INT64]


def every(schema, *values):
    """A row for each choice of key values, with 1 as its value."""
    rows = [dict(zip(schema.names, (*chosen, 1), strict=True)) for chosen in itertools.product(*values)]
    return pa.Table.from_pylist(rows, schema=schema.arrow)


ROWS = every(SCHEMA, INTEGERS, TEXTS, LARGE)


def filters(predicate, schema):
    """The predicate as the optimizer leaves it, in pieces all of which must hold."""
    engine = SessionContext()
    engine.sql("SET datafusion.sql_parser.enable_ident_normalization = false")
    engine.register_table("rows", engine.from_arrow(schema.arrow.empty_table()))
    found = []
    waiting = [engine.sql(f"SELECT * FROM rows WHERE {predicate}").optimized_logical_plan()]
    while waiting:
        plan = waiting.pop()
        if type(plan.to_variant()).__name__ == "Filter":
            found.append(plan.to_variant().predicate())
        elif type(plan.to_variant()).__name__ == "EmptyRelation":
            return None
        waiting += plan.inputs()
    return found


def ranges_of(predicate, schema=SCHEMA):
    found = filters(predicate, schema)
    if found is None:
        return ()
    codec = schema.codec
    return key_ranges(keys_of(condition_of(found), codec), codec)


def passing(predicate, rows=ROWS):
    engine = SessionContext()
    engine.sql("SET datafusion.sql_parser.enable_ident_normalization = false")
    engine.register_record_batches("rows", [rows.to_batches()])
    return engine.sql(f"SELECT * FROM rows WHERE {predicate}").to_arrow_table()


def keys_in(rows, schema=SCHEMA):
    return set(
        schema.codec.encode_columns(
            rows.select(list(schema.row_key_names)).cast(pa.schema([f.arrow for f in schema.row_key]))
        ).to_pylist()
    )


def check(predicate, *, exactly, schema=SCHEMA, rows=ROWS):
    """Every row that passes lies in a range; with ``exactly`` no other row does."""
    ranges = ranges_of(predicate, schema)
    assert list(ranges) == sorted(ranges, key=lambda keys: keys.min)
    assert all(a.max is not None and a.max < b.min for a, b in itertools.pairwise(ranges))
    wanted = keys_in(passing(predicate, rows), schema)
    held = {key for key in keys_in(rows, schema) if any(keys.contains(key) for keys in ranges)}
    assert wanted <= held
    if exactly:
        assert held == wanted, ranges


@pytest.mark.parametrize(
    "predicate",
    [
        "a = 1",
        "1 = a",
        "a <> 1",
        "a IN (3, 1, 2, 255, 256)",
        "a NOT IN (3, 1, 2, 255, 256)",
        "a BETWEEN 1 AND 255",
        "a NOT BETWEEN 1 AND 255",
        "a < 1",
        "a <= 1 AND a > -7",
        "2 < a",
        "NOT (a < 1 OR a = 3)",
        "a IS NULL",
        "a IS NOT NULL",
        "a = NULL",
        "a = 1 AND a = 2",
        "(a = 1) IS TRUE",
        # Literals that the column's type does not hold.
        "a = 3000000000",
        "a < 3000000000",
        "a > -3000000000",
        "a >= 3000000000",
        "a <= 99999999999999999999",
        "a > 1.5",
        "a < 1.5",
        "a = 1.5",
        "a >= -0.5",
        "a <= 2.0",
        "a = 2.0",
        "a <> 2.0",
        "a > CAST(1.5 AS DECIMAL(10, 2))",
        "a = CAST(2 AS DECIMAL(10, 2))",
        "CAST(a AS BIGINT) = 2",
        "CAST(a AS DOUBLE) < 2.5",
        f"a > {-INT32 - 1}",
        f"a >= {INT32}",
        f"a > {INT32}",
        f"a < {-INT32 - 1}",
        # Prefixes of the key.
        "a = 1 AND t = 'ab'",
        "t = 'ab' AND a IN (1, 2)",
        "a = 1 AND t > 'ab'",
        "a = 1 AND t < 'ab'",
        f"a = {INT32} AND t >= 'abc'",
        f"a = {-INT32 - 1} AND t = ''",
        "a = 1 AND t LIKE 'ab%'",
        "a = 255 AND t = 'ab' AND n = 5",
        "a = 255 AND t = 'ab' AND n > 0",
        "a = 255 AND t = '' AND n BETWEEN 0 AND 5",
        f"a = 256 AND t = '\U0010ffff' AND n = {INT64}",
        f"a = 256 AND t = 'a\x00' AND n <> {-INT64 - 1}",
        "a IN (1, 2) AND t IN ('a', 'b') AND n IN (0, 1)",
        "(a = 1 AND t = 'ab') OR (a = 2 AND t = 'b') OR a > 255",
        "(a = 1 AND t = 'ab') OR (a = 1 AND t = 'ab' AND n = 5)",
        "(a = 1 OR a > 100) AND (t = 'ab' OR a > 100)",
        "a = 1 AND t LIKE ''",
        "a = 1 AND t LIKE '%'",
        "a = 1 AND t LIKE 'ab'",
        "a = 1 AND starts_with(t, 'ab')",
        "false",
        "a = 1 AND v = 1",
    ],
)
def test_a_predicate_on_a_prefix_of_the_key_is_exactly_its_ranges(predicate):
    check(predicate, exactly=True)


@pytest.mark.parametrize(
    "predicate",
    [
        "t = 'ab'",
        "n > 5",
        "v = 1",
        "a + 1 = 2",
        "CAST(a AS VARCHAR) < '1'",
        "a % 2 = 0",
        "signum(a) = 1",
        "a = n",
        "a = 1 OR v = 2",
        "t ILIKE 'AB%' OR t = 'x'",
        "upper(t) = 'AB'",
        "a IS DISTINCT FROM 1",
        "random() < 2",
    ],
)
def test_what_does_not_bound_the_first_field_leaves_every_key(predicate):
    assert ranges_of(predicate) == (ALL_KEYS,)
    check(predicate, exactly=False)


@pytest.mark.parametrize(
    ("predicate", "bounded"),
    [
        ("a = 1 AND t LIKE 'a\\%%'", "a = 1 AND t LIKE 'a%'"),
        ("a = 1 AND t LIKE 'a_c'", "a = 1 AND t LIKE 'a%'"),
        ("a = 1 AND t LIKE '%c'", "a = 1"),
        ("a = 1 AND t NOT LIKE 'a%'", "a = 1"),
        ("a = 1 AND t ILIKE 'A%'", "a = 1"),
        ("a = 1 AND n = 5", "a = 1"),
        ("a > 1 AND t = 'ab'", "a > 1"),
        ("a = 1 AND v + 1 = 3", "a = 1"),
        ("a BETWEEN 1 AND 3 AND upper(t) = 'AB'", "a BETWEEN 1 AND 3"),
    ],
)
def test_what_is_not_understood_only_widens(predicate, bounded):
    assert ranges_of(predicate) == ranges_of(bounded)
    check(predicate, exactly=False)


def test_values_of_several_fields_are_multiplied_up_to_a_bound():
    many = ", ".join(str(i) for i in range(101))
    assert len(ranges_of(f"a IN ({many}) AND t IN ('x', 'y')")) == 202


def test_neighbours_share_a_range_where_there_would_be_too_many():
    many = ", ".join(str(3 * i) for i in range(2 * RANGES_MAX + 1))
    found = ranges_of(f"a IN ({many})")
    assert RANGES_MAX // 2 < len(found) <= RANGES_MAX
    assert all(covered(found, ((3 * i, "", 0) for i in range(2 * RANGES_MAX + 1))))
    assert not any(covered(found, [(-1, "", 0), (6 * RANGES_MAX + 1, "", 0)]))

    many = ", ".join(str(3 * i) for i in range(101))
    texts = [f"{i:03}" for i in range(2 * RANGES_MAX // 101)]
    found = ranges_of(f"a IN ({many}) AND t IN ({', '.join(map(repr, texts))}) AND n > 3")
    assert 101 < len(found) <= RANGES_MAX
    assert all(covered(found, ((3 * i, text, 4) for i in range(101) for text in texts)))
    assert not any(covered(found, ((3 * i, text, 4) for i in range(101) for text in ("", "9"))))
    assert not any(covered(found, ((3 * i + 1, text, 4) for i in range(101) for text in texts)))


def covered(ranges, keys):
    """Whether each key is in one of the ranges."""
    starts = [one.min for one in ranges]
    for values in keys:
        key = SCHEMA.codec.encode(values)
        at = bisect.bisect_right(starts, key) - 1
        yield at >= 0 and (ranges[at].max is None or key < ranges[at].max)


def test_a_long_chain_of_comparisons_is_no_deeper_than_a_short_one():
    schema = Schema(row_key={"a": "int64", "b": "int64"}, values={"v": "int64"})
    chain = " OR ".join(f"(a = {3 * i} AND b > {i})" for i in range(300))
    assert len(ranges_of(chain, schema)) == 300


KINDS = Schema(row_key={"d": "date", "s": "timestamp[us, tz=UTC]"}, values={"v": "int64"})
DAYS = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(2200, 12, 31)]
MOMENTS = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2020, 2, 29, 12, tzinfo=dt.UTC),
    dt.datetime(2020, 2, 29, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2020, 3, 1, tzinfo=dt.UTC),
]
TIMES = every(KINDS, DAYS, MOMENTS)


@pytest.mark.parametrize(
    "predicate",
    [
        "d = '2020-02-29'",
        "d > DATE '1970-01-01'",
        "d >= TIMESTAMP '1970-01-01 00:00:01'",
        "d < TIMESTAMP '2020-02-29 12:00:00'",
        "d = TIMESTAMP '2020-02-29 12:00:00'",
        "d = '2020-02-29' AND s >= '2020-02-29T12:00:00Z'",
        "d = '2020-02-29' AND s >= '2020-02-29T14:00:00+02:00'",
        "d = '2020-02-29' AND s BETWEEN '1970-01-01' AND '2020-02-29T23:59:59Z'",
        "d = '2020-02-29' AND CAST(s AS DATE) = '2020-02-29'",
        "d = '2020-02-29' AND CAST(s AS DATE) < '1970-01-01'",
        "d = '2020-02-29' AND s = '2020-02-29T12:00:00Z'",
        "d IN ('2020-02-29', '1970-01-01') AND s < '1970-01-01'",
    ],
)
def test_dates_and_times_are_compared_as_the_engine_does(predicate):
    check(predicate, exactly=True, schema=KINDS, rows=TIMES)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["", ", tz=UTC", ", tz=Europe/Berlin"])
@pytest.mark.parametrize(
    "predicate",
    [
        "s >= '2020-02-29T12:00:00.5'",
        "s = '2020-02-29 12:00:00'",
        "CAST(s AS DATE) = '1969-12-31'",
        "CAST(s AS DATE) <= '2020-02-29'",
        "CAST(s AS TIMESTAMP) < '1970-01-01'",
        "s < TIMESTAMP '1970-01-01'",
        "s > arrow_cast('1969-12-31T23:59:59.9999999', 'Timestamp(ns)')",
        "s > arrow_cast('1970-01-01T00:00:00', 'Timestamp(s, \"UTC\")')",
    ],
)
def test_times_of_any_unit_and_zone_lose_no_row(unit, zone, predicate):
    schema = Schema(row_key={"s": f"timestamp[{unit}{zone}]"}, values={"v": "int64"})
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moments = [int(moment.timestamp() * 10**6) * ticks // 10**6 + step for moment in MOMENTS for step in (-1, 0, 1)]
    column = pa.array(sorted(set(moments)), pa.int64()).cast(schema.row_key[0].type)
    rows = pa.table([column, pa.array([1] * len(column))], schema=schema.arrow)
    check(predicate, exactly=False, schema=schema, rows=rows)


BINARY = Schema(row_key={"b": "binary"}, values={"v": "int64"})
BYTES = every(BINARY, [b"", b"\x00", b"\x00\x01", b"a", b"\xff", b"\xff\xff"])


@pytest.mark.parametrize("predicate", ["b = X'61'", "b > X'00'", "b <= X'0001'", "b >= X'FF'", "b IN (X'', X'FFFF')"])
def test_bytes_are_compared_as_bytes(predicate):
    check(predicate, exactly=True, schema=BINARY, rows=BYTES)


WIDE = Schema(row_key={"n": "int64", "t": "string"}, values={"v": "int64"})
WIDE_ROWS = every(WIDE, LARGE, ["x"])


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    "literal",
    ["9007199254740992.0", "9007199254740993.0", "-9007199254740993.0", "1e300", "-1e300", "9.3e18", "0.0", "-0.0",
     "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)", "18446744073709551615", "9223372036854775808"],
)  # fmt: skip
def test_a_float_that_cannot_keep_the_integer_loses_no_row(operator, literal):
    check(f"n {operator} {literal}", exactly=False, schema=WIDE, rows=WIDE_ROWS)


COLUMN_AND_LITERAL = [
    *[("a", str(value)) for value in [*INTEGERS, 4, 1.5, 3_000_000_000, -2.5]],
    *[("t", "'" + value + "'") for value in [*TEXTS, "aa"]],
    *[("n", str(value)) for value in [*LARGE[1:], 0.5, 1e18]],
    ("v", "1"),
]
COMPARISONS = st.one_of(
    st.builds(lambda pair, op: f"{pair[0]} {op} {pair[1]}", st.sampled_from(COLUMN_AND_LITERAL),
              st.sampled_from(["=", "=", "<>", "<", "<=", ">", ">="])),
    st.builds(lambda values, no: f"a {no}IN ({', '.join(map(str, values))})",
              st.lists(st.sampled_from(INTEGERS), min_size=1, max_size=6), st.sampled_from(["", "NOT "])),
    st.builds(lambda low, high, no: f"t {no}BETWEEN '{low}' AND '{high}'",
              st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.sampled_from(["", "NOT "])),
    st.builds(lambda stem, tail, no: f"t {no}LIKE '{stem}{tail}'",
              st.sampled_from(TEXTS), st.sampled_from(["%", "_", "", "%b"]), st.sampled_from(["", "NOT "])),
    st.sampled_from(["a IS NULL", "t IS NOT NULL", "a = n", "a % 2 = 0", "NULL", "true", "CAST(a AS DOUBLE) > 1.5"]),
)  # fmt: skip
PREDICATES = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"({a} AND {b})", inner, inner),
        st.builds(lambda a, b: f"({a} OR {b})", inner, inner),
        st.builds(lambda a: f"(NOT {a})", inner),
        st.builds(lambda a: f"(({a}) IS TRUE)", inner),
    ),
    max_leaves=8,
)


@settings(max_examples=settings.default.max_examples * 3, deadline=None)
@given(PREDICATES)
def test_no_row_that_passes_any_predicate_lies_outside_its_ranges(predicate):
    check(predicate, exactly=False)


def test_ranges_that_touch_are_one():
    assert ranges_of("a = 1 OR a = 2 OR a = 3") == (EncodedRange(SCHEMA.codec.encode((1,)), SCHEMA.codec.encode((4,))),)


@pytest.mark.parametrize(
    ("predicate", "whole"),
    [
        ("n = 3", False),
        ("1 = 1 AND n = 3", False),
        ("n + 1 > v", False),
        ("-(-3) > n", True),
        ("a = 1 OR NOT ('2' BETWEEN t AND t)", True),
        ("'2' IN (t)", True),
    ],
)
def test_a_predicate_that_begins_with_a_constant_is_joined_with_no_other_condition(predicate, whole):
    assert check_where(predicate, SCHEMA.arrow).alone.endswith("IS TRUE") is whole


def test_a_predicate_may_be_as_deep_as_the_engine_allows():
    assert check_where("+".join(["n"] * 500) + " > 3", SCHEMA.arrow).columns == ("n",)


def test_a_value_with_line_breaks_is_no_operator():
    where = "s = 'a\nSortExec: b' AND n > 1"
    found = check_where(where, pa.schema([("s", pa.string()), ("n", pa.int64())]))
    assert (found.text, set(found.columns)) == (where, {"s", "n"})


@pytest.mark.parametrize("where", ["n = 7 AND n = 8", "n > 3 AND n < 3", "n = 1 AND n IS NULL", "n <> n"])
def test_a_contradiction_is_true_for_no_row(where):
    """The optimizer replaces it by a constant, and its columns are needed nevertheless."""
    predicate = check_where(where, SCHEMA.arrow)
    assert predicate.columns == ("n",)
    rows = pa.RecordBatch.from_arrays([pa.array([7, 8, None], SCHEMA.arrow.field("n").type)], ["n"])
    assert keep(rows, predicate).num_rows == 0
