"""Ingest jobs: sort the files of open requests into data files, and commit them.

A job is not recorded while it runs. The entry that adds its files also closes its requests, and an add is refused if
one of its requests is no longer open. So any process may run a job, repeatedly, and may be killed at any point: before
that entry nothing has changed, and after it the requests are closed. If two processes ingest at once, both may do the
same work; the second commit is refused, and the requests of its job that are still open are tried again.

A request fails without effect on others:

* Its file is gone or has changed. The request is rejected before anything is read.
* Its job fails because of the content of a file. The job is divided until the file at fault is alone. The request
  counts one failure more, and is rejected at the last of the setting ``ingest_tries_max``.
* A store does not respond, a disk is full, or a package is missing where tasks run. No failure is counted, and the
  request stays open.

In a table with a merge mode, the rows of a job are merged in the order of their input: by submission of the requests,
then by the files of each request. Jobs are committed in the order of their requests, except for those that failed and
are tried again.

Rows of a request inside a fence that was set after its submission are not added: the task leaves them out. A fence that
is set while the task runs refuses the add.

Core types: :class:`IngestReport`.

Errors: those of the log. Errors not caused by a file are in the report.

Source: docs/decisions/0020.

*The task of an ingest job: reads the files of requests, sorts their rows and stores them as new files.*

Any process can run one, with only the task and the store. In a table with a merge mode, the rows are merged in the
order of the parts, and of the rows in each.

Core types: :class:`IngestTask`, :class:`IngestTarget`, :class:`Ingested`.

Errors: those of the files, which name the file at fault; Error if rows are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lakebed import clock
from lakebed.errors import Code, ContentionError, Error, StorageError, UsageError
from lakebed.files.parquet.layout import Layout
from lakebed.files.parquet.sizes import pages_bytes_max
from lakebed.log.outcomes import NotCommitted, refusal, version_of
from lakebed.model.files import NewFile
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.keys import EncodedRange, inside
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.reports import WorkReport, files_text
from lakebed.model.settings import Settings
from lakebed.model.state.table_state import IngestRequest, Source
from lakebed.model.state.transactions import FailRequest, ProposeFiles, RejectRequest, TooManyRuns
from lakebed.model.wording import count_text, size_text
from lakebed.table.filter_choice import age_off
from lakebed.write import batches as runner
from lakebed.write.conformer import Conformer
from lakebed.write.growth import Growth
from lakebed.write.plan import IngestJob, IngestPlan, Method, divided, job_of, plan
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import check_rows, commit_files, send_run
from lakebed.write.sources import CHECK_THREADS, columns_of, read_file, why_changed

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Storage
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class JobPart:
    """A file to ingest, except for the rows with keys in the ranges ``excluded``."""

    file: Source
    excluded: tuple[EncodedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class IngestTarget:
    """The common part of all tasks of a batch. ``cuts`` are the partition boundaries, at which summaries are exact.
    With a ``growth``, each task adds fields for the columns of its own files. ``merge`` is the table's merge mode.
    """

    table_id: str
    layout: Layout
    memory_limit_bytes: int
    cuts: tuple[bytes, ...]
    value_bytes_max: int = Settings().value_bytes_max
    growth: Growth | None = None
    merge: MergeMode = KEEP_ALL


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Sort the rows of these files into new files of the job."""

    job: str
    method: Method
    parts: tuple[JobPart, ...]
    target: IngestTarget


@dataclass(frozen=True, slots=True)
class Ingested:
    """The files that a task made, and the number of their rows."""

    files: tuple[NewFile, ...]
    rows_read: int


