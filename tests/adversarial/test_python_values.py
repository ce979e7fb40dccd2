"""Hostile values of Python in fields of all types: each arrives exactly, or is refused with its row, column and value.

What a value means, and what a field holds, is worked out here in fractions, from the fields of Python's objects and
from the stored bits; nothing of the library's conversions, and nothing of Arrow's, is used for it.
"""

# ruff: noqa: DTZ001, PT017 - local times are values here, and an error is one of two right answers

import dataclasses
import datetime as dt
import enum
import itertools
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather, orc

import lakebed
from lakebed import BadKeyError, Error, KeyRange, Schema, SchemaMismatchError, UsageError, clock
from lakebed.errors import Code
from lakebed.model import types
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.write.conformer import Conformer
from lakebed.write.python_data import open_stream
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.source_rows import conformed
from tests.processes.web.serving import serving
from tests.raising import raises

BERLIN = ZoneInfo("Europe/Berlin")
EAST = dt.timezone(dt.timedelta(hours=2))
ODD = dt.timezone(dt.timedelta(hours=-3, minutes=-7, seconds=-30))
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Level(enum.IntEnum):
    ONE = 1


class NoOffset(dt.tzinfo):
    """A zone that does not know its offset: a datetime with it is local."""

    def utcoffset(self, when):
        return None

    def tzname(self, when):
        return None

    dst = utcoffset


INTEGERS = [0, 1, -1, 127, 128, 255, 256, -129, 65_504, 70_000, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63)]
INTEGERS += [2**64 - 1, 2**64, 10**30, -(10**40)]
FLOATS = [
    0.0,
    -0.0,
    0.1,
    1.5,
    -2.0,
    65_504.0,
    65_520.0,
    70_000.0,
    3.4028235e38,
    3.5e38,
    1e39,
    5e-324,
    1.7976931348623157e308,
]
FLOATS += [math.inf, -math.inf, math.nan, 2.0**53 + 2, 2.0**63]
DECIMALS = ["1.50", "1E+3", "-0", "0.001", "99999999.99", "100000000.00", "1E-30", "1E+40", "NaN", "Infinity", "1.10"]
DATETIMES = [
    dt.datetime(2024, 1, 1),
    dt.datetime(2024, 1, 1, 12, 30, 5),
    dt.datetime(2024, 1, 1, 0, 0, 0, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1, 1, 1),
    dt.datetime(1600, 2, 29),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(2263, 1, 1),
]
ZONED = [
    dt.datetime(2024, 1, 1, tzinfo=EAST),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=ODD),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
    dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
    dt.datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN),
    dt.datetime(1800, 1, 1, tzinfo=BERLIN),
    dt.datetime(1, 1, 1, 1, tzinfo=EAST),
    dt.datetime(9999, 12, 31, 23, tzinfo=ODD),
]
TIMESTAMPS = [
    pd.Timestamp("2024-01-01T00:00:00.000000001"),
    pd.Timestamp("1969-12-31T23:59:59.999999999"),
    pd.Timestamp("2024-01-01T00:00:00.000001"),
    pd.Timestamp("2024-01-01T00:00:00.000000001", tz="Europe/Berlin"),
    pd.Timestamp("2024-01-01", tz="UTC"),
    pd.Timestamp.min,
    pd.Timestamp.max,
    pd.Timestamp("9999-12-31").as_unit("s"),
]
DATETIME64 = [
    "2024-01-01T00:00:00.000000001",
    "2024-01-01T00:00:00.000001",
    "2024-01-01T00:00:00",
    "1969-12-31T23:59:59.9",
]
VALUES = [
    *INTEGERS,
    *FLOATS,
    *map(Decimal, DECIMALS),
    *DATETIMES,
    *ZONED,
    *TIMESTAMPS,
    dt.datetime(2024, 1, 1, tzinfo=NoOffset()),
    *map(np.datetime64, DATETIME64),
    np.datetime64("2024-01-01"),
    np.datetime64("2024-01"),
    np.datetime64("2024-01-01T05", "h"),
    np.datetime64(7, "ps"),
    np.datetime64("NaT"),
    pd.NaT,
    pd.NA,
    None,
    dt.date(2024, 1, 1),
    dt.date(1, 1, 1),
    dt.time(1, 2, 3),
    dt.time(1, 2, 3, 4),
    dt.time(1, 2, 3, tzinfo=EAST),
    dt.time(1, 2, 3, tzinfo=dt.UTC),
    dt.timedelta(seconds=1),
    pd.Timedelta(1, "ns"),
    np.timedelta64(1, "s"),
    True,
    False,
    np.bool_(1),
    Level.ONE,
    np.int8(-3),
    np.uint64(2**64 - 1),
    np.float16(1.5),
    np.float16("inf"),
    np.float32(0.1),
    np.float64(0.1),
    np.longdouble("0.1"),
    "",
    "x",
    "1.5",
    "2024-01-01",
    "\ud800",
    "a\0b",
    np.str_("s"),
    b"x",
    b"\xff",
    bytearray(b"ab"),
    uuid.UUID(int=5),
    str(uuid.UUID(int=5)),
    3 + 4j,
    object(),
]

