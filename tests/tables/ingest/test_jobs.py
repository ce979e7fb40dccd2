"""Ingest jobs without Spark: each request is carried out once, whatever its neighbours, others and stores do."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import Error, KeyRange
from lakebed.errors import Code
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep import ingest_jobs
from lakebed.upkeep.ingest_jobs import prepare
from lakebed.write.plan import Method
from tests.tables.ingest.cases import in_process, ingested, put, standings
from tests.tables.retention.cases import Killed, Mortal, letters, made, on, rows, sound


def failures(report):
    """``ab: reason``, with an exclamation mark if it was given up; the reasons begin with the file's path."""
    return [f"{Path(one.url).stem}{'!' * one.rejected}: {one.reason.partition(one.url)[2]}" for one in report.failed]


def noting(table, seen):
    """Runs tasks here, and notes the files of each as ``ab cd``."""
    run = in_process(table)

    def execute(tasks):
        seen.extend(" ".join(Path(part.file.url).stem for part in task.parts) for task in tasks)
        return run(tasks)

    return execute


def test_a_job_adds_its_rows_and_closes_its_requests_in_one_entry(table, inbox):
    put(inbox, "ba", "dc", "ca")
    table.submit(inbox)
    before = table.version
    report = ingested(table)
    assert (report.jobs, report.requests, report.rows, report.files) == (1, 3, 6, 1)
    assert (report.version, report.waiting, report.failed) == (before + 1, 0, ())
    assert report.source_bytes == sum(path.stat().st_size for path in inbox.iterdir())
    assert letters(table) == "aabccd"
    assert ingested(table).version is None


def test_what_is_not_due_waits(table, inbox):
    put(inbox, "ab")
    table.submit(inbox)
    assert (ingested(table, force=False).waiting, letters(table)) == (1, "")
    table.set(ingest_age_s=0)
    assert (ingested(table, force=False).waiting, letters(table)) == (0, "ab")


def test_files_without_rows_close_their_requests(table, inbox):
    inbox.mkdir()
    pq.write_table(rows("a").slice(0, 0), inbox / "none.parquet")
    table.submit(inbox)
    report = ingested(table)
    assert (report.requests, report.files, report.version) == (1, 0, table.version)
    assert standings(table.submit(inbox)) == "none ingested"


def test_a_file_that_vanished_or_changed_is_rejected_by_name_and_the_others_go_on(table, inbox):
    put(inbox, "ab", "cd", "ef")
    table.submit(inbox)
    (inbox / "ab.parquet").unlink()
    pq.write_table(rows("cdx"), inbox / "cd.parquet")
    report = ingested(table)
    assert [line.partition(":")[0] for line in failures(report)] == ["ab!", "cd!"]
    assert failures(report)[0] == "ab!:  is not there any more"
    assert " was changed since it was found: " in failures(report)[1]
    assert letters(table) == "ef"
    assert table.requests().column("reason").to_pylist() == [one.reason for one in report.failed]
    assert standings(table.submit(inbox)) == "cd submitted, ef ingested"


def poison(inbox, name):
    pq.write_table(pa.table({"k": ["x"], "w": [1]}), inbox / f"{name}.parquet")


def test_a_file_that_does_not_fit_costs_its_neighbours_nothing(table, inbox):
    """The error names it, so it stands alone at once."""
    put(inbox, *"abcdefgh")
    poison(inbox, "e")
    table.submit(inbox)
    seen = []
    report = ingested(table, noting(table, seen))
    assert seen == ["a b c d e f g h", "a b c d f g h", "e"]
    remedy = "set schema_growth=add to add new columns as fields, or leave them out (--ignore-extra)"
    assert failures(report) == [f"e: : extra column w; the table has k, v; {remedy}"]
    assert (report.requests, report.waiting, letters(table)) == (7, 1, "abcdfgh")


def test_a_file_that_kills_its_task_is_found_by_halves(table, inbox):
    """An error that names no file: a worker that ran out of memory, say."""
    put(inbox, *"abcdefgh")
    table.submit(inbox)
    run, seen = in_process(table), []

    def execute(tasks):
        seen.extend("".join(Path(part.file.url).stem for part in task.parts) for task in tasks)
        if any("e" in Path(part.file.url).stem for task in tasks for part in task.parts):
            raise Code.INTERNAL_ERROR("a worker died")
        return run(tasks)

    report = ingested(table, execute)
    assert seen[0] == "abcdefgh"
    assert [one.reason for one in report.failed] == ["a worker died"]
    assert (report.requests, letters(table)) == (7, "abcdfgh")


