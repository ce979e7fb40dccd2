"""Compacting a table: open jobs, have their tasks run somewhere, commit what they made, leaf by leaf.

A job's life, each step an entry of the table's log:

1. *open*: claims the references, so that two processes never merge the same leaf; whoever comes second is refused.
2. its tasks run. A task only reads files and writes new, uniquely named ones, so it may run twice, or for nothing.
3. *output*: drops the inputs' references and adds the new files' in one entry. Refused if the job was closed meanwhile:
   then its files are orphans and nothing was lost.
4. *close*, instead of 3: a task failed, or the user pressed Ctrl-C. Never after 3 was sent: only a refusal says that it
   did not, and will not, take effect. Nothing is ever deleted here.

What a process leaves open when it dies, the next compaction closes: at once if it can tell that the process is gone
(same host, see :mod:`lakebed.compaction.owner`), else when the opening entry is older than the job's deadline by the
store's clock.

No Spark here: who runs the tasks is the caller's business. Tasks of several leaves are handed over together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.compaction.owner import is_gone, this_process
from lakebed.compaction.plan import (
    SLICE_SHARE,
    CompactionPlan,
    LeafMerge,
    Skipped,
    check_strategy,
    inputs_of,
    plan,
    share_out,
    tasks_of,
)
from lakebed.errors import DamagedError, Error
from lakebed.files import DataFile, NewFile, data_name
from lakebed.ingest.send import send_run
from lakebed.kernels.layout import Layout
from lakebed.keys import EncodedRange
from lakebed.log.outcomes import Committed, NotCommitted, number_of
from lakebed.log.stamps import to_us
from lakebed.objects import load_summaries
from lakebed.state.transactions import CloseJob, Job, OfferOutput, OpenJob

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage
    from lakebed.table import Table

WAVE_TASKS_PER_CORE = 4
"""Tasks handed over at once, a core: enough that a slow one idles few cores, few enough that commits come soon."""

WAVE_TASKS_MIN = 16


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
"""What a task made, or why it could not, as a value: one bad file must not cost the other leaves their work."""

Execute = Callable[[Sequence[MergeTask]], Sequence[TaskResult]]
"""Runs tasks, in any order, anywhere; one result for each, in the order of the tasks."""


@dataclass(frozen=True, slots=True)
class FailedMerge:
    """A leaf whose job failed and was closed."""

    leaf: int
    error: Error


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction did. ``number`` is the log number of its last commit, None if there was nothing to do."""

    table: str
    leaves: int
    files_in: int
    files_out: int
    rows: int
    bytes_in: int
    bytes_out: int
    number: int | None
    skipped: tuple[Skipped, ...]
    failed: tuple[FailedMerge, ...]
    released: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Open:
    """A job under way."""

    id: str
    merge: LeafMerge
    tasks: tuple[MergeTask, ...]


