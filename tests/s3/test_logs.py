"""Logs on S3 keep the contract of all places, from one process and from several."""

from __future__ import annotations

import pytest

from lakebed.testing.log_processes import LogProcesses
from lakebed.testing.logs import LogConformance, LogUrl


class Bucket:
    @pytest.fixture
    def location(self, s3_server):
        return LogUrl(f"{s3_server.new_bucket()}/logs", s3_server.storage_options)


class TestS3(Bucket, LogConformance):
    pass


class TestS3AcrossProcesses(Bucket, LogProcesses):
    pass
