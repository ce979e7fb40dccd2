"""Compaction of tables that merge rows, with files: readers see the same rows whatever is merged, split or killed."""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.clock import new_id
from lakebed.errors import Code
from lakebed.files.sorting.merge import merge_stream
from lakebed.files.sorting.sort import sort_runs
from lakebed.log.outcomes import version_of
from lakebed.model.files import data_name
from lakebed.model.merge_modes import Aggregate, Latest, MergeMode
from lakebed.model.row_kinds import RowKind
from lakebed.model.settings import Strategy
from lakebed.model.state.transactions import ProposeFiles, ProposeJoin, ProposeSplit
from lakebed.model.state.transactions.schema_changes import RenameField
from lakebed.table.table import Table
from lakebed.upkeep.compaction.merge_jobs import MergeTask
from lakebed.upkeep.compaction.plan import CompactionLimits
from lakebed.upkeep.compaction.run import CompactionReport, compact, prepare, run_merge_task
from lakebed.write.run import commit_files, send_run
from tests.tables.sorting.merge_rows import MODES, SCHEMA, Row, as_batches, layout_for, meaning, row, runs_of

LIMIT = 64 << 20


def create(folder: Path, mode: MergeMode, *split_points: int) -> Table:
    lake = lakebed.create(str(folder / "instance"))
    return lake.create_table("t", SCHEMA, merge=mode, split_points=[(k,) for k in split_points])


def write(table: Table, rows: list[Row]) -> None:
    """Commit the rows as one run, as every way to write does."""
    with tempfile.TemporaryDirectory() as scratch:
        layout = layout_for(rows)
        run = sort_runs(as_batches(rows, 5), layout, Path(scratch), memory_limit_bytes=LIMIT, mode=table.state().merge)
        files = send_run(table.storage, table.id, run, job=new_id())
    version_of(commit_files(table, ProposeFiles(files, base_version=table.version)), "t")


def contents(table: Table) -> list[Row]:
    """What a reader sees, partition by partition."""
    state = table.state()
    found: list[Row] = []
    for position, partition in enumerate(state.partitions.ids):
        keys = state.partitions.range_at(position)
        names = [data_name(table.id, file) for file in state.files_of(partition)]
        with ExitStack() as stack:
            paths = [stack.enter_context(table.storage.fetch(name)) for name in names]
            for batch in merge_stream(paths, SCHEMA, key_range=keys, memory_limit_bytes=LIMIT, mode=state.merge):
                found += batch.to_pylist()
    return found


def run_tasks(table: Table, tasks: Sequence[MergeTask]) -> list[Any]:
    with tempfile.TemporaryDirectory() as scratch:
        # Spark hands tasks over to other processes.
        received = pickle.loads(pickle.dumps(tasks))
        return [run_merge_task(task, table.storage, Path(scratch)) for task in received]


FEW = CompactionLimits(references_min=2)


def compacted(table: Table, strategy: str | None = None, execute: Callable[..., Any] | None = None) -> CompactionReport:
    return compact(table, prepare(table, strategy, FEW), execute or partial(run_tasks, table), cores=2)


def steps_of(mode: MergeMode, *, inner: bool = False) -> st.SearchStrategy[list[Any]]:
    """What happens to a table; a compaction also has what happens while its tasks run, and the number of one that is
    lost."""
    during = st.just([]) if inner else st.deferred(lambda: steps_of(mode, inner=True))
    writes = st.tuples(st.just("write"), runs_of(mode))
    compactions = st.tuples(st.just("compact"), st.sampled_from(list(Strategy)), during, st.integers(0, 4))
    splits = st.tuples(st.just("split"), st.integers(1, 6))
    return st.lists(st.one_of(writes, compactions, splits, st.just(("join",))), max_size=2 if inner else 6)


class Actions:
    """Does such steps, and compares what readers see after each."""

    def __init__(self, table: Table, mode: MergeMode) -> None:
        self.table, self.mode = table, mode
        self.rows: list[Row] = []
        self._lock = threading.Lock()

    def act(self, steps: list[Any]) -> None:
        for step in steps:
            match step:
                case ("write", runs):
                    for rows in runs:
                        write(self.table, rows)
                        self.rows += rows
                case ("compact", strategy, during, lost):
                    compacted(self.table, strategy, partial(self._execute, list(during), lost))
                case ("split", number):
                    key = SCHEMA.codec.encode_key((number,))
                    state = self.table.state()
                    self.table.try_commit(ProposeSplit({state.partitions.ids[state.partitions.position(key)]: (key,)}))
                case _:
                    self.table.try_commit(ProposeJoin(self.table.state().partitions.ids[:2]))
            assert contents(self.table) == meaning(self.mode, self.rows)

    def _execute(self, during: list[Any], lost: int, tasks: Sequence[MergeTask]) -> list[Any]:
        """Called from several threads; the first one does something else before its tasks."""
        with self._lock:
            steps, during[:] = list(during), []
        self.act(steps)
        made = run_tasks(self.table, tasks)
        return [Code.STORE_UNAVAILABLE("lost") if number == lost else one for number, one in enumerate(made)]


