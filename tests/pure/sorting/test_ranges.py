"""Rows divided by ranges of keys and sorted range by range, against Python's sort of keys encoded one by one."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.files.merging.row_merger import RowMerger
from lakebed.files.sorting.ranges import KeyRanges, divide, sorted_range
from lakebed.model.arrays import empty_batch
from lakebed.model.keys import KeyCodec, shortest_separator, successor
from lakebed.model.row_kinds import merge_schema
from tests.pure.test_keys import VALUES
from tests.soaked import chosen
from tests.tables.sorting.merge_rows import MODES, SCHEMA, WHOLE, as_batches, meaning

STEMS = ["", "user-", "https://example.com/items/", "a\x00b", "\x00" * 9]
"""Keys with these in front agree in more bytes than one word has, or have zeros that are escaped."""


def of_kind(kind: str) -> st.SearchStrategy[Any]:
    if kind == "string":
        return st.builds(str.__add__, st.sampled_from(STEMS), VALUES[kind])
    if kind == "binary":
        return st.builds(bytes.__add__, st.sampled_from([stem.encode() for stem in STEMS]), VALUES[kind])
    return VALUES[kind]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, list[tuple[Any, ...]]]:
    """A schema, and keys in order of arrival, among which few differ in few fields."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    sort_kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=2))
    schema = Schema(
        {f"r{index}": kind for index, kind in enumerate(kinds)},
        {f"s{index}": kind for index, kind in enumerate(sort_kinds)},
        {"n": "int64", "list": pa.list_(pa.string())},
    )
    pools = [draw(st.lists(of_kind(kind), min_size=1, max_size=5)) for kind in (*kinds, *sort_kinds)]
    keys = draw(st.lists(st.tuples(*map(st.sampled_from, pools)), max_size=60))
    return schema, keys


def sort_codec(schema: Schema) -> KeyCodec:
    return KeyCodec((*schema.row_key, *schema.sort_key))


