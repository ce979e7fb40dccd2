"""Lakes that tests share: empty instances, on local disk and in memory.

A test that needs tables makes them there; a module whose tests only read the same ones has a lake of its own, once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed.clock import random_token


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Instance:
    """An empty instance on local disk, in the folder ``lake`` of the test."""
    return lakebed.create(tmp_path / "lake")


@pytest.fixture
def memory_lake() -> lakebed.Instance:
    """An empty instance in memory."""
    return lakebed.create(f"memory://{random_token()}")
