"""Compaction jobs: opens a job for each planned merge, runs its tasks, and commits or closes it.

:func:`run_merges` passes planned merges to :func:`lakebed.write.batches.run`. A job is open in the table state from
before its first task until its outcome is logged, so that two processes never merge the same runs.

Core types: :class:`MergeTask`, :class:`MergeProgress`.

Rules:

* Several batches run at once, so that no core is idle during the last task of one. The jobs of thousands of partitions
  are committed as they end.
* Before each batch, compaction stops if requests or commits have piled up.
* A job that is not committed is closed, whatever the cause. If the process dies first, a later one closes the job: at
  once if :func:`~lakebed.storage.processes.is_gone` says that its owner has ended, else after the job's deadline.

Errors: ContentionError, UnknownOutcomeError and StorageError of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.files.parquet.layout import Layout
from lakebed.files.sorting.slice_sizes import slice_bytes
from lakebed.log.last_modified_times import to_us
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model.files import DataFile, NewFile
from lakebed.model.keys import EncodedRange
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import CloseJob, OpenJob, ProposeOutput
from lakebed.model.state.visibility import kept_by_jobs
from lakebed.read.rows.summaries import load_summaries
from lakebed.storage.processes import this_process
from lakebed.upkeep.compaction.plan import (
    LIMITS,
    CompactionLimits,
    PartitionMerge,
    Skipped,
    inputs_of,
    pressing,
    share_out,
    tasks_of,
    why_wait,
)
from lakebed.write import batches as runner
from lakebed.write.run import TaskResult, commit_files, discard

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merge the rows that ``inputs`` have inside ``slices`` into new files of the job's run.

    The slices are neighbours in key order, each as much as a merge plan should read at once. The inputs are in order of
    arrival. Their rows are merged by ``mode``, and deletes are dropped if the job is ``complete``. Only rows for which
    the predicate ``kept`` is true are kept; all if it is empty. ``rows`` is about the number of rows of the inputs.
    """

    job: str
    table_id: str
    slices: tuple[EncodedRange, ...]
    inputs: tuple[DataFile, ...]
    layout: Layout
    memory_limit_bytes: int
    rows: int
    mode: MergeMode = KEEP_ALL
    complete: bool = False
    kept: str = ""

    @property
    def keys(self) -> EncodedRange:
        """The keys of all slices."""
        return EncodedRange(self.slices[0].min, self.slices[-1].max)


Execute = runner.Execute[MergeTask, tuple[NewFile, ...]]
"""Runs merge tasks. Called from several threads."""


@dataclass(frozen=True, slots=True)
class FailedMerge:
    """A partition whose job failed and was closed."""

    partition: int
    error: Error


@dataclass(frozen=True, slots=True)
class CommittedMerge:
    """A merge whose output was committed: its new files, and the version that has them."""

    merge: PartitionMerge
    files: tuple[NewFile, ...]
    version: int


@dataclass(slots=True)
class MergeProgress:
    """The progress so far, updated from several threads."""

    done: list[CommittedMerge] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    failed: list[FailedMerge] = field(default_factory=list)
    waits: str | None = None


@dataclass(frozen=True, slots=True)
class _Planned:
    """A merge, and the number of tasks to divide it into."""

    merge: PartitionMerge
    task_count: int


@dataclass(frozen=True, slots=True)
class _OpenMerge:
    """A running job; ``drops_rows``: its output may have fewer rows than its inputs."""

    id: str
    merge: PartitionMerge
    tasks: tuple[MergeTask, ...]
    drops_rows: bool


