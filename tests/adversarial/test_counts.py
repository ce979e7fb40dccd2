"""Counts with hot keys: exact counts are right, and the bounds of estimates hold, for any distribution of rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import KeyRange, Schema, clock
from lakebed.files.parquet.ranks import RankNotes
from lakebed.model.files import data_name
from lakebed.model.key_summaries import Summary, error_rows, even_cuts
from lakebed.model.keys import successor
from lakebed.model.state.transactions import ProposeSplit
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.splitting.run import join, split

SCHEMA = Schema({"user": "int64"}, {"at": "int64"}, {"v": "int64"})
SHARE = 0.001
"""The maximum error of an estimate for each end of a range, as a share of the rows of the file that it cuts."""


def zipf(rows, chance):
    return np.minimum(chance.zipf(1.4, rows), 5_000)


def all_equal(rows, chance):
    return np.full(rows, 7)


def two_values(rows, chance):
    return np.where(chance.random(rows) < 0.9, 3, 2_000)


def sequential(rows, chance):
    return np.arange(rows)


def groups_of_a_hundred(rows, chance):
    return np.arange(rows) // 100


def one_hot_among_many(rows, chance):
    """A quarter of the rows have one user; each of the others has its own."""
    return np.concatenate([np.arange(rows - rows // 4) * 2, np.full(rows // 4, rows | 1)])


def hot_at_both_ends(rows, chance):
    return np.concatenate([np.full(rows // 3, -9), np.arange(rows - 2 * (rows // 3)), np.full(rows // 3, rows)])


DISTRIBUTIONS = (
    zipf,
    all_equal,
    two_values,
    sequential,
    groups_of_a_hundred,
    one_hot_among_many,
    hot_at_both_ends,
)


def encoded(values):
    return [SCHEMA.codec.encode((int(value),)) for value in values]


def noted(values, chunk_rows, rows_estimate):
    """Return the summary of rows that come in chunks, with an estimate of their number from the first chunk."""
    notes = RankNotes(SCHEMA.codec, (), rows_estimate=rows_estimate)
    for begin in range(0, len(values), chunk_rows):
        notes.add(pa.table({"user": pa.array(values[begin : begin + chunk_rows], pa.int64())}))
    return notes.summary()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(DISTRIBUTIONS),
    st.sampled_from([1, 2, 1_000, 1_026, 2_049, 6_000, 40_000]),
    st.integers(0, 5),
    st.data(),
)
def test_a_rank_is_known_to_within_a_thousandth_however_rows_lie(distribution, rows, seed, data):
    """Also if a hot key continues from chunk to chunk, and if the stride had to be doubled."""
    values = np.sort(distribution(rows, np.random.default_rng(seed)))
    chunk_rows = data.draw(st.sampled_from([max(1, rows // 7), 3_001, rows]))
    summary = noted(values, chunk_rows, data.draw(st.sampled_from([1, chunk_rows])))
    keys = encoded(values)
    distinct = sorted(set(keys))
    asked = distinct[:: max(1, len(distinct) // 200)] + [key for key, _ in Counter(keys).most_common(20)]
    for key in [*asked, *(successor(key) for key in asked), distinct[-1], b"", distinct[-1] + b"\0"]:
        rank, (low, high) = bisect_left(keys, key), summary.bounds(key)
        assert low <= rank <= high
        assert abs(summary.rank(key)[0] - rank) <= max(1, SHARE * rows)
        assert summary.rank(key)[1] == (low == high)
    assert error_rows([summary]) <= max(1, 2 * SHARE * rows)
    assert Summary.from_ipc(summary.to_ipc(), "s") == summary


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_rows_of_a_hot_key_are_counted_exactly_by_the_summary_alone(distribution):
    values = np.sort(distribution(60_000, np.random.default_rng(1)))
    summary, keys = noted(values, 7_000, 7_000), encoded(values)
    hot = [key for key, count in Counter(keys).items() if count > SHARE * 2 * len(keys)]
    for key in hot:
        assert summary.bounds(key) == (bisect_left(keys, key),) * 2
        assert summary.bounds(successor(key)) == (bisect_right(keys, key),) * 2


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("count", [2, 7])
def test_cuts_by_summaries_are_as_even_as_the_keys_allow(distribution, count):
    """No part is empty, and none exceeds its share by more than a thousandth plus the rows of one key."""
    values = np.sort(distribution(60_000, np.random.default_rng(2)))
    summary, keys = noted(values, 60_000, 60_000), encoded(values)
    cuts = even_cuts([summary], count)
    ranks = [0, *(bisect_left(keys, cut) for cut in cuts), len(keys)]
    parts = np.diff(ranks)
    assert (parts > 0).all()
    hottest = max(Counter(keys).values())
    assert max(parts) <= len(keys) / count + hottest + 4 * SHARE * len(keys)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_keys_that_stand_for_rows_are_spread_over_the_rows(distribution):
    """These keys divide a read or an import among tasks: a hot key has its weight, and its successor has none."""
    values = np.sort(distribution(60_000, np.random.default_rng(4)))
    spread, keys = noted(values, 7_000, 7_000).spread(), encoded(values)
    assert len(spread) == 1025
    assert list(spread) == sorted(spread)
    for key, count in Counter(keys).most_common(30):
        assert abs(spread.count(key) / len(spread) - count / len(keys)) <= 4 * SHARE
    for place in range(0, len(spread), 100):
        assert abs(bisect_left(keys, spread[place]) - place * len(keys) / len(spread)) <= max(
            4 * SHARE * len(keys), Counter(keys)[spread[place]]
        )


@pytest.fixture
def table():
    instance = lakebed.create(f"memory://{clock.random_token()}")
    return instance.create_table("t", SCHEMA, settings={"split_rows": 8_000, "join_share": 0.3})


def write(table, users):
    count = len(users)
    table.write(pa.table({"user": pa.array(users, pa.int64()), "at": np.arange(count), "v": np.arange(count)}))


def check(table, truth):
    """Compare the rows of every partition, of the table and of ranges with the rows as written."""
    ordered = np.sort(truth)

    def rows_of(low, high):
        first = 0 if low is None else np.searchsorted(ordered, low)
        last = len(ordered) if high is None else np.searchsorted(ordered, high)
        return int(last - first)

    for partition in table.partitions().to_pylist():
        low, high = ((partition[sidecar] or {"user": None})["user"] for sidecar in ("min", "max"))
        assert not partition["exact"] or partition["rows"] == rows_of(low, high), partition
    count = table.count()
    assert count.rows_min <= len(truth) <= count.rows_max
    files = table.state().referenced().values()
    ends = 2 + 2 * sum(not exact for exact in table.partitions().column("exact").to_pylist())
    slack = ends * sum(max(1, SHARE * file.rows) for file in files)
    for low, high in ((3, 4), (7, 8), (None, 100), (2, 2_000), (501, None)):
        asked = KeyRange(None if low is None else (low,), None if high is None else (high,))
        count = table.count(asked)
        assert count.rows_min <= rows_of(low, high) <= count.rows_max
        assert abs(count.rows - rows_of(low, high)) <= slack
        assert table.count(asked, exact=True) == lakebed.Count(rows_of(low, high), exact=True)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_counts_stay_right_through_splits_removals_and_joins(table, distribution, small_summaries, tmp_path):
    """All counts are exact: at a cut of a partition, its files are read."""
    chance = np.random.default_rng(3)
    truth = np.array([], np.int64)
    for _ in range(3):
        users = distribution(6_000, chance)
        write(table, users)
        truth = np.concatenate([truth, users])
        split(table)
        check(table, truth)
    table.remove(KeyRange((100,), (700,)))
    truth = truth[(truth < 100) | (truth >= 700)]
    check(table, truth)
    table.remove(KeyRange((3,), (4,)))
    truth = truth[truth != 3]
    check(table, truth)
    table.set(split_rows=100_000)
    join(table)
    check(table, truth)

    def execute(tasks):
        return [run_merge_task(task, table.storage, tmp_path) for task in tasks]

    compact(table, prepare(table, "full"), execute, cores=1)
    check(table, truth)
    assert table.count() == lakebed.Count(len(truth), exact=True)
    assert all(table.partitions().column("exact").to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [1.2, 1.5, 2.0])
def test_millions_of_rows_of_few_users_are_counted_exactly(tmp_path, exponent):
    """Users far apart, so that the successor of no user is the prefix of another by chance."""
    table = lakebed.create(tmp_path / "lake").create_table("t", SCHEMA, settings={"split_rows": 2_000_000})
    truth = np.minimum(np.random.default_rng(1).zipf(exponent, 5_400_000), 1_000_000) * 1_000
    write(table, truth)
    for user, count in Counter(truth.tolist()).most_common(20):
        assert table.count(KeyRange((user,), (user + 1,))) == lakebed.Count(count, exact=True)
    check(table, truth)
    split(table)
    check(table, truth)
    table.remove(KeyRange((2_000,), (2_001,)))
    truth = truth[truth != 2_000]
    check(table, truth)
    assert table.count() == lakebed.Count(len(truth), exact=True)


def test_what_came_after_a_split_was_planned_is_marked_and_bounded(table, small_summaries):
    """A writer wins the race: its file is mapped onto partitions that it had not read, and its counts are estimates."""
    truth = np.concatenate([np.full(15_000, 50), np.arange(5_000)])
    write(table, truth)
    table.commit(ProposeSplit({1: tuple(encoded([40, 1_001]))}))
    assert not all(table.partitions().column("exact").to_pylist())
    check(table, truth)
    table.remove(KeyRange((40,), (1_001,)))
    truth = truth[(truth < 40) | (truth >= 1_001)]
    check(table, truth)
    split(table)
    check(table, truth)


def test_a_removal_next_to_damage_is_done_and_its_counts_are_marked(table):
    """The removal may be what repairs the table: the counts of an unreadable file stay estimates."""
    write(table, np.arange(40_000))
    (file,) = table.state().referenced().values()
    assert file.summarised
    name = data_name(table.id, file)
    data = bytearray(table.storage.get(name))
    data[100 : len(data) - file.footer_bytes] = bytes(len(data) - file.footer_bytes - 100)
    table.storage.replace(name, bytes(data))
    table.remove(KeyRange((20_001,), (30_001,)))
    assert table.partitions().column("exact").to_pylist() == [False, True, False]
    count = table.count()
    assert count.rows_min <= 30_000 <= count.rows_max
    assert table.get(25_000).num_rows == 0
