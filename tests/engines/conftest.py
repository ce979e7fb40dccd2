"""Other engines, in an environment of their own that `make test-engines` installs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def engines() -> Path:
    """The folder of ``scripts/ensure-engines``."""
    found = os.environ.get("ENGINES")
    if not found:
        pytest.skip("ENGINES names no folder of engines: run `make test-engines`")
    return Path(found)
