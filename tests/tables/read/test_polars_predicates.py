"""A lazy frame of Polars has the rows that Polars finds among all, for all types, casts and literals."""

from __future__ import annotations

import datetime as dt
import operator
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed import Schema
from lakebed.clock import random_token
from lakebed.model.frames import polars_frame
from lakebed.model.keys import ALL_KEYS
from lakebed.model.number_keys import Decimals
from lakebed.read.adapters import polars as adapter
from lakebed.read.adapters.polars import lazy_frame
from lakebed.read.rows.conditions import narrow
from lakebed.read.rows.page_bounds import BoundedColumns
from tests.soaked import few
from tests.variants import Planted, planted

PREDICATES, NIGHTLY = 25, 2000
"""Of each type of key: 900 in all, and 36,000 in the nightly run."""

NOON = dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001 - a local time
NAN, INFINITY = float("nan"), float("inf")
TIMES = [-62_135_596_800_000_001, -1, 0, 1, 1_767_268_800_000_000, 1_767_268_800_000_500, 253_402_300_799_000_000]
NEAR = [time for time in TIMES if abs(time) < 9 * 10**15]


def times(unit: str, zone: str | None = None) -> pa.Array:
    """Keys of a timestamp type: microseconds in its unit."""
    per = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 1}[unit]
    numbers = [time * 1000 + rest for time in NEAR for rest in (0, 1)] if unit == "ns" else [t // per for t in TIMES]
    return pa.array(sorted(set(numbers)), pa.int64()).cast(pa.timestamp(unit, zone))


KEYS: dict[str, pa.Array] = {
    **{
        str(kind): pa.array([number for number in numbers if low <= number <= high], kind)
        for numbers in [
            [-(2**63), -(2**31), -129, -1, 0, 1, 2, 127, 128, 300, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**64 - 1]
        ]
        for kind, low, high in [
            (pa.int8(), -128, 127), (pa.int32(), -(2**31), 2**31 - 1), (pa.int64(), -(2**63), 2**63 - 1),
            (pa.uint8(), 0, 255), (pa.uint64(), 0, 2**64 - 1),
        ]
    },
    "float": pa.array([-INFINITY, -1.5, -0.0, 0.0, 0.1, 1.0, 16777216.0, INFINITY, NAN], pa.float32()),
    "double": pa.array([-INFINITY, -1.5, -0.0, 0.0, 0.1, 1.0, 2.0**53, 1e300, INFINITY, NAN], pa.float64()),
    "decimal": pa.array(
        [Decimal(text) for text in ("-1.50", "-0.50", "0.00", "1.00", "1.50", "2.00", "300.00")], pa.decimal128(10, 2)
    ),
    "text": pa.array(["", "0", "1", "10", "2", "a", "ab", "b", "é", "large", "small"]),
    "bytes": pa.array([b"", b"\0", b"a", b"ab", b"\xff"], pa.binary()),
    "bool": pa.array([False, True]),
    "date": pa.array([-719_162, -1, 0, 20_454, 20_455, 2_932_896], pa.int32()).cast(pa.date32()),
    "time": pa.array([0, 1, 5_000_000, 43_200_000_000, 86_399_999_999], pa.time64("us")),
    **{f"timestamp[{unit}]": times(unit) for unit in ("s", "ms", "us", "ns")},
    "timestamp with a zone": times("us", "Europe/Berlin"),
}  # fmt: skip
LITERALS: list[Any] = [
    -1, 0, 1, 2, 127, 128, 300, 2**53, 2**53 + 1, 2**63 - 1, -0.5, 0.0, -0.0, 0.1, 1.0, 1.5, 2.0**53, INFINITY, NAN,
    Decimal("1.5"), Decimal("1.00"), Decimal("0.005"), "", "1", "10", "ab", "large", b"a", True, False,
    dt.date(1970, 1, 1), dt.date(2026, 1, 1), NOON, NOON.replace(microsecond=500), NOON.replace(tzinfo=dt.UTC),
    dt.time(12), dt.time(0, 0, 5),
    pl.lit(NOON, pl.Datetime("ms")), pl.lit(NOON, pl.Datetime("ns")), pl.lit(0.1, pl.Float32), pl.lit(1, pl.Int8),
]  # fmt: skip
CASTS: list[Any] = [
    pl.Int8, pl.Int32, pl.Int64, pl.UInt8, pl.UInt64, pl.Float32, pl.Float64, pl.String, pl.Boolean, pl.Date, pl.Time,
    pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns"), pl.Datetime("us", "UTC"), pl.Decimal(20, 1), pl.Binary,
    pl.Enum(["small", "large", "a", "ab", "", "1", "10"]), pl.Categorical,
]  # fmt: skip
OPERATORS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def predicate(chance: Random, name: str = "k") -> pl.Expr:
    """Return a random predicate over the column."""
    side = pl.col(name)
    if chance.random() < 0.5:
        side = side.cast(chance.choice(CASTS), strict=chance.random() < 0.3)
    literal = chance.choice(LITERALS)
    form = chance.random()
    if form < 0.15 and not isinstance(literal, pl.Expr):
        return side.is_in([one for one in LITERALS if type(one) is type(literal)][: chance.choice((1, 3))])
    if form < 0.3:
        return side.is_between(literal, chance.choice(LITERALS), closed=chance.choice(("both", "left", "none")))
    if form < 0.4:
        return chance.choice(OPERATORS)(literal if isinstance(literal, pl.Expr) else pl.lit(literal), side)
    return chance.choice(OPERATORS)(side, literal)


class Rows:
    """Rows in memory as a table gives them: those whose keys are in some ranges."""

    def __init__(self, keys: pa.Array) -> None:
        self.schema = Schema({"k": keys.type}, values={"n": "int64"})
        field = self.schema.row_key[0]
        self.table = pa.table({"k": keys, "n": range(len(keys))})
        plain = keys.cast(pa.int64()).to_pylist() if keys.type.id in CLOCKS else keys.to_pylist()
        self.codes = [
            self.schema.codec.encode((value if keys.type.id in CLOCKS else field.key_type.content_of(value, "k"),))
            for value in plain
        ]

    def __call__(self, where: Any, columns: list[str], limit: int | None) -> Any:
        assert limit is None
        ranges, _ = narrow((ALL_KEYS,), where, self.schema)
        inside = [any(keys.contains(code) for keys in ranges) for code in self.codes]
        return nullcontext(self.table.filter(pa.array(inside)).select(columns).to_batches())


class NullableRows:
    """Rows whose column v has values of a type and nulls: given are those that are in the ranges of a condition on v.

    This is what the bounds of pages do, with a row a page. Columns with a NaN have no bounds.
    """

    def __init__(self, values: pa.Array) -> None:
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        self.schema = Schema({"n": "int64"}, values={"v": pa.field("v", values.type, nullable=True)})
        self.codes = [*Rows(values).codes, None, None]
        self.table = pa.table({"n": range(len(self.codes)), "v": pa.concat_arrays([values, pa.nulls(2, values.type)])})

    def __call__(self, where: Any, columns: list[str], limit: int | None) -> Any:
        assert limit is None
        found = BoundedColumns.of(where, self.schema)
        boxes = [()] if found is None else found.boxes
        inside = [
            any(
                all(code is not None and any(keys.contains(code) for keys in ranges) for _, ranges in box)
                for box in boxes
            )
            for code in self.codes
        ]
        return nullcontext(self.table.filter(pa.array(inside)).select(columns).to_batches())


def nullable_predicate(chance: Random) -> pl.Expr:
    """Return a random predicate over the column v, in forms that null passes as well."""
    form = chance.random()
    if form < 0.6:
        return predicate(chance, "v")
    one, literal = pl.col("v"), chance.choice([one for one in LITERALS if not isinstance(one, pl.Expr)])
    if form < 0.7:
        return one.is_in([literal, None], nulls_equal=chance.random() < 0.7)
    if form < 0.8:
        return chance.choice((one.eq_missing, one.ne_missing))(chance.choice((literal, None)))
    if form < 0.85:
        return chance.choice((one.is_null, one.is_not_null))()
    other = nullable_predicate(chance)
    if form < 0.9:
        return ~other
    both = nullable_predicate(chance)
    return chance.choice((operator.and_, operator.or_, operator.xor))(other, both)


CLOCKS = {pa.timestamp("us").id, pa.time64("us").id}


def lost(name: str, seed: str, count: int, *, values: bool = False) -> str | None:
    """Return the first of ``count`` random predicates for which a lazy frame lacks rows that Polars finds.

    They are over keys, or over ``values``.
    """
    rows, chance = (NullableRows if values else Rows)(KEYS[name]), Random(f"{seed} {name}")
    lazy, frame = lazy_frame(rows.schema, rows, name), polars_frame(rows.table)
    done = 0
    while done < count:
        try:
            one = nullable_predicate(chance) if values else predicate(chance)
            passing = frame.filter(one)["n"].to_list()
        except (pl.exceptions.PolarsError, TypeError):
            # It refuses the types, or cannot cast a row.
            continue
        done += 1
        if lazy.filter(one).collect()["n"].to_list() != passing:
            return str(one)
    return None


@pytest.mark.parametrize("count", [PREDICATES, pytest.param(NIGHTLY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KEYS)
def test_a_lazy_frame_has_the_rows_that_polars_finds_among_all(name: str, count: int) -> None:
    assert lost(name, "0", count) is None
    assert lost(name, "0", count, values=True) is None


def test_bounds_of_values_narrow_what_is_read() -> None:
    """Else the comparison above could not fail."""
    rows = NullableRows(KEYS["int32"])
    [found] = rows(adapter.condition_of(pl.col("v") < 0), ["n"], None).__enter__()
    assert found["n"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("int32", pl.col("k") == 5),
        ("int64", pl.col("k") > 5.5),
        ("uint64", pl.col("k").is_in([5, 7])),
        ("double", pl.col("k").is_between(1, 2.5)),
        ("decimal(10,2)", pl.col("k") == Decimal("1.50")),
        ("string", pl.col("k").str.starts_with("a")),
        ("date", pl.col("k") < dt.date(2026, 1, 1)),
        ("timestamp[ns]", pl.col("k") >= NOON),
        ("timestamp[us, tz=UTC]", pl.col("k") >= NOON.replace(tzinfo=dt.UTC)),
    ],
)
def test_ranges_narrow_what_is_read(kind: str, where: pl.Expr) -> None:
    asked = []
    schema = Schema({"k": kind})

    def rows(where: Any, *_: Any) -> Any:
        asked.append(narrow((ALL_KEYS,), where, schema)[0])
        return nullcontext([])

    lazy_frame(schema, rows, "t").filter(where).collect()
    assert asked[0] != (ALL_KEYS,)


@pytest.mark.parametrize(
    "refused",
    [pl.col("at") == NOON, pl.col("at") > pl.lit(NOON, pl.Datetime("us", "Europe/Berlin")), pl.col("n") == "a"],
)
def test_what_polars_refuses_is_refused_whatever_rows_there_are(refused: pl.Expr) -> None:
    lake = lakebed.create(f"memory://{random_token()}")
    table = lake.create_table("t", Schema({"at": "timestamp[us, tz=UTC]"}, values={"n": "int64"}))
    for _ in range(2):
        with pytest.raises(pl.exceptions.PolarsError):
            table.lazy_polars().filter(refused).collect()
        table.write([{"at": NOON.replace(tzinfo=dt.UTC, hour=1), "n": 1}])


@pytest.mark.parametrize("name", few(["text", "int64"], 1))
def test_a_cast_that_is_taken_for_exact_is_found(name: str) -> None:
    with planted(lambda: [Planted(adapter, "_is_exact", lambda *_: True)]):
        assert lost(name, "planted", 1000)
        assert lost(name, "planted", 1000, values=True)


def test_a_cast_of_a_decimal_to_an_integer_is_found_if_it_is_taken_for_exact() -> None:
    with planted(lambda: [Planted(Decimals, "cast", lambda *_: Fraction)]):
        assert lost("decimal", "planted", 1000)
