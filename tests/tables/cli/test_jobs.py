"""``lakebed jobs``: what is listed, shown and tried again."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.errors import Code
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import OpenJob
from lakebed.table.tracker.runs import Begun, RunOutcome, TaskRun, requested_retries
from tests.tables.cli.conftest import Cli


@pytest.fixture
def lake(table: str, url: str) -> lakebed.Instance:
    """An instance with three jobs on record: an export, a failed import with two tasks, and a parked compaction."""
    found = lakebed.open(url)
    readings, tracker = found.table(table), found.tracker
    about = {"table": table, "table_id": readings.id}
    with tracker.running(Begun(operation="export", **about)) as run:
        run.progress(rows_done=5, rows_total=5)
    with tracker.running(Begun(operation="import", key="monday", **about)) as run:
        run.plan_tasks(2, "workers")
        run.task(TaskRun(job=run.id, number=0, rows=3, host="a"))
        run.task(TaskRun(job=run.id, number=1, attempt=2, host="b"), Code.WORKER_FAILED("it exited with code 3"))
        run.failed(Code.STORE_UNAVAILABLE("no answer from the store"))
    parked = tracker.begin(Begun(operation="compaction", table="other", table_id="x", tries=5))
    tracker.end(parked, RunOutcome.FAILED, error=Code.OBJECT_DAMAGED("a file is damaged"), parked=True)
    tracker.flush()
    return found


def operations(cli: Cli, *words: str) -> list[str]:
    ran = cli("jobs", *words, "--json")
    assert ran.code == 0, ran.err
    return [one["operation"] for one in ran.lines]


@pytest.mark.usefixtures("lake")
def test_jobs_are_listed_newest_first_and_chosen_by_options(cli: Cli, table: str) -> None:
    assert operations(cli) == ["compaction", "import", "export"]
    assert operations(cli, "list") == ["compaction", "import", "export"]
    assert operations(cli, table) == ["import", "export"]
    assert operations(cli, "--failed") == ["compaction", "import"]
    assert operations(cli, table, "--failed") == ["import"]
    assert operations(cli, "--parked") == ["compaction"]
    assert operations(cli, "--running") == []
    assert operations(cli, "--operation", "export") == ["export"]
    assert operations(cli, "--limit", "1") == ["compaction"]


@pytest.mark.usefixtures("lake")
def test_the_list_says_what_failed_and_why(cli: Cli) -> None:
    ran = cli("jobs")
    heading, parked, failed, exported = ran.out.splitlines()
    assert heading.split() == ["id", "operation", "table", "outcome", "created", "seconds", "done", "version", "why"]
    assert "failed, parked" in parked
    assert "object_damaged: a file is damaged" in parked
    assert "store_unavailable: no answer from the store" in failed
    assert "5 rows" in exported


def test_one_job_is_shown_with_its_tasks_by_any_of_its_names(cli: Cli, lake: lakebed.Instance) -> None:
    (found,) = [one for one in cli("jobs", "--json").lines if one["operation"] == "import"]
    shown = cli("jobs", "show", found["id"]).out
    assert shown == cli("jobs", found["id"]).out == cli("jobs", found["id"][-12:]).out
    assert "error: store_unavailable: no answer from the store" in shown
    assert "job id of the caller: 'monday'" in shown or "job id of the caller: monday" in shown
    assert "tasks: 1 of 2 done, 1 failed, 1 retries" in shown
    assert "worker_failed: it exited with code 3" in shown
    assert lake.tables() == ["readings"]


def test_only_a_parked_job_is_tried_again(cli: Cli, lake: lakebed.Instance) -> None:
    by_operation = {one["operation"]: one["id"] for one in cli("jobs", "--json").lines}
    ran = cli("jobs", "retry", by_operation["import"])
    assert ran.code == cli("tag", "create", "readings", "x", "--version", "99").code or ran.code != 0
    assert "is not parked" in ran.err
    assert requested_retries(lake.storage) == frozenset()
    parked = by_operation["compaction"]
    assert "will be tried again" in cli("jobs", "retry", parked[-8:]).out
    assert "already" in cli("jobs", "retry", parked).out
    assert requested_retries(lake.storage) == {parked}


def test_jobs_that_are_open_in_the_log_alone_are_listed_with_their_table(cli: Cli, lake: lakebed.Instance) -> None:
    readings = lake.table("readings")
    state = readings.state()
    file = next(iter(state.referenced()))
    keys = state.partitions.range_at(0)
    readings.commit(OpenJob(Job("0192aaaa-job", keys, (file,), "host:another", 3600, 1)))
    assert operations(cli, "readings", "--running") == ["compaction"]
    assert operations(cli, "--running") == []
    assert "open in the log since version" in cli("jobs", "readings", "--running").out


def test_without_jobs_there_is_a_word_and_no_line(cli: Cli, table: str) -> None:
    ran = cli("jobs", table)
    assert (ran.code, ran.out) == (0, "")
    assert "no jobs" in ran.err
    assert cli("jobs", "--json").lines == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("jobs", "nothing"), 4),
        (("jobs", "show", "nothing1"), 4),
        (("jobs", "show", "short"), 2),
        (("jobs", "0192aaaa-0000-7000-8000-0123456789ab"), 4),
        (("jobs", "--failed", "--running"), 2),
        (("jobs", "--operation", "dance"), 2),
        (("jobs", "retry"), 2),
    ],
)
@pytest.mark.usefixtures("table")
def test_what_is_not_there_is_said(cli: Cli, words: tuple[str, ...], code: int) -> None:
    ran = cli(*words)
    assert ran.code == code
    assert ran.err
