"""Both sides of the shuffle without Spark: pieces of map tasks, handed to reducers in all the ways Spark might."""

import contextlib
import random
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed import Aggregate, DamagedError, Error, First, KeepAll, Latest, Schema
from lakebed.files.parquet.sizes import gather
from lakebed.files.sorting.range_pieces import FileBytes
from lakebed.files.sorting.ranges import divide
from lakebed.files.sorting.sort import sort_runs
from lakebed.jobs.bulk_import.map_inputs import staged_chunks
from lakebed.jobs.bulk_import.shuffle import ACCOUNT, Shuffle, merge_pieces, send_pieces, settle, whole_key
from lakebed.jobs.executor import Root
from lakebed.jobs.this_thread import ThisThread
from lakebed.model.merge_modes import Custom
from lakebed.model.state.transactions import ProposeFiles
from lakebed.system import available_memory_bytes
from lakebed.write.run import check_rows, send_run

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "string"})
BOUNDS = [("h", 0), ("m", 40), ("m", 60)]
CUTS = [("b", 50), ("m", 0), ("m", 50), ("q", 0)]
REDUCERS = len(BOUNDS) + 1


@pytest.fixture
def table(tmp_path):
    return lakebed.create(tmp_path / "lake").create_table("t", SCHEMA, split_points=["f"])


@pytest.fixture
def shuffle(table):
    bounds, cuts = (tuple(whole_key(SCHEMA).codec.encode(bound) for bound in some) for some in (BOUNDS, CUTS))
    partitions = table.state().partitions.boundaries
    return Shuffle(Root(table.storage.url), table.id, "job-00001", table.layout(), 2**26, bounds, partitions, cuts=cuts)


def rows_of(seed, count=300):
    """Rows with ties in the whole key, and a hot key at which reducers part."""
    rng = random.Random(seed)
    rows = [(rng.choice("abhmz"), rng.randrange(100), f"{seed}-{i}") for i in range(count)]
    return pa.table(dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True)), schema=SCHEMA.arrow)


def sent_by(number, rows, shuffle):
    chunks = gather(rows.to_batches(max_chunksize=64), 2**31 - 1, 1000)
    return list(send_pieces(number, chunks, shuffle))


def test_a_chunk_has_texts_that_arrow_can_hold_in_one_piece_whatever_the_memory_limit(shuffle):
    """Their offsets have 32 bits. No byte of the texts is read here."""
    content = np.zeros(400 << 20, np.uint8)
    offsets = pa.py_buffer(np.array([0, len(content)], np.int32))
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(content)])
    row = pa.RecordBatch.from_arrays([pa.array(["k"]), pa.array([1]), text], schema=SCHEMA.arrow)
    chunks = list(replace(shuffle, memory_limit_bytes=2**40).chunks([row] * 5))
    assert [chunk.num_rows for chunk in chunks] == [2, 2, 1]


def received_by(reducer, sent):
    return [piece for piece in sent if piece.reducer == reducer]


def reduced(sent, shuffle, tmp_path):
    """What all reducers report on these pieces."""
    made = []
    for reducer in range(REDUCERS):
        scratch = tmp_path / f"reducer-{reducer}"
        scratch.mkdir()
        result = merge_pieces(reducer, received_by(reducer, sent), shuffle, scratch)
        if result is not None:
            made.append((reducer, result))
    return made


def sorted_rows(table):
    return table.sort_by([(name, "ascending") for name in SCHEMA.names])


def test_all_rows_arrive_once_in_files_that_at_most_touch(table, shuffle, tmp_path):
    inputs = {number: rows_of(number) for number in range(3)}
    sent = [row for number, rows in inputs.items() for row in sent_by(number, rows, shuffle)]
    random.Random(1).shuffle(sent)

    files = settle(dict.fromkeys(inputs, 300), reduced(sent, shuffle, tmp_path))
    assert len(files) == REDUCERS
    assert all(a.file.max_key <= b.file.min_key for a, b in pairwise(files))
    assert [new.run for new in files] == ["job-00001"] * REDUCERS

    table.commit(ProposeFiles(files))
    assert sorted_rows(table.scan().read_all()).equals(sorted_rows(pa.concat_tables(inputs.values())))
    assert table.partitions().column("exact").to_pylist() == [True, True]


def test_the_hot_key_is_shared_between_reducers(shuffle, tmp_path):
    """Where all rows are kept, a boundary may fall between the sort keys of one row key."""
    hot = pa.table({"k": ["m"] * 100, "n": range(100), "v": ["x"] * 100}, schema=SCHEMA.arrow)
    made = reduced(sent_by(0, hot, shuffle), shuffle, tmp_path)
    assert [(reducer, result.accounts[0].sent) for reducer, result in made] == [(1, 40), (2, 20), (3, 40)]


