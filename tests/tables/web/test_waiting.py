"""Reads that wait for a version or a time, and what they leave to others."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed import clock
from lakebed.read.snapshot import versions
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.server.web.waiting import AwaitedVersions, while_connected
from lakebed.testing.faults import CountingStorage
from tests.clocks import set_clock
from tests.tables.web.cases import served
from tests.waiting import WAIT_S

T = "/v1/tables/t"
NEVER = 99_999_999

WAYS: dict[str, Callable[[TestClient[Any], dict[str, Any]], Any]] = {
    "get": lambda client, how: client.get(f"{T}/get", params={"key": ["a", "1"], **how}),
    "post_get": lambda client, how: client.post(f"{T}/get", json={"key": ["a", 1], **how}),
    "get_many": lambda client, how: client.post(f"{T}/get_many", json={"keys": [["a", 1]], **how}),
    "scan": lambda client, how: client.get(f"{T}/scan", params=how),
    "post_scan": lambda client, how: client.post(f"{T}/scan", json=how),
    "query": lambda client, how: client.post("/v1/queries", json={"table": "t", "scan": how}),
    "count": lambda client, how: client.post(f"{T}/count", json=how),
    "sample": lambda client, how: client.post(f"{T}/sample", json={"rows": 1, **how}),
    "prefixes": lambda client, how: client.post(f"{T}/prefixes", json={"depth": 1, **how}),
    "explain": lambda client, how: client.post(f"{T}/explain", json=how),
}
"""Every request that reads rows of a version."""

AT_ALONE = {"count", "sample", "prefixes", "explain"}


@pytest.fixture
def no_thread_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a read sleeps, in whatever thread."""
    really = clock.sleep

    def sleep(seconds: float) -> None:
        if sys._getframe(1).f_globals["__name__"] == versions.__name__:
            raise AssertionError(f"slept {seconds} s in {threading.current_thread().name}")
        really(seconds)

    set_clock(monkeypatch, sleep=sleep)


class Written(CountingStorage):
    """A store in which another process writes, once, just before the log of a table is looked at."""

    write: ClassVar[list[Callable[[], object]]] = []

    def _count(self, operation: Any, name: str) -> None:
        super()._count(operation, name)
        if self.write and name.startswith("tables/") and "/log/" in name:
            self.write.pop()()


@pytest.mark.usefixtures("no_thread_sleeps")
@pytest.mark.parametrize("way", [name for name in WAYS if name not in AT_ALONE])
def test_no_read_sleeps_in_a_thread_until_its_version_comes(tmp_path: Path, way: str) -> None:
    """Whatever the way of the read: it is answered when another process has written the version."""
    with served(tmp_path, store=Written) as client:
        assert client.get(f"{T}/get", params={"key": ["a", "1"]}).status_code == 200
        other = lakebed.open(str(tmp_path / "lake")).table("t")
        rows = pa.table({"k": ["z"], "n": pa.array([1], pa.int64()), "v": [1.0]})
        Written.write.append(lambda: other.write(rows))
        answer = WAYS[way](client, {"at_least": 3})
        assert answer.status_code < 300, answer.text
        assert not Written.write


@pytest.mark.usefixtures("no_thread_sleeps")
@pytest.mark.parametrize("way", WAYS)
def test_no_read_sleeps_in_a_thread_until_its_time_comes(tmp_path: Path, way: str) -> None:
    with served(tmp_path) as client:
        soon = (clock.now() + timedelta(seconds=0.5)).isoformat()
        answer = WAYS[way](client, {"at": soon})
        assert answer.status_code < 300, answer.text


class Disconnecting:
    """A request whose client goes away when the test asks it to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def in_time() -> Any:
        return await asyncio.wait_for(work(), WAIT_S)

    return asyncio.run(in_time())


def test_a_wait_ends_with_its_client() -> None:
    async def work() -> None:
        request: Any = Disconnecting()
        ended = asyncio.Event()

        async def wait() -> None:
            try:
                request.gone.set()
                await asyncio.Event().wait()
            finally:
                ended.set()

        with pytest.raises(lakebed.UsageError, match="client closed"):
            await while_connected(request, wait)
        assert ended.is_set()

    run(work)


def test_a_wait_has_the_result_and_the_errors_of_its_work() -> None:
    async def work() -> None:
        request: Any = Disconnecting()

        async def fails() -> None:
            raise ZeroDivisionError

        async def returns() -> int:
            return 7

        assert await while_connected(request, returns) == 7
        with pytest.raises(ZeroDivisionError):
            await while_connected(request, fails)

    run(work)


def test_one_look_is_for_all_that_wait_for_a_table(tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path))
    table: Any = lake.create_table("t", lakebed.Schema({"k": "int64"}))
    looks = 0

    class Counted:
        id, log = table.id, table.log

        def state(self) -> Any:
            nonlocal looks
            looks += 1
            if looks == 3:
                lakebed.open(str(tmp_path)).table("t").write(pa.table({"k": [1]}))
            return table.state()

    async def work() -> None:
        awaited, counted = AwaitedVersions(), Counted()
        waits: Any = [awaited.wait(counted, None, table.version + 1) for _ in range(50)]  # type: ignore[arg-type]
        await asyncio.gather(*waits)

    run(work)
    assert looks == 3


def test_a_version_that_does_not_come_is_not_found(tmp_path: Path) -> None:
    table: Any = lakebed.create(str(tmp_path)).create_table("t", lakebed.Schema({"k": "int64"}))
    with pytest.raises(lakebed.NotFoundError, match="version 99 did not appear within 0 s"):
        run(lambda: AwaitedVersions(0.0).wait(table, None, 99))


def test_a_read_that_begins_to_wait_as_a_look_ends_leaves_the_loop_to_others(tmp_path: Path) -> None:
    """Such a look is over, but not yet forgotten."""
    table = lakebed.create(str(tmp_path)).create_table("t", lakebed.Schema({"k": "int64"}))

    async def work() -> None:
        awaited = AwaitedVersions()
        ended = awaited._looks[table.id] = asyncio.get_running_loop().create_future()
        ended.set_result(None)
        wait = asyncio.create_task(awaited.wait(table, None, table.version + 1))
        await asyncio.sleep(0)
        assert not wait.done()
        table.write(pa.table({"k": [1]}))
        await wait

    run(work)


def test_lookups_of_others_are_answered_while_reads_wait(tmp_path: Path) -> None:
    """Over one loop, as in a service: twice as many waiting reads as there are threads, and one that does not wait."""
    lake = lakebed.create(str(tmp_path))
    lake.create_table("t", lakebed.Schema({"k": "int64"})).write(pa.table({"k": [1]}))
    app = make_app(Service(lake, maintain=False))

    async def ask(path: str, query: str, gone: asyncio.Event) -> int:
        """The status of the answer; 0 if the client is gone before."""
        sent = False
        status = 0

        async def receive() -> Any:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        scope: Any = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "headers": [],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        await app(scope, receive, send)
        return status

    async def work() -> None:
        await app.on_startup[0]()  # type: ignore[call-arg]
        gone = asyncio.Event()
        waits = [asyncio.create_task(ask(f"{T}/get", f"key=1&at_least={NEVER}", gone)) for _ in range(64)]
        await asyncio.sleep(0)
        assert await ask(f"{T}/get", "key=1", asyncio.Event()) == 200
        assert not any(one.done() for one in waits)
        gone.set()
        await asyncio.gather(*waits)

    run(work)
