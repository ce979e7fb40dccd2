"""Arrow files from a store are known to take no more than they may before anything of them is decompressed."""

import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from lakebed.errors import DamagedError
from lakebed.log.segments import batch_of, bytes_of
from lakebed.model.ipc import open_within
from lakebed.model.key_summaries import Summary
from lakebed.state.reference_lists import Claim, Sidecar, decode_references

ROWS = pa.table(
    {
        "n": range(1000),
        "t": ["x" * 30] * 1000,
        "d": pa.array(["a", "b"] * 500).dictionary_encode(),
        "s": [{"l": [i, i]} for i in range(1000)],
    }
)


def written(table, compression=None):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def opened(data, bytes_max):
    return open_within(pa.BufferReader(data), bytes_max, "object 1")


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_file_gives_its_rows_if_they_take_what_they_may(compression):
    assert opened(written(ROWS, compression), 200_000).read_all().equals(ROWS)
    with pytest.raises(DamagedError, match=r"object 1 declares a decoded size of .* above the limit of 50000"):
        opened(written(ROWS, compression), 50_000)


def sealed(table):
    """The table as a file with a digest that is right, as whoever crafts a summary would have it."""
    empty = b"xxh3-128:" + b"?" * 32
    data = written(table.replace_schema_metadata({"lakebed.digest": empty}), "zstd")
    return data.replace(empty, b"xxh3-128:" + xxhash.xxh3_128_hexdigest(data).encode())


def test_a_bomb_is_refused_before_it_is_decompressed():
    table = pa.table({"n": np.zeros(30_000_000)})
    bomb, summary = written(table, "zstd"), sealed(table)
    assert len(bomb) < 50_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(DamagedError, match="decoded size of 240000000 bytes"):
        opened(bomb, 1_000_000)
    with pytest.raises(DamagedError, match="decoded size of 240000000 bytes"):
        batch_of(pa.BufferReader(bomb), "part 1")
    with pytest.raises(DamagedError, match="decoded size of 240000000 bytes"):
        Summary.from_ipc(summary, "summary 1")
    with pytest.raises(DamagedError, match="its digest differs"):
        Summary.from_ipc(bomb, "summary 1")
    with pytest.raises(DamagedError, match="decoded size of 240000000 bytes"):
        decode_references(Claim("s", references=2000, partitions=1, rows=1), {"s": bomb})
    assert pa.default_memory_pool().max_memory() == before


def test_a_footer_that_names_other_messages_is_not_followed():
    """Arrow's reader of files goes by the footer, which could lead past what was added up."""
    small, bomb = written(ROWS.slice(0, 1)), written(pa.table({"n": np.zeros(30_000_000)}), "zstd")
    assert opened(small + bomb, 100_000).read_all().num_rows == 1


def test_a_part_as_it_is_written_is_within_its_own_size():
    batch = ROWS.combine_chunks().to_batches()[0]
    data = bytes_of(batch)
    assert batch_of(pa.BufferReader(data), "part 1").equals(batch)
    assert isinstance(Sidecar(data, 1).data, bytes)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_whatever_bit_is_flipped_it_opens_or_is_damaged(compression):
    data = written(ROWS.slice(0, 20), compression)
    chance = random.Random(3)
    for _ in range(2000):
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        with suppress(DamagedError):
            opened(bytes(flipped), 100_000)
    for end in range(0, len(data), 7):
        with pytest.raises(DamagedError, match="object 1"):
            opened(data[:end], 100_000)
