"""Rewrites rows of a table: deletes some, changes value columns of others, and commits all changes in one log entry.

The steps:

1. *check*: predicates, expressions and ranges, before anything is read.
2. *claim*: a job for each file that may have such rows.
3. *run*: a task reads each file and writes its rows again, unless none of them changes.
4. *commit*: one proposal replaces all files, each at its place in the order of arrival. A reader sees all changes or
   none. If a task fails, or the proposal is refused, every job is closed and the table is unchanged.

Rules. All rows that were committed before the rewrite began are rewritten; later rows are unchanged, as by an UPDATE
under snapshot isolation. Older versions and tags keep the old rows.

Core types: :class:`RewriteRequest`, :class:`RewriteReport`.

Errors: UsageError, SchemaMismatchError and BadKeyError before anything is read; those of a task; RejectedError if the
table changed so that the rewrite cannot be committed; those of the log.

*Claims the files of a rewrite: opens a job for each, and waits for compactions that hold some of them.*

A rewrite is atomic, so it claims all of its files before it reads the first. Claimed files cannot be merged or joined
with others, so each round has fewer left. Files that another job holds, or its output, are claimed when that job has
ended. Files that arrive meanwhile are not claimed, and can be compacted.

Two rewrites could each wait for files of the other. A rewrite therefore fails if it finds a job of another rewrite,
recognised by its id.

Core type: :class:`Claims`. Errors: RejectedError if a job does not end; ContentionError, UnknownOutcomeError and
StorageError of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error, StorageError
from lakebed.files.parquet.layout import Layout
from lakebed.log.last_modified_times import to_us
from lakebed.log.outcomes import Committed, NotCommitted, Unknown, version_of
from lakebed.model.checks import is_text, shown
from lakebed.model.operations import REWRITE_JOB_PREFIX
from lakebed.model.reports import WorkReport
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import ProposeJobs, ProposeOutput, ProposeRewrite
from lakebed.model.state.transactions.resolution import refused_change
from lakebed.model.wording import count_text, size_text
from lakebed.read.rows.conditions import narrow
from lakebed.read.rows.expressions import condition_of
from lakebed.storage.processes import this_process
from lakebed.upkeep.compaction.merge_jobs import close_job
from lakebed.upkeep.compaction.run import release_jobs
from lakebed.upkeep.rewrite.plan import FileRewrite, RewriteScope, RowChange, conflicts, is_as_planned, plan
from lakebed.upkeep.rewrite.task import RewriteTask, RewrittenFile
from lakebed.write import batches as runner
from lakebed.write.batches import BATCHES, BatchLimits, BatchSizes
from lakebed.write.run import commit_files, discard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakebed.model.keys import KeyRange
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class RewriteLimits:
    """The limits of one rewrite."""

    files_max: int = 10_000
    """All files become visible by one entry, which has about a kilobyte for each."""

    wait_s: float = 600.0
    """The longest wait for a job that holds one of the files."""

    batches: BatchSizes = BATCHES


LIMITS = RewriteLimits()

PAUSE_S, PAUSE_MAX_S = 0.05, 2.0

DEADLINE_MAX_S = 30 * 86_400


@dataclass(slots=True)
class Claims:
    """The open jobs of one rewrite, by their ids. ``cores`` is the number of its tasks that run at once."""

    table: Table
    scope: RewriteScope
    cores: int
    check: Callable[[], None]
    limits: RewriteLimits = LIMITS
    jobs: dict[str, FileRewrite] = field(default_factory=dict)

    def take(self) -> None:
        """Claim everything in the scope.

        Raises RejectedError if the rewrite has too many files, or if another job holds some of them for too long.
        """
        # The clock of the store dates the files.
        began_us = to_us(self.table.storage.now())
        end, pause = clock.monotonic_s() + self.limits.wait_s, PAUSE_S
        while True:
            self.check()
            state = self.table.state()
            # A job that another process closed has to be opened again.
            self.jobs = {name: one for name, one in self.jobs.items() if name in state.jobs}
            if outdated := [name for name, one in self.jobs.items() if not is_as_planned(one, state)]:
                # Rows were removed before the job was opened, so the fence of the removal does not apply to it.
                self.close(outdated, "rows of it were removed before it was opened")
                for name in outdated:
                    self.jobs.pop(name)
                continue
            wanted = plan(state, self.scope, [state.jobs[name] for name in self.jobs])
            if not wanted:
                return
            self._check_count(len(self.jobs) + len(wanted))
            others = [job for name, job in state.jobs.items() if name not in self.jobs]
            claimed = {index: jobs for index, one in enumerate(wanted) if (jobs := conflicts(one, others))}
            free = [one for index, one in enumerate(wanted) if index not in claimed]
            if claimed and release_jobs(self.table):
                # A dead process held them.
                continue
            self._check_others(claimed.values())
            if clock.monotonic_s() > end:
                raise self._held_up(claimed)
            if free:
                self._open(free, began_us, len(self.jobs) + len(wanted))
                continue
            clock.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    def close(self, jobs: Sequence[str], reason: str) -> None:
        """Close jobs that commit nothing, as a best effort."""
        runner.in_threads(lambda job: close_job(self.table, job, reason), list(jobs))

    def _open(self, free: Sequence[FileRewrite], began_us: int, count: int) -> None:
        # Each of the tasks may take as long as a job may be open.
        deadline_s = self.table.settings_in_force().job_deadline_s * -(-count // self.cores)
        owner, jobs = this_process(), []
        for wanted in free:
            name = f"{REWRITE_JOB_PREFIX}{clock.new_id()}"
            self.jobs[name] = wanted
            jobs.append(Job(name, wanted.keys, (wanted.file.id,), owner, min(deadline_s, DEADLINE_MAX_S), began_us))
        outcome = self.table.try_commit(ProposeJobs(tuple(jobs)))
        if isinstance(outcome, NotCommitted) and outcome.code in (Code.PROPOSAL_OUTDATED, Code.JOB_CONFLICT):
            # Other processes took or changed all of them since the plan was made: plan again, as if only some had
            # changed.
            return
        version_of(outcome, f"table {self.table.name}")

    def _check_count(self, count: int) -> None:
        if count > self.limits.files_max:
            raise Code.LIMIT_REACHED(
                f"a rewrite of table {self.table.name} would concern {count:,} files, and "
                f"{self.limits.files_max:,} can change together: compact the table first, or rewrite one range of keys "
                "after another"
            )

    def _check_others(self, claimed: Iterable[list[str]]) -> None:
        for names in claimed:
            for name in names:
                if name.startswith(REWRITE_JOB_PREFIX):
                    raise Code.JOB_CONFLICT(
                        f"another rewrite of table {self.table.name} is under way (job {name}); rewrite again when it "
                        "has ended",
                        job=name,
                    )

    def _held_up(self, claimed: Mapping[int, Sequence[str]]) -> Error:
        job = next((names[0] for names in claimed.values()), "of compactions, one after another,")
        return Code.JOB_CONFLICT(
            f"job {job} of table {self.table.name} still holds files of the rewrite after "
            f"{self.limits.wait_s:.0f} s; nothing was changed. Rewrite again when it has ended; if its process died on "
            "another host, it is closed after job_deadline_s",
            job=job,
        )


Execute = runner.Execute[RewriteTask, RewrittenFile]
"""Runs rewrite tasks. Called from several threads."""


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """The change of the rows with a key in any of the ranges (without ranges: all), as ``Pipeline.rewrite``."""

    ranges: tuple[KeyRange, ...] = ()
    changes: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    delete_where: str | None = None


@dataclass(frozen=True, slots=True)
class RewriteReport(WorkReport):
    """The result of a rewrite. ``version`` is None if no row was deleted or changed; then nothing was committed.

    Rows that were committed after ``base_version``, at which it began, are unchanged. ``rows_changed`` are those for
    which ``where`` is true. Of the ``files_read``, ``files_in`` had rows that changed; they were replaced by
    ``files_out``.
    """

    table: str
    base_version: int
    version: int | None
    rows_deleted: int
    rows_changed: int
    files_read: int
    files_in: int
    files_out: int
    bytes_in: int
    bytes_out: int

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        read = f"{count_text(self.files_read, 'file')} read"
        if self.version is None:
            return f"no row differs; nothing was changed, {read}"
        rows = [f"{count_text(self.rows_deleted, 'row')} deleted"] if self.rows_deleted else []
        rows += [f"{count_text(self.rows_changed, 'row')} changed"] if self.rows_changed else []
        into = f"{count_text(self.files_in, 'file')} of {size_text(self.bytes_in)} replaced by {self.files_out}"
        return f"{', '.join(rows)}; {read}, {into}"


@dataclass(frozen=True, slots=True)
class PreparedRewrite:
    """A checked rewrite of the table as it was at ``version``."""

    scope: RewriteScope
    change: RowChange
    layout: Layout
    version: int
    planned: tuple[FileRewrite, ...]
    limits: RewriteLimits = LIMITS


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A file and the job that holds it; its only task."""

    job: str
    rewrite: FileRewrite
    task: RewriteTask

    @property
    def task_count(self) -> int:
        """One task for each file."""
        return 1

    @property
    def tasks(self) -> Sequence[RewriteTask]:
        """The task."""
        return (self.task,)


