"""Answers over a real socket: a slow client holds a read, a client that leaves ends it, an error cuts the answer."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import uvicorn

import lakebed
from lakebed.errors import Code
from lakebed.read.rows.row_stream import RowStream
from lakebed.read.sql import spare_workers
from lakebed.server.security.principal import Open
from lakebed.server.service.service import Service
from lakebed.server.web.app import RequestLimits, make_app
from lakebed.table.instance import Instance
from tests.waiting import until

BATCH = pa.record_batch({"k": pa.array(range(20_000), pa.int64()), "t": ["x" * 200] * 20_000})
BATCHES = 200
"""800 MB in all."""

ARROW = "application/vnd.apache.arrow.stream"


class Watched:
    """A table whose scans are rows made here, and counted as they are pulled."""

    def __init__(self, table: Any, fails_after: int | None) -> None:
        self.table = table
        self.fails_after = fails_after
        self.pulled = 0
        self.closed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def scan(self, *_: Any, **__: Any) -> RowStream:
        """Many batches."""
        return RowStream(BATCH.schema, self._batches())

    def _batches(self) -> Any:
        try:
            for number in range(BATCHES):
                if number == self.fails_after:
                    raise Code.DATA_FILE_DAMAGED("a file is damaged", name="x")
                self.pulled += 1
                yield BATCH
        finally:
            self.closed.set()


class Lake(Instance):
    """An instance whose table is watched."""

    watched: Watched

    def table(self, _: str) -> Any:
        """The watched table."""
        return self.watched


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The URL of an application that answers on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def watched(tmp_path: Path, fails_after: int | None = None, **limits: Any) -> Iterator[tuple[str, Watched]]:
    """A service whose table is watched."""
    made = lakebed.create(str(tmp_path / "lake"))
    lake = Lake(made.storage, {"instance": made.id})
    lake.watched = Watched(made.create_table("t", lakebed.Schema({"k": "int64"})), fails_after)
    with serving(make_app(Service(lake), Open(), RequestLimits(**limits))) as url:
        yield url, lake.watched


@pytest.fixture(params=["application/x-ndjson", ARROW])
def accept(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"accept": request.param}


def test_a_slow_client_holds_the_read(tmp_path: Path, accept: dict[str, str]) -> None:
    with watched(tmp_path) as (url, table):
        with httpx.stream("GET", f"{url}/v1/tables/t/scan", headers=accept) as answer:
            chunks = answer.iter_raw()
            next(chunks)
            pulled = -1
            while pulled != table.pulled:
                pulled = table.pulled
                time.sleep(0.5)
            # What the sockets hold on both sides, and a batch in hand.
            assert 1 <= pulled <= 10
            assert not table.closed.is_set()
        assert table.closed.wait(120)


def test_a_client_that_leaves_ends_the_read(tmp_path: Path, accept: dict[str, str]) -> None:
    with watched(tmp_path) as (url, table):
        with httpx.stream("GET", f"{url}/v1/tables/t/scan", headers=accept) as answer:
            next(answer.iter_raw())
        assert table.closed.wait(120)
        assert table.pulled < BATCHES
        assert httpx.get(f"{url}/health/live").status_code == 200


def test_an_error_within_the_answer_cuts_it(tmp_path: Path) -> None:
    with watched(tmp_path, fails_after=5) as (url, table):
        got = bytearray()
        with httpx.stream("GET", f"{url}/v1/tables/t/scan") as answer:
            assert answer.status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                collections.deque(map(got.extend, answer.iter_raw()), maxlen=0)
        assert json.loads(got.splitlines()[-1])["error"]["code"] == "data_file_damaged"
        assert table.closed.is_set()


def test_an_arrow_answer_with_an_error_has_no_end(tmp_path: Path) -> None:
    with (
        watched(tmp_path, fails_after=5) as (url, _),
        pytest.raises(httpx.RemoteProtocolError),
    ):
        httpx.get(f"{url}/v1/tables/t/scan", headers={"accept": ARROW})


def test_an_answer_ends_at_its_limit_of_time_even_if_the_client_does_not_read(tmp_path: Path) -> None:
    with (
        watched(tmp_path, request_s=1.0) as (url, table),
        httpx.stream("GET", f"{url}/v1/tables/t/scan") as answer,
    ):
        next(answer.iter_raw())
        assert table.closed.wait(120)


def children() -> set[int]:
    """The processes that this one started."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.add(int(entry.name))
    return found


