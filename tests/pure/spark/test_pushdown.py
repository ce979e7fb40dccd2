"""Filters become ranges of the key: exactly those keys that pass, and what is not done is given back."""

import datetime as dt
import itertools
import math
import operator
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from lakebed import Schema
from lakebed.model.keys import ALL_KEYS
from lakebed.model.type_names import parse_name
from lakebed.read.rows import key_ranges
from lakebed.read.rows.conditions import keys_of, narrow
from lakebed.read.rows.page_bounds import BoundedColumns
from lakebed.spark.datasource.options import push

SCHEMA = Schema({"k": "string", "n": "int32"}, {"s": "int64"}, {"v": "double"})
KEYS = list(itertools.product(["", "a", "ab", "b", "\U0010ffff"], [-(2**31), -1, 0, 1, 2**31 - 1]))
NAIVE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)
K, N, V = ("k",), ("n",), ("v",)


def left_over(filters, schema=SCHEMA, keys=KEYS):
    """The keys inside the ranges, and the filters that Spark has to look at."""
    pushed = push(filters, schema)
    ranges, _ = narrow((ALL_KEYS,), pushed.condition, schema)
    kept = [key for key in keys if any(keys.contains(schema.codec.encode_key(key)) for keys in ranges)]
    return kept, [one for position, one in enumerate(filters) if position not in pushed.done]


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ([EqualTo(K, "a")], lambda k, n: k == "a"),
        ([EqualNullSafe(K, "a")], lambda k, n: k == "a"),
        ([GreaterThan(K, "a")], lambda k, n: k > "a"),
        ([GreaterThanOrEqual(K, "a"), LessThan(K, "b")], lambda k, n: "a" <= k < "b"),
        ([LessThanOrEqual(K, "ab")], lambda k, n: k <= "ab"),
        ([StringStartsWith(K, "a")], lambda k, n: k.startswith("a")),
        ([StringStartsWith(K, ""), IsNotNull(K)], lambda k, n: True),
        ([StringStartsWith(K, "\U0010ffff")], lambda k, n: k == "\U0010ffff"),
        ([In(K, ["a", None, "b", "a", "none"])], lambda k, n: k in ("a", "b")),
        ([In(K, [None])], lambda k, n: False),
        ([EqualTo(K, "a"), EqualTo(N, 0)], lambda k, n: (k, n) == ("a", 0)),
        ([In(K, ["a", "b"]), In(N, [-1, 1])], lambda k, n: k in ("a", "b") and n in (-1, 1)),
        ([In(K, ["a", "b"]), GreaterThan(N, 0)], lambda k, n: k in ("a", "b") and n > 0),
        ([EqualTo(K, "a"), GreaterThan(N, 2**31 - 1)], lambda k, n: False),
        ([EqualTo(K, "a"), LessThan(N, -(2**31))], lambda k, n: False),
        ([In(K, ["a", "b"]), GreaterThan(K, "a")], lambda k, n: k == "b"),
        ([EqualTo(K, "a"), EqualTo(K, "b")], lambda k, n: False),
        ([In(K, ["b", "a"]), In(K, ["ab", "b", None]), EqualNullSafe(K, "b")], lambda k, n: k == "b"),
        ([GreaterThan(K, "b"), LessThan(K, "a")], lambda k, n: False),
    ],
)
def test_what_is_pushed_keeps_exactly_the_keys_that_pass(filters, passes):
    kept, rest = left_over(filters)
    assert kept == [key for key in KEYS if passes(*key)]
    assert rest == []


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(V, 1.0)],
        [GreaterThan(N, 0)],
        [Not(EqualTo(K, "a"))],
        [StringContains(K, "a")],
        [EqualTo(("k", "member"), "a")],
        [EqualTo(K, 7)],
        [EqualTo(K, "a" * 9000)],
    ],
    ids=["a value", "no first field", "a negation", "a middle", "a member", "another type", "no key is so long"],
)
def test_what_says_nothing_about_a_range_of_the_key_stays_with_spark(filters):
    kept, rest = left_over(filters)
    assert (kept, rest) == (KEYS, filters)


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ([EqualTo(N, 0)], lambda n: n == 0),
        ([GreaterThan(N, -1), LessThanOrEqual(N, 1)], lambda n: -1 < n <= 1),
        ([In(N, [1, -1]), EqualTo(V, 1.0)], lambda n: n in (-1, 1)),
        ([In(N, [None])], lambda n: False),
        ([Not(EqualTo(N, 0)), EqualTo(V, 1.0)], lambda n: True),
        ([GreaterThan(N, 2**31 - 1)], lambda n: False),
    ],
)
def test_what_filters_say_of_a_later_field_is_known_by_itself(filters, passes):
    order, field = SCHEMA.order, SCHEMA.row_key[1]
    keys = keys_of(push(filters, SCHEMA).condition, order)
    for version in (-(2**31), -1, 0, 1, 2**31 - 1):
        value = type(order)((field,)).encode((version,))
        held = any(all(any(r.contains(value) for r in ranges) for _, ranges in box) for box in keys.boxes)
        assert held == passes(version)


