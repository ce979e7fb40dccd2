"""A pipeline whose tasks run in worker processes: no Spark, no Java."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakebed
from lakebed import Pipeline
from tests.spark.cases import table  # noqa: F401 - a fixture of this folder
from tests.workers import in_process


@pytest.fixture
def pipeline(lake: lakebed.Instance) -> Iterator[Pipeline]:
    with in_process(lake) as pipeline:
        yield pipeline
