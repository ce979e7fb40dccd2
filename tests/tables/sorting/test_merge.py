"""Merging: odd inputs, many inputs, damaged inputs, and a way out at any time."""

from __future__ import annotations

import random
import signal
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import Schema
from lakebed.engine.predicate import check_where
from lakebed.errors import DamagedError, Error, SchemaMismatchError, StorageError, UsageError
from lakebed.files.parquet.file_writer import write_run
from lakebed.files.sorting import merge
from lakebed.files.sorting.merge import MergeLimits, check_plan, merge_runs, merge_stream, slices_of
from lakebed.files.sorting.merge_inputs import open_input, sample, spans, write_spill
from lakebed.files.sorting.sort import sort_runs
from lakebed.model.keys import ALL_KEYS, EncodedRange
from tests.tables.sorting.tables import batch_of, bench_rows, bench_schema, small_layout
from tests.variants import Planted, planted

SCHEMA = bench_schema()
LAYOUT = small_layout(SCHEMA, file_bytes=1 << 30, page_rows=100, page_bytes=1 << 16, row_group_rows=500)
PLENTY = 64 << 20


@pytest.fixture
def write(tmp_path):
    def write(numbers, rows=bench_rows):
        (tmp_path / "inputs").mkdir(exist_ok=True)
        [file] = write_run([rows(numbers)], LAYOUT, tmp_path / "inputs", rows_estimate=len(numbers))
        return file.path

    return write


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def numbers_in(batches):
    return [int(key.as_py()[5:]) for batch in batches for key in batch.column("key")]


def stream(merge_inputs, **changes):
    arguments = {"key_range": None, "memory_limit_bytes": PLENTY, **changes}
    return numbers_in(merge_stream(merge_inputs, SCHEMA, **arguments))


def test_inputs_that_do_not_overlap_come_out_in_order(write):
    paths = [write(range(start, start + 1000)) for start in (3000, 0, 2000, 1000)]

    assert stream(paths) == list(range(4000))


def wide(numbers):
    """Rows of more than ``WIDE_ROW_BYTES``."""
    rows = bench_rows(numbers)
    return rows.set_column(3, "value", pa.array([random.Random(n).randbytes(9_000).hex() for n in numbers]))


@pytest.mark.parametrize("begin", [0, 75])
def test_inputs_with_wide_rows_are_merged_alike(write, tmp_path, begin):
    """The engine reads them from Arrow files."""
    paths = [write(range(start, 200, 3), wide) for start in (2, 0, 1)]
    low = SCHEMA.codec.encode([bench_rows([begin])["key"][0].as_py()])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    merged = merge_stream(paths, SCHEMA, key_range=EncodedRange(low, None), memory_limit_bytes=PLENTY, scratch=scratch)

    found = [next(merged)]
    assert len(list(scratch.rglob("*.arrow"))) == 3
    assert numbers_in([*found, *merged]) == list(range(begin, 200))


def test_a_damaged_input_with_wide_rows_is_named(write):
    paths = [write(range(start, 200, 2), wide) for start in (0, 1)]
    content = bytearray(paths[1].read_bytes())
    content[500_000:500_100] = bytes(100)
    paths[1].write_bytes(content)

    with pytest.raises(DamagedError, match=paths[1].name):
        stream(paths)


def test_interleaved_inputs_come_out_in_order_through_many_slices(write):
    """A small limit cuts the keys into slices, each a plan of its own."""
    paths = [write(range(start, 6000, 3)) for start in range(3)]
    inputs = [open_input(path, SCHEMA) for path in paths]

    assert len(slices_of(inputs, SCHEMA, [None], 30_000, MergeLimits().slice_rows)) > 3
    assert stream(paths, memory_limit_bytes=30_000) == list(range(6000))


@pytest.mark.parametrize("rows_at_once", [1, 7, 65_536])
def test_sampled_rows_are_spread_evenly_over_the_row_groups(write, rows_at_once):
    """Three row groups in each input; the sample is the same however many rows are decoded at once."""
    places = spans([open_input(write(range(start, 3000, 2)), SCHEMA) for start in (0, 1)], SCHEMA, None)
    assert len(places) == 6

    step_bytes = sum(place.file_bytes for place in places) // 60
    found = numbers_in(sample(places, SCHEMA, step_bytes, rows_at_once).to_batches())
    assert len(found) == pytest.approx(60, abs=2)
    assert found == sorted(found)
    gaps = [after - before for before, after in pairwise([0, *found, 3000])]
    # A step of one input is 100 numbers, of which a sample may lie at either end; the other input has as many.
    assert max(gaps) < 200