def test_a_field_after_one_that_is_only_compared_stays_with_spark():
    kept, rest = left_over([GreaterThan(K, "a"), EqualTo(N, 0), EqualTo(V, 1.0)])
    assert kept == [key for key in KEYS if key[0] > "a"]
    assert rest == [EqualTo(N, 0), EqualTo(V, 1.0)]


def test_too_many_points_are_left_to_spark_field_by_field():
    filters = [In(K, ["a", "b", *map(str, range(200))]), In(N, [-1, 1, *range(2, 60)])]
    assert len(filters[0].value) * len(filters[1].value) > key_ranges.RANGES_MAX
    kept, rest = left_over(filters)
    assert kept == [key for key in KEYS if key[0] in ("a", "b") and key[1] in (-1, 0, 1)]
    assert rest == filters[1:]


@pytest.mark.parametrize(
    ("kind", "value", "near"),
    [
        ("date", dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
        ("timestamp[us]", NAIVE, NAIVE + dt.timedelta(microseconds=1)),
        ("timestamp[ns, tz=UTC]", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, tzinfo=dt.UTC)),
        ("binary", b"\x00", b"\x00\x00"),
        ("int64", -(2**63), 2**63 - 1),
    ],
)
def test_keys_of_every_type_are_compared_as_spark_hands_them_over(kind, value, near):
    schema = Schema({"k": kind})
    kept, rest = left_over([LessThanOrEqual(K, value)], schema, [(value,), (near,)])
    assert (kept, rest) == ([(value,)], [])


def test_a_time_that_the_key_cannot_hold_exactly_stays_with_spark():
    schema = Schema({"k": "timestamp[s]"})
    filters = [GreaterThan(K, NAIVE + dt.timedelta(microseconds=5))]
    assert left_over(filters, schema, [])[1] == filters


def as_java(value):
    """A value as Spark hands it over: Java's calendar has no days from 1582-10-05 to 14, and makes them the 15th."""
    day = value.date() if isinstance(value, dt.datetime) else value
    if not dt.date(1582, 10, 5) <= day <= dt.date(1582, 10, 14):
        return value
    if isinstance(value, dt.datetime):
        # A time without a zone is passed as it is.
        return value if value.tzinfo is None else value.replace(day=15)
    return dt.date(1582, 10, 15)


DAYS = [dt.date(1, 1, 1), *(dt.date(1582, 10, day) for day in (4, 5, 10, 14, 15, 16, 25)), dt.date(1900, 1, 1)]
OF_DAYS = {
    "date32": DAYS,
    "timestamp[us]": [dt.datetime.combine(day, dt.time(12)) for day in DAYS],
    "timestamp[us, tz=UTC]": [dt.datetime.combine(day, dt.time(12), dt.UTC) for day in DAYS],
}


@pytest.mark.parametrize("kind", OF_DAYS)
@pytest.mark.parametrize(
    ("form", "compared"),
    [(EqualTo, operator.eq), (LessThan, operator.lt), (LessThanOrEqual, operator.le), (GreaterThan, operator.gt),
     (GreaterThanOrEqual, operator.ge), (lambda name, value: In(name, [value, value]), operator.eq)],
)  # fmt: skip
def test_days_that_java_does_not_have_stay_with_spark(kind, form, compared):
    values, schema = OF_DAYS[kind], Schema({"k": kind})
    for asked in values:
        filters = [form(K, as_java(asked))]
        kept, rest = left_over(filters, schema, [(value,) for value in values])
        wanted = [(value,) for value in values if compared(value, asked)]
        assert set(wanted) <= set(kept), asked
        assert rest == filters or kept == wanted, asked