FOREVER = "SELECT count(*) AS n FROM range(10000000) a CROSS JOIN range(10000000) b"


def test_the_process_of_a_statement_dies_with_its_client(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    before = children()
    # Beside the process of the statement, those that wait for the next ones.
    waiting = spare_workers.SPARE
    with serving(make_app(Service(lake))) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
            body = json.dumps({"statement": FOREVER}).encode()
            head = f"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            until(lambda: len(children() - before) == waiting + 1)
        until(lambda: len(children() - before) == waiting)


def test_statements_beyond_their_limits_end_in_an_answer_while_others_are_served(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    limits = RequestLimits(request_s=2.0, sql_memory_bytes=200 * 1024 * 1024, sql_statements=2)
    answers: list[httpx.Response] = []
    statements = [FOREVER, "SELECT length(repeat('x', 2000000000)) AS n"]
    with serving(make_app(Service(lake), limits=limits)) as url:

        def ask(statement: str) -> None:
            answers.append(httpx.post(f"{url}/v1/sql", json={"statement": statement}, timeout=60))

        threads = [threading.Thread(target=ask, args=(statement,)) for statement in statements]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert httpx.get(f"{url}/v1/tables", timeout=120).status_code == 200
            time.sleep(0.1)
    assert [(answer.status_code, answer.json()["error"]["kind"]) for answer in answers] == [(400, "usage")] * 2


# -- requests that are not as they should be --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    lake = lakebed.create(str(tmp_path_factory.mktemp("bad") / "lake"))
    lake.create_table("t", lakebed.Schema({"k": "int64"}))
    with serving(make_app(Service(lake), limits=RequestLimits(request_bytes=1_000_000, request_s=2.0))) as url:
        yield int(url.rpartition(":")[2])


def said(port: int, *parts: bytes) -> bytes:
    """What the service answers to these bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                client.sendall(part)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while more := client.recv(65536):
                answer += more
        return answer


def post(path: str, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


ROWS = "/v1/tables/t/rows"


def test_a_write_that_is_cut_writes_nothing(port: int) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("k", pa.int64())])) as stream:
        stream.write_batch(pa.record_batch({"k": pa.array([1, 2], pa.int64())}))
    whole = bytes(sink.getvalue())
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(post(ROWS, f"Content-Type: {ARROW}", f"Content-Length: {len(whole) + 8}") + whole)
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{url}/v1/tables/t/scan").text == ""
    assert httpx.get(f"{url}/v1/tables/t/history").json()["transactions"][0]["version"] == 1


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([b"GET /v1/tables HTTP/1.1\r\nConnection: close\r\n\r\n"], b"200"),
        ([b"nonsense\r\n\r\n"], b"400"),
        ([b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"], b"4"),
        ([b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 2_000_000 + b"\r\nConnection: close\r\n\r\n"], b""),
        ([post(ROWS, "Content-Type: text/csv", "Content-Length: 99999999999")], b"413"),
        ([post(ROWS, "Content-Type: text/csv", "Transfer-Encoding: chunked"), b"zz\r\n"], b"400"),
        ([post("/v1/sql", "Content-Length: 3"), b'{"s'], b"400"),
        ([b"BREW /v1/tables HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"], b"4"),
        ([b"GET /v1/tables/../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"], b"404"),
    ],
)
def test_malformed_requests_are_refused(port: int, parts: list[bytes], status: bytes) -> None:
    answer = said(port, *parts)
    assert not answer.startswith(b"HTTP/1.1 5"), answer[:200]
    if status:
        assert answer[9:12].startswith(status), answer[:200]
    assert httpx.get(f"http://127.0.0.1:{port}/health/ready").status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(port: int) -> None:
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        client.sendall(post(ROWS, "Content-Type: text/csv", "Content-Length: 100") + b"k\n")
        while more := client.recv(65536):
            answer += more
    assert answer[9:12] == b"408", answer[:200]
