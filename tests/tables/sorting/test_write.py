"""What a data file looks like, and what the writer refuses."""

from __future__ import annotations

import decimal
import itertools
import json
import random
import resource
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import Schema
from lakebed.engine.datafusion import column, context, url
from lakebed.errors import Error, SchemaMismatchError, StorageError
from lakebed.files.parquet.file_writer import key_filter, write_run
from lakebed.files.parquet.layout import Layout
from lakebed.files.sorting.merge import merge_stream
from lakebed.files.sorting.sort import sort_runs
from lakebed.model.row_kinds import with_hidden
from lakebed.model.settings import Compression
from tests.tables.sorting.page_index import pages_of
from tests.tables.sorting.tables import batch_of, bench_rows, bench_schema, small_layout

LAYOUT = Layout(
    bench_schema(), file_bytes=1 << 30, page_rows=1000, page_bytes=32 * 1024, row_group_rows=10_000, bloom_fpp=0.01
)


@pytest.fixture
def file(tmp_path):
    [file] = write_run([bench_rows(range(25_000))], LAYOUT, tmp_path, rows_estimate=25_000)
    return file


def test_row_groups_and_pages_keep_to_the_layout(file):
    metadata = pq.read_metadata(file.path)

    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [10_000, 10_000, 5_000]
    for group in pages_of(file.path):
        for pages in group.values():
            firsts = [page.first_row for page in pages]
            assert max(b - a for a, b in itertools.pairwise(firsts)) <= 1000
            assert max(page.bytes for page in pages) <= 32 * 1024


def test_wide_rows_make_pages_of_few_rows(tmp_path):
    schema = Schema({"k": "int64"}, values={"v": "binary"})
    rows = batch_of(schema, [(i, bytes([i % 251, i % 13]) * 4000) for i in range(300)])
    layout = small_layout(schema, file_bytes=1 << 30, page_rows=4000, page_bytes=32 * 1024, row_group_rows=1000)

    [file] = write_run([rows], layout, tmp_path, rows_estimate=300)

    [group] = pages_of(file.path)
    assert len(group["v"]) > 50


def test_the_footer_says_how_rows_are_sorted_and_which_field_is_which(file):
    opened = pq.ParquetFile(file.path)
    group = opened.metadata.row_group(0)

    assert [(c.column_index, c.descending) for c in group.sorting_columns] == [(0, False), (1, False)]
    assert [f.metadata[b"PARQUET:field_id"] for f in opened.schema_arrow] == [b"1", b"2", b"3", b"4"]


def test_columns_have_page_statistics_and_page_offsets(file):
    group = pq.read_metadata(file.path).row_group(0)
    chunks = [group.column(i) for i in range(4)]

    assert [chunk.has_offset_index for chunk in chunks] == [True] * 4
    assert [chunk.has_column_index for chunk in chunks] == [True] * 4
    assert [chunk.is_stats_set for chunk in chunks] == [True] * 4
    assert {chunk.compression for chunk in chunks} == {"ZSTD"}


VALUES = Schema({"k": "int64"}, values={"f": "float64", "t": "string", "i": "int64", "l": pa.list_(pa.int64())})


def with_statistics(tmp_path, rows, **changes):
    """Write rows in row groups of 1,000; return the file, and its columns with statistics in all row groups."""
    layout = small_layout(VALUES, file_bytes=1 << 30, row_group_rows=1000, page_rows=100, **changes)
    [file] = write_run([batch_of(VALUES, rows)], layout, tmp_path, rows_estimate=len(rows))
    metadata = pq.read_metadata(file.path)
    found = [
        {chunk.path_in_schema for chunk in map(group.column, range(group.num_columns)) if chunk.is_stats_set}
        for group in map(metadata.row_group, range(metadata.num_row_groups))
    ]
    indexed = {c.path_in_schema for c in map(metadata.row_group(0).column, range(5)) if c.has_column_index}
    assert all(names == found[0] == indexed for names in found)
    return file, found[0]


ROWS = [(i, float(i), f"t{i}", i, [i]) for i in range(3000)]


def test_columns_of_nested_types_and_those_that_are_turned_off_have_no_statistics(tmp_path):
    assert with_statistics(tmp_path, ROWS)[1] == {"k", "f", "t", "i"}
    assert with_statistics(tmp_path, ROWS, statistics_off=frozenset({"t", "i", "x"}))[1] == {"k", "f"}
    assert with_statistics(tmp_path, ROWS, statistics_off=frozenset({"*", "k"}))[1] == {"k"}


