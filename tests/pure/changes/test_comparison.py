"""Two sorted streams of rows compared, batch by batch, against lists of rows."""

import math
import struct
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.read.changes import feed
from lakebed.read.changes.feed import differences
from lakebed.read.changes.plan import ChangeKind

SCHEMA = Schema(
    {"k": "string"},
    {"s": "int32"},
    {
        "f": "float64",
        "h": "halffloat",
        "t": "string",
        "l": pa.list_(pa.float64()),
        "m": pa.map_(pa.string(), pa.int32()),
        "d": pa.struct([("x", pa.int32())]),
    },
)
FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5, math.nan])
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["", "a", "a\0", "b", "é"]),
        "s": st.integers(-1, 1),
        "f": FLOATS,
        "h": st.sampled_from([None, 1.5]),
        "t": st.sampled_from([None, "", "x"]),
        "l": st.none() | st.lists(FLOATS, max_size=2),
        "m": st.sampled_from([None, [], [("x", 1)]]),
        "d": st.sampled_from([None, {"x": None}, {"x": 1}]),
    }
)
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=30)


def as_read(rows):
    """The rows as they come back from Arrow, in order."""
    return sorted(pa.RecordBatch.from_pylist(rows, SCHEMA.arrow).to_pylist(), key=order)


def order(row):
    return row["k"].encode(), row["s"]


def batches(rows, sizes, schema=SCHEMA):
    """The rows in batches of these sizes, over and over; some are empty."""
    begin, turn = 0, 0
    while begin < len(rows):
        size = sizes[turn % len(sizes)]
        yield pa.RecordBatch.from_pylist(rows[begin : begin + size], schema.arrow)
        if size == 3:
            yield pa.RecordBatch.from_pylist([], schema.arrow)
        begin, turn = begin + size, turn + 1


def found(before, after, sizes, codec, **how):
    rows = []
    for changed, kinds in differences(batches(before, sizes), batches(after, sizes[::-1]), codec, **how):
        rows += zip(map(ChangeKind, kinds.to_pylist()), changed.to_pylist(), strict=True)
    return rows


def nan(payload):
    """A NaN with other bits than Python's."""
    return struct.unpack("<d", (0x7FF8 << 48 | payload).to_bytes(8, "little"))[0]


def in_lists(column):
    return pa.ListArray.from_arrays(list(range(len(column) + 1)), column)


def in_structs(column):
    return pa.StructArray.from_arrays([column], ["x"])


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("inside", [lambda column: column, in_lists, lambda column: in_structs(in_lists(column))])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([0.0, -0.0, nan(1), nan(2)]),
        pa.array([0.0, -0.0], pa.float32()),
        pa.array([10**15, -(10**15)]).cast(pa.timestamp("s")),
        pa.array([1, 2]).cast(pa.timestamp("ns")),
    ],
)
def test_values_are_the_same_exactly_if_their_bits_are(values, inside, merged):
    """Also below lists and structs, and of times that Python does not have."""
    at = [index for index in range(len(values)) for _ in range(len(values))]
    others = list(range(len(values))) * len(values)
    rows = [inside(values.take(pa.array(places))) for places in (at, others)]
    schema = Schema({"k": "int64"}, values={"v": rows[0].type})
    sides = [pa.RecordBatch.from_arrays([pa.array(range(len(at))), column], schema=schema.arrow) for column in rows]
    for one in range(len(at)):
        before, after = (iter([side.slice(one, 1)]) for side in sides)
        changed = sum(len(kinds) for _, kinds in differences(before, after, schema.order, merged=merged))
        assert changed == (0 if at[one] == others[one] else 2)
    twice = [pa.concat_arrays([column.slice(1, 1)] * 2) for column in rows]
    doubled = [iter([pa.RecordBatch.from_arrays([pa.array([1, 1]), column], schema=schema.arrow)]) for column in twice]
    assert sum(len(kinds) for _, kinds in differences(*doubled, schema.order, merged=merged)) == 4


