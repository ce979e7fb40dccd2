"""The places of logs that need no server keep one contract."""

from __future__ import annotations

import pytest

from lakebed.clock import random_token
from lakebed.testing.logs import LogConformance, LogProcesses, LogUrl


class TestMemory(LogConformance):
    @pytest.fixture
    def location(self):
        return LogUrl(f"memory://{random_token()}")


class LocalDisk:
    @pytest.fixture
    def location(self, tmp_path):
        return LogUrl(str(tmp_path / "logs"))


class TestLocalDisk(LocalDisk, LogConformance):
    pass


class TestLocalDiskAcrossProcesses(LocalDisk, LogProcesses):
    pass


class SqliteFile:
    @pytest.fixture
    def location(self, tmp_path):
        return LogUrl(f"sqlite:///{tmp_path}/logs of mine%231.db")


class TestSqlite(SqliteFile, LogConformance):
    pass


class TestSqliteAcrossProcesses(SqliteFile, LogProcesses):
    pass