@pytest.mark.parametrize("row", [0, 2500])
def test_a_file_with_a_nan_has_no_statistics_of_that_column(tmp_path, row):
    """Parquet's leave NaN out, so an engine would skip a page whose numbers are all small."""
    rows = [*ROWS]
    rows[row] = (row, float("nan"), "t", 0, [])
    file, bounded = with_statistics(tmp_path, rows)

    assert bounded == {"k", "t", "i"}
    assert pq.read_table(file.path).num_rows == 3000
    engine = context(partitions=1, batch_rows=8192, pool_bytes=1 << 30)
    frame = engine.read_parquet(url(engine, file.path), file_extension="").filter("f > 5000")
    assert frame.to_pydict()["k"] == [row]


@pytest.mark.parametrize("row", [0, 2500])
def test_a_file_with_long_text_has_no_statistics_of_that_column(tmp_path, row):
    """Arrow does not truncate them."""
    rows = [*ROWS]
    rows[row] = (row, 0.0, "x" * 65, 0, [])
    assert with_statistics(tmp_path, rows)[1] == {"k", "f", "i"}
    rows[row] = (row, 0.0, "x" * 64, 0, [])
    assert with_statistics(tmp_path, rows)[1] == {"k", "f", "t", "i"}


def test_hidden_columns_have_no_statistics(tmp_path):
    schema = with_hidden(Schema({"k": "int64"}, values={"i": "int64"}))
    rows = batch_of(schema, [(i, i, 1, True) for i in range(100)])
    [file] = write_run([rows], small_layout(schema, file_bytes=1 << 30), tmp_path, rows_estimate=100)
    group = pq.read_metadata(file.path).row_group(0)
    assert [group.column(i).is_stats_set for i in range(4)] == [True, True, False, False]


def test_the_bloom_filter_answers_for_a_key_that_statistics_cannot_rule_out(file):
    """Between two keys that are there lies one that is not: the scan finds no row group worth reading."""
    engine = context(partitions=1, batch_rows=8192, pool_bytes=1 << 30)
    frame = engine.read_parquet(url(engine, file.path), file_extension="").filter(column("key") == "user-00012345x")
    plan = frame.execution_plan()
    rows = sum(batch.to_pyarrow().num_rows for batch in engine.execute(plan, 0))
    metrics = [metric for _, found in plan.collect_metrics() for metric in found.metrics()]

    assert rows == 0
    assert any("1 total → 0 matched" in str(metric) for metric in metrics if "bloom_filter" in metric.name)


