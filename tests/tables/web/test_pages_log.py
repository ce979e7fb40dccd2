"""The log of all tables, and that of one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import lakebed
from lakebed.read.inspect.history import HistoryRow
from lakebed.server.security.principal import Open
from lakebed.server.service.status import ServiceStatus, SparkState, TableStatus
from lakebed.server.web.pages.log_page import PAGE_ROWS, page_of_all, page_of_table
from lakebed.server.web.pages.page_memory import ENTRIES_MAX, ROWS_KEPT, RecentCommits

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def test_all_logs_are_one_newest_first(browser, lake, stations):
    other = lake.create_table("other", lakebed.Schema({"id": "string"}))
    other.write(pa.table({"id": ["a"]}))
    page = browser.get("/log")
    assert 'href="/tables/other"' in page.text
    rows = browser.get("/log.json").json()["rows"]
    times = [one["row"]["time"] for one in rows]
    assert times == sorted(times, reverse=True)
    assert {(one["table"], one["row"]["version"]) for one in rows} == {
        ("stations", 1), ("stations", 2), ("stations", 3), ("other", 1), ("other", 2),
    }  # fmt: skip


def test_the_log_of_a_table_is_paged_back_to_its_begin(stations):
    for number in range(PAGE_ROWS):
        stations.set(split_rows=1000 + number)
    latest = page_of_table(stations, None)
    assert [one.row.version for one in latest.rows] == list(range(103, 3, -1))
    older = page_of_table(stations, latest.older)
    assert [one.row.version for one in older.rows] == [3, 2, 1]
    assert older.older is None


def test_the_log_of_a_table_is_a_page(browser, stations):
    page = browser.get("/tables/stations/log").text
    assert "add files" in page
    assert "data-live" in page
    assert "data-live" not in browser.get("/tables/stations/log?before=2").text
    assert browser.get("/tables/stations/log.json?before=3").json()["rows"][0]["row"]["version"] == 2
    assert browser.get("/tables/nothing/log").status_code == 404
    assert browser.get("/tables/stations/log?before=x").status_code == 400


@pytest.mark.parametrize("size", [1, 2, 7])
def test_pages_of_all_logs_have_each_transaction_once(size):
    """Tables with many transactions of one moment, as entries with several have."""
    logs = {}
    for table in range(4):
        times = [NOW - timedelta(seconds=(place + table) // size) for place in range(ROWS_KEPT)]
        rows = [HistoryRow(place, time, "", "", 0, 0, 0, 0, 0, None, None, "") for place, time in enumerate(times)]
        logs[f"t{table}"] = RecentCommits(None, rows=tuple(rows))

    class Service:
        def status(self) -> ServiceStatus:
            tables = tuple(TableStatus(name, name, online=True) for name in logs)
            return ServiceStatus(NOW, "0", SparkState.NONE, (), tables)

    class Memory:
        class activity:  # noqa: N801
            recent = staticmethod(lambda *_: logs)

    seen, before = [], None
    while True:
        page = page_of_all(Service(), Memory(), Open().authenticate(None), before)
        seen += [(one.table, one.row.version) for one in page.rows]
        if page.older is None:
            break
        before = page.older
    assert sorted(seen) == sorted((name, place) for name in logs for place in range(ROWS_KEPT))


def test_a_log_that_is_longer_than_is_read_is_counted_to_there(lake, stations):
    for number in range(ENTRIES_MAX):
        stations.set(split_rows=1000 + number)
    recent = RecentCommits(lake.unnamed(stations.id))
    recent.read_on(stations.version, stations.history_rows(1).__next__().time)
    assert recent.cut
    assert sum(minute.commits for minute in recent.minutes.values()) == ENTRIES_MAX
    assert len(recent.rows) == ROWS_KEPT
