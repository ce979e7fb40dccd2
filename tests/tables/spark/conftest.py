"""Tasks of Spark in this process."""

import pytest

from lakebed.engine import datafusion


@pytest.fixture(autouse=True)
def _all_cores(monkeypatch):
    """A task keeps to one core, and this process is no task."""
    monkeypatch.setattr(datafusion, "claim_one_core", lambda: None)