def test_a_key_of_several_fields_has_one_filter_a_row_group_and_its_columns_none(tmp_path):
    """Other readers see a Parquet file like any other."""
    schema = Schema({"a": "int32", "b": "string"}, values={"v": "int64"})
    rows = batch_of(schema, [(n // 10, f"{n % 10}", n) for n in range(3000)])
    [file] = write_run([rows], small_layout(schema, file_bytes=1 << 30, row_group_rows=1000), tmp_path, rows_estimate=1)

    metadata = pq.read_metadata(file.path)
    said = json.loads(metadata.metadata[b"lakebed.key_filters"])
    content = file.path.read_bytes()
    assert said["fields"] == [1, 2]
    assert metadata.num_row_groups == len(said["byte_ranges"]) == 3
    for index, (offset, length) in enumerate(said["byte_ranges"]):
        keys = schema.codec.encode_columns(rows.slice(1000 * index, 1000).select(["a", "b"]))
        assert content[offset : offset + length] == key_filter(keys, 0.01).to_pybytes()
        assert [metadata.row_group(index).column(i).bloom_filter_offset for i in range(3)] == [None] * 3
    assert pq.read_table(file.path).column("v").to_pylist() == list(range(3000))


def test_a_key_of_one_field_has_parquets_own_filter_alone(file):
    metadata = pq.read_metadata(file.path)
    assert b"lakebed.key_filters" not in metadata.metadata
    assert metadata.row_group(0).column(0).bloom_filter_length > 1_000


def test_a_few_rows_make_a_small_file(tmp_path):
    """The bloom filter is sized for the rows that are there, not for a whole row group."""
    [file] = write_run([bench_rows(range(10))], LAYOUT, tmp_path, rows_estimate=10)

    assert file.path.stat().st_size < 5_000


def test_repetitive_columns_get_a_dictionary_and_others_none(tmp_path):
    schema = Schema({"k": "int64"}, values={"state": "string", "id": "string", "price": "float64"})
    rows = batch_of(schema, [(i, "on" if i % 3 else "off", f"{i:x}", i / 3) for i in range(5000)])

    [file] = write_run(
        [rows], small_layout(schema, file_bytes=1 << 30, row_group_rows=5000), tmp_path, rows_estimate=5000
    )

    group = pq.read_metadata(file.path).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(4)] == [False, True, False, False]


def test_dictionaries_are_chosen_by_every_nth_row_across_batches(tmp_path):
    """Of 30,000 rows, every third is sampled. These are equal in one column, and the rows after them in the other."""
    schema = Schema({"k": "int64"}, values={"sampled": "string", "passed": "string"})
    columns = ((f"{i}" if i % 3 else "equal", f"{i}" if i % 3 != 1 else "equal") for i in range(30_000))
    rows = batch_of(schema, [(i, *texts) for i, texts in enumerate(columns)])
    ends = [0, 1, 5, 7_000, 7_001, 29_999, 30_000]
    batches = [rows.slice(begin, end - begin) for begin, end in itertools.pairwise(ends)]

    layout = small_layout(schema, file_bytes=1 << 30, row_group_rows=30_000)
    [file] = write_run(batches, layout, tmp_path, rows_estimate=30_000)

    group = pq.read_metadata(file.path).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(3)] == [False, True, False]


def test_integers_and_times_without_a_dictionary_are_delta_packed(tmp_path):
    kinds = {"at": "timestamp[us, tz=UTC]", "n": "uint64", "state": "int32", "price": "float64", "flag": "bool"}
    schema = Schema({"k": "int64"}, values=kinds)
    rows = batch_of(schema, [(i, i * 977, i * 31, i % 3, i / 3, i % 2 == 0) for i in range(5000)])

    layout = small_layout(schema, file_bytes=1 << 30, row_group_rows=5000)
    [file] = write_run([rows], layout, tmp_path, rows_estimate=5000)

    group = pq.read_metadata(file.path).row_group(0)
    packed = ["DELTA_BINARY_PACKED" in group.column(i).encodings for i in range(6)]
    assert packed == [True, True, True, False, False, False]
    assert pq.read_table(file.path).cast(schema.arrow).to_batches()[0].equals(rows)


@pytest.mark.parametrize("compression", Compression)
def test_packed_columns_that_do_not_shrink_are_not_compressed(tmp_path, compression):
    schema = Schema({"k": "int64"}, values={"random": "int32", "regular": "int64", "s": "string", "l": "list<int64>"})
    chance = random.Random(1)
    rows = [(i * 37, chance.getrandbits(31), i % 997 * 10**12, f"{i:032x}", [i]) for i in range(40_000)]
    layout = replace(LAYOUT, schema=schema, row_group_rows=40_000, compression=compression)

    [file] = write_run([batch_of(schema, rows)], layout, tmp_path, rows_estimate=40_000)
    [small] = write_run([batch_of(schema, rows[:5_000])], layout, tmp_path, rows_estimate=5_000)

    name = {"zstd": "ZSTD", "lz4": "LZ4", "none": "UNCOMPRESSED"}[compression]
    codecs = {chunk.path_in_schema: chunk.compression for chunk in chunks_of(file)}
    assert codecs.pop("random") == "UNCOMPRESSED"
    del codecs["k"]
    assert codecs == {"regular": name, "s": name, "l.list.element": name}
    assert {chunk.compression for chunk in chunks_of(small)} == {name}
    assert [tuple(row.values()) for row in pq.read_table(file.path).to_pylist()] == rows


def chunks_of(file):
    group = pq.read_metadata(file.path).row_group(0)
    return [group.column(index) for index in range(group.num_columns)]


def test_files_are_cut_at_about_their_size_and_at_most_touch(tmp_path):
    layout = Layout(
        bench_schema(), file_bytes=40_000, page_rows=1000, page_bytes=32768, row_group_rows=500, bloom_fpp=0.01
    )

    files = write_run((bench_rows(range(n, n + 700)) for n in range(0, 14_000, 700)), layout, tmp_path, rows_estimate=1)

    # Small row groups weigh more in the footer than they do in files of a usual size.
    sizes = [file.path.stat().st_size for file in files]
    assert len(files) > 2
    assert all(32_000 <= size <= 64_000 for size in sizes[:-1])
    assert sum(file.rows for file in files) == 14_000
    assert all(a.max_key < b.min_key for a, b in itertools.pairwise(files))


def test_no_rows_no_file(tmp_path):
    assert write_run([], LAYOUT, tmp_path, rows_estimate=0) == []
    assert write_run([bench_rows([])], LAYOUT, tmp_path, rows_estimate=0) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([range(5, 10), range(5)], id="a batch begins below the last"),
        pytest.param([range(5, 10), [3, 11]], id="a border falls"),
        pytest.param([range(5, 10), [11, 10, 12]], id="a batch is not sorted inside"),
    ],
)
def test_rows_out_of_order_are_an_error_and_leave_nothing(tmp_path, batches):
    with pytest.raises(Error, match="not sorted by"):
        write_run(map(bench_rows, batches), LAYOUT, tmp_path, rows_estimate=10)

    assert list(tmp_path.iterdir()) == []


