"""Batches of jobs: the tasks of several jobs are started together, and committed as soon as the batch is done.

Several batches run at once, each in a thread of its own, so that the last task of one leaves no core idle, and the
results of thousands of jobs are committed as they arrive. Jobs of a batch are opened and committed from several threads
at once; their transactions share log entries (:mod:`lakebed.log.queue`).

Before each batch, the caller is asked again whether compaction has to wait. After an interrupt no batch is started, and
those under way are waited for; whoever runs the tasks may end them, and each batch closes its jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.ingest.send import commit_files, discard
from lakebed.log.last_modified_times import to_us
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.maintenance.compaction.owner import this_process
from lakebed.maintenance.compaction.plan import (
    SLICE_SHARE,
    PartitionMerge,
    Skipped,
    inputs_of,
    pressing,
    share_out,
    tasks_of,
    why_wait,
)
from lakebed.model.files import DataFile, NewFile
from lakebed.model.keys import EncodedRange
from lakebed.parquet.layout import Layout
from lakebed.read.summaries import load_summaries
from lakebed.state.transactions import CloseJob, Job, OpenJob, ProposeOutput

if TYPE_CHECKING:
    from lakebed.table.table import Table

BATCH_TASKS_PER_CORE = 2
"""Tasks handed over at once, a core: enough that handing over costs little beside them, few enough that commits come
soon."""

BATCH_TASKS_MIN = 16

BATCHES_AT_ONCE = 3
"""One at work, one that takes the cores that the first partitions idle, one that opens its jobs or commits."""

THREADS = 32
"""Transactions that a batch of jobs proposals at once."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merge the rows that ``inputs`` have inside ``slices`` into new files of the job's run.

    The slices are neighbours in key order, each as much as a merge plan should read at once. ``rows`` is about how many
    rows there are.
    """

    job: str
    table_id: str
    slices: tuple[EncodedRange, ...]
    inputs: tuple[DataFile, ...]
    layout: Layout
    memory_limit_bytes: int
    rows: int

    @property
    def keys(self) -> EncodedRange:
        """The keys of all slices."""
        return EncodedRange(self.slices[0].min, self.slices[-1].max)


TaskResult = tuple[NewFile, ...] | Error
"""What a task made, or why it could not, as a value: one bad file must not cost the other partitions their work."""

Execute = Callable[[Sequence[MergeTask]], Sequence[TaskResult]]
"""Runs tasks, in any order, anywhere; one result for each, in the order of the tasks. Called by several threads."""


@dataclass(frozen=True, slots=True)
class FailedMerge:
    """A partition whose job failed and was closed."""

    partition: int
    error: Error


@dataclass(slots=True)
class MergeProgress:
    """What has been done so far; several threads add to it."""

    done: list[tuple[PartitionMerge, tuple[NewFile, ...], int]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    failed: list[FailedMerge] = field(default_factory=list)
    waits: str | None = None


@dataclass(frozen=True, slots=True)
class _Open:
    """A job under way."""

    id: str
    merge: PartitionMerge
    tasks: tuple[MergeTask, ...]


Planned = tuple[PartitionMerge, int]
"""A merge, and the number of tasks it is to be cut into."""


def run_job_batches(
    table: Table, execute: Execute, merges: Sequence[PartitionMerge], progress: MergeProgress, *, cores: int
) -> None:
    """Open, run and commit a job for each merge, in their order as far as batches of jobs go; adds to the progress.

    Raises ContentionError, UnknownOutcomeError, StorageError: the log; jobs whose outcome is certain are closed.
    """
    stopped = threading.Event()

    def run(job_batch: Sequence[Planned]) -> None:
        if stopped.is_set():
            return
        state, settings = table.log.head.state, table.settings_in_force()
        waits = why_wait(len(state.open_requests), len(table.log.waiting))
        if waits is not None and not pressing(state, settings):
            progress.waits = waits
            return
        try:
            _run_job_batch(table, execute, job_batch, progress)
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(BATCHES_AT_ONCE) as pool:
        try:
            for ended in as_completed([pool.submit(run, job_batch) for job_batch in _job_batches(merges, cores)]):
                ended.result()
        except BaseException:
            stopped.set()
            raise


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The work done on every item, on many at once, so that what they commit goes into few entries; in their order.

    Raises what the first of them raised, when all have ended.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(THREADS, len(items))) as pool:
        return list(pool.map(work, items))


def _job_batches(merges: Sequence[PartitionMerge], cores: int) -> Iterator[list[Planned]]:
    """Merges to hand over together."""
    share = -(-cores // max(1, len(merges)))
    limit = max(BATCH_TASKS_MIN, BATCH_TASKS_PER_CORE * cores)
    left = iter(merges)
    while first := next(left, None):
        job_batch = [(first, tasks_of(first, share))]
        room = limit - job_batch[0][1]
        job_batch += [(merge, tasks_of(merge, share)) for merge in islice(left, max(0, room))]
        yield job_batch


def _run_job_batch(table: Table, execute: Execute, job_batch: Sequence[Planned], progress: MergeProgress) -> None:
    # Ids of jobs that an interrupt must close: from before they are opened until their outcome is sent.
    ours: set[str] = set()
    # By the store that last-modified times the files, and of this batch of jobs: a long run must not hold the orphan
    # cutoff up.
    began_us = to_us(table.storage.now())

    def open_one(planned: Planned) -> _Open | None:
        job_id = clock.new_id()
        ours.add(job_id)
        job = _open(table, job_id, planned, began_us)
        if isinstance(job, _Open):
            return job
        ours.remove(job_id)
        progress.skipped.append(job)
        return None

    def end_one(ended: tuple[_Open, list[TaskResult]]) -> None:
        job, made = ended
        failure = _failure(job, made)
        ours.remove(job.id)
        files = tuple(new for result in made if not isinstance(result, Error) for new in result)
        if failure is not None:
            _close(table, job.id, str(failure))
            discard(table.storage, table.id, files)
            progress.failed.append(FailedMerge(job.merge.partition, failure))
        else:
            _commit(table, job, files, progress)

    try:
        opened = [job for job in in_threads(open_one, job_batch) if job is not None]
        tasks = [task for job in opened for task in job.tasks]
        results = iter(execute(tasks) if tasks else ())
        in_threads(end_one, [(job, list(islice(results, len(job.tasks)))) for job in opened])
    except BaseException:
        for job_id in ours:
            _close(table, job_id, "the compaction was interrupted")
        raise


def _open(table: Table, job_id: str, planned: Planned, began_us: int) -> _Open | Skipped:
    merge, count = planned
    settings = table.settings_in_force()
    shares: Sequence[tuple[EncodedRange, ...]] = [(merge.keys,)]
    slice_bytes = settings.memory_limit_bytes // SLICE_SHARE
    if count > 1 or merge.size_bytes > slice_bytes:
        summaries = load_summaries(table.storage, table.id, merge.inputs, table.schema)
        shares = share_out(merge, list(summaries.values()), count, slice_bytes)
    ids = tuple(file.id for file in merge.inputs)
    job = Job(job_id, merge.keys, ids, this_process(), settings.job_deadline_s, began_us)
    outcome = table.try_commit(OpenJob(job))
    if isinstance(outcome, NotCommitted):
        # Another process took the partition, or changed it, since the plan was made.
        return Skipped(merge.partition, outcome.reason)
    version_of(outcome, f"table {table.name}")
    tasks = tuple(
        MergeTask(
            job=job_id,
            table_id=table.id,
            slices=slices,
            inputs=inputs_of(merge.inputs, EncodedRange(slices[0].min, slices[-1].max)),
            layout=table.layout(),
            memory_limit_bytes=settings.memory_limit_bytes,
            rows=merge.rows // len(shares),
        )
        for slices in shares
    )
    return _Open(job_id, merge, tasks)


def _failure(job: _Open, made: Sequence[TaskResult]) -> Error | None:
    """Why the job cannot be committed; None if it can."""
    error = next((result for result in made if isinstance(result, Error)), None)
    if error is not None:
        return error
    rows = sum(new.file.rows for files in made if not isinstance(files, Error) for new in files)
    if job.merge.exact and rows != job.merge.rows:
        return Code.ROW_COUNT_MISMATCH(
            f"partition {job.merge.partition} holds {job.merge.rows} rows, and merging its files gave {rows}; "
            "nothing was changed. Verify its files",
            partition=job.merge.partition,
        )
    return None


def _commit(table: Table, job: _Open, files: tuple[NewFile, ...], progress: MergeProgress) -> None:
    outcome = commit_files(table, ProposeOutput(job.id, files))
    if isinstance(outcome, NotCommitted):
        # Refused for good; if the job is still open, as behind a fence, it would only be in the way.
        _close(table, job.id, outcome.reason)
        progress.skipped.append(Skipped(job.merge.partition, outcome.reason))
        return
    progress.done.append((job.merge, files, version_of(outcome, f"table {table.name}, job {job.id}")))


def _close(table: Table, job: str, reason: str) -> None:
    """Release a job that will not be committed. A best effort: its owner's death, or its deadline, releases it too."""
    try:
        table.try_commit(CloseJob(job, reason[:500]))
    except Error:
        return
