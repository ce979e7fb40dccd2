"""Runs a Spark job of a call: with a tag by which it is cancelled, Spark's errors as Lakebed's, and its progress.

:func:`spark_job` surrounds every action on a session. The error of a task keeps its class, Spark's own become one with
its message. Progress is from Spark's own tracker: the share of rows that is reported as done is the share of tasks that
have finished. A session of Spark Connect has no tracker in this process; only the beginning and the end are reported.

Core types: :class:`JobSpan`, :class:`TaskError`. Errors: those of tasks; SPARK_FAILED and others for Spark's.
"""

from __future__ import annotations

import contextlib
import errno
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import msgpack

from lakebed import clock
from lakebed.errors import Code, decode_error, encode_error
from lakebed.jobs.executor import on_one_core
from lakebed.jobs.interrupt import Stop
from lakebed.jobs.job_progress import Callback, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.25

_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@dataclass(frozen=True, slots=True)
class JobSpan:
    """The part of a call that one Spark job does: its rows, of all rows, and its least number of tasks."""

    first: int
    last: int
    total: int
    tasks: int


@contextlib.contextmanager
def spark_job(
    session: SparkSession, stop: Stop, progress: Callback | None = None, span: JobSpan | None = None
) -> Iterator[None]:
    """Surround one action on the session, with which the calling thread runs a Spark job; ``span`` is its progress.

    Raises KeyboardInterrupt if the call was asked to stop; what Spark raises becomes an error of Lakebed.
    """
    with (
        watched(session, progress, span or JobSpan(0, 0, 0, 1)),
        stop.cancelling(lambda: _tags(session).cancel(stop.tag)),
        spark_errors(),
    ):
        _tags(session).add(stop.tag)
        try:
            yield
        finally:
            # A session whose JVM has ended has no tags.
            with contextlib.suppress(Exception):
                _tags(session).remove(stop.tag)


@dataclass(frozen=True, slots=True)
class _Tags:
    """Tags the jobs of a session in the calling thread, and cancels jobs by their tag from any thread."""

    add: Callable[[str], object]
    remove: Callable[[str], object]
    cancel: Callable[[str], object]


def _tags(session: SparkSession) -> _Tags:
    # Session tags belong to one thread, except in Spark Connect: another thread could not cancel by them.
    context = session.sparkContext if hasattr(session, "_jsparkSession") else None
    if context is None:
        return _Tags(session.addTag, session.removeTag, session.interruptTag)
    return _Tags(context.addJobTag, context.removeJobTag, context.cancelJobsWithTag)


@contextlib.contextmanager
def watched(session: SparkSession, progress: Callback | None, span: JobSpan) -> Iterator[None]:
    """Report the progress of the Spark job inside the block."""
    if progress is None:
        yield
        return
    progress(Progress(span.first, span.total, tasks_total=span.tasks))
    before = _grouping(session)
    group = f"lakebed-{clock.random_token()}"
    tracker = _tracker(session, group)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(tracker, group, ended, progress, span), daemon=True)
    if tracker is not None:
        watcher.start()
    try:
        yield
    finally:
        ended.set()
        if tracker is not None:
            watcher.join()
            _regroup(session, before)
    # After the watcher has ended, so that it is the last report.
    progress(Progress(span.last, span.total, tasks_done=span.tasks, tasks_total=span.tasks))


def _tracker(session: SparkSession, group: str) -> Any:
    try:
        context = session.sparkContext
        context.setJobGroup(group, "lakebed")
        return context.statusTracker()
    except Exception:  # noqa: BLE001 - Spark Connect refuses, each version with another error
        return None


def _grouping(session: SparkSession) -> dict[str, str | None]:
    """Return the group of the calling thread, such as the caller of a library set it."""
    try:
        return {name: session.sparkContext.getLocalProperty(name) for name in _GROUP}
    except Exception:  # noqa: BLE001 - as below
        return {}


def _regroup(session: SparkSession, before: dict[str, str | None]) -> None:
    for name, value in before.items():
        session.sparkContext.setLocalProperty(name, value)  # type: ignore[arg-type]


def _watch(tracker: Any, group: str, ended: threading.Event, progress: Callback, span: JobSpan) -> None:
    best = (span.first, 0)
    while not ended.wait(POLL_S):
        try:
            done, tasks = _tasks(tracker, group, span.tasks)
        except Exception:  # noqa: BLE001 - Spark has gone, and the call that is watched says so
            return
        rows = span.first + int(done / tasks * (span.last - span.first))
        if (rows, done) > best:
            best = (rows, done)
            progress(Progress(rows, span.total, tasks_done=done, tasks_total=tasks))


def _tasks(tracker: Any, group: str, tasks_min: int) -> tuple[int, int]:
    """Return the group's tasks that have finished, and all. Spark plans stages while it runs, so some are unknown."""
    done = tasks = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found else ():
            known = tracker.getStageInfo(stage)
            if known is not None:
                done += known.numCompletedTasks
                tasks += known.numTasks
    return done, max(tasks, tasks_min, 1)


_MARK = "lakebed-error:"


class TaskError(Exception):
    """Carries an error out of a task in the text of Spark's exception, the only part of it that arrives."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{_MARK}{msgpack.encode(encode_error(error)).hex()}:")


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into the error that a task raised, or into one with Spark's message."""
    try:
        yield
    except Exception as error:
        if not is_spark_error(error):
            raise
        text = str(error)
        start = text.find(_MARK)
        if start >= 0:
            begin = start + len(_MARK)
            document = msgpack.decode(bytes.fromhex(text[begin : text.index(":", begin)]))
            raise decode_error(document) from None
        if missing := _MISSING.search(text):
            raise Code.PACKAGE_MISSING(
                f"the Python that runs Spark's tasks has no {missing[1]}: install lakebed and what it needs there, "
                "or send it along (`lakebed docs clusters`)",
                module=missing[1],
            ) from error
        if _FULL.search(text):
            raise Code.TEMPORARY_STORAGE_FAILED(
                "Spark cannot write its temporary files: the disk is full. On the machine of the task, make room "
                "on the disk of SPARK_LOCAL_DIRS (by default of TMPDIR), or point it at a larger one",
                errno=errno.ENOSPC,
            ) from error
        raise Code.SPARK_FAILED(f"Spark failed: {spark_message(error)}") from error


def is_spark_error(error: BaseException) -> bool:
    """Return whether Spark raised it: PySpark has errors of its own, and passes on some of its bridge to Java."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


_FULL = re.compile("No space left on device|Disk quota exceeded")

_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)


def spark_message(error: BaseException) -> str:
    """Return the named conditions in a text with several stack traces, the cause last."""
    text = str(error).strip()
    conditions = dict.fromkeys(re.findall(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*", text))
    return ("; ".join(conditions) or (text.splitlines() or [repr(error)])[0])[:1000]


# -- tasks ------------------------------------------------------------------------------------------------------

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` runs on the batches of one Spark partition."""


def raising(function: ArrowFunction) -> ArrowFunction:
    """Return the function on one core; an error that it raises fails the Spark job, as that error."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        on_one_core()
        try:
            yield from function(batches)
        except Exception as error:
            raise TaskError(error) from error

    return run


def application_of(session: SparkSession) -> str:
    """Return the id of Spark's application; ``spark`` if the session, as that of Spark Connect, does not tell."""
    try:
        return str(session.sparkContext.applicationId)
    except Exception:  # noqa: BLE001 - Spark Connect refuses, each version with another error
        return "spark"


def attempt_number() -> int:
    """Return the number of this attempt of a task, from 1; 1 outside of a task."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    return 1 if context is None else int(context.attemptNumber()) + 1
