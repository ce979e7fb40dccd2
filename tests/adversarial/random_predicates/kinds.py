"""The kinds of values: their columns, their literals in SQL, and how two of them compare, by exact arithmetic.

A value is a Python int, float, Decimal, str, bool or bytes; dates are days and times nanoseconds since 1970, both int.
Rules of comparison, those of the engine's own documentation: a number that is no float is compared exactly with
another; with a float it is one; NaN equals itself and is above infinity; the two zeros are equal.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

NS = 1_000_000_000
DAY_NS = 86_400 * NS
NAN, INFINITY = float("nan"), float("inf")
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a local time


def days(year: int, month: int, day: int) -> int:
    """Return a date as days since 1970."""
    return (dt.date(year, month, day) - EPOCH.date()).days


def instant(year: int, month: int, day: int, *clock: int) -> int:
    """Return a time as nanoseconds since 1970; ``clock`` has hours, minutes and seconds, as many as are not 0."""
    seconds = sum(number * 60 ** (2 - place) for place, number in enumerate(clock))
    return days(year, month, day) * DAY_NS + seconds * NS


def single(value: float) -> float:
    """Return the nearest float of 32 bits."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(INFINITY, value)


@dataclass(frozen=True)
class Kind:
    """A type: its name, what its values are, how a literal is written, and values for its columns."""

    name: str
    family: str
    arrow: pa.DataType
    literal: Callable[[Any], str]
    contents: tuple[Any, ...]
    unit_ns: int = 1
    scale: int = 0

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return a column of these values."""
        if self.family in ("instant", "time"):
            whole = [None if value is None else value // self.unit_ns for value in values]
            return pa.array(whole, pa.int64()).cast(self.arrow)
        if self.family == "date":
            return pa.array(values, pa.int32()).cast(self.arrow)
        return pa.array(values, self.arrow)


def _float(value: float, sql: str) -> str:
    text = "NaN" if math.isnan(value) else {INFINITY: "Infinity", -INFINITY: "-Infinity"}.get(value, "")
    if text or (sql == "REAL" and value == single(0.1)):
        return f"CAST('{text or repr(value)}' AS {sql})"
    return repr(value)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _date_text(value: int) -> str:
    return str(EPOCH.date() + dt.timedelta(value))


def _clock_text(value: int) -> str:
    second, ns = divmod(value, NS)
    fraction = f".{ns:09}".rstrip("0") if ns else ""
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}{fraction}"


def instant_text(value: int) -> str:
    """Return a time as the text of a literal."""
    day, ns = divmod(value, DAY_NS)
    return f"{_date_text(day)} {_clock_text(ns)}"


def _ints(name: str, kind: pa.DataType, *contents: int) -> Kind:
    return Kind(name, "int", kind, str, contents)


_INSTANTS = (
    instant(1700, 3, 1), instant(1969, 12, 31, 23, 59, 59), instant(1970, 1, 1), instant(1970, 1, 1, 12),
    instant(2026, 1, 1), instant(2026, 1, 1, 12), instant(2026, 1, 1, 12, 0, 1), instant(2026, 1, 2, 1),
    instant(2026, 7, 1, 12), instant(2199, 12, 31, 23, 59, 59),
)  # fmt: skip


def _instants(name: str, unit: str, unit_ns: int, zone: str | None = None) -> Kind:
    finer = (instant(2026, 1, 1, 12) + unit_ns, instant(1970, 1, 1) - unit_ns) if unit_ns < NS else ()
    return Kind(
        name, "instant", pa.timestamp(unit, zone), lambda value: f"TIMESTAMP '{instant_text(value)}'",
        (*_INSTANTS, *finer), unit_ns,
    )  # fmt: skip


KINDS = (
    _ints("i8", pa.int8(), -128, -1, 0, 1, 2, 5, 127),
    _ints("i32", pa.int32(), -(2**31), -300, -1, 0, 1, 5, 127, 128, 300, 2**31 - 1),
    _ints("i64", pa.int64(), -(2**63) + 1, -(2**53) - 1, -1, 0, 1, 5, 300, 2**53, 2**53 + 1, 2**63 - 1),
    _ints("u64", pa.uint64(), 0, 1, 5, 300, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1),
    Kind("f32", "float", pa.float32(), lambda value: _float(value, "REAL"),
         (-INFINITY, -1.5, -0.0, 0.0, single(0.1), 1.0, 1.5, 16777216.0, INFINITY, NAN)),
    Kind("f64", "float", pa.float64(), lambda value: _float(value, "DOUBLE"),
         (-INFINITY, -1.5, -0.0, 0.0, 0.1, 1.0, 1.5, 2.0**53, 1e300, INFINITY, NAN)),
    Kind("dec", "decimal", pa.decimal128(10, 2), str,
         tuple(map(Decimal, ("-99999999.99", "-1.50", "-1.00", "-0.50", "0.00", "0.49", "0.50", "1.00", "1.01",
                             "1.50", "2.00", "127.99", "300.00", "99999999.99"))), scale=2),
    Kind("s", "text", pa.string(), _text,
         ("", "0", "1", "01", "10", "2", "-1", "a", "A", "ab", "a%", "a_b", "é", "true", "1.5", "2026-01-01", "\x01")),
    Kind("b", "bool", pa.bool_(), lambda value: str(value).upper(), (False, True)),
    Kind("d", "date", pa.date32(), lambda value: f"DATE '{_date_text(value)}'",
         (days(1700, 3, 1), days(1969, 12, 31), 0, days(2026, 1, 1), days(2026, 1, 2), days(2199, 12, 31))),
    _instants("tus", "us", 1000),
    _instants("atms", "ms", 1_000_000),
    _instants("atns", "ns", 1),
    _instants("atz", "us", 1000, "UTC"),
    Kind("t", "time", pa.time64("us"), lambda value: f"TIME '{_clock_text(value)}'",
         (0, 1000, 5 * NS, 5 * NS + 1000, 43200 * NS, DAY_NS - 1000), 1000),
    Kind("y", "bytes", pa.binary(), lambda value: f"X'{value.hex()}'", (b"", b"\0", b"a", b"ab", b"\xff", b"1")),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
NUMBERS = ("int", "float", "decimal")


def order(one: Any, family: str, other: Any, other_family: str) -> int:
    """Return -1, 0 or 1: how two values compare. Dates are compared with times as their midnight."""
    if {family, other_family} == {"date", "instant"}:
        one, other = (one * DAY_NS, other) if family == "date" else (one, other * DAY_NS)
    elif "float" in (family, other_family):
        one, other = float(one), float(other)
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) - math.isnan(other)
    elif family in NUMBERS:
        one, other = Fraction(one), Fraction(other)
    elif family == "text":
        one, other = one.encode(), other.encode()
    return (one > other) - (one < other)
