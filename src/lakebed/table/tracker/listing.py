"""Lists the runs of jobs from the records of all processes, and the open jobs of a table from its log.

A run that is recorded as running is *lost* if its process is known to have ended, or has recorded nothing for
:data:`LOST_S`; the log then shows what it committed. An open job in a table's log without a matching recorded run was
opened by a process whose records were lost or could not be written.

Core types: :class:`RunFilter`, :class:`RunDetails`. Errors: those of :mod:`lakebed.table.tracker.runs`;
NotFoundError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import structs

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.model.operations import kind_of_job
from lakebed.storage.processes import is_gone
from lakebed.table.tracker.runs import JobRun, RunOutcome, RunPlace, TaskRun, read_newest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebed.model.state.table_state import Job
    from lakebed.storage.contract import Storage

LOST_S = 300.0
"""A process that records nothing for this long is assumed to have ended: a live one records every 30 seconds."""

SHORT_ID_CHARS = 8
"""The last characters of an id are random, and identify a run among many thousands."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """A filter of runs; None: all. ``tables`` are ids; work on a whole instance has the id ""."""

    tables: frozenset[str] | None = None
    operation: str | None = None
    outcomes: frozenset[RunOutcome] | None = None

    def wants(self, run: JobRun) -> bool:
        """Return whether a run matches."""
        return (
            (self.tables is None or run.table_id in self.tables)
            and (self.operation is None or run.operation == self.operation)
            and (self.outcomes is None or run.outcome in self.outcomes)
        )


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run, and its tasks by their numbers."""

    run: JobRun
    tasks: tuple[TaskRun, ...]


ALL_RUNS = RunFilter()


def job_runs(storage: Storage, wanted: RunFilter = ALL_RUNS, limit: int | None = None) -> list[JobRun]:
    """Return the runs, last created first; with a limit, those that were recorded last."""
    found = islice((run for run in _newest_first(storage) if wanted.wants(run)), limit)
    return sorted(found, key=lambda run: (run.created, run.id), reverse=True)


def run_details(storage: Storage, run_id: str) -> RunDetails:
    """Return the run with this id, or with these last characters of its id. Raises UsageError, NotFoundError."""
    if len(run_id) < SHORT_ID_CHARS:
        raise Code.ARGUMENT_INVALID(
            f"not the id of a job run: {shown(run_id)}; give all of it or its last {SHORT_ID_CHARS} characters"
        )
    run: JobRun | None = None
    tasks: dict[tuple[int, int], TaskRun] = {}
    for records in read_newest_first(storage):
        if run is None:
            matching = (one for one in records.runs if one.id.endswith(run_id))
            run = next((_judged(one, records.stored) for one in matching), None)
        if run is not None:
            for task in records.tasks:
                if task.job == run.id:
                    tasks.setdefault((task.number, task.attempt), task)
            # The record of its beginning is the oldest.
            if records.stored < run.created - timedelta(seconds=LOST_S):
                break
    if run is None:
        raise Code.JOB_NOT_FOUND(
            f"no job run {shown(run_id)} is on record: records are kept for jobs_kept_s; `lakebed jobs` lists them",
            job=run_id,
        )
    return RunDetails(run, tuple(tasks[key] for key in sorted(tasks)))


def open_in_log(
    jobs: Mapping[str, Job], opened_at: Callable[[int], datetime], table: tuple[str, str], runs: Iterable[JobRun]
) -> list[JobRun]:
    """Return the open jobs of a table's log without a matching run that is recorded as running.

    ``opened_at`` returns the time of an entry; ``table`` is id and name.
    """
    known = {run.where.process for run in runs if run.running}
    found = []
    for job in jobs.values():
        if job.owner and job.owner in known:
            continue
        began = opened_at(job.opened)
        late = (clock.now() - began).total_seconds() >= job.deadline_s
        found.append(
            JobRun(
                id=job.id,
                operation=kind_of_job(job.id),
                table=table[1],
                table_id=table[0],
                where=RunPlace(process=job.owner, executor=""),
                created=began,
                started=began,
                updated=began,
                outcome=RunOutcome.LOST if late or is_gone(job.owner) else RunOutcome.RUNNING,
                base_version=job.opened,
                detail=f"open in the log since version {job.opened}, over {len(job.inputs)} files",
            )
        )
    return found


def _newest_first(storage: Storage) -> Iterator[JobRun]:
    seen: set[str] = set()
    for records in read_newest_first(storage):
        for run in reversed(records.runs):
            if run.id not in seen:
                seen.add(run.id)
                yield _judged(run, records.stored)


def _judged(run: JobRun, stored: datetime) -> JobRun:
    """Return the run, lost if it is recorded as running and its process has ended. A dead service parks no job."""
    if run.running and (is_gone(run.where.process) or (clock.now() - stored).total_seconds() > LOST_S):
        return structs.replace(run, outcome=RunOutcome.LOST)
    if run.parked and is_gone(run.where.process):
        # The next service plans due work again.
        return structs.replace(run, parked=False)
    return run


# -- calls that failed ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call at ``time``, by the clock of its process; ``version`` is that of the table when it began.

    ``call`` is the operation, ``job`` the job id if one was passed, ``error`` the kind of the error.
    """

    time: datetime
    version: int
    call: str
    job: str | None
    error: str
    reason: str
    writer: str


FAILURES = pa.schema(
    [
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("call", pa.string(), nullable=False),
        pa.field("job", pa.string()),
        pa.field("error", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("writer", pa.string(), nullable=False),
    ]
)


def read_failures(storage: Storage, table_id: str) -> Iterator[Failure]:
    """Return the failed runs of a table, newest first."""
    for run in job_runs(storage, RunFilter(frozenset([table_id]), outcomes=frozenset([RunOutcome.FAILED]))):
        error = run.error
        kind, reason = ("", "") if error is None else (error.kind, error.message)
        version = run.base_version or 0
        yield Failure(run.finished or run.updated, version, run.operation, run.key, kind, reason, run.where.writer)


def failures_table(failures: Iterable[Failure]) -> pa.Table:
    """Return the failures as an Arrow table."""
    return pa.Table.from_pylist([asdict(failure) for failure in failures], schema=FAILURES)
