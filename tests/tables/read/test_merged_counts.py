"""What counts, samples, prefixes and explanations of tables with a merge mode read, and what they say."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import lakebed
from lakebed import Count, KeyRange, Latest, Schema, clock
from lakebed.model.row_kinds import KIND, RowKind, with_hidden
from lakebed.read.rows.counting import reservoir
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.row_stream import RowStream
from tests.tables.read.merging_tables import Change, MergingTable, commit_run

WHOLE = {"a": None, "b": None}


def whole(keys: str) -> list[Change]:
    return [Change(key, 0, WHOLE) for key in keys]


def deletes(keys: str) -> list[Change]:
    return [Change(key, 0, {}, RowKind.DELETE) for key in keys]


@pytest.fixture
def table():
    return MergingTable(Latest())


def test_a_partition_with_one_run_counts_exactly_without_a_read(table):
    table.arrive(whole("abc"))
    table.split("b")

    class ScansNothing(Reader):
        def scan(self, *_, **__):
            pytest.fail("rows were read")

    table.table.versions.reader = ScansNothing(table.table.storage, table.table.id, lambda _: True)
    assert table.table.count() == Count(3, exact=True)
    assert table.table.count(KeyRange("b")) == Count(2, exact=True)


def test_overlapping_files_are_bounded_by_one_and_by_all(table):
    table.arrive(whole("abcd"))
    table.arrive(whole("abx"))
    found = table.table.count()
    # From 4 to 7: an estimate and its error are whole numbers.
    assert (found.rows_min, found.rows_max, found.exact) == (4, 8, False)
    assert table.table.count(exact=True) == Count(5, exact=True)


def test_deletes_lower_the_least_number_of_rows(table):
    table.arrive(whole("abcd"))
    table.arrive(deletes("ab"))
    found = table.table.count()
    assert (found.rows_min, found.rows_max) == (2, 6)
    assert table.table.count(exact=True) == Count(2, exact=True)


def test_files_that_do_not_overlap_are_counted_exactly(table):
    table.arrive(whole("abc"))
    table.arrive(whole("def"))
    assert table.table.count() == Count(6, exact=True)
    assert table.table.count(KeyRange("b", "e")) == Count(3, exact=True)


def test_a_prefix_whose_last_row_is_deleted_goes():
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", Schema({"city": "string", "n": "int64"}, {}, {"v": "int64"}), merge=Latest())
    table.write(pa.table({"city": ["Bonn", "Bonn", "Köln", "Ulm"], "n": [1, 2, 1, 1], "v": [1, 2, 3, 4]}))

    def delete(*keys: tuple[str, int]) -> None:
        schema = with_hidden(table.schema)
        rows = [{"city": city, "n": n, KIND: int(RowKind.DELETE)} for city, n in keys]
        commit_run(table, pa.Table.from_pylist(rows, schema.arrow), schema, page_rows=1)

    delete(("Bonn", 1), ("Köln", 1), ("Mainz", 1))
    assert table.prefixes(1).column("city").to_pylist() == ["Bonn", "Ulm"]
    assert table.prefixes(1, KeyRange(None, ("Bonn", 2))).num_rows == 0
    assert table.prefixes(2).to_pylist() == [{"city": "Bonn", "n": 2}, {"city": "Ulm", "n": 1}]
    delete(("Bonn", 2))
    assert table.prefixes(1, limit=1).column("city").to_pylist() == ["Ulm"]


def test_explain_says_how_many_rows_were_merged(table):
    table.arrive(whole("abc"))
    alone = table.table.explain()
    assert (alone.rows, alone.rows_merged) == (3, 0)
    assert "merged" not in str(alone)
    table.arrive(whole("bcd"))
    found = table.table.explain()
    assert (found.rows, found.rows_merged, found.merge) == (4, 6, "Latest(by='arrival')")
    assert "6 rows of files by Latest(by='arrival')" in str(found)
    assert table.table.explain("b").rows_merged == 2


def test_an_older_version_is_read_by_the_mode_of_that_version():
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", Schema({"k": "string"}, {}, {"v": "int64"}))
    for value in range(2):
        table.write(pa.table({"k": ["a"], "v": [value]}))
    before = table.version
    table.remove(KeyRange())
    table.alter(lakebed.SetMerge(Latest()))
    for value in range(2, 4):
        table.write(pa.table({"k": ["a"], "v": [value]}))
    assert table.get("a").column("v").to_pylist() == [3]
    old = table.at(version=before)
    for found in (old.get("a"), old.scan().read_all(), old.get_many(["a"])):
        assert sorted(found.column("v").to_pylist()) == [0, 1]
    assert old.count() == Count(2, exact=True)


def test_every_row_of_a_stream_is_as_likely_to_be_sampled():
    """Of 20 rows 3 are drawn 4,000 times: each is drawn 600 times, give or take 23 (a standard deviation)."""
    schema = pa.schema([("n", pa.int64())])
    drawn: Counter[int] = Counter()
    for seed in range(4_000):
        batches = (pa.record_batch([list(range(low, low + 5))], schema=schema) for low in range(0, 20, 5))
        found = reservoir(RowStream(schema, batches), 3, clock.chance(seed)).column("n").to_pylist()
        assert len(set(found)) == 3
        assert found == sorted(found)
        drawn.update(found)
    assert sorted(drawn) == list(range(20))
    assert all(480 < times < 720 for times in drawn.values())