def run_merges(  # noqa: PLR0913 - what, how, what came of it, and how much at once
    table: Table,
    execute: Execute,
    merges: Sequence[PartitionMerge],
    progress: MergeProgress,
    *,
    cores: int,
    limits: CompactionLimits = LIMITS,
    changes_rows: bool = False,
) -> None:
    """Open, run and commit a job for each merge, batch by batch in their order; adds to the progress.

    ``changes_rows``: the new files have other rows than those of a merge, which feeds of changes look for.

    Raises ContentionError, UnknownOutcomeError, StorageError: the log; jobs whose outcome is certain are closed.
    """
    # Jobs to close after an exception: added before they are opened, removed when their outcome is proposed.
    ours: set[str] = set()

    def open_batch(planned: Sequence[_Planned]) -> list[_OpenMerge]:
        if (waits := why_begin_no_job(table, limits)) is not None:
            progress.waits = waits
            return []
        # The clock of the store dates the files. Read for each batch, because the orphan cutoff stays below it.
        began_us = to_us(table.storage.now())
        opened = runner.in_threads(lambda merge: open_one(merge, began_us), planned)
        return [job for job in opened if job is not None]

    def open_one(planned: _Planned, began_us: int) -> _OpenMerge | None:
        job_id = clock.new_id()
        ours.add(job_id)
        job = _open(table, job_id, planned, began_us)
        if isinstance(job, _OpenMerge):
            return job
        ours.remove(job_id)
        progress.skipped.append(job)
        return None

    def on_done(job: _OpenMerge, results: Sequence[TaskResult]) -> tuple[_Planned, ...]:
        failure = _failure(job, results)
        ours.remove(job.id)
        files = tuple(new for result in results if not isinstance(result, Error) for new in result)
        if failure is None:
            _commit(table, job, ProposeOutput(job.id, files, changes_rows), progress)
        else:
            close_job(table, job.id, str(failure))
            discard(table.storage, table.id, files)
            progress.failed.append(FailedMerge(job.merge.partition, failure))
        return ()

    share = -(-cores // max(1, len(merges)))
    planned = [_Planned(merge, tasks_of(merge, share, limits)) for merge in merges]
    try:
        runner.run(planned, open_batch, execute, on_done, limits.batches.limits(cores))
    except BaseException:
        for job_id in ours:
            close_job(table, job_id, "the compaction was interrupted")
        raise


def why_begin_no_job(table: Table, limits: CompactionLimits = LIMITS) -> str | None:
    """Return why no job of the table should be started now; None if one may."""
    state = table.log.head.state
    waits = why_wait(len(state.open_requests), len(table.log.local.queue), limits)
    return None if waits is None or pressing(state, table.settings_in_force()) else waits


def _open(table: Table, job_id: str, planned: _Planned, began_us: int) -> _OpenMerge | Skipped:
    merge, count = planned.merge, planned.task_count
    settings = table.settings_in_force()
    shares: Sequence[tuple[EncodedRange, ...]] = [(merge.keys,)]
    limit_bytes = settings.memory_limit_bytes
    if count > 1 or merge.size_bytes > slice_bytes(merge.size_bytes, limit_bytes):
        summaries = load_summaries(table.storage, table.id, merge.inputs, table.schema)
        shares = share_out(merge, list(summaries.values()), count, limit_bytes)
    ids = tuple(file.id for file in merge.inputs)
    job = Job(job_id, merge.keys, ids, this_process(), settings.job_deadline_s, began_us, complete=merge.complete)
    outcome = table.try_commit(OpenJob(job))
    if isinstance(outcome, NotCommitted):
        # Another process took or changed the partition since the plan was made.
        return Skipped(merge.partition, outcome.reason)
    version_of(outcome, f"table {table.name}")
    # From one state: an aggregate names the fields of its schema, which may have been renamed since the plan.
    state = table.log.head.state
    # The job must be open in that state: if the filter changes later, the job is refused.
    kept = kept_by_jobs(state, complete=merge.complete)
    tasks = tuple(
        MergeTask(
            job=job_id,
            table_id=table.id,
            slices=slices,
            inputs=inputs_of(merge.inputs, EncodedRange(slices[0].min, slices[-1].max)),
            layout=Layout.of(state.schemas[-1], settings),
            memory_limit_bytes=limit_bytes,
            rows=merge.rows // len(shares),
            mode=state.merge,
            complete=merge.complete,
            kept=kept,
        )
        for slices in shares
    )
    return _OpenMerge(job_id, merge, tasks, drops_rows=bool(kept) or not merge.mode.keeps_all)


def _failure(job: _OpenMerge, results: Sequence[TaskResult]) -> Error | None:
    """Return why the job cannot be committed; None if it can."""
    error = next((result for result in results if isinstance(result, Error)), None)
    if error is not None:
        return error
    rows = sum(new.file.rows for files in results if not isinstance(files, Error) for new in files)
    expected = job.merge.rows
    lost_or_doubled = rows > expected if job.drops_rows else rows != expected
    if job.merge.exact and lost_or_doubled:
        return Code.ROW_COUNT_MISMATCH(
            f"partition {job.merge.partition} has {job.merge.rows} rows, but its merged files have {rows}; "
            "nothing was changed. Verify its files",
            partition=job.merge.partition,
        )
    return None


def _commit(table: Table, job: _OpenMerge, output: ProposeOutput, progress: MergeProgress) -> None:
    outcome = commit_files(table, output)
    if isinstance(outcome, NotCommitted):
        # The refusal is permanent; a job that is still open, for example behind a fence, would only block others.
        close_job(table, job.id, outcome.reason)
        progress.skipped.append(Skipped(job.merge.partition, outcome.reason))
        return
    version = version_of(outcome, f"table {table.name}, job {job.id}")
    progress.done.append(CommittedMerge(job.merge, output.files, version))


def close_job(table: Table, job: str, reason: str) -> None:
    """Close a job that will not be committed, as a best effort: its owner's death, or its deadline, also closes it."""
    with suppress(Error):
        table.try_commit(CloseJob(job, reason[:500]))
