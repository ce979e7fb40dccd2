"""Reports the progress of a running Spark job, from Spark's own tracker.

Core types: :class:`Progress`, :class:`CallProgress`, :class:`JobSpan`, :class:`CombinedProgress`.

Rules. The unit is tasks: the share of rows that is reported as done is the share of tasks that have finished. A session
of Spark Connect has no tracker in this process; only the beginning and the end are reported. Nothing depends on
progress.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.drawing.progress_bar import ProgressBar, is_interactive
from lakebed.errors import Code
from lakebed.model.checks import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.25

_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call in its ``phase``: rows done of all rows (0 if unknown), and tasks done of all known tasks.
    ``rows_done`` never decreases within a phase.
    """

    rows_done: int
    rows_total: int
    phase: str = ""
    tasks_done: int = 0
    tasks_total: int = 0

    def show(self, bar: ProgressBar) -> None:
        """Show it on a progress bar."""
        tasks = (self.tasks_done, self.tasks_total)
        bar.update(self.rows_done, self.rows_total or None, phase=self.phase, tasks=tasks)


Callback = Callable[[Progress], None]


def in_phase(progress: Callback | None, phase: str) -> Callback | None:
    """Return the callback, with the name of the phase added to its argument."""
    return None if progress is None else lambda made: progress(replace(made, phase=made.phase or phase))


class CallProgress:
    """Reports the progress of calls to a callback, or with AUTO to a bar if the output is interactive."""

    AUTO = "auto"

    def __init__(self, given: Callback | str | None) -> None:
        if given is not None and given != self.AUTO and not callable(given):
            raise Code.ARGUMENT_INVALID(f"progress = {shown(given)}: must be a function, None, or 'auto'")
        self._given = given
        self.callback: Callback | None = given if callable(given) else None

    @contextlib.contextmanager
    def shown(self, what: str) -> Iterator[None]:
        """Show the progress of the call in the block, of which ``what`` is the name."""
        if self._given != self.AUTO or not is_interactive():
            yield
            return
        with ProgressBar(what) as bar:
            self.callback = lambda made: made.show(bar)
            try:
                yield
            finally:
                self.callback = None


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
        """Return the callback of one of the jobs, whose rows count from 0."""
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
