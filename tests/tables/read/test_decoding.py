"""Rows made of pages: any rows of any row groups of several files at once, against Arrow's own reading of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.files.parquet import page_decoder
from lakebed.files.parquet.footer import read_footer
from lakebed.files.parquet.open_files import OpenFile
from lakebed.files.parquet.page_decoder import CACHED_PAGES, DICTIONARY_SLICES, THREADS_BYTES, RowSlice, decoded
from lakebed.files.parquet.pages import PagedFile, Spans
from lakebed.files.parquet.read_cache import CacheKind, ReadCache, ReadStatistics
from tests.tables.read.cases import files_kept_in

SCHEMA = Schema({"k": "string"}, {"s": "int32"}, {"wide": "string", "few": "string", "late": "double"})
GROUP_ROWS = 1_000
FILES = 3
EVEN = [SCHEMA.by_name[name] for name in ("k", "s", "few", "late")]
"""Fields whose pages have as many rows as they may; those of ``wide`` are full before."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three files with their rows, pages of other sizes in each.

    The first has no ``late``, the second a dictionary, and the last is compressed otherwise.
    """
    folder = tmp_path_factory.mktemp("files")
    made = []
    for number in range(FILES):
        rows = (number + 1) * GROUP_ROWS
        random = np.random.default_rng(number)
        columns = {
            "k": [f"k{i:05}" for i in range(rows)],
            "s": pa.array(random.integers(0, 9, rows), pa.int32()),
            "wide": [None if i % 7 == 0 else random.bytes(120).hex() for i in range(rows)],
            "few": [f"v{i % 5}" for i in range(rows)],
            "late": random.random(rows),
        }
        fields = [field for field in SCHEMA.arrow if number or field.name != "late"]
        table = pa.table({field.name: columns[field.name] for field in fields}, pa.schema(fields))
        path = folder / f"{number}.parquet"
        pq.write_table(
            table,
            path,
            compression="snappy" if number == 2 else "zstd",
            row_group_size=GROUP_ROWS,
            max_rows_per_page=(70, 100, 128)[number],
            write_batch_size=32,
            data_page_size=8_000,
            use_dictionary=["few"] if number == 1 else False,
            write_page_index=True,
            write_page_checksum=True,
        )
        content = path.read_bytes()
        footer = read_footer(content[-8 - int.from_bytes(content[-8:-4], "little") :], SCHEMA, "file")
        made.append((path, footer, table))
    return made


def paged(path, footer, name, cache=None, statistics=None):
    opened = OpenFile(None, str(name), path.as_uri(), footer, path, None)
    return PagedFile(opened, SCHEMA, files_kept_in(cache), statistics)


def rows_of(draw):
    """A range of rows of a row group, or several, in order; never none."""
    ends = sorted(draw(st.sets(st.integers(0, GROUP_ROWS), min_size=2, max_size=2 * draw(st.integers(1, 4)))))
    if len(ends) < 4 and draw(st.booleans()):
        return range(ends[0], ends[-1])
    return Spans(np.array(ends[0 : 2 * (len(ends) // 2) : 2]), np.array(ends[1::2]))


def every(rows):
    return np.array(rows) if isinstance(rows, range) else rows.every()


@given(st.data())
def test_any_rows_of_any_columns_are_read_by_pages(files, data):
    names = data.draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True))
    along = data.draw(st.lists(st.sampled_from([name for name in SCHEMA.names if name not in names] or names)))
    slices, expected = [], []
    cache = ReadCache(data.draw(st.sampled_from([0, 1 << 16, 1 << 20])))
    for _ in range(data.draw(st.integers(1, 6) | st.integers(DICTIONARY_SLICES, DICTIONARY_SLICES + 2))):
        number = data.draw(st.integers(0, FILES - 1))
        path, footer, table = files[number]
        position = data.draw(st.integers(0, number))
        rows = rows_of(data.draw)
        file = paged(path, footer, number, cache)
        slices.append(RowSlice(file, position, footer.groups[position], rows))
        expected.append(table.take(pa.array(every(rows) + GROUP_ROWS * position)))
    along = [name for name in along if name not in names]
    wanted = pa.concat_tables([*expected, SCHEMA.arrow.empty_table()], promote_options="default")
    # Decoded, then from the cache as far as that has the pages.
    for _ in range(2):
        found = decoded(
            slices, [SCHEMA.by_name[name] for name in names], [SCHEMA.by_name[name] for name in dict.fromkeys(along)]
        )
        assert set(names) <= set(found) <= {*names, *along}
        for name, column in found.items():
            assert column.type == SCHEMA.by_name[name].type
            assert column.to_pylist() == wanted.column(name).to_pylist()
        assert cache.stats().size_bytes <= cache.stats().bytes_max


def test_columns_come_along_whose_pages_end_where_the_others_do(files):
    path, footer, _ = files[2]
    row_slice = RowSlice(paged(path, footer, 2), 0, footer.groups[0], range(60))
    fields = [SCHEMA.by_name[name] for name in ("s", "wide")]
    assert set(decoded([row_slice], [SCHEMA.by_name["k"]], fields)) == {"k", "s"}


def test_each_page_is_read_once(files):
    path, footer, _ = files[2]
    statistics = ReadStatistics()
    file = paged(path, footer, 2, statistics=statistics)
    row_slice = RowSlice(file, 1, footer.groups[1], Spans(np.array([1, 3, 130, 900]), np.array([2, 4, 140, 901])))
    assert decoded([row_slice], [SCHEMA.by_name["k"]])["k"].to_pylist()[:3] == ["k01001", "k01003", "k01130"]
    assert statistics.pages == 3


def test_pages_that_were_decoded_are_not_read_again(files, tmp_path):
    path, footer, table = files[1]
    cache, statistics = ReadCache(1 << 20), ReadStatistics()
    gone = tmp_path / "1.parquet"
    gone.write_bytes(path.read_bytes())
    first = paged(gone, footer, 1, cache)
    # Two pages, and one of them again; then all columns from the cache.
    decoded([RowSlice(first, 1, footer.groups[1], range(150, 250))], EVEN)
    gone.unlink()
    again = paged(gone, footer, 1, cache, statistics)
    for rows in (range(160, 170), range(199, 201), Spans(np.array([110, 290]), np.array([111, 300]))):
        found = decoded([RowSlice(again, 1, footer.groups[1], rows)], EVEN)
        expected = table.take(pa.array(every(rows) + GROUP_ROWS))
        assert all(found[field.name].to_pylist() == expected.column(field.name).to_pylist() for field in EVEN)
    assert (statistics.pages, statistics.size_bytes) == (5 * len(EVEN), 0)
    with pytest.raises(FileNotFoundError):
        decoded([RowSlice(again, 1, footer.groups[1], range(250, 350))], EVEN)


def test_columns_of_another_type_are_cached_as_they_are_stored(files):
    path, footer, table = files[1]
    cache = ReadCache(1 << 20)
    wider = Schema({"k": "string"}, {"s": "int64"}, {"wide": "string", "few": "string", "late": "double"})
    row_slice = RowSlice(paged(path, footer, 1, cache), 0, footer.groups[0], range(10))
    for schema in (SCHEMA, wider, SCHEMA):
        found = decoded([row_slice], schema.fields)
        assert found["s"].type == schema.by_name["s"].type
        assert found["s"].to_pylist() == table.column("s").to_pylist()[:10]


def test_each_cached_page_holds_its_own_rows_alone(files):
    path, footer, _ = files[1]
    cache = ReadCache(1 << 20)
    slices = [
        RowSlice(paged(path, footer, 1, cache), 1, footer.groups[1], range(at, at + 1)) for at in range(0, 1_000, 100)
    ]
    decoded(slices, EVEN)
    kept = [(value, size) for (kind, _), (value, size) in cache._entries.items() if kind is CacheKind.ROWS]
    assert len(kept) == 10 * len(EVEN)
    for column, size in kept:
        assert len(column) == 100
        assert column.nbytes <= column.get_total_buffer_size() < size


def test_a_read_of_many_pages_leaves_none_in_the_cache(files):
    path, footer, _ = files[1]
    cache = ReadCache(1 << 20)
    file = paged(path, footer, 1, cache)
    scattered = np.arange(0, 1_000, 100)
    for rows in (range(CACHED_PAGES * 100 + 1), Spans(scattered, scattered + 1)):
        decoded([RowSlice(file, 1, footer.groups[1], rows)], EVEN)
        assert not cache.stats().rows.entries
    decoded([RowSlice(file, 1, footer.groups[1], range(CACHED_PAGES * 100))], EVEN)
    assert cache.stats().rows.entries == CACHED_PAGES * len(EVEN)


def test_pages_of_many_cuts_are_decoded_as_one_row_group_but_for_those_with_dictionaries(files, monkeypatch):
    path, footer, table = files[1]
    made = []

    class Noting(page_decoder.ParquetReader):
        def open(self, *args, **options):
            super().open(*args, **options)
            made.append((set(self.schema_arrow.names), self.num_row_groups))

    monkeypatch.setattr(page_decoder, "ParquetReader", Noting)
    rows = [range(start, start + 50) for start in range(0, 100 * DICTIONARY_SLICES, 100)]
    slices = [RowSlice(paged(path, footer, 1), 1, footer.groups[1], one) for one in rows]
    found = decoded(slices, [SCHEMA.by_name[name] for name in ("k", "few")])
    assert sorted(made, key=str) == [({"few"}, len(slices)), ({"k"}, 1)]
    positions = [GROUP_ROWS + place for one in rows for place in one]
    assert all(column.equals(table.column(name).combine_chunks().take(positions)) for name, column in found.items())


def test_many_bytes_are_decoded_by_several_threads_to_the_same_rows(files):
    path, footer, table = files[2]
    slices = [
        RowSlice(paged(path, footer, 2), position, group, range(GROUP_ROWS))
        for position, group in enumerate(footer.groups)
    ]
    assert sum(group.size_bytes for group in footer.groups) > THREADS_BYTES
    found = decoded(slices, SCHEMA.fields)
    assert all(found[name].equals(table.column(name).combine_chunks()) for name in SCHEMA.names)


def test_a_page_index_that_makes_no_sense_is_an_error(files, tmp_path):
    path, footer, _ = files[1]
    (pages,) = paged(path, footer, 1).pages(0, footer.groups[0], (1,))
    offset, length = footer.groups[0].chunks[1].offset_index
    content = bytearray(path.read_bytes())
    broken = tmp_path / "broken.parquet"
    seen = 0
    for position in range(offset + 2, offset + length):
        content[position] ^= 1 << 6
        broken.write_bytes(content)
        content[position] ^= 1 << 6
        try:
            (found,) = paged(broken, footer, position).pages(0, footer.groups[0], (1,))
        except (OSError, ValueError):
            seen += 1
            continue
        assert len(found.offsets) == len(pages.offsets)
        assert list(found.first_rows) == sorted(set(found.first_rows))
        assert found.first_rows[-1] < GROUP_ROWS
    assert seen > length // 3


def test_a_flipped_bit_in_one_of_many_pages_is_an_error(files, tmp_path):
    path, footer, _ = files[1]
    content = bytearray(path.read_bytes())
    file = paged(path, footer, 1)
    (pages,) = file.pages(1, footer.groups[1], (1,))
    content[pages.offsets[3] + pages.lengths[3] - 5] ^= 1
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(content)
    slices = [
        RowSlice(paged(one, footer, name), 1, footer.groups[1], range(GROUP_ROWS))
        for one, name in ((path, "whole"), (broken, "broken"))
    ]
    assert decoded(slices[:1], [SCHEMA.by_name["k"]])
    with pytest.raises((OSError, pa.ArrowException)):
        decoded(slices, [SCHEMA.by_name["k"]])
