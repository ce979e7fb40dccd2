"""Sorting in chunks of a known size, and the pieces of a bulk import."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import Schema
from lakebed.files.parquet.file_writer import gather, write_run
from lakebed.files.sorting import sort
from lakebed.files.sorting.sort import PIECE_BYTES_MAX, encode_piece, sort_chunks, sort_runs
from lakebed.model.merge_modes import Latest
from tests.tables.sorting.tables import batch_of, bench_rows, bench_schema, piece_rows, small_layout, sort_keys

SHUFFLED = [n * 7919 % 20_011 for n in range(20_011)]


@pytest.mark.parametrize("small_rows", [0, 10**9], ids=["by DataFusion", "by Arrow"])
def test_both_sorts_order_keys_as_their_encodings(small_rows):
    """Small chunks and large ones are sorted by different engines, which must agree."""
    schema = Schema({"s": "string", "b": "binary"}, {"d": "date32"})
    texts = ["", "a", "a\x00", "a\x00b", "ab", "é", "\uffff", "\U0001f600"]
    rows = batch_of(
        schema, [(t, b, d) for d in (5, -5) for b in (b"\xff", b"\x00", b"", b"\x7f\x80") for t in texts[::-1]]
    )

    [chunk] = sort_chunks([rows], schema, memory_limit_bytes=64 << 20, small_rows=small_rows)

    assert sort_keys(schema, chunk) == sorted(sort_keys(schema, rows))


def test_many_rows_come_out_sorted(tmp_path):
    """More rows than the small sort takes, in one chunk."""
    schema = Schema({"k": "int64"})
    rows = pa.RecordBatch.from_arrays([pa.array(n * 7919 % 150_001 for n in range(150_001))], schema=schema.arrow)
    layout = small_layout(schema, file_bytes=1 << 30, row_group_rows=100_000, page_rows=4000)

    [file] = sort_runs([rows], layout, tmp_path, memory_limit_bytes=512 << 20)

    assert pq.read_table(file.path)["k"].to_pylist() == list(range(150_001))


def test_chunks_keep_to_a_third_of_the_limit_and_hold_every_row():
    """However large or small the batches are that come in."""
    batches = [bench_rows(SHUFFLED), *(bench_rows([n]) for n in range(50)), bench_rows([])]

    chunks = list(sort_chunks(batches, bench_schema(), memory_limit_bytes=300_000))

    assert max(chunk.nbytes for chunk in chunks) <= 110_000
    assert sum(chunk.num_rows for chunk in chunks) == 20_061
    assert all(sort_keys(bench_schema(), c) == sorted(sort_keys(bench_schema(), c)) for c in chunks)


@pytest.mark.parametrize(("key", "spilled"), [("int64", False), ("float64", True)])
def test_a_chunk_that_numpy_sorts_takes_half_of_the_limit(tmp_path, key, spilled):
    """Others a third. Rows of 16 bytes: 320,000 bytes, of a limit of 700,000."""
    spills = set()
    schema = Schema({"k": key}, values={"v": "int64"})
    layout = small_layout(schema, file_bytes=1 << 30, row_group_rows=7_000)

    def batches():
        for at in range(0, 20_000, 500):
            yield batch_of(schema, [(n * 7919 % 20_000, n) for n in range(at, at + 500)])
            spills.update(tmp_path.rglob("*.arrow"))

    [file] = sort_runs(batches(), layout, tmp_path, memory_limit_bytes=700_000, small_rows=1_000)

    assert bool(spills) == spilled
    found = pq.read_table(file.path)
    assert found["k"].to_pylist() == list(range(20_000))
    assert [v * 7919 % 20_000 for v in found["v"].to_pylist()] == list(range(20_000))


@pytest.mark.parametrize("kind", ["int8", "int64", "date32", "timestamp[us]"])
@pytest.mark.parametrize("apart", [1, 2**56 - 1, 2**56, 2**63 - 1], ids=["near", "just near", "just far", "far"])
def test_integer_keys_of_any_range_are_sorted_and_equal_ones_keep_their_order(kind, apart):
    """Keys that are near are sorted as one number with their positions, here of 7 bits; others are not."""
    schema = Schema({"k": kind}, values={"v": "int64"})
    width = schema.row_key[0].key_type.width
    lowest, highest = -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1
    keys = {lowest, lowest + 1, lowest + 2, min(lowest + apart, highest)}
    given = [key for key in sorted(keys, reverse=True) for _ in range(20)]
    column = pa.array(given, f"int{8 * width}").view(schema.row_key[0].type)
    rows = pa.RecordBatch.from_arrays([column, pa.array(range(len(given)))], schema=schema.arrow)

    [kept] = sort_chunks([rows], schema, memory_limit_bytes=1 << 30, small_rows=0)
    [latest] = sort_chunks([rows], schema, memory_limit_bytes=1 << 30, mode=Latest(), small_rows=0)

    assert kept["k"].combine_chunks().view(f"int{8 * width}").to_pylist() == sorted(given)
    assert [given[place] for place in kept["v"].to_pylist()] == sorted(given)
    assert [given[place] for place in latest["v"].to_pylist()] == sorted(keys)
    assert all((place + 1) % 20 == 0 for place in latest["v"].to_pylist())


def test_what_a_large_chunk_was_made_of_goes_before_it_is_written(monkeypatch, tmp_path):
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
    sort_runs(batches(), small_layout(schema), tmp_path, memory_limit_bytes=700_000, small_rows=1_000)

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


def test_a_sort_that_fails_in_its_thread_says_so_and_leaves_nothing(monkeypatch, tmp_path):
    def failing(*_, **__):
        yield bench_rows([1])
        raise MemoryError("no more")

    monkeypatch.setattr(sort, "_sorted_by_engine", failing)
    with pytest.raises(MemoryError, match="no more"):
        sort_runs(
            [bench_rows(SHUFFLED)],
            small_layout(bench_schema()),
            tmp_path,
            memory_limit_bytes=64 << 20,
            small_rows=1_000,
        )

    assert list(tmp_path.iterdir()) == []


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


def test_parts_of_a_piece_stay_below_their_limit_though_rows_are_uneven():
    """Nearly all bytes in the last rows, and such that do not compress."""
    schema = Schema({"k": "int64"}, values={"v": "binary"})
    random = np.random.default_rng(1)
    noise = pa.array([random.bytes(8_000_000) for _ in range(12)])
    big = pa.RecordBatch.from_arrays([pa.array(range(1000, 1012)), noise], schema=schema.arrow)
    table = pa.Table.from_batches([batch_of(schema, [(n, b"") for n in range(1000)]), big])

    parts = list(encode_piece(table))

    assert {len(part) for part in parts[:-1]} == {PIECE_BYTES_MAX}
    assert 0 < len(parts[-1]) <= PIECE_BYTES_MAX
    assert piece_rows(b"".join(parts)).equals(table)
    assert list(encode_piece(table.slice(0, 0))) == []
