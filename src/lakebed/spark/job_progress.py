"""Reports how far a Spark job is, from Spark's own tracker, while the job runs.

Core types: :class:`Progress`, :class:`JobSpan`, :class:`CombinedProgress`.

Rules. The unit is tasks: the share of rows that is reported as done is the share of tasks that have finished. A session
of Spark Connect has no tracker in this process; only the beginning and the end are reported. Nothing depends on
progress.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed import clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.25

_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@dataclass(frozen=True, slots=True)
class Progress:
    """Rows done of all rows of a call. ``rows_done`` never decreases within a call."""

    rows_done: int
    rows_total: int


Callback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class JobSpan:
    """The part of a call that one Spark job does: its rows, of all rows, and its least number of tasks."""

    first: int
    last: int
    total: int
    tasks: int


class CombinedProgress:
    """Adds up the progress of several Spark jobs that run at once."""

    def __init__(self, progress: Callback, rows_total: int) -> None:
        self._progress = progress
        self._rows_total = rows_total
        self._done: list[int] = []
        self._reporting = threading.Lock()

    def part(self) -> Callback:
        """The callback of one of the jobs, whose rows count from 0."""
        with self._reporting:
            place = len(self._done)
            self._done.append(0)

        def report(progress: Progress) -> None:
            with self._reporting:
                self._done[place] = progress.rows_done
                self._progress(Progress(min(sum(self._done), self._rows_total), self._rows_total))

        return report


@contextlib.contextmanager
def watched(session: SparkSession, progress: Callback | None, span: JobSpan) -> Iterator[None]:
    """Report to ``progress`` how far the Spark job inside the block is."""
    if progress is None:
        yield
        return
    progress(Progress(span.first, span.total))
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
    progress(Progress(span.last, span.total))


def _tracker(session: SparkSession, group: str) -> Any:
    try:
        context = session.sparkContext
        context.setJobGroup(group, "lakebed")
        return context.statusTracker()
    except Exception:  # noqa: BLE001 - Spark Connect refuses, each version with another error
        return None


def _grouping(session: SparkSession) -> dict[str, str | None]:
    """The group of the calling thread, such as the caller of a library set it."""
    try:
        return {name: session.sparkContext.getLocalProperty(name) for name in _GROUP}
    except Exception:  # noqa: BLE001 - as below
        return {}


def _regroup(session: SparkSession, before: dict[str, str | None]) -> None:
    for name, value in before.items():
        session.sparkContext.setLocalProperty(name, value)  # type: ignore[arg-type]


def _watch(tracker: Any, group: str, ended: threading.Event, progress: Callback, span: JobSpan) -> None:
    best = span.first
    while not ended.wait(POLL_S):
        try:
            share = _share(tracker, group, span.tasks)
        except Exception:  # noqa: BLE001 - Spark has gone, and the call that is watched says so
            return
        rows = span.first + int(share * (span.last - span.first))
        if rows > best:
            best = rows
            progress(Progress(rows, span.total))


def _share(tracker: Any, group: str, tasks_min: int) -> float:
    """The share of the group's tasks that have finished. Spark plans stages while it runs, so some are unknown."""
    done = tasks = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found else ():
            known = tracker.getStageInfo(stage)
            if known is not None:
                done += known.numCompletedTasks
                tasks += known.numTasks
    return done / max(tasks, tasks_min)
