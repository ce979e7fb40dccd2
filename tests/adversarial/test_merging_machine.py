"""Random steps over the public API, on tables of every merge mode, compared with a plain dictionary; and planted bugs.

Each planted bug makes one line of the code wrong. The machine has to find it; otherwise it would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec import structs

from lakebed.files.merging import aggregates, row_merger
from lakebed.files.merging.row_merger import RowMerger
from lakebed.files.sorting import merge, sort
from lakebed.model.row_kinds import KIND, RowKind
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import job_changes
from lakebed.model.state.visibility import unfiltered
from lakebed.read.rows import counting, merged_rows, point_lookup, reader
from lakebed.read.rows.merged_rows import MergeSchemas
from lakebed.upkeep.compaction import plan as compaction_plan
from tests.adversarial.merging_interfaces import Interface, count, get, scan, scan_limit, scan_where
from tests.adversarial.merging_machine import MODES, MergingMachine
from tests.adversarial.merging_oracle import Mode, Oracle
from tests.variants import Planted, Variant, instead, planted

STEPS = 30
EXAMPLES, NIGHTLY = 2, 300
"""Examples of each mode: some 30 steps in all, with three interfaces after each, and all at the end. The nightly run
has 5,000 of each mode, and takes one core 18 minutes."""


def run(machine: type[MergingMachine], examples: int, **how: Any) -> None:
    """Run a machine. Failing examples are shrunk by default."""
    checks = list(HealthCheck)
    wanted = settings(max_examples=examples, stateful_step_count=STEPS, suppress_health_check=checks, **how)
    run_state_machine_as_test(machine, settings=wanted)


@pytest.mark.parametrize("mode", MODES)
def test_every_interface_shows_the_rows_of_a_plain_dictionary(mode):
    class Machine(MergingMachine):
        modes = (mode,)

    run(Machine, NIGHTLY if settings.default.max_examples > 50 else EXAMPLES)
    print(f"{Machine.steps:,} steps")


def test_a_rewrite_leaves_what_a_partial_row_does_not_set():
    """The nightly run found the dictionary wrong: it set nulls even if the rewrite was of other keys."""
    oracle = Oracle("latest")
    row = {"g": "b", "n": 2, "s": 2, "a": 7, "b": None}
    oracle.write([row])
    oracle.write([{"g": "b", "n": 2, "s": 2}], "partial")
    oracle.rewrite(lambda _, values: values)
    assert oracle.rows() == [row]


# -- planted bugs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """A bug: how it is planted, a mode of tables that show it, and the interfaces to use."""

    name: str
    plant: Variant
    mode: Mode = "latest"
    interfaces: Sequence[Interface] = (scan,)
    focused: bool = True


def _deletes_dropped() -> Iterator[Planted]:
    class Wrong(RowMerger):
        def _finished(self, rows: pa.RecordBatch) -> Any:
            if KIND in rows.schema.names:
                kinds = rows.column(KIND).to_pylist()
                rows = rows.filter(pa.array([kind != RowKind.DELETE for kind in kinds], pa.bool_()))
            yield from super()._finished(rows)

    yield Planted(merge, "RowMerger", Wrong)


def _lookups_of_one_file() -> Iterator[Planted]:
    yield Planted(point_lookup, "DECISIVE_FILES", 1)
    yield Planted(point_lookup, "has_whole_row", lambda _: True)


def _partial_made_whole() -> Iterator[Planted]:
    finished = RowMerger._finished

    def wrong(self: RowMerger, rows: pa.RecordBatch) -> Any:
        if KIND in rows.schema.names:
            kinds = [kind if kind == RowKind.DELETE else 0 for kind in rows.column(KIND).to_pylist()]
            rows = rows.set_column(rows.schema.get_field_index(KIND), KIND, pa.array(kinds, pa.int8()))
        return finished(self, rows)

    yield Planted(RowMerger, "_finished", wrong)


def _deletes_shown() -> Iterator[Planted]:
    class Wrong(RowMerger):
        def _finished(self, rows: pa.RecordBatch) -> Any:
            if self._complete and rows.num_rows:
                yield rows.drop_columns(
                    [name for name in rows.schema.names if merged_rows.without_hidden([name]) == ()]
                )
            else:
                yield from super()._finished(rows)

    yield Planted(row_merger, "RowMerger", Wrong)


def _below(**wrong: Callable[[Any], Any]) -> Variant:
    def plant() -> Iterator[Planted]:
        below = MergeSchemas.below

        def changed(self: MergeSchemas, request: Any, files: Any) -> Any:
            right = below(self, request, files)
            needed = () if request.where is None else request.where.columns
            names = tuple(dict.fromkeys((*right.names, *needed)))
            return structs.replace(right, names=names, **{name: of(request) for name, of in wrong.items()})

        yield Planted(MergeSchemas, "below", changed)

    return plant


def _any_files_merged() -> Iterator[Planted]:
    """Make compaction choose files by size alone, as in a table that keeps all rows."""
    yield Planted(compaction_plan, "_due_neighbours", compaction_plan._due)
    yield Planted(job_changes, "_out_of_order", lambda _job, _state: None)


def _arrival_reversed() -> Iterator[Planted]:
    files_of = TableState.files_of
    yield Planted(TableState, "files_of", lambda self, partition: files_of(self, partition)[::-1])


def _sums_of_the_last() -> Iterator[Planted]:
    yield Planted(aggregates, "_COMBINE", {**aggregates._COMBINE, "sum": aggregates._COMBINE["last"]})


BUGS = (
    Bug("a merge of some files drops deletes", _deletes_dropped, "latest by sort key"),
    Bug("a merge of some files makes partial rows whole", _partial_made_whole),
    Bug("deletes are shown", _deletes_shown),
    Bug("the order of arrival is reversed", _arrival_reversed),
    Bug("the order of arrival is reversed, first row", _arrival_reversed, "first"),
    Bug(
        "a predicate is evaluated below the merge",
        _below(where=lambda request: request.where),
        interfaces=(scan_where,),
    ),
    Bug("a limit is applied below the merge", _below(limit=lambda request: request.limit), interfaces=(scan_limit,)),
    Bug("files that are no neighbours are merged", _any_files_merged, "first"),
    Bug(
        "an output is the last file of its partition",
        instead(job_changes, "_in_place", lambda state, _: state),
        "first",
    ),
    Bug("rows of files are counted", instead(counting, "is_merged", lambda _mode, _files: False), interfaces=(count,)),
    Bug("a lookup reads the newest files only", _lookups_of_one_file, interfaces=(get,)),
    Bug(
        "a lookup takes no notice of the filter",
        instead(
            reader,
            "visible_rows",
            lambda state, columns, read: read(unfiltered(state), state.created.project(columns)),
        ),
        interfaces=(get,),
        focused=False,
    ),
    Bug(
        "rows of one write are not merged",
        instead(
            sort,
            "_sorted_rows",
            lambda chunk, schema, _mode, ahead_bytes: sort._in_order(chunk, schema, ahead_bytes),
        ),
    ),
    Bug("a sum is the last value", _sums_of_the_last, "aggregate"),
)


FOUND_SOON = {
    "a predicate is evaluated below the merge",
    "rows of files are counted",
    "the order of arrival is reversed, first row",
    "rows of one write are not merged",
    "a sum is the last value",
}
"""One of each interface and mode. That the others are found, too, is looked at in the soak, where the machine has more
steps."""


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, id=bug.name, marks=[pytest.mark.slow] * (bug.name not in FOUND_SOON)) for bug in BUGS]
)
def test_a_planted_bug_is_found(bug):
    class Machine(MergingMachine):
        modes = (bug.mode,)
        interfaces = bug.interfaces
        focused = bug.focused

    with planted(bug.plant), pytest.raises(AssertionError) as found:
        run(Machine, 400, phases=[Phase.generate], derandomize=True, database=None)
    assert any(note.startswith("interface") for note in found.value.__notes__), found.value
    print(f"{Machine.steps:,} steps: {str(found.value)[:200]}")
