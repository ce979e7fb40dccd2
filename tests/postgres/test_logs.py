"""Logs on PostgreSQL keep the contract of all places, from one process and from several."""

from __future__ import annotations

import pytest

from lakebed.testing.log_processes import LogProcesses
from lakebed.testing.logs import LogConformance, LogUrl


class Database:
    @pytest.fixture
    def location(self, cluster):
        return LogUrl(cluster.url())


class TestPostgresql(Database, LogConformance):
    pass


class TestPostgresqlByItsSocket(LogConformance):
    @pytest.fixture
    def location(self, cluster):
        return LogUrl(f"postgresql://lakebed@/lakebed?host={cluster.folder}&port={cluster.port}")


class TestPostgresqlAcrossProcesses(Database, LogProcesses):
    pass