def test_values_with_a_null_type_inside_are_compared():
    """Arrow cannot view such a column as one of integers: null arrays would get another length."""
    past = [[{"n": None, "x": 1.0}, {"n": None, "x": 2.0}, {"n": None, "x": 4.0}]]
    schema = Schema({"k": "int64"}, values={"v": pa.list_(pa.struct({"n": pa.null(), "x": pa.float64()}))})
    for present, count in ((past, 0), ([past[0][:2]], 2)):
        before, after = (iter([pa.RecordBatch.from_pydict({"k": [1], "v": v}, schema.arrow)]) for v in (past, present))
        assert sum(len(kinds) for _, kinds in differences(before, after, schema.order, merged=True)) == count


@pytest.mark.parametrize("held_bytes", [feed.HELD_BYTES_MAX, 0])
@given(st.lists(ROWS, max_size=25), st.lists(ROWS, max_size=25), st.lists(ROWS, max_size=25), SIZES)
def test_rows_that_one_side_has_more_often_are_deletes_and_inserts(held_bytes, shared, gone, came, sizes):
    before, after = as_read(shared + gone), as_read(shared + came)
    changed = found(before, after, sizes, SCHEMA.order, merged=False, held_bytes_max=held_bytes)
    counts = {kind: Counter(repr(row) for one, row in changed if one is kind) for kind in ChangeKind}
    past, present = Counter(map(repr, before)), Counter(map(repr, after))
    assert past - counts[ChangeKind.DELETE] + counts[ChangeKind.INSERT] == present
    assert {kind for kind, _ in changed} <= {ChangeKind.DELETE, ChangeKind.INSERT}
    if held_bytes:
        assert counts[ChangeKind.DELETE] == past - present
        assert counts[ChangeKind.INSERT] == present - past
    keys = [(*order(row), kind) for kind, row in changed]
    assert keys == sorted(keys)


@given(st.lists(ROWS, max_size=25), st.lists(ROWS, max_size=25), SIZES)
def test_a_key_with_several_rows_is_never_an_update(past, present, sizes):
    """As a custom merge may give them."""
    before, after = as_read(past), as_read(present)
    changed = found(before, after, sizes, SCHEMA.codec, merged=True)
    several = {key for rows in (before, after) for key, count in Counter(r["k"] for r in rows).items() if count > 1}
    went = Counter(repr(row) for kind, row in changed if kind in (ChangeKind.DELETE, ChangeKind.UPDATE_BEFORE))
    came = Counter(repr(row) for kind, row in changed if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER))
    assert Counter(map(repr, before)) - went + came == Counter(map(repr, after))
    assert not [row for kind, row in changed if "UPDATE" in kind.name and row["k"] in several]


@given(st.lists(ROWS, max_size=25), st.lists(ROWS, max_size=25), SIZES)
def test_rows_of_a_key_that_differ_are_updates_where_a_key_has_one_row(past, present, sizes):
    before, after = ({row["k"]: row for row in as_read(rows)} for rows in (past, present))
    sides = [sorted(rows.values(), key=order) for rows in (before, after)]
    wanted = []
    for key in sorted({**before, **after}, key=str.encode):
        match before.get(key), after.get(key):
            case None, row:
                wanted.append((ChangeKind.INSERT, row))
            case row, None:
                wanted.append((ChangeKind.DELETE, row))
            case old, new if repr(old) != repr(new):
                wanted += [(ChangeKind.UPDATE_BEFORE, old), (ChangeKind.UPDATE_AFTER, new)]
    assert repr(found(*sides, sizes, SCHEMA.codec, merged=True)) == repr(wanted)


@pytest.mark.parametrize("same", [True, False])
def test_streams_are_read_as_far_as_they_are_compared(same):
    """A stream of many batches is not read before the first of its rows come."""
    read = {"before": 0, "after": 0}

    def many(name, value):
        for number in range(60):
            read[name] += 1
            yield pa.RecordBatch.from_pylist([{"k": f"{number:06d}", "s": 0, "t": value}], SCHEMA.arrow)

    ahead = []
    rows = differences(many("before", "x"), many("after", "x" if same else "y"), SCHEMA.order, merged=True)
    for count, _ in enumerate(rows, 1):
        ahead.append(max(read.values()) - count)
    assert read == {"before": 60, "after": 60}
    assert len(ahead) == (0 if same else 60)
    assert max(ahead, default=0) <= 2
