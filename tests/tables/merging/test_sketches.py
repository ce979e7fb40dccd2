"""Columns that stand for many values: mean, HLL and KLL sketches, and aggregates of them."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import Aggregate, Schema, SchemaMismatchError, UsageError, sketches
from lakebed.files.merging.row_merger import RowMerger
from lakebed.sketches import check_hll, check_kll_doubles

pytest.importorskip("datasketches")
import datasketches


def one(values):
    (value,) = values.to_pylist()
    return value


def merged(function, kind, runs):
    """Runs of one key, merged with each other; a run is a list of values."""
    schema = Schema({"k": "string"}, (), {"v": kind})
    rows = [pa.table({"k": ["x"] * len(run), "v": pa.array(run, kind)}, schema=schema.arrow) for run in runs]
    (found,) = RowMerger(Aggregate({"v": function}), schema, complete=True).merge(
        batch for table in rows for batch in table.to_batches()
    )
    return found.column("v")


def regrouped(function, kind, values, edges):
    """The aggregate of the values, the aggregate of aggregates of neighbours, and both merged in one go."""
    cuts = sorted({0, len(values), *(edge for edge in edges if edge < len(values))})
    parts = [one(merged(function, kind, [values[low:high]])) for low, high in itertools.pairwise(cuts)]
    return merged(function, kind, [values]), merged(function, kind, [[part] for part in parts])


EDGES = st.lists(st.integers(0, 30), max_size=4)
NUMBERS = st.lists(st.one_of(st.none(), st.integers(-(2**40), 2**40)), min_size=1, max_size=30)


# -- mean -------------------------------------------------------------------------------------------------------


@given(NUMBERS, EDGES)
def test_a_mean_is_the_sum_of_the_values_by_their_count_however_runs_are_grouped(numbers, edges):
    values = sketches.mean_column(pa.array(numbers, pa.int64())).to_pylist()
    at_once, by_parts = regrouped("mean", sketches.MEAN, values, edges)
    held = [number for number in numbers if number is not None]
    wanted = sum(held) / len(held) if held else None
    # Whole numbers below 2^53 are added without rounding.
    assert one(sketches.mean(at_once)) == wanted
    assert one(sketches.mean(by_parts)) == wanted
    assert one(at_once) == one(by_parts)


def test_a_mean_of_nothing_is_null():
    column = pa.array(
        [{"sum": 0.0, "count": 0}, None, {"sum": None, "count": 1}, {"sum": 3.0, "count": 2}], sketches.MEAN
    )
    assert sketches.mean(column).to_pylist() == [None, None, None, 1.5]
    assert sketches.mean(pa.chunked_array([column.slice(3), column.slice(0, 1)])).to_pylist() == [1.5, None]


def test_a_count_that_does_not_fit_names_the_key():
    large = {"sum": 1.0, "count": 2**63 - 1}
    with pytest.raises(SchemaMismatchError, match="'x'") as caught:
        merged("mean", sketches.MEAN, [[large, large]])
    assert caught.value.code == "aggregate_too_large"


# -- hll --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [list(range(1000)), [n / 7 for n in range(1000)], [f"user {n}" for n in range(1000)]],
    ids=lambda v: type(v[1]),
)
def test_an_hll_sketch_counts_distinct_values_within_its_error(values):
    doubled = [*values, None, *values]
    estimate = one(sketches.hll_estimate(pa.array([sketches.hll(doubled)])))
    assert abs(estimate - 1000) < 1000 * 4 * 1.04 / 2 ** (sketches.LG_K / 2)


def test_the_bytes_of_an_hll_sketch_are_those_of_the_library():
    wanted = datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8)
    wanted.update(5)
    wanted.update(6)
    assert sketches.hll([5, 6]) == wanted.serialize_compact()
    # Spark writes the updatable form.
    assert one(sketches.hll_estimate(pa.array([wanted.serialize_updatable()]))) == pytest.approx(2)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 60)), min_size=1, max_size=30), EDGES)
def test_a_union_of_few_values_counts_them_exactly_however_runs_are_grouped(numbers, edges):
    values = sketches.hll_column(pa.array(numbers, pa.int64())).to_pylist()
    for found in regrouped("hll", pa.binary(), values, edges):
        held = {number for number in numbers if number is not None}
        estimate = one(sketches.hll_estimate(found))
        assert estimate is None if not held else round(estimate) == len(held)


def test_unions_of_many_values_have_the_same_estimate_however_they_are_grouped():
    parts = [sketches.hll(np.arange(low, low + 40_000)) for low in range(0, 200_000, 20_000)]
    at_once, by_parts = regrouped("hll", pa.binary(), parts, [3, 4, 8])
    assert one(sketches.hll_estimate(at_once)) == one(sketches.hll_estimate(by_parts))
    assert one(sketches.hll_estimate(at_once)) == pytest.approx(220_000, rel=0.05)


def test_a_union_has_the_registers_of_the_smallest_sketch():
    small, large = sketches.hll(range(3), lg_k=8), sketches.hll(range(100_000), lg_k=14)
    for order in ([small, large], [large, small]):
        assert datasketches.hll_sketch.deserialize(one(merged("hll", pa.binary(), [order]))).lg_config_k == 8


def test_hll_counts_no_lists():
    with pytest.raises(UsageError, match="cast"):
        sketches.hll([[1], [2]])


# -- quantiles --------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=1, max_size=30), EDGES, st.floats(0, 1))
def test_quantiles_of_few_values_are_exact_however_runs_are_grouped(numbers, edges, rank):
    values = sketches.quantiles_column(pa.array(numbers, pa.float64())).to_pylist()
    held = sorted(number for number in numbers if number is not None)
    at_once, by_parts = regrouped("quantiles", pa.binary(), values, edges)
    found = one(sketches.quantile(at_once, rank))
    assert found == one(sketches.quantile(by_parts, rank))
    if held:
        assert found in held
        # The least value with this share of the values at or below it; one position off where the share is rounded.
        position = held.index(found)
        assert (position - 1) / len(held) <= rank <= (len(held) - held[::-1].index(found) + 1) / len(held)
    else:
        assert found is None


def test_quantiles_of_many_values_are_within_the_error_of_their_sketch():
    values = np.random.default_rng(1).permutation(200_000).astype(float)
    parts = [sketches.quantiles(part) for part in np.split(values, 20)]
    _, found = regrouped("quantiles", pa.binary(), parts, [5, 11])
    for rank in (0.01, 0.5, 0.99):
        assert one(sketches.quantile(found, rank)) == pytest.approx(rank * 200_000, abs=0.03 * 200_000)


def test_a_sketch_of_nothing_has_no_quantile():
    column = pa.array([sketches.quantiles([]), None, sketches.quantiles([None, float("nan")])])
    assert sketches.quantile(column, 0.5).to_pylist() == [None, None, None]


@pytest.mark.parametrize("rank", [-0.1, 1.1, "0.5", True, float("nan")])
def test_a_rank_is_from_0_to_1(rank):
    with pytest.raises(UsageError, match="rank"):
        sketches.quantile(pa.array([], pa.binary()), rank)


# -- bytes that are none ----------------------------------------------------------------------------------------

HLL = [sketches.hll(range(count), lg_k) for count in (0, 1, 8, 9, 200, 5000) for lg_k in (7, 12)]
KLL = [sketches.quantiles(np.arange(float(count)), k) for count in (0, 1, 2, 500, 50_000) for k in (8, 200)]


@pytest.mark.parametrize("function", ["hll", "quantiles"])
def test_bytes_that_are_no_sketch_are_refused_with_the_key_in_a_row_alone_too(function):
    with pytest.raises(SchemaMismatchError, match="'x'") as caught:
        merged(function, pa.binary(), [[b"no sketch"]])
    assert caught.value.column == "v"
    with pytest.raises(SchemaMismatchError, match=r"lakebed\.sketches"):
        merged(function, pa.binary(), [[sketches.hll([1]) if function == "quantiles" else sketches.quantiles([1])]])


def test_hll_sketches_of_other_types_are_refused():
    for kind in (datasketches.tgt_hll_type.HLL_4, datasketches.tgt_hll_type.HLL_6):
        other = datasketches.hll_sketch(12, kind)
        other.update(1)
        with pytest.raises(SchemaMismatchError, match="HLL_8"):
            check_hll(other.serialize_compact())


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_changed_bytes_are_refused_or_taken_but_crash_nothing(data):
    is_hll = data.draw(st.booleans())
    sketch = bytearray(data.draw(st.sampled_from(HLL if is_hll else KLL)))
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, min(len(sketch), 48) - 1))
        sketch[place] = data.draw(st.integers(0, 255))
    changed = bytes(sketch[: data.draw(st.integers(0, len(sketch)))] if data.draw(st.booleans()) else sketch)
    union, other = (sketches.hll_union, HLL[-1]) if is_hll else (sketches.quantiles_union, KLL[-1])
    try:
        (check_hll if is_hll else check_kll_doubles)(changed)
    except SchemaMismatchError:
        return
    assert union([changed, other])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: b"\x05\x01\x0f\x00\xc8\x00\x08\x00" + bytes(12), "levels"),
        (lambda: KLL[-1][:-8], "bytes"),
        (lambda: KLL[-1][:8] + struct.pack("<Q", 7) + KLL[-1][16:], "stand for"),
        (lambda: KLL[-1][:-8] + struct.pack("<d", 1e300), "greatest"),
    ],
)
def test_the_refusal_of_a_kll_sketch_says_what_is_wrong(make, reason):
    with pytest.raises(SchemaMismatchError, match=reason):
        check_kll_doubles(make())


# -- tables -----------------------------------------------------------------------------------------------------


def test_statements_read_sketches_and_unite_them(tmp_path):
    lake = lakebed.create(tmp_path / "lake")
    schema = Schema({"day": "int64"}, (), {"users": "binary", "delay": "binary", "price": sketches.MEAN})
    table = lake.create_table("t", schema, merge=Aggregate({"users": "hll", "delay": "quantiles", "price": "mean"}))
    table.write(
        pa.table(
            {
                "day": [1, 2],
                "users": [sketches.hll(["a", "b", "c"]), sketches.hll(["c", "d"])],
                "delay": [sketches.quantiles([1.0, 9.0]), sketches.quantiles([1.0, 5.0])],
                "price": pa.array([{"sum": 3.0, "count": 2}, {"sum": 5.0, "count": 2}], sketches.MEAN),
            }
        )
    )
    text = "SELECT day, hll_estimate(users) AS n, quantile(delay, 1.0) AS q, price['sum'] / price['count'] AS m FROM t"
    rows = lake.sql(f"{text} ORDER BY day").read_all().to_pylist()
    assert [(row["day"], round(row["n"]), row["q"], row["m"]) for row in rows] == [(1, 3, 9.0, 1.5), (2, 2, 5.0, 2.5)]
    text = (
        "SELECT hll_estimate(hll_union(users)) AS n, quantile(quantiles_union(delay), 0.5) AS q, count(*) AS c FROM t"
    )
    (row,) = lake.sql(text).read_all().to_pylist()
    assert (round(row["n"]), row["q"], row["c"]) == (4, 1.0, 2)
    assert lake.sql("SELECT quantile(delay, NULL) AS q FROM t").read_all()["q"].to_pylist() == [None, None]
    with pytest.raises(lakebed.Error, match="rank"):
        lake.sql("SELECT quantile(delay, 2) FROM t").read_all()


@pytest.mark.parametrize(
    ("function", "kind"),
    [("mean", "float64"), ("mean", pa.struct([("sum", pa.int64())])), ("hll", "string"), ("quantiles", "float64")],
)
def test_a_column_of_another_type_is_refused_when_the_table_is_made(function, kind, tmp_path):
    lake = lakebed.create(tmp_path / "lake")
    with pytest.raises(UsageError, match="sketches.MEAN" if function == "mean" else "binary"):
        lake.create_table("t", Schema({"k": "int64"}, (), {"v": kind}), merge=Aggregate({"v": function}))
