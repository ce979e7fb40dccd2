"""The prefixes of a table, found without reading its rows, and removals of some of them."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed import BadKeyError, KeyRange, Schema, UsageError, clock
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.request import ReadLimits

SCHEMA = Schema({"city": "string", "day": "date32", "n": "int64"}, {}, {"v": "int64"})
CITIES = ["Bonn", "Köln", "Mainz", "Trier", "Ulm"]
DAYS = [dt.date(2026, 1, day) for day in range(1, 31)]
EACH = 20


@pytest.fixture
def table():
    """Two files with 20 rows a city and day each, and partition boundaries inside a city and inside a day."""
    points = [("Köln", DAYS[3]), ("Trier", DAYS[7], EACH // 2)]
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", SCHEMA, split_points=points, settings={"page_rows": 100, "row_group_rows": 1000})
    keys = [(city, day, n) for city in CITIES for day in DAYS for n in range(EACH)]
    for file in range(2):
        table.write(
            pa.Table.from_pylist([dict(zip(SCHEMA.names, (*key, file), strict=True)) for key in keys], SCHEMA.arrow)
        )
    return table


def cities(table, *ranges, **how):
    return table.prefixes(1, *ranges, **how).column("city").to_pylist()


def test_each_prefix_is_there_once_in_key_order(table):
    assert cities(table) == CITIES
    assert [tuple(row.values()) for row in table.prefixes(2).to_pylist()] == [(c, d) for c in CITIES for d in DAYS]
    assert table.prefixes(3).num_rows == len(CITIES) * len(DAYS) * EACH
    assert table.prefixes(2).schema == pa.schema(list(SCHEMA.arrow)[:2])


def test_ranges_and_a_limit_narrow_them(table):
    assert cities(table, limit=2) == CITIES[:2]
    assert cities(table, limit=0) == []
    assert cities(table, KeyRange("C", "Mainz"), KeyRange.prefix("Ulm", DAYS[-1])) == ["Köln", "Ulm"]
    assert cities(table, KeyRange(("Köln", DAYS[-1], EACH), ("Mainz",))) == []
    assert table.prefixes(2, KeyRange(("Bonn", DAYS[28], 5), ("Köln", DAYS[0], 1))).column("day").to_pylist() == [
        DAYS[28],
        DAYS[29],
        DAYS[0],
    ]


def test_a_range_may_begin_with_the_first_key_of_a_page(table):
    """Partitions do, as splits choose such keys. A page has the rows of five days."""
    assert cities(table, KeyRange(("Mainz", DAYS[0]), None)) == CITIES[2:]


def test_removed_rows_do_not_count_and_older_versions_still_show_them(table):
    before = table.version
    table.remove(KeyRange.prefix("Mainz"), KeyRange(("Ulm", DAYS[1]), None))
    assert cities(table) == ["Bonn", "Köln", "Trier", "Ulm"]
    assert table.prefixes(2, KeyRange.prefix("Ulm")).column("day").to_pylist() == DAYS[:1]
    assert cities(table.at(version=before)) == CITIES
    table.remove(KeyRange())
    assert cities(table) == []


def test_pages_of_a_prefix_that_is_known_are_not_read(table):
    """6,000 rows are in 60 pages of a column; one or two of each city and file are decoded."""
    read = []

    class Noting(Reader):
        def paged(self, file, schema):
            read.append(super().paged(file, schema))
            return read[-1]

    table.versions.reader = Noting(table.storage, table.id, lambda _: True)
    table.reader.limits = ReadLimits(prefix_skipped=0)
    assert cities(table) == CITIES
    assert 0 < sum(paged.statistics.pages for paged in read) <= 2 * 2 * (len(CITIES) + 2)


@pytest.mark.parametrize("depth", [0, 4, -1, True, 1.0, "1", None])
def test_a_depth_that_the_key_does_not_have_is_refused(table, depth):
    with pytest.raises(UsageError, match=r"depth = .* from 1 to 3, .*city, day, n"):
        table.prefixes(depth)
    with pytest.raises(UsageError, match="depth"):
        table.remove(choose=lambda found: found, depth=depth)


# -- removals by prefix -----------------------------------------------------------------------------------------------


def test_prefixes_are_removed_in_one_entry(table):
    before = table.version
    assert table.remove(prefix="Bonn") == before + 1
    assert table.remove(KeyRange(None, "C"), prefix=[("Ulm", DAYS[0]), "Köln"]) == before + 2
    assert cities(table) == ["Mainz", "Trier", "Ulm"]
    assert table.prefixes(2, KeyRange.prefix("Ulm")).column("day").to_pylist() == DAYS[1:]
    assert table.count().rows == 2 * EACH * (2 * 30 + 29)


@pytest.mark.parametrize(
    "choose",
    [
        lambda found: [city > "Köln" for city in found.column("city").to_pylist()],
        lambda found: np.array(found.column("city")) > "Köln",
        lambda found: pa.array([False, False, True, True, True]),
        lambda found: found.slice(2),
        lambda found: ["Mainz", ("Trier",), "Ulm"],
        lambda found: {"Mainz", "Trier", "Ulm", "Zell"},
    ],
)
def test_a_function_chooses_by_mask_or_by_value(table, choose):
    before = table.version
    assert table.remove(choose=choose, depth=1) == before + 1
    assert cities(table) == ["Bonn", "Köln"]


def test_a_function_sees_every_prefix_and_may_choose_all(table):
    seen = []
    table.remove(choose=lambda found: seen.append(found) or [True] * found.num_rows, depth=2)
    assert seen[0].num_rows == len(CITIES) * len(DAYS)
    assert table.count().rows == 0


def test_nothing_chosen_commits_nothing(table):
    before = table.version
    assert table.remove(choose=lambda _: [], depth=1) == before
    assert table.remove(choose=lambda found: [False] * found.num_rows, depth=1, fence=True) == before
    assert table.remove(choose=lambda found: found.slice(0, 0), depth=1) == before
    assert table.remove(prefix=[]) == before
    assert table.remove(prefix="Zell") == before
    assert table.snapshot().version == before


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ([True], "1 truth values for 5 prefixes"),
        ([True] * 6, "6 truth values"),
        (None, "returned None"),
        (True, "returned True"),
        ("Bonn", "returned 'Bonn'"),
        (("Bonn",), r"returned \('Bonn',\)"),
        ([("Bonn", DAYS[0])], "has 2 values; prefixes here have 1"),
        ([()], "has 0 values"),
        (pa.table({"town": ["Bonn"]}), "returned columns town; prefixes have city"),
        (pa.table({"city": pa.array([None], pa.string())}), "no city"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(table, choice, why):
    before = table.version
    with pytest.raises(UsageError, match=why):
        table.remove(choose=lambda _: choice, depth=1)
    assert table.snapshot().version == before


def test_bad_prefixes_are_refused(table):
    with pytest.raises(BadKeyError, match="city is string"):
        table.remove(prefix=5)
    with pytest.raises(BadKeyError, match="4 values for a key of 3 fields"):
        table.remove(prefix=("Bonn", DAYS[0], 1, 2))
    with pytest.raises(BadKeyError, match="bool"):
        table.remove(choose=lambda _: [True, "Bonn"], depth=1)
    for prefix in ((), [()]):
        with pytest.raises(UsageError, match="a value at least"):
            table.remove(prefix=prefix)
    for wrong in ({"choose": list}, {"depth": 1}, {"choose": list, "depth": 1, "prefix": "Bonn"}):
        with pytest.raises(UsageError, match="belong together"):
            table.remove(**wrong)
    with pytest.raises(UsageError, match="belong together"):
        table.remove(KeyRange(), choose=list, depth=1)
