"""Rows by indexed fields, beside a plain dictionary, through all that changes a table.

The machine is that of merges (:mod:`tests.adversarial.merging_machine`), on a table with an index of one field and one
of two. The indexes are fed, built anew, compacted and collected at any time, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

import lakebed
from lakebed import KeyRange, Latest, clock
from lakebed.errors import Code
from lakebed.model.settings import Strategy
from lakebed.model.state.transactions import SetMerge
from lakebed.read.rows import second_key
from lakebed.read.rows.second_key import answers
from lakebed.upkeep.compaction.plan import CompactionLimits
from lakebed.upkeep.compaction.run import compact, prepare
from lakebed.upkeep.index_feed import feed_index
from lakebed.upkeep.retention.run import collect_garbage
from tests.adversarial.indexed_soak import SCHEMA as SOAK_SCHEMA
from tests.adversarial.indexed_soak import Config, Reads, soaked, written_by
from tests.adversarial.merging_interfaces import Visit, same, scan
from tests.adversarial.merging_machine import MODES as ALL_MODES
from tests.adversarial.merging_machine import SEEDS, MergingMachine
from tests.adversarial.test_merging_machine import EXAMPLES, NIGHTLY, run
from tests.raising import raises
from tests.soaked import chosen, few
from tests.tables.cases import compact as compact_fully
from tests.variants import Planted, planted

MODES = ("keep all", "latest", "latest by sort key", "first")
AGGREGATE = ALL_MODES["aggregate"]
FIELDS = {"by_a": ["a"], "by_b_a": ["b", "a"]}


def _wanted(visit: Visit, by: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in visit.rows if all(row[name] == value for name, value in by.items())]


def _by(visit: Visit) -> Iterator[dict[str, Any]]:
    """Values of rows, and others."""
    chance = visit.chance
    for _ in range(3):
        row = chance.choice(visit.rows) if visit.rows and chance.random() < 0.7 else {"a": 3, "b": "m"}
        names = chance.choice([("a",), ("b", "a"), ("a", "b")])
        if all(row[name] is not None for name in names):
            yield {name: row[name] for name in names}


def get_by(visit: Visit) -> None:
    for by in _by(visit):
        same(visit.table.get(by=by).to_pylist(), _wanted(visit, by))


def scan_by(visit: Visit) -> None:
    for by in _by(visit):
        keys, among = visit.range()
        wanted = [row for row in _wanted(visit, by) if row in among and row["n"] < 2]
        same(visit.table.scan(keys, by=by, where="n < 2").read_all().to_pylist(), wanted)
        assert visit.table.count(by=by).rows == len(_wanted(visit, by))


def scan_where(visit: Visit) -> None:
    """A predicate that needs a value of an indexed field, for which a read takes the index by itself."""
    for by in _by(visit):
        text = " AND ".join(f"{name} = {one!r}" for name, one in by.items())
        same(visit.table.scan(where=text).read_all().to_pylist(), _wanted(visit, by))
        if len(by) == 1:
            either = [row for row in visit.rows if row["a"] in (by["a"], 3)]
            same(visit.table.scan(where=f"a IN (3, {by['a']})").read_all().to_pylist(), either)


class IndexedMachine(MergingMachine):
    """A table with two indexes."""

    modes = MODES
    interfaces = (scan, get_by, scan_by, scan_where)
    looked_up = 0
    """The reads that an index answered."""

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        super().create(data)
        self.broken = True
        for name, fields in FIELDS.items():
            feed_index(self.lake.create_index(name, table="t", on=fields), self.table)
        self.broken = False

    @precondition(lambda self: len(self.oracle.fields) == 2)
    @rule(mode=st.sampled_from([*MODES, "aggregate"]), seed=SEEDS)
    def set_merge(self, mode: Any, seed: int) -> None:
        if mode != "aggregate":
            super().set_merge(mode, seed)
            return
        self.table.remove(KeyRange())
        self.oracle.remove(lambda _: True)
        self.uncertain = set()
        with raises(Code.INDEX_UNFIT):
            self.table.alter(SetMerge(AGGREGATE))

    @rule(name=st.sampled_from(list(FIELDS)), anew=st.booleans(), seed=SEEDS)
    def feed(self, name: str, anew: bool, seed: int) -> None:
        feed_index(self.lake.table(name), self.table, anew=anew)
        self.some(seed)

    @rule(name=st.sampled_from(list(FIELDS)), seed=SEEDS)
    def feed_often(self, name: str, seed: int) -> None:
        self.feed(name, False, seed)

    @rule(name=st.sampled_from(list(FIELDS)), seed=SEEDS)
    def maintain_an_index(self, name: str, seed: int) -> None:
        index = self.lake.table(name)
        prepared = prepare(index, Strategy.FULL, CompactionLimits(references_min=2))
        compact(index, prepared, lambda tasks: self._run([], tasks), cores=1)
        index.set(history_s=0)
        collect_garbage(index)
        index.set(history_s=None)
        self.some(seed)

    def some(self, seed: int) -> None:
        super().some(seed)
        for name in FIELDS:
            fed = self.lake.table(name).state().view
            assert fed is not None
            type(self).looked_up += answers(fed, self.table.state())


@pytest.mark.parametrize("mode", chosen(MODES, "latest", "first"))
def test_rows_by_indexed_fields_are_those_of_a_plain_dictionary(mode):
    class Machine(IndexedMachine):
        modes = (mode,)

    run(Machine, NIGHTLY if settings.default.max_examples > 50 else EXAMPLES, phases=(Phase.generate,))
    assert Machine.looked_up
    print(f"{Machine.steps:,} steps, {Machine.looked_up:,} of {2 * Machine.steps:,} with an index in use")


def versions_between_feeds(seed: int) -> None:
    """Write, compact and feed at random, and read every version by values that it had."""
    chance, rows, versions = Random(seed), {}, {}
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", SOAK_SCHEMA, merge=Latest())
    indexes = [lake.create_index(name, table="t", on=fields) for name, fields in FIELDS.items()]
    for number in range(30):
        match chance.choices(["write", "compact", "feed"], [6, 1, 2])[0]:
            case "write":
                written = written_by(f"c{number}")
                written.apply(rows)
                versions[table.write(written.to_arrow())] = dict(rows)
            case "compact" if len(table.state().referenced()) > 1:
                compact_fully(table)
            case "feed":
                feed_index(chance.choice(indexes), table, anew=chance.random() < 0.1, part_rows=chance.choice([1, 10]))
    reads = Reads(lake, chance)
    for version, held in versions.items():
        reads.compare(table.at(version=version), held, 8)


@pytest.mark.parametrize("seed", few((1, 0, 2), 1))
def test_each_version_has_the_rows_that_it_had(seed):
    versions_between_feeds(seed)


def test_an_index_that_has_what_it_had_not_yet_is_found():
    wrong = Planted(second_key, "as_of", lambda view, _version: view)
    with planted(lambda: [wrong]), pytest.raises(AssertionError):
        versions_between_feeds(1)


@pytest.mark.slow
def test_killed_processes_leave_no_row_wrong_or_missing(tmp_path):
    done = soaked(Config(str(tmp_path / "lake"), str(tmp_path)), operations=40_000, seconds=3600, seed=1)
    print(done.report())