def test_ties_in_the_row_key_must_be_in_order_of_the_sort_key(tmp_path):
    schema = Schema({"k": "int64"}, {"s": "int64"})
    with pytest.raises(Error, match=r"begins with .*'s': 1"):
        write_run(
            [batch_of(schema, [(7, 2)]), batch_of(schema, [(7, 1)])], small_layout(schema), tmp_path, rows_estimate=2
        )


def test_columns_of_another_table_are_refused(tmp_path):
    with pytest.raises(SchemaMismatchError, match="key, ts, count, value"):
        write_run([bench_rows(range(3)).select(["key", "ts"])], LAYOUT, tmp_path, rows_estimate=3)


@contextmanager
def largest_file(size):
    """A disk that is full after so many bytes of a file, which any user can have."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("memory", [64 << 20, 200_000], ids=["while it writes the run", "while it spills"])
def test_a_full_disk_is_named_and_nothing_is_left(tmp_path, memory):
    rows = [bench_rows(range(n, n + 1000)) for n in range(0, 20_000, 1000)]

    with largest_file(20_000), pytest.raises(StorageError) as caught:
        sort_runs(rows, LAYOUT, tmp_path, memory_limit_bytes=memory)

    assert caught.value.folder.startswith(str(tmp_path))
    assert caught.value.folder in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def every_type():
    nested = pa.struct([("q", pa.list_(pa.string())), ("t", pa.timestamp("s"))])
    values = {
        "bool": ("bool", [True, None, False]),
        "half": ("float16", [1.5, None, -0.0]),
        "double": ("float64", [float("nan"), None, float("-inf")]),
        "money": ("decimal128(10, 2)", [decimal.Decimal("1.25"), None, decimal.Decimal("-0.01")]),
        "huge": ("decimal256(50, 3)", [decimal.Decimal("1.125"), None, decimal.Decimal(10) ** 40]),
        "seconds": ("timestamp[s]", [1, None, -1]),
        "zoned": ("timestamp[ns, tz=Europe/Berlin]", [1, None, -1]),
        "clock": ("time32[s]", [1, None, 86_399]),
        "fine clock": ("time64[ns]", [1, None, 5]),
        "u64": ("uint64", [2**64 - 1, None, 0]),
        "fixed": ("fixed_size_binary[3]", [b"abc", None, b"\xff\x00\xff"]),
        "list": (pa.list_(pa.int64()), [[1, None], None, []]),
        "struct": (nested, [{"q": ["a", None], "t": None}, None, {"q": None, "t": 5}]),
        "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], None, []]),
        "all null": ("string", [None, None, None]),
        'dotted.na"me': ("int8", [1, None, -1]),
    }
    schema = Schema({"k": "int64"}, values={name: kind for name, (kind, _) in values.items()})
    columns = [pa.array([1, 2, 3]), *(pa.array(v, schema.arrow.field(n).type) for n, (_, v) in values.items())]
    return schema, pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def test_every_type_comes_back_from_a_file_and_through_a_merge(tmp_path):
    schema, rows = every_type()
    files = [write_run([rows], small_layout(schema), tmp_path, rows_estimate=3)[0] for _ in range(2)]

    assert repr(pq.read_table(files[0].path).cast(schema.arrow).to_pylist()) == repr(rows.to_pylist())
    merged = pa.Table.from_batches(
        merge_stream([f.path for f in files], schema, key_range=None, memory_limit_bytes=64 << 20)
    )
    assert merged.schema.equals(schema.arrow, check_metadata=True)
    assert repr(merged.to_pylist()) == repr([row for row in rows.to_pylist() for _ in range(2)])
