"""Connections of clients that send or read slowly, and which of too many is closed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.server.security import stored
from lakebed.server.security.authentication import BearerAuthenticator
from lakebed.server.web.connections import ConnectionLimits, Connections
from lakebed.server.web.waiting import RequestLimits
from tests.processes.web.serving import serving
from tests.waiting import WAIT_S, until

LONG = {"head_s": 600.0, "keep_alive_s": 600.0, "linger_s": 600.0, "stall_s": 600.0}
"""Times that do not pass during a test, so that only the rule that it is about can close a connection."""

HEALTH = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


class FakeConnection:
    """A connection that notes that it was closed."""

    def __init__(self, unsent_bytes: int = 0) -> None:
        self.closed = False
        self.unsent_bytes = unsent_bytes

    def abort(self) -> None:
        self.closed = True


def opened(connections: Connections, count: int, holder: str | None = None) -> list[FakeConnection]:
    found = [FakeConnection() for _ in range(count)]
    for one in found:
        connections.add(one)
        if holder is not None:
            connections.belongs_to(one, holder)
    return found


def closed(connections: list[FakeConnection]) -> list[bool]:
    return [one.closed for one in connections]


def test_one_too_many_closes_the_unauthenticated_connection_that_has_waited_longest() -> None:
    connections = Connections(ConnectionLimits(connections=5))
    known, unknown = opened(connections, 2, "ann"), opened(connections, 3)
    opened(connections, 2)
    assert closed(known) == [False, False]
    assert closed(unknown) == [True, True, False]
    assert len(connections) == 5


def test_a_principal_with_many_connections_loses_its_own() -> None:
    connections = Connections(ConnectionLimits(connections=8))
    bob, eve = opened(connections, 1, "bob"), opened(connections, 6, "eve")
    later = opened(connections, 3, "bob")
    assert closed(bob + later) == [False] * 4
    assert closed(eve) == [True, True, False, False, False, False]


def test_a_connection_whose_client_waits_for_an_answer_is_not_closed_for_another() -> None:
    connections = Connections(ConnectionLimits(connections=10))
    working = opened(connections, 10)
    for one in working:
        connections.works(one)
    assert not connections.is_full
    spare = opened(connections, 1)
    connections.works(spare[0])
    assert connections.is_full
    beyond = opened(connections, 1)
    assert closed(working + spare) == [False] * 11
    assert closed(beyond) == [True]


def test_the_last_quarter_is_for_others_than_the_principal_with_most() -> None:
    connections = Connections(ConnectionLimits(connections=8))
    eve = opened(connections, 6, "eve")
    for one in eve:
        connections.works(one)
    (more,) = opened(connections, 1)
    with pytest.raises(lakebed.ContentionError, match="6 requests of eve wait"):
        connections.belongs_to(more, "eve")
    connections.belongs_to(more, "bob")


def test_what_is_not_sent_is_bounded_for_all_clients_together() -> None:
    connections = Connections(ConnectionLimits(unsent_bytes=100))
    one, two, three = (FakeConnection(40) for _ in range(3))
    for each in (one, two, three):
        connections.add(each)
        connections.stalls(each)
    assert closed([one, two, three]) == [True, False, False]


# -- over sockets -----------------------------------------------------------------------------------------------


@contextmanager
def answering(
    folder: Path, *, limits: RequestLimits | None = None, rows: int = 0, **connections: Any
) -> Iterator[tuple[tuple[str, int], str]]:
    """The address of a service with the table ``t``, and a token for it."""
    lake = lakebed.create(str(folder / "lake"))
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": "string"}))
    if rows:
        table.write(pa.table({"k": range(rows), "v": ["x" * 1000] * rows}))
    token = stored.create_token(lake.storage, "ann", ["read"])[1]
    access = stored.AccessList(lake.storage)
    bounds = ConnectionLimits(**(LONG | connections))
    try:
        with serving(lake, BearerAuthenticator(access), limits, connections=bounds) as url:
            yield ("127.0.0.1", int(url.rpartition(":")[2])), token
    finally:
        access.close()


def asked(address: tuple[str, int], data: bytes) -> socket.socket:
    connection = socket.create_connection(address)
    connection.settimeout(WAIT_S)
    connection.sendall(data)
    return connection


def answer_of(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The next answer on the connection."""
    with connection.makefile("rb", buffering=0) as file:
        status = int(file.readline().split()[1])
        lines = [line.decode().strip() for line in iter(file.readline, b"\r\n")]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return status, headers, file.read(int(headers.get("content-length", 0)))


