"""The change feed: applied to the rows at one version, it gives the rows at a later one."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import AddField, DropField, KeyRange, NotRetainedError, RenameField, Schema, UsageError, WidenField, clock
from lakebed.errors import Code
from lakebed.read.changes import feed as changes_feed
from lakebed.read.rows.row_stream import returned_stream
from lakebed.upkeep.retention.run import collect_garbage
from tests.raising import raises
from tests.tables.cases import compact_partition, rewritten
from tests.tables.changes.cases import NUMBERS, SCHEMA, TEXTS, Past, applied, counted, one_entry

KEYS = st.tuples(st.sampled_from(TEXTS), st.sampled_from(NUMBERS))
BOUNDS = st.none() | KEYS | KEYS.map(lambda key: key[:1])


@st.composite
def ranges(draw):
    """Ranges with some key: a removal of none is refused."""
    low, high = draw(BOUNDS), draw(BOUNDS)
    if low is not None and high is not None and SCHEMA.codec.encode(high) <= SCHEMA.codec.encode(low):
        low, high = high, low
    keys = KeyRange(low, high, max_inclusive=draw(st.booleans()))
    return KeyRange(low, high, max_inclusive=True) if SCHEMA.codec.encode_range(keys).empty else keys


WRITE = st.tuples(st.just("write"), st.integers(0, 2**32), st.sampled_from([1, 5, 60, 400]))
REMOVE = st.tuples(st.just("remove"), ranges())
RESTORE = st.tuples(st.just("restore"), st.integers(0, 6))
OTHERS = st.one_of(
    st.tuples(st.just("split"), KEYS),
    st.just(("join",)),
    st.tuples(st.just("compact"), st.integers(0, 7)),
    st.tuples(st.just("rewrite"), st.sampled_from(["false", "k = 'a'", "f = 1.5"]), st.sampled_from(["v", "'z'"])),
    st.just(("collect",)),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(WRITE),
        st.tuples(REMOVE),
        st.tuples(RESTORE),
        st.tuples(OTHERS),
        st.lists(st.one_of(WRITE, REMOVE, RESTORE), min_size=2, max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=9,
)
SOME = (
    "k IN ('a', 'b') AND n > 0 OR v = 'x'",
    lambda row: (row["k"] in {"a", "b"} and row["n"] > 0) or row["v"] == "x",
)


@pytest.mark.parametrize("held_bytes", [changes_feed.HELD_BYTES_MAX, 1], ids=["held", "streamed"])
@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(STEPS, st.sampled_from([0, 1000]), st.data())
def test_the_feed_between_two_versions_turns_the_rows_of_one_into_those_of_the_other(held_bytes, steps, history, data):
    """With keys whose rows are all held to be compared, and with keys of which no two batches are.

    From every version that is retained: with no history all that was collected is too old.
    """
    past = Past(history_s=history)
    for together in steps:
        past.do(*together)
    check(past, data, held_bytes)


def check(past, data, held_bytes):
    """The feeds among any three versions."""
    table = past.table
    earliest = table.state().earliest_retained_version
    for version in set(past.rows) & set(range(earliest)):
        with pytest.raises(NotRetainedError, match=f"those since version {earliest} are"):
            table.changes(version)
    versions = sorted(set(past.rows) - set(range(earliest)))
    a, b, c = sorted(data.draw(st.lists(st.sampled_from(versions), min_size=3, max_size=3)))

    def changes(*between, **how):
        schema, rows = changes_feed.changes(table.versions, *between, held_bytes_max=held_bytes, **how)
        return returned_stream(rows, schema).read_all()

    feed = changes(a, c)
    assert applied(past.rows[a], feed) == past.rows[c]
    parts = pa.concat_tables([changes(a, b), changes(b, c)])
    assert sorted(map(repr, parts.to_pylist())) == sorted(map(repr, feed.to_pylist()))
    assert_ordered(parts)
    assert_ordered(feed)
    if held_bytes > 1:
        assert_least(feed)
    where, holds = SOME
    some = changes(a, c, where=where)
    rows = [
        counted(of(table, version).filter(pa.array(map(holds, of(table, version).to_pylist()), pa.bool_())))
        for version in (a, c)
    ]
    assert applied(rows[0], some) == rows[1]


def assert_least(feed):
    """No version both deletes and inserts a row."""
    kinds = {}
    for row in feed.to_pylist():
        kind = row.pop("_change")
        if kind != "remove_range":
            kinds.setdefault(repr(row), set()).add(kind)
    assert all(len(found) == 1 for found in kinds.values())


def of(table, version):
    return table.at(version=version).to_arrow() if version else SCHEMA.arrow.empty_table()


def assert_ordered(feed):
    """By version; in a version first removed ranges, then rows by key; deletes of equal keys before inserts."""
    rows = feed.to_pylist()
    order = [
        (row["_version"], row["_change"] != "remove_range", (row["k"] or "").encode(), row["n"] or 0, row["s"] or 0)
        for row in rows
    ]
    assert order == sorted(order)


# -- what each version says -----------------------------------------------------------------------------------------

SMALL = Schema({"k": "string"}, {}, {"v": "int32"})


def rows(keys, value=1):
    return pa.table({"k": list(keys), "v": pa.array([value] * len(keys), pa.int32())})


@pytest.fixture
def table():
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", SMALL, split_points=["h", "p"])
    table.write(rows("abhiqz"))
    return table


def changes_of(table, since, until=None, **how):
    """The feed in short: version, change, key or range, value."""
    feed = table.changes(since, until, **how).read_all().to_pylist()
    return [
        (row["_version"], row["_change"], row["k"] if row["_range"] is None else row["_range"], row["v"])
        for row in feed
    ]


def inserts(version, keys, value=1):
    return [(version, "insert", key, value) for key in keys]


def test_writes_are_inserts_in_key_order(table):
    table.write(rows("zb", 2))
    assert changes_of(table, 0) == inserts(2, "abhiqz") + inserts(3, "bz", 2)
    assert changes_of(table, 1, 2) == inserts(2, "abhiqz")
    assert changes_of(table, 3) == changes_of(table, 0, 0) == changes_of(table, 2, 2) == []


def test_a_removal_is_its_ranges_and_reads_no_row(table):
    table.remove(KeyRange("b", "i"), KeyRange.prefix("z"))
    found = changes_of(table, 2)
    assert [(version, change, value) for version, change, _, value in found] == [(3, "remove_range", None)] * 2
    assert [json.loads(keys) for _, _, keys, _ in found] == [
        {"min": ["b"], "max": ["i"], "max_inclusive": False},
        {"min": ["z"], "max": ["z"], "max_inclusive": True},
    ]
    table.remove(KeyRange())
    assert [json.loads(keys) for _, _, keys, _ in changes_of(table, 3)] == [
        {"min": None, "max": None, "max_inclusive": False}
    ]


def test_compactions_splits_and_tags_are_no_changes(table):
    table.write(rows("ac", 2))
    for position in range(3):
        compact_partition(table, position)
    table.tag("here")
    table.set(runs_max=5)
    assert table.version > 8
    assert changes_of(table, 3) == []
    assert changes_of(table, 1) == inserts(2, "abhiqz") + inserts(3, "ac", 2)


def test_a_restore_says_what_came_back_and_what_went(table):
    table.remove(KeyRange("b", "i"))
    table.write(rows("cz", 2))
    for position in range(3):
        compact_partition(table, position)
    table.restore(version=2)
    version = table.version
    assert changes_of(table, version - 1) == [
        (version, "insert", "b", 1),
        (version, "delete", "c", 2),
        (version, "insert", "h", 1),
        (version, "delete", "z", 2),
    ]


def test_a_rewrite_says_which_rows_went_and_which_came(table):
    before = table.version
    version = rewritten(table, set={"v": "v + 6"}, where="k = 'i'", delete_where="k = 'q'").version
    assert sorted(changes_of(table, before)) == [
        (version, "delete", "i", 1),
        (version, "delete", "q", 1),
        (version, "insert", "i", 7),
    ]


def test_changes_of_one_entry_count_together(table):
    with one_entry(table):
        table.write(rows("bc", 2))
        table.remove(KeyRange("b", "c"))
        table.write(rows("b", 3))
    assert table.version == 3
    assert changes_of(table, 2) == [
        (3, "remove_range", '{"min": ["b"], "max": ["c"], "max_inclusive": false}', None),
        (3, "insert", "b", 3),
        (3, "insert", "c", 2),
    ]


def test_a_file_that_one_entry_adds_and_removes_in_part_gives_the_rest(table):
    before = table.to_arrow()
    with one_entry(table):
        table.write(rows("abcdefghij", 2))
        table.restore(version=2)
        table.write(rows("x", 3))
    assert changes_of(table, 2) == inserts(3, "x", 3)
    table.restore(version=2)
    assert table.to_arrow() == before
    assert changes_of(table, 3) == [(4, "delete", "x", 3)]


def test_ranges_columns_and_a_predicate_choose_what_is_read(table):
    table.write(rows("bz", 2))
    table.remove(KeyRange("b", "i"))
    keys = [KeyRange("a", "c"), KeyRange.prefix("z")]
    assert changes_of(table, 0, 3, ranges=keys) == inserts(2, "abz") + inserts(3, "bz", 2)
    assert [json.loads(row[2]) for row in changes_of(table, 3, ranges=keys)] == [
        {"min": ["b"], "max": ["c"], "max_inclusive": False}
    ]
    assert changes_of(table, 0, 3, where="v = 2 AND k > 'b'") == inserts(3, "z", 2)
    found = table.changes(2, 3, columns=["v"]).read_all()
    assert found.column_names == ["_version", "_change", "_range", "v"]
    assert found.column("v").to_pylist() == [2, 2]


def test_keys_that_only_older_files_have_are_not_read(table):
    table.write(rows("a", 2))
    assert changes_of(table, 2, where="k < 'b' OR k BETWEEN 'c' AND 'e'") == inserts(3, "a", 2)
    assert changes_of(table, 2, where="k IN ('b', 'h')") == []


def test_rows_are_those_of_the_last_schema(table):
    table.alter(RenameField("v", "w"), AddField("later", "string"), WidenField("w", "int64"))
    table.write(pa.table({"k": ["c"], "w": [2], "later": ["x"]}))
    feed = table.changes(0).read_all()
    assert feed.schema.names[3:] == ["k", "w", "later"]
    assert feed.schema.field("w").type == pa.int64()
    assert feed.column("later").to_pylist() == [None] * 6 + ["x"]
    assert table.changes(0, 2).schema.names[3:] == ["k", "v"]
    table.alter(DropField("w"))
    table.restore(version=2)
    assert table.changes(0).read_all().to_pylist()[-1] == {
        "_version": table.version, "_change": "delete", "_range": None, "k": "c", "later": "x",
    }  # fmt: skip


def test_every_column_is_nullable_and_the_first_three_say_what_happened(table):
    assert table.changes(0).schema == pa.schema(
        [
            pa.field("_version", pa.int64(), nullable=False),
            pa.field("_change", pa.string(), nullable=False),
            pa.field("_range", pa.string()),
            pa.field("k", pa.string()),
            pa.field("v", pa.int32()),
        ]
    )


def test_bounds_are_json_whatever_the_type_of_the_key():
    lake = lakebed.create(f"memory://{clock.random_token()}")
    schema = Schema({"d": "date32", "t": "timestamp[us, tz=UTC]", "b": "binary", "n": "int32"}, {}, {})
    table = lake.create_table("t", schema)
    key = (dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), b"\x00\xff", -3)
    table.write(pa.Table.from_pylist([dict(zip(schema.names, key, strict=True))], schema.arrow))
    table.remove(KeyRange(key, (dt.date(2026, 1, 3),), max_inclusive=True))
    (row,) = table.changes(2).read_all().to_pylist()
    assert json.loads(row["_range"]) == {
        "min": ["2026-01-02", "2026-01-02T03:04:05+00:00", "00ff", -3],
        "max": ["2026-01-04"],
        "max_inclusive": False,
    }


def test_memory_does_not_grow_with_the_rows():
    """Of 64 MiB of rows, in inserts and in a restore that compares them all, a few batches are held."""
    lake = lakebed.create(f"memory://{clock.random_token()}")
    schema = Schema({"k": "int64"}, {}, {"v": "string"})
    table = lake.create_table("t", schema, settings={"memory_limit_bytes": 64 * 2**20})
    count, parts = 300_000, 2
    for part in range(parts):
        keys = pa.array(range(part, count, parts))
        table.write(pa.table({"k": keys, "v": pa.array(["x" * 220] * len(keys))}))
    compact_partition(table, 0)
    table.restore(version=parts + 1)
    for since, until, rows_expected in ((1, parts + 1, count), (table.version - 1, table.version, 0)):
        base, most, rows_read = pa.total_allocated_bytes(), 0, 0
        for batch in table.changes(since, until):
            rows_read += batch.num_rows
            most = max(most, pa.total_allocated_bytes() - base)
        assert rows_read == rows_expected
        assert most < 32 * 2**20


# -- from where to where --------------------------------------------------------------------------------------------


def test_versions_are_named_by_number_tag_or_time(table):
    table.tag("monday", 2)
    table.write(rows("c", 2))
    time = table.log.entry_last_modified(2)
    version = table.version
    for since in (2, "2", "monday", time, time.isoformat()):
        assert changes_of(table, since) == inserts(version, "c", 2)
        assert changes_of(table, 1, since) == inserts(2, "abhiqz")


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ((3,), Code.VERSION_NOT_FOUND),
        ((-1,), Code.VERSION_NOT_FOUND),
        ((0, 3), Code.VERSION_NOT_FOUND),
        (("nothing",), Code.TAG_NOT_FOUND),
        ((2, 1), Code.ARGUMENT_INVALID),
        ((None,), Code.ARGUMENT_INVALID),
        ((True,), Code.ARGUMENT_INVALID),
        ((1.0,), Code.ARGUMENT_INVALID),
        ((dt.date(2026, 1, 1),), Code.ARGUMENT_INVALID),
        ((dt.datetime(2026, 1, 1),), Code.ARGUMENT_INVALID),  # noqa: DTZ001 - that is what is refused
    ],
)
def test_a_version_that_is_none_is_refused(table, named, code):
    with raises(code):
        table.changes(*named)


@pytest.mark.parametrize("how", [{"columns": ["x"]}, {"where": "x > 1"}, {"ranges": ["a"]}])
def test_what_the_table_does_not_have_is_refused(table, how):
    with raises(Code.ARGUMENT_INVALID, Code.COLUMN_UNKNOWN, Code.PREDICATE_INVALID):
        table.changes(0, **how)


def test_a_column_with_the_name_of_one_of_the_feed_is_refused_unless_it_is_left_out():
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", Schema({"k": "string"}, {}, {"_change": "string"}))
    table.write(pa.table({"k": ["a"], "_change": ["b"]}))
    with pytest.raises(UsageError, match="_change"):
        table.changes(0)
    assert table.changes(0, columns=["k"]).read_all().column("k").to_pylist() == ["a"]


# -- retention ------------------------------------------------------------------------------------------------------


def test_a_consumer_that_is_too_late_learns_from_which_version_it_can_start_again(table):
    table.set(history_s=0)
    table.write(rows("c", 2))
    compact_partition(table, 0)
    collect_garbage(table)
    with pytest.raises(NotRetainedError, match="are no longer retained") as caught:
        table.changes(2)
    assert caught.value.code == Code.VERSION_NOT_RETAINED
    earliest = caught.value.earliest_retained_version
    assert earliest == table.state().earliest_retained_version > 3
    with raises(Code.VERSION_NOT_RETAINED):
        table.changes(earliest - 1)
    then = table.at(version=earliest).to_arrow()
    table.write(rows("d", 3))
    assert applied(counted(then), table.changes(earliest).read_all()) == counted(table.to_arrow())


def test_files_that_are_deleted_while_the_stream_is_read_are_named(table):
    table.set(history_s=0)
    since = table.version
    table.write(rows("a", 2))
    with table.changes(since) as stream:
        compact_partition(table, 0)
        collect_garbage(table)
        with pytest.raises(NotRetainedError, match="are retained") as caught:
            stream.read_all()
    earliest = caught.value.earliest_retained_version
    assert changes_of(table, earliest) == []


def test_a_truncated_log_is_reported(table):
    """The earliest version that can be read is never below the log start."""
    table.set(history_s=0, log_s=0)
    for value in range(4):
        table.write(rows("a", value))
        collect_garbage(table)
    assert table.log.log_start() > 2
    with pytest.raises(NotRetainedError) as caught:
        table.changes(1)
    earliest = caught.value.earliest_retained_version
    assert earliest >= table.log.log_start()
    table.write(rows("b", 9))
    again = lakebed.open(table.storage.url).table("t")
    assert [row for row in changes_of(again, earliest) if row[1] == "insert"][-1] == (table.version, "insert", "b", 9)
