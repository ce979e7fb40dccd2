"""Rows in the Spark partition that they are meant for, on the Spark that is installed."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as fn

from lakebed.spark.batch import scattered
from lakebed.spark.placement import address_of


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_each_value_has_a_spark_partition_of_its_own(spark, count):
    frame = scattered(spark, list(range(count)))
    found = frame.select("item", fn.spark_partition_id().alias("partition")).collect()
    assert sorted((row["item"], row["partition"]) for row in found) == [(item, item) for item in range(count)]


def test_rows_of_one_address_meet_in_its_partition(spark):
    rows = [(number % 13, address_of(number % 13)) for number in range(1000)]
    frame = spark.createDataFrame(rows, "reducer int, address int").repartition(13, "address")
    found = frame.select("reducer", fn.spark_partition_id().alias("partition")).distinct().collect()
    assert sorted((row["reducer"], row["partition"]) for row in found) == [(number, number) for number in range(13)]
