"""A pipeline whose tasks run in worker processes: no Spark, no Java."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebed
from lakebed.spark import InProcess, Pipeline


@pytest.fixture
def instance(tmp_path: Path) -> lakebed.Instance:
    return lakebed.create(tmp_path / "lake")


@pytest.fixture
def pipeline(instance: lakebed.Instance) -> Iterator[Pipeline]:
    with Pipeline(instance, launcher=InProcess(workers=2)) as pipeline:
        yield pipeline
