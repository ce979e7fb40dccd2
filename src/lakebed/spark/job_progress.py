"""How far a Spark job is, for a progress bar: asked of Spark's own tracker while the job runs.

Tasks are counted, not rows: what is done of the rows is the share of the tasks that have finished. A session of Spark
Connect has no tracker here; then only the beginning and the end are told. Nothing depends on it.
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


@dataclass(frozen=True, slots=True)
class Progress:
    """Rows done of all rows of a call; never goes back within one call."""

    rows_done: int
    rows_total: int


Callback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class JobSpan:
    """The part of a call that one Spark job does: its rows, of all rows, and the tasks it will have at the least."""

    first: int
    last: int
    total: int
    tasks: int


class Together:
    """The progress of several Spark jobs that run at once, told as that of one call."""

    def __init__(self, progress: Callback, rows_total: int) -> None:
        self._progress = progress
        self._rows_total = rows_total
        self._done: list[int] = []
        self._telling = threading.Lock()

    def part(self) -> Callback:
        """What one of the jobs tells; its rows count from 0."""
        with self._telling:
            place = len(self._done)
            self._done.append(0)

        def tell(progress: Progress) -> None:
            with self._telling:
                self._done[place] = progress.rows_done
                self._progress(Progress(min(sum(self._done), self._rows_total), self._rows_total))

        return tell


@contextlib.contextmanager
def watched(session: SparkSession, progress: Callback | None, span: JobSpan) -> Iterator[None]:
    """Tell ``progress`` how far the Spark job inside the block is."""
    if progress is None:
        yield
        return
    progress(Progress(span.first, span.total))
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
            _ungroup(session)
    # Told after the watcher has ended, so that it is the last.
    progress(Progress(span.last, span.total))


def _tracker(session: SparkSession, group: str) -> Any:
    try:
        context = session.sparkContext
        context.setJobGroup(group, "lakebed")
        return context.statusTracker()
    except Exception:  # noqa: BLE001 - Spark Connect refuses, each version in its own way; there is no progress then
        return None


def _ungroup(session: SparkSession) -> None:
    context = session.sparkContext
    for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
        context.setLocalProperty(name, None)  # type: ignore[arg-type]


def _watch(tracker: Any, group: str, ended: threading.Event, progress: Callback, span: JobSpan) -> None:
    best = span.first
    while not ended.wait(POLL_S):
        rows = span.first + int(_share(tracker, group, span.tasks) * (span.last - span.first))
        if rows > best:
            best = rows
            progress(Progress(rows, span.total))


def _share(tracker: Any, group: str, tasks_min: int) -> float:
    """The share of the group's tasks that have finished. Spark plans its stages as it goes, so not all are known."""
    done = tasks = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found else ():
            known = tracker.getStageInfo(stage)
            if known is not None:
                done += known.numCompletedTasks
                tasks += known.numTasks
    return done / max(tasks, tasks_min)
