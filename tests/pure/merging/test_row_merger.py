"""Merging rows of sorted streams, against the plain meaning of each mode."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.errors import SchemaMismatchError
from lakebed.files.merging.aggregates import Groups
from lakebed.files.merging.row_merger import RowMerger
from lakebed.model.merge_modes import Aggregate, First, KeepAll, Latest, MergeMode
from lakebed.model.row_kinds import KIND, RowKind, merge_schema, presence_name

PLAIN = Schema({"k": "int64"}, (), {"a": "int64", "b": "string"})
SORTED = Schema({"k": "int64"}, {"s": "int64"}, {"a": "int64"})


def batches_of(rows: list[dict[str, Any]], schema: pa.Schema, cuts: list[int]) -> list[pa.RecordBatch]:
    table = pa.Table.from_pylist(rows, schema)
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    return [
        batch
        for low, high in itertools.pairwise(edges)
        for batch in table.slice(low, high - low).combine_chunks().to_batches()
    ]


def merged(mode: MergeMode, schema: Schema, rows: list[pa.RecordBatch], *, complete: bool = True) -> pa.Table:
    found = list(RowMerger(mode, schema, complete=complete).merge(iter(rows)))
    assert all(batch.num_rows for batch in found)
    return pa.Table.from_batches(found) if found else schema.arrow.empty_table()


KEYS = st.lists(st.integers(0, 5), max_size=30)
CUTS = st.lists(st.integers(0, 30), max_size=4)


@given(KEYS, CUTS, st.randoms(use_true_random=False))
def test_latest_keeps_the_row_that_arrived_last(keys, cuts, chance):
    rows = [{"k": key, "s": chance.randrange(4), "a": n} for n, key in enumerate(keys)]
    wanted = {row["k"]: row["a"] for row in rows}
    ordered = merge_schema(Latest(), SORTED, hidden=False)
    rows.sort(key=lambda row: [row[name] for name in ordered.sort_names])
    found = merged(Latest(), SORTED, batches_of(rows, ordered.arrow, cuts))
    assert dict(zip(found["k"].to_pylist(), found["a"].to_pylist(), strict=True)) == wanted
    assert found.num_rows == len(wanted)
    assert found.column_names == ["k", "s", "a"]


@given(KEYS, CUTS, st.randoms(use_true_random=False))
def test_latest_by_sort_key_keeps_the_greatest_sort_key_then_the_newest(keys, cuts, chance):
    rows = [{"k": key, "s": chance.randrange(4), "a": n} for n, key in enumerate(keys)]
    rows.sort(key=lambda row: (row["k"], row["s"], row["a"]))
    wanted = {row["k"]: (row["s"], row["a"]) for row in rows}
    found = merged(Latest(by="sort_key"), SORTED, batches_of(rows, SORTED.arrow, cuts)).to_pylist()
    assert {row["k"]: (row["s"], row["a"]) for row in found} == wanted
    assert len(found) == len(wanted)


@given(KEYS, CUTS)
def test_first_keeps_the_row_that_arrived_first(keys, cuts):
    rows = sorted(({"k": key, "a": n} for n, key in enumerate(keys)), key=lambda row: (row["k"], row["a"]))
    wanted = {row["k"]: row["a"] for row in reversed(rows)}
    found = merged(First(), PLAIN, batches_of(rows, PLAIN.arrow, cuts)).to_pylist()
    assert [(row["k"], row["a"]) for row in found] == sorted(wanted.items())


@given(KEYS, CUTS)
def test_keep_all_keeps_all(keys, cuts):
    rows = [{"k": key, "a": n} for n, key in enumerate(sorted(keys))]
    assert merged(KeepAll(), PLAIN, batches_of(rows, PLAIN.arrow, cuts))["a"].to_pylist() == list(range(len(keys)))


def hidden(schema: Schema) -> pa.Schema:
    found = schema.arrow.append(pa.field(KIND, pa.int8()))
    for field in schema.values:
        found = found.append(pa.field(presence_name(field), pa.bool_()))
    return found


CHANGES = st.tuples(
    st.integers(0, 3),
    st.sampled_from(list(RowKind)),
    st.one_of(st.none(), st.integers(0, 9)),
    st.one_of(st.none(), st.text("xyz", max_size=2)),
    st.booleans(),
    st.booleans(),
)


def change_row(change: Any) -> dict[str, Any]:
    key, kind, a, b, has_a, has_b = change
    a_field, b_field = PLAIN.values
    match kind:
        case RowKind.WHOLE:
            return {"k": key, "a": a, "b": b}
        case RowKind.DELETE:
            return {"k": key, KIND: int(kind)}
        case RowKind.PARTIAL:
            held = {"a": a if has_a else None, "b": b if has_b else None}
            return {"k": key, KIND: int(kind), presence_name(a_field): has_a, presence_name(b_field): has_b, **held}


def apply_change(rows: dict[int, dict[str, Any]], change: Any) -> None:
    key, kind, a, b, has_a, has_b = change
    match kind:
        case RowKind.WHOLE:
            rows[key] = {"a": a, "b": b}
        case RowKind.DELETE:
            rows.pop(key, None)
        case RowKind.PARTIAL:
            held = rows.setdefault(key, {"a": None, "b": None})
            held.update({"a": a} if has_a else {}, **({"b": b} if has_b else {}))


@given(st.lists(CHANGES, max_size=25), CUTS, st.lists(st.integers(0, 25), max_size=3))
def test_partial_rows_and_deletes_mean_the_same_however_runs_are_grouped(changes, cuts, groups):
    wanted: dict[int, dict[str, Any]] = {}
    for change in changes:
        apply_change(wanted, change)

    def in_order(rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
        return batches_of(sorted(rows, key=lambda row: row["k"]), hidden(PLAIN), cuts)

    # Neighbouring changes are merged first, as compactions of some runs are, then the results with each other.
    edges = sorted({0, len(changes), *(edge for edge in groups if edge < len(changes))})
    runs: list[dict[str, Any]] = []
    for low, high in itertools.pairwise(edges):
        rows = [change_row(change) for change in changes[low:high]]
        runs += merged(Latest(), PLAIN, in_order(rows), complete=False).to_pylist()
    found = merged(Latest(), PLAIN, in_order(runs))
    assert {row["k"]: {"a": row["a"], "b": row["b"]} for row in found.to_pylist()} == wanted
    assert found.num_rows == len(wanted)
    assert found.column_names == ["k", "a", "b"]


def test_the_schema_of_a_merge_may_have_the_hidden_fields():
    """A partial row is put together with the whole row before it, and with another partial one after them."""
    schema = merge_schema(Latest(), PLAIN, hidden=True)
    changes = [(1, RowKind.WHOLE, 4, "x", True, True), *[(1, RowKind.PARTIAL, None, None, False, False)] * 2]
    rows = batches_of([change_row(change) for change in changes], hidden(PLAIN), [2])
    assert merged(Latest(), schema, rows).to_pylist() == [{"k": 1, "a": 4, "b": "x"}]


def reduced(function: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    return lambda values: functools.reduce(function, values)


def map_by(function: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    def merge(maps: list[list[tuple[str, int]]]) -> list[tuple[str, int]]:
        found: dict[str, int] = {}
        for key, value in (pair for one in maps for pair in one):
            found[key] = value if key not in found else function(found[key], value)
        return sorted(found.items())

    return merge


INTEGERS = st.integers(-1000, 1000)
MAPS = st.dictionaries(st.sampled_from("abc"), INTEGERS).map(lambda d: sorted(d.items()))
AGGREGATES: dict[str, tuple[Any, Any, Callable[[list[Any]], Any]]] = {
    "sum": (pa.int32(), INTEGERS, sum),
    "count": (pa.int64(), st.integers(0, 3), sum),
    "product": (pa.int64(), st.integers(-2, 2), reduced(operator.mul)),
    "min": (pa.string(), st.text("xyz", max_size=3), min),
    "max": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False), max),
    "first": (pa.list_(pa.int64()), st.lists(INTEGERS, max_size=2), lambda values: values[0]),
    "last": (pa.string(), st.text("xyz", max_size=3), lambda values: values[-1]),
    "any": (pa.bool_(), st.booleans(), any),
    "all": (pa.bool_(), st.booleans(), all),
    "or": (pa.uint16(), st.integers(0, 2**16 - 1), reduced(operator.or_)),
    "list": (pa.list_(pa.string()), st.lists(st.text("xyz", max_size=2), max_size=3), reduced(operator.add)),
    "set": (
        pa.list_(pa.int64()),
        st.lists(st.integers(0, 4), max_size=3, unique=True).map(sorted),
        lambda values: sorted({value for one in values for value in one}),
    ),
    "join": (pa.string(), st.text("xyz", min_size=1, max_size=2), ",".join),
    "map_sum": (pa.map_(pa.string(), pa.int64()), MAPS, map_by(operator.add)),
    "map_min": (pa.map_(pa.string(), pa.int64()), MAPS, map_by(min)),
    "map_max": (pa.map_(pa.string(), pa.int64()), MAPS, map_by(max)),
}


@pytest.mark.parametrize("name", AGGREGATES)
@settings(max_examples=settings.default.max_examples // 3)
@given(data=st.data())
def test_an_aggregate_is_its_function_over_the_values_that_are_not_null(name, data):
    kind, values, function = AGGREGATES[name]
    schema = Schema({"k": "int64"}, {"s": "int64"}, {"v": kind})
    rows = data.draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.one_of(st.none(), values)), max_size=20)
    )
    cuts = data.draw(CUTS)
    ordered = sorted(({"k": k, "s": s, "v": v} for k, s, v in rows), key=lambda row: (row["k"], row["s"]))
    found = merged(Aggregate({"v": name}), schema, batches_of(ordered, schema.arrow, cuts))
    wanted: dict[tuple[int, int], list[Any]] = {}
    for row in ordered:
        wanted.setdefault((row["k"], row["s"]), []).extend([] if row["v"] is None else [row["v"]])
    values_of = {key: function(held) if held else None for key, held in wanted.items()}
    assert {(row["k"], row["s"]): row["v"] for row in found.to_pylist()} == values_of
    assert found.num_rows == len(values_of)
    assert found.schema.field("v").type == kind


@pytest.mark.parametrize(
    ("kind", "function", "values"),
    [
        (pa.int8(), "sum", [100, 100]),
        (pa.int64(), "sum", [2**62, 2**62]),
        (pa.uint64(), "sum", [2**63, 2**63]),
        (pa.int32(), "product", [2**20, 2**20]),
        (pa.int64(), "product", [10**18] * 1_000),
        (pa.map_(pa.string(), pa.int8()), "map_sum", [[("a", 100)], [("a", 100)]]),
        (pa.decimal128(2, 1), "sum", [Decimal("9.9"), Decimal("0.1")]),
        (pa.decimal128(38), "sum", [Decimal("5e37"), Decimal("6e37")]),
        (pa.decimal128(38), "sum", [Decimal("9e37")] * 2),
        (pa.decimal256(76), "sum", [Decimal("9e75")] * 2),
    ],
)
def test_a_result_that_the_column_cannot_hold_names_the_key(kind, function, values):
    schema = Schema({"k": "string"}, (), {"v": kind})
    keys = ["x", *["y"] * len(values)]
    rows = pa.table({"k": keys, "v": pa.array([values[0], *values], kind)}, schema=schema.arrow)
    with pytest.raises(SchemaMismatchError, match=r"'y'") as caught:
        merged(Aggregate({"v": function}), schema, rows.to_batches())
    assert caught.value.column == "v"


def test_products_at_the_edges_of_64_bits_are_exact():
    schema = Schema({"k": "string"}, (), {"v": "int64"})
    rows = pa.table({"k": ["x", "x", "y", "y", "y"], "v": [2**62, -2, 2**62, 4, 0]}, schema=schema.arrow)
    assert merged(Aggregate({"v": "product"}), schema, rows.to_batches())["v"].to_pylist() == [-(2**63), 0]


def test_sums_at_the_edges_of_64_bits_are_exact():
    schema = Schema({"k": "string"}, (), {"v": "int64"})
    rows = pa.table({"k": ["x"] * 3, "v": [2**63 - 1, 1, -1]}, schema=schema.arrow)
    assert merged(Aggregate({"v": "sum"}), schema, rows.to_batches())["v"].to_pylist() == [2**63 - 1]


@pytest.mark.parametrize("kind", [pa.decimal128(38), pa.decimal256(76)], ids=str)
def test_sums_of_decimals_are_exact_beyond_their_digits(kind):
    schema = Schema({"k": "string"}, (), {"v": kind})
    most = Decimal("9" * kind.precision)
    rows = pa.table({"k": ["x"] * 3, "v": pa.array([most, most, most.copy_negate()], kind)}, schema=schema.arrow)
    assert merged(Aggregate({"v": "sum"}), schema, rows.to_batches())["v"].to_pylist() == [most]


def test_a_key_with_very_many_rows_is_merged_batch_by_batch():
    schema = Schema({"k": "int64"}, (), {"v": "int64"})
    held = 0

    def batches():
        nonlocal held
        for n in range(200):
            held = pa.total_allocated_bytes()
            yield pa.record_batch({"k": np.zeros(50_000, np.int64), "v": np.full(50_000, n)}, schema=schema.arrow)

    before = pa.total_allocated_bytes()
    found = list(RowMerger(Aggregate({"v": "sum"}), schema, complete=True).merge(batches()))
    assert [batch.to_pydict() for batch in found] == [{"k": [0], "v": [50_000 * 199 * 100]}]
    assert held - before < 8 * 1024 * 1024


@pytest.mark.parametrize(
    ("function", "kind", "value", "wanted"),
    [
        ("set", pa.list_(pa.string()), ["b", "a", "b"], ["a", "b"]),
        ("map_sum", pa.map_(pa.string(), pa.int64()), [("b", 1), ("a", 2), ("b", 3)], [("a", 2), ("b", 4)]),
        ("map_max", pa.map_(pa.string(), pa.int64()), [("b", 1), ("b", 3)], [("b", 3)]),
    ],
)
def test_a_value_alone_becomes_what_it_would_be_beside_other_keys(function, kind, value, wanted):
    """Else a compaction that merges two rows of another key would change this row."""
    schema = Schema({"k": "string"}, (), {"v": kind})
    for keys in (["x"], ["x", "y", "y"]):
        rows = pa.table({"k": keys, "v": pa.array([value] * len(keys), kind)}, schema=schema.arrow)
        assert merged(Aggregate({"v": function}), schema, rows.to_batches())["v"][0].as_py() == wanted


@pytest.mark.parametrize("kind", ["int8", "int64", "uint16", "date32", "timestamp[us, tz=UTC]", "string", "binary"])
def test_groups_are_found_in_columns_of_every_key_type(kind):
    """Also in a slice, whose values begin inside the buffers."""
    numbers = [1, 2, 2, 3, 3, 3, 4]
    column = pa.array(numbers, pa.int64())
    if kind in ("string", "binary"):
        column = pa.array([f"k{number}" for number in numbers]).cast(kind)
    else:
        kinds = {"date32": pa.date32(), "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC")}
        column = pa.array(numbers, kinds.get(kind) or pa.type_for_alias(kind))
    rows = pa.record_batch([column], ["k"])
    assert Groups.of(rows, ("k",)).starts.tolist() == [0, 1, 3, 6]
    assert Groups.of(rows.slice(2, 4), ("k",)).starts.tolist() == [0, 1]


@pytest.mark.parametrize("cut", range(1, 6))
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.uuid(), pa.string(), pa.decimal128(5, 2)], ids=str)
def test_the_rows_of_a_key_may_come_in_several_batches(kind, cut):
    """NaN equals no value, so a compaction kept several rows of a key with NaN, one for each of its batches."""
    keys = {pa.uuid(): [uuid.UUID(int=n).bytes for n in (1, 2)], pa.string(): ["a", "b"]}.get(kind, [1, math.nan])
    if pa.types.is_decimal(kind):
        keys = [Decimal(1), Decimal(2)]
    column = pa.array([keys[0], *[keys[1]] * 5], kind.storage_type if kind == pa.uuid() else kind).cast(kind)
    schema = Schema({"k": kind}, {"s": kind}, {"v": "int64"})
    rows = pa.record_batch([column, column, pa.array(range(6))], schema=schema.arrow)
    for mode, wanted in ((Latest(), [0, 5]), (First(), [0, 1]), (Aggregate({"v": "sum"}), [0, 15])):
        found = merged(mode, schema, [rows.slice(0, cut), rows.slice(cut, 1), rows.slice(cut + 1)])
        assert found["v"].to_pylist() == wanted


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.uuid(), uuid.UUID(int=1), uuid.UUID(int=2**127)),
        (pa.json_(), '{"a": 1}', '{"b": 1}'),
        (pa.binary(2), b"\0\0", b"\xff\0"),
    ],
)
def test_aggregates_compare_values_that_arrow_does_not(kind, low, high):
    """A table with the minimum of UUIDs could be made, and every write of two rows of a key failed."""
    schema = Schema({"k": "int64"}, {}, {"a": kind, "b": kind, "c": pa.list_(kind)})
    values = [high, low, None, high]
    stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    column = pa.array([one.bytes if isinstance(one, uuid.UUID) else one for one in values], stored).cast(kind)
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 2, 4], pa.int32()), column)
    rows = pa.record_batch([pa.array([7] * 4), column, column, lists], schema=schema.arrow)
    found = merged(Aggregate({"a": "min", "b": "max", "c": "set"}), schema, [rows])
    assert found.schema == schema.arrow
    assert found.to_pylist() == [{"k": 7, "a": low, "b": high, "c": [low, high, None]}]
