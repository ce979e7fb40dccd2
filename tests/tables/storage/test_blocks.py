"""A sealed file is a Parquet file that shows, block by block, whether its bytes are those that were written."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import Schema
from lakebed.files.parquet.footer import read_footer
from lakebed.storage import blocks
from lakebed.storage.blocks import BLOCK_BYTES, BlockList, Blocks

SCHEMA = Schema({"k": "int64"}, {}, {"v": "binary"})


@pytest.fixture
def path(tmp_path):
    """Some blocks; the last one is not whole."""
    found = tmp_path / "file.parquet"
    rows = pa.table({"k": range(1000), "v": [os.urandom(100) for _ in range(1000)]}, schema=SCHEMA.arrow)
    with pq.ParquetWriter(found, rows.schema, compression="none") as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({blocks.KEY: blocks.PLACEHOLDER, "other": "?" * 96})
    blocks.seal(found)
    return found


def listed(path):
    content = path.read_bytes()
    return read_footer(content[-8 - int.from_bytes(content[-8:-4], "little") :], SCHEMA, "file", len(content)).blocks


def opened(path):
    found = listed(path)
    offset, length = found.byte_range
    return Blocks(found, path.read_bytes()[offset : offset + length])


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def read(path, found, byte_range):
    with path.open("rb") as stream:
        return found.read(stream.fileno(), byte_range)


def test_a_sealed_file_is_read_by_any_parquet_reader(path):
    assert pq.read_table(path).num_rows == 1000
    assert listed(path).fits(path.stat().st_size, path.stat().st_size - sum(listed(path).byte_range))


def test_any_bytes_are_read_and_verified(path):
    content, found = path.read_bytes(), opened(path)
    end = listed(path).offset
    for byte_range in ((0, 10), (BLOCK_BYTES - 1, 2), (5, 3 * BLOCK_BYTES), (end - 7, 7)):
        assert read(path, found, byte_range) == content[byte_range[0] : sum(byte_range)]
        assert found.have_seen([byte_range])


@pytest.mark.parametrize("offset", [0, BLOCK_BYTES - 1, 2 * BLOCK_BYTES, -1])
def test_a_flipped_bit_is_seen_by_reads_of_its_block_and_by_no_other(path, offset):
    found, end = opened(path), listed(path).offset
    at = offset if offset >= 0 else end + offset
    flip(path, at)
    for block in range(-(-end // BLOCK_BYTES)):
        byte_range = (block * BLOCK_BYTES, min(10, end - block * BLOCK_BYTES))
        if block == at // BLOCK_BYTES:
            with pytest.raises(OSError, match="not what was written"):
                read(path, found, byte_range)
            assert not found.have_seen([byte_range])
        else:
            read(path, found, byte_range)
    with pytest.raises(OSError, match="not what was written"):
        found.verify_all(path)


def test_a_list_that_is_damaged_is_refused(path):
    flip(path, listed(path).offset + 3)
    with pytest.raises(OSError, match="block digests"):
        opened(path)


def test_the_list_of_another_file_is_ignored(path, tmp_path):
    """As when a program copies the metadata of what it read."""
    copy = tmp_path / "copy.parquet"
    rows = pq.read_table(path)
    with pq.ParquetWriter(copy, rows.schema) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({blocks.KEY: listed(path).to_text().decode()})
    assert listed(copy) is None


def test_a_file_that_ends_too_soon_is_an_error(path):
    found = opened(path)
    os.truncate(path, BLOCK_BYTES + 5)
    with pytest.raises(OSError, match="bytes at"):
        read(path, found, (BLOCK_BYTES, 10))


@pytest.mark.parametrize("text", [b"{}", b"[]", b"1", b"x", b'{"block_bytes":0,"offset":1,"digest":""}'])
def test_what_is_no_list_is_refused(text):
    with pytest.raises((ValueError, KeyError, TypeError)):
        BlockList.parse(text)
