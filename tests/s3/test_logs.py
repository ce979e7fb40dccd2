"""Logs on S3 keep the contract of all places, from one process and from several."""

from __future__ import annotations

import pytest

from lakebed.testing.log_processes import LogProcesses
from lakebed.testing.logs import LogConformance, LogUrl


class Bucket:
    @pytest.fixture
    def location(self, s3_server):
        bucket = s3_server.new_bucket()
        return LogUrl(f"{bucket}/logs", s3_server.storage_options, data_url=bucket)


class TestS3(Bucket, LogConformance):
    page_versions = 120

    @pytest.fixture(autouse=True)
    def small_pages(self, monkeypatch):
        """The server lists a hundred names in an answer; S3 lists a thousand."""
        monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "100")


class TestS3AcrossProcesses(Bucket, LogProcesses):
    pass
