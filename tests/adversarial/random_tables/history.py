"""A random table, and random steps on it. Each step has its own seed, so any step may be left out."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lakebed import (
    AddField,
    AgeOff,
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
from lakebed.files.parquet.layout import Layout
from lakebed.model.merge_modes import FUNCTIONS
from lakebed.model.settings import Compression, Strategy
from lakebed.model.state.transactions import ProposeJoin, ProposeSplit
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from tests.adversarial.random_tables.conditions import condition
from tests.adversarial.random_tables.kinds import KINDS, ORDERED, PER_SECOND
from tests.adversarial.random_tables.model import Column, Model, Row, texts
from tests.adversarial.random_tables.readers import READERS, Reader, Visit, Ways, scan_all
from tests.tables.cases import rewritten
from tests.tables.read.merging_tables import reading_by

MODES: dict[str, Any] = {
    "keep all": KeepAll(), "latest": Latest(), "first": First(), "newest": Latest(by="sort_key"),
}  # fmt: skip
OFTEN = ("keep all", "keep all", "latest", "latest", "newest", "first", "aggregate")
AGE_DAYS, CUT_S = 1_000, 1_700_000_000
"""An age, and its cut as of 2026: until 2040 no content lies between it and the actual cut."""
BATCH_ROWS = (
    "lakebed.files.sorting.merge._BATCH_ROWS_MAX",
    "lakebed.files.sorting.sort._SORT_BATCH_ROWS",
    "lakebed.files.sorting.merge_inputs.BATCH_ROWS_MAX",
    "lakebed.read.rows.sequential_scan.BATCH_ROWS",
)
"""The rows of a batch, and the keys that are looked up at once."""
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
            for first, role, counts in (
                (0, "row key", (1, 1, 2, 3)),
                (10, "sort key", (1, 2) if mode == "newest" else (0, 0, 1, 2)),
            )
            for n in range(chance.choice(counts))
        ]
        columns += [self._value(20 + n, mode, chance) for n in range(chance.choice((0, 1, 2, 4)))]
        self.model = Model(mode, columns)
        self.next_number = 30
        self.table = self._created(chance)
        self.table.set(compaction_batch_runs=2)
        self.then: list[tuple[int, Model]] = []
        self.removed: dict[int, Callable[[Row], bool]] = {}
        """What each removal removed, by its version."""
        self.filtered = False
        self.layout: dict[str, Any] = {
            "page_rows": chance.choice([1, 2, 5]),
            "row_group_rows": chance.choice([3, 7, 1000]),
            "file_bytes": chance.choice([1, 4096, 2**28]),
        }
        # Apart from the other choices, which are those of before.
        off = Random(f"{seed} statistics").choice([(), (), (), ("*",), ("v20", "v21")])
        self.layout["statistics_off"] = frozenset(off)
        self.layout["bloom_fields"] = Random(f"{seed} filters").choice([0, 0, 1, 2])
        self.codecs = cycle(Compression)
        self.way = chance.choice(["pages", "pages", "pages", "engine", "levels", "slices"])
        self.batch_rows = chance.choice([1, 2, 3, 8192])

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
        return (
            f"{self.name}: {self.model.mode} ({columns}), {self.layout}, batches {self.batch_rows}, read by {self.way}"
        )

    def visit(self, chance: Random) -> Visit:
        """Return a visit of the latest version."""
        return Visit(self.ways, self.name, self.table, self.table.version, self.model, chance)

    @contextmanager
    def small(self) -> Iterator[None]:
        """Use small pages, row groups, files and batches, and the way of reading of this history."""
        of = Layout.of

        def smaller(_: Any, *how: Any) -> Layout:
            return replace(of(*how), **self.layout, compression=next(self.codecs))

        with (
            reading_by(self.table, self.way, multi_get_rows=self.batch_rows, feed_keys=self.batch_rows, copied_share=1),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(Layout, "of", classmethod(smaller))
            for place in BATCH_ROWS:
                patch.setattr(place, self.batch_rows)
            patch.setattr("lakebed.read.rows.datafusion_scan._BATCH_ROWS", (self.batch_rows,))
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

    def check(self, chance: Random, readers: Sequence[Reader] = READERS) -> None:
        """Use a scan, and some other readers."""
        self.read(self.visit(chance), [scan_all, *chance.sample(readers, min(5, len(readers)))])

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
        ranges, inside = self.visit(chance).ranges()
        if not ranges:
            return
        self._noting(str(ranges), lambda: self.table.remove(*ranges))
        self.removed[self.table.version] = inside
        self.model.remove(inside)

    def erase(self, chance: Random) -> None:
        """Erase rows from their files, while caches are warm."""
        if self.model.mode not in ("keep all", "latest", "newest"):
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
        # A rewrite may also change hidden rows so that they are shown.
        if self.model.mode != "keep all" or not values or self.filtered:
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
        """Compact, and take another step before the result is committed."""

        def run(tasks: Any) -> list[Any]:
            with tempfile.TemporaryDirectory() as scratch:
                done = [run_merge_task(task, self.table.storage, Path(scratch)) for task in tasks]
            if chance.random() < 0.4:
                self.change(chance, [step for step in STEPS if step not in ("travel", "collect")])
            return done

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
        if self.filtered or chance.random() < 0.5:
            return
        if chance.random() < 0.5:
            self._age_off(chance)
            return
        columns = self.model.columns if self.model.mode == "keep all" else self.model.row_key
        where = condition(chance, columns, 1)
        self._noting(where.sql, lambda: self.table.alter(SetFilter(where.sql)))
        self.filtered = True
        self.model.shows = lambda row: where.of(row) is True
        self.model.write([])

    def _age_off(self, chance: Random) -> None:
        """Hide old rows."""
        model, unit = self.model, chance.choice(list(PER_SECOND))
        fields = {"keep all": model.columns, "aggregate": model.keys}.get(model.mode, model.row_key)
        times = [(column, cut) for column in fields if (cut := column.kind.of_time(CUT_S, unit)) is not None]
        if times:
            column, cut = chance.choice(times)
            units = {"unit": unit} if pa.types.is_integer(column.kind.type) else {}
            self.table.alter(AgeOff(column.name, days=AGE_DAYS, **units))
            self.filtered = True
            model.shows = lambda row: row[column.number] is None or row[column.number] >= cut
            model.write([])

    def remember(self, _: Random) -> None:
        self.then = [*self.then[-3:], (self.table.version, self.model.copy())]

    def travel(self, chance: Random) -> None:
        if self.then:
            version, model = chance.choice(self.then)
            visit = Visit(self.ways, self.name, self.table.at(version=version), version, model, chance)
            self.read(visit, chance.sample(READERS, 4))

    def changes(self, chance: Random) -> None:
        """Apply the changes since an earlier version to its rows."""
        if not self.then:
            return
        version, then = chance.choice(self.then)
        visit = self.visit(chance)
        ranges, inside = visit.ranges()
        where = visit.where() if chance.random() < 0.5 else None
        chosen = [c for c in self.model.columns if c.role == "row key" or chance.random() < 0.7]
        numbers, names = [c.number for c in chosen], [c.name for c in chosen]

        def shown(rows: Iterable[Row]) -> list[Row]:
            whole = [{c.number: row.get(c.number) for c in self.model.columns} for row in rows]
            kept = [row for row in whole if inside(row) and (where is None or where.of(row) is True)]
            return [{number: row[number] for number in numbers} for row in kept]

        options = {"ranges": ranges, "columns": names, "where": where.sql if where else None}
        try:
            found = self.table.changes(version, **options).read_all()
            READS["changes"] += 1
            left = self._applied(shown(then.rows), found, names)
            assert sorted(texts(left)) == sorted(texts(shown(self.model.rows)))
        except NotRetainedError:
            return
        except BaseException as error:
            error.add_note(f"changes({version}, {options})")
            raise

    def _applied(self, rows: list[Row], found: pa.Table, names: list[str]) -> list[Row]:
        """Return the rows after the changes."""
        changed = self.model.read(found.drop_columns(["_version", "_change", "_range"]), names)
        versions, changes = (found.column(name).to_pylist() for name in ("_version", "_change"))
        for version, change, row in zip(versions, changes, changed, strict=True):
            if change in ("insert", "update_after"):
                rows.append(row)
            elif change == "remove_range":
                rows = [row for row in rows if not self.removed[version](row)]
            else:
                [text] = texts([row])
                assert text in texts(rows), (version, change, row)
                del rows[texts(rows).index(text)]
        return rows

    def restore(self, chance: Random) -> None:
        if not self.then:
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


def play(ways: Ways, seed: int, steps: Sequence[int], readers: Sequence[Reader] = READERS) -> None:
    """Make the table of a seed, and take some of its steps, with some of the readers after each. The table is dropped
    at the end.
    """
    history = History(ways, seed)
    step = None
    try:
        for step in steps:
            chance = Random(f"{seed} {step}")
            history.change(chance, ["write"] if step == 0 else ())
            history.check(chance, readers)
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
