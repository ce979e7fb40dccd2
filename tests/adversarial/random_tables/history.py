"""A random table, and random steps on it. Each step has its own seed, so any step may be left out."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lakebed import (
    AddField,
    Aggregate,
    AllowNulls,
    DropField,
    First,
    KeepAll,
    Latest,
    RenameField,
    Schema,
    SetFilter,
    WidenField,
    clock,
)
from lakebed.errors import NotRetainedError
from lakebed.maintenance.compaction.run import compact, prepare, run_merge_task
from lakebed.model.merge_modes import FUNCTIONS
from lakebed.parquet.layout import Layout
from lakebed.retention.run import collect_garbage
from lakebed.settings import Strategy
from lakebed.state.transactions import ProposeJoin, ProposeSplit
from tests.adversarial.random_tables.conditions import condition
from tests.adversarial.random_tables.kinds import KINDS, ORDERED
from tests.adversarial.random_tables.model import Column, Model, Row, texts
from tests.adversarial.random_tables.readers import READERS, Reader, Visit, Ways, scan_all
from tests.unit.cases import rewritten
from tests.unit.read.merging_tables import reading_by

MODES: dict[str, Any] = {"keep all": KeepAll(), "latest": Latest(), "first": First()}
OFTEN = ("keep all", "keep all", "latest", "latest", "first", "aggregate")
READS: Counter[str] = Counter()
"""How often each reader was used."""


class History:
    """One table, its model, and the recorded earlier versions."""

    def __init__(self, ways: Ways, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> None:
        chance = Random(seed)
        self.ways, self.kinds = ways, kinds
        # A service caches for a second which table a name refers to.
        self.name = f"t{clock.random_token()}"
        mode = chance.choice(OFTEN)
        keys = [KINDS[name] for name in kinds if KINDS[name].is_key]
        columns = [
            Column(first + n, f"{role[0]}{n}", chance.choice(keys), role, nullable=False)
            for first, role, counts in ((0, "row key", (1, 1, 2, 3)), (10, "sort key", (0, 0, 1, 2)))
            for n in range(chance.choice(counts))
        ]
        columns += [self._value(20 + n, mode, chance) for n in range(chance.choice((0, 1, 2, 4)))]
        self.model = Model(mode, columns)
        self.next_number = 30
        self.table = self._created(chance)
        self.table.set(compaction_batch_runs=2)
        self.then: list[tuple[int, Model]] = []
        self.filtered = False
        self.layout = {
            "page_rows": chance.choice([1, 2, 5]),
            "row_group_rows": chance.choice([3, 7, 1000]),
            "file_bytes": chance.choice([1, 4096, 2**28]),
        }
        self.way = chance.choice(["pages", "pages", "pages", "engine", "levels", "slices"])

    def _value(self, number: int, mode: str, chance: Random) -> Column:
        function = chance.choice(["first", "last", "min", "max"])
        fit = [name for name in self.kinds if mode != "aggregate" or FUNCTIONS[function].takes(KINDS[name].type)]
        nullable = mode == "latest" or chance.random() < 0.8
        return Column(number, f"v{number}", KINDS[chance.choice(fit)], nullable=nullable, function=function)

    def _created(self, chance: Random) -> Any:
        model = self.model
        groups: dict[str, dict[str, Any]] = {"row key": {}, "sort key": {}, "value": {}}
        for column in model.columns:
            groups[column.role][column.name] = pa.field(column.name, column.kind.type, column.nullable)
        merge = MODES.get(model.mode) or Aggregate({column.name: column.function for column in model.values})
        first = model.row_key[0]
        cuts = sorted({first.kind.rank(chance.choice(first.kind.contents)) for _ in range(chance.choice([0, 0, 2]))})
        points = [(first.kind.contents[rank],) for rank in cuts]
        return self.ways.lake.create_table(self.name, Schema(*groups.values()), merge=merge, split_points=points)

    def __repr__(self) -> str:
        columns = ", ".join(f"{c.name} {c.kind.name}{'' if c.nullable else ' not null'}" for c in self.model.columns)
        return f"{self.name}: {self.model.mode} ({columns}), {self.layout}, read by {self.way}"

    def visit(self, chance: Random) -> Visit:
        """Return a visit of the latest version."""
        return Visit(self.ways, self.name, self.table, self.table.version, self.model, chance)

    @contextmanager
    def small(self) -> Iterator[None]:
        """Use small pages, row groups and files, and the way of reading of this history."""
        of = Layout.of

        def smaller(_: Any, *how: Any) -> Layout:
            return replace(of(*how), **self.layout)

        with reading_by(self.way), pytest.MonkeyPatch.context() as patch:
            patch.setattr(Layout, "of", classmethod(smaller))
            yield

    def change(self, chance: Random, steps: Sequence[str] = ()) -> None:
        """Take one random step."""
        name = chance.choice(steps or STEPS)
        try:
            with self.small():
                getattr(self, name)(chance)
        except BaseException as error:
            error.add_note(f"step {name}")
            raise

    def read(self, visit: Visit, readers: Sequence[Reader]) -> None:
        """Use some readers."""
        for reader in readers:
            READS[reader.__name__] += 1
            try:
                with self.small():
                    reader(visit)
            except BaseException as error:
                error.add_note(f"reader {reader.__name__}")
                raise

    def check(self, chance: Random) -> None:
        """Use a scan, and some other readers."""
        self.read(self.visit(chance), [scan_all, *chance.sample(READERS, 5)])

    # -- rows ---------------------------------------------------------------------------------------------------

    def row(self, chance: Random) -> Row:
        """Return a random row."""
        row = {c.number: chance.choice(c.kind.contents) for c in self.model.columns}
        for c in self.model.values:
            if c.nullable and chance.random() < 0.25:
                row[c.number] = None
        return row

    def write(self, chance: Random) -> None:
        rows = [self.row(chance) for _ in range(chance.choice([1, 5, 30]))]
        self.table.write(self.model.table(rows))
        self.model.write(rows)

    def write_partial(self, chance: Random) -> None:
        if self.model.mode != "latest":
            return
        chosen = [c for c in self.model.values if chance.random() < 0.5]
        columns = [*self.model.keys, *chosen]
        rows = [{n: v for n, v in self.row(chance).items() if n in {c.number for c in columns}} for _ in range(5)]
        self.table.write(self.model.table(rows, columns), partial=True)
        self.model.write(rows, partial=True)

    def delete(self, chance: Random) -> None:
        if self.model.mode != "latest":
            return
        if chance.random() < 0.5:
            where = condition(chance, self.model.columns)
            self._noting(where.sql, lambda: self.table.delete(where=where.sql))
            self.model.remove(lambda row: where.of(row) is True)
        else:
            rows = [self.visit(chance).key() for _ in range(3)]
            places = [self.model.place(row, self.model.row_key) for row in rows]
            self.table.delete(self.model.table(rows, self.model.row_key))
            self.model.remove(lambda row: self.model.place(row, self.model.row_key) in places)

    def _noting(self, text: str, call: Any) -> None:
        try:
            call()
        except BaseException as error:
            error.add_note(text)
            raise

    def remove(self, chance: Random) -> None:
        keys, going = self.visit(chance).range()
        self._noting(str(keys), lambda: self.table.remove(keys))
        gone = set(map(id, going))
        self.model.remove(lambda row: id(row) in gone)

    def erase(self, chance: Random) -> None:
        """Erase rows from their files, while caches are warm."""
        if self.model.mode not in ("keep all", "latest"):
            return
        where = condition(chance, self.model.row_key)
        self._noting(where.sql, lambda: rewritten(self.table, delete_where=where.sql))
        self.model.remove(lambda row: where.of(row) is True)

    def rewrite(self, chance: Random) -> None:
        values = [
            c
            for c in self.model.values
            if c.kind.name in ORDERED and not c.kind.name.startswith(("binary2", "dictionary", "uuid"))
        ]
        if self.model.mode != "keep all" or not values:
            return
        column, where = chance.choice(values), condition(chance, self.model.columns)
        content = chance.choice(column.kind.contents)
        text = column.kind.literals(content)[0]
        self._noting(f"{text} {where.sql}", lambda: rewritten(self.table, set={column.name: text}, where=where.sql))
        for row in self.model.rows:
            if where.of(row) is True:
                row[column.number] = content
        self.model.write([])

    def compact(self, chance: Random) -> None:
        def run(tasks: Any) -> list[Any]:
            with tempfile.TemporaryDirectory() as scratch:
                return [run_merge_task(task, self.table.storage, Path(scratch)) for task in tasks]

        compact(self.table, prepare(self.table, chance.choice(list(Strategy))), run, cores=1)

    def split(self, chance: Random) -> None:
        bound = self.visit(chance).bound()
        encoded = self.table.schema.codec.encode(bound)
        partitions = self.table.state().partitions
        self.table.try_commit(ProposeSplit({partitions.ids[partitions.position(encoded)]: (encoded,)}))

    def join(self, chance: Random) -> None:
        ids = self.table.state().partitions.ids
        place = chance.randrange(len(ids))
        self.table.try_commit(ProposeJoin(ids[place : place + 2]))

    def alter(self, chance: Random) -> None:
        model, values = self.model, self.model.values
        number = self.next_number
        self.next_number += 1
        what = chance.choice(["add", "drop", "rename", "widen", "nulls"])
        # A table with a filter does not change the fields that it names.
        column = chance.choice(values) if values and not self.filtered else None
        if what == "add" or column is None:
            added = replace(self._value(number, model.mode, chance), nullable=True)
            function = (added.function,) if model.mode == "aggregate" else ()
            self.table.alter(AddField(added.name, added.kind.type, *function))
            model.columns.append(added)
            for row in model.rows:
                row[number] = None
            return
        if what == "drop" and not (model.mode == "aggregate" and len(values) == 1):
            self.table.alter(DropField(column.name))
            model.columns.remove(column)
            for row in model.rows:
                del row[column.number]
        elif what == "rename":
            column = chance.choice(model.columns)
            changed = replace(column, name=f"r{number}")
            self.table.alter(RenameField(column.name, changed.name))
            model.columns[model.columns.index(column)] = changed
        elif what == "widen" and column.kind.ladder:
            kind = KINDS[chance.choice(column.kind.ladder)]
            self.table.alter(WidenField(column.name, kind.type))
            model.columns[model.columns.index(column)] = replace(column, kind=kind)
        elif what == "nulls" and not column.nullable:
            self.table.alter(AllowNulls(column.name))
            model.columns[model.columns.index(column)] = replace(column, nullable=True)

    def set_filter(self, chance: Random) -> None:
        """Rows that do not pass are removed: a compaction may have dropped them."""
        if self.filtered or chance.random() < 0.7:
            return
        columns = self.model.columns if self.model.mode == "keep all" else self.model.row_key
        where = condition(chance, columns, 1)
        self._noting(where.sql, lambda: self.table.alter(SetFilter(where.sql)))
        self.filtered = True
        self.model.shows = lambda row: where.of(row) is True
        self.model.write([])

    def remember(self, _: Random) -> None:
        self.then = [*self.then[-3:], (self.table.version, self.model.copy())]

    def travel(self, chance: Random) -> None:
        if self.then:
            version, model = chance.choice(self.then)
            visit = Visit(self.ways, self.name, self.table.at(version=version), version, model, chance)
            self.read(visit, chance.sample(READERS, 4))

    def changes(self, chance: Random) -> None:
        if not self.then:
            return
        version, then = chance.choice(self.then)
        if [(c.number, c.kind) for c in then.columns] != [(c.number, c.kind) for c in self.model.columns]:
            return
        try:
            found = self.table.changes(version).read_all()
        except NotRetainedError:
            return
        READS["changes"] += 1
        rows = self.model.read(found.drop_columns(["_version", "_change", "_range"]))
        left = texts(then.rows)
        for change, row in zip(found.column("_change").to_pylist(), rows, strict=True):
            if change in ("insert", "update_after"):
                left += texts([row])
            elif change in ("delete", "update_before"):
                [text] = texts([row])
                assert text in left, (change, row)
                left.remove(text)
            else:
                return
        assert sorted(left) == sorted(texts(self.model.rows))

    def restore(self, chance: Random) -> None:
        if not self.then or self.filtered:
            return
        version, then = chance.choice(self.then)
        if any(not c.nullable and c.number not in {o.number for o in then.columns} for c in self.model.columns):
            return
        try:
            self.table.restore(version=version)
        except NotRetainedError:
            self.then = []
            return
        self.model.restored(then)

    def collect(self, _: Random) -> None:
        self.table.set(history_s=0)
        collect_garbage(self.table)
        self.table.set(history_s=None)
        self.then = []


STEPS = (
    *["write"] * 5, *["write_partial", "compact", "alter", "remember"] * 2,
    "delete", "remove", "erase", "rewrite", "split", "join", "set_filter", "travel", "changes", "restore", "collect",
)  # fmt: skip


def play(ways: Ways, seed: int, steps: Sequence[int]) -> None:
    """Make the table of a seed, and take some of its steps, with readers after each. The table is dropped at the
    end.
    """
    history = History(ways, seed)
    step = None
    try:
        for step in steps:
            chance = Random(f"{seed} {step}")
            history.change(chance, ["write"] if step == 0 else ())
            history.check(chance)
    except BaseException as error:
        error.add_note(f"{history}, seed {seed}, step {step} of {list(steps)}")
        raise
    finally:
        ways.lake.drop_table(history.name)


def shrunk(fails: Callable[[Sequence[int]], bool], steps: Sequence[int]) -> list[int]:
    """Return the steps of a failing history, none of which can be left out."""
    left = list(steps)
    for step in reversed(steps):
        fewer = [one for one in left if one != step]
        if fails(fewer):
            left = fewer
    return left
