"""A store of its own for each test, and no real waiting."""

import pytest

from lakebed import clock
from lakebed.storage import connect


@pytest.fixture
def store():
    return connect(f"memory://{clock.random_token()}")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(clock, "sleep", lambda _: None)
