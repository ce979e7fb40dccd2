"""Sketches travel between Lakebed and Spark in both directions."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("datasketches")

from lakebed import sketches


def test_spark_reads_sketches_of_lakebed_and_unites_them_with_its_own(spark):
    numbers = spark.range(500, 1500).selectExpr("hll_sketch_agg(id) AS theirs")
    ours = sketches.hll(range(1000))
    row = numbers.selectExpr(
        f"hll_sketch_estimate(X'{ours.hex()}') AS ours",
        f"hll_sketch_estimate(hll_union(theirs, X'{ours.hex()}')) AS both",
    ).first()
    assert row.ours == pytest.approx(1000, rel=0.05)
    assert row.both == pytest.approx(1500, rel=0.05)


def test_lakebed_reads_sketches_of_spark(spark):
    row = spark.range(500, 1500).selectExpr("hll_sketch_agg(id) AS few", "hll_sketch_agg(id % 3) AS three").first()
    found = sketches.hll_estimate(pa.array([bytes(row.few), bytes(row.three)])).to_pylist()
    assert found == pytest.approx([1000, 3], rel=0.05)
    united = sketches.hll_union([bytes(row.few), sketches.hll(range(1000))])
    assert sketches.hll_estimate(pa.array([united])).to_pylist() == pytest.approx([1500], rel=0.05)
    (words,) = spark.sql("SELECT hll_sketch_agg(w) FROM VALUES ('a'), ('b') AS t(w)").first()
    same = sketches.hll_union([bytes(words), sketches.hll(["a", "b"])])
    assert sketches.hll_estimate(pa.array([same])).to_pylist() == pytest.approx([2], rel=0.01)


def test_quantiles_travel_both_ways(spark):
    ours = sketches.quantiles(range(1001))
    query = f"SELECT kll_sketch_get_quantile_double(X'{ours.hex()}', 0.5D)"
    assert spark.sql(query).first()[0] == pytest.approx(500, abs=20)
    (theirs,) = spark.sql("SELECT kll_sketch_agg_double(CAST(id AS DOUBLE)) FROM range(1001)").first()
    assert sketches.quantile(pa.array([bytes(theirs)]), 0.5).to_pylist() == pytest.approx([500], abs=20)
