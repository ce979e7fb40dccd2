"""Rows in the Spark partition that they are meant for, on the Spark that is installed."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as fn

from lakebed.spark.scattered import address_of, scattered
from tests.soaked import few

COLUMNS = ["item", "value", "partition"]


def placed(batches):
    """For each value of a task: its number, the value, and the Spark partition of the task."""
    for batch in batches:
        values = [str(pickle.loads(payload)) for payload in batch.column(1).to_pylist()]
        partitions = pa.array([TaskContext.get().partitionId()] * len(values), pa.int32())
        yield pa.record_batch([batch.column(0), pa.array(values, pa.string()), partitions], names=COLUMNS)


def lengths(batches):
    """For each value of a task: its number, and its bytes."""
    for batch in batches:
        found = [len(pickle.loads(payload)) for payload in batch.column(1).to_pylist()]
        yield pa.record_batch([batch.column(0), pa.array(found, pa.int64())], names=["item", "bytes"])


@pytest.mark.parametrize("count", few([0, 7, 1, 2, 100], 2))
def test_each_value_has_a_spark_partition_of_its_own(spark, count):
    frame = scattered(spark, list(range(count))).mapInArrow(placed, "item int, value string, partition int")
    found = frame.collect()
    assert sorted(tuple(row) for row in found) == [(item, str(item), item) for item in range(count)]


def test_values_larger_than_spark_sends_with_a_plan_arrive(spark):
    values = [bytes([number]) * (1 << 20) for number in range(4)]
    frame = scattered(spark, values).mapInArrow(lengths, "item int, bytes long")
    assert sorted(tuple(row) for row in frame.collect()) == [(number, 1 << 20) for number in range(4)]


def test_rows_of_one_address_meet_in_its_partition(spark):
    rows = [(number % 13, address_of(number % 13)) for number in range(1000)]
    frame = spark.createDataFrame(rows, "reducer int, address int").repartition(13, "address")
    found = frame.select("reducer", fn.spark_partition_id().alias("partition")).distinct().collect()
    assert sorted((row["reducer"], row["partition"]) for row in found) == [(number, number) for number in range(13)]
