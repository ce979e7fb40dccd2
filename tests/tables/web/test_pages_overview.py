"""The overview, what every page has in common, and errors as pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from litestar.testing import TestClient

import lakebed
from lakebed.model.table_summary import Backlog
from lakebed.server.security.principal import Permission, Principal, Role
from lakebed.server.service.service import Service
from lakebed.server.service.status import LastError, OperationStatus, ServiceStatus, SparkState, TableStatus
from lakebed.server.web.app import make_app
from lakebed.server.web.pages.overview import PAGE_TABLES, Asked, make, troubles_of
from lakebed.server.web.pages.page_memory import Activity, Minute, RecentCommits, throughput
from lakebed.server.web.pages.table_health import Level, health_of

NOW = datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC)


def table(name: str, **facts: object) -> TableStatus:
    return TableStatus(name, name, online=True, **{"version": 1, "partitions": 1, "rows": 10, **facts})


def status(*tables: TableStatus) -> ServiceStatus:
    return ServiceStatus(NOW, "0", SparkState.NONE, (), tables)


def test_overview_lists_the_tables_with_their_figures(browser, stations):
    page = browser.get("/").text
    assert 'href="/tables/stations"' in page
    twin = browser.get("/index.json").json()
    (listed,) = [one["status"] for one in twin["tables"]]
    assert (listed["name"], listed["rows"], listed["partitions"]) == ("stations", 6, 3)
    # Two writes of keys in the first two of three partitions.
    assert (twin["totals"]["files"], round(listed["files_per_partition_mean"], 2)) == (4, 1.33)


def test_overview_of_an_empty_instance_says_what_to_do(browser):
    assert "lakebed table create" in browser.get("/").text


def test_throughput_counts_the_commits_of_the_log(browser, stations):
    # A creation and two writes of three rows.
    (commits, rows, _) = browser.get("/index.json?window=day").json()["charts"]
    assert (commits["total"], rows["total"]) == (3, 6)


def test_throughput_counts_each_commit_once(lake, stations):
    activity = Activity(lake)
    known = [TableStatus(stations.id, "stations", online=True, version=version) for version in (2, 3)]
    for one in known:
        activity.recent([one], 10)
    (recent,) = activity.recent(known[-1:], 10).values()
    assert sum(minute.commits for minute in recent.minutes.values()) == 3
    activity.close()


def test_throughput_divides_time_into_equal_periods():
    minute = int(NOW.timestamp() // 60)
    minutes = {minute: Minute(1, 5, 50), minute - 59: Minute(2), minute - 60: Minute(4)}
    recent = RecentCommits(table=None, minutes=minutes)
    found = throughput([recent], NOW, minutes=1, periods=60)
    assert (found.commits[0], found.commits[-1], sum(found.commits)) == (2, 1, 3)
    assert found.begin_s + 60 * 60 == (minute + 1) * 60


def test_tables_are_filtered_sorted_and_paged():
    tables = [table(f"t{number:04}", rows=number) for number in range(250)]
    asked = Asked(sort="rows", descending=True, number=3)
    page = make(status(*tables), tables, {}, "memory://", asked)
    assert [one.status.rows for one in page.tables] == list(range(49, -1, -1))
    assert (page.numbers, page.matching) == (3, 250)
    page = make(status(*tables), tables, {}, "memory://", Asked(filter="T024"))
    assert [one.status.name for one in page.tables] == [f"t024{digit}" for digit in range(10)]
    assert len(make(status(*tables), tables, {}, "memory://", Asked()).tables) == PAGE_TABLES


def test_a_page_number_beyond_the_end_is_the_last_page():
    tables = [table("a")]
    assert make(status(*tables), tables, {}, "memory://", Asked(number=9)).asked.number == 1


def test_health_is_that_of_the_most_urgent_reason():
    failed = LastError("storage_failed", "no answer", NOW)
    waits = OperationStatus(
        "ingest", last_error=failed, failures_in_a_row=3, waiting_since=NOW, waiting_for="the storage"
    )
    parked = OperationStatus("compaction", last_error=failed, failures_in_a_row=9, parked=True)
    assert health_of(table("a")).level is Level.OK
    assert health_of(table("a", version=0)).level is Level.UNKNOWN
    assert health_of(table("a", backlog=Backlog(requests=1))).level is Level.WORKING
    assert health_of(table("a", operations=(waits,))).level is Level.WAITING
    both = health_of(table("a", operations=(waits, parked), backlog=Backlog(runs_due=2)))
    assert both.level is Level.FAILING
    assert len(both.reasons) == 3
    assert health_of(table("a", error=failed)).reasons == ("its log cannot be read: no answer",)


def test_what_waits_longest_comes_first_after_what_is_parked():
    def failing(minutes: int, **facts: object) -> OperationStatus:
        since = NOW - timedelta(minutes=minutes)
        return OperationStatus("gc", failures_in_a_row=1, waiting_since=since, **facts)

    found = troubles_of(
        [table("a", operations=(failing(1),)), table("b", operations=(failing(9),)),
         table("c", operations=(failing(0, parked=True),))]
    )  # fmt: skip
    assert [one.table for one in found] == ["c", "b", "a"]


def test_pages_forbid_inline_scripts_and_other_origins(browser, stations):
    answer = browser.get("/")
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=|https?://", answer.text)


def test_assets_are_kept_for_good_under_a_name_with_their_digest(browser):
    paths = set(re.findall(r"/static/[^\"]+", browser.get("/").text))
    assert len(paths) == 3
    for path in paths:
        answer = browser.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert browser.get("/static/style.css").status_code == 404
    assert browser.get("/static/..%2fstyle.css").status_code == 404


def test_an_error_is_a_page_for_a_browser_and_json_for_a_program(browser):
    answer = browser.get("/no/such/page")
    assert answer.status_code == 404
    assert "<h1" in answer.text
    assert browser.get("/no/such/page", headers={"accept": "*/*"}).json()["error"]["code"] == "request_invalid"
    assert "error" in browser.get("/?sort=size", headers={"accept": "application/json"}).json()


def test_what_a_request_says_is_escaped(browser, stations):
    page = browser.get("/", params={"q": '"><script>alert(1)</script>'}).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_a_principal_sees_the_tables_that_it_may_read_whole(lake, stations):
    schema = lakebed.Schema({"id": "string"})
    lake.create_table("hidden", schema)
    lake.create_table("partly", schema)
    roles = (
        Role("some", Permission.READ, frozenset({"stations"})),
        Role("part", Permission.READ, frozenset({"partly"}), where="id > 'm'"),
    )

    class FakeAuthenticator:
        def authenticate(self, _: str | None) -> Principal:
            return Principal("ann", roles)

    with TestClient(make_app(Service(lake, maintain=False), FakeAuthenticator())) as client:
        twin = client.get("/index.json").json()
    assert [one["status"]["name"] for one in twin["tables"]] == ["stations"]
    assert twin["totals"]["tables"] == 1