@dataclass(frozen=True, slots=True)
class _Done:
    """A file whose task has ended, and what it made of the file."""

    rewrite: FileRewrite
    made: RewrittenFile


@dataclass(slots=True)
class _Progress:
    """The finished tasks, updated from several threads."""

    done: list[_Done] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)


def prepare(table: Table, wanted: RewriteRequest) -> PreparedRewrite:
    """Check a rewrite, and plan it for the latest version. Reads no row.

    Raises UsageError, SchemaMismatchError or BadKeyError for a request that does not fit the table.
    """
    from lakebed.upkeep.rewrite.rows import RowRewriter

    state, settings = table.state(), table.settings_in_force()
    schema = state.created
    if refused := refused_change(state):
        raise refused.code(f"table {table.name}: {refused.reason}: rewrite that table, then refresh the view anew")
    change = _change(wanted, schema)
    rewriter = RowRewriter(change, schema, settings.value_bytes_max)
    rewriter.check()
    named = () if rewriter.delete_where is None else rewriter.delete_where.columns
    _check_merge(table.name, state.merge, change, sorted(set(named) - set(state.merge.merge_key(schema))))
    ranges, keys = tuple(change.ranges), None
    if rewriter.concerned is not None:
        ranges, keys = narrow(ranges, condition_of(rewriter.concerned.parts), schema)
    scope = RewriteScope(ranges, keys, state.next_sequence)
    planned = tuple(plan(state, scope))
    for file_rewrite in planned:
        _check_markers(table, change, file_rewrite)
    return PreparedRewrite(scope, change, Layout.of(schema, settings), state.version, planned)


