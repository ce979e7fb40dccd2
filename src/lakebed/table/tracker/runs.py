"""Runs of jobs and of their tasks, as values.

A job run is one piece of work that a user or a service started: an import, the compaction of a table, a submitted
query. It has tasks if its work is divided among worker processes or Spark. Only the table's log has the changes of a
run: a record that is lost, or could not be written, loses no row.

Core types: :class:`JobRun`, :class:`TaskRun`. Pure: no I/O.

Source: docs/jobs.md.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, structs


class RunOutcome(StrEnum):
    """The outcome of a run, or that it has not ended. The values are stored, except LOST, which readers derive."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The process that ran it has ended, or has recorded nothing for longer than a live process does."""


IN_PROCESS = "in-process"
WORKERS = "workers"
"""Executors other than Spark, whose name is its application's id: the process itself, and its worker processes."""


class RunError(Struct, frozen=True):
    """The reason of a failure: ``code`` is a :class:`~lakebed.errors.Code`, ``kind`` the kind of the error's class, or
    the name of the class if it is not one of Lakebed's.
    """

    kind: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class RunPlace(Struct, frozen=True, omit_defaults=True):
    """Where a run is executed. ``process`` is the owner text of :mod:`lakebed.storage.processes`."""

    host: str = ""
    process: str = ""
    executor: str = IN_PROCESS
    writer: str = ""


class JobRun(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One run of a job, as recorded at ``updated``. All times are by its own process's clock.

    ``table`` is the name that the table had, ``table_id`` its id; both are empty for work on a whole instance.
    ``base_version`` is that of the table when the run began, ``version`` that of its last commit. ``rows_total`` and
    ``bytes_total`` are 0 if they are unknown. ``retries`` counts attempts of tasks beyond the first, ``tries`` the
    failed runs of the same work in a row, including this one. A ``parked`` job is not retried until it is requested
    (``lakebed jobs retry``). ``key`` is the job id or commit id that the caller passed.
    """

    id: str
    operation: str
    table: str = ""
    table_id: str = ""
    where: RunPlace = RunPlace()
    created: datetime
    started: datetime | None = None
    updated: datetime
    finished: datetime | None = None
    outcome: RunOutcome = RunOutcome.RUNNING
    rows_done: int = 0
    rows_total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    retries: int = 0
    base_version: int | None = None
    version: int | None = None
    key: str | None = None
    detail: str = ""
    error: RunError | None = None
    tries: int = 0
    parked: bool = False

    @property
    def why(self) -> str:
        """The error of a failed run, or a short description of the result."""
        return self.detail if self.error is None else str(self.error)

    @property
    def running(self) -> bool:
        """Whether the run was under way when it was recorded."""
        return self.outcome is RunOutcome.RUNNING

    @property
    def seconds(self) -> float | None:
        """The duration in seconds, up to the record if it is running; None if it has not started."""
        return None if self.started is None else ((self.finished or self.updated) - self.started).total_seconds()


class TaskRun(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One task of a job run. ``attempt`` counts from 1; the attempts before it failed without a result."""

    job: str
    number: int
    attempt: int = 1
    host: str = ""
    started: datetime | None = None
    finished: datetime | None = None
    rows: int = 0
    error: RunError | None = None

    @property
    def seconds(self) -> float | None:
        """The duration in seconds; None if it is unknown."""
        return None if self.started is None or self.finished is None else (self.finished - self.started).total_seconds()


class Begun(Struct, frozen=True, kw_only=True):
    """The facts of a run at its beginning. ``id`` is a new one, unless the work has one already."""

    operation: str
    table: str = ""
    table_id: str = ""
    executor: str = IN_PROCESS
    id: str | None = None
    created: datetime | None = None
    rows_total: int = 0
    bytes_total: int = 0
    tasks: int = 0
    base_version: int | None = None
    key: str | None = None
    detail: str = ""
    tries: int = 0


def run_document(run: JobRun) -> dict[str, Any]:
    """Return a run as a document of plain values, including fields with default values."""
    values = {name: getattr(run, name) for name in run.__struct_fields__}
    error = None if run.error is None else structs.asdict(run.error)
    outcome = run.outcome.value
    return values | {"where": structs.asdict(run.where), "outcome": outcome, "error": error, "seconds": run.seconds}


def task_document(task: TaskRun) -> dict[str, Any]:
    """Return a task as a document of plain values."""
    values = {name: getattr(task, name) for name in task.__struct_fields__}
    return values | {"error": None if task.error is None else structs.asdict(task.error), "seconds": task.seconds}