@pytest.mark.parametrize("mode", MODES, ids=str)
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_readers_see_the_same_rows_whatever_is_merged_split_joined_or_lost(mode, data):
    with tempfile.TemporaryDirectory() as name:
        table = create(Path(name), mode, *data.draw(st.sampled_from([(), (4,), (2, 3, 5)])))
        table.set(compaction_batch_runs=2, file_bytes=1 << 20)
        actions = Actions(table, mode)
        actions.act(data.draw(steps_of(mode)))
        for _ in range(10):
            if compacted(table, "full").version is None:
                break
        else:
            pytest.fail("compaction does not come to an end")
        assert contents(table) == meaning(mode, actions.rows)
        state = table.state()
        assert all(len({one.run for one in state.held_by(partition)}) <= 1 for partition in state.partitions.ids)
        if mode == Latest():
            assert not any(one.file.markers for part in state.partitions.ids for one in state.held_by(part))


def sizes(table: Table) -> list[int]:
    state = table.state()
    return [sum(one.rows for one in state.held_by(partition)) for partition in state.partitions.ids]


def test_a_compaction_reports_the_rows_that_it_wrote(tmp_path):
    table = create(tmp_path, Latest())
    for n in range(3):
        write(table, [row(k, 0, n, None) for k in range(10)])
    report = compacted(table, "full")
    assert (report.jobs, report.files_in, report.rows, report.failed) == (1, 3, 10, ())
    assert sizes(table) == [10]


def test_deletes_go_with_the_oldest_files_and_stay_otherwise(tmp_path):
    table = create(tmp_path, Latest())
    table.set(compaction_batch_runs=2)
    write(table, [row(k, 0, k, None) for k in range(50)])
    write(table, [row(1, 0, None, None, RowKind.DELETE)])
    write(table, [row(2, 0, None, None, RowKind.DELETE)])

    compacted(table, "basic")
    state = table.state()
    assert [(file.rows, file.markers) for file in state.files_of(state.partitions.ids[0])] == [(50, 0), (2, 2)]
    compacted(table, "full")
    assert sizes(table) == [48]
    assert contents(table) == [row(k, 0, k, None) for k in range(50) if k not in (1, 2)]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_partition_of_which_all_rows_were_deleted_has_no_file(tmp_path, strategy):
    table = create(tmp_path, Latest(), 5)
    write(table, [row(1, 0, None, None, RowKind.DELETE), row(7, 0, 1, "x")])
    compacted(table, strategy)
    assert sizes(table) == [0, 1]
    assert compacted(table, strategy).jobs == 0


def test_a_field_renamed_after_the_plan_is_still_aggregated(tmp_path):
    """An aggregate names fields, so the mode and the schema of a task are of one version."""
    mode = Aggregate({"a": "sum", "b": "last"})
    table = create(tmp_path, mode)
    for n in range(3):
        write(table, [row(1, 0, n, "x")])
    prepared = prepare(table, "full")
    table.alter(RenameField("a", "total"))
    compact(table, prepared, partial(run_tasks, table), cores=1)
    [file] = table.state().files_of(table.state().partitions.ids[0])
    assert file.rows == 1
    assert table.scan().read_all().to_pylist() == [{"k": 1, "s": 0, "total": 3, "b": "x"}]


def test_a_merge_that_has_more_rows_than_its_inputs_is_refused(tmp_path):
    """A task that doubles rows would otherwise be committed."""
    table = create(tmp_path, Latest())
    for n in range(2):
        write(table, [row(k, 0, n, None) for k in range(3)])

    def doubled(tasks):
        return [tuple(new for _ in range(3) for files in run_tasks(table, tasks) for new in files)]

    report = compacted(table, "full", doubled)
    assert [one.error.code for one in report.failed] == [Code.ROW_COUNT_MISMATCH]
    assert not table.state().jobs
