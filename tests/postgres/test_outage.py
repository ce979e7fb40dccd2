"""The database of an instance's log is stopped for a while under a service, a writer and a reader."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pyarrow as pa
from litestar.testing import TestClient

import lakebed
from lakebed.errors import ContentionError, StorageError, UnknownOutcomeError
from lakebed.model.operations import OPERATIONS
from lakebed.server.service.plan import ServiceLimits
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from tests.waiting import until

SCHEMA = lakebed.Schema({"k": "string"}, values={"v": "int64"})
LIMITS = ServiceLimits(follow_s=0.05, periods=dict.fromkeys(OPERATIONS, 0.05))


def test_all_go_on_by_themselves_and_the_service_says_since_when_it_waits(cluster, tmp_path):
    url = str(tmp_path / "lake")
    lake = lakebed.create(url, log_url=cluster.url())
    lake.create_table("t", SCHEMA)
    stop = threading.Event()
    written: list[str] = []
    refused: list[lakebed.Error] = []
    reads = {"before": 0, "refused": 0, "after": 0}
    phase = ["before"]

    def write() -> None:
        """A row at a time, each until it is certain that it is there."""
        table = lakebed.open(url).table("t")
        while not stop.is_set():
            key = f"k{len(written):06d}"
            try:
                table.write(pa.table({"k": [key], "v": [len(written)]}), commit_id=key)
            except (UnknownOutcomeError, StorageError, ContentionError) as error:
                refused.append(error)
                time.sleep(0.05)
            else:
                written.append(key)

    def read() -> None:
        table = lakebed.open(url).table("t")
        while not stop.is_set():
            seen = len(written)
            try:
                assert table.count(exact=True).rows >= seen
            except StorageError as error:
                refused.append(error)
                reads["refused"] += 1
                time.sleep(0.05)
            else:
                reads[phase[0]] += 1

    said: list[str] = []
    service = Service(lakebed.open(url), launcher="in-process[1]", limits=LIMITS, report=said.append)
    with service, TestClient(make_app(service)) as client, ThreadPoolExecutor(2) as pool:
        running = [pool.submit(one) for one in (write, read)]
        try:
            until(lambda: len(written) > 5 and reads["before"] > 2)
            assert client.get("/health/ready").status_code == 200
            cluster.stop("immediate")
            try:
                until(lambda: refused and reads["refused"] and client.get("/v1/status").json()["error"])
                error = client.get("/v1/status").json()["error"]
                assert "postgresql" in error["message"].lower()
                ready = client.get("/health/ready")
                assert ready.status_code == 503
                assert ready.json()["error"]["kind"] == "storage"
                assert datetime.fromisoformat(ready.json()["since"]) == datetime.fromisoformat(error["at"])
                page = client.get("/", headers={"accept": "text/html"})
                assert page.status_code == 200
                assert "cannot be read" in page.text
                assert client.get("/health/live").status_code == 200
                # Since when, not when last.
                time.sleep(0.3)
                assert client.get("/v1/status").json()["error"] == error
                phase[0] = "after"
            finally:
                cluster.start()
            count = len(written)
            until(lambda: len(written) > count + 5 and reads["after"] > 2)
            until(lambda: client.get("/v1/status").json()["error"] is None)
            assert client.get("/health/ready").json() == {"status": "ready"}
        finally:
            stop.set()
        for one in running:
            one.result()
    # The service may commit between a write and its attempt again.
    retried = (UnknownOutcomeError, ContentionError)
    assert all(isinstance(error, retried) or error.facts.get("transient") for error in refused), refused
    found = lake.table("t").to_arrow()
    assert found.column("k").to_pylist() == written
    assert lake.table("t").verify().sound
    assert sum("the catalog cannot be read" in line for line in said) == 1, said
    assert sum("can be read again" in line for line in said) == 1, said