def rewrite(
    table: Table, prepared: PreparedRewrite, execute: Execute, *, cores: int, check: Callable[[], None]
) -> RewriteReport:
    """Carry out a rewrite. ``cores`` is the number of tasks that run at once; ``check`` raises to stop it.

    Raises:
        SchemaMismatchError, UsageError: a new value does not fit, or cannot be computed; names column, value and key.
        DamagedError: the bytes of a file are not those that were written; names it.
        RejectedError: another rewrite is under way, or the table was changed so that this one cannot be committed.
        ContentionError, UnknownOutcomeError, StorageError: the log. Except for an unknown outcome nothing was changed.
    """
    claims = Claims(table, prepared.scope, cores, check, prepared.limits)
    progress = _Progress()
    try:
        claims.take()
        jobs = sorted(claims.jobs.items(), key=lambda item: (item[1].keys.min, item[1].file.id))
        claimed = [_Claimed(job, one, _task(table, prepared, job, one)) for job, one in jobs]
        _run_tasks(claims, claimed, execute, progress, prepared.limits.batches.limits(cores))
        check()
    except BaseException as error:
        # Not the message: it may quote a key, and the log keeps it.
        claims.close(list(claims.jobs), f"the rewrite failed: {error.code if isinstance(error, Error) else 'stopped'}")
        discard(table.storage, table.id, [new for one in progress.done for new in one.made.files or ()])
        raise
    version = _commit(table, claims, progress)
    files = [new.file for one in progress.done for new in one.made.files or ()]
    replaced = {one.rewrite.file.id: one.rewrite.file for one in progress.done if one.made.files is not None}
    return RewriteReport(
        table=table.name,
        base_version=prepared.version,
        version=version,
        rows_deleted=sum(one.made.deleted for one in progress.done),
        rows_changed=sum(one.made.changed for one in progress.done),
        files_read=len({one.rewrite.file.id for one in progress.done}),
        files_in=len(replaced),
        files_out=len(files),
        bytes_in=sum(file.size_bytes for file in replaced.values()),
        bytes_out=sum(file.size_bytes for file in files),
    )


def _change(wanted: RewriteRequest, schema: Schema) -> RowChange:
    for name, text in (("where", wanted.where), ("delete_where", wanted.delete_where)):
        if text is not None and not is_text(text):
            raise Code.PREDICATE_INVALID(f'{name} = {shown(text)}: must be a predicate in SQL, such as "n > 3"')
    if not isinstance(wanted.changes, Mapping):
        raise Code.ARGUMENT_INVALID(
            f'set = {shown(wanted.changes)}: must map columns to SQL expressions, such as {{"delay": "delay + 1"}}'
        )
    if wanted.where is not None and not wanted.changes:
        raise Code.ARGUMENTS_CONFLICT(
            "where chooses the rows that set changes: give set as well, or delete_where to delete the rows"
        )
    if not wanted.changes and wanted.delete_where is None:
        raise Code.ARGUMENT_MISSING(
            "a rewrite says what becomes of rows: give set, expressions by column, or delete_where, a predicate"
        )
    return RowChange(
        schema.codec.encode_ranges(wanted.ranges), wanted.delete_where, wanted.where, tuple(wanted.changes.items())
    )


