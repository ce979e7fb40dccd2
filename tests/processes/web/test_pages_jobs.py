"""The page of jobs, that of one job, and the picture of work over time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from litestar.testing import TestClient

from lakebed.read.inspect.hooks import add_hook, checked_hook
from lakebed.server.security.principal import Permission, Principal, Role
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.server.web.pages.charts import LANE, LANES_MAX, TIMELINE_WIDTH, WorkSpan, timeline
from lakebed.server.web.pages.jobs_page import troubles_in
from lakebed.table.tracker.runs import Begun, JobRun, RunOutcome, TaskRun, requested_retries

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)

HERE = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def runs(lake, stations) -> dict[str, str]:
    """A run that goes on, one with tasks, and one that failed and is parked; their ids."""
    tracker = lake.tracker
    begun = {"table": "stations", "table_id": stations.id}
    going = tracker.begin(Begun(operation="import", rows_total=200, tasks=2, **begun))
    tracker.progress(going, rows_done=50)
    done = tracker.begin(Begun(operation="compaction", **begun))
    now = datetime.now(UTC)
    tracker.task(TaskRun(job=done, number=1, started=now, finished=now + timedelta(seconds=2), rows=7))
    tracker.end(done, RunOutcome.SUCCEEDED, version=3)
    failed = tracker.begin(Begun(operation="gc", tries=5, **begun))
    tracker.end(failed, RunOutcome.FAILED, error=RuntimeError("<b>no</b> disk"), parked=True)
    tracker.flush()
    return {"going": going, "done": done, "failed": failed}


def test_jobs_show_what_runs_and_what_failed(browser, runs):
    twin = browser.get("/jobs.json").json()
    assert [(one["run"]["operation"], one["share"]) for one in twin["running"]] == [("import", 0.25)]
    assert [one["run"]["operation"] for one in twin["troubles"]] == ["gc"]
    assert len(twin["timeline"]["bars"]) == 3
    page = browser.get("/jobs").text
    assert 'value="0.25"' in page
    assert "&lt;b&gt;no&lt;/b&gt; disk" in page
    assert f'action="/jobs/{runs["failed"]}/retry"' in page


@pytest.mark.parametrize(
    ("show", "operations"), [("running", ["import"]), ("failed", ["gc"]), ("parked", ["gc"]), ("all", 3)]
)
def test_runs_are_filtered(browser, runs, show, operations):
    found = [one["run"]["operation"] for one in browser.get(f"/jobs.json?show={show}").json()["runs"]]
    assert found == operations if isinstance(operations, list) else len(found) == operations


def test_a_job_shows_its_tasks(browser, runs):
    twin = browser.get(f"/jobs/{runs['done']}.json").json()
    assert [task["rows"] for task in twin["tasks"]] == [7]
    assert [bar["width"] for bar in twin["timeline"]["bars"]] == [TIMELINE_WIDTH]
    assert "task-1" in browser.get(f"/jobs/{runs['done']}").text
    assert browser.get(f"/jobs/{runs['failed']}").status_code == 200
    assert browser.get("/jobs/00000000-none").status_code == 404
    assert browser.get("/jobs/x").status_code == 400


def test_a_page_without_runs(browser):
    assert "No runs are on record" in browser.get("/jobs").text


def test_a_parked_job_is_retried_by_a_form_of_this_service(browser, lake, runs):
    path = f"/jobs/{runs['failed']}/retry"
    assert browser.post(path, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert requested_retries(lake.storage) == set()
    answer = browser.post(path, headers=HERE, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{runs['failed']}")
    assert requested_retries(lake.storage) == {runs["failed"]}
    assert browser.post(f"/jobs/{runs['done']}/retry", headers=HERE).status_code == 409


def test_a_principal_sees_jobs_of_its_tables_and_may_not_retry(lake, runs):
    tables = {"there": "stations", "not": "others"}

    class FakeAuthenticator:
        def authenticate(self, authorization: str | None) -> Principal:
            table = tables[authorization or "there"]
            return Principal("ann", (Role("r", Permission.READ, frozenset({table})),))

    with TestClient(make_app(Service(lake, maintain=False), FakeAuthenticator())) as client:
        assert len(client.get("/jobs.json").json()["runs"]) == 3
        assert "<form" not in client.get("/jobs").text
        assert client.post(f"/jobs/{runs['failed']}/retry", headers=HERE).status_code == 403
        other = {"authorization": "not"}
        assert client.get("/jobs.json", headers=other).json()["runs"] == []
        assert client.get(f"/jobs/{runs['done']}", headers=other).status_code == 404


def test_an_operation_that_succeeded_since_is_no_trouble():
    def run(operation: str, minutes: int, outcome: RunOutcome) -> JobRun:
        at = NOW - timedelta(minutes=minutes)
        return JobRun(id=f"{operation}{minutes}", operation=operation, created=at, updated=at, outcome=outcome)

    newest_first = [
        run("gc", 1, RunOutcome.RUNNING), run("gc", 2, RunOutcome.FAILED), run("split", 3, RunOutcome.SUCCEEDED),
        run("split", 4, RunOutcome.FAILED), run("ingest", 5, RunOutcome.LOST),
    ]  # fmt: skip
    assert [one.id for one in troubles_in(newest_first)] == ["gc2", "ingest5"]


def span(begin: int, end: int | None) -> WorkSpan:
    """From so many minutes before now to so many."""
    return WorkSpan("", NOW - timedelta(minutes=begin), None if end is None else NOW - timedelta(minutes=end), "", "")


def test_work_that_overlaps_is_in_lanes_of_its_own():
    line = timeline([span(50, 30), span(40, 20), span(25, 10), span(15, None)], NOW - timedelta(hours=1), NOW)
    assert [bar.y // LANE for bar in line.bars] == [0, 1, 0, 1]
    assert [(round(bar.x), round(bar.width)) for bar in line.bars][-1] == (750, 250)
    assert line.height == 2 * LANE


def test_work_outside_of_the_time_is_cut_or_left_out():
    line = timeline([span(90, 30), span(200, 100), span(0, None)], NOW - timedelta(hours=1), NOW)
    assert [(bar.x, round(bar.width)) for bar in line.bars] == [(0, 500), (998, 2)]


def test_more_work_at_once_than_there_are_lanes_is_counted():
    line = timeline([span(10, 5)] * (LANES_MAX + 3), NOW - timedelta(hours=1), NOW)
    assert (len(line.bars), line.hidden) == (LANES_MAX, 3)


def test_hooks_are_shown_with_their_failures(lake, stations):
    add_hook(lake.storage, checked_hook(stations.id, url="http://127.0.0.1:1/hidden"), 0)
    service = Service(lake, maintain=False)
    service.hooks.subscriptions.look({})
    for _ in range(3000):
        if service.hooks.status()[0].failures:
            break
        time.sleep(0.01)

    class FakeAuthenticator:
        def authenticate(self, authorization: str | None) -> Principal:
            return Principal.everywhere("p", Permission.READ if authorization else Permission.ADMIN)

    with TestClient(make_app(service, FakeAuthenticator())) as client:
        (shown,) = client.get("/jobs.json").json()["hooks"]
        assert (shown["table"], shown["delivered"], shown["target"]) == ("stations", 0, "http://127.0.0.1:1/hidden")
        assert shown["failures"] >= 1
        assert shown["error"]
        assert "failures in a row" in client.get("/jobs", headers=HERE).text
        (shown,) = client.get("/jobs.json", headers={"authorization": "reader"}).json()["hooks"]
        assert (shown["failures"] >= 1, shown["target"], shown["error"]) == (True, None, None)
    service.hooks.subscriptions.stop()