def test_a_request_that_fails_goes_alone_and_is_rejected_at_the_last_try(table, inbox):
    table.set(ingest_tries_max=2)
    put(inbox, "a", "e")
    poison(inbox, "e")
    table.submit(inbox)
    assert not ingested(table).failed[0].rejected
    put(inbox, "b")
    table.submit(inbox / "b.parquet")
    seen = []
    report = ingested(table, noting(table, seen))
    assert sorted(seen) == ["b", "e"]
    assert report.failed[0].rejected
    (request,) = table.requests().to_pylist()
    assert (request["state"], request["failures"]) == ("rejected", 2)
    assert "extra column w" in request["reason"]
    assert letters(table) == "ab"


def test_a_full_disk_counts_as_no_failure(table, inbox):
    """The error is reported, nothing is counted, and the next ingest does the work."""
    put(inbox, "a", "b")
    table.submit(inbox)
    full = Code.STORE_UNAVAILABLE("no room")
    report = ingested(table, lambda tasks: [full] * len(tasks))
    assert (report.errors, report.failed, report.waiting) == ((full,), (), 2)
    assert [request.failures for request in table.state().open_requests.values()] == [0, 0]
    assert ingested(table).requests == 2


def test_tasks_that_cannot_be_run_count_as_no_failure(table, inbox):
    """Workers that lack the package, say: no file is tried by halves for that, and none is counted."""
    put(inbox, *"abcd")
    table.submit(inbox)
    tries = []

    def execute(tasks):
        tries.extend(tasks)
        raise Code.ARGUMENT_INVALID("the Python that runs Spark's tasks has no lakebed")

    report = ingested(table, execute)
    assert ([error.message for error in report.errors], report.failed, report.waiting) == (
        ["the Python that runs Spark's tasks has no lakebed"],
        (),
        4,
    )
    assert [request.failures for request in table.state().open_requests.values()] == [0] * 4
    assert len(tries) == 1
    assert ingested(table).requests == 4


def test_a_file_that_changes_while_it_is_read_is_rejected(table, inbox):
    put(inbox, "a", "b")
    table.submit(inbox)
    run = in_process(table)

    def execute(tasks):
        os.utime(inbox / "b.parquet", (1, 1))
        return run(tasks)

    report = ingested(table, execute)
    assert [line.partition(":")[0] for line in failures(report)] == ["b!"]
    assert letters(table) == "a"


def test_of_two_that_ingest_at_once_one_adds_and_the_other_is_refused(table, inbox):
    """The second has sorted it all when it learns of the first; what came after the first plan is still its own."""
    put(inbox, "a", "b")
    table.submit(inbox)
    planned = prepare(table, force=True)
    run = in_process(table)

    def execute(tasks):
        files = run(tasks)
        other = on(table)
        if len(tasks[0].parts) == 2:
            assert ingested(other).requests == 2
        return files

    report = ingest_jobs.ingest(table, planned, execute, cores=1)
    assert (report.jobs, report.requests, report.failed, report.errors) == (0, 0, (), ())
    assert letters(table) == "ab"


def test_of_a_job_that_another_has_carried_out_in_part_the_rest_is_done_again(table, inbox):
    put(inbox, "a", "b")
    table.submit(inbox)
    seen = []

    def execute(tasks):
        files = noting(table, seen)(tasks)
        if len(seen) == 1:
            other = on(table)
            planned = prepare(other, force=True)
            (whole,) = planned.jobs
            only = ingest_jobs.IngestPlan((ingest_jobs.job_of(whole.requests[:1]),), ())
            ingest_jobs.ingest(other, only, in_process(other), cores=1)
        return files

    report = ingested(table, execute)
    assert seen == ["a b", "b"]
    assert (report.requests, letters(table)) == (1, "ab")