def chunk_of(schema: Schema, keys: list[tuple[Any, ...]], begin: int, size: int) -> pa.Table:
    """Rows in batches of ``size``, numbered from ``begin`` in ``n``."""
    columns = [
        pa.array([key[index] for key in keys], schema.fields[index].type) for index in range(len(schema.sort_names))
    ]
    numbers = range(begin, begin + len(keys))
    columns += [
        pa.array(numbers, pa.int64()),
        pa.array([None if n % 3 else [str(n)] for n in numbers], pa.list_(pa.string())),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    return pa.Table.from_batches([batch.slice(at, size) for at in range(0, len(keys), size)], schema.arrow)


def bounds_of(draw: st.DrawFn, encoded: list[bytes]) -> tuple[bytes, ...]:
    """Keys that are there, what is just behind them, and separators between them."""
    distinct = sorted(set(encoded))
    bounds = {*distinct, *map(successor, distinct), *(shortest_separator(a, b) for a, b in pairwise(distinct))}
    possible = sorted(bound for bound in bounds if bound)
    return tuple(sorted(draw(st.lists(st.sampled_from(possible), unique=True, max_size=8)))) if possible else ()


@settings(max_examples=settings.default.max_examples * 5)
@given(cases(), st.data())
def test_the_sorted_ranges_one_after_another_are_the_sorted_rows(case, data):
    schema, keys = case
    codec = sort_codec(schema)
    encoded = [codec.encode(key) for key in keys]
    # KeyRanges are of row keys and sort keys, or of row keys alone.
    fields = data.draw(st.sampled_from([codec.fields, schema.row_key]))
    heads = [KeyCodec(fields).encode(key[: len(fields)]) for key in keys]
    ranges = KeyRanges(fields, bounds_of(data.draw, heads))

    pieces: dict[int, list[pa.RecordBatch]] = {number: [] for number in range(len(ranges))}
    size = data.draw(st.integers(1, 60))
    for begin in range(0, len(keys), size):
        chunk = chunk_of(schema, keys[begin : begin + size], begin, data.draw(st.integers(1, 60)))
        divided = list(divide(chunk, ranges))
        assert [number for number, _ in divided] == sorted(
            {bisect_right(ranges.cuts, head) for head in heads[begin : begin + size]}
        )
        for number, piece in divided:
            pieces[number].append(piece)
            arrived = piece.column("n").to_pylist()
            assert arrived == [
                n for n in range(begin, begin + chunk.num_rows) if bisect_right(ranges.cuts, heads[n]) == number
            ]

    # Rows may be a slice of others.
    begin = data.draw(st.integers(0, len(keys)))
    (rows,) = chunk_of(schema, keys, 0, len(keys) or 1).combine_chunks().to_batches() or [empty_batch(schema.arrow)]
    assert ranges.numbers(rows.slice(begin)).tolist() == [bisect_right(ranges.cuts, head) for head in heads[begin:]]

    found = [
        batch
        for number, parts in pieces.items()
        for batch in sorted_range(parts, schema, ranges.keys(number), batch_rows=data.draw(st.integers(1, 60)))
    ]
    wanted = sorted(range(len(keys)), key=encoded.__getitem__)
    assert [n for batch in found for n in batch.column("n").to_pylist()] == wanted
    assert [one for batch in found for one in batch.column("list").to_pylist()] == [
        None if n % 3 else [str(n)] for n in wanted
    ]
    assert all(batch.schema.equals(schema.arrow, check_metadata=True) for batch in found)


@pytest.mark.parametrize("mode", [mode for mode in MODES if not mode.keeps_all], ids=str)
@given(rows=st.lists(WHOLE, max_size=60), data=st.data())
def test_rows_with_equal_keys_are_merged_in_the_order_of_arrival(mode, rows, data):
    """The merge mode of a table takes the sorted ranges as one stream."""
    order = merge_schema(mode, SCHEMA, hidden=False)
    batches = as_batches(rows, data.draw(st.integers(1, 20)))
    heads = [key for batch in batches for key in SCHEMA.codec.encode_columns(batch).to_pylist()]
    ranges = KeyRanges(SCHEMA.row_key, bounds_of(data.draw, heads))
    pieces: dict[int, list[pa.RecordBatch]] = {number: [] for number in range(len(ranges))}
    for batch in batches:
        for number, piece in divide(pa.Table.from_batches([batch.cast(SCHEMA.arrow)]), ranges):
            pieces[number].append(piece)
    ordered = (
        batch
        for number, parts in pieces.items()
        for batch in sorted_range(parts, order, ranges.keys(number), batch_rows=data.draw(st.integers(1, 60)))
    )
    merged = RowMerger(mode, SCHEMA, complete=False).merge(ordered)
    assert [one for batch in merged for one in batch.to_pylist()] == meaning(mode, rows)


MANY = 70_000


def many(kind: str) -> tuple[Schema, list[tuple[Any, ...]]]:
    """So many keys that their words and positions do not fit one word together."""
    rng = random.Random(kind)
    one = lambda stem, high: f"{stem}{rng.randrange(high):016x}"  # noqa: E731 - a short form
    match kind:
        case "hex":
            return Schema({"k": "string"}, {"t": "int64"}, VALUE), [(one("", 2**62), n % 7) for n in range(MANY)]
        case "uneven":
            return Schema({"k": "string"}, {"t": "int64"}, VALUE), [
                (f"u{rng.randrange(2**20)}", n % 7) for n in range(MANY)
            ]
        case "prefix":
            return Schema({"k": "string"}, {}, VALUE), [(one("https://example.com/", 2**12),) for _ in range(MANY)]
        case "integer":
            return Schema({"k": "int64"}, {}, VALUE), [
                (rng.choice([-1, 1]) * rng.randrange(2**63),) for _ in range(MANY)
            ]
        case "composite":
            return Schema({"a": "string", "b": "int64"}, {}, VALUE), [
                ("ab"[n % 2], rng.randrange(2**62)) for n in range(MANY)
            ]
        case "one key":
            return Schema({"k": "string"}, {"t": "int64"}, VALUE), [
                ("the same", rng.randrange(2**40)) for _ in range(MANY)
            ]
        case "low bits":
            # Keys that differ in the last bits of a word, among others that use all of them.
            numbers = [rng.choice([0, 2**63, 2**64 - 8]) + rng.randrange(8) for _ in range(MANY)]
            return Schema({"k": "uint64"}, {"t": "bool"}, VALUE), [(n, rng.random() < 0.5) for n in numbers]
    raise AssertionError(kind)


VALUE = {"n": "int64", "list": pa.list_(pa.string())}


@pytest.mark.parametrize(
    "kind",
    chosen(
        ["hex", "uneven", "prefix", "integer", "composite", "one key", "low bits"],
        "uneven",
        "prefix",
        "composite",
        "one key",
    ),
)
def test_many_rows_are_sorted_stably(kind):
    schema, keys = many(kind)
    codec = sort_codec(schema)
    encoded = [codec.encode(key) for key in keys]
    wanted = sorted(range(MANY), key=encoded.__getitem__)
    ordered = [encoded[n] for n in wanted]
    cuts = tuple(sorted({ordered[at] for at in range(0, MANY, MANY // 100)}))
    # Rows may be a slice of others.
    (rows,) = chunk_of(schema, keys, 0, MANY).to_batches()
    numbers = KeyRanges(codec.fields, cuts).numbers(rows.slice(MANY // 2))
    assert numbers.tolist() == [bisect_right(cuts, key) for key in encoded[MANY // 2 :]]
    for ranges in (KeyRanges(codec.fields), KeyRanges(codec.fields, cuts)):
        pieces = list(divide(chunk_of(schema, keys, 0, MANY), ranges))
        assert [number for number, piece in pieces for _ in range(piece.num_rows)] == [
            bisect_right(ranges.cuts, key) for key in ordered
        ]
        found = [
            n
            for number, piece in pieces
            for batch in sorted_range([piece], schema, ranges.keys(number), batch_rows=MANY)
            for n in batch.column("n").to_pylist()
        ]
        assert found == wanted


@pytest.mark.parametrize("count", [255, 256, 257, 2**16 - 1, 2**16, 2**16 + 1])
def test_there_may_be_any_number_of_ranges(count):
    schema = Schema({"k": "int64"}, {}, VALUE)
    ranges = KeyRanges(schema.row_key, tuple(schema.codec.encode((number,)) for number in range(1, count)))
    keys = [(number,) for number in (count - 1, 0, count // 2, count + 5, 1, -7)]
    pieces = [(number, piece.column("k").to_pylist()) for number, piece in divide(chunk_of(schema, keys, 0, 9), ranges)]
    assert pieces == [(0, [0, -7]), (1, [1]), (count // 2, [count // 2]), (count - 1, [count - 1, count + 5])]
    assert len(ranges) == count
