"""The change feed of tables that merge rows: the inserts, updates and deletes of each version, however they came."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed import AddField, KeyRange, Latest, RenameField, SetFilter
from lakebed.model.row_kinds import RowKind
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.request import LIMITS, ReadLimits
from tests.tables.cases import compact_partition
from tests.tables.changes.cases import applied, counted, one_entry
from tests.tables.read.merging_tables import MODES, Change, MergingTable

KEYS = ["", "a", "ab", "b", "c", "é"]
WHOLE = st.fixed_dictionaries({"a": st.sampled_from([None, 1, 2]), "b": st.sampled_from([None, "x", "y"])})
PARTIAL = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([None]), max_size=2)
BOUND = st.none() | st.sampled_from(KEYS)


@st.composite
def files(draw, mode):
    """The changes of one file: of each key at most one, or by an aggregate one of each sort key."""
    keys = draw(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 2)), min_size=1, max_size=5, unique=True))
    if not mode.startswith("aggregate"):
        keys = list(dict(keys).items())
    kinds = list(RowKind) if mode.startswith("latest") else [RowKind.WHOLE]
    found = []
    for key, sort in keys:
        kind = draw(st.sampled_from(kinds))
        values = {} if kind is RowKind.DELETE else draw(PARTIAL if kind is RowKind.PARTIAL else WHOLE)
        found.append(Change(key, sort, values, kind))
    return found


def steps(mode):
    write, remove = st.tuples(st.just("write"), files(mode)), st.tuples(st.just("remove"), BOUND, BOUND)
    restore = st.tuples(st.just("restore"), st.integers(0, 5))
    others = st.one_of(
        st.tuples(st.just("split"), st.sampled_from(KEYS[1:])), st.tuples(st.just("compact"), st.integers(0, 3))
    )
    together = st.lists(st.one_of(write, remove, restore), min_size=2, max_size=4)
    return st.lists(st.one_of(write, write, remove, restore, others).map(lambda one: [one]) | together, max_size=8)


def do(made, what, *how):
    table = made.table
    match what:
        case "write":
            made.arrive(how[0])
        case "split":
            made.split(how[0])
        case "compact":
            compact_partition(table, how[0])
        case "remove":
            low, high = how
            if low is not None and high is not None and low.encode() >= high.encode():
                low, high = None, low
            table.remove(KeyRange(low, high or None))
        case "restore":
            version = max(1, table.state().version - how[0])
            table.restore(version=version)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(st.data())
def test_the_feed_between_two_versions_turns_the_rows_of_one_into_those_of_the_other(mode, data):
    made = MergingTable(MODES[mode])
    table = made.table
    for together in data.draw(steps(mode)):
        if len(together) > 1:
            with one_entry(table):
                for step in together:
                    do(made, *step)
        else:
            do(made, *together[0])
    newest = table.state().version
    a, b, c = sorted(data.draw(st.lists(st.integers(0, newest), min_size=3, max_size=3)))
    # Of a table so small all rows are read, unless keys are to be looked up always.
    rows_a_key = data.draw(st.sampled_from([-1, LIMITS.feed_rows_a_key]))
    keys = data.draw(st.sampled_from([1, 2, LIMITS.feed_keys]))
    table.reader.limits = ReadLimits(feed_keys=keys, feed_rows_a_key=rows_a_key)
    feed = table.changes(a, c).read_all()
    assert applied(rows_at(table, a), feed, ["k"]) == rows_at(table, c)
    parts = pa.concat_tables([table.changes(a, b).read_all(), table.changes(b, c).read_all()])
    assert parts == feed
    assert_least(feed, ["k"] if MODES[mode].one_row_per_key else ["k", "s"])
    for where in ("a = 1", "k > 'a'", "k IN ('', 'b') AND s > 0", "s = 1 AND k <> 'b'"):
        some = table.changes(a, c, where=where).read_all()
        assert applied(rows_at(table, a, where), some, ["k"]) == rows_at(table, c, where)


def rows_at(table, version, where=None):
    if not version:
        return counted(table.schema.arrow.empty_table())
    return counted(table.at(version=version).scan(where=where).read_all())


def assert_least(feed, key):
    """In a version a key was inserted, deleted, or has another row."""
    changes_of = {}
    for row in feed.to_pylist():
        version, kind, _ = (row.pop(name) for name in ("_version", "_change", "_range"))
        if kind != "remove_range":
            changes_of.setdefault((version, *(row[name] for name in key)), []).append((kind, row))
    for changes in changes_of.values():
        kinds, rows = zip(*changes, strict=True)
        assert kinds in {("insert",), ("delete",), ("update_before", "update_after")}
        assert len(rows) == 1 or rows[0] != rows[1]


# -- what each version says -----------------------------------------------------------------------------------------


@pytest.fixture
def latest():
    made = MergingTable(Latest())
    made.arrive([Change("a", 1, {"a": 1, "b": "x"}), Change("b", 1, {"a": 2, "b": "y"})])
    return made


def changes_of(table, since):
    """Version, change, key, and the values."""
    return [
        (row["_version"], row["_change"], row["k"], row["s"], row["a"], row["b"])
        for row in table.changes(since).read_all().to_pylist()
    ]


def test_upserts_partial_rows_and_deletes_are_inserts_updates_and_deletes(latest):
    latest.arrive([Change("a", 2, {"a": 5, "b": "x"}), Change("c", 1, {"a": 3, "b": None})])
    latest.arrive([Change("b", 1, {"a": 7}, RowKind.PARTIAL), Change("c", 0, {}, RowKind.DELETE)])
    latest.arrive([Change("nothing", 0, {}, RowKind.DELETE), Change("b", 1, {"a": 7, "b": "y"})])
    table = latest.table
    assert changes_of(table, 1) == [
        (2, "insert", "a", 1, 1, "x"),
        (2, "insert", "b", 1, 2, "y"),
        (3, "update_before", "a", 1, 1, "x"),
        (3, "update_after", "a", 2, 5, "x"),
        (3, "insert", "c", 1, 3, None),
        (4, "update_before", "b", 1, 2, "y"),
        (4, "update_after", "b", 1, 7, "y"),
        (4, "delete", "c", 1, 3, None),
    ]
    newest = table.version
    compact_partition(table, 0)
    assert changes_of(table, newest) == []


def test_an_update_of_other_columns_only_is_no_change(latest):
    latest.arrive([Change("a", 1, {"a": 5, "b": "x"})])
    rows = latest.table.changes(2, columns=["k", "b"]).read_all()
    assert rows.num_rows == 0
    assert latest.table.changes(2, columns=["a"]).read_all().column("a").to_pylist() == [1, 5]


def test_a_row_that_comes_to_fulfil_a_predicate_is_an_insert(latest):
    latest.arrive([Change("a", 1, {"a": 9, "b": "x"}), Change("b", 1, {"a": 1, "b": "y"})])
    found = latest.table.changes(2, where="a > 1").read_all()
    assert found.select(["_change", "k"]).to_pylist() == [
        {"_change": "insert", "k": "a"},
        {"_change": "delete", "k": "b"},
    ]


def test_writes_of_one_entry_are_one_step(latest):
    with one_entry(latest.table):
        latest.arrive([Change("a", 1, {"a": 5, "b": "x"}), Change("c", 1, {"a": 1, "b": None})])
        latest.arrive([Change("a", 1, {"a": 6, "b": "x"}), Change("c", 1, {}, RowKind.DELETE)])
    assert changes_of(latest.table, 2) == [(3, "update_before", "a", 1, 1, "x"), (3, "update_after", "a", 1, 6, "x")]


def test_keys_of_a_range_that_the_same_entry_removed_are_new(latest):
    with one_entry(latest.table):
        latest.table.remove(KeyRange.prefix("a"))
        latest.arrive([Change("a", 1, {"a": 1, "b": "x"}), Change("b", 1, {"a": 3, "b": "y"})])
    assert [row[1:3] for row in changes_of(latest.table, 2)] == [
        ("remove_range", None),
        ("insert", "a"),
        ("update_before", "b"),
        ("update_after", "b"),
    ]


def test_aggregates_are_updates_of_their_row():
    made = MergingTable(MODES["aggregate"])
    made.arrive([Change("a", sort, {"a": 1, "b": "x"}) for sort in range(3)])
    made.arrive([Change("a", 1, {"a": 5, "b": "y"}), Change("a", 7, {"a": 1, "b": "y"})])
    assert changes_of(made.table, 2) == [
        (3, "update_before", "a", 1, 1, "x"),
        (3, "update_after", "a", 1, 6, "y"),
        (3, "insert", "a", 7, 1, "y"),
    ]
    made.table.alter(RenameField("a", "total"), AddField("n", "int64", "max"))
    rows = made.table.changes(2, 3).read_all()
    assert rows.column("a").to_pylist() == [1, 6, 1]
    renamed = made.table.changes(2).read_all()
    assert renamed.column("total").to_pylist() == [1, 6, 1]
    assert renamed.column("n").to_pylist() == [None] * 3


def looked_up(table, since):
    """The changes since a version, for which the old rows of keys are looked up."""
    table.reader.limits = ReadLimits(feed_rows_a_key=-1)
    return table.changes(since).read_all()


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_come_do_not_stand_for_older_ones_that_count(mode):
    made = MergingTable(MODES[mode])
    made.arrive([Change("a", 2, {"a": 1, "b": "x"}), Change("b", 1, {"a": 2, "b": "y"})])
    made.arrive([Change("a", 1, {"a": 5, "b": None}), Change("b", 1, {"a": 6, "b": "z"}), Change("c", 0, {"a": 7})])
    table = made.table
    feed = looked_up(table, table.version - 1)
    assert applied(rows_at(table, table.version - 1), feed, ["k"]) == rows_at(table, table.version)


def test_rows_that_come_and_are_hidden_are_no_changes(latest):
    latest.table.alter(SetFilter("k <> 'a'"))
    latest.arrive([Change("a", 1, {"a": 9, "b": "x"}), Change("b", 1, {"a": 3, "b": "x"})])
    assert looked_up(latest.table, 3).column("k").to_pylist() == ["b", "b"]


def test_keys_are_looked_up_in_batches_by_the_size_of_their_rows(latest):
    asked = []
    latest.arrive([Change(f"k{n:02d}", 1, {"a": n, "b": "x" * 100}) for n in range(40)])

    class Counting(Reader):
        def get_many(self, state, keys, *how):
            asked.append(len(keys))
            return super().get_many(state, keys, *how)

    reader = latest.table.versions.reader = Counting(latest.table.storage, latest.table.id, lambda _: True)
    assert latest.table.changes(2).read_all().num_rows == 40
    assert asked == [], "forty of 44 rows are new"
    reader.limits = ReadLimits(feed_rows_a_key=-1)
    assert latest.table.changes(2).read_all().num_rows == 40
    assert asked == [40], "before: the rows after it are those that came"
    latest.arrive([Change("k07", 1, {}, RowKind.DELETE), Change("k08", 1, {"a": 1}, RowKind.PARTIAL)])
    del asked[:]
    assert latest.table.changes(3).read_all().num_rows == 3
    assert asked == [2, 2], "before and after: not all rows are whole"
    del asked[:]
    reader.limits = ReadLimits(feed_rows_a_key=-1, feed_keys_bytes=1000)
    assert latest.table.changes(2, 3).read_all().num_rows == 40
    assert max(asked) < 40