def run_ingest_task(task: IngestTask, storage: Storage, scratch: Path) -> Ingested:
    """Read, sort and store the files of one task. Fails if a file has changed since it was found.

    Raises:
        DamagedError, SchemaMismatchError, BadKeyError: invalid content of a file; names it.
        StorageError: a file has changed or cannot be read; names it. Or ``scratch`` has no space for sorting.
    """
    from lakebed.files.sorting.sort import sort_runs

    target, growth, taken = task.target, task.target.growth, 0
    columns = (columns_of(part.file, storage) for part in task.parts)
    layout = target.layout if growth is None else growth.layout(target.layout, columns)

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        conformer = Conformer(layout.schema, value_bytes_max=target.value_bytes_max, grows=growth is not None)
        encoder = RowEncoder(conformer, target.merge)
        pages_bytes = pages_bytes_max(target.memory_limit_bytes)
        for part in task.parts:
            for batch in read_file(part.file, encoder, pages_bytes=pages_bytes, home=storage):
                rows = _outside(batch, part.excluded, layout.schema)
                taken += rows.num_rows
                yield rows

    def failed(error: BaseException) -> Error:
        if isinstance(error, OSError):
            return Code.TEMPORARY_STORAGE_FAILED(f"sorting needs room in {scratch}: {error}; free some")
        return Code.MERGE_FAILED(f"the rows cannot be sorted: {type(error).__name__}: {error_text(error)}")

    with translate_errors(failed):
        run = sort_runs(
            batches(),
            layout,
            scratch,
            memory_limit_bytes=target.memory_limit_bytes,
            cuts=target.cuts,
            mode=target.merge,
        )
    check_rows(taken, sum(file.rows for file in run), target.merge)
    return Ingested(send_run(storage, target.table_id, run, job=task.job), taken)


def _outside(batch: pa.RecordBatch, ranges: Sequence[EncodedRange], schema: Schema) -> pa.RecordBatch:
    """Return the rows whose keys are in none of the ranges."""
    for keys in ranges:
        batch = batch.filter(pc.invert(inside(schema.codec.encode_columns(batch), keys)))
    return batch


BATCH_JOBS_PER_CORE = 4
"""Jobs of a batch for each core: enough that a slow one leaves few cores idle, few enough that commits come soon."""

REFUSALS_MAX = 5
"""Maximum retries of the rest of a job after other processes carried out some of its requests."""

REASON_CHARS_MAX = 500


