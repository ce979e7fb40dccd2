"""The places of logs that need no server keep one contract."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.clock import random_token
from lakebed.errors import UsageError
from lakebed.testing.log_processes import LogProcesses
from lakebed.testing.logs import CommitterConformance, LogConformance, LogUrl


class TestMemory(LogConformance):
    @pytest.fixture
    def location(self):
        return LogUrl(f"memory://{random_token()}")


class TestLocalCommitter(CommitterConformance):
    @pytest.fixture
    def open_log(self, tmp_path):
        root = str(tmp_path / "lake")
        lakebed.create(root)
        return lambda: lakebed.open(root).catalog_log()


class LocalDisk:
    @pytest.fixture
    def location(self, tmp_path):
        return LogUrl(str(tmp_path / "logs"))


class TestLocalDisk(LocalDisk, LogConformance):
    pass


class TestLocalDiskAcrossProcesses(LocalDisk, LogProcesses):
    pass


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:////logs.db", "logs in SQLite are not supported.*leave log_url out.*postgresql://"),
        ("mysql://host/logs", "unknown scheme"),
        ("postgresql+psycopg://host/logs", "unknown scheme"),
    ],
)
def test_a_url_of_no_backend_is_refused(tmp_path, url, says):
    with pytest.raises(UsageError, match=says):
        lakebed.create(str(tmp_path / "lake"), log_url=url)
    assert not (tmp_path / "lake/instance.json").exists()
