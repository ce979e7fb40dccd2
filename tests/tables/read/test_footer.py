"""Bounds from statistics, page indexes and filters: always on the safe side, against Arrow's own reading of a file."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.errors import DamagedError
from lakebed.files.parquet.bloom_filters import HashedKey
from lakebed.files.parquet.footer import Fences, read_footer
from lakebed.files.parquet.open_files import OpenFile
from lakebed.files.parquet.pages import PagedFile
from lakebed.files.parquet.thrift import STOP, decode_struct, integer, struct, structs_head, text
from lakebed.model.keys import EncodedRange, successor
from tests.tables.read.cases import files_kept_in, parts_of

SCHEMA = Schema(
    {"a": "string", "b": "int64"}, {"s": "int32"}, {"v": "string", "n": pa.list_(pa.int64()), "w": "double"}
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Sorted rows in three row groups with pages of about 100 rows, one first field for the first 1,500 of them."""
    rows = [
        {
            "a": "hot" if i < 1500 else f"k{i // 200:02d}",
            "b": i - 1500,
            "s": i % 3,
            "v": "x" * (i % 50),
            "n": [i],
            "w": i / 7,
        }
        for i in range(3000)
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
    path = tmp_path_factory.mktemp("footer") / "file.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=1000,
        write_page_index=True,
        max_rows_per_page=100,
        write_batch_size=50,
        use_dictionary=["w"],
        compression="zstd",
        bloom_filter_options={"a": {"ndv": 1000, "fpp": 0.01}, "b": {"ndv": 1000, "fpp": 0.01}},
    )
    return path, table


def footer_of(path):
    content = path.read_bytes()
    return content[-8 - int.from_bytes(content[-8:-4], "little") :]


def test_row_groups_are_as_arrow_sees_them(file):
    path, _table = file
    footer = read_footer(footer_of(path), SCHEMA, "file")
    metadata = pq.read_metadata(path)
    assert [group.rows for group in footer.groups] == [1000, 1000, 1000]
    for index, group in enumerate(footer.groups):
        arrow = metadata.row_group(index)
        assert group.size_bytes == sum(arrow.column(i).total_compressed_size for i in range(arrow.num_columns))
        assert group.content_bytes == arrow.total_byte_size
        assert {SCHEMA.names[id - 1] for id in group.chunks} == {"a", "b", "s", "v", "w"}
        filters = group.chunks[SCHEMA.by_name["a"].id].bloom_filter
        assert filters == (arrow.column(0).bloom_filter_offset, arrow.column(0).bloom_filter_length)
    assert footer.names == {field.id: field.name for field in SCHEMA.fields}
    assert {footer.names[id] for id in footer.paged} == {"a", "b", "s", "v", "w"}


def test_a_start_has_as_many_fields_as_are_certain(file):
    path, _ = file
    footer = read_footer(footer_of(path), SCHEMA, "file")
    # The first group is all of one first field, the second begins with it and goes on.
    assert [group.start for group in footer.groups] == [("hot", -1500), ("hot",), ("k10",)]


def test_every_row_lies_between_the_fences(file):
    path, table = file
    footer = read_footer(footer_of(path), SCHEMA, "file")
    keys = SCHEMA.codec.encode_columns(table.select(["a", "b"])).to_pylist()
    for row in range(0, 3000, 37):
        one = EncodedRange(keys[row], keys[row] + b"\0")
        assert row // 1000 in footer.fences.reaching(one)
    for i, j in ((0, 0), (500, 501), (999, 1000), (1499, 1500), (0, 2999)):
        reaching = footer.fences.reaching(EncodedRange(keys[i], keys[j] + b"\0"))
        assert {i // 1000, j // 1000} <= set(reaching)


def test_pages_are_located_by_all_key_fields_under_a_hot_first_one(file):
    path, table = file
    footer = read_footer(footer_of(path), SCHEMA, "file")
    pages = PagedFile(OpenFile(None, "file", path.as_uri(), footer, path, None), SCHEMA, files_kept_in())
    keys = SCHEMA.codec.encode_columns(table.select(["a", "b"])).to_pylist()
    for row in range(0, 1000, 41):
        span = pages.key_pages(0, footer.groups[0]).rows(EncodedRange(keys[row], keys[row] + b"\0"), 1000, None)
        assert row in span.rows
        assert len(span.rows) <= 100
    for row in range(1000, 3000, 41):
        position = row // 1000
        span = pages.key_pages(position, footer.groups[position]).rows(
            EncodedRange(keys[row], keys[row] + b"\0"), 1000, None
        )
        assert row - 1000 * position in span.rows


def member_of(values):
    encoded = SCHEMA.codec.encode(values)
    return HashedKey(SCHEMA.row_key, values, EncodedRange(encoded, successor(encoded)))


def test_a_filter_knows_every_key_that_is_there_and_few_others(file):
    path, table = file
    footer = read_footer(footer_of(path), SCHEMA, "file")
    with path.open("rb") as stream:
        for row in range(0, 3000, 29):
            values = (table.column("a")[row].as_py(), table.column("b")[row].as_py())
            member = member_of(values)
            assert member.may_be_in(parts_of(stream), footer.groups[row // 1000], {})
        absent = [member_of((f"absent{i}", i)) for i in range(300)]
        passed = sum(m.may_be_in(parts_of(stream), group, {}) for m in absent for group in footer.groups)
    assert passed < 20


@pytest.mark.parametrize("cut", [0, 8, 9, 50, 200])
def test_a_footer_that_makes_no_sense_is_damage(file, cut):
    footer = footer_of(file[0])
    with pytest.raises(DamagedError, match=r"some\.parquet"):
        read_footer(footer[: len(footer) // 3][cut:], SCHEMA, "some.parquet")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_struct_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        assert isinstance(decode_struct(data), dict)


def test_what_is_encoded_is_decoded():
    inner = integer(3, 300) + STOP
    encoded = integer(1, 2, bits=32) + structs_head(1, 20) + inner * 20 + text(2, b"path") + struct(3, inner) + STOP
    found = decode_struct(encoded)
    assert found[1] == 2
    assert [each[3] for each in found[2]] == [300] * 20
    assert found[4] == b"path"
    assert found[7] == {3: 300, 0: inner}


parts = st.lists(st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=6)


@given(parts, st.binary(max_size=2))
def test_fences_ascend_and_leave_out_only_what_cannot_be(bounds, key):
    """Rows ascend through the parts; a part's range is any that holds its rows."""
    ranges = [EncodedRange(*sorted(b)) if b[1] is not None else EncodedRange(b[0], None) for b in bounds]
    fences = Fences.of(ranges)
    assert list(fences.starts) == sorted(fences.starts)
    assert list(fences.ends) == sorted(fences.ends)
    reaching = fences.reaching(EncodedRange(key, key + b"\0"))
    for position, own in enumerate(ranges):
        possible = (
            own.contains(key)
            and all(key >= before.min for before in ranges[:position])
            and all(after.max is None or key < after.max for after in ranges[position:])
        )
        assert not possible or position in reaching
