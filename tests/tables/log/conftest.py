"""A store of its own for each test, and no real waiting."""

import pytest

from lakebed import clock
from lakebed.log.tail import LogTail
from lakebed.storage import connect
from tests.clocks import set_clock


@pytest.fixture
def store():
    return connect(f"memory://{clock.random_token()}")


@pytest.fixture(autouse=True)
def _no_waiting(request, monkeypatch):
    if "real_waiting" not in request.fixturenames:
        set_clock(monkeypatch, sleep=lambda _: None)


@pytest.fixture
def real_waiting():
    """For a test of others that take their time."""


@pytest.fixture(autouse=True)
def _checkpoints_at_once(request, monkeypatch):
    """A commit returns when the checkpoint that it made due is written, unless a test is about their going on."""
    if "checkpoints_later" in request.fixturenames:
        return
    start = LogTail.start_checkpoint

    def start_and_wait(tail):
        start(tail)
        tail.wait_for_checkpoint()

    monkeypatch.setattr(LogTail, "start_checkpoint", start_and_wait)


@pytest.fixture
def checkpoints_later():
    """Checkpoints are written while commits go on, as outside of tests."""
