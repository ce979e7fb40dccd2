"""Where reducers divide the keys: samples of letters, each standing for some rows."""

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.jobs.bulk_import.boundaries import InputPart, WeightedKeys, divide, range_count, weigh
from lakebed.model.keys import successor

LETTERS = [bytes([c]) for c in b"abcdefghijklmnopqrst"]


def sample(text):
    """Each letter stands for a row each time it occurs."""
    return WeightedKeys(
        tuple(sorted({c.encode() for c in text})), tuple(float(text.count(c)) for c in sorted(set(text)))
    )


def cut(text, reducers, partitions=""):
    return b"".join(divide(sample(text), [c.encode() for c in partitions], reducers)).decode()


@pytest.mark.parametrize(
    ("rows", "reducers", "partitions", "expected"),
    [
        ("abcdefgh", 1, "", ""),
        ("abcdefgh", 2, "", "e"),
        ("abcdefgh", 4, "", "ceg"),
        ("aaaaaaah", 2, "", "h"),
        ("aaaaaaaa", 4, "", ""),
        ("", 4, "", ""),
        ("abcdefgh", 2, "f", "f"),
        ("abcdefgh", 2, "e", "e"),
        ("abcdefgh", 2, "bcdefgh", "e"),
        ("abcdefgh", 4, "e", "ceg"),
        ("abcdefgh", 1, "cde", ""),
        ("abcdefghijklmnop", 2, "bp", "bip"),
    ],
    ids=[
        "one reducer", "halves", "quarters", "a hot key ends a span", "one key", "no rows", "a boundary near by",
        "a boundary right there", "many small partitions make two spans", "two large partitions of two spans each",
        "one reducer whatever the partitions", "a large partition has spans of its own",
    ],
)  # fmt: skip
def test_spans_are_even_and_keep_to_partitions(rows, reducers, partitions, expected):
    assert cut(rows, reducers, partitions) == expected


def test_no_span_holds_much_more_than_its_share():
    """Over random rows and partitions; only one key, which cannot be cut here, may be more."""
    rng = random.Random(3)
    for _ in range(300):
        weights = [rng.choice([1.0, 1.0, 2.0, 5.0]) for _ in LETTERS]
        partitions = sorted(rng.sample(LETTERS[1:], rng.randrange(8)))
        reducers = rng.randrange(2, 8)
        cuts = divide(WeightedKeys(tuple(LETTERS), tuple(weights)), partitions, reducers)
        assert list(cuts) == sorted(set(cuts))
        edges = [b"", *cuts, b"~"]
        share = sum(weights) / reducers
        for low, high in pairwise(edges):
            held = sum(w for key, w in zip(LETTERS, weights, strict=True) if low <= key < high)
            assert held <= 2 * share + max(weights)


def test_samples_stand_for_the_rows_of_their_part():
    found = weigh([InputPart(100, (b"a", b"b")), InputPart(10, (b"b",))])
    assert dict(zip(found.keys, found.weights, strict=True)) == {b"a": 50.0, b"b": 60.0}


def test_a_part_of_unsorted_input_that_was_not_sampled_is_as_those_that_were():
    parts = [InputPart(100, (b"a", b"m", b"t")), InputPart(200, min=b"a", max=b"t"), InputPart(300)]
    assert weigh(parts).weights == pytest.approx((200.0, 200.0, 200.0))


def test_parts_of_sorted_input_that_were_not_sampled_stand_at_their_own_place():
    """Of ten parts in key order two are sampled; the bounds of the others still say where their rows lie."""
    parts = [
        InputPart(100, (LETTERS[2 * i], LETTERS[2 * i + 1]) if i in (2, 7) else (), LETTERS[2 * i], LETTERS[2 * i + 1])
        for i in range(10)
    ]
    assert divide(weigh(parts), [], 5) == (b"e", b"i", b"m", b"q")


def test_the_rows_of_a_part_go_to_samples_that_begin_as_its_bounds_do():
    """Bounds are of the first key field; samples of all of them."""
    found = weigh([InputPart(4, (b"a1", b"b1", b"b2", b"c1")), InputPart(2, min=b"b", max=b"b")])
    assert found.weights == (1.0, 2.0, 2.0, 1.0)


def weighed_one_by_one(parts):
    """What the sampled keys weigh, key by key."""
    weights = defaultdict(float)
    for part in parts:
        for key in part.keys:
            weights[key] += part.rows / len(part.keys)
    sampled = dict(weights)
    for part in parts:
        if part.keys or not part.rows:
            continue
        below = None if part.max is None else successor(part.max)
        within = [key for key in sampled if (part.min or b"") <= key and (below is None or key < below)]
        for key in within:
            weights[key] += part.rows / len(within)
        if not within and part.min is not None:
            weights[part.min] += part.rows
    return dict(weights)


KEY = st.binary(max_size=3)
PART = st.builds(
    lambda rows, keys, bounds: InputPart(rows, tuple(keys), *bounds),
    st.integers(0, 1000),
    st.lists(KEY, max_size=6),
    st.tuples(KEY, KEY).map(sorted) | st.just((None, None)) | KEY.map(lambda key: (key, None)),
)


@given(st.lists(PART, max_size=6))
def test_the_weight_of_each_key_is_that_of_a_sum_key_by_key(parts):
    found = weigh(parts)
    assert list(found.keys) == sorted(set(found.keys))
    wanted = weighed_one_by_one(parts)
    assert dict(zip(found.keys, found.weights, strict=True)) == pytest.approx(wanted)


def test_ranges_are_small_and_not_so_many_that_a_chunk_becomes_crumbs():
    """A range has 64 Ki rows or 4 MiB, and a batch of one range on average 2 KiB of each column."""

    def count(rows, size_bytes, columns, chunk_bytes=2**27):
        return range_count(rows, size_bytes, columns=columns, chunk_bytes=chunk_bytes)

    assert count(0, 0, 1) == count(10, 100, 10**6) == 1
    assert count(10 * 2**16, 2**20, 3) == count(5, 40 * 2**20, 3) == 10
    assert count(10**12, 2**50, 3) == count(10**12, 2**50, 64) == count(10**12, 2**50, 3, 2**24) == 1024
    assert count(10**12, 2**50, 128) == 512
    assert count(10 * 2**16, 2**20, 1024) == 10
    assert count(10**12, 2**50, 1024) == 64
    assert count(10**12, 2**50, 1024, 2**24) == 8
    assert count(10**12, 2**50, 10**6) == 1
