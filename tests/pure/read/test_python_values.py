"""Values of Python of columns of Arrow: the value itself, computed here from numbers by Python alone, or an error."""

import datetime as dt
import uuid
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import Code
from lakebed.model.python_values import python_rows
from lakebed.model.type_names import parse_name
from tests.raising import raises

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
INT64 = st.integers(-(2**63), 2**63 - 1)


def values_of(column):
    return [value for (value,) in python_rows(pa.record_batch([column], ["x"]))]


def as_python(number, unit, make):
    """What ``make`` makes of this many units as whole microseconds; None where there is no such value."""
    micros = Fraction(number * 10**6, PER_SECOND[unit])
    try:
        return make(dt.timedelta(microseconds=int(micros))) if micros.denominator == 1 else None
    except OverflowError:
        return None


def check(column, expected):
    if expected is None:
        with raises(Code.TYPE_UNSUPPORTED):
            values_of(column)
    else:
        found = values_of(column)
        assert found == [expected]
        assert type(found[0]) is type(expected)


ZONES = {"+05:30": dt.timezone(dt.timedelta(hours=5.5)), "America/New_York": ZoneInfo("America/New_York")}
UNITS = st.sampled_from(sorted(PER_SECOND))
# Most integers of 64 bits are times that Python does not have.
NUMBERS = st.one_of(INT64, st.integers(-(10**10), 10**10), st.integers(-(10**7), 10**7).map(lambda n: n * 10**9))


@given(UNITS, NUMBERS, st.sampled_from([None, "UTC", *ZONES]))
def test_a_time_is_itself_in_its_zone_or_refused(unit, number, zone):
    expected = as_python(number, unit, lambda passed: EPOCH + passed)
    if expected is not None and zone != "UTC":
        try:
            expected = expected.astimezone(ZONES[zone]) if zone else expected.replace(tzinfo=None)
        except OverflowError:
            expected = None
    column = pa.array([number], pa.timestamp(unit, zone))
    check(column, expected)
    if expected is not None:
        assert values_of(column)[0].utcoffset() == expected.utcoffset()


@given(UNITS, NUMBERS)
def test_a_duration_is_itself_or_refused(unit, number):
    check(pa.array([number], pa.duration(unit)), as_python(number, unit, lambda passed: passed))


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_date_is_itself_or_refused(days):
    expected = None
    if dt.date.min.toordinal() <= days + EPOCH.toordinal() <= dt.date.max.toordinal():
        expected = dt.date.fromordinal(days + EPOCH.toordinal())
    check(pa.array([days], pa.date32()), expected)


@given(st.integers(0, 86_399), st.integers(0, 999_999_999))
def test_a_time_of_day_is_itself_or_refused(second, nanos):
    column = pa.array([second * 10**9 + nanos], pa.time64("ns"))
    midnight = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the type has no zone
    expected = None if nanos % 1000 else (midnight + dt.timedelta(seconds=second, microseconds=nanos // 1000)).time()
    check(column, expected)


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
PLAIN = {
    "bool": [True, False],
    **{f"{sign}int{bits}": [0, 2 ** (bits - (not sign)) - 1] for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": [1.5],
    "float": [0.5, float("-inf")],
    "double": [0.1, -0.0],
    "decimal128(10, 2)": [Decimal("1.50"), Decimal("-99999999.99")],
    "decimal256(76, 0)": [Decimal(10) ** 75],
    "string": ["", "ü\x00"],
    "binary": [b"", b"\x00\xff"],
    "fixed_size_binary[2]": [b"ab"],
    "uuid": [uuid.UUID(int=5)],
    "json": ['{"a": 1}'],
    "time32[s]": [dt.time(23, 59, 59)],
    "dictionary<string>": ["a", "b", "a"],
    "list<int64>": [[], [1, None]],
    "fixed_size_list<float>[2]": [[1.0, 2.0]],
    "struct<x: int64, at: timestamp[ns, tz=UTC]>": [{"x": 1, "at": NOON}],
    "map<string, list<timestamp[ns]>>": [[("a", [NOON.replace(tzinfo=None)])]],
    "null": [],
}


@pytest.mark.parametrize("name", PLAIN)
def test_values_of_other_types_come_back_as_they_went_in_with_nulls_between_them(name):
    kind = parse_name(name)
    values = [value for one in PLAIN[name] for value in (one, None)] or [None]
    if name in ("uuid", "json"):
        stored = [value.bytes if isinstance(value, uuid.UUID) else value for value in values]
        column = pa.ExtensionArray.from_storage(kind, pa.array(stored, kind.storage_type))
    else:
        column = pa.array(values, kind)
    found = values_of(column)
    assert found == values
    assert list(map(type, found)) == list(map(type, values))
    # A slice begins inside its buffers.
    assert values_of(column[1:]) == values[1:]


def test_rows_without_columns_are_empty_tuples():
    rows = pa.record_batch({"x": [1, 2]}).select([])
    assert python_rows(rows) == [()] * rows.num_rows
