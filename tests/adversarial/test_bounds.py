"""Small random tables whose reads skip pages by the bounds of values show the rows that a plain evaluator finds.

Of every merge mode, through scans, SQL and Polars, locally and on a store, by predicates on values of a type in each
table: nulls, NaN, both zeros, long texts, partial rows, deletes, removed ranges, filters, and fields that are added,
renamed and widened. The evaluator merges lists of rows, and compares positions in a list of contents.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from msgspec.structs import replace

import lakebed
from lakebed import AddField, Aggregate, First, KeepAll, KeyRange, Latest, RenameField, Schema, SetFilter, WidenField
from lakebed.clock import random_token
from lakebed.read.rows.reader import Reader
from tests.soaked import chosen, few
from tests.tables.read.merging_tables import LIMITS, reading_by

TABLES, PREDICATES, KEYS = 2, 6, 800
DAY = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - a local time
DAYS = (-50_000, -1, 0, 1, 9000)

CONTENTS: dict[str, tuple[pa.DataType, list[tuple[Any, str]]]] = {
    "int32": (pa.int32(), [(n, str(n)) for n in (-(2**31), -5, 0, 3, 70_000, 2**31 - 1)]),
    "double": (pa.float64(), [(n, f"'{n}'::double") for n in (-math.inf, -1.5, 0.0, 0.1, 2.0**53, math.inf, math.nan)]),
    "float": (pa.float32(), [(n, f"'{n}'::real") for n in (-math.inf, -1.5, 0.0, 0.5, 16777216.0, math.inf, math.nan)]),
    "text": (pa.string(), [(s, f"'{s}'") for s in ("", "a", "a" * 64, "a" * 64 + "b", "ab", "é", "\U0010ffff")]),
    "bytes": (pa.binary(), [(b, f"X'{b.hex()}'") for b in (b"", b"\0", b"a", b"a\0", b"\xff", b"\xff\xff")]),
    "bool": (pa.bool_(), [(False, "FALSE"), (True, "TRUE")]),
    "decimal": (pa.decimal128(20, 2), [(Decimal(s), s) for s in ("-99999999.99", "-1.50", "0.00", "0.01", "1000.00")]),
    "timestamp": (pa.timestamp("us"), [(at, f"TIMESTAMP '{at}'") for at in (DAY + dt.timedelta(n) for n in DAYS)]),
}
"""Types, and their contents in order, each with a literal."""

COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
MODES = {
    "keep all": KeepAll(), "latest": Latest(), "first": First(),
    "aggregate": Aggregate({"v": "last", "n": "sum"}),
}  # fmt: skip

Row = dict[str, Any]
Truth = bool | None


@dataclass
class Table:
    """A random table, and by key what arrived in it: what the row is, and its values, of which v is a position."""

    lake: Any
    handle: Any
    mode: str
    contents: list[tuple[Any, str]]
    arrived: dict[int, list[tuple[str, Row]]] = field(default_factory=dict)
    filtered: bool = False

    def rows(self) -> list[Row]:
        """Return the rows that the table shows, merged by plain loops."""
        found = [row for key, some in sorted(self.arrived.items()) for row in self._merged(key, some)]
        return [row for row in found if not self.filtered or row["k"] % 3]

    def _merged(self, key: int, some: list[tuple[str, Row]]) -> list[Row]:
        empty: Row = {"k": key, "v": None, "n": None, "late": None}
        wholes = [empty | values for _, values in some]
        if self.mode in ("keep all", "first"):
            return wholes[: 1 if self.mode == "first" else None]
        if self.mode == "aggregate":
            known = {name: [row[name] for row in wholes if row[name] is not None] for name in ("v", "n", "late")}
            return [
                {"k": key, "n": sum(known["n"]) if known["n"] else None}
                | {name: known[name][-1] if known[name] else None for name in ("v", "late")}
            ]
        row: Row | None = None
        for kind, values in some:
            row = None if kind == "delete" else ((row if kind == "partial" else None) or empty) | values
        return [] if row is None else [row]


def random_table(chance: Random, mode: str) -> Table:
    """Return a table after some random writes and changes."""
    kind, contents = CONTENTS[chance.choice(list(CONTENTS))]
    numbers = pa.int32() if mode != "aggregate" else pa.int64()
    values = {"v": pa.field("v", kind, True), "n": pa.field("n", numbers, True)}
    lake = lakebed.create(f"memory://{random_token()}")
    settings = {"page_rows": 100, "row_group_rows": chance.choice((1000, 100_000))}
    if chance.random() < 0.2:
        settings["statistics_off"] = chance.choice(("v", "n"))
    schema = Schema({"k": "int64"}, values=values)
    made = Table(lake, lake.create_table("t", schema, merge=MODES[mode], settings=settings), mode, contents)
    late = False
    for _ in range(chance.choice((2, 3, 4))):
        _write(chance, made, late=late)
        change = chance.random()
        if change < 0.3 and not late and mode != "aggregate":
            made.handle.alter(AddField("late", pa.int64()))
            late = True
        elif change < 0.4 and numbers == pa.int32():
            made.handle.alter(WidenField("n", pa.int64()))
            numbers = pa.int64()
        elif change < 0.5:
            made.handle.alter(RenameField("v", "other"))
            made.handle.alter(RenameField("other", "v"))
        elif change < 0.6:
            low = chance.randrange(KEYS)
            made.handle.remove(KeyRange((low,), (low + 200,)))
            made.arrived = {key: some for key, some in made.arrived.items() if not low <= key < low + 200}
        elif change < 0.7 and not made.filtered:
            made.handle.alter(SetFilter("k % 3 <> 0"))
            made.filtered = True
    return made


def _write(chance: Random, made: Table, *, late: bool) -> None:
    keys = sorted(chance.sample(range(KEYS), chance.choice((50, 700, KEYS))))
    if made.mode == "latest" and chance.random() < 0.2:
        made.handle.delete(pa.table({"k": keys[:300]}))
        for key in keys[:300]:
            made.arrived.setdefault(key, []).append(("delete", {}))
        return
    partial = made.mode == "latest" and chance.random() < 0.3
    names = chance.choice((["v"], ["n"])) if partial else ["v", "n", *(["late"] if late else [])]
    last = len(made.contents) - 1
    # Values follow the key, or not.
    follows, sign = chance.random() < 0.7, 1 if made.mode == "aggregate" else chance.choice((1, -1))
    rows = []
    for key in keys:
        near = key * last // KEYS + chance.choice((0, 0, 0, 1)) if follows else chance.randint(0, last)
        row = {"v": near, "n": sign * key, "late": key}
        rows.append({"k": key} | {name: None if chance.random() < 0.15 else row[name] for name in names})
        made.arrived.setdefault(key, []).append(("partial" if partial else "whole", rows[-1]))
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in ("k", *names)}
    if "v" in names:
        plain = [None if place is None else made.contents[place][0] for place in columns["v"]]
        # Both zeros are one content.
        plain = [-0.0 if isinstance(one, float) and one == 0 and chance.random() < 0.5 else one for one in plain]
        columns["v"] = pa.array(plain, made.handle.schema.by_name["v"].type)
    made.handle.write(pa.table(columns), partial=partial)


# -- predicates --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicate:
    """A predicate in SQL and of Polars, and its truth for a row."""

    sql: str
    expr: pl.Expr
    of: Callable[[Row], Truth]


def random_predicate(chance: Random, made: Table, depth: int = 2) -> Predicate:
    """Return a random predicate on values."""
    if depth and chance.random() < 0.5:
        one, other = (random_predicate(chance, made, depth - 1) for _ in range(2))
        match chance.choice(("AND", "OR", "NOT")):
            case "AND":
                both = lambda row: _and(one.of(row), other.of(row))  # noqa: E731
                return Predicate(f"({one.sql}) AND ({other.sql})", one.expr & other.expr, both)
            case "OR":
                any_of = lambda row: _not(_and(_not(one.of(row)), _not(other.of(row))))  # noqa: E731
                return Predicate(f"({one.sql}) OR ({other.sql})", one.expr | other.expr, any_of)
            case _:
                return Predicate(f"NOT ({one.sql})", ~one.expr, lambda row: _not(one.of(row)))
    late = ["late"] if "late" in made.handle.schema.names else []
    name = chance.choice([*(["n", "n"] if made.mode == "aggregate" else ["v"]), "v", "n", *late])
    column = pl.col(name)
    if chance.random() < 0.15:
        return Predicate(f"{name} IS NULL", column.is_null(), lambda row: row[name] is None)
    places = [chance.randrange(len(made.contents)) if name == "v" else chance.randint(-KEYS, KEYS) for _ in range(2)]
    plain = [made.contents[place][0] if name == "v" else place for place in places]
    texts = [made.contents[place][1] if name == "v" else str(place) for place in places]
    kind = pl.Series(pa.nulls(1, made.handle.schema.by_name[name].type)).dtype
    literals = [pl.lit(one, dtype=kind) for one in plain]

    def known(passes: Callable[[Any], bool]) -> Callable[[Row], Truth]:
        return lambda row: None if row[name] is None else passes(row[name])

    if chance.random() < 0.3:
        either = (column == literals[0]) | (column == literals[1])
        return Predicate(f"{name} IN ({', '.join(texts)})", either, known(lambda one: one in places))
    sign = chance.choice(list(COMPARED))
    compared = COMPARED[sign]
    expr = compared(column, literals[0])
    return Predicate(f"{name} {sign} {texts[0]}", expr, known(lambda one: compared(one, places[0])))


def _not(one: Truth) -> Truth:
    return None if one is None else not one


def _and(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


# -- ways --------------------------------------------------------------------------------------------------------------


def failures(seed: str, mode: str, tables: int, reader: type[Reader] | None = None) -> Iterator[str]:
    """Return what is wrong with answers about some random tables, as read by a kind of reader."""
    chance = Random(f"{seed} {mode}")
    for _ in range(tables):
        made = random_table(chance, mode)
        table = made.handle
        engine, _ = made.lake.sql_engine()
        engine.in_memory_rows = -1
        if reader is not None:
            table.versions.reader = reader(table.storage, table.id, lambda _: True)
        rows = made.rows()
        for way in ("pages",) if reader else ("pages", "slices"):
            with reading_by(table, way, copied_share=1):
                for one in (random_predicate(chance, made) for _ in range(PREDICATES)):
                    wanted = sorted(row["k"] for row in rows if one.of(row) is True)
                    found = {
                        "scan": table.scan(where=one.sql, columns=["k"]).read_all(),
                        "Polars": table.lazy_polars().filter(one.expr).select("k").collect().to_arrow(),
                    }
                    # PyArrow refuses a condition that is a constant for a file without the column.
                    if way == "pages" or "late" not in table.schema.names:
                        found["SQL"] = made.lake.sql(f"SELECT k FROM t WHERE {one.sql}").read_all()
                    for name, answer in found.items():
                        keys = sorted(answer.column("k").to_pylist())
                        if keys != wanted:
                            yield f"{mode}, {way}, {name}: {one.sql}: {len(keys)} rows, and not {len(wanted)}"


@pytest.mark.parametrize("mode", chosen(MODES, "latest", "keep all"))
def test_every_way_finds_the_rows_that_pass(mode: str) -> None:
    assert list(failures("0", mode, TABLES)) == []


class NarrowsComputedRows(Reader):
    """Takes stored values for those that an aggregate computes."""

    def _passing(self, requests: Any) -> Any:
        kept = ((files, replace(request, merge=Latest())) for files, request in requests)
        for files, request, ranges in super()._passing(kept):
            yield files, replace(request, merge=MODES["aggregate"]), ranges


class SkipsNewerRows(Reader):
    """Leaves the newest file out where pages are skipped, as if its page of the key were one of them."""

    def _narrowed(self, requests: Any) -> Any:
        for files, request in super()._narrowed(requests):
            yield files[: max(1, len(files) - 1)], request


class SkipsPages(Reader):
    """Skips the first of the ranges in which rows may pass."""

    def _passing(self, requests: Any) -> Any:
        for files, request, ranges in super()._passing(requests):
            yield files, request, ranges if ranges == [request.keys] else ranges[1:]


@pytest.mark.parametrize(
    ("planted", "mode"),
    few([(SkipsNewerRows, "latest"), (SkipsPages, "keep all"), (SkipsPages, "first")], 2),
)
def test_a_planted_bug_is_found(planted: type[Reader], mode: str) -> None:
    """By each of the ways; SQL over local files that need no merge is the engine's."""
    left = {"scan", "Polars"} if mode == "keep all" else {"scan", "SQL", "Polars"}
    for failure in failures("planted", mode, 8, planted):
        left.discard(failure.split(": ")[0].split(", ")[2])
        if not left:
            break
    assert not left


def test_narrowing_rows_that_are_computed_is_found() -> None:
    """No stored row passes, and the sum of two does."""
    lake = lakebed.create(f"memory://{random_token()}")
    schema = Schema({"k": "int64"}, values={"v": "int64", "n": "int64"})
    table = lake.create_table("t", schema, merge=MODES["aggregate"], settings={"page_rows": 100})
    for _ in range(2):
        table.write(pa.table({"k": range(KEYS), "v": range(KEYS), "n": range(KEYS)}))
    with reading_by(table, "pages"):
        assert table.scan(where=f"n >= {KEYS}").read_all().num_rows == KEYS // 2
        table.versions.reader = NarrowsComputedRows(table.storage, table.id, lambda _: True)
        table.reader.limits = LIMITS["pages"]
        assert table.scan(where=f"n >= {KEYS}").read_all().num_rows < KEYS // 2