def test_rows_of_one_key_larger_than_a_slice_stay_whole(tmp_path):
    """No bound can cut them, so a slice is as large as it must be."""
    schema = Schema({"k": "int64"}, {"s": "int64"}, {"v": "string"})
    layout = small_layout(schema, file_bytes=1 << 30, row_group_rows=50)
    rows = [(0 if n < 500 else n, 0, f"{n * 7919 % 104_729:x}" * 5) for n in range(600)]
    [file] = write_run([batch_of(schema, rows)], layout, tmp_path, rows_estimate=600)

    merged = merge_stream([file.path, file.path], schema, key_range=None, memory_limit_bytes=4_000)

    assert [n for batch in merged for n in batch.column("k").to_pylist()] == sorted(2 * [k for k, _, _ in rows])


@pytest.mark.parametrize("kind", ["Parquet", "Arrow", "both"])
def test_more_inputs_than_fit_are_merged_in_levels(write, out, kind):
    paths, spills = [], []
    for start in range(40):
        path = write(range(start, 2000, 40))
        if kind == "Arrow" or (kind == "both" and start % 2):
            rows = pq.read_table(path)
            path = write_spill(rows.to_batches(), rows.schema, path.with_suffix(""))
        paths.append(path)

    files = merge_runs(
        paths, LAYOUT, out, key_range=None, memory_limit_bytes=100_000,
        progress=lambda _: spills.extend(out.rglob("*.arrow")),
    )  # fmt: skip

    assert numbers_in(pq.read_table(file.path) for file in files) == list(range(2000))
    assert spills
    assert set(out.iterdir()) == {file.path for file in files}


def test_a_range_reads_only_its_keys(write, out):
    paths = [write(range(start, 5000, 2)) for start in range(2)]
    key_range = EncodedRange(SCHEMA.codec.encode(("user-00001234",)), SCHEMA.codec.encode(("user-00003210",)))

    assert stream(paths, key_range=key_range) == list(range(1234, 3210))
    assert stream(paths, key_range=key_range, memory_limit_bytes=20_000) == list(range(1234, 3210))
    assert stream(paths, key_range=ALL_KEYS) == list(range(5000))
    assert stream(paths, key_range=EncodedRange(b"zz")) == []
    assert stream(paths, key_range=EncodedRange(b"a", b"a")) == []
    assert merge_runs(paths, LAYOUT, out, key_range=EncodedRange(b"zz"), memory_limit_bytes=PLENTY) == []


def test_a_range_of_a_single_key_is_merged_too(tmp_path, out):
    """The engine knows then that all rows are alike to the sort order, and puts them one behind the other."""
    schema = Schema({"k": "int64"})
    paths = []
    for _ in range(2):
        batch = batch_of(schema, [(0,), (1,), (1,), (2,)])
        paths += [file.path for file in write_run([batch], small_layout(schema), tmp_path, rows_estimate=4)]
    keys = EncodedRange(schema.codec.encode_key((1,)), schema.codec.encode_key((2,)))

    [run] = merge_runs(paths, small_layout(schema), out, key_range=keys, memory_limit_bytes=PLENTY)

    assert pq.read_table(run.path).column("k").to_pylist() == [1, 1, 1, 1]


def test_row_groups_without_rows_are_passed_over(tmp_path, write):
    """Those that a file of another writer has, which was attached."""
    path = tmp_path / "other.parquet"
    with pq.ParquetWriter(path, SCHEMA.arrow) as writer:
        for first, count in ((0, 0), (10, 10), (0, 0), (20, 10), (0, 0)):
            rows = pa.Table.from_batches([bench_rows(range(first, first + 10))])
            writer.write_table(rows.slice(0, count))
    keys = EncodedRange(SCHEMA.codec.encode(("user-00000005",)), SCHEMA.codec.encode(("user-00000025",)))
    assert stream([path, write(range(10))], key_range=keys, memory_limit_bytes=1_000) == list(range(5, 25))


def test_a_row_on_which_a_predicate_fails_is_its_fault_and_no_input_s(write):
    where = check_where('1 / ("count" - "count") > 0', SCHEMA.arrow)
    with pytest.raises(UsageError, match=r"cannot evaluate predicate .*[Dd]ivide by zero"):
        stream([write(range(0, 10, 2)), write(range(1, 10, 2))], where=where)


def test_one_input_and_none(write):
    assert stream([write(range(10))]) == list(range(10))
    assert stream([]) == []


def test_columns_are_chosen_after_the_merge(write):
    """The order needs key columns that are not requested."""
    paths = [write(range(start, 100, 2)) for start in range(2)]

    batches = merge_stream(paths, SCHEMA, key_range=None, memory_limit_bytes=PLENTY, columns=["value", "count"])

    merged = pa.Table.from_batches(batches)
    assert merged.column_names == ["value", "count"]
    assert merged["count"].to_pylist() == [n % 10 for n in range(100)]


def test_progress_counts_every_row(write, out):
    progress = []
    merge_runs([write(range(3000)), write(range(500))], LAYOUT, out, key_range=None, memory_limit_bytes=PLENTY,
               progress=progress.append)  # fmt: skip

    assert sum(progress) == 3500


