"""Calls of a pipeline that are interrupted. The signals are real; Spark is a fake that remembers tags."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.errors import Code
from lakebed.jobs.interrupt import Stop, call, call_thread, current_stop
from lakebed.jobs.job_progress import CallProgress
from lakebed.jobs.pipeline import interruptible
from lakebed.read.inspect.history import committed_on_interrupt
from lakebed.spark.spark_job import spark_job
from lakebed.testing.faults import Meanwhile
from tests.tables.retention.cases import on

WAIT_S = 30


class FakeSession:
    """Runs one job for each thread, until a tag of the thread is interrupted."""

    def __init__(self) -> None:
        self.local = threading.local()
        self.running: dict[str, threading.Event] = {}

    def addTag(self, tag: str) -> None:  # noqa: N802 - as PySpark has it
        self.local.tag = tag

    def removeTag(self, tag: str) -> None:  # noqa: N802
        assert self.local.tag == tag
        self.local.tag = None

    def interruptTag(self, tag: str) -> None:  # noqa: N802
        if tag in self.running:
            self.running[tag].set()

    def job(self) -> None:
        cancelled = self.running[self.local.tag] = threading.Event()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert cancelled.wait(WAIT_S), "the job was not cancelled"
        raise RuntimeError("SPARK_JOB_CANCELLED")


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    instance = lakebed.create(tmp_path / "lake")
    return instance.create_table("t", Schema({"k": "string"}, {}, {"n": "int64"}))


def rows(*keys: str) -> pa.Table:
    return pa.table({"k": list(keys), "n": pa.array(range(len(keys)), pa.int64())})


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def notes(caught: pytest.ExceptionInfo[KeyboardInterrupt]) -> list[str]:
    return list(getattr(caught.value, "__notes__", []))


def test_an_interrupt_cancels_the_jobs_of_the_call_and_no_others() -> None:
    session = FakeSession()
    other = session.running["other"] = threading.Event()

    def work() -> None:
        with spark_job(session, current_stop()):  # type: ignore[arg-type]
            session.job()

    with pytest.raises(KeyboardInterrupt) as caught:
        call(work)
    assert caught.value.__cause__ is None, "a cancelled job is no error of its own"
    assert not other.is_set()


def test_an_interrupt_arrives_where_it_does_not_end_a_system_call() -> None:
    """As after polars has replaced the signal handler."""

    def work() -> None:
        # The caller waits by then.
        time.sleep(0.3)
        interrupt()
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            current_stop().check()
            time.sleep(0.01)
        raise RuntimeError("the call went on to its end")

    signal.siginterrupt(signal.SIGINT, False)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            call(work)
        assert caught.value.__cause__ is None
    finally:
        signal.siginterrupt(signal.SIGINT, True)


def test_what_a_call_began_before_it_looks_again_is_finished() -> None:
    """An interrupt reaches the thread that waits: a commit is not broken in the middle."""
    done = []

    def work() -> None:
        interrupt()
        time.sleep(0.2)
        done.append("commit")
        current_stop().check()
        done.append("next")

    with pytest.raises(KeyboardInterrupt):
        call(work)
    assert done == ["commit"]


def test_a_call_that_ends_well_all_the_same_is_interrupted() -> None:
    with pytest.raises(KeyboardInterrupt):
        call(interrupt)


def test_another_error_of_an_interrupted_call_is_its_cause() -> None:
    def work() -> None:
        interrupt()
        while not current_stop().asked:
            time.sleep(0.01)
        raise Code.STORE_UNAVAILABLE("the disk is full")

    with pytest.raises(KeyboardInterrupt) as caught:
        call(work)
    assert str(caught.value.__cause__) == "the disk is full"


def test_a_second_interrupt_does_not_wait() -> None:
    go_on = threading.Event()

    def work() -> None:
        interrupt()
        while not current_stop().asked:
            time.sleep(0.01)
        interrupt()
        go_on.wait(WAIT_S)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call(work)
    go_on.set()
    assert time.monotonic() - began < WAIT_S


def test_errors_and_results_of_a_call_are_the_callers() -> None:
    def fail() -> None:
        raise Code.ARGUMENT_INVALID("no")

    assert call(lambda: 7) == 7
    with pytest.raises(lakebed.UsageError, match="no"):
        call(fail)


def test_a_call_in_a_thread_of_the_callers_is_done_there() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call(threading.current_thread)))
    thread.start()
    thread.join()
    assert found == [thread]


def test_a_call_within_a_call_is_part_of_it(table: lakebed.Table) -> None:
    seen: list[Stop] = []

    @interruptible
    def inner(_pipeline: Any, _table: Any) -> None:
        seen.append(current_stop())

    @interruptible
    def outer(pipeline: Any, given: Any) -> None:
        seen.append(current_stop())
        inner(pipeline, given)

    class Fake:
        progress = CallProgress(None)
        call_thread = staticmethod(call_thread)

    outer(Fake(), table)  # type: ignore[arg-type]
    assert seen[0] is seen[1]


def interrupted(table: lakebed.Table, *steps: Callable[[], object]) -> list[str]:
    def work() -> None:
        for step in steps:
            step()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, committed_on_interrupt(table.log):
        work()
    return notes(caught)


def test_the_note_says_what_was_committed(table: lakebed.Table) -> None:
    table.write(rows("before"))
    assert interrupted(table) == ["nothing was committed"]
    reported = interrupted(table, lambda: table.write(rows("a", "b")), lambda: table.write(rows("c")))
    assert reported == ["committed, up to version 4: 3 rows added; nothing else was changed"]


def test_the_note_does_not_count_what_others_committed(table: lakebed.Table, tmp_path: Path) -> None:
    def other() -> None:
        child = os.fork()
        if not child:
            lakebed.open(tmp_path / "lake").table("t").write(rows("theirs"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    assert interrupted(table, other) == ["nothing was committed"]
    assert table.version == 2


def test_a_note_that_cannot_be_made_hides_no_interrupt(table: lakebed.Table) -> None:
    gone = threading.Event()

    def fail() -> None:
        if gone.is_set():
            raise Code.STORE_UNAVAILABLE("the store is gone")

    (reported,) = interrupted(on(table, Meanwhile(table.storage, "get", "*/log/*", fail, again=True)), gone.set)
    assert reported == "what was committed could not be read (the store is gone); see `lakebed history`"


class _NeverBegins(threading.Thread):
    """As a thread whose start is interrupted just after Python took the lock for which the thread waits."""

    @property
    def ident(self) -> int:
        return 1

    def start(self) -> None:
        raise KeyboardInterrupt


def test_a_call_whose_thread_never_begins_ends() -> None:
    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(WAIT_S)
    try:
        with pytest.raises(KeyboardInterrupt):
            call(lambda: None, lambda run: _NeverBegins(target=run))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
