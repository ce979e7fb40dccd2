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


@contextlib.contextmanager
def watched(session: SparkSession, progress: Callback | None, rows: tuple[int, int], total: int) -> Iterator[None]:
    """Tell ``progress`` while the Spark job inside the block takes the rows done from ``rows[0]`` to ``rows[1]``."""
    if progress is None:
        yield
        return
    first, last = rows
    progress(Progress(first, total))
    ended = threading.Event()
    group = f"lakebed-{clock.random_token()}"
    tracker = _tracker(session, group)
    watcher = threading.Thread(target=_watch, args=(tracker, group, ended, (progress, first, last, total)), daemon=True)
    if tracker is not None:
        watcher.start()
    try:
        yield
        progress(Progress(last, total))
    finally:
        ended.set()
        if tracker is not None:
            watcher.join()
            _ungroup(session)


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


def _watch(tracker: Any, group: str, ended: threading.Event, told: tuple[Callback, int, int, int]) -> None:
    progress, first, last, total = told
    best = first
    while not ended.wait(POLL_S):
        share = _share(tracker, group)
        rows = first + int(share * (last - first))
        if rows > best:
            best = rows
            progress(Progress(rows, total))


def _share(tracker: Any, group: str) -> float:
    """The share of the group's tasks that have finished. Stages not yet planned are not known, so it may dip."""
    done = tasks = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found else ():
            known = tracker.getStageInfo(stage)
            if known is not None:
                done += known.numCompletedTasks
                tasks += known.numTasks
    return done / tasks if tasks else 0.0
