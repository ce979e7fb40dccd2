"""One Spark session for all tests of a process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import lakebed
from lakebed import Pipeline
from lakebed.spark.session import start_session
from tests.spark.cases import table  # noqa: F401 - a fixture of this folder
from tests.spark.jvm_options import jvm_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# Of this process and those it starts.
os.environ.setdefault("JDK_JAVA_OPTIONS", jvm_options())


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores and four attempts a task: plain `local[2]` would never retry one."""
    session = start_session("local[2,4]")
    session.conf.set("spark.sql.shuffle.partitions", "4")
    yield session
    session.stop()


@pytest.fixture
def pipeline(lake: lakebed.Instance, spark: SparkSession) -> Pipeline:
    return Pipeline(lake, spark)