def test_paths_are_taken_literally(write, tmp_path):
    """Blanks, wildcards, quotes, percent signs and no ending: all legal in a path, all special to some engine."""
    odd = tmp_path / "o'dd [dir] *x%41 é?"
    odd.mkdir()
    parquet, arrow = odd / "da.ta", odd / "pie'ce"
    write(range(0, 10, 2)).rename(parquet)
    rows = bench_rows(range(1, 10, 2))
    write_spill([rows], rows.schema, arrow)

    assert stream([parquet, arrow]) == list(range(10))


def test_a_file_of_another_table_is_named_with_column_and_types(tmp_path, write):
    good, path = write(range(10)), tmp_path / "other.parquet"
    other = Schema({"key": "string"}, {"ts": "int64"}, {"count": "double", "value": "string"})
    pq.write_table(pa.Table.from_batches([batch_of(other, [("a", 1, 1.5, "v")])]), path)

    with pytest.raises(SchemaMismatchError, match=r"other\.parquet: column count is double; .* int64"):
        stream([good, path])
    pq.write_table(pa.table({"key": ["a"], "ts": [1], "count": [1], "value": ["v"]}), path)
    with pytest.raises(SchemaMismatchError, match=r"other\.parquet: missing columns key, ts; .* field ids"):
        stream([good, path])


def damage_page(data):
    """Some bytes in the middle of the first column's pages. A single bit is found by callers, which verify digests."""
    begin = len(data) // 8
    data[begin : begin + 64] = b"\xff" * 64


def cut_short(data):
    del data[len(data) // 2 :]


def empty(data):
    data.clear()


@pytest.mark.parametrize("damage", [damage_page, cut_short, empty])
def test_a_damaged_input_is_named_and_nothing_is_left(write, out, damage):
    paths = [write(range(start, 9000, 3)) for start in range(3)]
    data = bytearray(paths[1].read_bytes())
    damage(data)
    paths[1].write_bytes(data)

    with pytest.raises(DamagedError) as caught:
        merge_runs(paths, LAYOUT, out, key_range=None, memory_limit_bytes=PLENTY)

    assert caught.value.name == str(paths[1])
    assert list(out.iterdir()) == []


def test_a_missing_input_is_a_storage_error(write, tmp_path):
    with pytest.raises(StorageError, match="gone"):
        stream([write(range(3)), tmp_path / "gone"])


def test_inputs_that_are_not_sorted_are_refused_when_written(tmp_path, out):
    path = tmp_path / "unsorted.parquet"
    pq.write_table(pa.Table.from_batches([bench_rows(range(1000, 0, -1))]), path)

    with pytest.raises(Error, match="not sorted"):
        merge_runs([path], LAYOUT, out, key_range=None, memory_limit_bytes=PLENTY)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("memory", [PLENTY, 100_000], ids=["in one level", "in two levels"])
def test_ctrl_c_leaves_nothing_behind(write, out, memory):
    paths = [write(range(start, 6000, 30)) for start in range(30)]

    with pytest.raises(KeyboardInterrupt):
        merge_runs(paths, LAYOUT, out, key_range=None, memory_limit_bytes=memory,
                   progress=lambda rows: signal.raise_signal(signal.SIGINT))  # fmt: skip

    assert list(out.iterdir()) == []


MERGE = "SortPreservingMergeExec UnionExec DataSourceExec DataSourceExec"


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        pytest.param(MERGE.replace("Data", "SortExec Data", 1), "SortExec", id="a sort below"),
        pytest.param(MERGE.replace("SortPreservingMergeExec", "SortExec"), "SortExec", id="a sort on top"),
        pytest.param(MERGE.replace("SortPreservingMergeExec", "UnionExec"), "does not merge", id="no merge"),
        pytest.param(MERGE.replace("UnionExec", "RepartitionExec"), "RepartitionExec", id="a buffer"),
    ],
)
def test_a_plan_that_would_not_stream_is_an_error(plan, reason):
    check_plan(MERGE.split())
    with pytest.raises(Error, match=reason):
        check_plan(plan.split())


def test_an_engine_that_forgets_the_order_is_found_out(write):
    """Without the declared order the engine would sort everything; the check sees it before a row is read."""
    forgetful = Planted(merge, "_scan", lambda engine, item, schema, index: engine.read_parquet(item.path.as_uri()))

    with planted(lambda: [forgetful]), pytest.raises(Error, match=r"would not stream: it contains .*SortExec"):
        stream([write(range(10)), write(range(10))])


def test_a_large_sort_equals_a_merge_of_its_parts(out):
    """The same rows by one chunk and by spills."""
    rows = [bench_rows([n * 7919 % 30_011 for n in range(start, 30_011, 3)]) for start in range(3)]

    one = sort_runs(rows, LAYOUT, out, memory_limit_bytes=1 << 30)
    many = sort_runs(rows, LAYOUT, out, memory_limit_bytes=500_000)

    assert pq.read_table(one[0].path).equals(pq.read_table(many[0].path))
