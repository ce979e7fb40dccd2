"""Wide reads of a single file: cut into slices, decoded side by side, given out in order."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest

from lakebed import Schema
from lakebed.errors import DamagedError
from lakebed.files.parquet.read_cache import ReadCache, ReadStatistics
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.request import ReadLimits
from lakebed.storage import LocalStorage
from tests.machine import cores_of_arrow
from tests.tables.read.cases import TABLE, object_path, one_partition, stored

SCHEMA = Schema({"k": "int64"}, values={"v": "string"})
ROWS = 5_000
PAGES = ROWS // 100


SMALL = ReadLimits(page_rows=-1, scan_first_rows=10, scan_bytes=200 * 20)
"""Slices of two pages or so, none narrow."""


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "root", durability="none")


@pytest.fixture
def file(storage, tmp_path):
    """Five row groups of ten pages each, of even keys."""
    rows = pa.table({"k": [2 * n for n in range(ROWS)], "v": [f"v{n:07d}" for n in range(ROWS)]})
    (file,) = stored(storage, SCHEMA, rows, tmp_path)
    return file


def reader_of(storage, memory_limit_bytes=1 << 30):
    reader = Reader(storage, TABLE, lambda _file: True, lambda: memory_limit_bytes, ReadCache(1 << 20))
    reader.limits = SMALL
    return reader


@pytest.fixture
def reader(storage):
    return reader_of(storage)


def keys_in(low, high):
    return EncodedRange(SCHEMA.codec.encode((low,)), SCHEMA.codec.encode((high,)))


def test_all_rows_come_in_order_and_each_page_is_decoded_about_once(reader, file):
    statistics = ReadStatistics()
    found = reader.scan(
        one_partition((file,), ALL_KEYS, schema=SCHEMA), ["k", "v"], None, statistics=statistics
    ).read_all()
    assert found.column("k").to_pylist() == [2 * n for n in range(ROWS)]
    assert found.column("v")[-1].as_py() == f"v{ROWS - 1:07d}"
    assert (statistics.rows, statistics.row_groups, statistics.files, statistics.engine) == (ROWS, 5, {file.id}, False)
    # The first slices are smaller than a page.
    assert 2 * PAGES <= statistics.pages <= 2 * PAGES + 10


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 2), (199, 2_001), (3_333, 3_335), (7_000, 99_999), (-5, 8_001)])
def test_a_range_is_cut_at_its_rows_and_not_at_pages(reader, file, low, high):
    statistics = ReadStatistics()
    planned = one_partition((file,), keys_in(low, high), schema=SCHEMA)
    found = reader.scan(planned, ["v"], None, statistics=statistics).read_all().column("v").to_pylist()
    assert found == [f"v{n:07d}" for n in range(ROWS) if low <= 2 * n < high]
    assert statistics.pages <= len(found) // 100 * 2 + 20


def test_the_key_is_decoded_at_the_ends_alone_if_it_is_not_asked_for(reader, file):
    statistics = ReadStatistics()
    reader.scan(one_partition((file,), ALL_KEYS, schema=SCHEMA), ["v"], None, statistics=statistics).read_all()
    assert statistics.pages < PAGES + 10
    reader.scan(
        one_partition((file,), keys_in(50, 9_950), schema=SCHEMA), ["v"], None, statistics=statistics
    ).read_all()
    assert statistics.pages < 2 * PAGES + 20


def test_a_reader_that_stops_after_a_few_rows_has_few_decoded(reader, file):
    statistics = ReadStatistics()
    stream = reader.scan(one_partition((file,), ALL_KEYS, schema=SCHEMA), ["k", "v"], None, statistics=statistics)
    assert stream.read_next_batch().num_rows == 10
    stream.close()
    assert statistics.pages <= 8
    limited = ReadStatistics()
    assert (
        reader.scan(one_partition((file,), ALL_KEYS, schema=SCHEMA), ["k"], 30, statistics=limited).read_all().num_rows
        == 30
    )
    assert limited.pages <= 4


@pytest.fixture
def many_cores():
    with cores_of_arrow(64):
        yield


@pytest.mark.usefixtures("many_cores")
def test_what_lies_decoded_is_bounded_however_slowly_it_is_taken(reader, file):
    """A slice of some 200 rows a core, and one more: here five, each of which decodes up to three pages."""
    statistics = ReadStatistics()
    reader = reader_of(reader._storage, 5 * 8 * 200 * 20)
    stream = reader.scan(one_partition((file,), ALL_KEYS, schema=SCHEMA), ["k", "v"], None, statistics=statistics)
    most = taken = 0
    for batch in stream:
        taken += batch.num_rows
        most = max(most, statistics.pages // 2 - taken // 100)
    assert taken == ROWS
    assert most <= 5 * 3


def test_rows_of_great_width_come_in_slices_of_few(reader, storage, tmp_path):
    wide = pa.table({"k": list(range(2_000)), "v": ["x" * (5 if n < 1_000 else 2_000) for n in range(2_000)]})
    (file,) = stored(storage, SCHEMA, wide, tmp_path)
    found = reader.scan(one_partition((file,), ALL_KEYS, schema=SCHEMA), ["k", "v"], None)
    sizes = [batch.num_rows for batch in found]
    assert sum(sizes) == 2_000
    assert sizes[-1] <= 2
    assert len(sizes) > 50


@pytest.mark.parametrize("part", range(8))
def test_a_flipped_bit_in_any_page_is_damage(reader, file, tmp_path, part):
    """The engine does not look at checksums of pages, and a page may decode to other rows; a read of one file does."""
    path = object_path(tmp_path / "root", file)
    content = bytearray(path.read_bytes())
    content[100 + part * 1_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=file.id):
        reader.scan(one_partition((file,), ALL_KEYS, schema=SCHEMA), ["k", "v"], None).read_all()


@pytest.mark.parametrize("back", range(3, 603, 50))
def test_a_flipped_bit_in_a_page_index_hides_no_row(reader, file, tmp_path, back):
    """Indexes have no checksum, and lie before the footer."""
    path = object_path(tmp_path / "root", file)
    content = bytearray(path.read_bytes())
    content[len(content) - file.footer_bytes - back] ^= 1
    path.write_bytes(content)
    found = None
    with suppress(DamagedError):
        found = reader.scan(one_partition((file,), ALL_KEYS, schema=SCHEMA), ["k", "v"], None).read_all()
    if found is not None:
        assert found.column("k").to_pylist() == [2 * n for n in range(ROWS)]
        assert found.column("v").to_pylist() == [f"v{n:07d}" for n in range(ROWS)]
