"""Merging files by a merge mode: any grouping of neighbours, through levels and slices, against a dictionary."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import Error
from lakebed.files.sorting.merge import MergeLimits, check_plan, merge_runs, merge_stream
from lakebed.files.sorting.merge_inputs import write_spill
from lakebed.files.sorting.sort import sort_runs
from lakebed.model.keys import KeyRange
from lakebed.model.merge_modes import First, Latest, MergeMode
from lakebed.model.row_kinds import KIND, RowKind, merge_schema
from tests.tables.sorting.merge_rows import MODES, SCHEMA, WHOLE, Row, as_batches, layout_for, meaning, row, runs_of
from tests.tables.sorting.tables import small_layout

PLENTY = 64 << 20
TINY = 1
"""So small a limit makes a level of every two inputs, and a slice of every few rows."""


FEW = MergeLimits(fan_in_min=2, slice_rows=3)
"""Few inputs in a plan."""


def write(folder: Path, mode: MergeMode, rows: list[Row], limit: int = PLENTY) -> list[Path]:
    run = sort_runs(as_batches(rows, 5), layout_for(rows), folder, memory_limit_bytes=limit, mode=mode)
    assert sum(file.markers for file in run) == sum(kind > 0 for file in run for kind in kinds_in(file.path))
    return [file.path for file in run]


def kinds_in(path: Path) -> list[int]:
    table = pq.read_table(path)
    return [kind or 0 for kind in table[KIND].to_pylist()] if KIND in table.column_names else [0] * table.num_rows


def into_arrow(path: Path, mode: MergeMode) -> Path:
    """The same rows as an Arrow file, as a level of a merge makes."""
    rows = pq.read_table(path)
    schema = merge_schema(mode, SCHEMA, hidden=KIND in rows.column_names).arrow
    return write_spill(rows.cast(schema).to_batches(), schema, path.with_suffix(".arrow"))


def read(paths: list[Path], mode: MergeMode, **options: Any) -> list[Row]:
    options = {"key_range": None, "memory_limit_bytes": PLENTY, "limits": FEW, **options}
    found = list(merge_stream(paths, SCHEMA, mode=mode, **options))
    return [one for batch in found for one in batch.to_pylist()]


@pytest.mark.parametrize("mode", MODES, ids=str)
@settings(max_examples=settings.default.max_examples // 8)
@given(data=st.data())
def test_neighbours_merged_in_any_groups_give_the_rows_that_were_written(mode, data):
    runs = data.draw(runs_of(mode))
    wanted = meaning(mode, [one for rows in runs for one in rows])
    limit = st.sampled_from([TINY, PLENTY])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = [path for rows in runs for path in write(folder, mode, rows, data.draw(limit))]
        inputs = [into_arrow(path, mode) if data.draw(st.booleans()) else path for path in inputs]
        assert read(inputs, mode, memory_limit_bytes=data.draw(limit), scratch=folder) == wanted
        while len(inputs) > 1 and data.draw(st.booleans()):
            low = data.draw(st.integers(0, len(inputs) - 1))
            high = data.draw(st.integers(low + 1, len(inputs)))
            complete = low == 0 and mode != Latest(by="sort_key") and data.draw(st.booleans())
            merged = merge_runs(
                inputs[low:high],
                small_layout(SCHEMA, file_bytes=1 << 30),
                folder,
                key_range=None,
                memory_limit_bytes=data.draw(limit),
                mode=mode,
                complete=complete,
                limits=FEW,
            )
            for file in merged:
                assert file.markers == sum(kind > 0 for kind in kinds_in(file.path))
                assert not complete or pq.read_schema(file.path).names == list(SCHEMA.names)
            inputs[low:high] = [file.path for file in merged]
        assert read(inputs, mode, memory_limit_bytes=data.draw(limit), scratch=folder) == wanted


@pytest.mark.parametrize("mode", MODES, ids=str)
@settings(max_examples=settings.default.max_examples // 8)
@given(rows=st.lists(WHOLE, min_size=1, max_size=30))
def test_the_rows_of_one_write_meet_in_their_order(mode, rows, tmp_path_factory):
    for limit in (2_000, PLENTY):
        paths = write(tmp_path_factory.mktemp("run"), mode, rows, limit)
        assert [one for path in paths for one in pq.read_table(path).to_pylist()] == meaning(mode, rows)


def test_progress_counts_the_rows_of_the_inputs(tmp_path):
    paths = [*write(tmp_path, Latest(), [row(1, 0, 1, "x"), row(2, 0, 1, "x")])] * 3
    rows = []

    merge_runs(
        paths,
        small_layout(SCHEMA),
        tmp_path,
        key_range=None,
        memory_limit_bytes=PLENTY,
        progress=rows.append,
        mode=Latest(),
        limits=FEW,
    )

    assert sum(rows) == 6


def test_a_merge_of_which_all_rows_were_deleted_has_no_file(tmp_path):
    paths = [
        *write(tmp_path, Latest(), [row(1, 0, 1, "x")]),
        *write(tmp_path, Latest(), [row(1, 0, None, None, RowKind.DELETE)]),
    ]
    how = {"key_range": None, "memory_limit_bytes": PLENTY, "mode": Latest(), "limits": FEW}

    [kept] = merge_runs(paths, small_layout(SCHEMA), tmp_path, **how)
    assert (kept.rows, kept.markers) == (1, 1)
    assert merge_runs(paths, small_layout(SCHEMA), tmp_path, **how, complete=True) == []


def test_a_plan_that_loses_the_order_of_arrival_is_an_error():
    plan = ["CoalescePartitionsExec", "UnionExec", "DataSourceExec", "DataSourceExec"]

    check_plan(plan)
    with pytest.raises(Error, match="does not merge"):
        check_plan(plan, by_arrival=True)


def test_one_key_in_every_input_comes_out_by_arrival(tmp_path):
    """The engine knows then that all rows have equal keys; it may not take them in any order."""
    paths = [path for n in range(20) for path in write(tmp_path, Latest(), [row(1, 0, n, None), row(2, 0, n, None)])]
    many = replace(FEW, fan_in_min=50)
    keys = SCHEMA.codec.encode_range(KeyRange.prefix(1))

    for _ in range(5):
        assert read(paths, Latest(), key_range=keys, limits=many) == [row(1, 0, 19, None)]
        assert read(paths, First(), key_range=keys, limits=many) == [row(1, 0, 0, None)]


def test_a_level_has_one_row_for_each_key(tmp_path):
    """Else the last level of many inputs would hold all of their rows again."""
    paths = [path for n in range(6) for path in write(tmp_path, Latest(), [row(k, 0, n, None) for k in range(5)])]
    spilled = []

    def seen(_):
        spilled.extend(pa.ipc.open_file(path).read_all().num_rows for path in tmp_path.rglob("*.arrow"))

    [merged] = merge_runs(
        paths,
        small_layout(SCHEMA),
        tmp_path,
        key_range=None,
        memory_limit_bytes=TINY,
        progress=seen,
        mode=Latest(),
        complete=True,
        limits=FEW,
    )

    assert pq.read_table(merged.path).to_pylist() == [row(k, 0, 5, None) for k in range(5)]
    assert spilled
    assert set(spilled) == {5}
