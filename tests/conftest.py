"""What every test shares: marks by folder, and how hard Hypothesis tries."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A run of `make test` has to end; examples that take long (a store, a file) are not a fault of the test.
settings.register_profile("default", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", settings.get_profile("default"), max_examples=2000, print_blob=True)
settings.load_profile("default")

# Tests kill processes, not machines: what they write need not survive a loss of power, and waiting for the disk is what
# most of them did longest. tests/unit/storage/test_local.py holds which files and folders are made safe, and when.
os.fsync = lambda _descriptor: None

# What a shell starts in the background ignores Ctrl-C, and so does all that it starts in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What a test remembers of log URLs must not reach, or come from, the user's own configuration.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="lakebed-test-config-")

MARK_BY_FOLDER = {
    "cluster": pytest.mark.spark,
    "spark": pytest.mark.spark,
    "s3": pytest.mark.s3,
    "postgres": pytest.mark.postgres,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the folder they lie in, so that no file can forget to."""
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        if folder in MARK_BY_FOLDER:
            item.add_marker(MARK_BY_FOLDER[folder])