ZONES = (None, "UTC", "Europe/Berlin")
KINDS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.binary(1)),
    *(pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal256(60, 20), pa.uuid()),
    *(pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in PER_SECOND for zone in ZONES),
]


# -- what a value means ------------------------------------------------------------------------------------------------


def number(value):
    """Return a number as a fraction, or what it is if it is none."""
    if isinstance(value, float) and (value == 0 or not math.isfinite(value)):
        return "-0" if math.copysign(1, value) < 0 and value == 0 else repr(value + 0)
    return Fraction(value) if value else "0.0"


def seconds(value):
    """Return the fields of a datetime as seconds since 1970, of whatever clock it is."""
    days = value.toordinal() - dt.date(1970, 1, 1).toordinal()
    clock_s = (value.hour * 60 + value.minute) * 60 + value.second
    return (
        days * 86_400 + clock_s + Fraction(value.microsecond, 10**6) + Fraction(getattr(value, "nanosecond", 0), 10**9)
    )


def meanings(value):
    """Return all that a value may mean: pairs of a kind and the exact value. None stands for null."""
    if value is None or value is pd.NaT or value is pd.NA:
        return {None}
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return {None}
        unit = np.datetime_data(value.dtype)[0]
        day = {"Y": "M", "M": "M"}.get(unit)
        part = Fraction(1, 10 ** {"ms": 3, "us": 6, "ns": 9, "ps": 12}.get(unit, 0)) * {"h": 3600, "D": 86_400}.get(
            unit, 1
        )
        if day:
            return {("local", seconds(dt.datetime.combine(dt.date.fromisoformat(f"{value}-01"), dt.time())))}
        return {("local", int(value.view(np.int64)) * part)}
    if isinstance(value, dt.datetime):
        offset = value.utcoffset()
        if offset is None:
            return {("local", seconds(value))}
        return {("instant", seconds(value) - Fraction(offset // dt.timedelta(microseconds=1), 10**6))}
    if isinstance(value, dt.date):
        return {("local", Fraction((value - dt.date(1970, 1, 1)).days * 86_400))}
    if isinstance(value, dt.time):
        since = (value.hour * 60 + value.minute) * 60 + value.second + Fraction(value.microsecond, 10**6)
        return {("clock", since) if value.tzinfo is None else ("no", "a time with an offset")}
    if isinstance(value, bool | np.bool_):
        return {("bool", bool(value))}
    if isinstance(value, dt.timedelta | np.timedelta64):
        return {("no", "no value of a field")}
    if isinstance(value, int | np.integer):
        return {("number", number(int(value))), ("whole", int(value))}
    if isinstance(value, float | np.float16 | np.float32):
        return {("number", number(float(value)))}
    if isinstance(value, Decimal):
        return {("number", number(value)) if value.is_finite() else ("no", "not a number")}
    if isinstance(value, str):
        found = {("bytes", value.encode("utf-8", "surrogatepass"))}
        return found | ({("uuid", uuid.UUID(value).bytes)} if len(value) == 36 else set())
    if isinstance(value, bytes | bytearray):
        return {("bytes", bytes(value)), ("uuid", bytes(value))}
    if isinstance(value, uuid.UUID):
        return {("uuid", value.bytes), ("bytes", value.bytes)}
    return {("no", "no value of a field")}


def held(kind, column, row):
    """Return all that a stored value stands for, from its bits; None for null."""
    if not column[row].is_valid:
        return {None}
    if pa.types.is_temporal(kind):
        stored = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())[row].as_py()
        if pa.types.is_date(kind):
            return {("local", Fraction(stored) * 86_400), ("whole", stored)}
        since = Fraction(stored, PER_SECOND[kind.unit])
        if pa.types.is_time(kind):
            return {("clock", since), ("whole", stored)}
        return {("instant" if kind.tz else "local", since), ("whole", stored)}
    value = (column.storage if isinstance(column, pa.ExtensionArray) else column)[row].as_py()
    if pa.types.is_boolean(kind):
        return {("bool", value)}
    if kind == pa.uuid():
        return {("uuid", value)}
    if pa.types.is_string(kind) or types.is_binary(kind):
        return {("bytes", value.encode() if isinstance(value, str) else value)}
    if pa.types.is_floating(kind):
        return {("number", number(float(value)))}
    # Only floats have two zeros.
    return {("number", number(value)), *([("number", "-0")] if value == 0 else [])}


def fits(value, kind):
    """Return whether a value is of the Python type of a field, and in its range: it has to be accepted."""
    found = meanings(value)
    wanted = dict.fromkeys(("number", "local", "instant", "clock", "bytes", "bool"))
    wanted |= {pair[0]: pair[1] for pair in found if pair is not None}
    if found == {None}:
        return value is None
    if pa.types.is_boolean(kind):
        return type(value) is bool
    if pa.types.is_string(kind):
        return type(value) is str and "\ud800" not in value
    if kind == pa.binary():
        return type(value) is bytes
    if pa.types.is_integer(kind) and type(value) is int:
        signed = pa.types.is_signed_integer(kind)
        width = kind.bit_width - signed
        return -(2**width) * signed <= value < 2**width
    if pa.types.is_float64(kind):
        return type(value) is float
    if pa.types.is_decimal(kind) and type(value) is Decimal and value.is_finite():
        return (Fraction(value) * 10**kind.scale).denominator == 1 and abs(value) < 10 ** (kind.precision - kind.scale)
    if pa.types.is_date(kind):
        return type(value) is dt.date
    if pa.types.is_time(kind) and type(value) is dt.time and value.tzinfo is None:
        return (wanted["clock"] * PER_SECOND[kind.unit]).denominator == 1
    if pa.types.is_timestamp(kind) and isinstance(value, dt.datetime):
        since = wanted["instant" if kind.tz else "local"]
        ticks = None if since is None else since * PER_SECOND[kind.unit]
        return ticks is not None and ticks.denominator == 1 and -(2**63) < ticks < 2**63
    return False


@dataclasses.dataclass(frozen=True)
class Wrap:
    """A type around that of a field, and values around its values; ``taken`` has the column inside."""

    name: str
    kind: Callable[[pa.DataType], pa.DataType]
    given: Callable[[object], object]
    taken: Callable[[pa.Array], pa.Array]


PLAIN = Wrap("plain", lambda kind: kind, lambda value: value, lambda column: column)
WRAPS = [
    Wrap("list", pa.list_, lambda value: [None, value], pa.ListArray.flatten),
    Wrap("fixed", lambda kind: pa.list_(kind, 2), lambda value: (None, value), pa.FixedSizeListArray.flatten),
    Wrap("struct", lambda kind: pa.struct([("x", kind)]), lambda value: {"x": value}, lambda c: c.field(0)),
    Wrap("map", lambda kind: pa.map_(pa.string(), kind), lambda value: [("a", value)], lambda c: c.items),
    Wrap(
        "deep",
        lambda kind: pa.list_(pa.struct([("x", pa.list_(kind))])),
        lambda value: [None, {"x": [value]}],
        lambda column: column.flatten().field(0).flatten(),
    ),
]


# -- the ways in -------------------------------------------------------------------------------------------------------


def as_rows(values):
    return [{"k": row, "v": value} for row, value in enumerate(values)]


def as_stream(values):
    return (row for row in as_rows(values))


def as_columns(values):
    return {"k": list(range(len(values))), "v": values}


def as_frame(values):
    return pd.DataFrame({"k": range(len(values)), "v": pd.Series(values, dtype=object)})


def as_array(values):
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return {"k": np.arange(len(values)), "v": found}


WAYS = [as_rows, as_stream, as_columns, as_frame, as_array]


def arrived(data, kind, casts=()):
    """Return the column of the rows as a table has them. Raises what a write raises."""
    schema = Schema({"k": "int64"}, values={"v": kind})
    encoder = RowEncoder(Conformer(schema, casts=frozenset(casts)), KEEP_ALL)
    batches = list(conformed(open_stream(data, lambda: schema, casts=casts), encoder))
    return pa.Table.from_batches(batches)["v"].combine_chunks() if batches else None


def judge(value, kind, way, wrap=PLAIN):
    """Assert that a value in the second row arrives exactly, or is refused with its row and column."""
    try:
        column = arrived(way([wrap.given(None), wrap.given(value)]), wrap.kind(kind))
    except SchemaMismatchError as error:
        assert not (wrap is PLAIN and fits(value, kind)), f"{value!r} refused in {kind}: {error}"
        assert error.facts.get("column") == "v", error
        assert error.facts.get("row", 1) == 1, error
        return
    column, row = wrap.taken(column), -1
    found, wanted = held(kind, column, row), meanings(value)
    if way is as_frame and isinstance(value, float | np.floating | Decimal) and math.isnan(value):
        wanted = wanted | {None}
    if isinstance(value, float | np.float32) and math.isfinite(value) and pa.types.is_decimal(kind):
        # The decimal that is read as the same float.
        wanted = found if type(value)(float(column[row].as_py())) == value else wanted
    if isinstance(value, Decimal) and value.is_finite() and pa.types.is_floating(kind):
        # The float that stands for it: it is the same when it is read with as many digits.
        stored = column[row].as_py()
        near = math.isfinite(stored) and round(Fraction(stored), -value.as_tuple().exponent) == value
        wanted = found if near else wanted
    assert found & wanted, f"{value!r} in {wrap.kind(kind)} became {found}"


every_share = pytest.mark.parametrize("share", [16, pytest.param(1, marks=pytest.mark.slow)])
"""One in so many of the pairs, chosen by the type, or all of them."""


@every_share
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_value_arrives_exactly_or_is_refused(kind, share):
    for value in VALUES:
        judge(value, kind, as_rows)
    for value, way in list(itertools.product(VALUES, WAYS[1:]))[KINDS.index(kind) % share :: share]:
        judge(value, kind, way)


@every_share
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_value_in_another_arrives_exactly_or_is_refused(kind, share):
    for value, wrap in list(itertools.product(VALUES, WRAPS))[KINDS.index(kind) % share :: share]:
        judge(value, kind, as_rows, wrap)


@pytest.mark.parametrize("member", ["y", "X", "x ", 7])
@pytest.mark.parametrize("way", WAYS)
def test_a_member_that_the_struct_lacks_is_refused_with_its_row(member, way):
    kind = pa.struct([("x", pa.int64())])
    with pytest.raises(SchemaMismatchError) as caught:
        arrived(way([{"x": 1}, {"x": 1, member: 2}]), kind)
    assert caught.value.facts["column"] == "v"


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_value_is_named_with_its_row_and_a_remedy_and_nothing_is_written(way):
    table = lakebed.create(f"memory://{clock.random_token()}").create_table(
        "t", Schema({"k": "int64"}, values={"v": "timestamp[us]"})
    )
    values = [None] * 12_345 + [dt.datetime(2024, 1, 1, tzinfo=EAST)]
    with pytest.raises(SchemaMismatchError, match=r"column v has .*2024.* in row 12345.*the field has no time zone"):
        table.write(way(values))
    assert table.version == 1
    table.write(way([None, values[-1].replace(tzinfo=None)]))
    assert table.scan().read_all()["v"].to_pylist() == [None, dt.datetime(2024, 1, 1)]


def test_a_value_that_may_be_cast_is_cast():
    rows = as_rows([dt.datetime(2024, 1, 1, tzinfo=EAST)])
    assert arrived(rows, pa.timestamp("us"), casts=["v"]).to_pylist() == [dt.datetime(2023, 12, 31, 22)]


# -- columns with a type, and casts ------------------------------------------------------------------------------------

NUMBERS = {
    pa.int64(): [0, 1, -1, 65_504, 65_520, 70_000, 2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63)],
    pa.uint64(): [0, 2**64 - 1, 2**53 + 1],
    pa.float32(): [0.5, -0.0, 65_504.0, 65_520.0, 2.0**126, math.inf, -math.inf, math.nan],
    pa.float64(): FLOATS,
    pa.decimal128(38, 3): [Decimal("1.5"), Decimal("0.001"), Decimal(10) ** 34, Decimal(70_000), Decimal("-0.5")],
    pa.decimal256(76, 0): [Decimal(10) ** 75, Decimal(10) ** 39, Decimal(3)],
    pa.string(): [
        "1e39",
        "-1e39",
        "1e999",
        "70000",
        "65520",
        "1.5",
        "inf",
        "-Infinity",
        "nan",
        "0.1",
        " 7 ",
        "x",
        "1" * 400,
    ],
}


def as_table(column):
    return pa.table({"k": list(range(len(column))), "v": column})


def as_file(write):
    def written(column, folder):
        write(as_table(column), folder / "x")
        return folder / "x"

    return written


TYPED_WAYS = {
    "table": lambda column, _: as_table(column),
    "dictionary": lambda column, _: as_table(column.dictionary_encode() if column.type != pa.float16() else column),
    "polars": lambda column, _: pl.from_arrow(as_table(column)) if "256" not in str(column.type) else as_table(column),
    "parquet": as_file(pq.write_table),
    "feather": as_file(feather.write_feather),
    "orc": as_file(orc.write_table),
}


def means(value, kind):
    """Return what a value of a column of numbers or text means as a number; ("no", …) for text that is none."""
    if not isinstance(value, str):
        return meanings(value)
    try:
        found = Decimal(value.strip())
    except ArithmeticError:
        return {("no", "not a number")}
    if not found.is_finite():
        return meanings(float(found))
    if not pa.types.is_floating(kind):
        return meanings(found)
    # The nearest float of the width, which for a number is finite.
    width = {16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width]
    with np.errstate(over="ignore"):
        near = float(width(float(found)))
    return meanings(near) if math.isfinite(near) else {("no", "too large")}


@every_share
@pytest.mark.parametrize("way", TYPED_WAYS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if types.is_number(kind)], ids=str)
def test_a_number_in_a_column_of_another_type_is_the_same_or_is_refused(tmp_path, kind, way, share):
    step = 1 if way == "table" else share
    for found, values in NUMBERS.items():
        unknown = (way == "orc" and str(found)[:4] in ("uint", "deci")) or (way == "polars" and "256" in str(found))
        if unknown or (way != "table" and "256" in str(found)):
            continue
        for value in values[KINDS.index(kind) % step :: step]:
            try:
                column = arrived(TYPED_WAYS[way](pa.array([None, value], found), tmp_path), kind, casts=["v"])
            except SchemaMismatchError as error:
                assert error.facts.get("row", 1) == 1, error
                assert not (found == pa.string() and value == "1.5" and pa.types.is_floating(kind))
                continue
            stored, wanted = held(kind, column, 1), means(value, kind)
            if not isinstance(value, str) and pa.types.is_floating(kind) and pa.types.is_decimal(found):
                near = round(Fraction(column[1].as_py()), found.scale) if math.isfinite(column[1].as_py()) else None
                wanted = stored if near == value else wanted
            if isinstance(value, float) and math.isfinite(value) and pa.types.is_decimal(kind):
                same = np.float32(float(column[1].as_py())) if found == pa.float32() else float(column[1].as_py())
                wanted = stored if same == value else wanted
            assert stored & wanted, f"{value!r} of {found} in {kind} became {stored}"


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not pa.types.is_float16(kind)], ids=str)
def test_a_key_that_is_asked_for_is_the_same_value_or_is_refused(kind):
    field = Schema({"k": kind}, {}, {}).row_key[0]
    for value in VALUES:
        try:
            content = field.key_type.content_of(value, field.name)
        except BadKeyError:
            continue
        if pa.types.is_floating(kind):
            # Rounded to the nearest float of the width, as documented; a whole number is not.
            width = np.float32 if kind == pa.float32() else np.float64
            assert np.array_equal(width(content), width(value), equal_nan=True)
            assert math.isinf(content) == math.isinf(value)
            assert not isinstance(value, int) or content == value
            continue
        if pa.types.is_decimal(kind):
            assert Decimal(repr(float(value)) if isinstance(value, float) else value) == content
            continue
        column = pa.array([content], pa.int64()) if isinstance(content, int) and pa.types.is_temporal(kind) else None
        if column is None:
            column = pa.array([content], pa.binary(16) if kind == pa.uuid() else kind)
            found = held(kind if kind != pa.uuid() else pa.binary(16), column, 0)
        else:
            found = held(kind, column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind), 0)
        wanted = {("bytes", pair[1]) if pair and pair[0] == "uuid" else pair for pair in meanings(value)}
        assert found & wanted, f"{value!r} as a key of {kind} became {found}"