def is_closed(connection: socket.socket) -> bool:
    """Whether the service has closed the connection; fails if it sends more bytes than an answer has."""
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def request(path: str, token: str = "", body_bytes: int = 0, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {token}\r\n" if token else ""
    return (head + (f"Content-Length: {body_bytes}\r\n\r\n" if body_bytes else "\r\n")).encode()


@pytest.mark.parametrize(
    ("path", "status", "named"),
    [
        ("/v1/sql", 401, False),
        ("/v1/tables/t/rows", 403, True),
        ("/v1/nothing", 404, True),
        ("/v1/status", 405, True),
        ("/v1/tables/t/scan", 413, True),
        ("/v1/sql", 408, True),
    ],
)
def test_an_answer_before_the_end_of_the_body_closes_the_connection(
    tmp_path: Path, path: str, status: int, named: bool
) -> None:
    limits = RequestLimits(request_bytes=10_000, request_s=0.2 if status == 408 else 600.0)
    with answering(tmp_path, limits=limits, linger_s=0.0) as (address, token):
        size = 9_000 if status == 408 else 1_000_000
        connection = asked(address, request(path, token if named else "", size) + b" ")
        found, headers, _ = answer_of(connection)
        assert (found, headers["connection"]) == (status, "close")
        until(lambda: is_closed(connection))


def test_the_client_can_read_an_answer_that_came_early_while_it_still_sends(tmp_path: Path) -> None:
    with answering(tmp_path) as (address, _):
        connection = asked(address, request("/v1/sql", "", 4_000_000))
        connection.sendall(b" " * 3_000_000)
        assert answer_of(connection)[0] == 401
        connection.sendall(b" " * 500_000)
        # The service has nothing more to say, and waits for the end of what the client says.
        assert connection.recv(1) == b""


def test_slow_bodies_of_anyone_leave_room_for_health_and_principals(tmp_path: Path) -> None:
    with answering(tmp_path, connections=20) as (address, token):
        known = asked(address, request("/v1/tables", token, method="GET"))
        assert answer_of(known)[0] == 200
        slow = [asked(address, request("/login", "", 1_000)) for _ in range(60)]
        until(lambda: sum(map(is_closed, slow)) >= 40)
        for _ in range(3):
            assert answer_of(asked(address, HEALTH))[0] == 200
            assert answer_of(asked(address, request("/v1/tables", token, method="GET")))[0] == 200
        known.settimeout(WAIT_S)
        known.sendall(request("/v1/tables", token, method="GET"))
        assert answer_of(known)[0] == 200
        for one in slow:
            one.close()


def test_heads_that_do_not_end_and_idle_connections_are_closed_in_time(tmp_path: Path) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
    with answering(tmp_path, head_s=0.5, keep_alive_s=0.5) as (address, _):
        idle = asked(address, HEALTH)
        assert answer_of(idle)[0] == 200
        # Empty lines before a request are allowed, and keep nothing open.
        idle.sendall(b"\r\n\r\n")
        slow = [asked(address, head), asked(address, b""), asked(address, b"\r\n")]
        for one in (*slow, idle):
            until(lambda one=one: is_closed(one))  # type: ignore[misc]
        assert answer_of(asked(address, HEALTH))[0] == 200


def test_a_head_without_end_is_cut_off_by_its_size(tmp_path: Path) -> None:
    with answering(tmp_path, head_bytes=10_000) as (address, _):
        endless = asked(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with suppress(OSError):
            for number in range(50):
                endless.sendall(b"X-%d: " % number + b"x" * 1000 + b"\r\n")
        until(lambda: is_closed(endless))


@pytest.mark.parametrize("part", [b"0\r\nX: ", b"0\r\n" + b"X: 1\r\n" * 20, b"1;"], ids=["trailer", "trailers", "size"])
def test_what_follows_a_body_in_chunks_without_end_is_cut_off_by_its_size(tmp_path: Path, part: bytes) -> None:
    with answering(tmp_path, head_bytes=10_000) as (address, token):
        head = request("/v1/tables/t/count", token)[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
        endless = asked(address, head + b"1\r\n{\r\n" + part)
        # What arrives in one piece with the body is not counted, so it goes on until the connection is closed.
        with pytest.raises(ConnectionError):
            until(lambda: endless.sendall(b"x" * 1000 if part[-1:] != b"\n" else b"X: 1\r\n" * 200))


def test_a_body_in_many_small_chunks_may_be_larger_than_a_head(tmp_path: Path) -> None:
    with answering(tmp_path, head_bytes=10_000) as (address, token):
        head = request("/v1/tables/t/count", token)[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
        sending = asked(address, head)
        for byte in b"{" + b" " * 5_000 + b"}":
            sending.sendall(b"1\r\n%c\r\n" % byte)
        sending.sendall(b"0\r\n\r\n")
        assert answer_of(sending)[0] == 200


def test_a_client_that_does_not_take_its_answer_is_disconnected(tmp_path: Path) -> None:
    with answering(tmp_path, rows=20_000, stall_s=0.5) as (address, token):
        keys = json.dumps({"keys": [[key] for key in range(20_000)]}).encode()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address)
        connection.settimeout(WAIT_S)
        connection.sendall(request("/v1/tables/t/get_many", token, len(keys)) + keys)
        assert connection.recv(12) == b"HTTP/1.1 200"
        until(lambda: connection_is_reset(address, connection))


def connection_is_reset(address: tuple[str, int], connection: socket.socket) -> bool:
    """Whether the service has closed its end, as the system lists it."""
    port = connection.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if int(local.split(":")[1], 16) == address[1] and int(remote.split(":")[1], 16) == port:
            return state != "01"
    return True


def test_a_connection_that_is_not_closed_by_a_rule_stays_open(tmp_path: Path) -> None:
    with answering(tmp_path, connections=3) as (address, token):
        connection = asked(address, HEALTH)
        for _ in range(3):
            assert answer_of(connection)[0] == 200
            connection.sendall(HEALTH)
        assert answer_of(connection)[0] == 200
        connection.sendall(request("/v1/tables/t/count", token, 2) + b"{}")
        assert answer_of(connection)[0] == 200
        connection.sendall(HEALTH + HEALTH)
        assert [answer_of(connection)[0] for _ in range(2)] == [200, 200]