def test_each_value_of_a_long_list_is_looked_at_a_few_times():
    class Counted(int):
        looked_at = 0

        def __hash__(self):
            Counted.looked_at += 1
            return super().__hash__()

    count = 2_000
    numbers = Schema({"n": "int64"}, {}, {"v": "double"})
    filters = [In(N, [Counted(i) for i in range(count)]), GreaterThan(N, 0)]
    pushed = push(filters, numbers)
    (keys,) = keys_of(pushed.condition, numbers.order).boxes
    assert len(keys[0][1]) == count - 1
    assert pushed.done == {0, 1}
    assert Counted.looked_at < 20 * count


OF_TYPES = {
    "bool": [False, True],
    "uint64": [0, 5, 2**63 - 1],
    "int8": [-128, 0, 127],
    "decimal128(10, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("99999999.99")],
    "float": [-2.5, 0.5, 1e30],
    "double": [float("-inf"), -1.5, 1e300],
    "uuid": [str(uuid.UUID(int=n)) for n in (0, 1, 2**127)],
    "fixed_size_binary[2]": [b"\x00\x00", b"a\x00", b"\xff\xff"],
    "date32": [dt.date(1900, 1, 1), dt.date(2020, 1, 31)],
    "timestamp[us]": [dt.datetime(1900, 1, 1), dt.datetime(2020, 1, 31, 12)],  # noqa: DTZ001 - no zone
}


@pytest.mark.parametrize("kind", OF_TYPES)
def test_filters_on_keys_of_every_type_keep_exactly_the_keys_that_pass(kind):
    values = OF_TYPES[kind]
    schema, keys = Schema({"k": kind}), [(value,) for value in values]
    for value in values:
        for made, passes in ((EqualTo, operator.eq), (GreaterThan, operator.gt), (LessThanOrEqual, operator.le)):
            kept, rest = left_over([made(K, value)], schema, keys)
            assert (kept, rest) == ([key for key in keys if passes(key[0], value)], [])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("double", float("nan")),
        ("double", 0.0),
        ("uuid", str(uuid.UUID(int=10)).upper()),
        ("uuid", "none"),
        ("binary", b"a" * 9000),
    ],
)
def test_what_spark_compares_in_another_way_stays_with_spark(kind, value):
    schema = Schema({"k": kind})
    assert left_over([EqualTo(K, value)], schema, []) == ([], [EqualTo(K, value)])
    assert narrow((ALL_KEYS,), push([EqualTo(K, value)], schema).condition, schema)[0] == (ALL_KEYS,)


@pytest.mark.parametrize("kind", OF_TYPES)
def test_filters_on_values_narrow_and_stay_with_spark(kind):
    """Null passes no comparison, but is null."""
    values = OF_TYPES[kind]
    schema = Schema({"k": "int64"}, values={"v": pa.field("v", parse_name(kind), nullable=True)})
    codec = Schema({"v": kind}).codec
    for value in values:
        for made, passes in (
            (EqualTo, operator.eq),
            (EqualNullSafe, operator.eq),
            (GreaterThan, operator.gt),
            (GreaterThanOrEqual, operator.ge),
            (LessThan, operator.lt),
            (LessThanOrEqual, operator.le),
            (lambda name, one: In(name, [one, None]), operator.eq),
        ):
            pushed = push([made(V, value)], schema)
            assert not pushed.done
            found = BoundedColumns.of(pushed.condition, schema)
            ranges = [ALL_KEYS] if found is None else [keys for box in found.boxes for _, one in box for keys in one]
            kept = [one for one in values if any(keys.contains(codec.encode_key([one])) for keys in ranges)]
            assert kept == [one for one in values if passes(one, value)]


@pytest.mark.parametrize(
    "filters",
    [[EqualNullSafe(V, None)], [IsNotNull(V)], [Not(EqualTo(V, 1.0))], [EqualTo(V, 0.0)], [EqualTo(V, math.nan)],
     [EqualTo(("other",), 1)], [StringContains(K, "a")]],
)  # fmt: skip
def test_filters_that_null_or_any_value_may_pass_narrow_nothing(filters):
    pushed = push(filters, SCHEMA)
    assert not pushed.done
    assert BoundedColumns.of(pushed.condition, SCHEMA) is None
