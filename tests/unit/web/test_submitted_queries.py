"""Queries that are submitted: how they run, end, expire and are lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed import clock
from lakebed.errors import NotFoundError
from lakebed.read.row_stream import RowStream
from lakebed.web import submitted_queries
from lakebed.web.app import RequestLimits
from lakebed.web.submitted_queries import SubmittedQueries
from tests.unit.web.cases import served

ROWS = pa.record_batch({"k": pa.array(range(1000), pa.int64())})


def until(holds: Callable[[], bool]) -> None:
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to hold")


def ended(client: TestClient[Any], query: str) -> dict[str, Any]:
    until(lambda: client.get(f"/v1/queries/{query}").json()["state"] not in ("queued", "running"))
    return dict(client.get(f"/v1/queries/{query}").json())


def test_a_scan_is_run_and_fetched_later(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        asked = {"table": "t", "scan": {"ranges": [{"prefix": ["a"]}], "columns": ["n"]}}
        submitted = client.post("/v1/queries", json=asked)
        assert submitted.status_code == 202
        query = submitted.json()["id"]
        assert ended(client, query) | {"state": "completed", "rows": 2} == ended(client, query)
        lines = client.get(f"/v1/queries/{query}/rows").text.splitlines()
        assert [json.loads(line) for line in lines] == [{"n": 1}, {"n": 2}]
        assert [one["id"] for one in client.get("/v1/queries").json()["queries"]] == [query]
        assert client.delete(f"/v1/queries/{query}").status_code == 200
        assert client.get(f"/v1/queries/{query}").json()["error"]["code"] == "query_not_found"


def test_a_statement_is_run_and_its_failure_kept(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        query = client.post("/v1/queries", json={"statement": "SELECT max(n) AS n FROM t"}).json()["id"]
        wrong = client.post("/v1/queries", json={"statement": "SELECT nothing FROM t"}).json()["id"]
        assert ended(client, query)["state"] == "completed"
        assert client.get(f"/v1/queries/{query}/rows").text == '{"n":2}\n'
        assert ended(client, wrong)["state"] == "failed"
        assert ended(client, wrong)["error"]["kind"] == "usage"
        assert client.get(f"/v1/queries/{wrong}/rows").status_code == 400


def test_rows_go_to_a_url_that_is_allowed(tmp_path: Path) -> None:
    with served(tmp_path, limits=RequestLimits(sources=(f"file://{tmp_path}/out/",))) as client:
        refused = client.post("/v1/queries", json={"table": "t", "url": f"file://{tmp_path}/other/"})
        assert refused.status_code == 403
        query = client.post("/v1/queries", json={"table": "t", "url": f"file://{tmp_path}/out/a"}).json()["id"]
        assert ended(client, query)["parts"] == ["part-00000.parquet"]
        assert pq.read_table(tmp_path / "out" / "a" / "part-00000.parquet").num_rows == 4


@pytest.mark.parametrize("body", [{}, {"table": "t", "statement": "SELECT 1"}, {"statement": "SELECT 1", "scan": {}}])
def test_a_query_is_a_scan_or_a_statement(tmp_path: Path, body: dict[str, Any]) -> None:
    with served(tmp_path) as client:
        assert client.post("/v1/queries", json=body).status_code == 400


@pytest.fixture
def instance(tmp_path: Path) -> Any:
    return lakebed.create(str(tmp_path / "lake"))


@pytest.fixture
def queries(instance: Any) -> Iterator[SubmittedQueries]:
    made = SubmittedQueries(instance, threads=1, kept_s=100)
    yield made
    made.close()


def stream(batches: int, gate: threading.Event | None = None) -> Any:
    def rows() -> Any:
        for _ in range(batches):
            if gate is not None:
                gate.wait(30)
            yield ROWS

    return RowStream(ROWS.schema, rows())


def test_rows_come_in_parts(queries: SubmittedQueries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitted_queries, "PART_BYTES", 1)
    state = queries.submit({}, "me", lambda _: stream(3))
    until(lambda: queries.get(state.id).state == "completed")
    found = queries.get(state.id)
    assert (found.rows, len(found.parts)) == (3000, 3)
    schema, batches = queries.rows(found)
    assert pa.Table.from_batches(batches, schema).num_rows == 3000


def test_a_query_without_rows_has_a_part_with_its_columns(queries: SubmittedQueries) -> None:
    state = queries.submit({}, "me", lambda _: stream(0))
    until(lambda: queries.get(state.id).state == "completed")
    schema, batches = queries.rows(queries.get(state.id))
    assert schema.names == ["k"]
    assert not sum(batch.num_rows for batch in batches)


def test_a_query_that_runs_or_waits_is_cancelled(queries: SubmittedQueries) -> None:
    gate = threading.Event()
    running, waiting = (queries.submit({}, "me", lambda _: stream(1000, gate)) for _ in range(2))
    until(lambda: queries.get(running.id).state == "running")
    queries.cancel(waiting.id)
    queries.cancel(running.id)
    gate.set()
    for one in (running, waiting):
        until(lambda one=one: queries.get(one.id).state == "cancelled")


def test_another_service_cancels_it_too(
    instance: Any, queries: SubmittedQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitted_queries, "BEAT_S", 0.05)
    # Without an end that could come before the cancellation is seen.
    state = queries.submit({}, "me", lambda _: stream(10**9))
    other = SubmittedQueries(instance, threads=1, kept_s=100)
    assert other.cancel(state.id).state in ("queued", "running", "cancelled")
    until(lambda: other.get(state.id).state == "cancelled")
    other.close()


def test_a_query_whose_service_died_is_lost(
    instance: Any, queries: SubmittedQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    state = queries.submit({}, "me", lambda _: stream(1000, gate))
    other = SubmittedQueries(instance, threads=1, kept_s=100)
    assert other.get(state.id).state in ("queued", "running")
    later = clock.now() + timedelta(seconds=submitted_queries.LOST_S + 1)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert other.get(state.id).state == "lost"
    other.cancel(state.id)
    monkeypatch.undo()
    gate.set()
    other.close()


def test_queries_expire_with_their_rows(
    instance: Any, queries: SubmittedQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = queries.submit({}, "me", lambda _: stream(1))
    until(lambda: queries.get(state.id).state == "completed" and state.id not in queries._running)
    later = clock.now() + timedelta(seconds=101)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert queries.sweep() == 1
    assert not list(instance.storage.list("queries"))
    with pytest.raises(NotFoundError):
        queries.get(state.id)
