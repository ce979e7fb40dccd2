"""Answers that clients read slowly, or not at all: what they hold is bounded, and others are answered."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.server.security import stored
from lakebed.server.security.authentication import BearerAuthenticator
from lakebed.server.web.connections import ConnectionLimits
from lakebed.server.web.row_answers import OPEN_BYTES
from lakebed.server.web.waiting import RequestLimits
from tests.processes.web.serving import serving
from tests.waiting import WAIT_S, until

BIG, SMALL = "/v1/tables/big/scan", "/v1/tables/big/scan?limit=10"


class Served:
    """A service with a table of 20 MB, tokens of two principals, and limits for two answers and two statements."""

    def __init__(self, lake: lakebed.Instance, url: str) -> None:
        self._address = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._tokens = {name: stored.create_token(lake.storage, name, ["read"])[1] for name in ("eve", "bob")}
        self._open: list[socket.socket] = []

    def ask(self, holder: str, path: str, statement: str = "") -> socket.socket:
        """Send a request, and read nothing."""
        body = json.dumps({"statement": statement}).encode() if statement else b""
        head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {self._tokens[holder]}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(self._address)
        connection.settimeout(WAIT_S)
        connection.sendall(head.encode() + body)
        self._open.append(connection)
        return connection

    def status(self, holder: str, path: str, statement: str = "") -> tuple[int, str]:
        """The status of the answer, and its head."""
        connection = self.ask(holder, path, statement)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
        return int(head.split()[1]), head.decode(errors="replace").partition("\r\n\r\n")[0].lower()

    def metric(self, name: str, room: str) -> float:
        """The value of a metric of a room."""
        connection = self.ask("bob", "/metrics")
        text = b""
        while f'lakebed_room_refused_total{{room="{room}"}}'.encode() not in text or not text.endswith(b"\n"):
            text += connection.recv(65536)
        line = f'lakebed_room_{name}{{room="{room}"}} '
        (value,) = (one.removeprefix(line) for one in text.decode().splitlines() if one.startswith(line))
        return float(value)

    def close(self) -> None:
        for one in self._open:
            one.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("big", lakebed.Schema({"k": "int64"}, values={"v": "string"}))
    table.write(pa.table({"k": range(20_000), "v": ["x" * 1000] * 20_000}))
    access = stored.AccessList(lake.storage)
    limits = RequestLimits(request_s=600.0, answer_memory_bytes=2 * OPEN_BYTES, sql_statements=2, wait_s=0.2)
    with serving(lake, BearerAuthenticator(access), limits, connections=ConnectionLimits(stall_s=600.0)) as url:
        served = Served(lake, url)
        yield served
        served.close()
    access.close()


def test_scans_that_are_read_slowly_leave_room_to_others(service: Served) -> None:
    assert service.status("eve", BIG)[0] == 200
    assert service.metric("used", "answers") == OPEN_BYTES
    status, head = service.status("eve", BIG)
    assert (status, "retry-after: 5" in head) == (503, True)
    assert service.metric("refused_total", "answers") == 1
    # What is over at once needs no room, and the others have theirs.
    assert service.status("eve", SMALL)[0] == 200
    assert service.status("bob", BIG)[0] == 200
    assert service.metric("used", "answers") == 2 * OPEN_BYTES


def test_statements_that_are_read_slowly_leave_room_to_others(service: Served) -> None:
    assert service.status("eve", "/v1/sql", "SELECT * FROM big")[0] == 200
    assert service.status("eve", "/v1/sql", "SELECT 1 AS one")[0] == 503
    assert service.status("bob", "/v1/sql", "SELECT count(*) AS n FROM big")[0] == 200


def test_a_client_that_leaves_frees_its_room(service: Served) -> None:
    slow = service.ask("eve", BIG)
    until(lambda: service.metric("used", "answers") == OPEN_BYTES)
    slow.close()
    until(lambda: service.metric("used", "answers") == 0)
    assert service.status("eve", BIG)[0] == 200


def test_a_client_that_leaves_the_queue_is_forgotten(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("big", lakebed.Schema({"k": "int64"}, values={"v": "string"}))
    table.write(pa.table({"k": range(20_000), "v": ["x" * 1000] * 20_000}))
    access = stored.AccessList(lake.storage)
    limits = RequestLimits(request_s=600.0, answer_memory_bytes=2 * OPEN_BYTES, wait_s=3600.0)
    with serving(lake, BearerAuthenticator(access), limits, connections=ConnectionLimits(stall_s=600.0)) as url:
        service = Served(lake, url)
        slow = service.ask("eve", BIG)
        until(lambda: service.metric("used", "answers") == OPEN_BYTES)
        waits, leaves = service.ask("eve", BIG), service.ask("eve", BIG)
        until(lambda: service.metric("waiting", "answers") == 2)
        leaves.close()
        until(lambda: service.metric("waiting", "answers") == 1)
        slow.close()
        assert waits.recv(12) == b"HTTP/1.1 200"
        service.close()
    access.close()
