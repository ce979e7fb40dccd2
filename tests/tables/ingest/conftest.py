"""The table, and the folder of the files, of requests and jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed import Table
from tests.tables.retention.cases import made


@pytest.fixture
def table() -> Table:
    """A table without rows, in memory."""
    return made()


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """A folder that is to be made."""
    return tmp_path / "inbox"
