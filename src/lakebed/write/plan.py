"""The batcher: plans which open requests are ingested now, and their jobs. Pure: no I/O.

Requests wait until they are worth a data file: until all open requests together have enough bytes and files, or the
oldest is old enough. Then all are ingested, because the last ones would otherwise wait alone: oldest first, each in the
first job that has room for it. A request that is larger than a job may be is a job of its own. So is one that failed
before, which must not cost other requests their work a second time.

A job of few bytes is one task, which sorts its files into data files; a larger one is worth a shuffle.

Core types: :class:`IngestPlan`, :class:`IngestJob`, :class:`Method`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.model.checks import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import IngestRequest

SORT_BYTES_MAX = 128 * 1024 * 1024
"""Source bytes that one task sorts: about ten seconds of one core, which is what a shuffle costs beside sorting."""

JOB_FILES_MAX = 100
"""Files of a job of several requests: if the job fails, all of them are read again."""

OPEN_JOBS_MAX = 16
"""The last jobs with room that are considered for a request: considering all would take quadratic time."""


class Method(StrEnum):
    """How a job's rows are sorted."""

    SORT = "sort"
    """By one task, into as few files as their size allows."""

    SHUFFLE = "shuffle"
    """By many tasks, as in a bulk import."""


def method_of(name: object) -> Method:
    """Return the method of that name. Raises UsageError if there is none."""
    found = next((method for method in Method if isinstance(name, str) and method == name), None)
    if found is None:
        raise Code.ARGUMENT_INVALID(f"unknown method {shown(name)}; methods: {', '.join(Method)}")
    return found


@dataclass(frozen=True, slots=True)
class IngestJob:
    """Requests to be carried out by one commit."""

    requests: tuple[IngestRequest, ...]
    method: Method

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the requests."""
        return tuple(request.id for request in self.requests)


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """The jobs to run now, and the requests that wait."""

    jobs: tuple[IngestJob, ...]
    waiting: tuple[IngestRequest, ...]


@dataclass(slots=True)
class _Filling:
    """A job that has room for more requests."""

    requests: list[IngestRequest]
    size_bytes: int
    files: int


def due(requests: Iterable[IngestRequest], settings: Settings) -> bool:
    """Return whether the requests have enough bytes and files, independent of their age."""
    waiting = list(requests)
    size_bytes = sum(request.size_bytes for request in waiting)
    return bool(waiting) and size_bytes >= settings.ingest_bytes_min


def plan(  # noqa: PLR0913 - what there is, the limits, and what the caller asks for
    requests: Iterable[IngestRequest],
    settings: Settings,
    oldest_s: float,
    *,
    force: bool = False,
    method: Method | None = None,
    ordered: bool = False,
) -> IngestPlan:
    """Return the plan for the open requests, the oldest of which is ``oldest_s`` old; ``force`` ingests all of them.

    If the order of rows matters (``ordered``), each job has requests that were submitted one after another.
    """
    waiting = sorted(requests, key=lambda request: (request.submitted, request.files[0].url, request.id))
    if not (force or oldest_s >= settings.ingest_age_s or due(waiting, settings)):
        return IngestPlan((), tuple(waiting))
    batches = _batches(waiting, settings, 1 if ordered else OPEN_JOBS_MAX)
    return IngestPlan(tuple(job_of(batch, method) for batch in batches), ())


def job_of(requests: Iterable[IngestRequest], method: Method | None = None) -> IngestJob:
    """Return the job of these requests; without a ``method`` it is chosen by their size."""
    batch = tuple(requests)
    size_bytes = sum(request.size_bytes for request in batch)
    return IngestJob(batch, method or (Method.SORT if size_bytes <= SORT_BYTES_MAX else Method.SHUFFLE))


def divided(job: IngestJob, url: str | None) -> tuple[IngestJob, IngestJob]:
    """Divide a job that failed: the requests without and with the file at fault, or halves if no file is named.

    Requires at least two requests.
    """
    named = [request for request in job.requests if any(file.url == url for file in request.files)]
    if len(named) == 1:
        others = [request for request in job.requests if request is not named[0]]
        return job_of(others), job_of(named)
    half = len(job.requests) // 2
    return job_of(job.requests[:half]), job_of(job.requests[half:])


def _batches(waiting: Iterable[IngestRequest], settings: Settings, open_jobs_max: int) -> list[list[IngestRequest]]:
    batches: list[list[IngestRequest]] = []
    filling: list[_Filling] = []
    for request in waiting:
        size_bytes, files = request.size_bytes, len(request.files)
        fits = (
            held
            for held in filling
            if held.size_bytes + size_bytes <= settings.ingest_bytes_max and held.files + files <= JOB_FILES_MAX
        )
        into = None if request.failures else next(fits, None)
        if into is not None:
            into.requests.append(request)
            into.size_bytes += size_bytes
            into.files += files
            continue
        batches.append([request])
        if not request.failures:
            filling = [*filling, _Filling(batches[-1], size_bytes, files)][-open_jobs_max:]
        elif open_jobs_max == 1:
            filling = []
    return batches
