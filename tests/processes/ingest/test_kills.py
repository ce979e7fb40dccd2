"""kill -9 at every step of a submission and an ingest: the rows are in the table once, whichever process goes on."""

import multiprocessing
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.processes.ingest.dying import ingest_until
from tests.tables.ingest.cases import ingested, put
from tests.tables.retention.cases import letters, made, on

KILLS_MIN = 50


@pytest.fixture(scope="module")
def processes():
    """Forked from one that has imported everything and started nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.processes.ingest.dying", "lakebed.files.sorting.merge", "pyarrow.parquet"])
    return context


def killed_at(step, processes, tmp_path):
    """Whether the process came to that step; whatever it left, the next one finishes."""
    inbox = tmp_path / f"inbox-{step}"
    put(inbox, "ab", "cd", "ef")
    pq.write_table(pa.table({"v": [1]}), inbox / "poison.parquet")
    table = made(url=str(tmp_path / f"lake-{step}"), ingest_tries_max=1)
    process = processes.Process(target=ingest_until, args=(step, str(tmp_path / f"lake-{step}"), str(inbox)))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    before = letters(on(table))
    # Whole jobs: the second is parted, for what it has beside poison.
    assert before in ("", "abcd", "abcdef")
    fresh = on(table)
    report = fresh.submit(inbox)
    assert len(report.files) == 4
    ingested(fresh)
    assert on(table).verify(files=True).sound
    assert letters(on(table)) == "abcdef"
    (rejected,) = on(table).state().rejected
    assert rejected.files[0].url.endswith("poison.parquet")
    assert not on(table).state().open_requests
    return process.exitcode != 0


def test_a_kill_now_and_then_costs_nothing(processes, tmp_path):
    """At some of the steps, and after the last."""
    assert all(killed_at(step, processes, tmp_path) for step in (1, 7, 19, 31, 43))
    assert not killed_at(10_000, processes, tmp_path)


@pytest.mark.slow
def test_a_kill_at_any_step_costs_nothing(processes, tmp_path):
    step = 1
    while killed_at(step, processes, tmp_path):
        step += 1
    assert step > KILLS_MIN
