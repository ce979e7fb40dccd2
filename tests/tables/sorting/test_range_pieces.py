"""Pieces of ranges in files become one run, whatever the sample and the memory, against Python's own sort."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.files.parquet.layout import ONE_FILE_BYTES
from lakebed.files.parquet.sizes import gather
from lakebed.files.sorting.range_pieces import (
    FileBytes,
    RangePieces,
    RangeSort,
    read_pieces,
    write_pieces,
    write_ranges,
)
from lakebed.files.sorting.ranges import KeyRanges, divide
from lakebed.model.keys import KeyCodec
from lakebed.model.merge_modes import KEEP_ALL, Aggregate, Latest
from tests.soaked import each_once
from tests.tables.sorting.merge_rows import MODES, SCHEMA, WHOLE, as_batches, meaning, row
from tests.tables.sorting.tables import cases, multiset, small_layout, sort_keys
from tests.tables.sorting.test_properties import check_file, cuts_for, read

TINY = 3_000
"""So small a limit that a range of some ten rows is divided again."""

PLENTY = 64 << 20


def parts_of(folder, batches, ranges, chunk_bytes=500, compression="lz4"):
    """Pieces of chunks in the order of arrival, one after another in a file that has other bytes besides."""
    parts = []
    path = folder / "pieces"
    with pa.OSFile(str(path), "wb") as sink:
        for chunk in gather(batches, 2**31 - 1, chunk_bytes):
            sink.write(b"other")
            begin = sink.tell()
            write_pieces([*divide(chunk, ranges)], sink, compression=compression)
            parts.append(FileBytes(path, begin, sink.tell() - begin))
    return parts


@settings(max_examples=settings.default.max_examples)
@given(cases(), st.data())
def test_pieces_become_one_run(case, data):
    cuts = cuts_for(data.draw, case)
    ranges = KeyRanges(case.schema.row_key, tuple(cuts_for(data.draw, case)))
    limit = data.draw(st.sampled_from([TINY, PLENTY]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = parts_of(folder, case.batches(5), ranges, compression=data.draw(st.sampled_from(["lz4", None])))
        run = write_ranges(parts, ranges, case.layout, folder, memory_limit_bytes=limit, cuts=cuts)
        assert {path for path in folder.iterdir() if path not in {file.path for file in run}} == {folder / "pieces"}
        table = read(run, case.schema)
        assert (table is None) == (not case.rows)
        if table is None:
            return
        assert sort_keys(case.schema, table) == case.sorted_keys()
        assert multiset(table) == multiset(pa.Table.from_batches(case.batches(99)))
        assert all(a.max_key <= b.min_key for a, b in itertools.pairwise(run))
        for file in run:
            check_file(file, case, cuts)


@pytest.mark.parametrize("mode", MODES, ids=str)
@settings(max_examples=settings.default.max_examples // 4)
@given(rows=st.lists(WHOLE, max_size=60), data=st.data())
def test_rows_are_merged_in_the_order_of_files_and_rows(mode, rows, data):
    bounds = data.draw(st.lists(st.integers(0, 8), unique=True, max_size=3))
    ranges = KeyRanges(SCHEMA.row_key, tuple(SCHEMA.codec.encode((bound,)) for bound in sorted(bounds)))
    layout = small_layout(SCHEMA, file_bytes=ONE_FILE_BYTES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batches = [batch.cast(SCHEMA.arrow) for batch in as_batches(rows, 5)]
        parts = parts_of(folder, batches, ranges)
        limit = data.draw(st.sampled_from([TINY, PLENTY]))
        run = write_ranges(parts, ranges, layout, folder, memory_limit_bytes=limit, mode=mode)
        assert [one for file in run for one in pq.read_table(file.path).to_pylist()] == meaning(mode, rows)


ROWS = 480
KINDS = {
    "one key in all rows": lambda n: ("same", 0),
    "one row key in all rows": lambda n: ("same", n * 7919 % ROWS),
    "half of the keys are below all cuts": lambda n: (f"{'az'[n % 2]}{n * 7919 % ROWS:04d}", 0),
    "a key with a third of the rows": lambda n: ("same" if n % 3 else f"{n * 7919 % ROWS:04d}", 0),
    "sorted": lambda n: (f"{n:04d}", 0),
    "sampled rows alone are low": lambda n: ("a" if n % 16 == 8 else f"b{n * 7919 % ROWS:04d}", 0),
}


@each_once(str, kind=KINDS, mode=[KEEP_ALL, Latest(), Aggregate({"a": "sum", "b": "last"})])
def test_a_range_that_the_sample_misjudged_is_sorted_in_the_memory_of_the_limit(kind, mode, tmp_path):
    """A twentieth of the rows fit, and a sixth of that is held."""
    schema = Schema({"k": "string"}, {"s": "int64"}, {"a": "int64", "b": "string"})
    keys = [KINDS[kind](n) for n in range(ROWS)]
    columns = zip(*((*key, n, "x") for n, key in enumerate(keys)), strict=True)
    batch = pa.record_batch(dict(zip(schema.names, map(list, columns), strict=True)), schema=schema.arrow)
    ranges = KeyRanges(schema.row_key, (schema.codec.encode(("y",)), schema.codec.encode(("z9",))))
    layout = small_layout(schema, file_bytes=ONE_FILE_BYTES)
    limit = batch.nbytes // 20

    parts = parts_of(tmp_path, batch_slices(batch), ranges, limit // 6)
    run = write_ranges(parts, ranges, layout, tmp_path, memory_limit_bytes=limit, mode=mode)

    codec = KeyCodec((*schema.row_key, *schema.sort_key))
    order = sorted(range(ROWS), key=lambda n: codec.encode(keys[n]))
    found = [one["a"] for file in run for one in pq.read_table(file.path).to_pylist()]
    if mode.keeps_all:
        assert [codec.encode(keys[n]) for n in found] == [codec.encode(keys[n]) for n in order]
        assert sorted(found) == list(range(ROWS))
    else:
        rows = [{"k": k, "s": s, "a": n, "b": "x"} for n, (k, s) in enumerate(keys)]
        assert found == [one["a"] for one in meaning(mode, rows)]

    # A batch is a whole range here, or rows of one key.
    batches = [*RangeSort(schema, tmp_path, rows_max=2000, bytes_max=limit // 6).ordered(RangePieces(parts), ranges)]
    assert max(batch.nbytes for batch in batches) <= limit // 6
    assert [key for batch in batches for key in sort_keys(schema, batch)] == [codec.encode(keys[n]) for n in order]


def test_rows_of_few_bytes_are_bounded_by_their_number(tmp_path):
    """The integers that they are sorted by take more than they do."""
    schema = Schema({"k": "int64"})
    keys = [n * 7919 % 300 if n % 3 else 77 for n in range(1000)]
    batch = pa.record_batch({"k": keys}, schema=schema.arrow)
    ranges = KeyRanges(schema.row_key)
    parts = parts_of(tmp_path, batch_slices(batch), ranges)
    found = [*RangeSort(schema, tmp_path, rows_max=40, bytes_max=2**30).ordered(RangePieces(parts), ranges)]
    assert [key for batch in found for key in batch.column("k").to_pylist()] == sorted(keys)
    assert max(batch.num_rows for batch in found) <= 40


def batch_slices(batch):
    return [batch.slice(at, 50) for at in range(0, batch.num_rows, 50)]


def test_a_part_of_a_file_says_which_ranges_it_has(tmp_path):
    ranges = KeyRanges(SCHEMA.row_key, (SCHEMA.codec.encode((3,)),))
    batches = as_batches([row(k, 0, k, "x") for k in (5, 1, 4)], 9)
    (part,) = parts_of(tmp_path, batches, ranges)
    found = RangePieces([part])
    assert found.rows == 3
    pieces = [(number, [batch.column("k").to_pylist() for batch in read_pieces(some)]) for number, some in found]
    assert pieces == [(0, [[1]]), (1, [[5, 4]])]
