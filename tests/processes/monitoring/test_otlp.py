"""What an OpenTelemetry collector gets from a service."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from litestar import get
from litestar.testing import TestClient

import lakebed
from lakebed.clock import random_token
from lakebed.server.monitoring.monitor import Monitor
from lakebed.server.monitoring.otlp import Otlp
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from tests.collector import attributes, collecting

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def table():
    table = lakebed.create(f"memory://{random_token()}").create_table("t", lakebed.Schema({"k": "int64"}))
    table.write(pa.table({"k": pa.array(range(10), pa.int64())}))
    return table


@pytest.fixture
def sent(table):
    """The collector, after a request that reads and writes the table was answered and the service has ended."""

    @get("/busy", sync_to_thread=True, include_in_schema=False)
    def busy() -> int:
        table.write(pa.table({"k": pa.array([10], pa.int64())}))
        return table.get(3).num_rows + table.scan().read_all().num_rows

    with collecting() as collector:
        lake = instance_of(table)
        with Service(lake) as service:
            monitor = Monitor(service)
            with Otlp(collector.url, lake, monitor):
                app = make_app(service, monitor=monitor)
                app.register(busy)
                with TestClient(app) as client:
                    traced = client.get("/busy", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
                    assert traced.json() == 12
                    assert client.get("/nothing").status_code == 404
        yield collector


def instance_of(table):
    return lakebed.open(table.storage.url)


def test_a_request_continues_the_trace_of_its_caller_and_its_parts_are_below_it(sent):
    (request,) = sent.named("GET /busy")
    assert request.trace_id.hex() == TRACE
    assert request.parent_span_id.hex() == SPAN
    assert attributes(request) == {
        "http.request.method": "GET",
        "http.route": "/busy",
        "http.response.status_code": 200,
    }
    spans = {span.span_id: span for span in sent.spans}
    below = {
        attributes(span).get("lakebed.read.kind", span.name): span
        for span in sent.spans
        if span.trace_id == request.trace_id
    }
    assert {"write", "commit", "get", "scan", "storage_request"} <= set(below)
    assert below["get"].parent_span_id == request.span_id
    assert below["scan"].parent_span_id == request.span_id
    assert below["write"].parent_span_id == request.span_id
    assert spans[below["commit"].parent_span_id].name == "write"
    assert attributes(below["commit"])["lakebed.outcome"] == "committed"
    assert attributes(below["get"])["lakebed.table"] == "t"


def test_a_request_without_a_trace_begins_one(sent):
    (request,) = sent.named("GET (none)")
    assert not request.parent_span_id
    assert request.trace_id.hex() != TRACE
    assert attributes(request)["http.response.status_code"] == 404


def test_the_metrics_are_those_of_prometheus(sent):
    assert sent.resource["service.name"] == "lakebed"
    assert sent.resource["service.version"] == lakebed.__version__
    assert sent.point("lakebed_write_rows", table="t").as_double == 1
    assert sent.metrics["lakebed_write_rows"].sum.is_monotonic
    assert sent.point("lakebed_table_rows", table="t").as_double >= 10
    read = sent.point("lakebed_read_seconds", table="t", kind="get")
    assert read.count == 1
    assert sum(read.bucket_counts) == 1
    assert len(read.bucket_counts) == len(read.explicit_bounds) + 1
    assert not read.HasField("min")
    assert sent.metrics["lakebed_read_seconds"].unit == "s"


def test_a_collector_that_is_gone_stops_nothing(table, caplog):
    with collecting() as collector:
        gone = collector.url
    lake = instance_of(table)
    with caplog.at_level(logging.CRITICAL), Service(lake) as service:
        monitor = Monitor(service)
        with Otlp(gone, lake, monitor), TestClient(make_app(service, monitor=monitor)) as client:
            assert client.get("/health/live").status_code == 200


@pytest.mark.parametrize("url", ["localhost:4318", "grpc://localhost:4317"])
def test_a_url_that_is_none_is_refused(table, url):
    with pytest.raises(lakebed.UsageError, match="must begin with http"):
        Otlp(url, instance_of(table), Monitor(Service(instance_of(table))))


def test_an_interval_that_is_none_is_refused(table, monkeypatch):
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")
    with pytest.raises(lakebed.UsageError, match="OTEL_METRIC_EXPORT_INTERVAL = 'soon'"):
        Otlp("http://localhost:4318", instance_of(table), Monitor(Service(instance_of(table))))