Execute = runner.Execute[IngestTask, Ingested]
"""Runs ingest tasks; those of one call have one target."""


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request that failed, or that was rejected."""

    request: str
    url: str
    reason: str
    rejected: bool

    @property
    def said(self) -> str:
        """The reason, with the URL."""
        return self.reason if self.reason.startswith(self.url) else f"{self.url}: {self.reason}"


@dataclass(frozen=True, slots=True)
class IngestReport(WorkReport):
    """The result of an ingest: ``requests`` were carried out by ``jobs`` commits, the last at ``version``, if any.

    ``rows`` were written of ``rows_read``; fewer if rows with equal keys were merged. ``waiting`` requests are not due
    yet, or were not carried out because of ``errors``, none of which a file caused.
    """

    table: str
    jobs: int = 0
    requests: int = 0
    source_bytes: int = 0
    rows_read: int = 0
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    version: int | None = None
    failed: tuple[FailedRequest, ...] = ()
    waiting: int = 0
    errors: tuple[Error, ...] = ()

    @property
    def crowded_out(self) -> bool:
        """Whether jobs were refused because a partition has too many runs."""
        return any(isinstance(error, ContentionError) for error in self.errors)

    def followed_by(self, later: IngestReport) -> IngestReport:
        """Return the sum of this ingest and a later one, which retried the rest."""
        sums = {
            name: getattr(self, name) + getattr(later, name)
            for name in ("jobs", "requests", "source_bytes", "rows_read", "rows", "files", "size_bytes", "failed")
        }
        return replace(later, **sums, version=self.version if later.version is None else later.version)

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        said = "nothing ingested"
        if self.version is not None:
            requests = f"{count_text(self.requests, 'request')} of {size_text(self.source_bytes)}"
            files = files_text(self.rows_read, self.rows, self.files, self.size_bytes)
            said = f"{requests} ingested by {count_text(self.jobs, 'job')}: {count_text(self.rows_read, 'row')}{files}"
        if self.failed:
            said += f"; {count_text(len(self.failed), 'request')} failed: {self.failed[0].said}"
        return said

    @property
    def idle(self) -> bool:
        """Whether nothing was committed."""
        return self.version is None

    @property
    def error(self) -> Error | None:
        """The error of a store that did not answer."""
        return self.errors[0] if self.errors else None

    @property
    def failure(self) -> Error | None:
        """Such an error, or that of the first request if none was ingested."""
        if self.error is None and self.failed and self.version is None:
            return Code.REQUEST_FAILED(self.failed[0].said, source=self.failed[0].url)
        return self.error

    @property
    def done(self) -> tuple[int, int]:
        """The rows that were read, and the bytes of their sources."""
        return self.rows_read, self.source_bytes


@dataclass(slots=True)
class _IngestProgress:
    """The progress so far."""

    done: list[IngestJob] = field(default_factory=list)
    files: list[NewFile] = field(default_factory=list)
    rows_read: int = 0
    version: int | None = None
    failed: list[FailedRequest] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Try:
    """A job, and the number of times that other processes carried out some of its requests first."""

    job: IngestJob
    refusals: int = 0
    task_count: int = 1


@dataclass(frozen=True, slots=True)
class _Ready:
    """A job whose files exist, and its task. ``base_version`` is that of the state for which it was made."""

    tried: _Try
    tasks: tuple[IngestTask]
    base_version: int


def prepare(table: Table, *, force: bool = False, method: Method | None = None) -> IngestPlan:
    """Plan the ingest. ``force`` includes all open requests, due or not; ``method`` overrides that by size."""
    requests = list(table.state().open_requests.values())
    if not requests:
        return IngestPlan((), ())
    oldest_s = 0.0
    if not force:
        first = table.log.last_modified_or_epoch(min(request.submitted for request in requests))
        oldest_s = (table.log.now() - first).total_seconds()
    ordered = table.log.head.state.merge.order_matters
    return plan(requests, table.settings_in_force(), oldest_s, force=force, method=method, ordered=ordered)


def ingest(table: Table, planned: IngestPlan, execute: Execute, *, cores: int) -> IngestReport:
    """Carry out a plan. ``cores`` is the number of tasks that ``execute`` runs at once.

    Raises:
        ContentionError, UnknownOutcomeError, StorageError: the log. Committed jobs stay committed, the rest stays open,
            and no request is carried out twice.
    """
    if planned.jobs:
        age_off(table)
    progress = _IngestProgress()

    def on_done(ready: _Ready, results: Sequence[Ingested | Error]) -> list[_Try]:
        (result,) = results
        if isinstance(result, Error):
            return _failed(table, ready.tried, result, progress)
        return _commit(table, ready, result, progress)

    def run_tasks(tasks: Sequence[IngestTask]) -> Sequence[Ingested | Error]:
        try:
            return execute(tasks)
        except Error as error:
            # On Spark, a task whose worker dies makes its whole batch fail.
            if len(tasks) == 1 or _is_no_files_fault(error):
                return [error] * len(tasks)
            return [run_tasks([task])[0] for task in tasks]

    runner.run(
        [_Try(job) for job in planned.jobs],
        lambda tries: _open_batch(table, tries, progress),
        run_tasks,
        on_done,
        runner.BatchLimits(BATCH_JOBS_PER_CORE * cores),
    )
    return IngestReport(
        table=table.name,
        jobs=len(progress.done),
        requests=sum(len(job.requests) for job in progress.done),
        source_bytes=sum(request.size_bytes for job in progress.done for request in job.requests),
        rows_read=progress.rows_read,
        rows=sum(new.file.rows for new in progress.files),
        files=len(progress.files),
        size_bytes=sum(new.file.size_bytes for new in progress.files),
        version=progress.version,
        failed=tuple(progress.failed),
        waiting=len(table.log.head.state.open_requests),
        errors=tuple(progress.errors),
    )


# -- within -----------------------------------------------------------------------------------------------------


def _open_batch(table: Table, tries: Sequence[_Try], progress: _IngestProgress) -> list[_Ready]:
    """Return the jobs with only those of their requests whose files have not changed."""
    state = table.state()
    good = _reject_missing(table, state, [request for one in tries for request in one.job.requests], progress)
    settings = table.settings_in_force()
    limits = settings.memory_limit_bytes, state.partitions.boundaries, settings.value_bytes_max
    target = IngestTarget(table.id, table.layout(), *limits, Growth.of(state, settings), state.merge)
    ready = []
    for tried in tries:
        requests = [request for request in tried.job.requests if request.id in good]
        if requests:
            job = job_of(requests, tried.job.method)
            ready.append(_Ready(_Try(job, tried.refusals), (_task(job, state, target),), state.version))
    return ready


def _reject_missing(
    table: Table, state: TableState, requests: Sequence[IngestRequest], progress: _IngestProgress
) -> set[str]:
    """Return the ids of the requests that are open and whose files have not changed; reject the others."""
    open_requests = [request for request in requests if request.id in state.open_requests]
    files = [(request, file) for request in open_requests for file in request.files]

    with ThreadPoolExecutor(CHECK_THREADS) as pool:
        reasons = list(pool.map(lambda file: _change_of_source(file, table.storage), [file for _, file in files]))
    good = {request.id for request in open_requests}
    for (request, file), reason in zip(files, reasons, strict=True):
        if reason is None or request.id not in good:
            continue
        good.remove(request.id)
        if isinstance(reason, Error):
            progress.errors.append(reason)
        else:
            _reject(table, request, file.url, reason, progress)
    return good


def _change_of_source(file: Source, home: Storage) -> str | Error | None:
    """Return how the file differs from that at submission; an error if the store fails (the request stays open)."""
    try:
        return why_changed(file, home)
    except Error as error:
        return error


def _task(job: IngestJob, state: TableState, target: IngestTarget) -> IngestTask:
    parts = []
    for request in job.requests:
        excluded = tuple(fence.keys for fence in state.fences if request.base_version < fence.version)
        parts += [JobPart(file, excluded) for file in request.files]
    # A shuffle counts the rows of whole files.
    method = Method.SORT if any(part.excluded for part in parts) else job.method
    return IngestTask(clock.new_id(), method, tuple(parts), target)


def _commit(table: Table, ready: _Ready, ingested: Ingested, progress: _IngestProgress) -> list[_Try]:
    tried = ready.tried
    outcome = commit_files(table, ProposeFiles(ingested.files, None, ready.base_version, tried.job.ids))
    if isinstance(outcome, NotCommitted):
        # The refusal is final. Other processes may have carried out all or some of its requests.
        requests = [request for request in tried.job.requests if request.id in table.state().open_requests]
        if requests and tried.refusals < REFUSALS_MAX:
            return [_Try(job_of(requests, tried.job.method), tried.refusals + 1)]
        if requests:
            progress.errors.append(outcome.error(f"table {table.name}"))
        return []
    if isinstance(outcome, TooManyRuns):
        # The requests stay open; the next maintenance compacts the partition.
        progress.errors.append(refusal(outcome, f"ingest into {table.name}"))
        return []
    progress.version = version_of(outcome, f"ingest into {table.name}")
    progress.done.append(tried.job)
    progress.files += ingested.files
    progress.rows_read += ingested.rows_read
    return []


def _failed(table: Table, tried: _Try, error: Error, progress: _IngestProgress) -> list[_Try]:
    """Divide a job that failed, count the failure, or leave the request open; return the jobs to retry."""
    url = error.facts.get("name") or error.facts.get("source")
    named = any(file.url == url for request in tried.job.requests for file in request.files)
    if len(tried.job.requests) > 1 and (named or not _is_no_files_fault(error)):
        return [_Try(job, tried.refusals) for job in divided(tried.job, url if named else None)]
    if isinstance(error, StorageError) or (_is_no_files_fault(error) and not named):
        # If the file has changed meanwhile, the check before the next attempt reports it.
        if named and any(
            isinstance(_change_of_source(file, table.storage), str) for file in tried.job.requests[0].files
        ):
            return [tried]
        progress.errors.append(error)
        return []
    (request,) = tried.job.requests
    reason = error.message[:REASON_CHARS_MAX]
    table.try_commit(FailRequest(request.id, reason))
    failed = table.state().open_requests.get(request.id)
    if failed is not None and failed.failures >= table.settings_in_force().ingest_tries_max:
        _reject(table, request, request.files[0].url, reason, progress)
    else:
        progress.failed.append(FailedRequest(request.id, request.files[0].url, reason, rejected=False))
    return []


def _is_no_files_fault(error: Error) -> bool:
    """Return whether an error that names no file is not due to one. Errors of rows are subclasses of UsageError."""
    return isinstance(error, StorageError) or type(error) is UsageError


def _reject(table: Table, request: IngestRequest, url: str, reason: str, progress: _IngestProgress) -> None:
    # A refusal means that another process rejected or ingested it meanwhile.
    outcome = table.try_commit(RejectRequest(request.id, reason[:REASON_CHARS_MAX]))
    if not isinstance(outcome, NotCommitted):
        version_of(outcome, f"table {table.name}")
        progress.failed.append(FailedRequest(request.id, url, reason, rejected=True))
