"""Sorting in chunks of a known size."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakebed import Schema
from lakebed.files.parquet.file_writer import gather, write_run
from lakebed.files.sorting import sort
from lakebed.files.sorting.sort import sort_runs
from tests.tables.sorting.tables import bench_rows, bench_schema, small_layout, sort_keys

SHUFFLED = [n * 7919 % 20_011 for n in range(20_011)]


def test_many_rows_come_out_sorted(tmp_path):
    """More rows than the small sort takes, in one chunk."""
    schema = Schema({"k": "int64"})
    rows = pa.RecordBatch.from_arrays([pa.array(n * 7919 % 150_001 for n in range(150_001))], schema=schema.arrow)
    layout = small_layout(schema, file_bytes=1 << 30, row_group_rows=100_000, page_rows=4000)

    [file] = sort_runs([rows], layout, tmp_path, memory_limit_bytes=512 << 20)

    assert pq.read_table(file.path)["k"].to_pylist() == list(range(150_001))


@pytest.mark.parametrize(("key", "limit"), [("int64", 150_000), ("string", 150_000)])
def test_rows_that_do_not_fit_are_sorted_in_chunks(tmp_path, key, limit):
    """Of narrow rows, what the sort needs for each of them counts more than their bytes."""
    spills = set()
    schema = Schema({"k": key}, values={"v": "int64"})
    numbers = pa.array([n * 7919 % 6_000 for n in range(6_000)])
    rows = pa.record_batch(
        [pc.utf8_lpad(numbers.cast(pa.string()), 8, "0") if key == "string" else numbers, numbers], schema=schema.arrow
    )
    layout = small_layout(schema, file_bytes=1 << 30, row_group_rows=7_000)

    def batches():
        for at in range(0, 6_000, 500):
            yield rows.slice(at, 500)
            spills.update(tmp_path.rglob("*.arrow"))

    [file] = sort_runs(batches(), layout, tmp_path, memory_limit_bytes=limit)
    assert len(spills) > 1
    assert pq.read_table(file.path)["v"].to_pylist() == list(range(6_000))

    spills.clear()
    [file] = sort_runs(batches(), layout, tmp_path, memory_limit_bytes=2_000_000)
    assert not spills
    assert pq.read_table(file.path)["v"].to_pylist() == list(range(6_000))


def test_what_a_chunk_was_made_of_goes_before_it_is_written(monkeypatch, tmp_path):
    """One batch's columns are released when the chunk has each in one piece, so that only that one is held."""
    schema = Schema({"k": "int64"}, values={"v": "int64"})
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    held = []

    def batches():
        for at in range(0, 20_000, 500):
            columns = [pa.array(range(at, at + 500), pa.int64(), memory_pool=pool) for _ in range(2)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema.arrow)

    def written(ordered, *given, **more):
        def seen():
            for batch in ordered:
                held.append(pool.bytes_allocated())
                yield batch

        return write_run(seen(), *given, **more)

    monkeypatch.setattr(sort, "write_run", written)
    sort_runs(batches(), small_layout(schema), tmp_path, memory_limit_bytes=4_000_000)

    assert held
    # The generator of the batches still has the columns of the last one.
    assert max(held) <= 2 * 500 * 8 + 1_024


def test_batches_are_made_ahead_by_a_thread_that_ends_with_them():
    made = []

    def batches():
        for n in range(100):
            made.append(n)
            yield bench_rows([n])

    ahead = sort._made_ahead(batches(), 3)
    assert sort_keys(bench_schema(), pa.Table.from_batches([next(ahead)])) == sort_keys(bench_schema(), bench_rows([0]))
    ahead.close()

    assert len(made) <= 4
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakebed-sort")]


def test_a_sort_that_fails_in_its_thread_says_so_and_leaves_nothing():
    def failing():
        yield bench_rows([1])
        raise MemoryError("no more")

    ahead = sort._made_ahead(failing(), 3)
    with pytest.raises(MemoryError, match="no more"):
        list(ahead)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakebed-sort")]


def test_spills_are_gone_after_a_sort_in_parts(tmp_path):
    files = sort_runs(
        [bench_rows(SHUFFLED)], small_layout(bench_schema(), file_bytes=1 << 30, row_group_rows=5000), tmp_path,
        memory_limit_bytes=300_000,
    )  # fmt: skip

    assert list(tmp_path.iterdir()) == [file.path for file in files]
    assert sum(file.rows for file in files) == 20_011


def test_an_input_that_breaks_off_leaves_nothing(tmp_path):
    def batches():
        yield bench_rows(SHUFFLED)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sort_runs(batches(), small_layout(bench_schema()), tmp_path, memory_limit_bytes=300_000)

    assert list(tmp_path.iterdir()) == []


def test_gathering_never_cuts_a_row_and_keeps_their_order():
    rows = [bench_rows(range(n, n + 3)) for n in range(0, 30, 3)]

    tables = list(gather(rows, 7, 10**9))
    assert [table.num_rows for table in tables] == [7, 7, 7, 7, 2]
    assert pa.concat_tables(tables).to_pylist() == pa.Table.from_batches(rows).to_pylist()
    assert [table.num_rows for table in gather(rows, 10**9, 1)] == [1] * 30
