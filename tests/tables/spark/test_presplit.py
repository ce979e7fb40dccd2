"""Which partitions an import cuts before it, and where: samples of letters, each standing for some rows."""

import pytest

import lakebed
from lakebed.jobs.bulk_import.boundaries import WeightedKeys, choose_split_keys, full_partitions
from lakebed.jobs.bulk_import.importer import split_before
from lakebed.jobs.bulk_import.shuffle import whole_key
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.settings import Settings
from lakebed.upkeep.splitting.plan import LargePartition, SplitAt

SCHEMA = lakebed.Schema({"k": "string"}, {"s": "int32"}, {"v": "int64"})
WHOLE = whole_key(SCHEMA).codec


def key(letter):
    return SCHEMA.codec.encode((letter,))


def sample(text, weight=1.0):
    """Each letter stands for ``weight`` rows each time it occurs, with a sort key that counts on."""
    keys = sorted(WHOLE.encode((letter, place)) for place, letter in enumerate(text))
    return WeightedKeys(tuple(keys), (weight,) * len(keys))


def boundaries(text, parts, summaries=(), keys=ALL_KEYS):
    found = choose_split_keys(LargePartition(1, keys, 0, 0, 1, parts, ()), summaries, sample(text), SCHEMA.codec)
    return b"".join(found.keys).decode() if isinstance(found, SplitAt) else ""


@pytest.mark.parametrize(
    ("text", "parts", "expected"),
    [
        ("abcdefgh", 2, "e"),
        ("abcdefgh", 4, "ceg"),
        ("abcdefgh", 100, "bcdefgh"),
        ("abddddddgh", 3, "dg"),
        ("aaaaaaah", 4, "h"),
        ("aaaaaaaa", 4, ""),
    ],
    ids=["halves", "quarters", "no more than there are keys", "a hot key alone", "a hot key at the start", "one key"],
)
def test_a_partition_is_cut_evenly_and_never_within_a_row_key(text, parts, expected):
    assert boundaries(text, parts) == expected


def test_what_the_partition_holds_already_counts():
    held = Summary((key("a"), key("b")), (0, 4), 16, key("b"))
    assert boundaries("abcd", 2, [held]) == "b"


def test_only_the_leafs_own_keys_count():
    assert boundaries("abcdefgh", 2, keys=EncodedRange(key("e"), None)) == "g"


def state_of(tmp_path, *splits):
    instance = lakebed.create(tmp_path / "lake")
    return instance.create_table("t", SCHEMA, split_points=list(splits))


LIMITS = Settings(split_rows=300)


def test_only_partitions_that_would_be_too_large_are_cut(tmp_path):
    """a-d get 40 rows each, e-z one each: 160 rows below e, of a limit of 100; parts are three quarters full."""
    state = state_of(tmp_path, "e").state()
    keys = sample("abcd" * 10 + "efghij")
    found = full_partitions(state, WeightedKeys(keys.keys, (4.0,) * 40 + (1.0,) * 6), 1.0, Settings(split_rows=100))
    assert [(partition.partition, partition.parts) for partition in found] == [(1, 3)]


def test_bytes_make_a_partition_too_large_as_rows_do(tmp_path):
    state = state_of(tmp_path).state()
    keys = sample("abcdefghij" * 10)
    assert not full_partitions(state, keys, 1.0, Settings(split_bytes=1024))
    assert [partition.parts for partition in full_partitions(state, keys, 20.48, Settings(split_bytes=1024))] == [3]


def test_parts_are_no_finer_than_the_sample(tmp_path):
    state = state_of(tmp_path).state()
    assert [partition.parts for partition in full_partitions(state, sample("abcd" * 6, 1e6), 1.0, LIMITS)] == [3]
    assert not full_partitions(state, sample("abcd", 1e6), 1.0, LIMITS)


def test_rows_that_are_there_count_towards_the_limit(tmp_path):
    """200 rows and 200 more: too many for 300. Below a tenth of the limit there is no check."""
    table = state_of(tmp_path)
    table.write(rows("ab" * 100))
    assert [partition.parts for partition in full_partitions(table.state(), sample("cd" * 100), 1.0, LIMITS)] == [2]
    assert not full_partitions(table.state(), sample("c" * 99), 1.0, LIMITS)


def rows(text):
    import pyarrow as pa

    count = len(text)
    return pa.table({"k": list(text), "s": pa.array(range(count), pa.int32()), "v": list(range(count))})


def test_a_partition_with_an_open_job_is_left_alone(tmp_path):
    from lakebed.model.state.table_state import Job
    from lakebed.model.state.transactions import OpenJob

    table = state_of(tmp_path)
    table.write(rows("ab"))
    file = next(iter(table.state().files))
    table.commit(OpenJob(Job("j", EncodedRange(), (file,), "o", 60, 0)))
    assert not full_partitions(table.state(), sample("cd" * 200), 1.0, LIMITS)


def test_many_partitions_are_cut_by_one_commit(tmp_path):
    table = state_of(tmp_path, "c", "e")
    version = table.version
    assert split_before(table, table.state(), sample("abcdef" * 100), 1.0, Settings(split_rows=150)) == 3
    assert table.state().version == version + 1
    assert table.partitions().num_rows == 6


def test_cutting_commits_and_keeps_the_rows_of_the_partition(tmp_path):
    table = state_of(tmp_path, "x")
    table.write(rows("aabbxx"))
    assert split_before(table, table.state(), sample("bcdefghi" * 100), 1.0, LIMITS) == 1
    partitions = table.partitions()
    assert partitions.num_rows == 5
    assert sum(partitions.column("rows").to_pylist()) == 6
    assert split_before(table, table.state(), sample("bcdefghi" * 10), 1.0, LIMITS) == 0