@pytest.mark.parametrize(
    "keys",
    [
        [1e39],
        pa.table({"k": [1e39]}),
        pa.array([1.0, -1e39]),
        pl.Series("k", [1e39]),
        pd.DataFrame({"k": [1e39]}),
        pd.DataFrame({"k": pd.Series([1e39], dtype=object)}),
    ],
    ids=lambda keys: type(keys).__module__,
)
def test_a_number_that_is_too_large_for_a_float_key_is_not_infinity(keys):
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", Schema({"k": "float"}))
    table.write({"k": [math.inf, -math.inf, 1.0]})
    with pytest.raises(BadKeyError, match="does not fit float"):
        table.get_many(keys)
    assert table.get_many([math.inf]).num_rows == table.get_many(pa.table({"k": [-math.inf]})).num_rows == 1


@pytest.mark.parametrize("unit", PER_SECOND)
def test_reads_of_a_timestamp_of_pandas_find_its_row_alone(unit):
    instance = lakebed.create(f"memory://{clock.random_token()}")
    table = instance.create_table(
        "t", Schema({"k": f"timestamp[{unit}]"}, values={"n": "int64"}), merge=lakebed.Latest()
    )
    table.write([{"k": pd.Timestamp("2024-01-01T00:00:00"), "n": 0}])
    finer = pd.Timestamp("2024-01-01T00:00:00.000000001")
    calls = [
        lambda: table.get(finer),
        lambda: table.get_many([finer]),
        lambda: table.get_many(pd.DataFrame({"k": pd.Series([finer], dtype=object)})),
        lambda: table.get_many(pd.Series([finer])),
        lambda: table.scan(KeyRange(finer, None)).read_all(),
        lambda: table.delete([finer]),
        lambda: table.write([{"k": finer, "n": 1}]),
    ]
    for call in calls:
        if unit == "ns":
            call()
        else:
            with pytest.raises(Error, match=r"finer|cannot keep"):
                call()
    assert table.get(np.datetime64("2024-01-01T00:00:00", "s"))["n"].to_pylist() == [0]
    assert table.count(exact=True).rows == 1 + (unit == "ns")


