"""Reads of tables with a merge mode, against the plain meaning of what arrived: every mode, every way to read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed import Count, KeyRange
from lakebed.model.merge_modes import Aggregate, Custom, Latest
from lakebed.model.row_kinds import RowKind
from tests.unit.read.merging_tables import MODES, WAYS, Change, MergingTable, reading_by

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
@settings(max_examples=40)
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
        with reading_by(way):
            stream = table.table.scan(*asked, columns=columns, where=where, limit=limit, reverse=reverse)
            found = stream.read_all()
        assert found.schema == table.table.schema.arrow_of(columns or table.table.schema.names)
        assert found.to_pylist() == picked(wanted[:limit], columns)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25)
@given(data=st.data())
def test_get_and_get_many_give_the_merged_rows_of_their_keys(mode, data):
    table = data.draw(tables(MODES[mode]))
    columns, rows = data.draw(COLUMNS), table.rows()
    arrow = table.table.schema.arrow_of(columns or table.table.schema.names)
    with reading_by(data.draw(st.sampled_from(WAYS))):
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
@settings(max_examples=30)
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
