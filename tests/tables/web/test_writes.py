"""Writes, deletes, submissions and administration over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed import clock
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.service.service import Service
from lakebed.server.web.app import RequestLimits, make_app
from lakebed.table.tracker.runs import JobRun, RunOutcome, write_records
from tests.tables.web.cases import ARROW, JSON_LINES, ROWS, arrow_bytes, served

T = "/v1/tables/t"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient[Any]]:
    with served(tmp_path) as made:
        yield made


def ks(client: TestClient[Any]) -> list[str]:
    return [json.loads(line)["k"] for line in client.get(f"{T}/scan").text.splitlines()]


def error(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def bodies() -> list[Any]:
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS.slice(0, 1), sink)
    line = {"k": "a", "n": 1, "v": 0.5, "b": "0001"}
    return [
        pytest.param(ARROW, arrow_bytes(ROWS.slice(0, 1)), id="arrow"),
        pytest.param("application/vnd.apache.parquet", bytes(sink.getvalue()), id="parquet"),
        pytest.param(JSON_LINES, json.dumps(line).encode(), id="json"),
        pytest.param("application/json", json.dumps(line).encode(), id="one in json"),
        pytest.param("application/json", json.dumps([line]).encode(), id="list in json"),
        pytest.param("text/csv", b"k,n,v,b\na,1,0.5,\n", id="csv"),
    ]


@pytest.mark.parametrize(("content_type", "body"), bodies())
def test_rows_are_added_in_one_commit(client: TestClient[Any], content_type: str, body: bytes) -> None:
    answer = client.post(f"{T}/rows", content=body, headers={"content-type": content_type})
    assert answer.json() == {"table": "t", "version": 3}
    assert ks(client) == ["a", "a", "a", "b", "c"]


def test_a_repeat_with_the_same_commit_id_adds_nothing(client: TestClient[Any]) -> None:
    for _ in range(2):
        answer = client.post(
            f"{T}/rows", params={"commit_id": "once"}, content=arrow_bytes(ROWS), headers={"content-type": ARROW}
        )
        assert answer.json()["version"] == 3
    assert len(ks(client)) == 8


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        (ARROW, arrow_bytes(ROWS)[:-30], (422, "source_unparsable")),
        (ARROW, b"not arrow", (422, "source_unparsable")),
        (ARROW, b"", (400, "argument_missing")),
        ("application/vnd.apache.parquet", b"PAR1PAR1", (422, "source_unparsable")),
        (JSON_LINES, b'{"k": "a"', (422, "source_unparsable")),
        (JSON_LINES, b"[1]", (422, "source_unparsable")),
        (JSON_LINES, b'{"k": "a", "n": 1, "b": "!"}', (422, "value_not_representable")),
        (JSON_LINES, b'{"k": "a", "n": 1.5}', (422, "value_not_representable")),
        (JSON_LINES, b'{"k": "a"}', (422, "column_missing")),
        (JSON_LINES, b'{"k": "a", "n": 1, "x": 1}', (422, "column_unexpected")),
        ("text/csv", b"k,n\na,x\n", (422, "value_not_representable")),
        ("image/png", b"x", (415, "request_invalid")),
    ],
)
def test_a_body_that_is_not_rows_adds_none(
    client: TestClient[Any], content_type: str, body: bytes, expected: tuple[int, str]
) -> None:
    answer = client.post(f"{T}/rows", content=body, headers={"content-type": content_type})
    assert error(answer) == expected
    assert "lakebed-upload" not in answer.text
    assert len(ks(client)) == 4


def test_a_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, limits=RequestLimits(request_bytes=100)) as small:
        answer = small.post(f"{T}/rows", content=arrow_bytes(ROWS), headers={"content-type": ARROW})
        assert answer.status_code == 413


def test_deletes(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    lake.create_table("t", lakebed.Schema({"k": "string"}, {}, {"v": "int64"}), merge=lakebed.Latest()).write(
        pa.table({"k": ["a", "b", "c"], "v": pa.array([1, 2, 3], pa.int64())})
    )
    with Service(lake, maintain=False) as service, TestClient(make_app(service)) as client:
        assert client.post(f"{T}/delete", json={"keys": [["a"]]}).json()["keys"] == 1
        assert client.post(f"{T}/delete", json={"where": "v = 3"}).json()["keys"] == 1
        assert ks(client) == ["b"]


def test_only_allowed_sources_are_submitted(tmp_path: Path) -> None:
    allowed = tmp_path / "in"
    allowed.mkdir()
    pq.write_table(ROWS, allowed / "x.parquet")
    pq.write_table(ROWS, tmp_path / "other.parquet")
    climbing = [f"{allowed}/../other.parquet", *(f"file://{allowed}/{up}other.parquet" for up in ("..%2F", "%2e%2E/"))]
    with served(tmp_path, limits=RequestLimits(sources=(f"{allowed}/", f"file://{allowed}/"))) as client:
        for url in (f"{tmp_path}/other.parquet", *climbing, "/etc/passwd", "s3://bucket/key"):
            assert error(client.post(f"{T}/requests", json={"files": [url]})) == (403, "source_not_allowed")
        assert client.post(f"{T}/requests", json={"files": [f"{allowed}/x.parquet"]}).status_code == 202
        assert len(client.get(f"{T}/requests").json()["requests"]) == 1


def test_tables_are_made_changed_and_dropped(client: TestClient[Any]) -> None:
    body = {"name": "made", "schema": {"row_key": {"k": "int64"}}, "split_points": [[5]], "merge": {"mode": "first"}}
    assert client.post("/v1/tables", json=body).json()["partitions"] == 2
    assert error(client.post("/v1/tables", json=body)) == (409, "table_exists")
    assert client.patch("/v1/tables/made", json={"name": "other", "online": False}).json() == {
        "table": "other",
        "online": False,
        "paused": [],
    }
    assert client.get("/v1/tables").json() == {"tables": ["other", "t"]}
    assert client.get("/v1/tables/other").json()["merge"] == {"mode": "first"}
    assert client.delete("/v1/tables/other").json() == {"dropped": "other"}
    assert client.get("/v1/tables/other/schema").status_code == 404


def test_settings_and_tags(client: TestClient[Any]) -> None:
    assert client.patch(f"{T}/settings", json={"history_s": 60}).json()["history_s"] == 60
    assert error(client.patch(f"{T}/settings", json={"self": 1})) == (400, "setting_unknown")
    assert error(client.patch(f"{T}/settings", json={"history_s": "x"})) == (400, "setting_invalid")
    assert client.patch("/v1/settings", json={"log_s": 100}).json()["log_s"] == 100
    assert client.put(f"{T}/tags/first", json={"version": 2}).json()["version"] == 2
    assert client.get(f"{T}/tags").json()["tags"] == {"first": 2}
    assert client.delete(f"{T}/tags/first").status_code == 200
    assert error(client.delete(f"{T}/tags/first")) == (409, "tag_missing")
    assert client.get(f"{T}/history", params={"limit": 1}).json()["transactions"][0]["type"] == "remove_tag"


class Reader:
    """May read, and nothing else."""

    def authenticate(self, authorization: str | None) -> Principal:
        return Principal.everywhere("reader", Permission.READ)


def test_a_reader_may_not_change_anything(tmp_path: Path) -> None:
    with served(tmp_path, authenticator=Reader()) as client:
        assert client.get(f"{T}/scan").status_code == 200
        arrow = {"content-type": ARROW}
        assert [
            client.post(f"{T}/rows", content=arrow_bytes(ROWS), headers=arrow).status_code,
            client.post(f"{T}/delete", json={"where": "v = 1"}).status_code,
            client.post(f"{T}/requests", json={"files": ["x"]}).status_code,
            client.post("/v1/tables", json={"name": "x", "schema": {"row_key": {"k": "int64"}}}).status_code,
            client.patch(T, json={"online": False}).status_code,
            client.delete(T).status_code,
            client.patch(f"{T}/settings", json={"history_s": 60}).status_code,
            client.patch("/v1/settings", json={"history_s": 60}).status_code,
            client.put(f"{T}/tags/x", json={}).status_code,
            client.delete(f"{T}/tags/x").status_code,
        ] == [403] * 10


def test_runs_of_jobs_are_listed_and_shown(client: TestClient[Any]) -> None:
    assert client.get("/v1/jobs", params={"table": "none"}).status_code == 404
    assert client.get("/v1/jobs", params={"outcome": "failed"}).json() == {"jobs": []}
    assert error(client.get("/v1/jobs/short")) == (400, "argument_invalid")
    assert error(client.get("/v1/jobs/nothing-of-that-id")) == (404, "job_not_found")
    assert error(client.post("/v1/jobs/nothing-of-that-id/retry")) == (404, "job_not_found")


def test_a_parked_job_is_tried_again(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    now = clock.now()
    run = JobRun(
        id=clock.new_id(), operation="compaction", created=now, updated=now, outcome=RunOutcome.FAILED, parked=True
    )
    write_records(lake.storage, "a-service", [run], [])
    with Service(lake, maintain=False) as service, TestClient(make_app(service)) as client:
        assert client.get("/v1/jobs").json()["jobs"][0]["id"] == run.id
        assert client.get(f"/v1/jobs/{run.id[-8:]}").json()["tasks"] == []
        assert client.post(f"/v1/jobs/{run.id}/retry").json() == {"job": run.id, "asked": True}
