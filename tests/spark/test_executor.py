"""Spark's executor passes the suites of its ports, on a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakebed.spark.spark_executor import Given, SparkExecutor
from lakebed.testing.exchanges import ExchangeConformance
from lakebed.testing.executors import ExecutorConformance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestSparkExecutor(ExecutorConformance, ExchangeConformance):
    @pytest.fixture
    def executor(self, spark: SparkSession) -> SparkExecutor:
        return Given(spark).executor()
