"""What /metrics says of a service whose tables are written and read."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from litestar.testing import TestClient
from prometheus_client.parser import text_string_to_metric_families

import lakebed
from lakebed.errors import Code
from lakebed.model.state.transactions import RaiseWatermark, Watermark
from lakebed.server.monitoring.definitions import METRICS
from lakebed.server.monitoring.monitor import CONTENT_TYPE, Monitor
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.service.service import Service
from lakebed.server.service.status import HookStatus
from lakebed.server.web.app import make_app
from lakebed.write import requests


class Tokens:
    """Knows two tokens."""

    def authenticate(self, authorization):
        if authorization == "Bearer reader":
            return Principal.everywhere("reader", Permission.READ)
        if authorization == "Bearer visitor":
            return Principal("visitor", ())
        raise Code.NOT_AUTHENTICATED("give a token")


def made(lake, name="t"):
    table = lake.create_table(name, lakebed.Schema({"k": "int64"}))
    table.write(pa.table({"k": pa.array(range(10), pa.int64())}))
    return table


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(client, **headers):
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == CONTENT_TYPE
    return samples(answer.text)


@pytest.fixture
def client(memory_lake):
    """Of a service that was not started: it looks at its tables when it is asked for its status."""
    with TestClient(make_app(Service(memory_lake))) as client:
        yield client


def test_reads_and_writes_are_counted_by_table(client, memory_lake):
    table = made(memory_lake)
    assert table.get(3).num_rows == 1
    found = scraped(client)
    assert found["lakebed_read_seconds_count", ("kind", "get"), ("table", "t")] == 1
    assert found["lakebed_read_rows_total", ("kind", "get"), ("table", "t")] == 1
    assert found["lakebed_write_rows_total", ("table", "t")] == 10
    # The table has no name yet when its log begins.
    assert found["lakebed_commit_seconds_count", ("outcome", "committed"), ("table", "t")] == 1
    assert found["lakebed_commit_seconds_count", ("outcome", "committed"), ("table", "(catalog)")] == 1


def test_the_state_of_tables_is_published(client, memory_lake):
    made(memory_lake)
    found = scraped(client)
    assert found["lakebed_table_rows", ("table", "t")] == 10
    assert found["lakebed_table_files", ("table", "t")] == 1
    assert found["lakebed_table_partition_files_max", ("table", "t")] == 1
    assert found["lakebed_table_backlog_files", ("table", "t")] == 0
    assert found["lakebed_tables",] == 1
    assert found["lakebed_tables_unlabelled",] == 0
    assert found["lakebed_service_spark", ("state", "none")] == 1
    assert found["lakebed_build", ("version", lakebed.__version__)] == 1
    assert found["process_resident_memory_bytes",] > 0


def test_a_service_that_was_started_says_when(memory_lake):
    with Service(memory_lake) as service, TestClient(make_app(service)) as client:
        assert scraped(client)["lakebed_service_start_time_seconds",] > 1e9


def test_requests_are_counted_by_route_method_and_status(client):
    client.get("/v1/tables")
    client.get("/v1/nothing/of/the/kind")
    client.request("BREW", "/v1/tables")
    found = scraped(client)
    name = "lakebed_http_request_seconds_count"
    assert found[name, ("method", "GET"), ("route", "/v1/tables"), ("status", "200")] == 1
    assert found[name, ("method", "GET"), ("route", "(none)"), ("status", "404")] == 1
    assert any(key[0] == name and ("method", "OTHER") in key for key in found)
    assert found["lakebed_http_requests_active",] == 1


def test_tables_beyond_the_bound_are_added_up(memory_lake):
    service = Service(memory_lake)
    monitor = Monitor(service, tables_max=2)
    with TestClient(make_app(service, monitor=monitor)) as client:
        for name in ("b", "a", "d", "c"):
            made(memory_lake, name).get(1)
        found = scraped(client)
        tables = {dict(labels)["table"] for name, *labels in found if name == "lakebed_table_rows"}
        assert tables == {"b", "a", "(others)"}
        assert found["lakebed_table_rows", ("table", "(others)")] == 20
        assert found["lakebed_table_partition_files_max", ("table", "(others)")] == 1
        assert found["lakebed_write_rows_total", ("table", "(others)")] == 20
        assert found["lakebed_tables_unlabelled",] == 2
        memory_lake.drop_table("b")
        found = scraped(client)
        tables = {dict(labels)["table"] for name, *labels in found if name == "lakebed_table_rows"}
        assert tables == {"a", "d", "(others)"}
        assert ("lakebed_write_rows_total", ("table", "b")) not in found
        assert found["lakebed_tables_unlabelled",] == 1


def test_a_renamed_table_has_its_new_name(client, memory_lake):
    made(memory_lake)
    memory_lake.rename_table("t", "u")
    memory_lake.table("u").get(1)
    found = scraped(client)
    assert found["lakebed_table_rows", ("table", "u")] == 10
    assert not [key for key in found if ("table", "t") in key]


def test_every_metric_is_published_and_no_other(client, memory_lake):
    made(memory_lake).get(1)
    families = {family.name for family in text_string_to_metric_families(client.get("/metrics").text)}
    ours = {metric.full_name.removesuffix("_total") for metric in METRICS}
    assert {name for name in families if name.startswith("lakebed_")} == ours
    assert all(name.startswith("process_") for name in families - ours)


def test_metrics_need_read_on_every_table_unless_they_are_public(memory_lake):
    with Service(memory_lake) as service:
        with TestClient(make_app(service, Tokens())) as client:
            assert client.get("/metrics").status_code == 401
            assert client.get("/metrics", headers={"Authorization": "Bearer visitor"}).status_code == 403
            scraped(client, Authorization="Bearer reader")
        with TestClient(make_app(service, Tokens(), monitor=Monitor(service, public=True))) as client:
            scraped(client)


def test_a_status_that_cannot_be_had_is_counted_and_the_rest_is_published(memory_lake):
    class Failing(Service):
        def status(self):
            raise Code.STORE_UNAVAILABLE("the store is gone", transient=True)

    made(memory_lake)
    with Failing(memory_lake) as service, TestClient(make_app(service)) as client:
        found = scraped(client)
        assert found["lakebed_scrape_errors_total",] == 1
        assert ("lakebed_tables",) not in found
        assert ("lakebed_cache_hits_total", ("cache", "read_pages")) in found


def test_operations_of_the_service_are_measured(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    made(lake)
    service = Service(lake)
    monitor = Monitor(service)
    with monitor.installed():
        table = lake.table("t")
        table.set(history_s=0)
        table.remove(lakebed.KeyRange())
        service.run_once()
        found = samples(monitor.text().decode())
    assert found["lakebed_operation_seconds_count", ("operation", "gc"), ("outcome", "succeeded")] == 1
    assert found["lakebed_gc_deleted_files_total", ("table", "t")] == 1
    assert found["lakebed_operation_failures", ("operation", "gc"), ("table", "t")] == 0
    assert found["lakebed_table_gc_end_time_seconds", ("table", "t")] > 1e9


def test_how_far_hooks_and_views_are_behind_is_published(memory_lake, monkeypatch):
    table = made(memory_lake)
    memory_lake.create_view_table(
        "v", source="t", select="SELECT k, count(*) AS n FROM source GROUP BY k", row_key=["k"],
        merge=lakebed.Aggregate({"n": "sum"}),
    )  # fmt: skip
    for number in range(3):
        table.write(pa.table({"k": pa.array([number], pa.int64())}))
    service = Service(memory_lake)
    hooks = [
        HookStatus(str(number), table.id, None, table.version - number, number, None, None, None) for number in range(3)
    ]
    monkeypatch.setattr(service.hooks, "status", lambda: tuple(hooks))
    with TestClient(make_app(service)) as client:
        found = scraped(client)
    assert found["lakebed_table_hook_failures", ("table", "t")] == 2
    assert found["lakebed_table_hook_lag_versions", ("table", "t")] == 2
    assert found["lakebed_table_view_lag_versions", ("table", "v")] >= 3
    assert ("lakebed_table_view_lag_versions", ("table", "t")) not in found


def test_files_that_are_left_out_are_counted(client, memory_lake, tmp_path):
    table = made(memory_lake)
    pq.write_table(pa.table({"k": pa.array([1], pa.int64())}), tmp_path / "old.parquet")
    os.utime(tmp_path / "old.parquet", (0, 0))
    table.commit(RaiseWatermark(Watermark.REQUEST_WATERMARK, table.version))
    report = table.submit(tmp_path / "old.parquet")
    assert report.files[0].standing is requests.Standing.OLD
    assert scraped(client)["lakebed_submitted_files_left_out_total", ("table", "t")] == 1