@pytest.mark.parametrize("value", [*DATETIMES, *ZONED, *TIMESTAMPS, *map(np.datetime64, DATETIME64)], ids=repr)
def test_a_parameter_of_a_statement_is_the_value_that_was_given(value):
    (kind, since), *_ = meanings(value)
    lake = lakebed.create(f"memory://{clock.random_token()}")
    found = lake.sql("SELECT $v AS v", parameters={"v": value}).read_all()["v"].combine_chunks()
    assert held(found.type, found, 0) & {(kind, since)}


@pytest.mark.parametrize("value", [dt.time(1, tzinfo=EAST), np.datetime64(7, "ps"), pd.Timedelta(1, "ns")], ids=repr)
def test_a_parameter_that_has_no_literal_is_refused(value):
    with pytest.raises(UsageError, match="a parameter cannot be"):
        lakebed.create(f"memory://{clock.random_token()}").sql("SELECT $v", parameters={"v": value})


@pytest.mark.parametrize("value", [None, pd.NaT, pd.NA, np.datetime64("NaT")], ids=repr)
def test_a_missing_value_as_a_parameter_is_null(value):
    lake = lakebed.create(f"memory://{clock.random_token()}")
    assert lake.sql("SELECT $v IS NULL AS v", parameters={"v": value}).read_all()["v"].to_pylist() == [True]


