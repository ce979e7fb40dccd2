"""What the kernels promise of any rows of any schema: sorted, whole, ranks exact."""

from __future__ import annotations

import itertools
import tempfile
from bisect import bisect_left
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.files.sorting.merge import merge_runs, merge_stream
from lakebed.files.sorting.merge_inputs import write_spill
from lakebed.files.sorting.sort import sort_runs
from lakebed.model.keys import EncodedRange, shortest_separator
from tests.tables.sorting.tables import Case, batch_of, cases, keys_of, multiset, sort_keys

TINY = 1_500
"""So small a limit makes chunks of a few rows, several spills, and a slice for every few of them."""


def read(files, schema):
    # Parquet has no seconds: what was written as such comes back as milliseconds.
    return pa.concat_tables([pq.read_table(f.path).cast(schema.arrow) for f in files]) if files else None


def cuts_for(draw, case: Case) -> list[bytes]:
    """Keys that are there, and separators between them, as partition boundaries are."""
    keys = sorted(set(keys_of(case.schema, batch_of(case.schema, case.rows))))
    between = [shortest_separator(a, b) for a, b in itertools.pairwise(keys)]
    chosen = draw(st.lists(st.sampled_from(keys + between), unique=True, max_size=6)) if keys else []
    return sorted(chosen)


@settings(max_examples=settings.default.max_examples // 2)
@given(cases(), st.data())
def test_sorting_then_merging_gives_the_sorted_rows(case, data):
    """Two halves sorted, spilling, and merged in slices: every row once, in order, files that at most touch."""
    half = data.draw(st.integers(0, len(case.rows)))
    cuts = cuts_for(data.draw, case)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = [Case(case.schema, rows, case.layout) for rows in (case.rows[:half], case.rows[half:])]
        runs = [sort_runs(p.batches(5), p.layout, folder, memory_limit_bytes=TINY, cuts=cuts) for p in parts]
        inputs = [f.path for run in runs for f in run]
        merged = merge_runs(inputs, case.layout, folder, key_range=None, memory_limit_bytes=TINY, cuts=cuts)

        for files, part in [*zip(runs, parts, strict=True), (merged, case)]:
            table = read(files, case.schema)
            assert (table is None) == (not part.rows)
            if table is None:
                continue
            assert sort_keys(case.schema, table) == part.sorted_keys()
            assert multiset(table) == multiset(batch_of(case.schema, part.rows))
            assert all(a.max_key <= b.min_key for a, b in itertools.pairwise(files))
            for file in files:
                check_file(file, case, cuts)
        assert {path for path in folder.iterdir() if path not in {f.path for f in merged}} == set(inputs)


def check_file(file, case, cuts):
    """Bounds, counts and ranks, against the keys read back."""
    keys = keys_of(case.schema, read([file], case.schema))
    assert (file.rows, file.min_key, file.max_key) == (len(keys), keys[0], keys[-1])
    summary = file.summary
    assert (summary.rows, summary.max_key, summary.keys[0]) == (len(keys), keys[-1], keys[0])
    assert [bisect_left(keys, key) for key in summary.keys] == list(summary.ranks)
    inside = [cut for cut in cuts if keys[0] < cut <= keys[-1]]
    assert set(inside) <= set(summary.keys)
    assert len(set(summary.keys)) == len(summary.keys)


@settings(max_examples=settings.default.max_examples // 2)
@given(cases(), st.data())
def test_a_key_range_cuts_a_merge_exactly_as_encoded_keys_compare(case, data):
    """Bounds of any kind, over Parquet and over Arrow inputs: the engine and the codec agree on every row."""
    bounds = cuts_for(data.draw, case)
    low = data.draw(st.sampled_from([b"", *bounds]))
    high = data.draw(st.sampled_from([None, *bounds]))
    key_range = EncodedRange(low, high)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = sort_runs(case.batches(7), case.layout, folder, memory_limit_bytes=1 << 20)
        rows = read(files, case.schema)
        arrow = [] if rows is None else [write_spill(rows.to_batches(), rows.schema, folder / "in order")]
        expected = [
            key for key in sorted(keys_of(case.schema, batch_of(case.schema, case.rows))) if key_range.contains(key)
        ]
        for inputs in ([f.path for f in files], arrow):
            batches = merge_stream(inputs, case.schema, key_range=key_range, memory_limit_bytes=TINY)
            assert [key for batch in batches for key in keys_of(case.schema, batch)] == expected
