"""Reads of tables with a merge mode, against the plain meaning of what arrived: every mode, every way to read."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed import AddField, Count, DropField, KeyRange, Schema, WidenField
from lakebed.model.merge_modes import Aggregate, Custom, Latest
from lakebed.model.row_kinds import RowKind
from lakebed.read.rows import point_lookup
from lakebed.read.rows.point_lookup import PointLookup
from lakebed.read.rows.reader import Reader
from tests.soaked import each_once
from tests.tables.read.merging_tables import MODES, WAYS, Change, MergingTable, reading_by

KEYS = "abcdef"


def changes(mode: Any) -> st.SearchStrategy[Change]:
    kinds = list(RowKind) if isinstance(mode, Latest) else [RowKind.WHOLE]

    def change(key: str, sort: int, kind: RowKind, values: dict[str, Any]) -> Change:
        if kind is RowKind.WHOLE:
            values = {"a": None, "b": None} | values
        return Change(key, sort, {} if kind is RowKind.DELETE else values, kind)

    values = st.fixed_dictionaries(
        {}, optional={"a": st.none() | st.integers(-9, 9), "b": st.none() | st.sampled_from("xyz")}
    )
    return st.builds(change, st.sampled_from(KEYS), st.integers(0, 2), st.sampled_from(kinds), values)


def files(mode: Any) -> st.SearchStrategy[list[list[Change]]]:
    """What arrives file by file: a file has at most one row for each key that rows are merged by."""
    key = (lambda c: (c.key, c.sort)) if isinstance(mode, Aggregate | Custom) else (lambda c: c.key)
    return st.lists(st.lists(changes(mode), min_size=1, max_size=6, unique_by=key), min_size=1, max_size=7)


def tables(mode: Any) -> st.SearchStrategy[MergingTable]:
    def made(arriving: list[list[Change]], boundaries: list[str], page_rows: int) -> MergingTable:
        table = MergingTable(mode, page_rows=page_rows)
        for boundary in boundaries[:1]:
            table.split(boundary)
        for one in arriving:
            table.arrive(one)
        for boundary in boundaries[1:]:
            table.split(boundary)
        return table

    boundaries = st.lists(st.sampled_from(KEYS[1:]), max_size=2)
    return st.builds(made, files(mode), boundaries, st.sampled_from([1, 3]))


COLUMNS = st.none() | st.lists(st.sampled_from(["k", "s", "a", "b"]), min_size=1, max_size=4)
WHERE: dict[str | None, Any] = {
    None: lambda _: True,
    "k >= 'c'": lambda row: row["k"] >= "c",
    "k in ('a', 'd', 'f')": lambda row: row["k"] in "adf",
    "s = 1": lambda row: row["s"] == 1,
    "k < 'e' AND s < 2": lambda row: row["k"] < "e" and row["s"] < 2,
    "a > 0": lambda row: row["a"] is not None and row["a"] > 0,
    "b IS NULL OR k = 'b'": lambda row: row["b"] is None or row["k"] == "b",
}
RANGES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)).map(lambda pair: (min(pair), max(pair))), max_size=2
)
SCANS = st.tuples(
    st.sampled_from(list(WHERE)), COLUMNS, RANGES, st.none() | st.integers(0, 5), st.booleans(), st.sampled_from(WAYS)
)


def picked(rows: list[dict[str, Any]], columns: list[str] | None) -> list[dict[str, Any]]:
    return rows if columns is None else [{name: row[name] for name in columns} for row in rows]


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_a_scan_gives_the_merged_rows(mode, data):
    table = data.draw(tables(MODES[mode]))
    rows = table.rows()
    for where, columns, ranges, limit, reverse, way in data.draw(st.lists(SCANS, min_size=4, max_size=4)):
        wanted = [row for row in rows if WHERE[where](row)]
        if ranges:
            wanted = [row for row in wanted if any(low <= row["k"] < high for low, high in ranges)]
        if reverse:
            wanted.reverse()
        asked = [KeyRange(low, high) for low, high in ranges]
        with reading_by(table.table, way):
            stream = table.table.scan(*asked, columns=columns, where=where, limit=limit, reverse=reverse)
            found = stream.read_all()
        assert found.schema == table.table.schema.arrow_of(columns or table.table.schema.names)
        assert found.to_pylist() == picked(wanted[:limit], columns)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=settings.default.max_examples // 10)
@given(data=st.data())
def test_get_and_get_many_give_the_merged_rows_of_their_keys(mode, data):
    table = data.draw(tables(MODES[mode]))
    columns, rows = data.draw(COLUMNS), table.rows()
    arrow = table.table.schema.arrow_of(columns or table.table.schema.names)
    with reading_by(table.table, data.draw(st.sampled_from(WAYS))):
        for key in KEYS + "z":
            found = table.table.get(key, columns=columns)
            assert found.schema == arrow
            assert found.to_pylist() == picked([row for row in rows if row["k"] == key], columns)
            one = table.table.scan(KeyRange.prefix(key), columns=columns, where="a > 0").read_all()
            assert one.to_pylist() == picked([r for r in rows if r["k"] == key and (r["a"] or 0) > 0], columns)
        keys = data.draw(st.lists(st.sampled_from(KEYS + "ghi"), max_size=5))
        found = table.table.get_many(keys, columns=columns)
    assert found.schema == arrow
    assert found.to_pylist() == picked([row for row in rows if row["k"] in keys], columns)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=settings.default.max_examples // 10)
@given(data=st.data())
def test_counts_samples_and_prefixes_are_those_of_the_merged_rows(mode, data):
    table = data.draw(tables(MODES[mode]))
    ranges = data.draw(RANGES)
    asked = [KeyRange(low, high) for low, high in ranges]
    wanted = [row for row in table.rows() if not ranges or any(low <= row["k"] < high for low, high in ranges)]
    assert table.table.count(*asked, exact=True) == Count(len(wanted), exact=True)
    estimated = table.table.count(*asked)
    assert estimated.rows_min <= len(wanted) <= estimated.rows_max
    assert not estimated.exact or estimated.rows == len(wanted)
    assert table.table.prefixes(1, *asked).column("k").to_pylist() == sorted({row["k"] for row in wanted})
    limit = data.draw(st.integers(0, 3))
    assert table.table.prefixes(1, *asked, limit=limit).num_rows == min(limit, len({row["k"] for row in wanted}))
    everything = table.rows()
    count = data.draw(st.integers(0, 8))
    sample = table.table.sample(count, columns=["a", "k", "s"], seed=1).to_pylist()
    assert len(sample) == min(count, len(everything))
    assert [row for row in picked(everything, ["a", "k", "s"]) if row in sample] == sample


ALTERATIONS = (AddField("c", "string"), WidenField("a", "int64"), DropField("b"))


@pytest.mark.parametrize("mode", [name for name, mode in MODES.items() if not isinstance(mode, Custom)])
@settings(max_examples=settings.default.max_examples // 12)
@given(data=st.data())
def test_rows_of_older_schemas_are_merged_as_the_latest_has_them(mode, data):
    """A field is added, one widened, one dropped, with rows before, between and after."""
    table = MergingTable(MODES[mode])
    # An aggregate has a function for each of its fields.
    alterations = [one for one in ALTERATIONS if mode != "aggregate" or isinstance(one, WidenField)]
    for alteration in (None, *alterations):
        if alteration is not None:
            table.table.alter(alteration)
        names = {field.name for field in table.table.schema.values}
        for one in data.draw(files(MODES[mode]).map(lambda arriving: arriving[:3])):
            table.arrive([of_fields(change, names, data) for change in one])
    rows = table.rows()
    with reading_by(table.table, data.draw(st.sampled_from(WAYS))):
        assert table.table.scan().read_all().to_pylist() == rows
        assert table.table.scan(columns=["a"], where="a > 0").read_all().to_pylist() == picked(
            [row for row in rows if row["a"] is not None and row["a"] > 0], ["a"]
        )
        assert table.table.get_many(list(KEYS)).to_pylist() == rows
        assert [row for key in KEYS for row in table.table.get(key).to_pylist()] == rows


def of_fields(change: Change, names: set[str], data: st.DataObject) -> Change:
    """The change with values of these fields only, and of the field ``c`` if it is among them."""
    values = {name: value for name, value in change.values.items() if name in names}
    if "c" in names and (change.kind is RowKind.WHOLE or (change.kind is RowKind.PARTIAL and data.draw(st.booleans()))):
        values["c"] = data.draw(st.none() | st.sampled_from("uvw"))
    return replace(change, values=values)


@each_once(way=WAYS, kind=[RowKind.WHOLE, RowKind.DELETE])
def test_the_first_rows_of_many_files_are_those_of_the_merged_ones(kind, way):
    """Each file has about the first rows; deletes of most of them must not make the read stop early."""
    table = MergingTable(Latest(), page_rows=3)
    keys = [f"k{number:03d}" for number in range(36)]
    table.arrive([Change(key, 0, {"a": 0, "b": None}) for key in keys])
    for file in range(1, 8):
        values = {} if kind is RowKind.DELETE else {"a": file, "b": None}
        table.arrive([Change(key, 0, values, kind) for key in keys[file : 30 : file % 3 + 1]])
    rows = table.rows()
    with reading_by(table.table, way):
        for limit in (2, 20):
            assert table.table.scan(limit=limit).read_all().to_pylist() == rows[:limit]
        assert table.table.scan(limit=20, reverse=True).read_all().to_pylist() == rows[::-1][:20]
        some = table.table.scan(KeyRange("k0021"), limit=20, where="a >= 0").read_all()
        assert some.to_pylist() == [row for row in rows if row["k"] > "k0021"][:20]


def test_a_file_in_slices_of_a_reverse_scan_may_be_read_alone_or_merged():
    """The base reaches all slices, the second file only some; both have one row of a key."""
    table = MergingTable(Latest())
    table.arrive([Change(key, 0, {"a": 0, "b": None}) for key in "abcdefgh"])
    table.arrive([Change(key, 0, {"a": 1, "b": None}) for key in "cd"])
    for way in WAYS:
        with reading_by(table.table, way):
            found = table.table.scan(reverse=True).read_all()
        assert list(zip(found["k"].to_pylist(), found["a"].to_pylist(), strict=True)) == [
            (key, int(key in "cd")) for key in "hgfedcba"
        ]


def test_a_lookup_reads_few_of_the_files_that_have_a_key():
    """The newest files decide, unless their rows are partial."""
    table = MergingTable(Latest())
    for number in range(20):
        table.arrive([Change("a", 0, {"a": number, "b": None}), Change("z", 0, {"a": None, "b": None})])
    read: list[int] = []

    class Noting(PointLookup):
        def read(self, files, request):
            read.append(len(files))
            return super().read(files, request)

    reader = table.table.versions.reader = Reader(table.table.storage, table.table.id, lambda _: True)
    reader._points = Noting(reader._files, reader.merge_schemas)
    assert table.table.get("a").column("a").to_pylist() == [19]
    assert read == [4]
    read.clear()
    for number in range(5):
        table.arrive([Change("a", 0, {"b": f"b{number}"}, RowKind.PARTIAL), Change("z", 0, {}, RowKind.DELETE)])
    assert table.table.get("a").to_pylist() == [{"k": "a", "s": 0, "a": 19, "b": "b4"}]
    assert read == [4, 25]
    read.clear()
    assert table.table.get("z").num_rows == 0
    assert read == [4]


@pytest.mark.parametrize("way", WAYS)
def test_a_partial_row_has_a_sort_key(way):
    """It takes the place of that of the row before it, and no hidden column says so."""
    table = MergingTable(Latest())
    table.arrive([Change("a", 2, {"a": 8, "b": None}), Change("c", 0, {"a": 0, "b": None})])
    table.arrive([Change("a", 1, {"a": -4}, RowKind.PARTIAL), Change("c", 0, {"a": 1, "b": None})])
    with reading_by(table.table, way):
        assert table.table.scan().read_all().to_pylist()[0] == {"k": "a", "s": 1, "a": -4, "b": None}
        assert table.table.get("a").to_pylist() == [{"k": "a", "s": 1, "a": -4, "b": None}]
        assert table.table.get_many(["a"]).to_pylist() == [{"k": "a", "s": 1, "a": -4, "b": None}]


def test_a_scan_that_reads_ahead_may_be_closed_at_any_time():
    table = MergingTable(Latest(), page_rows=3)
    for value in range(3):
        table.arrive([Change(f"k{number:03d}", 0, {"a": value, "b": None}) for number in range(200)])
    rows = table.rows()
    for way in WAYS:
        for batches in range(4):
            with reading_by(table.table, way, merged_alone=1):
                with table.table.scan() as stream:
                    found = [batch for _, batch in zip(range(batches), stream, strict=False)]
                assert [row for batch in found for row in batch.to_pylist()] == rows[
                    : sum(batch.num_rows for batch in found)
                ]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakebed-merge")]


@pytest.mark.parametrize("way", WAYS)
def test_a_partial_row_has_its_sort_key_in_every_way_to_read(way):
    table = MergingTable(MODES["latest"])
    table.arrive([Change("a", 0, {"a": None, "b": None})])
    table.arrive([Change("a", 0, {"a": None, "b": None}), Change("b", 3, {}, RowKind.PARTIAL)])
    with reading_by(table.table, way):
        assert table.table.scan().read_all().to_pylist() == table.rows()


def test_a_get_among_many_files_finds_the_greatest_sort_key_in_the_oldest(memory_lake):
    """By order of arrival the newest files, or the oldest, would be enough."""
    table = memory_lake.create_table("t", Schema({"k": "int64"}, {"at": "int64"}), merge=Latest(by="sort_key"))
    for at in (9, *range(2 * point_lookup.DECISIVE_FILES)):
        table.write(pa.table({"k": [1], "at": [at]}))
    assert table.get(1).to_pylist() == [{"k": 1, "at": 9}]