def test_a_key_that_is_asked_of_a_service_is_the_value_that_was_given(tmp_path):
    fine = pd.Timestamp("2024-01-01T00:00:00.000000001")
    lake = lakebed.create(tmp_path / "lake")
    for unit in ("us", "ns"):
        table = lake.create_table(unit, Schema({"k": f"timestamp[{unit}]"}, values={"n": "int64"}))
        table.write([{"k": pd.Timestamp("2024-01-01"), "n": 0}])
    lake["ns"].write([{"k": fine, "n": 1}])
    frame = pd.DataFrame({"k": pd.Series([fine], dtype=object)})
    with serving(lake) as url, lakebed.connect(url) as connected:
        for key in (fine, fine.to_datetime64()):
            assert connected.table("ns").get(key)["n"].to_pylist() == [1]
            with raises(Code.KEY_UNPARSABLE):
                connected.table("us").get(key)
        assert connected.table("ns").get_many(frame)["n"].to_pylist() == [1]
        with raises(Code.KEY_UNPARSABLE):
            connected.table("us").get_many(frame)
        for key in (
            np.datetime64("2024-01-01"),
            np.datetime64("2024-01-01T00:00", "ns"),
            np.datetime64("2024-01-01T00", "h"),
        ):
            assert connected.table("us").get(key)["n"].to_pylist() == [0]
