"""A pipeline whose tasks run in worker processes: no Spark, no Java."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebed
from lakebed import Pipeline
from tests.workers import in_process


@pytest.fixture
def instance(tmp_path: Path) -> lakebed.Instance:
    return lakebed.create(tmp_path / "lake")


@pytest.fixture
def pipeline(instance: lakebed.Instance) -> Iterator[Pipeline]:
    with in_process(instance) as pipeline:
        yield pipeline
