"""Arrow files from a store are known to take no more than they may before anything of them is decompressed."""

import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from lakebed.errors import DamagedError, SchemaMismatchError
from lakebed.log.segments import batch_of, bytes_of
from lakebed.model.ipc import measured_batches, open_within
from lakebed.model.key_summaries import Summary
from lakebed.model.state.reference_lists import Claim, Sidecar, decode_references

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
    """The table as a file with a digest that is right, as in a summary that is made to deceive."""
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


# -- streams and files of others ----------------------------------------------------------------------------------


def dictionaries():
    """Batches whose dictionary grows, and then is replaced."""
    for values in (["a"], ["a", "b"], ["c", "d", "e"]):
        yield pa.record_batch({"d": pa.array(values * 3).dictionary_encode(), "n": range(3 * len(values))})


def of_others(folder, batches, *, file=False, compression=None, deltas=False):
    path = folder / ("x.arrow" if file else "x.arrows")
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=deltas)
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(path, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


def read(path, source=pa.memory_map, **how):
    with source(str(path)) as opened, measured_batches(opened, "x", **{"file": False} | how) as (columns, batches):
        return columns, list(batches)


@pytest.mark.parametrize("source", [pa.memory_map, pa.OSFile])
@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_stream_or_file_of_others_gives_what_arrow_reads_from_it(tmp_path, source, file, compression):
    nothing = pa.record_batch({"z": pa.array([], pa.null())})
    for batches in (ROWS.to_batches(max_chunksize=300), [*dictionaries()][:2], [nothing], [nothing, nothing]):
        path = of_others(tmp_path, batches, file=file, compression=compression, deltas=True)
        columns, found = read(path, source, file=file)
        assert columns == batches[0].schema
        assert pa.Table.from_batches(found, columns).equals(pa.Table.from_batches(batches))


def test_a_dictionary_that_is_replaced_counts_once(tmp_path):
    path = of_others(tmp_path, [*dictionaries()] * 3, compression="zstd")
    assert len(read(path, batch_bytes_max=900)[1]) == 9


@pytest.mark.parametrize(("source", "fits"), [(pa.memory_map, True), (pa.OSFile, False)])
def test_an_uncompressed_batch_counts_if_it_has_to_be_copied(tmp_path, source, fits):
    """What is mapped takes no memory until it is used."""
    path = of_others(tmp_path, [pa.record_batch({"n": range(1000)})])
    if fits:
        assert read(path, source, batch_bytes_max=4000)[1][0].num_rows == 1000
    else:
        with pytest.raises(SchemaMismatchError, match="a record batch decodes to 80"):
            read(path, source, batch_bytes_max=4000)


def test_a_file_whose_footer_lists_other_batches_is_damaged(tmp_path):
    batches = [pa.record_batch({"n": [number]}) for number in range(3)]
    path = of_others(tmp_path, batches, file=True)
    # The end of a stream in place of the last batch.
    data = path.read_bytes()
    third = data.rindex(b"\xff\xff\xff\xff", 0, data.rindex(b"\xff\xff\xff\xff\x00\x00\x00\x00"))
    path.write_bytes(data[: third + 4] + bytes(4) + data[third + 8 :])
    with pytest.raises(pa.ArrowInvalid, match="its footer lists 3 record batches, and it has 2"):
        read(path, file=True)


def test_a_stream_that_is_cut_anywhere_raises_what_arrow_raises(tmp_path):
    path = of_others(tmp_path, ROWS.to_batches(max_chunksize=500), compression="zstd")
    data = path.read_bytes()
    for end in [*range(0, 600, 7), *range(600, len(data) - 8, 311)]:
        path.write_bytes(data[:end])
        with pytest.raises((pa.ArrowInvalid, OSError)):
            read(path)


def test_a_stream_of_any_bytes_raises_what_arrow_raises(tmp_path):
    path = of_others(tmp_path, ROWS.to_batches(), compression="lz4")
    data, chance = path.read_bytes(), random.Random(3)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(3):
            changed[chance.randrange(600)] = chance.randrange(256)
        path.write_bytes(changed)
        with suppress(pa.ArrowException, OSError, SchemaMismatchError, ValueError):
            read(path)
