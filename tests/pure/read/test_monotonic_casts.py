"""A cast by which keys are excluded keeps their order, and gives what the engine's own cast gives, for all types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext, col

from lakebed.model.key_type import FixedWidth, same
from lakebed.model.key_types import key_type

NUMBERS = sorted(
    {
        sign * (2**power + step)
        for power in (0, 7, 8, 15, 16, 24, 31, 32, 53, 63, 64)
        for step in (-1, 0, 1)
        for sign in (-1, 1)
    }
)
DAY = 86_400
SECONDS = [-62_135_596_800, -DAY - 1, -DAY, -1, 0, 1, DAY - 1, DAY, 1_767_268_800, 9_223_372_036, 253_402_300_799]


def integers(kind: pa.DataType) -> pa.Array:
    unsigned = pa.types.is_unsigned_integer(kind)
    least = 0 if unsigned else -(2 ** (kind.bit_width - 1))
    greatest = 2 ** (kind.bit_width - (not unsigned)) - 1
    return pa.array([number for number in NUMBERS if least <= number <= greatest], kind)


def clocks(kind: pa.DataType, per_second: int, *, of_day: bool = False) -> pa.Array:
    ticks = {second * per_second + rest for second in SECONDS for rest in (-1, 0, 1)}
    kept = [tick for tick in ticks if (0 <= tick < DAY * per_second if of_day else abs(tick) < 2**63)]
    return pa.array(sorted(kept), pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FLOATS = [-float("inf"), -1e300, -1.5, -1e-40, 0.0, 0.1, 1.0, 1.5, 16777217.0, 2.0**53, 1e300, float("inf")]
DECIMALS = [
    Decimal(text) for text in ("-99999999.99", "-1.51", "-1.50", "-0.01", "0.00", "0.49", "1.00", "1.99", "2.00")
]
VALUES = {
    **{kind: integers(kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind: integers(kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    pa.float32(): pa.array(FLOATS, pa.float64()).cast(pa.float32(), safe=False),
    pa.float64(): pa.array(FLOATS),
    pa.decimal128(10, 2): pa.array(DECIMALS, pa.decimal128(10, 2)),
    pa.decimal128(20, 4): pa.array(DECIMALS, pa.decimal128(20, 4)),
    pa.decimal128(38, 0): pa.array([Decimal(number) for number in NUMBERS], pa.decimal128(38, 0)),
    pa.date32(): pa.array([-719_162, -1, 0, 1, 20_454, 106_751, 2_932_896], pa.int32()).cast(pa.date32()),
    **{pa.timestamp(unit, zone): clocks(pa.timestamp(unit, zone), per)
       for unit, per in UNITS.items() for zone in (None, "UTC", "Europe/Berlin")},
    **{pa.time32(unit): clocks(pa.time32(unit), UNITS[unit], of_day=True) for unit in ("s", "ms")},
    **{pa.time64(unit): clocks(pa.time64(unit), UNITS[unit], of_day=True) for unit in ("us", "ns")},
    pa.bool_(): pa.array([False, True]),
}  # fmt: skip
"""Values of each type, in order: ends, and those beside them."""


def cast_of(kind: pa.DataType, wanted: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the cast of a key type that has casts."""
    key = key_type(kind)
    return key.cast(wanted) if isinstance(key, FixedWidth) else None


PAIRS = [(kind, wanted) for kind, wanted in itertools.product(VALUES, VALUES) if cast_of(kind, wanted) is not None]


def as_number(scalar: pa.Scalar) -> object:
    key = key_type(scalar.type)
    value = None if key is None else key.number(scalar)
    return scalar.as_py() if value is None else value


def wrong(kind: pa.DataType, wanted: pa.DataType) -> str | None:
    """Return what differs between the cast and the engine's, or in the order of its values."""
    image = cast_of(kind, wanted)
    assert image is not None
    frame = SessionContext().from_arrow(pa.table({"c": VALUES[kind]}))
    found = frame.select(col("c").try_cast(wanted).alias("c")).to_arrow_table().column("c").combine_chunks()
    before: object = None
    for value, cast in zip(VALUES[kind], found, strict=True):
        content = as_number(value)
        ours = image(content)
        if before is not None and not before <= ours:
            return f"{content} becomes {ours}, which is below {before}"
        before = ours
        # What does not fit the type is null, or an error: such a row does not pass.
        if cast.is_valid and as_number(cast.cast(wanted)) != ours:
            return f"{content} becomes {ours}, and in the engine {as_number(cast)}"
    return None


@pytest.mark.parametrize(("kind", "wanted"), PAIRS, ids=str)
def test_a_cast_keeps_the_order_and_is_that_of_the_engine(kind, wanted):
    assert wrong(kind, wanted) is None


def test_casts_that_do_not_keep_the_order_or_are_not_exact_are_unknown():
    decimal, at, local = pa.decimal128(10, 2), pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")
    for kind, wanted in [
        (decimal, pa.int64()), (decimal, pa.decimal128(10, 0)), (pa.int64(), pa.int32()), (pa.int64(), pa.bool_()),
        (pa.uint64(), pa.int64()), (pa.int64(), pa.string()), (pa.string(), pa.int64()), (pa.float64(), pa.int64()),
        (pa.float64(), pa.float32()), (at, pa.time64("us")), (at, pa.timestamp("s")), (local, at),
        (at, local), (local, pa.date32()), (at, pa.int64()),
    ]:  # fmt: skip
        assert cast_of(kind, wanted) is None, (kind, wanted)


def test_a_cast_that_is_taken_for_exact_is_found(monkeypatch):
    monkeypatch.setitem(globals(), "cast_of", lambda kind, wanted: Fraction)
    assert wrong(pa.decimal128(10, 2), pa.int64()) is not None
    monkeypatch.setitem(globals(), "cast_of", lambda kind, wanted: same)
    assert wrong(pa.timestamp("us"), pa.timestamp("s")) is not None
