"""The requests of a process to object stores, of the last hour."""

import pyarrow as pa

import lakebed
from lakebed.clock import random_token
from lakebed.server.service.service import Service
from lakebed.storage import connect
from lakebed.storage.client_errors import SENT, RequestCounts, SentRequests
from tests.clocks import set_clock


def test_requests_are_counted_for_an_hour(monkeypatch):
    now_s = 1000.0
    set_clock(monkeypatch, monotonic_s=lambda: now_s)
    counts = RequestCounts()
    for action in ("read", "stat", "list", "create", "delete"):
        counts.add(action)
    assert counts.last_hour() == SentRequests(puts=2, gets=2)
    now_s += 1800
    counts.add("fetch")
    now_s += 1801
    assert counts.last_hour() == SentRequests(puts=0, gets=1)


def test_what_no_longer_counts_takes_no_memory(monkeypatch):
    now_s = 0.0
    set_clock(monkeypatch, monotonic_s=lambda: now_s)
    counts = RequestCounts()
    for _ in range(1000):
        now_s += 60
        counts.add("read")
    assert counts.last_hour() == SentRequests(0, 60)
    assert len(counts._gets) == 60


def test_a_listing_is_counted_by_its_pages():
    storage = connect(f"memory://{random_token()}")
    for number in range(1001):
        storage.replace(f"d/{number:04d}", b"")
    for prefix, found, pages in (("d", 1001, 2), ("none", 0, 1)):
        before = SENT.last_hour()
        assert len(list(storage.list(prefix))) == found
        assert SENT.last_hour() == SentRequests(before.puts + pages, before.gets)


def test_every_request_to_a_store_is_counted_and_priced():
    lake = lakebed.create(f"memory://{random_token()}")
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}))
    before = SENT.last_hour()
    table.write(pa.table({"k": [1, 2]}))
    assert table.get(1).num_rows == 1
    after = SENT.last_hour()
    assert after.puts >= before.puts + 2
    assert after.gets >= before.gets + 2
    status = Service(lake, maintain=False).status()
    assert status.last_hour.gets >= after.gets
    assert status.last_hour.dollars > 0
