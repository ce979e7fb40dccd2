"""Requests that are meant to do harm get an answer of their own class, never an internal error."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

import lakebed
from lakebed.server.security import stored
from lakebed.server.security.authentication import BearerAuthenticator
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.server.web.request_authentication import Exposure
from lakebed.server.web.request_bodies import check_source
from tests.processes.web.serving import serving
from tests.tables.web.cases import served

DEEP = b"[" * 200_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    with served(tmp_path_factory.mktemp("hostile")) as made:
        yield made


@pytest.mark.parametrize("body", [DEEP, b'{"a":' * 200_000, b'{"keys":' + DEEP, b'{"statement":' + DEEP])
@pytest.mark.parametrize("kind", ["application/json", "application/vnd.msgpack"])
def test_no_route_takes_a_deep_document_for_a_bug(client: TestClient[Any], kind: str, body: bytes) -> None:
    asked = 0
    for route in client.app.routes:
        for method in {"POST", "PUT", "PATCH", "DELETE"} & route.methods:
            path = route.path_format.replace("{table}", "t").replace("{", "").replace("}", "")
            answer = client.request(method, path, content=body, headers={"content-type": kind})
            assert answer.status_code < 500, (method, path, answer.text)
            asked += 1
    assert asked > 20


def test_a_header_that_decides_something_stands_once(tmp_path: Path) -> None:
    with serving(lakebed.create(str(tmp_path))) as url:
        for name in ("Authorization", "Host", "Content-Type", "Origin", "Sec-Fetch-Site"):
            head = f"GET /v1/tables HTTP/1.0\r\n{name}: localhost\r\n{name.lower()}: localhost\r\n\r\n"
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
                connection.sendall(head.encode())
                answer = connection.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 400"), answer
            assert b"send one" in answer


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded"])
@pytest.mark.parametrize("path", ["/metrics", "/v1/tables", "/"])
def test_a_service_without_authentication_answers_no_request_of_a_proxy(tmp_path: Path, name: str, path: str) -> None:
    app = make_app(Service(lakebed.create(str(tmp_path)), maintain=False), exposure=Exposure({"localhost"}))
    with TestClient(app, base_url="http://localhost") as local:
        assert local.get(path).status_code == 200
        assert local.get(path, headers={name: "for=192.0.2.7"}).status_code == 403


def test_metrics_need_a_token_wherever_the_request_comes_from(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path))
    reader, part = (
        stored.create_token(lake.storage, name, ["read"], tables)[1] for name, tables in (("all", None), ("one", ["t"]))
    )
    access = stored.AccessList(lake.storage)
    with TestClient(make_app(Service(lake, maintain=False), BearerAuthenticator(access))) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": f"Bearer {part}"}).status_code == 403
        assert client.get("/metrics", headers={"Authorization": f"Bearer {reader}"}).status_code == 200
    access.close()


def allows(url: str, *allowed: str) -> bool:
    try:
        check_source(url, allowed)
    except lakebed.AccessError:
        return False
    return True


@pytest.mark.parametrize("place", ["{}", "{}/", "file://{}", "file://{}/"])
def test_an_allowed_folder_allows_what_lies_in_it_and_nothing_beside_it(tmp_path: Path, place: str) -> None:
    inside, beside = tmp_path / "allowed", tmp_path / "allowed-evil"
    for folder in (inside, beside):
        folder.mkdir()
    (inside / "link").symlink_to(beside)
    (tmp_path / "way").symlink_to(inside)
    allowed = place.format(inside)
    for within in (inside, f"{inside}/", f"{inside}//a.parquet", f"{inside}/*.parquet", tmp_path / "way/a.parquet"):
        assert allows(str(within), allowed), within
        assert allows(f"file://{within}", allowed), within
    for outside in (
        beside,
        f"{beside}/a.parquet",
        f"{inside}x",
        tmp_path,
        f"{inside}/link/a.parquet",
        f"{inside}/../allowed-evil/a.parquet",
        f"{inside}/%2e%2e/allowed-evil/a.parquet",
        f"{inside}/%252e%252e/allowed-evil/a.parquet",
        f"{inside}/..%2fallowed-evil/a.parquet",
        f"{inside}/..\\allowed-evil",
        os.path.relpath(beside),
    ):
        assert not allows(str(outside), allowed), outside
        assert not allows(f"file://{outside}", allowed), outside


@pytest.mark.parametrize("place", ["s3://bucket/in", "s3://bucket/in/", "S3://Bucket/in"])
def test_an_allowed_prefix_of_a_bucket_ends_with_a_whole_name(place: str) -> None:
    for within in ("s3://bucket/in/a.parquet", "S3://BUCKET/in/a.parquet", "s3a://bucket/in/b/c", "s3://bucket/in"):
        assert allows(within, place), within
    for outside in (
        "s3://bucket/inner/a",
        "s3://bucket/In/a",
        "s3://bucket2/in/a",
        "gs://bucket/in/a",
        "s3://user@bucket/in/a",
        "s3://bucket//in/a",
        "s3://bucket/in/../out",
        "s3://bucket/in/%2E%2E/out",
        "/in/a",
        "bucket/in/a",
    ):
        assert not allows(outside, place), outside
    assert not allows("s3://bucket/in/a")