def _check_merge(name: str, mode: MergeMode, change: RowChange, named: Sequence[str]) -> None:
    """Raise UsageError if changing stored rows would differ from changing the merged rows.

    ``named`` are the columns of ``delete_where`` by which rows are not merged.
    """
    if mode.keeps_all:
        return
    if named:
        raise Code.MERGE_MODE_MISMATCH(
            f"table {name} merges rows with equal keys, and delete_where names column {named[0]}, which is not part of "
            "that key: an older row of the key would come back, or a part of a sum would go. Name key columns only",
            column=named[0],
        )
    if change.changes and mode.computes_values:
        raise Code.MERGE_MODE_MISMATCH(
            f"table {name} computes values from several rows, so set would change parts of its values, "
            "and not the values: delete the rows by key, and write them again"
        )


def _check_markers(table: Table, change: RowChange, file_rewrite: FileRewrite) -> None:
    if change.changes and file_rewrite.file.markers:
        raise Code.MERGE_MODE_MISMATCH(
            f"file {file_rewrite.file.id} of table {table.name} has deletes or partial rows, to which set cannot be "
            "applied before they are merged with older rows: compact the table with the strategy full, then rewrite it",
            file=file_rewrite.file.id,
        )


def _task(table: Table, prepared: PreparedRewrite, job: str, file_rewrite: FileRewrite) -> RewriteTask:
    _check_markers(table, prepared.change, file_rewrite)
    settings = table.settings_in_force()
    return RewriteTask(
        job=job,
        table_id=table.id,
        file=file_rewrite.file,
        slices=file_rewrite.slices,
        cuts=file_rewrite.cuts,
        change=prepared.change,
        layout=prepared.layout,
        value_bytes_max=settings.value_bytes_max,
        memory_limit_bytes=settings.memory_limit_bytes,
        rows=file_rewrite.rows,
    )


def _run_tasks(
    claims: Claims, claimed: Sequence[_Claimed], execute: Execute, progress: _Progress, limits: BatchLimits
) -> None:
    """Run all tasks; after a failure, no further ones are started. Raises its error."""

    def open_batch(batch: Sequence[_Claimed]) -> Sequence[_Claimed]:
        return () if progress.errors else batch

    def on_done(job: _Claimed, results: Sequence[RewrittenFile | Error]) -> tuple[_Claimed, ...]:
        (result,) = results
        if isinstance(result, Error):
            progress.errors.append(result)
            return ()
        progress.done.append(_Done(job.rewrite, result))
        if result.files is None:
            # Compactions may use the file again at once.
            claims.close([job.job], "no row of the file changes")
        elif job.rewrite.exact and result.rows != job.rewrite.rows:
            progress.errors.append(
                Code.ROW_COUNT_MISMATCH(
                    f"the table counts {job.rewrite.rows} rows of file {job.rewrite.file.id}, but {result.rows} were "
                    "read; nothing was changed. Verify the table",
                    file=job.rewrite.file.id,
                )
            )
        return ()

    runner.run(claimed, open_batch, execute, on_done, limits)
    if progress.errors:
        raise progress.errors[0]


def _commit(table: Table, claims: Claims, progress: _Progress) -> int | None:
    outputs = tuple(ProposeOutput(one.made.job, one.made.files) for one in progress.done if one.made.files is not None)
    if not outputs:
        return None
    jobs = [output.job for output in outputs]
    try:
        outcome = commit_files(table, ProposeRewrite(outputs))
    except StorageError as error:
        claims.close(jobs, f"the rewrite failed: {error.code}")
        raise
    # After an unknown outcome the jobs stay open: their commit may still arrive.
    if not isinstance(outcome, Committed | Unknown):
        claims.close(jobs, "the rewrite was refused")
    if isinstance(outcome, NotCommitted):
        raise outcome.code(
            f"table {table.name} was changed while rows were rewritten: {outcome.reason}. Nothing was changed by the "
            "rewrite; do it again",
            **outcome.facts,
        )
    return version_of(outcome, f"table {table.name}")
