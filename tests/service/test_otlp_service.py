"""``lakebed serve --otlp`` sends what it has left when it ends."""

from __future__ import annotations

import urllib.request

import pyarrow as pa

import lakebed
from tests.collector import collecting
from tests.service.served import served


def test_a_service_that_ends_has_sent_its_metrics_and_traces(tmp_path):
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", lakebed.Schema({"k": "int64"}))
    table.write(pa.table({"k": pa.array([1, 2], pa.int64())}))
    with collecting() as collector:
        with served(tmp_path / "lake", "--otlp", collector.url) as service:
            urllib.request.urlopen(f"{service.url}/v1/tables", timeout=120).close()
        assert len(collector.named("GET /v1/tables")) == 1
        point = collector.point("lakebed_http_request_seconds", route="/v1/tables", method="GET", status="200")
        assert point.count == 1