def test_rows_of_a_request_do_not_pass_a_fence_that_came_after_it(table, inbox):
    """They were asked for before the erasure, so they are part of it; those of a later request are not."""
    put(inbox, "abcd")
    table.submit(inbox)
    table.remove(KeyRange(("b",), ("d",)), fence=True)
    put(inbox, "ce")
    table.submit(inbox)
    report = ingested(table)
    assert (report.requests, letters(table)) == (2, "acde")


def test_a_fence_that_comes_while_a_job_runs_refuses_it_and_it_runs_again(table, inbox):
    put(inbox, "abc")
    table.submit(inbox)
    run, calls = in_process(table), []

    def execute(tasks):
        files = run(tasks)
        if not calls:
            on(table).remove(KeyRange(("b",)), fence=True)
        calls.append(len(tasks))
        return files

    assert ingested(table, execute).requests == 1
    assert (calls, letters(table)) == ([1, 1], "a")


def test_a_fenced_job_is_sorted_by_one_task_however_large(table, inbox):
    """The accounts of a shuffle are of whole files."""
    put(inbox, "ab")
    table.submit(inbox)
    table.remove(KeyRange(("b",)), fence=True)
    methods = []

    def execute(tasks):
        methods.extend(task.method for task in tasks)
        return in_process(table)(tasks)

    ingest_jobs.ingest(table, prepare(table, force=True, method=Method.SHUFFLE), execute, cores=1)
    assert (methods, letters(table)) == ([Method.SORT], "a")


def test_many_jobs_are_handed_over_in_waves_and_each_is_one_entry(table, inbox):
    table.set(ingest_bytes_max=1)
    put(inbox, *"abcdef")
    table.submit(inbox)
    before, waves = table.version, []

    def execute(tasks):
        waves.append(len(tasks))
        return in_process(table)(tasks)

    report = ingested(table, execute)
    assert (waves, report.jobs, report.version) == ([4, 2], 6, before + 6)


@pytest.mark.parametrize("after", [False, True], ids=["before it takes effect", "after it took effect"])
def test_an_ingest_killed_at_any_entry_is_finished_by_the_next(inbox, after):
    """The submission, the failure, the rejection, the add: killed at each."""
    put(inbox, "ab", "cd", "e")
    poison(inbox, "e")
    two_files = 2 * max(path.stat().st_size for path in inbox.iterdir())
    change, died = 0, True
    while died:
        change += 1
        table = made(ingest_tries_max=1, ingest_bytes_max=two_files)
        try:
            mortal = on(table, Mortal(table.storage, change, after=after))
            mortal.submit(inbox)
            ingested(mortal)
            died = False
        except Killed:
            fresh = on(table)
            fresh.submit(inbox)
            ingested(fresh)
        assert sound(table) == "abcd"
        assert [Path(r.files[0].url).stem for r in on(table).state().rejected] == ["e"]
        assert not on(table).state().open_requests
    assert change > 4


@pytest.mark.parametrize("seed", range(5))
def test_a_store_that_loses_answers_doubles_nothing(inbox, seed):
    """A caller that gets an unknown outcome, or none, asks again."""
    put(inbox, "ab", "cd", "ef", "gh")
    table = made(ingest_bytes_max=1)
    plan = FaultPlan([Rule(Fault.FAIL_AFTER, name="*/log/*", probability=0.15)], seed=seed)
    faulty = on(table, FaultyStorage(table.storage, plan))
    for _ in range(40):
        try:
            faulty.submit(inbox)
            if not ingested(faulty).errors and not faulty.state().open_requests:
                break
        except Error:
            continue
    assert sound(table) == "abcdefgh"


def test_a_leaf_with_too_many_runs_leaves_requests_open_and_is_no_failure_of_theirs(table, inbox):
    for text in ("ab", "cd", "ef"):
        table.write(rows(text))
    table.set(runs_max=2, ingest_tries_max=1)
    put(inbox, "gh")
    table.submit(inbox)
    first = ingested(table)
    assert (first.jobs, first.waiting, first.failed, first.crowded_out) == (0, 1, (), True)
    assert "more than 2 (setting runs_max)" in str(first.errors[0])
    table.set(runs_max=3)
    both = first.followed_by(ingested(table))
    assert (both.jobs, both.rows, both.waiting, both.errors) == (1, 2, 0, ())
    assert letters(table) == "abcdefgh"
