"""Foreign Parquet files read in batches that are bounded by what they decode to."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import SchemaMismatchError
from lakebed.files.parquet.row_groups import HEAVY_BYTES, read_row_groups
from lakebed.files.parquet.sizes import BATCH_BYTES, decoded_rows, row_ends

MIB = 1024 * 1024


def read(path, **options):
    with pa.OSFile(str(path)) as source:
        return list(read_row_groups(source, "in.parquet", **options))


def plain(batches, schema):
    return pa.Table.from_batches([decoded_rows(batch) for batch in batches]).cast(schema).combine_chunks()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "in.parquet"


ROWS = {
    "plain": pa.table({"k": range(5000), "v": [f"{i}" for i in range(5000)]}),
    "nulls": pa.table({"k": range(5000), "v": pa.array([None, "a", "b"] * 1666 + [None, None])}),
    "nested": pa.table({"k": range(3000), "v": [{"a": [["x" * (i % 7)]], "b": i} for i in range(3000)]}),
    "map": pa.table({"v": pa.array([[("k", "v" * (i % 5))] for i in range(1200)], pa.map_(pa.string(), pa.string()))}),
    "dots": pa.table({"a.b": ["x"] * 3000, "a": range(3000)}),
    "snapshots": pa.table({"v": pa.array(["y" * 40] * 1200, pa.string_view())}),
    "binary": pa.table({"v": pa.array([bytes(3)] * 1200, pa.binary(3)), "w": pa.array([b"x"] * 1200)}),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("heavy_bytes", [0, HEAVY_BYTES])
def test_the_rows_are_those_of_the_file(path, name, heavy_bytes):
    """Whether or not the headers of all pages are looked at."""
    pq.write_table(ROWS[name], path, row_group_size=1100, max_rows_per_page=100)
    found = plain(read(path, heavy_bytes=heavy_bytes), pq.read_schema(path))
    assert found.to_pylist() == ROWS[name].to_pylist()


def test_references_to_one_text_take_the_memory_of_one(path):
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"v": values}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 10_000
    before = pa.total_allocated_bytes()
    rows = 0
    with pa.OSFile(str(path)) as source:
        for batch in read_row_groups(source, "in.parquet"):
            rows += batch.num_rows
            assert row_ends(batch)[-1] <= BATCH_BYTES
            assert pa.total_allocated_bytes() - before < 64 * MIB
    assert rows == 2000


def test_a_column_that_gave_its_dictionary_up_is_not_hashed(path):
    """Unless the dictionary has long values, for references to them are not what their number seems to say."""
    short = [f"value-{i:030d}" for i in range(200_000)]
    pq.write_table(pa.table({"v": short}), path)
    assert {batch.schema.field("v").type for batch in read(path)} == {pa.string()}
    long = ["x" * 500_000] * 1000 + [f"value-{i:030d}" for i in range(200_000)]
    pq.write_table(pa.table({"v": long}), path, max_rows_per_page=1000)
    batches = read(path)
    assert all(row_ends(batch)[-1] <= BATCH_BYTES for batch in batches)
    assert sum(batch.num_rows for batch in batches) == len(long)


def test_a_run_of_wide_rows_is_not_hidden_by_the_average(path):
    values = [b"s"] * 30_000 + [bytes(MIB)] * 100 + [b"s"] * 30_000
    pq.write_table(pa.table({"v": values}), path, use_dictionary=False, max_rows_per_page=10)
    with pa.OSFile(str(path)) as source:
        sizes = [row_ends(batch)[-1] for batch in read_row_groups(source, "in.parquet")]
    assert max(sizes) <= BATCH_BYTES


def test_many_columns_make_small_batches(path):
    pq.write_table(pa.table({f"c{i}": np.zeros(3000) for i in range(1000)}), path)
    assert max(row_ends(batch)[-1] for batch in read(path)) <= BATCH_BYTES


def test_pages_that_no_limit_allows_are_refused_with_the_limit_that_does(path):
    pq.write_table(pa.table({"v": [bytes(MIB)] * 50}), path, use_dictionary=False)
    with pytest.raises(SchemaMismatchError, match=r"5242\d+ bytes for pages at once.*column v.*memory_limit_bytes to"):
        read(path, pages_bytes=40 * MIB)
    assert sum(batch.num_rows for batch in read(path, pages_bytes=60 * MIB)) == 50