def test_a_map_task_computed_again_from_the_same_rows_is_the_same(shuffle, tmp_path):
    """Half of the reducers see the first attempt, half the second: that is what a lost block leads to."""
    first, second = (sent_by(0, rows_of(7), shuffle) for _ in range(2))
    mixed = [row for r in range(REDUCERS) for row in received_by(r, first if r % 2 else second)]
    assert sum(new.file.rows for new in settle({0: 300}, reduced(mixed, shuffle, tmp_path))) == 300


@pytest.mark.parametrize("seed", [8, 9])
def test_a_map_task_computed_again_with_other_rows_is_refused(shuffle, tmp_path, seed):
    """As many rows, so that counting would not find it."""
    first, second = sent_by(0, rows_of(7), shuffle), sent_by(0, rows_of(seed), shuffle)
    mixed = [row for r in range(REDUCERS) for row in received_by(r, first if r % 2 else second)]
    with pytest.raises(Error, match="ran twice and gave different rows"):
        settle({0: 300}, reduced(mixed, shuffle, tmp_path))


def test_a_second_attempt_that_sends_a_reducer_nothing_is_refused(shuffle, tmp_path):
    """That reducer has nothing to disagree with; the rows that are missing tell."""
    rows = rows_of(7)
    low = rows.filter(pa.compute.less(rows["k"], "h"))
    first, second = sent_by(0, rows, shuffle), sent_by(0, low, shuffle)
    with pytest.raises(Error, match="rows of map task 0"):
        settle({0: 300}, reduced(received_by(0, first) + received_by(3, second), shuffle, tmp_path))


def test_output_that_arrives_twice_is_refused(shuffle, tmp_path):
    sent = sent_by(0, rows_of(7), shuffle)
    with pytest.raises(Error, match="reached a reducer twice"):
        reduced(sent + sent, shuffle, tmp_path)


@pytest.mark.parametrize("lost", ["a piece", "the account", "everything for one reducer"])
def test_output_that_arrives_in_part_is_refused(shuffle, tmp_path, lost):
    sent = sent_by(0, rows_of(7), shuffle)
    kept = {
        "a piece": sent[1:],
        "the account": [piece for piece in sent if piece.chunk != ACCOUNT],
        "everything for one reducer": [piece for piece in sent if piece.reducer != 2],
    }[lost]
    with pytest.raises(Error, match=r"reached a reducer twice|arrived"):
        settle({0: 300}, reduced(kept, shuffle, tmp_path))


def test_a_piece_with_other_bytes_is_refused(shuffle, tmp_path):
    sent, other = (sent_by(0, rows_of(seed), shuffle) for seed in (7, 8))
    with pytest.raises(Error, match="nothing was imported"):
        reduced([other[0], *sent[1:]], shuffle, tmp_path)


def test_a_source_with_fewer_rows_than_its_footer_says_is_refused(shuffle, tmp_path):
    made = reduced(sent_by(0, rows_of(7), shuffle), shuffle, tmp_path)
    with pytest.raises(DamagedError, match="read 300 rows, but its sources declare 301"):
        settle({0: 301}, made)
    with pytest.raises(DamagedError, match="map task 1 read 0 rows"):
        settle({0: 300, 1: 5}, made)


def test_a_reducer_that_reports_twice_is_refused(shuffle, tmp_path):
    made = reduced(sent_by(0, rows_of(7), shuffle), shuffle, tmp_path)
    with pytest.raises(Error, match="reported twice"):
        settle({0: 300}, [*made, made[0]])


def test_parts_of_a_piece_arrive_in_any_order(shuffle, tmp_path):
    shuffle = replace(shuffle, part_bytes=500)
    sent = sent_by(0, rows_of(7), shuffle)
    assert len(sent) > 20
    random.Random(1).shuffle(sent)
    assert sum(new.file.rows for new in settle({0: 300}, reduced(sent, shuffle, tmp_path))) == 300


@pytest.mark.parametrize("compression", ["lz4", None])
def test_pieces_that_lie_on_disk_are_read_there(shuffle, tmp_path, compression):
    sent = sent_by(0, rows_of(7), replace(shuffle, part_bytes=2**31, compression=compression))
    path = tmp_path / "pieces"
    path.write_bytes(b"".join(piece.payload.to_pybytes() for piece in sent))
    begins = [0, *accumulate(piece.payload.size for piece in sent)]
    lying = [
        piece._replace(at=FileBytes(path, begin, piece.payload.size))
        for piece, begin in zip(sent, begins, strict=False)
    ]
    (scratch := tmp_path / "scratch").mkdir()
    made = reduced(lying, shuffle, scratch)
    assert not [*scratch.rglob("[0-9]*-*")]
    assert sum(new.file.rows for new in settle({0: 300}, made)) == 300


