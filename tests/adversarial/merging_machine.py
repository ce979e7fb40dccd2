"""A state machine over the public API of a table, beside a plain dictionary.

Each step changes or maintains the table, and then compares some interfaces' rows with those of the dictionary; at the
end all interfaces are compared. Rows may be written while a compaction runs. Recorded versions are read again later,
restored, and the changes since then applied to their rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import lakebed
from lakebed import Aggregate, First, KeepAll, KeyRange, Latest, Schema, clock
from lakebed.errors import Code, NotRetainedError, UsageError
from lakebed.model.row_filters import SetFilter
from lakebed.model.settings import Strategy
from lakebed.model.state.transactions import ProposeJoin, ProposeSplit, SetMerge
from lakebed.model.state.transactions.schema_changes import AddField, DropField, RenameField
from lakebed.upkeep.compaction.merge_jobs import MergeTask
from lakebed.upkeep.compaction.plan import CompactionLimits
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from tests.adversarial.merging_interfaces import GROUPS, INTERFACES, NUMBERS, Interface, Visit, applied, scan
from tests.adversarial.merging_oracle import Event, Key, Mode, Oracle, Row, in_order
from tests.raising import raises
from tests.tables.cases import rewritten
from tests.tables.read.merging_tables import reading_by

MODES = {
    "keep all": KeepAll(),
    "latest": Latest(),
    "latest by sort key": Latest(by="sort_key"),
    "first": First(),
    "aggregate": Aggregate({"a": "sum", "b": "last"}),
}
SCHEMA = Schema({"g": "string", "n": "int64"}, {"s": "int64"}, {"a": "int64", "b": "string"})
QUICK = INTERFACES[:11]

KEYS = st.tuples(st.sampled_from(GROUPS), st.sampled_from(list(NUMBERS)))
A, B = st.none() | st.integers(0, 9), st.none() | st.sampled_from("fmxz")
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 2), A, B), min_size=1, max_size=6)
SEEDS = st.integers(0, 2**16)
FILTERS = {"n <> 1": lambda key: key[1] != 1, "g >= 'b'": lambda key: key[0] >= "b", "n < 3": lambda key: key[1] < 3}


class Remembered(NamedTuple):
    """A version, its rows, the events until then, and its filter."""

    version: int
    rows: list[Row]
    events: dict[Key, list[Event]]
    fields: dict[str, int]
    filters: int
    mode_changes: int


class MergingMachine(RuleBasedStateMachine):
    """One table of one mode."""

    modes: Sequence[Mode] = tuple(MODES)
    interfaces: Sequence[Interface] = INTERFACES
    focused = False
    """Whether to take only the steps that affect merges of rows."""
    steps = 0
    broken = True

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        mode: Mode = data.draw(st.sampled_from(self.modes), "mode")
        self.oracle = Oracle(mode)
        self.url = f"memory://{clock.random_token()}"
        self.lake = lakebed.create(self.url)
        cuts = data.draw(st.sampled_from([(), (("b",),), (("a", 2), ("b",), ("c", 1))]), "partitions")
        self.table = self.lake.create_table("t", SCHEMA, merge=MODES[mode], split_points=cuts)
        self.table.set(compaction_batch_runs=2)
        self.remembered: list[Remembered] = []
        self.filters = self.mode_changes = 0
        self.uncertain: set[Key] = set()
        self.way = reading_by(self.table, data.draw(st.sampled_from(["pages", "pages", "engine", "levels"]), "read by"))
        self.way.__enter__()
        self.broken = False

    def teardown(self) -> None:
        if not hasattr(self, "way"):
            return
        try:
            if not self.broken:
                self.check(self.interfaces, 0)
        finally:
            self.way.__exit__(None, None, None)

    # -- what must hold -----------------------------------------------------------------------------------------

    def check(self, interfaces: Sequence[Interface], seed: int) -> None:
        visit = Visit(self.lake, self.table, self.oracle.rows(), Random(seed), self.table.version)
        self.broken = True
        for interface in interfaces:
            try:
                interface(visit)
            except AssertionError as error:
                error.add_note(f"interface {interface.__name__}, {self.oracle.mode}, version {self.table.version}")
                raise
        self.broken = False

    def some(self, seed: int) -> None:
        """Compare a few interfaces, mostly quick ones."""
        type(self).steps += 1
        if len(self.interfaces) < len(INTERFACES):
            self.check(self.interfaces, seed)
            return
        chance = Random(seed)
        among = self.interfaces if chance.random() < 0.2 else QUICK
        self.check([scan, chance.choice(among), chance.choice(among)], seed)

    # -- rows ---------------------------------------------------------------------------------------------------

    def table_of(self, rows: Sequence[Row]) -> pa.Table:
        schema = self.table.schema.arrow
        return pa.Table.from_pylist(rows, pa.schema([schema.field(name) for name in rows[0]]))

    def whole(self, drawn: Sequence[tuple[Any, ...]]) -> list[Row]:
        rows = [{"g": g, "n": n, "s": s, "a": a, "b": b} for (g, n), s, a, b in drawn]
        others = [name for name in self.oracle.fields if name not in ("a", "b")]
        return [row | dict.fromkeys(others, row["a"]) for row in rows]

    @rule(drawn=ROWS, seed=SEEDS)
    def write(self, drawn: Any, seed: int) -> None:
        rows = self.whole(drawn)
        self.table.write(self.table_of(rows))
        self.oracle.write(rows)
        self.some(seed)

    @rule(drawn=ROWS, seed=SEEDS)
    def write_more(self, drawn: Any, seed: int) -> None:
        """A second rule for writes, so that they are twice as frequent as other steps."""
        self.write(drawn, seed)

    @precondition(lambda self: self.oracle.mode == "latest")
    @rule(drawn=ROWS, names=st.sampled_from([("a",), ("b",), ()]), seed=SEEDS)
    def write_partial(self, drawn: Any, names: Sequence[str], seed: int) -> None:
        rows = [{name: row[name] for name in ("g", "n", "s", *names)} for row in self.whole(drawn)]
        self.table.write(self.table_of(rows), partial=True)
        self.oracle.write(rows, "partial")
        self.some(seed)

    @precondition(lambda self: self.oracle.mode.startswith("latest"))
    @rule(keys=st.lists(KEYS, min_size=1, max_size=3, unique=True), sort=st.integers(0, 2), seed=SEEDS)
    def delete(self, keys: list[Key], sort: int, seed: int) -> None:
        rows = [{"g": g, "n": n, "s": sort} for g, n in keys]
        by_sort = self.oracle.mode == "latest by sort key"
        self.table.delete(self.table_of(rows) if by_sort else keys)
        self.oracle.write(rows, "delete")
        self.some(seed)

    @precondition(lambda self: self.oracle.mode.startswith("latest"))
    @rule(least=st.integers(0, 9), seed=SEEDS)
    def delete_where(self, least: int, seed: int) -> None:
        going = [row for row in self.oracle.rows() if row["a"] is not None and row["a"] >= least]
        self.table.delete(where=f"a >= {least}")
        self.oracle.write([{name: row[name] for name in "gns"} for row in going], "delete")
        self.some(seed)

    @precondition(lambda self: not self.focused and not self.oracle.mode.startswith("latest"))
    @rule(key=KEYS)
    def refuse_deletes(self, key: Key) -> None:
        with raises(Code.MERGE_MODE_MISMATCH):
            self.table.delete([key])

    @rule(low=KEYS, high=KEYS, seed=SEEDS)
    def remove_range(self, low: Key, high: Key, seed: int) -> None:
        low, high = sorted([low, high])
        if low == high:
            return
        self.table.remove(KeyRange(low, high))
        self.oracle.remove(lambda key: low <= key < high)
        self.uncertain = {key for key in self.uncertain if not low <= key < high}
        self.some(seed)

    @precondition(lambda self: not self.focused)
    @rule(group=st.sampled_from(GROUPS), seed=SEEDS)
    def remove_prefix(self, group: str, seed: int) -> None:
        self.table.remove(prefix=group)
        self.oracle.remove(lambda key: key[0] == group)
        self.uncertain = {key for key in self.uncertain if key[0] != group}
        self.some(seed)

    @precondition(lambda self: not self.focused and not self.uncertain)
    @rule(number=st.sampled_from(list(NUMBERS)), deletes=st.booleans(), seed=SEEDS)
    def rewrite(self, number: int, deletes: bool, seed: int) -> None:
        try:
            if deletes:
                rewritten(self.table, delete_where=f"n = {number}")
            else:
                rewritten(self.table, set={"a": "a + 1"}, where=f"n = {number}")
        except UsageError as error:
            # Stored rows are parts of visible ones.
            if deletes or self.oracle.mode == "keep all" or error.code is not Code.MERGE_MODE_MISMATCH:
                raise
        else:
            if deletes:
                self.oracle.rewrite_away(lambda key: key[1] == number)
            else:
                self.oracle.rewrite(
                    lambda key, row: row | ({"a": row["a"] + 1} if key[1] == number and row["a"] is not None else {})
                )
        self.some(seed)

    @precondition(lambda self: not self.focused and (self.filters == 0 or self.oracle.mode != "latest by sort key"))
    @rule(predicate=st.sampled_from([None, *FILTERS]), seed=SEEDS)
    def set_filter(self, predicate: str | None, seed: int) -> None:
        """The remaining hidden rows depend on earlier compactions; from then on they stay."""
        oracle = self.oracle
        hidden = {key for key in oracle.events if oracle.shows and not oracle.shows(key)} | self.uncertain
        before = self.table.version
        if self.table.alter(SetFilter(predicate)) == before:
            return
        self.filters += 1
        oracle.shows = FILTERS[predicate] if predicate else None
        shown = {key for key in hidden if oracle.shows is None or oracle.shows(key)}
        rows = self.table.scan().read_all().to_pylist()
        for key in shown:
            oracle.events[key] = [
                Event("whole", row["s"], {number: row[name] for name, number in oracle.fields.items()})
                for row in rows
                if (row["g"], row["n"]) == key
            ]
        self.uncertain = hidden - shown
        self.some(seed)

    @precondition(lambda self: not self.focused and len(self.oracle.fields) == 2)
    @rule(mode=st.sampled_from(list(MODES)), seed=SEEDS)
    def set_merge(self, mode: Mode, seed: int) -> None:
        """Change the mode while the table has no rows."""
        if self.oracle.mode == mode:
            return
        self.table.remove(KeyRange())
        self.table.alter(SetMerge(MODES[mode]))
        self.oracle.mode = mode
        self.oracle.remove(lambda _: True)
        self.uncertain = set()
        self.mode_changes += 1
        self.some(seed)

    # -- the schema ---------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.focused)
    @rule(rename=st.booleans(), seed=SEEDS)
    def evolve(self, rename: bool, seed: int) -> None:
        others = [name for name in self.oracle.fields if name not in ("a", "b")]
        if not others:
            aggregates = self.oracle.mode == "aggregate"
            self.table.alter(AddField("c", "int64", "sum") if aggregates else AddField("c", "int64"))
            self.oracle.add_field("c", "sum")
        elif rename:
            new = "d" if others == ["c"] else "c"
            self.table.alter(RenameField(others[0], new))
            self.oracle.rename_field(others[0], new)
        else:
            self.table.alter(DropField(others[0]))
            self.oracle.drop_field(others[0])
        self.some(seed)

    # -- versions -----------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.focused)
    @rule()
    def remember(self) -> None:
        rows = deepcopy(self.oracle.rows())
        now = Remembered(
            self.table.version,
            rows,
            self.oracle.remembered(),
            dict(self.oracle.fields),
            self.filters,
            self.mode_changes,
        )
        self.remembered = [*self.remembered[-3:], now]

    @precondition(lambda self: self.remembered)
    @rule(place=st.integers(0, 3), seed=SEEDS)
    def travel(self, place: int, seed: int) -> None:
        then = self.remembered[place % len(self.remembered)]
        try:
            snapshot = self.table.at(version=then.version)
        except NotRetainedError:
            self.remembered.remove(then)
            return
        visit = Visit(self.lake, snapshot, then.rows, Random(seed), then.version)
        for interface in (scan, Random(seed).choice(self.interfaces)):
            interface(visit)

    @precondition(lambda self: self.remembered)
    @rule(place=st.integers(0, 3), seed=SEEDS)
    def restore(self, place: int, seed: int) -> None:
        then = self.remembered[place % len(self.remembered)]
        if then.mode_changes != self.mode_changes:
            with raises(Code.VERSION_NOT_RETAINED, Code.MERGE_CHANGE_REJECTED):
                self.table.restore(version=then.version)
            return
        if then.filters != self.filters:
            return
        try:
            self.table.restore(version=then.version)
        except NotRetainedError:
            self.remembered.remove(then)
            return
        self.oracle.restore(then.events)
        self.some(seed)

    @precondition(lambda self: self.remembered)
    @rule(place=st.integers(0, 3))
    def changes(self, place: int) -> None:
        then = self.remembered[place % len(self.remembered)]
        if then.fields != self.oracle.fields:
            return
        with suppress(NotRetainedError):
            found = self.table.changes(then.version).read_all().to_pylist()
            assert applied(then.rows, found) == sorted(self.oracle.rows(), key=in_order), found

    # -- maintenance --------------------------------------------------------------------------------------------

    @rule(strategy=st.sampled_from(list(Strategy)), during=st.none() | ROWS, seed=SEEDS)
    def compact(self, strategy: Strategy, during: Any, seed: int) -> None:
        meanwhile = [self.whole(during)] if during else []
        compact(
            self.table,
            prepare(self.table, strategy, CompactionLimits(references_min=2)),
            partial(self._run, meanwhile),
            cores=1,
        )
        self.some(seed)

    def _run(self, meanwhile: list[list[Row]], tasks: Sequence[MergeTask]) -> list[Any]:
        """Called by several threads, one after another."""
        while meanwhile:
            rows = meanwhile.pop()
            self.table.write(self.table_of(rows))
            self.oracle.write(rows)
        with tempfile.TemporaryDirectory() as scratch:
            return [run_merge_task(task, self.table.storage, Path(scratch)) for task in tasks]

    @rule(key=KEYS, seed=SEEDS)
    def split(self, key: Key, seed: int) -> None:
        encoded = SCHEMA.codec.encode_key(key)
        partitions = self.table.state().partitions
        self.table.try_commit(ProposeSplit({partitions.ids[partitions.position(encoded)]: (encoded,)}))
        self.some(seed)

    @rule(place=st.integers(0, 3), seed=SEEDS)
    def join(self, place: int, seed: int) -> None:
        ids = self.table.state().partitions.ids
        place %= len(ids)
        self.table.try_commit(ProposeJoin(ids[place : place + 2]))
        self.some(seed)

    @precondition(lambda self: not self.focused)
    @rule(seed=SEEDS)
    def checkpoint_and_open_again(self, seed: int) -> None:
        self.table.log.retain_checkpoint()
        self.lake = lakebed.open(self.url)
        self.table = self.lake.table("t")
        self.table.state()
        self.some(seed)

    @precondition(lambda self: not self.focused)
    @rule(seed=SEEDS)
    def collect(self, seed: int) -> None:
        self.table.set(history_s=0)
        collect_garbage(self.table)
        self.table.set(history_s=None)
        self.some(seed)
