"""The positions in the commit ids of a table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakebed.upkeep.follow.positions import GROUP, applied, commit_id

streams = st.integers(0, 50) | st.builds(lambda topic, at: topic * GROUP + at, st.integers(1, 9), st.integers(0, 3))
positions = st.dictionaries(streams, st.integers(0, 2**64), min_size=1, max_size=8)


@given(st.lists(positions, max_size=8))
def test_a_table_has_the_latest_position_of_each_stream(committed):
    ids = [commit_id("postgresql/7/lakebed_shop", one) for one in committed]
    latest = {}
    for one in committed:
        for stream, at in one.items():
            latest[stream] = max(at, latest.get(stream, 0))
    assert applied(ids, "postgresql/7/lakebed_shop") == (latest, 0)


def test_commit_ids_of_others_say_nothing():
    others = ["follow postgresql/7/lakebed_shop2 0@9", "follow postgresql/7/lakebed_shop 0@", "readings-0", "follow"]
    assert applied(others, "postgresql/7/lakebed_shop") == ({}, 0)


@given(st.lists(st.tuples(positions, st.integers(0, 3)), min_size=1, max_size=8))
def test_positions_of_the_newest_generation_count_alone(committed):
    ids = [commit_id("kafka/c/shop", *one) for one in committed]
    newest = max(generation for _, generation in committed)
    wanted = [commit_id("kafka/c/shop", one) for one, generation in committed if generation == newest]
    assert applied(ids, "kafka/c/shop") == (applied(wanted, "kafka/c/shop")[0], newest)
