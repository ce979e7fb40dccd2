"""The change feed of tables that hide rows by a filter or by their age: what a version hides is no row of it."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import AgeOff, DropField, KeepAll, KeyRange, Latest, RenameField, Schema, SetFilter, UsageError, clock
from lakebed.model.state.transactions import ProposeCut, ProposeExpiry
from lakebed.read.rows.request import LIMITS, ReadLimits
from tests.tables.cases import compact_partition
from tests.tables.changes.cases import applied, counted, one_entry

SCHEMA = Schema({"k": "string", "at": "timestamp[us, tz=UTC]"}, {}, {"v": "int32"})
BY_VALUE = Schema({"k": "string"}, {}, {"at": "timestamp[us, tz=UTC]", "v": "int32"})
NOW = datetime.now(UTC)
HOUR_US = 3_600_000_000


def rows(schema, given):
    """Rows of a key, an age in hours (None: no time) and a value."""
    return pa.Table.from_pylist(
        [{"k": k, "at": None if age is None else NOW - timedelta(hours=age), "v": v} for k, age, v in given],
        schema.arrow,
    )


def age(hours):
    return AgeOff("at", hours=hours) if hours else AgeOff(None)


AGES = st.integers(0, 9)
WRITE = st.tuples(
    st.just("write"), st.lists(st.tuples(st.sampled_from("abc"), AGES, st.integers(0, 3)), min_size=1, max_size=6)
)
HIDE = st.one_of(
    st.tuples(st.just("filter"), st.sampled_from([None, "k <> 'a'", "k > 'a'"])),
    st.tuples(st.just("age"), st.sampled_from([None, 2, 4, 8])),
    st.tuples(st.just("cut"), st.integers(0, 6)),
)
CHANGE = st.one_of(WRITE, HIDE, st.just(("remove",)), st.tuples(st.just("restore"), st.integers(0, 4)))
QUIET = st.one_of(st.just(("expire",)), st.tuples(st.just("compact"), st.integers(0, 1)))
STEPS = st.lists(
    st.one_of(WRITE, HIDE, CHANGE, QUIET).map(lambda one: [one]) | st.lists(CHANGE, min_size=2, max_size=3),
    min_size=2,
    max_size=8,
)


def do(table, what, *how):
    match what:
        case "write":
            table.write(rows(table.schema, how[0]))
        case "filter":
            table.alter(SetFilter(how[0]))
        case "age":
            table.alter(age(how[0]))
        case "cut":
            table.commit(ProposeCut(int(NOW.timestamp()) * 1_000_000 + how[0] * HOUR_US))
        case "expire":
            table.commit(ProposeExpiry())
        case "compact":
            compact_partition(table, how[0])
        case "remove":
            table.remove(KeyRange(None, "b"))
        case "restore":
            table.restore(version=max(1, table.state().version - how[0]))


@pytest.mark.parametrize("merge", [KeepAll(), Latest()], ids=["keep all", "latest"])
@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(STEPS, st.data())
def test_the_feed_gives_the_rows_that_are_shown(merge, steps, data):
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", SCHEMA, split_points=["b"], merge=merge)
    for together in steps:
        try:
            if len(together) > 1:
                with one_entry(table):
                    for step in together:
                        do(table, *step)
            else:
                do(table, *together[0])
        except lakebed.RejectedError as refused:
            assert "age-off" in str(refused) or "filter" in str(refused)  # noqa: PT017 - some steps are
    newest = table.state().version
    a, b, c = sorted(data.draw(st.lists(st.integers(0, newest), min_size=3, max_size=3)))
    rows_a_key = data.draw(st.sampled_from([-1, LIMITS.feed_rows_a_key]))
    table.reader.limits = ReadLimits(feed_rows_a_key=rows_a_key)
    feed = table.changes(a, c).read_all()
    assert applied(rows_at(table, a), feed, ["k"]) == rows_at(table, c)
    parts = pa.concat_tables([table.changes(a, b).read_all(), table.changes(b, c).read_all()])
    assert parts == feed
    some = table.changes(a, c, where="v > 1").read_all()
    assert applied(rows_at(table, a, "v > 1"), some, ["k"]) == rows_at(table, c, "v > 1")


def rows_at(table, version, where=None):
    if not version:
        return counted(table.schema.arrow.empty_table())
    return counted(table.at(version=version).scan(where=where).read_all())


# -- what each version says -----------------------------------------------------------------------------------------


@pytest.fixture
def table():
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", BY_VALUE)
    table.write(rows(BY_VALUE, [("a", 1, 1), ("b", 5, 2), ("c", None, 3), ("d", 9, 4)]))
    return table


def changes_of(table, since):
    return [(row["_version"], row["_change"], row["k"]) for row in table.changes(since).read_all().to_pylist()]


def test_a_filter_hides_rows_by_deletes_and_shows_them_by_inserts(table):
    table.alter(SetFilter("v > 2"))
    table.write(rows(BY_VALUE, [("e", 1, 1), ("f", 1, 5)]))
    table.alter(SetFilter("v < 2 OR v > 3"))
    assert changes_of(table, 2) == [
        (3, "delete", "a"),
        (3, "delete", "b"),
        (4, "insert", "f"),
        (5, "insert", "a"),
        (5, "delete", "c"),
        (5, "insert", "e"),
    ]


def test_rows_that_grow_too_old_are_deletes_of_the_version_in_which_the_cut_rose(table):
    table.alter(AgeOff("at", hours=7))
    assert changes_of(table, 2) == [(3, "delete", "d")]
    table.commit(ProposeCut(int(NOW.timestamp()) * 1_000_000 + 4 * HOUR_US))
    assert changes_of(table, 3) == [(4, "delete", "b")]
    compact_partition(table, 0)
    table.write(rows(BY_VALUE, [("old", 100, 0)]))
    assert changes_of(table, 4) == []


def test_a_cut_in_one_entry_with_a_write_counts_with_it(table):
    table.alter(AgeOff("at", hours=7))
    with one_entry(table):
        table.write(rows(BY_VALUE, [("e", 1, 1), ("old", 6, 2)]))
        table.commit(ProposeCut(int(NOW.timestamp()) * 1_000_000 + 4 * HOUR_US))
    assert changes_of(table, 3) == [(4, "delete", "b"), (4, "insert", "e")]


def test_a_filter_over_a_field_of_another_name_is_refused_with_a_remedy(table):
    table.alter(SetFilter("v > 2"))
    filtered = table.version
    table.alter(SetFilter(None))
    table.alter(RenameField("v", "w"))
    with pytest.raises(UsageError, match="filter over the field v, which has been renamed or dropped"):
        table.changes(2).read_all()
    assert table.changes(2, filtered).read_all().num_rows == 2
    table.alter(DropField("w"))
    assert [change for _, change, _ in changes_of(table, filtered + 1)] == []