@dataclass(slots=True)
class _Tally:
    """What has been done so far."""

    done: list[tuple[LeafMerge, tuple[NewFile, ...], int]]
    skipped: list[Skipped]
    failed: list[FailedMerge]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be done now, and the jobs that were released first because nobody works on them any more."""

    planned: CompactionPlan
    released: tuple[str, ...]


def prepare(table: Table, strategy: str | None = None) -> Prepared:
    """Release what dead processes left open, then plan. Raises UsageError for an unknown strategy."""
    check_strategy(strategy)
    released = release_jobs(table)
    return Prepared(plan(table.state(), strategy), released)


def compact(table: Table, prepared: Prepared, execute: Execute, *, cores: int) -> CompactionReport:
    """Carry out a plan. ``cores`` is how many tasks ``execute`` runs at once.

    Raises:
        ContentionError, UnknownOutcomeError, StorageError: the log; jobs whose outcome is certain are closed.
    """
    planned = prepared.planned
    tally = _Tally([], list(planned.skipped), [])
    for wave in _waves(planned, table, cores):
        _run_wave(table, execute, wave, tally)
    files_out = [new.file for _, files, _ in tally.done for new in files]
    return CompactionReport(
        table=table.name,
        leaves=len(tally.done),
        files_in=sum(len(merge.inputs) for merge, _, _ in tally.done),
        files_out=len(files_out),
        rows=sum(f.rows for f in files_out),
        bytes_in=sum(merge.size_bytes for merge, _, _ in tally.done),
        bytes_out=sum(f.size_bytes for f in files_out),
        number=max((number for _, _, number in tally.done), default=None),
        skipped=tuple(tally.skipped),
        failed=tuple(tally.failed),
        released=prepared.released,
    )


def release_jobs(table: Table) -> tuple[str, ...]:
    """Close the open jobs that nobody works on any more; returns their ids."""
    jobs = list(table.state().jobs.values())
    now = table.log.now() if jobs else None
    released = []
    for job in jobs:
        if is_gone(job.owner):
            reason = "the process that opened it is gone"
        elif now is not None and (now - table.log.stamp_or_epoch(job.opened)).total_seconds() >= job.deadline_s:
            reason = f"it has been open for {job.deadline_s} s"
        else:
            continue
        # Refused: it was committed or closed in this very moment, which is as good.
        if isinstance(table.try_commit(CloseJob(job.id, reason)), Committed):
            released.append(job.id)
    return tuple(released)


def run_merge_task(
    task: MergeTask, storage: Storage, scratch: Path, *, progress: Callable[[int], None] | None = None
) -> tuple[NewFile, ...]:
    """Fetch, verify, merge and send: the work of one task.

    Every input is verified against its digest before a row of it is used, so that damage is never laundered into a new
    and valid file. Raises DamagedError naming the object.
    """
    from lakebed.kernels.merge import merge_runs

    with ExitStack() as fetched:
        paths = [
            fetched.enter_context(storage.fetch(data_name(task.table_id, file), digest=file.digest))
            for file in task.inputs
        ]
        whole = all(file.lies_in(task.keys) for file in task.inputs)
        run = merge_runs(
            paths,
            task.layout,
            scratch,
            key_range=None if whole else task.keys,
            memory_limit_bytes=task.memory_limit_bytes,
            slices=task.slices if len(task.slices) > 1 else (),
            progress=progress,
        )
        return send_run(storage, task.table_id, run, job=task.job)


# -- within -----------------------------------------------------------------------------------------------------


def _waves(planned: CompactionPlan, table: Table, cores: int) -> Iterator[list[tuple[LeafMerge, int]]]:
    """Merges to hand over together, each with the number of tasks it is to be cut into."""
    settings = table.settings_in_force()
    share = -(-cores // max(1, len(planned.merges)))
    limit = max(WAVE_TASKS_MIN, WAVE_TASKS_PER_CORE * cores)
    merges = iter(planned.merges)
    while first := next(merges, None):
        wave = [(first, tasks_of(first, settings, share))]
        room = limit - wave[0][1]
        wave += [(merge, tasks_of(merge, settings, share)) for merge in islice(merges, max(0, room))]
        yield wave


def _run_wave(table: Table, execute: Execute, wave: Sequence[tuple[LeafMerge, int]], tally: _Tally) -> None:
    # Ids of jobs that an interrupt must close: from before they are opened until their outcome is sent.
    ours: set[str] = set()
    opened: list[_Open] = []
    # By the store that stamps the files, and of this wave: a long run must not hold the orphan horizon up.
    began_us = to_us(table.storage.now())
    try:
        for merge, count in wave:
            job_id = clock.new_id()
            ours.add(job_id)
            job = _open(table, job_id, (merge, count), began_us)
            if isinstance(job, Skipped):
                ours.remove(job_id)
                tally.skipped.append(job)
            else:
                opened.append(job)
        tasks = [task for job in opened for task in job.tasks]
        results = iter(execute(tasks) if tasks else ())
        for job in opened:
            made = list(islice(results, len(job.tasks)))
            failure = _failure(job, made)
            ours.remove(job.id)
            if failure is not None:
                _close(table, job.id, str(failure))
                tally.failed.append(FailedMerge(job.merge.leaf, failure))
            else:
                _commit(table, job, [result for result in made if not isinstance(result, Error)], tally)
    except BaseException:
        for job_id in ours:
            _close(table, job_id, "the compaction was interrupted")
        raise


def _open(table: Table, job_id: str, planned: tuple[LeafMerge, int], began_us: int) -> _Open | Skipped:
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
        # Another process took the leaf, or changed it, since the plan was made.
        return Skipped(merge.leaf, outcome.reason)
    number_of(outcome, f"table {table.name}")
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
        return DamagedError(
            f"leaf {job.merge.leaf} holds {job.merge.rows} rows, and merging its files gave {rows}; "
            "nothing was changed. Verify its files",
            leaf=job.merge.leaf,
        )
    return None


def _commit(table: Table, job: _Open, made: Sequence[tuple[NewFile, ...]], tally: _Tally) -> None:
    files = tuple(new for part in made for new in part)
    outcome = table.try_commit(OfferOutput(job.id, files))
    if isinstance(outcome, NotCommitted):
        # Refused for good; if the job is still open, as behind a fence, it would only be in the way.
        _close(table, job.id, outcome.reason)
        tally.skipped.append(Skipped(job.merge.leaf, outcome.reason))
        return
    tally.done.append((job.merge, files, number_of(outcome, f"table {table.name}, job {job.id}")))


def _close(table: Table, job: str, reason: str) -> None:
    """Release a job that will not be committed. A best effort: its owner's death, or its deadline, releases it too."""
    try:
        table.try_commit(CloseJob(job, reason[:500]))
    except Error:
        return
