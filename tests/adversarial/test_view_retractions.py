"""Views of sources whose rows change and go: after any refresh a view has what DuckDB makes of the source's rows.

A program of random steps writes, upserts, deletes, removes, restores, filters, ages off and compacts a source, and
refreshes its views at random moments: in time, late, twice, from another handle, or ended before the commit. Planted
bugs, one for each way to be wrong, have to be found by the same programs.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest

import lakebed
from lakebed import (
    AgeOff,
    Aggregate,
    First,
    KeepAll,
    KeyRange,
    Latest,
    Pipeline,
    RenameField,
    Schema,
    SetFilter,
)
from lakebed.errors import Code, RejectedError
from lakebed.model.merge_modes import MergeMode
from lakebed.model.state.transactions import ProposeFeed
from lakebed.upkeep.view_feed import _Made, _Reading, refresh, view_source
from lakebed.upkeep.view_retraction import Settled, settled
from lakebed.write.run import commit_files
from tests.soaked import chosen

SOURCE = Schema(
    {"k": "int64", "t": "timestamp[s]"},
    values={"o": "string", "n": "int64", "m": "decimal128(12, 2)", "d": "double", "b": "bool"},
)
MODES = {
    "keep all": KeepAll(),
    "latest": Latest(),
    "first": First(),
    "aggregate": Aggregate({"o": "last", "n": "sum", "m": "max", "d": "min", "b": "any"}),
}
OLD, NEW = (dt.datetime(year, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None) for year in (2001, 2101))


class View(NamedTuple):
    select: str
    row_key: list[str]
    merge: MergeMode = KeepAll()
    sort_key: Sequence[str] = ()
    modes: tuple[str, ...] = tuple(MODES)


ONE_ROW = ("latest", "first", "aggregate")
VIEWS = {
    "totals": View(
        "SELECT o, count(*) AS c, sum(n) AS n, sum(m) AS m FROM source GROUP BY o",
        ["o"], Aggregate({"c": "sum", "n": "sum", "m": "sum"}),
    ),
    "sums": View("SELECT o, sum(n) AS n FROM source GROUP BY o", ["o"], Aggregate({"n": "sum"})),
    "counts": View("SELECT o, count(n) AS n FROM source GROUP BY o", ["o"], Aggregate({"n": "sum"})),
    "extremes": View(
        "SELECT o, b, count(*) AS c, min(n) AS low, max(m) AS high, max(d) AS d, min(o) AS first FROM source "
        "GROUP BY o, b",
        ["o", "b"], Aggregate({"c": "sum", "low": "min", "high": "max", "d": "max", "first": "min"}),
    ),
    "floats": View(
        "SELECT o, sum(d) AS d, max(n) AS n FROM source WHERE k > 1 GROUP BY o", ["o"],
        Aggregate({"d": "sum", "n": "max"}),
    ),
    "flags": View(
        "SELECT o, n % 2 AS h, bool_and(b) AS every, bool_or(b) AS one, bit_or(n) AS bits, 'x' AS kind FROM source "
        "GROUP BY o, n % 2",
        ["o", "h"], Aggregate({"every": "all", "one": "any", "bits": "or", "kind": "last"}),
    ),
    "kinds": View("SELECT DISTINCT o, b FROM source", ["o"], First(), ["b"], ()),
    "origins": View("SELECT DISTINCT o FROM source WHERE n > 0", ["o"], Latest()),
    "by origin": View("SELECT o, k, t, n, d FROM source WHERE n IS NOT NULL", ["o"], sort_key=["k", "t"]),
    "values": View("SELECT o, n * 2 AS v, m FROM source", ["o"]),
    "copies": View("SELECT k, t, o, n, d FROM source", ["k"], Latest(), ["t"], ONE_ROW),
    "greatest": View("SELECT o, n, d FROM source", ["o"], Aggregate({"n": "max", "d": "sum"})),
}  # fmt: skip
"""``greatest`` merges rows that the query does not group; DuckDB gets the query that says the same."""

SAME = {"greatest": "SELECT o, max(n) AS n, sum(d) AS d FROM source GROUP BY o"}


def as_rows(found: Any) -> Counter[tuple[Any, ...]]:
    """Return rows for a comparison: sums of DuckDB have other types than ours."""
    return Counter(tuple(float(v) if isinstance(v, bool | int | Decimal) else v for v in row) for row in found)


def recomputed(view: View, name: str, rows: pa.Table, columns: list[str]) -> Counter[tuple[Any, ...]]:
    query = SAME.get(name, view.select).replace("bit_or(n)", "bit_or(n::BIGINT)")
    keys = " AND ".join(f"{key} IS NOT NULL" for key in (*view.row_key, *view.sort_key))
    with closing(duckdb.connect()) as connection:
        connection.register("source", rows)
        return as_rows(connection.sql(f"SELECT {', '.join(columns)} FROM ({query}) r WHERE {keys}").fetchall())


class Machine:
    """A source with its views, and steps that change and refresh them."""

    def __init__(self, seed: int, mode: str, reading: type[_Reading] = _Reading) -> None:
        self.random, self.mode, self.reading = Random(seed), mode, reading
        self.lake = lakebed.create(f"memory://retractions-{seed}-{mode}-{reading.__name__}")
        points = [(3,), (6,)] if self.random.random() < 0.5 else []
        self.source = self.lake.create_table("s", SOURCE, merge=MODES[mode], split_points=points)
        of_mode = [name for name, view in VIEWS.items() if mode in view.modes]
        self.names = self.random.sample(of_mode, 4)
        for name in self.names:
            view = VIEWS[name]
            points = ["b"] if view.row_key[0] == "o" and self.random.random() < 0.5 else []
            self.lake.create_view_table(
                name.replace(" ", "_"), source="s", select=view.select, row_key=view.row_key, sort_key=view.sort_key,
                merge=view.merge, split_points=points,
            )  # fmt: skip
        self.renamed = 0

    def view(self, name: str) -> lakebed.Table:
        return self.lake.table(name.replace(" ", "_"))

    def key(self) -> tuple[int, dt.datetime]:
        number = self.random.randrange(9)
        return number, OLD if number % 4 == 1 else NEW

    def write(self) -> None:
        pick = self.random.choice
        names = self.source.schema.arrow.names
        rows = []
        for _ in range(self.random.randrange(1, 7)):
            k, t = self.key()
            values = [
                pick(["a", "b", "bb", "c", None]), pick([None, -2, -1, 0, 1, 2, 2**40]),
                pick([None, Decimal("-1.25"), Decimal("0.00"), Decimal("1.25")]), pick([None, -0.5, 0.0, 0.25, 8.0]),
                pick([None, True, False]),
            ]  # fmt: skip
            rows.append(dict(zip(names, [k, t, *values], strict=True)))
        self.source.write(pa.Table.from_pylist(rows, self.source.schema.arrow))

    def delete(self) -> None:
        if self.mode == "latest":
            self.source.delete([self.key() for _ in range(self.random.randrange(1, 4))])
        else:
            self.remove()

    def remove(self) -> None:
        low = self.random.randrange(9)
        self.source.remove(KeyRange((low,), (low + self.random.randrange(1, 4),)))

    def restore(self) -> None:
        version = self.random.randrange(1, self.source.version + 1)
        self.source.restore(version=version)

    def hide(self) -> None:
        condition = self.random.choice([None, "k % 3 <> 0", "k < 5"])
        age = self.random.choice([None, 365])
        self.source.alter(SetFilter(condition), AgeOff("t", days=age) if age else AgeOff(None))

    def rename(self) -> None:
        # A filter names k and t alone.
        name = self.source.schema.arrow.names[3]
        self.renamed += 1
        self.source.alter(RenameField(name, f"n{self.renamed}"))

    def compact(self) -> None:
        with Pipeline(self.lake, launcher="this-thread") as pipeline:
            pipeline.compact(
                self.random.choice(["s", *(name.replace(" ", "_") for name in self.names)]), strategy="full"
            )

    def refresh(self) -> None:
        name = self.random.choice(self.names)
        lake = self.lake if self.random.random() < 0.7 else lakebed.open(self.lake.url)
        view, source = lake.table(name.replace(" ", "_")), lake.table("s")
        kind = self.random.random()
        if kind < 0.1:
            refresh(view, source, anew=True)
        elif kind < 0.25:
            self.ended_early(view, source)
            return
        elif self.reading is _Reading:
            refresh(view, source)
        else:
            self.planted(view, source)
        self.check(name)

    def ended_early(self, view: lakebed.Table, source: lakebed.Table) -> None:
        """Do all of a refresh but its commit."""
        with source.pin() as snapshot:
            _Reading(view, source, snapshot, view_source(view)).changed()

    def planted(self, view: lakebed.Table, source: lakebed.Table) -> None:
        """Refresh as the module does, with another reading."""
        fed = view_source(view)
        with source.pin() as snapshot:
            if snapshot.version == fed.version:
                return
            reading = self.reading(view, source, snapshot, fed)
            made = reading.changed() if fed.version else reading.whole()
            if made is None:
                refresh(view, source, anew=True)
                return
            proposal = ProposeFeed(
                made.ingested.files, view.version, fed.version, snapshot.version, replaced=made.replaced
            )
            commit_files(view, proposal)

    def check(self, name: str) -> None:
        view = self.view(name)
        fed = view_source(view).version
        rows = self.source.at(version=fed).scan().read_all() if fed else pa.Table.from_pylist([], SOURCE.arrow)
        rows = rows.rename_columns(SOURCE.arrow.names)
        found = as_rows(row.values() for row in view.scan().read_all().to_pylist())
        assert found == recomputed(VIEWS[name], name, rows, view.schema.arrow.names), f"{name} at version {fed}"

    def run(self, steps: int) -> None:
        doing = [self.write] * 6 + [self.refresh] * 6 + [self.delete] * 2
        doing += [self.remove, self.restore, self.hide, self.compact, self.rename]
        for _ in range(steps):
            try:
                self.random.choice(doing)()
            except RejectedError as error:
                # Changes over a filter of the past that names a field by another name cannot be read.
                if error.code is not Code.VIEW_NOT_FED:
                    raise
        for name in self.names:
            refresh(self.view(name), self.source)
            self.check(name)


@pytest.mark.parametrize("mode", chosen(MODES, "latest", "aggregate"))
def test_views_of_a_source_that_changes_are_what_duckdb_computes(mode: str) -> None:
    Machine(0, mode).run(40)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(100, 140))
def test_longer_programs(seed: int, mode: str) -> None:
    Machine(seed, mode).run(150)


class Lost(_Reading):
    """Rows that went are not taken."""

    def _changes(self) -> Iterator[tuple[bool, pa.RecordBatch]]:
        return ((went, part) for went, part in super()._changes() if not went)


class Twice(_Reading):
    """Rows that went are taken twice."""

    def _changes(self) -> Iterator[tuple[bool, pa.RecordBatch]]:
        for went, part in super()._changes():
            yield from [(went, part)] * (1 + went)


class Kept(_Reading):
    """The stored rows stay beside those that replace them."""

    def changed(self) -> _Made | None:
        made = super().changed()
        return made and replace(made, replaced=())


class NeverAgain(_Reading):
    """Groups that have to be made again are left out."""

    @staticmethod
    def _settled(*given: Any) -> Settled:
        found = settled(*given)
        return replace(found, again=found.again.slice(0, 0))


class Added(_Reading):
    """Rows that went are added once more."""

    def _changes(self) -> Iterator[tuple[bool, pa.RecordBatch]]:
        return ((False, part) for _, part in super()._changes())


@pytest.mark.parametrize("bug", [Lost, Twice, Kept, NeverAgain, Added])
def test_a_planted_bug_is_found(bug: type[_Reading]) -> None:
    for seed in range(5):
        try:
            Machine(seed, "latest", bug).run(40)
        except AssertionError:
            return
    pytest.fail("no program finds it")
