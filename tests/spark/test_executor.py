"""Spark's executor passes the suite of its port, on a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakebed.spark.spark_executor import Given, SparkExecutor
from lakebed.testing.executors import ExecutorConformance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestSparkExecutor(ExecutorConformance):
    @pytest.fixture
    def executor(self, spark: SparkSession) -> SparkExecutor:
        return Given(spark).executor()
