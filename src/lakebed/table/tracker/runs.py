"""Runs of jobs and of their tasks, as values.

A job run is one piece of work that a user or a service started: an import, the compaction of a table, a submitted
query. It has tasks if its work is divided among worker processes or Spark. Only the table's log has the changes of a
run: a record that is lost, or could not be written, loses no row.

Core types: :class:`JobRun`, :class:`TaskRun`. Pure: no I/O.

Source: docs/jobs.md.

*Records of job runs as objects: one object has many runs, is written once, and is never changed.*

A process writes the runs that have changed since its last object, each whole: the newest record of a run is complete.
Tasks are written once, when they have ended. Objects are in one folder per day and their names begin with the time, so
that a reader finds the newest by one listing. They belong to the instance, not to a table: one object has the runs of
all tables of a process.

Errors: StorageError; DamagedError for an object that was altered. Nothing depends on the objects: a damaged one may be
deleted. Source: docs/format.md.

*Requests to retry parked jobs, as objects that every service of an instance finds.*

``lakebed jobs retry ID`` puts one. A service lists them at the beginning of a round, retries the jobs that it parked
under these ids, and deletes the requests. A request for a job that another service parked is left to that service. If
that service has ended, the request has no effect, since other services plan due work again, and is deleted with old
records of jobs (:func:`trim_records`).

Errors: StorageError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.model.documents import decode_document, encode_document, reading
from lakebed.model.files import RETRY_FOLDER, is_runs_name, retry_name, run_of_retry, runs_folder, runs_name
from lakebed.model.version import this_writer
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import create_until_clear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.storage.contract import Listed, Storage


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


FETCHES = 8
"""Objects that a reader fetches at once."""

REQUEST_S = 3_600.0
"""A service takes a request to retry its parked jobs within seconds. An older request is for a service that has
ended."""

_DAY = "%Y%m%d"


class _Line(Struct, frozen=True, omit_defaults=True):
    """One line after the header: a run, or a task."""

    run: JobRun | None = None
    task: TaskRun | None = None


class RunRecords(Struct, frozen=True):
    """The contents of one object; ``stored`` is its last-modified time, by the store's clock."""

    runs: tuple[JobRun, ...]
    tasks: tuple[TaskRun, ...]
    stored: datetime


_DECODER = msgspec.json.Decoder(_Line)


def write_records(storage: Storage, source: str, runs: Sequence[JobRun], tasks: Sequence[TaskRun]) -> None:
    """Put one object with the current state of these runs and these tasks. Raises StorageError.

    ``source`` names the writer, and ascends with each object: it orders objects of the same millisecond.
    """
    lines = [_Line(run=run) for run in runs] + [_Line(task=task) for task in tasks]
    body = b"".join([msgspec.json.encode(line) + b"\n" for line in lines])
    data = encode_document({"writer": this_writer(), "count": len(lines)}, body)
    now = clock.now()
    name = runs_name(now.strftime(_DAY), f"{int(now.timestamp() * 1000):012x}-{source}")
    # One request, whatever its outcome: two objects may have the same records, and a process that ends need not wait.
    if (outcome := storage.create(name, data)) is not PutOutcome.CREATED:
        raise Code.STORE_UNAVAILABLE(f"records of job runs may not have been written: {name} is {outcome.value}")


def read_newest_first(storage: Storage) -> Iterator[RunRecords]:
    """Return the records of all objects, newest object first. Several are fetched ahead.

    Lists the objects of today first, and those of all days only if more are needed.
    """
    seen: set[str] = set()
    today = clock.now()
    # Includes the day of a process whose clock is ahead, and of one that wrote just before midnight.
    days = [(today + timedelta(days=days)).strftime(_DAY) for days in (1, 0)]
    for folders in ([runs_folder(day) for day in days], [runs_folder()]):
        found = [listed for folder in folders for listed in storage.list(folder) if is_runs_name(listed.name)]
        fresh = sorted((one for one in found if one.name not in seen), key=lambda one: one.name, reverse=True)
        seen |= {listed.name for listed in fresh}
        yield from _read_records(storage, fresh)


def trim_records(storage: Storage, kept_s: float) -> int:
    """Delete the objects older than ``kept_s`` by the store's clock, and retry requests that no service took.

    Returns the number of objects.
    """
    ages = [(one, kept_s) for one in storage.list(runs_folder()) if is_runs_name(one.name)]
    ages += [(one, REQUEST_S) for one in storage.list(RETRY_FOLDER) if run_of_retry(one.name) is not None]
    if not ages:
        return 0
    now = storage.now()
    doomed = [one.name for one, age_s in ages if now - one.last_modified > timedelta(seconds=min(age_s, kept_s))]
    storage.delete(doomed)
    return len(doomed)


def _read_records(storage: Storage, listed: Sequence[Listed]) -> Iterator[RunRecords]:
    with ThreadPoolExecutor(FETCHES) as pool:
        for start in range(0, len(listed), FETCHES):
            some = listed[start : start + FETCHES]
            # Without data, the object was deleted since the listing.
            for one, data in zip(some, pool.map(lambda one: storage.get(one.name), some), strict=True):
                if data is not None:
                    yield _decoded(storage, one, data)


def _decoded(storage: Storage, listed: Listed, data: bytes) -> RunRecords:
    url = storage.object_url(listed.name)
    with reading(f"{url} has no records of job runs; delete it, nothing depends on it", name=listed.name):
        header = decode_document(data, url, "delete it, nothing depends on it")
        found = [_DECODER.decode(line) for line in data.splitlines()[1:]]
        if len(found) != header["count"]:
            raise ValueError(f"{len(found)} records, not {header['count']}")
    runs = tuple(line.run for line in found if line.run is not None)
    return RunRecords(runs, tuple(line.task for line in found if line.task is not None), listed.last_modified)


def request_retry(storage: Storage, run: str) -> bool:
    """Request a retry of a parked job; False if it was requested already. Raises UsageError for an invalid id."""
    if run_of_retry(retry_name(run)) is None:
        raise Code.ARGUMENT_INVALID(f"not the id of a job run: {shown(run)}; `lakebed jobs` lists them")
    data = encode_document({"run": run, "time": clock.now().isoformat(), "writer": this_writer()})
    return create_until_clear(storage, retry_name(run), data) is PutOutcome.CREATED


def requested_retries(storage: Storage) -> frozenset[str]:
    """Return the ids of the runs to retry; one request."""
    found = (run_of_retry(listed.name) for listed in storage.list(RETRY_FOLDER))
    return frozenset(run for run in found if run is not None)


def settle_retries(storage: Storage, runs: Iterable[str]) -> None:
    """Delete the requests for these runs: they were retried, or their jobs are unknown."""
    storage.delete([retry_name(run) for run in runs])
