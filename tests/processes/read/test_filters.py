"""Tables with a filter or an age-off: every interface shows the same rows, those that the filter has after a merge."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import AgeOff, Aggregate, KeyRange, Latest, Schema, SetFilter, clock
from lakebed.errors import Code, RejectedError, UsageError
from lakebed.model.state.transactions import ProposeCut, SetMerge
from tests.workers import in_process

SCHEMA = Schema(
    {"k": "string", "at": "timestamp[ms, tz=UTC]"},
    values={"n": "int64", "s": pa.field("s", pa.string(), nullable=True)},
)
NOW = datetime.now(UTC).replace(microsecond=0)


def rows(names, days, n=0):
    """A row for each name and age in days; ``n`` counts up."""
    pairs = [(name, NOW - timedelta(days=day)) for name in names for day in days]
    return pa.table(
        {
            "k": [name for name, _ in pairs],
            "at": [at for _, at in pairs],
            "n": list(range(n, n + len(pairs))),
            "s": [None if place % 3 else f"s{place}" for place in range(len(pairs))],
        },
        schema=SCHEMA.arrow,
    )


@pytest.fixture
def table(lake):
    return filled(lake)


def filled(lake):
    """A table of three files: two that overlap, with rows of all ages, and one of which all rows are old."""
    made = lake.create_table("t", SCHEMA, split_points=[("c",)])
    made.write(rows("abcdef", range(0, 60, 5)))
    made.write(rows("bcdx", range(0, 60, 7), n=1_000))
    made.write(rows("ae", range(50, 60), n=2_000))
    return made


FILTERS = {
    "predicate": ((SetFilter("n % 2 = 0 AND s IS NULL"),), lambda row: row["n"] % 2 == 0 and row["s"] is None),
    "key": ((SetFilter("k <> 'a'"),), lambda row: row["k"] != "a"),
    "null": ((SetFilter("s = 's0'"),), lambda row: row["s"] == "s0"),
    "age": ((AgeOff("at", days=30),), lambda row: row["at"] > NOW - timedelta(days=30)),
    "both": (
        (SetFilter("k > 'b'"), AgeOff("at", days=30)),
        lambda row: row["k"] > "b" and row["at"] > NOW - timedelta(days=30),
    ),
    "nothing": ((SetFilter("n < 0"),), lambda row: False),
}


@pytest.fixture(params=FILTERS)
def filtered(request, table):
    return with_filter(table, request.param)


@pytest.fixture(scope="module", params=FILTERS)
def only_read(request, tmp_path_factory):
    return with_filter(filled(lakebed.create(str(tmp_path_factory.mktemp("filtered") / "lake"))), request.param)


def with_filter(table, name):
    """The table with a filter, and the rows that it shows."""
    before = table.to_arrow()
    changes, shown = FILTERS[name]
    table.alter(*changes)
    return table, before.filter(pa.array(list(map(shown, before.to_pylist())), pa.bool_()))


def in_order(found):
    return found.select(SCHEMA.names).sort_by([("k", "ascending"), ("at", "ascending"), ("n", "ascending")])


def of_duckdb(found):
    """DuckDB has microseconds."""
    return pa.table(found).cast(SCHEMA.arrow)


def of_datafusion(table):
    context = datafusion.SessionContext()
    table.register(context, "t")
    return context.sql("SELECT * FROM t").to_arrow_table().cast(SCHEMA.arrow)


INTERFACES = {
    "scan": lambda table: table.scan().read_all(),
    "reverse": lambda table: table.scan(reverse=True).read_all(),
    "ranges": lambda table: table.scan(KeyRange(None, "c"), KeyRange("c")).read_all(),
    "where": lambda table: table.scan(where="n >= 0").read_all(),
    "to_arrow": lambda table: table.to_arrow(),
    "stream": pa.table,
    "pandas": lambda table: pa.Table.from_pandas(table.to_pandas(), SCHEMA.arrow, preserve_index=False),
    "polars": lambda table: table.to_polars().to_arrow().cast(SCHEMA.arrow),
    "lazy polars": lambda table: table.lazy_polars().collect().to_arrow().cast(SCHEMA.arrow),
    "duckdb": lambda table: of_duckdb(table.to_duckdb(connection=duckdb.connect()).to_arrow_table()),
    "datafusion": of_datafusion,
    "many": lambda table: table.get_many(
        pa.table(
            {
                name: rows("abcdefx", sorted({*range(0, 60, 5), *range(0, 60, 7), *range(50, 60)}))[name]
                for name in ("k", "at")
            }
        )
    ),
    "snapshot": lambda table: table.at(version=table.version).scan().read_all(),
}


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_interface_shows_the_same_rows(only_read, interface):
    table, expected = only_read
    assert in_order(INTERFACES[interface](table)).equals(in_order(expected))


def test_sql_shows_the_same_rows(filtered, lake):
    """Of a whole table the files are read by the statement; few rows are read before it."""
    _, expected = filtered
    assert in_order(lake.sql("SELECT * FROM t").read_all().cast(SCHEMA.arrow)).equals(in_order(expected))
    found = lake.sql("SELECT count(*) AS n, sum(n) AS total FROM t").read_all().to_pylist()
    assert found == [{"n": len(expected), "total": pc.sum(expected["n"]).as_py()}]
    some = lake.sql("SELECT n FROM t WHERE k = 'b' ORDER BY n LIMIT 3").read_all()["n"].to_pylist()
    assert some == sorted(row["n"] for row in expected.to_pylist() if row["k"] == "b")[:3]


def test_a_get_shows_the_same_rows(only_read):
    table, expected = only_read
    for row in rows("abcdefx", (0, 5, 7, 35, 50)).to_pylist():
        key = (row["k"], row["at"])
        wanted = [one for one in expected.to_pylist() if (one["k"], one["at"]) == key]
        assert in_order(table.get(*key)).to_pylist() == sorted(wanted, key=lambda one: one["n"])
        assert table.get(*key, columns=["s"]).column_names == ["s"]
        assert len(table.get(*key, columns=["s"])) == len(wanted)


def test_limits_count_visible_rows(only_read):
    table, expected = only_read
    for limit in (0, 1, 7, 1_000):
        assert table.scan(limit=limit).read_all()["k"].to_pylist() == expected["k"].to_pylist()[:limit]
        assert len(table.lazy_polars().head(limit).collect()) == min(limit, len(expected))


def test_counts_samples_and_prefixes_are_of_visible_rows(only_read):
    table, expected = only_read
    assert table.count(exact=True) == lakebed.Count(len(expected), exact=True)
    assert table.count(KeyRange("b"), exact=True).rows == sum(row["k"] >= "b" for row in expected.to_pylist())
    estimate = table.count()
    assert estimate.rows_min <= len(expected) <= estimate.rows_max
    names = sorted({row["k"] for row in expected.to_pylist()})
    assert table.prefixes(1)["k"].to_pylist() == names
    assert table.prefixes(1, limit=2)["k"].to_pylist() == names[:2]
    assert table.prefixes(1, KeyRange("b", "d"))["k"].to_pylist() == [name for name in names if "b" <= name < "d"]
    everything = set(map(str, expected.to_pylist()))
    for wanted in (0, 3, len(expected), len(expected) + 1):
        found = table.sample(wanted, seed=1)
        assert len(found) == min(wanted, len(expected))
        assert set(map(str, found.to_pylist())) <= everything
        assert len(set(map(str, found.to_pylist()))) == len(found)
    assert table.sample(3, seed=1).equals(table.sample(3, seed=1))


def test_explain_counts_visible_rows(only_read):
    table, expected = only_read
    assert table.explain().rows == len(expected)


def test_an_export_has_the_visible_rows(filtered, lake, tmp_path):
    _, expected = filtered
    for where in (None, "n < 1000"):
        folder = tmp_path / f"export-{where is None}"
        with in_process(lake) as pipeline:
            pipeline.export("t", str(folder), where=where)
        wanted = expected if where is None else expected.filter(pc.field("n") < 1000)
        files = list(folder.glob("*.parquet"))
        found = pa.concat_tables([pq.read_table(file) for file in files]) if files else SCHEMA.arrow.empty_table()
        assert in_order(found.cast(SCHEMA.arrow)).equals(in_order(wanted))


def test_a_snapshot_has_the_filter_of_its_version(filtered):
    table, expected = filtered
    before = table.version - 1
    everything = table.at(version=before).to_arrow()
    assert len(everything) > len(expected)
    table.alter(SetFilter(None), AgeOff(None))
    assert len(table.to_arrow()) == len(everything)
    assert table.at(version=before + 1).to_arrow().equals(expected)
    assert table.at(version=before).count().rows == len(everything)


def test_the_change_feed_takes_hidden_rows_away(filtered):
    table, expected = filtered
    with table.changes(since=1) as changes:
        found = changes.read_all().to_pylist()
    left: Counter[str] = Counter()
    for change in found:
        row = str({name: change[name] for name in SCHEMA.names})
        left[row] += 1 if change["_change"] == "insert" else -1
    assert +left == Counter(map(str, expected.to_pylist()))


# -- files --------------------------------------------------------------------------------------------------------


def test_files_are_handed_out_only_if_no_row_of_them_can_be_hidden(table):
    assert table.files().num_rows == 6
    table.alter(AgeOff("at", days=100))
    assert table.files().num_rows == 6
    table.alter(AgeOff("at", days=30))
    with pytest.raises(UsageError, match="may hide") as caught:
        table.files()
    assert caught.value.code is Code.FILTER_INVALID
    assert table.files(KeyRange("y")).num_rows == 0
    table.alter(AgeOff(None), SetFilter("n >= 0"))
    with pytest.raises(UsageError, match="may hide"):
        table.files()


def test_files_that_are_wholly_past_are_not_opened(table):
    table.alter(AgeOff("at", days=45))
    seen = table.explain()
    assert (seen.files_considered, seen.files_opened) == (6, 2)
    assert 6 * 12 + 4 * 9 <= table.count().rows_max <= 6 * 12 + 4 * 9 + 4  # an odd count is rounded up


# -- time ---------------------------------------------------------------------------------------------------------


def test_rows_hide_when_the_cut_rises_and_not_before(table):
    table.alter(AgeOff("at", days=30))
    expected = table.to_arrow()
    later = NOW + timedelta(days=10)
    version = table.commit(ProposeCut(int(later.timestamp() * 1_000_000)))
    kept = [row for row in expected.to_pylist() if row["at"] >= later - timedelta(days=30)]
    assert 0 < len(kept) < len(expected)
    assert table.to_arrow().to_pylist() == kept
    assert table.at(version=version - 1).to_arrow().equals(expected)


@pytest.mark.parametrize(
    ("kind", "unit", "ticks"),
    [
        ("timestamp[s]", "", lambda at: at.replace(tzinfo=None, microsecond=0)),
        ("timestamp[ms]", "", lambda at: at.replace(tzinfo=None)),
        ("timestamp[us, tz=Europe/Vienna]", "", lambda at: at),
        ("timestamp[ns]", "", lambda at: at.replace(tzinfo=None)),
        ("date32", "", lambda at: at.date()),
        ("int64", "us", lambda at: int(at.timestamp() * 1_000_000)),
        ("int64", "ms", lambda at: int(at.timestamp() * 1_000)),
        ("int32", "s", lambda at: int(at.timestamp())),
    ],
)
@pytest.mark.parametrize("place", ["key", "sort key", "value"])
def test_a_time_of_every_type_ages_off(lake, kind, unit, ticks, place):
    at = {"at": pa.field("at", lakebed.Schema({"at": kind}).arrow.field("at").type, nullable=place == "value")}
    schema = Schema(
        {"k": "string", **(at if place == "key" else {})},
        sort_key=at if place == "sort key" else {},
        values={"n": "int64", **(at if place == "value" else {})},
    )
    table = lake.create_table("aged", schema)
    ages = [1, 29, 31, 90]
    held = {"k": ["a"] * 4, "n": ages, "at": [ticks(NOW - timedelta(days=age)) for age in ages]}
    table.write(pa.table(held, schema=pa.schema([schema.arrow.field(name) for name in held])))
    if place == "value":
        table.write(pa.table({"k": ["b"], "n": [7]}))
    table.alter(AgeOff("at", days=30, unit=unit))
    nulls = [7] if place == "value" else []
    assert table.scan().read_all()["n"].sort().to_pylist() == sorted([1, 29, *nulls])
    assert sorted(table.get_many([("a",)])["n"].to_pylist()) == [1, 29] if place != "key" else True


@pytest.mark.parametrize("place", ["row key", "sort key"])
def test_the_greatest_integer_of_a_type_may_be_before_the_cut(lake, place):
    """A file of it alone was read as if the cut were that integer, which is not before itself."""
    groups = [{"at": "int32"}, {"k": "int64"}]
    schema = Schema(*(groups if place == "row key" else groups[::-1]), {"n": "int64"})
    table = lake.create_table("aged", schema)
    for at in (2**31 - 1, 2**31 - 2):
        table.write(pa.table({"k": [1], "at": pa.array([at], pa.int32()), "n": [7]}))
    table.alter(AgeOff("at", days=30, unit="ms"))
    assert table.scan().read_all().num_rows == table.count(exact=True).rows == 0


def test_a_date_stays_until_its_day_is_past(lake):
    table = lake.create_table("days", Schema({"k": "string"}, values={"day": "date32"}))
    days = [NOW.date() - timedelta(days=age) for age in (29, 30, 31, 32)]
    table.write(pa.table({"k": list("abcd"), "day": days}))
    table.alter(AgeOff("day", days=30))
    assert table.to_arrow()["k"].to_pylist() == ["a", "b"]


# -- merging tables -----------------------------------------------------------------------------------------------


def test_a_filter_applies_to_the_row_that_is_left_after_a_merge(lake):
    schema = Schema({"k": "string"}, sort_key={"at": "timestamp[us]"}, values={"n": "int64"})
    table = lake.create_table("latest", schema, merge=Latest(by="sort_key"))
    at = [(NOW - timedelta(days=age)).replace(tzinfo=None) for age in (40, 10, 50, 40)]
    table.write(pa.table({"k": ["a", "b"], "at": at[:2], "n": [1, 2]}))
    table.write(pa.table({"k": ["a", "b"], "at": at[2:], "n": [3, 4]}))
    table.alter(AgeOff("at", days=30), SetFilter("k <> 'z'"))
    assert table.to_arrow()["n"].to_pylist() == [2]
    assert table.get("a").num_rows == 0
    assert table.count(exact=True).rows == 1


def test_sleepers_example(lake):
    """Sums of counts, the last time seen, and old keys that go: an aggregate with an age-off by a key field."""
    schema = Schema({"key": "string", "day": "date32"}, values={"count": "int64", "last_seen": "int64"})
    table = lake.create_table("sleeper", schema, merge=Aggregate({"count": "sum", "last_seen": "max"}))
    today, old = NOW.date(), NOW.date() - timedelta(days=40)
    for seen in (1, 2, 3):
        table.write(pa.table({"key": ["a", "b"], "day": [today, old], "count": [1, 1], "last_seen": [seen, seen]}))
    table.alter(AgeOff("day", days=30))
    assert table.to_arrow().to_pylist() == [{"key": "a", "day": today, "count": 3, "last_seen": 3}]


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "predicate",
    [
        "n", "n + 1", "missing > 3", "at < now()", "random() > 0.5", "n > (SELECT 1)", "k IN (SELECT k FROM t)",
        "sum(n) > 3", "n >", "n > 3; DROP TABLE t", "row_number() OVER () > 3", "uuid() = k",
        "current_date > DATE '2020-01-01'",
    ],
)  # fmt: skip
def test_a_predicate_that_is_not_one_over_a_row_is_refused(table, predicate):
    before = table.version
    with pytest.raises(UsageError) as caught:
        table.alter(SetFilter(predicate))
    assert caught.value.code in (Code.PREDICATE_INVALID, Code.SQL_TOO_COMPLEX)
    assert table.version == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((AgeOff("n", days=1),), "unit"),
        ((AgeOff("s", days=1),), "timestamp, a date or an integer"),
        ((AgeOff("x", days=1),), "no field"),
        ((SetFilter("n > 3"), SetFilter("n > 4")), "one SetFilter"),
        ((SetFilter("n > 3"), lakebed.DropField("s")), "another call"),
        ((lakebed.DropField("s"), SetFilter("n > 3")), "AddField"),
        ((SetMerge(Latest()), SetFilter("n > 3")), "AddField"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(table, changes, said):
    with pytest.raises(UsageError, match=said):
        table.alter(*changes)


def test_a_filter_that_the_merge_mode_forbids_is_refused(lake):
    made = lake.create_table("aggregate", Schema({"k": "string"}, values={"n": "int64"}), merge=Aggregate({"n": "sum"}))
    with pytest.raises(RejectedError, match="key fields only") as caught:
        made.alter(SetFilter("n > 3"))
    assert caught.value.code is Code.FILTER_CHANGE_REJECTED


def test_a_filter_that_fails_on_a_row_says_so_and_can_be_ended(table):
    table.alter(SetFilter("1 / n > 0"))
    with pytest.raises(UsageError, match="1 / n") as caught:
        table.to_arrow()
    assert caught.value.code is Code.EXPRESSION_FAILED
    with pytest.raises(UsageError, match="1 / n"):
        table.get("a", rows("a", [0])["at"][0].as_py())
    table.alter(SetFilter(None))
    assert table.to_arrow().num_rows > 0


# -- what is visible is what the predicate has ----------------------------------------------------------------------


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(
    writes=st.lists(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 9)), min_size=1),
        min_size=1,
        max_size=4,
    ),
    predicate=st.sampled_from(
        ["n > 4", "k = 'b' OR n = 1", "k IN ('a', 'c')", "t < 5 AND n < 7", "n % 3 = 1", "k > 'd'"]
    ),
    limit=st.none() | st.integers(0, 9),
)
def test_visible_rows_are_those_of_the_predicate(writes, predicate, limit):
    table = lakebed.create(f"memory://{clock.new_id()}").create_table(
        "t", Schema({"k": "string"}, sort_key={"t": "int64"}, values={"n": "int64"}), split_points=["c"]
    )
    for write in writes:
        table.write(
            pa.table({"k": [k for k, _, _ in write], "t": [t for _, t, _ in write], "n": [n for *_, n in write]})
        )
    expected = table.scan(where=predicate, limit=limit).read_all()
    wanted = table.scan(where=predicate).read_all()
    table.alter(SetFilter(predicate))
    found = table.scan(limit=limit).read_all()
    assert len(found) == len(expected)
    assert found["k"].to_pylist() == expected["k"].to_pylist()
    for key in "abcd":
        assert table.get(key).sort_by("n")["n"].to_pylist() == sorted(
            r["n"] for r in wanted.to_pylist() if r["k"] == key
        )
    assert table.count(exact=True).rows == len(wanted)
    estimate = table.count(KeyRange("b"))
    assert estimate.rows_min <= sum(row["k"] >= "b" for row in wanted.to_pylist()) <= estimate.rows_max