def test_pieces_on_local_disk_are_compressed_if_the_page_cache_has_no_room_for_them():
    exchange = ThisThread().exchange
    assert [exchange.compression(size) for size in (0, available_memory_bytes() // 11)] == [None, None]
    assert [exchange.compression(size) for size in (available_memory_bytes() // 9, 2**60)] == ["lz4", "lz4"]


def test_no_rows_make_nothing(shuffle, tmp_path):
    assert sent_by(0, rows_of(7).slice(0, 0), shuffle) == []
    assert settle({}, reduced([], shuffle, tmp_path)) == ()


def test_staged_rows_have_keys_of_whole_seconds_as_they_were(tmp_path):
    """Parquet has no seconds: as milliseconds nearly all of them lay above the reducers' boundaries, and a chunk of
    several pieces could not be joined.
    """
    schema = Schema({"at": "timestamp[s]"})
    table = lakebed.create(tmp_path / "lake").create_table("t", schema)
    rows = pa.record_batch([pa.array(range(100), pa.timestamp("s"))], schema=schema.arrow)
    run = sort_runs([rows], table.layout(), tmp_path, memory_limit_bytes=2**26)
    (staged,) = send_run(table.storage, table.id, run, job="job-00001")
    middle = (schema.codec.encode_key((rows["at"][50].as_py(),)),)
    shuffle = Shuffle(Root(table.storage.url), table.id, "job-00001", table.layout(), 2**26, middle, ())
    (chunk,) = staged_chunks(staged.file, shuffle)
    assert chunk.schema == schema.arrow
    assert [piece.num_rows for _, piece in divide(chunk, shuffle.ranges)] == [50, 50]


# -- merging --------------------------------------------------------------------------------------------------------

ROW_KEY_BOUNDS = [("b",), ("n",)]


def merged_by(mode, inputs, tmp_path):
    """The rows of an import by both sides of the shuffle, whose pieces arrive in any order."""
    table = lakebed.create(tmp_path / "merging").create_table("t", SCHEMA, merge=mode)
    bounds = tuple(whole_key(SCHEMA, mode).codec.encode(bound) for bound in ROW_KEY_BOUNDS)
    shuffle = Shuffle(Root(table.storage.url), table.id, "job-00001", table.layout(), 2**26, bounds, (), mode)
    sent = []
    for number, rows in enumerate(inputs):
        sent += send_pieces(number, gather(rows.to_batches(max_chunksize=64), 2**31 - 1, 1000), shuffle)
    random.Random(2).shuffle(sent)
    made = reduced(sent, shuffle, tmp_path)
    files = settle({number: rows.num_rows for number, rows in enumerate(inputs)}, made, mode)
    table.commit(ProposeFiles(files, base_version=table.version))
    return table.to_arrow().to_pylist()


@pytest.mark.parametrize("mode", [Latest(), Latest(by="sort_key"), First()], ids=["latest", "sort_key", "first"])
def test_rows_of_a_key_meet_in_one_reducer_in_the_order_of_map_tasks_and_rows(mode, tmp_path):
    inputs = [rows_of(seed) for seed in range(3)]
    held = {}
    for row in (row for rows in inputs for row in rows.to_pylist()):
        before = held.get(row["k"])
        if before is None or (mode == Latest() or (mode == Latest(by="sort_key") and row["n"] >= before["n"])):
            held[row["k"]] = row
    assert merged_by(mode, inputs, tmp_path) == [held[key] for key in sorted(held)]


def test_a_map_task_of_which_a_function_leaves_no_row_is_not_missed(tmp_path):
    numbers = pa.array(range(300), pa.int64())
    inputs = [rows_of(seed).set_column(1, SCHEMA.arrow.field("n"), numbers) for seed in range(2)]
    found = merged_by(Custom(sql="SELECT * FROM rows WHERE v LIKE '0-%'"), inputs, tmp_path)
    assert len(found) == 300
    assert {row["v"].partition("-")[0] for row in found} == {"0"}


@pytest.mark.parametrize(
    ("mode", "read", "written", "right"),
    [
        (KeepAll(), 3, 3, True), (KeepAll(), 3, 2, False), (KeepAll(), 3, 4, False), (Latest(), 3, 1, True),
        (Latest(), 0, 0, True), (Latest(), 3, 0, False), (First(), 3, 4, False), (Aggregate({"v": "last"}), 3, 3, True),
        (Custom(sql="SELECT * FROM rows"), 3, 0, True), (Custom(sql="SELECT * FROM rows"), 3, 4, False),
    ],
)  # fmt: skip
def test_rows_that_were_read_and_written_are_compared_as_the_mode_allows(mode, read, written, right):
    with (
        contextlib.nullcontext()
        if right
        else pytest.raises(lakebed.Error, match=f"{read} rows were read and {written}")
    ):
        check_rows(read, written, mode)
