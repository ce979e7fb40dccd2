"""Compacts a table: plans, opens jobs, runs their tasks, and commits their output, partition by partition.

The life of a job; each step is an entry of the table's log:

1. *open*: claims the references, so that two processes never merge the same runs; the second one is refused.
2. Its tasks run. A task only reads files and writes new, uniquely named ones, so it may run twice, or be wasted.
3. *output*: drops the inputs' references and adds those of the new files in one entry. It is refused if the job was
   closed meanwhile; its files are then orphans, and nothing is lost.
4. *close*, instead of 3: a task failed, or the user pressed Ctrl-C. A job is not closed after 3 was proposed: only a
   refusal means that 3 did not, and will not, take effect. Nothing is deleted here.

Small files that reach many partitions are merged whole first (:mod:`lakebed.upkeep.compaction.plan`), and
the compaction is planned again. Runs that need no merge are concatenated, by an entry each.

Jobs that a dead process left open are closed by the next compaction: at once if the process ran on this host and has
ended, otherwise when the opening entry is older than the job's deadline by the store's clock.

Core types: :class:`CompactionReport`, :class:`Prepared`.

Errors: UsageError for an unknown strategy; ContentionError, UnknownOutcomeError and StorageError of the log. The error
of a partition that could not be merged is in the report.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.log.outcomes import Committed, NotCommitted, version_of
from lakebed.model.files import NewFile, data_name
from lakebed.model.reports import WorkReport
from lakebed.model.state.transactions import CloseJob, ConcatenateRuns
from lakebed.model.wording import count_text
from lakebed.storage.processes import is_gone
from lakebed.table.filter_choice import age_off
from lakebed.upkeep.compaction.merge_jobs import (
    Execute,
    FailedMerge,
    MergeProgress,
    MergeTask,
    run_merges,
    why_begin_no_job,
)
from lakebed.upkeep.compaction.plan import (
    LIMITS,
    CompactionLimits,
    CompactionPlan,
    Concatenation,
    Skipped,
    check_strategy,
    plan,
)
from lakebed.write.batches import in_threads
from lakebed.write.run import send_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.errors import Error
    from lakebed.files.sorting.merge import MergeLimits
    from lakebed.model.settings import Strategy
    from lakebed.storage.contract import Storage
    from lakebed.table.table import Table

FETCHES = 8
"""Inputs that a task fetches at once."""


@dataclass(frozen=True, slots=True)
class CompactionReport(WorkReport):
    """The result of a compaction. ``version`` is that of its last commit, None if nothing was due.

    ``partitions`` is the number of those in which ``jobs`` merged runs. ``concatenated`` is the number of runs that
    became part of another without a merge. ``waits`` is the reason why no more jobs were started; None if all were.
    """

    table: str
    partitions: int
    jobs: int
    concatenated: int
    files_in: int
    files_out: int
    rows: int
    bytes_in: int
    bytes_out: int
    version: int | None
    skipped: tuple[Skipped, ...]
    failed: tuple[FailedMerge, ...]
    released: tuple[str, ...]
    waits: str | None

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        said = [f"{count_text(self.files_in, 'file')} became {self.files_out}"] if self.jobs else []
        said += [f"{count_text(self.concatenated, 'run')} concatenated"] if self.concatenated else []
        said += [f"{len(self.skipped)} skipped"] if self.skipped else []
        said += [f"{len(self.failed)} failed"] if self.failed else []
        return ", ".join(said) or "nothing to compact"

    @property
    def idle(self) -> bool:
        """Whether nothing was committed."""
        return self.version is None

    @property
    def error(self) -> Error | None:
        """The error of the first partition that could not be merged; the others were."""
        return self.failed[0].error if self.failed else None

    @property
    def unfinished(self) -> str | None:
        """Why no more jobs were started."""
        return self.waits

    @property
    def done(self) -> tuple[int, int]:
        """The rows that were merged, and the bytes of their files."""
        return self.rows, self.bytes_in


@dataclass(frozen=True, slots=True)
class Prepared:
    """The plan, its strategy, and the jobs of dead owners that were released first."""

    planned: CompactionPlan
    released: tuple[str, ...] = ()
    waits: str | None = None
    strategy: Strategy | None = None
    limits: CompactionLimits = LIMITS


def prepare(table: Table, strategy: str | None = None, limits: CompactionLimits = LIMITS) -> Prepared:
    """Release the jobs that dead processes left open, expire rows past the age-off, then plan, unless compaction has to
    wait.

    Raises UsageError for an unknown strategy.
    """
    chosen = check_strategy(strategy)
    released = release_jobs(table)
    age_off(table)
    state, settings = table.state(), table.settings_in_force()
    waits = why_begin_no_job(table, limits)
    planned = CompactionPlan() if waits else plan(state, settings, chosen, limits=limits)
    return Prepared(planned, released, waits, chosen, limits)


def compact(table: Table, prepared: Prepared, execute: Execute, *, cores: int) -> CompactionReport:
    """Carry out a plan. ``cores`` is the number of tasks that ``execute`` runs at once.

    Raises:
        ContentionError, UnknownOutcomeError, StorageError: the log; jobs whose outcome is certain are closed.
    """
    planned = prepared.planned
    progress = MergeProgress(waits=prepared.waits)
    if planned.whole:
        run_merges(table, execute, planned.whole, progress, cores=cores, limits=prepared.limits)
        # Their outputs are small and are merged later. Other due work in their partitions is known only now.
        planned = plan(table.state(), table.settings_in_force(), prepared.strategy, limits=prepared.limits)
    progress.skipped += planned.skipped
    concatenated = in_threads(lambda one: _concatenate(table, one, progress), planned.concatenations)
    run_merges(table, execute, planned.merges, progress, cores=cores, limits=prepared.limits)
    merges = [one.merge for one in progress.done]
    files_out = [new.file for one in progress.done for new in one.files]
    versions = [one.version for one in progress.done]
    versions += [version for version, _ in concatenated if version is not None]
    return CompactionReport(
        table=table.name,
        partitions=len({partition for merge in merges for partition in merge.partitions or (merge.partition,)}),
        jobs=len(merges),
        concatenated=sum(runs for _, runs in concatenated),
        files_in=sum(len(merge.inputs) for merge in merges),
        files_out=len(files_out),
        rows=sum(f.rows for f in files_out),
        bytes_in=sum(merge.size_bytes for merge in merges),
        bytes_out=sum(f.size_bytes for f in files_out),
        version=max(versions, default=None),
        skipped=tuple(progress.skipped),
        failed=tuple(progress.failed),
        released=prepared.released,
        waits=progress.waits,
    )


def _concatenate(table: Table, link: Concatenation, progress: MergeProgress) -> tuple[int | None, int]:
    """Concatenate runs; return the version, and the decrease in the number of runs."""
    outcome = table.try_commit(ConcatenateRuns(link.partition, link.files, clock.new_id()))
    if isinstance(outcome, NotCommitted):
        # The partition has changed since the plan was made.
        progress.skipped.append(Skipped(link.partition, outcome.reason))
        return None, 0
    return version_of(outcome, f"table {table.name}"), link.runs - 1


def release_jobs(table: Table) -> tuple[str, ...]:
    """Close the open jobs whose owner is gone or whose deadline has passed; return their ids."""
    jobs = list(table.state().jobs.values())
    now = table.log.now() if jobs else None
    released = []
    for job in jobs:
        if is_gone(job.owner):
            reason = "the process that opened it is gone"
        elif now is not None and (now - table.log.last_modified_or_epoch(job.opened)).total_seconds() >= job.deadline_s:
            reason = f"it has been open for {job.deadline_s} s"
        else:
            continue
        # A refusal means that the job was committed or closed meanwhile.
        if isinstance(table.try_commit(CloseJob(job.id, reason)), Committed):
            released.append(job.id)
    return tuple(released)


def run_merge_task(
    task: MergeTask,
    storage: Storage,
    scratch: Path,
    *,
    progress: Callable[[int], None] | None = None,
    limits: MergeLimits | None = None,
) -> tuple[NewFile, ...]:
    """Fetch, verify, merge and send: the work of one task.

    Every input is verified against its digest before a row of it is used; otherwise damage could get into a new file
    with a valid digest. Raises DamagedError, which names the object.
    """
    from lakebed.engine.predicate import check_where
    from lakebed.files.sorting.merge import LIMITS as MERGE_LIMITS
    from lakebed.files.sorting.merge import merge_runs

    where = check_where(task.kept, task.layout.schema.arrow) if task.kept else None
    with _fetched(storage, task) as paths:
        whole = all(file.lies_in(task.keys) for file in task.inputs)
        run = merge_runs(
            paths,
            task.layout,
            scratch,
            key_range=None if whole else task.keys,
            memory_limit_bytes=task.memory_limit_bytes,
            slices=task.slices,
            progress=progress,
            mode=task.mode,
            complete=task.complete,
            where=where,
            limits=limits or MERGE_LIMITS,
        )
        return send_run(storage, task.table_id, run, job=task.job)


@contextmanager
def _fetched(storage: Storage, task: MergeTask) -> Iterator[list[Path]]:
    """Fetch the inputs as local files; several at once, because a store takes tens of milliseconds for each."""
    with ExitStack() as stack:
        fetching = [storage.fetch(data_name(task.table_id, file), digest=file.digest) for file in task.inputs]
        with ThreadPoolExecutor(FETCHES) as pool:
            paths = list(pool.map(stack.enter_context, fetching))
        yield paths
