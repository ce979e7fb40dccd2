"""Slices of a merge: they tile its keys, and reading one reads few pages of another."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.files.parquet.file_writer import write_run
from lakebed.files.sorting import merge
from lakebed.files.sorting.merge import slices_of, tiles
from lakebed.files.sorting.merge_inputs import open_input, spans
from lakebed.files.sorting.slice_sizes import slice_bytes
from lakebed.model.keys import ALL_KEYS, EncodedRange, successor
from tests.tables.sorting.tables import small_layout

SCHEMA = Schema({"tenant": "string", "day": "int32", "id": "int64"}, values={"n": "int64"})
CODEC = SCHEMA.codec
KEYS = st.tuples(st.sampled_from(["", "a", "a\x00", "b", "\U0010ffff"]), st.integers(-1, 1), st.integers(-5, 5))


def drawn(found: list[EncodedRange]) -> list[str]:
    """Each tile by the values at which it begins."""
    values = [CODEC.decode_bound(tile.min) for tile in found]
    return [" ".join([*map(str, bound.values), *["after"] * bound.after]) for bound in values]


def cut_at(*keys: tuple[object, ...], within: EncodedRange = ALL_KEYS) -> list[str]:
    return drawn(tiles(CODEC, within, [CODEC.encode(key) for key in keys]))


def test_a_cut_moves_back_to_where_its_first_value_begins():
    assert cut_at(("a", 1, 7), ("b", 1, 7), ("c", 1, 7)) == ["", "a", "b", "c"]


def test_values_that_fill_several_parts_are_cut_where_they_begin_and_end():
    assert cut_at(("b", 1, 7), ("b", 1, 8), ("b", 1, 9), ("c", 1, 7)) == [
        "",
        "b",
        "b 1",
        "b 1 8",
        "b 1 9",
        "b 2",
        "b after",
        "c",
    ]


def test_the_bounds_of_the_range_stay():
    within = EncodedRange(CODEC.encode(("a", 1, 7)), CODEC.encode(("c", 1, 7)))
    assert cut_at(("b", 1, 7), within=within) == ["a 1 7", "a 2", "a after", "b", "c", "c 1"]
    assert tiles(CODEC, within, [])[-1].max == within.max


@given(st.sets(KEYS, max_size=8), st.sets(KEYS, max_size=2), st.booleans())
def test_tiles_tile_the_range_and_are_at_most_two_parts_long(keys, bounds, begins):
    ends = sorted(map(CODEC.encode, bounds))
    low, high = (b"", None) if not ends else (ends[0], None) if begins else (b"", ends[-1])
    within = EncodedRange(*ends) if len(ends) == 2 else EncodedRange(low, high)
    cuts = sorted(key for key in map(CODEC.encode, keys) if within.contains(key) and key > within.min)

    found = tiles(CODEC, within, cuts)

    assert [found[0].min, found[-1].max] == [within.min, within.max]
    assert all(a.max == b.min for a, b in pairwise(found))
    assert not any(tile.empty for tile in found)
    for tile in found:
        assert sum(tile.min < cut and (tile.max is None or cut < tile.max) for cut in cuts) <= 1
        # In one field after those in which all keys agree, each bound is a value or has none.
        agreed = b""
        for count in range(len(SCHEMA.row_key)):
            start = type(CODEC)(CODEC.fields[: count + 1]).beginning(tile.min)
            end = successor(start)
            if start in ("", agreed) or tile.max is None or end is None or tile.max > end:
                break
            agreed = start
        count = len(CODEC.decode_bound(agreed).values)
        assert len(CODEC.decode_bound(tile.min).values) <= count + 1, drawn(found)
        if tile.max is not None and tile.max.startswith(agreed):
            assert len(CODEC.decode_bound(tile.max).values) <= count + 1, drawn(found)


@pytest.mark.parametrize("bounds", [None, (b"t0001", b"t0003")])
def test_inputs_of_at_most_half_the_memory_limit_are_one_slice(tmp_path, bounds):
    layout = small_layout(SCHEMA, file_bytes=1 << 30, page_rows=50, page_bytes=1 << 16, row_group_rows=500)
    rows = [{"tenant": f"t{n % 5000 // 1000:04d}", "day": 1, "id": n, "n": n * 7919 % 104_729} for n in range(5000)]
    rows.sort(key=lambda row: (row["tenant"], row["id"]))
    paths = []
    for part in range(2):
        batch = pa.RecordBatch.from_pylist(rows[part::2], SCHEMA.arrow)
        [file] = write_run([batch], layout, tmp_path, rows_estimate=batch.num_rows)
        paths.append(file.path)
    inputs = [open_input(path, SCHEMA) for path in paths]
    keys = None if bounds is None else EncodedRange(*bounds)
    size_bytes = sum(span.file_bytes for span in spans(inputs, SCHEMA, keys))

    [condition] = slices_of(inputs, SCHEMA, [keys], 2 * size_bytes, 1)
    assert (condition is None) == (keys is None)
    assert len(slices_of(inputs, SCHEMA, [keys], 2 * size_bytes - 1, 1)) > 4


@given(st.integers(0, 2**50), st.integers(1, 2**40))
def test_a_merge_reads_at_most_half_of_the_memory_limit_at_once(size_bytes, limit_bytes):
    at_once = slice_bytes(size_bytes, limit_bytes)
    assert at_once <= max(1, limit_bytes // 2)
    assert at_once == size_bytes or (size_bytes > limit_bytes // 2 and at_once > 0)


@pytest.mark.parametrize("tenants", [1, 2, 3, 4000])
@pytest.mark.parametrize("known", [False, True])
def test_slices_read_few_pages_twice_whatever_the_first_field_holds(tmp_path, monkeypatch, tenants, known):
    """Keys that agree in their first fields: pages have no statistics by which those alone could exclude them."""
    layout = small_layout(SCHEMA, file_bytes=1 << 30, page_rows=50, page_bytes=1 << 16, row_group_rows=100_000)
    every = sorted((f"t{n * tenants // 4000:04d}", 5, n) for n in range(4000))
    paths = []
    for part in range(2):
        rows = [{"tenant": t, "day": d, "id": n, "n": n} for t, d, n in every[part::2]]
        [file] = write_run([pa.RecordBatch.from_pylist(rows, SCHEMA.arrow)], layout, tmp_path, rows_estimate=len(rows))
        paths.append(file.path)
    cuts = [b"", *(CODEC.encode(every[n]) for n in range(499, 4000, 500)), None]
    plans = []
    executed = merge._executed
    monkeypatch.setattr(
        merge, "_executed", lambda engine, plan, *rest: plans.append(plan) or executed(engine, plan, *rest)
    )

    [merged] = merge.merge_runs(
        paths,
        layout,
        tmp_path,
        key_range=None,
        memory_limit_bytes=1 << 30 if known else 20_000,
        slices=[EncodedRange(low, high) for low, high in pairwise(cuts)] if known else (),
    )

    assert merged.rows == 4000
    assert len(plans) > 2
    scanned = [
        metrics.output_rows for plan in plans for name, metrics in plan.collect_metrics() if "DataSource" in name
    ]
    assert sum(scanned) <= 4000 + len(plans) * 2 * 50
