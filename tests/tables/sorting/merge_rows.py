"""Rows of every kind for tables that merge rows, and what a reader sees of them, by a dictionary."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.model.merge_modes import Aggregate, First, Latest, MergeMode
from lakebed.model.row_kinds import KIND, RowKind, presence_name, with_hidden
from tests.tables.sorting.tables import small_layout

SCHEMA = Schema({"k": "int64"}, {"s": "int64"}, {"a": "int64", "b": "string"})
HIDDEN = with_hidden(SCHEMA)
HAS_A, HAS_B = map(presence_name, SCHEMA.values)
MODES = [Latest(), Latest(by="sort_key"), First(), Aggregate({"a": "sum", "b": "last"})]

Row = dict[str, Any]


def row(k: int, s: int, a: int | None, b: str | None, kind: RowKind = RowKind.WHOLE, **has: bool) -> Row:
    hidden = {} if kind is RowKind.WHOLE else {KIND: int(kind)}
    return {"k": k, "s": s, "a": a, "b": b, **hidden, **has}


VALUES = {"a": st.none() | st.integers(0, 9), "b": st.none() | st.sampled_from("xyz")}
KEYS = {"k": st.integers(0, 7), "s": st.integers(0, 2)}
WHOLE = st.builds(row, **KEYS, **VALUES)
DELETES = st.builds(row, **KEYS, a=st.none(), b=st.none(), kind=st.just(RowKind.DELETE))
PARTIAL_A = st.builds(
    lambda k, s, a: row(k, s, a, None, RowKind.PARTIAL, **{HAS_A: True, HAS_B: False}), **KEYS, a=VALUES["a"]
)
PARTIAL_B = st.builds(
    lambda k, s, b: row(k, s, None, b, RowKind.PARTIAL, **{HAS_A: False, HAS_B: True}), **KEYS, b=VALUES["b"]
)


@st.composite
def runs_of(draw: st.DrawFn, mode: MergeMode) -> list[list[Row]]:
    """The rows of some runs in order of arrival; of some runs all are whole."""
    some = {Latest(): [DELETES, PARTIAL_A, PARTIAL_B], Latest(by="sort_key"): [DELETES]}.get(mode, [])
    plain, marked = st.lists(WHOLE, max_size=12), st.lists(st.one_of(WHOLE, *some), max_size=12)
    return draw(st.lists(st.one_of(plain, marked), min_size=1, max_size=7))


def meaning(mode: MergeMode, rows: list[Row]) -> list[Row]:
    """What a reader sees of rows that arrived in this order."""
    seen: dict[Any, Row] = {}
    if mode == Latest(by="sort_key"):
        rows = sorted(rows, key=lambda one: one["s"])
    for new in rows:
        key = (new["k"], new["s"]) if isinstance(mode, Aggregate) else new["k"]
        old = seen.get(key, {"a": None, "b": None})
        match mode:
            case Aggregate():
                numbers = [one["a"] for one in (old, new) if one["a"] is not None]
                text = old["b"] if new["b"] is None else new["b"]
                seen[key] = {**new, "a": sum(numbers) if numbers else None, "b": text}
            case First():
                seen.setdefault(key, new)
            case _ if new.get(KIND) == RowKind.DELETE:
                seen.pop(key, None)
            case _:
                kept = {name: old[name] for name, has in (("a", HAS_A), ("b", HAS_B)) if new.get(has) is False}
                seen[key] = {**new, **kept}
    visible = [{name: one[name] for name in SCHEMA.names} for one in seen.values()]
    return sorted(visible, key=lambda one: (one["k"], one["s"]))


def layout_for(rows: list[Row]) -> Any:
    return small_layout(HIDDEN if any(KIND in one for one in rows) else SCHEMA, file_bytes=1 << 30)


def as_batches(rows: list[Row], size: int) -> list[pa.RecordBatch]:
    schema = layout_for(rows).schema.arrow
    return [pa.RecordBatch.from_pylist(rows[i : i + size], schema) for i in range(0, len(rows), size)]
