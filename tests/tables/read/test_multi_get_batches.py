"""Rows of many keys: which pages are decoded for them, counted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import KeepAll, KeyRange, Latest, Schema
from lakebed.files.parquet.footer import Fences
from lakebed.files.parquet.read_cache import READ_CACHE, ReadStatistics
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.read.rows import multi_get_batches
from lakebed.read.rows.multi_get import PartKeys
from lakebed.read.rows.multi_get_batches import PAGE_KEYS, _Batch, _pages_around, read_keys
from lakebed.read.rows.request import KeyList, ReadLimits, ReadRequest
from tests.tables.read.cases import files_kept_in

ROWS = 5_000
PAGES = ROWS // 100
SCHEMA = Schema({"k": "int64"}, {"s": "int64"}, {"v": "string"})
SMALL = {"page_rows": 100, "row_group_rows": 1_000}


def rows(keys, first=0):
    keys = list(keys)
    sorts = range(first, first + len(keys))
    return pa.table({"k": keys, "s": sorts, "v": [f"{key}-{sort}" for key, sort in zip(keys, sorts, strict=True)]})


@pytest.fixture
def table(lake):
    """One file of the even keys: five row groups of ten pages each."""
    table = lake.create_table("t", SCHEMA, settings=SMALL)
    table.write(rows(range(0, 2 * ROWS, 2)))
    return table


@pytest.fixture
def bunched(monkeypatch):
    """How many rows each bunch found."""
    found = []
    read = _Batch.read
    monkeypatch.setattr(_Batch, "read", lambda self: (got := read(self), found.append(got[0].num_rows))[0])
    return found


def asked(table, keys, columns=SCHEMA.names):
    snapshot = table.snapshot()
    statistics = ReadStatistics()
    encoded = sorted(table.schema.codec.encode_key((key,)) for key in keys)
    return snapshot.reader.get_many(snapshot.state, encoded, list(columns), statistics), statistics


@pytest.mark.parametrize("every", [1, 3, 50, 130, 2_000])
def test_no_page_is_decoded_twice_and_none_without_a_key(table, bunched, every):
    """However many the keys: pages of each column at most, and as many as have a key."""
    table.reader.limits = ReadLimits(multi_get_rows=300)
    keys = range(0, 2 * ROWS, 2 * every)
    found, statistics = asked(table, keys)
    assert found.column("k").to_pylist() == list(keys)
    assert found.column("v").to_pylist() == [f"{key}-{key // 2}" for key in keys]
    assert statistics.pages == 3 * len({key // 200 for key in keys})
    assert (len(bunched) > 10) == (every <= 130)


def test_a_few_keys_wherever_they_lie_are_one_bunch_and_no_threads(table, bunched, monkeypatch):
    monkeypatch.setattr(multi_get_batches, "ThreadPoolExecutor", None)
    found, statistics = asked(table, range(0, 2 * ROWS, 1_000))
    assert found.num_rows == 10
    assert bunched == [10]
    assert (statistics.pages, statistics.row_groups, len(statistics.files)) == (3 * 10, 5, 1)
    assert asked(table, [])[0].num_rows == 0


def test_keys_that_are_not_there_cost_a_look_at_the_filters(table):
    found, statistics = asked(table, range(1, 2 * ROWS, 40))
    assert found.num_rows == 0
    # One in a thousand is taken for one that is there.
    assert statistics.pages <= 3 * 3


def test_among_files_that_overlap_only_those_with_a_key_are_read(lake):
    table = lake.create_table("over", SCHEMA, settings=SMALL)
    for first in range(20):
        table.write(rows(range(first, 20_000, 20), 20_000 * first))
    keys = range(7, 20_000, 2_000)
    found, statistics = asked(table, keys)
    assert found.column("k").to_pylist() == list(keys)
    assert len(statistics.files) <= 2
    assert statistics.pages <= 3 * 12


@pytest.mark.parametrize("merge", [KeepAll(), Latest()])
@pytest.mark.parametrize("columns", [SCHEMA.names, ("v",), ("v", "v")])
def test_neighbours_are_read_as_their_range(lake, bunched, merge, columns):
    """Some of the rows of the range have none of the keys, and some keys have no row, or a row in several files."""
    table = lake.create_table("near", SCHEMA, settings={"page_rows": 500}, merge=merge)
    for first in (0, 1, 2, 5):
        table.write(rows(range(first, 20_000, 5), 20_000 * first))
    keys = range(2_100, 2_100 + 3 * PAGE_KEYS)
    some = [key for key in keys if key % 7]
    found, statistics = asked(table, some, columns)
    assert not bunched
    assert found.schema == table.schema.arrow_of(columns)
    assert found.equals(table.scan(KeyRange(keys[0], keys[-1] + 1), where="k % 7 <> 0", columns=columns).read_all())
    assert statistics.pages <= len(SCHEMA.names) * 4 * 2
    assert not statistics.engine


@pytest.mark.parametrize("range_rows", [10_000, 1])
def test_filters_are_not_read_for_neighbours_and_are_kept_once_they_are(lake, range_rows):
    """Also of neighbours with more rows than are read as a range."""
    table = lake.create_table("near", SCHEMA, settings={"page_rows": 500})
    table.reader.limits = ReadLimits(page_rows=range_rows)
    for first in range(4):
        table.write(rows(range(first, 20_000, 4), 20_000 * first))
    filters = READ_CACHE.stats().filters.entries
    for count in (2 * PAGE_KEYS, PAGE_KEYS - 1):
        keys = range(2_100, 2_100 + count)
        found, statistics = asked(table, keys)
        assert found.column("k").to_pylist() == list(keys)
        assert (READ_CACHE.stats().filters.entries == filters) == (count >= PAGE_KEYS)
    assert statistics.size_bytes > 0
    assert asked(table, keys)[1].size_bytes == 0


@given(st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=2)), min_size=1), st.sets(st.binary(max_size=2)))
def test_the_pages_of_many_keys_are_those_of_each(bounds, found):
    """Also of bounds that overlap, and of keys that no page may have."""
    fences = Fences.of([EncodedRange(min(pair), max(pair)) for pair in sorted(map(sorted, bounds))])
    keys = sorted(found)
    for indices in (np.arange(len(keys)), np.arange(0, len(keys), 3), np.arange(len(keys))[-1:]):
        if len(indices):
            low, high = _pages_around(fences, keys, indices)
            each = [fences.around(keys[index]) for index in indices]
            assert list(zip(low.tolist(), high.tolist(), strict=True)) == each


def test_files_of_one_run_are_not_asked_as_if_they_overlapped(lake):
    """They are two parts, in which nothing has to be put in order."""
    table = lake.create_table("run", SCHEMA, settings=SMALL)
    for begin in (0, 1_000):
        table.write(rows(range(begin, begin + 1_000), begin))
    found, statistics = asked(table, [5, 1_005, 999, 1_000], ["v"])
    assert found.column("v").to_pylist() == ["5-5", "999-999", "1000-1000", "1005-1005"]
    # The sort key is not needed.
    assert statistics.pages == 2 * 3


def test_rows_of_one_key_come_by_their_sort_key_from_all_files_and_pages(lake):
    table = lake.create_table("same", SCHEMA, settings=SMALL)
    table.reader.limits = ReadLimits(multi_get_rows=100)
    for first in range(3):
        table.write(rows([1] * 50 + [2] * 450 + [3] * 50, 1_000 * first))
    found, _ = asked(table, [2, 3, 4])
    assert found.column("k").to_pylist() == [2] * 1_350 + [3] * 150
    assert found.column("s").to_pylist() == sorted(found.column("s")[:1_350].to_pylist()) + sorted(
        found.column("s")[1_350:].to_pylist()
    )


def test_of_wide_columns_only_pages_with_a_row_to_return_are_decoded(lake):
    """Their pages are cut by bytes, so they end elsewhere."""
    table = lake.create_table("wide", SCHEMA, settings={**SMALL, "page_bytes": 1024})
    table.write(pa.table({"k": range(1_000), "s": range(1_000), "v": [f"{n:0300d}" for n in range(1_000)]}))
    found, statistics = asked(table, [7, 8, 503], ["k", "v"])
    assert found.column("v").to_pylist() == [f"{n:0300d}" for n in (7, 8, 503)]
    assert statistics.pages <= 2 + 4


def test_a_row_that_was_compacted_away_in_its_partition_is_not_found_beside_another(lake):
    """An old file's rows below 50 are a newer one's now; the page with 50 has some of them still."""
    table = lake.create_table("partitions", SCHEMA, settings=SMALL)
    table.write(rows(range(100)))
    table.write(rows(range(50), 1_000))
    snapshot = table.snapshot()
    old, new = sorted(snapshot.state.files_of(1), key=lambda file: -file.rows)
    opened = {file.id: snapshot.reader.open(file, SCHEMA) for file in (old, new)}
    keys = [SCHEMA.codec.encode_key((n,)) for n in (48, 49, 50, 51)]
    request = ReadRequest(table.schema, ALL_KEYS, ("v",), key_list=KeyList.of(table.schema, keys))
    parts = [PartKeys(1, 0, 2, (new,)), PartKeys(2, 2, 4, (old,))]
    found = read_keys(parts, opened, request, files_kept_in())
    assert found.column("v").to_pylist() == ["48-1048", "49-1049", "50-50", "51-51"]
