"""The tasks of compactions, rewrites, feeds of indexes, ingest, exports and more, as an executor runs them.

Each function returns what runs the tasks of one operation: it has the executor run a function of this module on each of
them. What all tasks of a call share, such as the partition boundaries of a table, is an argument of that function and
not part of each task. A large ingest job is sorted by many tasks, as a bulk import.

Errors: those of a task are its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lakebed.errors import Code, Error
from lakebed.jobs.executor import Executor, Root, TableCall, Work, task_scratch
from lakebed.jobs.interrupt import current_stop
from lakebed.jobs.job_progress import Callback, CombinedProgress
from lakebed.model.checks import shown
from lakebed.model.files import NewFile
from lakebed.storage import connect
from lakebed.storage.external import options_for
from lakebed.table.instance import Instance
from lakebed.table.tracker.recorder import current_run
from lakebed.upkeep.compaction.merge_jobs import Execute as Merge
from lakebed.upkeep.compaction.run import run_merge_task
from lakebed.upkeep.export.publication import ExportedFile
from lakebed.upkeep.export.query_result import Execute as Query
from lakebed.upkeep.export.query_result import QueryTask, run_query_task
from lakebed.upkeep.export.run import Execute as Export
from lakebed.upkeep.export.run import run_export_task
from lakebed.upkeep.ingest_jobs import Execute as Ingest
from lakebed.upkeep.ingest_jobs import Ingested, IngestTarget, IngestTask, JobPart, run_ingest_task
from lakebed.upkeep.retention.erasure.run import Execute as Search
from lakebed.upkeep.retention.erasure.search import SearchedObject, run_search_task
from lakebed.upkeep.rewrite.run import Execute as Rewrite
from lakebed.upkeep.rewrite.task import RewrittenFile, run_rewrite_task
from lakebed.write.attach import AttachTarget, AttachTask, run_attach_task
from lakebed.write.attach import Execute as Attach
from lakebed.write.plan import Method
from lakebed.write.run import TaskResult

if TYPE_CHECKING:
    from lakebed.model.state.table_state import Source
    from lakebed.upkeep.index_feed import Execute as Entries

T = TypeVar("T")

_FILES = tuple[NewFile, ...]


class _Task(Protocol):
    """A task's rows and memory limit, which is the same for all tasks of a call."""

    @property
    def rows(self) -> int: ...

    @property
    def memory_limit_bytes(self) -> int: ...


def _execution(
    executor: Executor, work: Work[T], made: type[T], progress: Callable[[], Callback | None]
) -> Callable[[Sequence[_Task]], list[T | Error]]:
    """Return what runs tasks by ``work``; ``progress`` returns the callback for those of one call."""
    # Read in the thread of the call; batches of jobs run in other threads.
    stop, run = current_stop(), current_run()

    def execute(values: Sequence[_Task]) -> list[T | Error]:
        rows, limit = sum(one.rows for one in values), values[0].memory_limit_bytes
        return executor.run(values, work, made, stop, memory_limit_bytes=limit, progress=progress(), rows=rows, run=run)

    return execute


def _in_scratch(function: Callable[..., T], places: tuple[Root, ...], task: Any) -> T:
    """Return the result of a task, which gets the stores of the places and a folder for its files."""
    with task_scratch() as scratch:
        return function(task, *(place.connect() for place in places), scratch)


def _of_jobs(progress: Callback | None, rows_total: int) -> Callable[[], Callback | None]:
    """Return the progress of calls that run beside each other, of ``rows_total`` together."""
    return (lambda: None) if progress is None else CombinedProgress(progress, rows_total).part


def merge_tasks(executor: Executor, place: Root, progress: Callback | None, rows_total: int) -> Merge:
    """Return what runs merge tasks; those of one call are of one table."""
    return _execution(executor, partial(_in_scratch, run_merge_task, (place,)), _FILES, _of_jobs(progress, rows_total))


def entries_tasks(executor: Executor, place: Root) -> Entries:
    """Return what runs the tasks of one feed of an index."""
    # The engine, which other operations do without.
    from lakebed.upkeep.index_feed import run_entries_task

    return _execution(executor, partial(_in_scratch, run_entries_task, (place,)), _FILES, lambda: None)


def rewrite_tasks(executor: Executor, place: Root, progress: Callback | None, rows_total: int) -> Rewrite:
    """Return what runs rewrite tasks; those of one call are of one table."""
    work = partial(_in_scratch, run_rewrite_task, (place,))
    return _execution(executor, work, RewrittenFile, _of_jobs(progress, rows_total))


def export_tasks(executor: Executor, source: Root, target: Root, progress: Callback | None) -> Export:
    """Return what runs the tasks of one export, from one place to another."""
    work = partial(_in_scratch, run_export_task, (source, target))
    return _execution(executor, work, tuple[ExportedFile, ...], lambda: progress)


def query_tasks(executor: Executor, source: Root, target: Root, progress: Callback | None) -> Query:
    """Return what runs the tasks of one submitted query, whose rows go from one place to another."""
    return _execution(executor, partial(_query, source, target), tuple[ExportedFile, ...], lambda: progress)


def _query(source: Root, target: Root, task: QueryTask) -> tuple[ExportedFile, ...]:
    with task_scratch() as scratch:
        return run_query_task(task, source.open(), target.connect(), scratch)


def search_tasks(executor: Executor, place: Root, progress: Callback | None) -> Search:
    """Return what runs the search tasks of one erasure report."""
    return _execution(executor, partial(_in_scratch, run_search_task, (place,)), SearchedObject, lambda: progress)


def attach_tasks(executor: Executor, place: Root) -> Attach:
    """Return what runs attach tasks; those of one call have one target."""
    stop, run = current_stop(), current_run()

    def execute(attaches: Sequence[AttachTask]) -> Sequence[TaskResult]:
        target, files = attaches[0].target, [task.file for task in attaches]
        work, limit = partial(_attach, target, place), target.memory_limit_bytes
        return executor.run(files, work, _FILES, stop, memory_limit_bytes=limit, run=run)

    return execute


def _attach(target: AttachTarget, place: Root, file: Source) -> tuple[NewFile, ...]:
    return _in_scratch(run_attach_task, (place,), AttachTask(file, target))


def ingest_tasks(executor: Executor, call: TableCall) -> Ingest:
    """Return what runs ingest tasks. Jobs that are shuffled are done by many tasks each, one after the other."""

    def execute(jobs: Sequence[IngestTask]) -> Sequence[Ingested | Error]:
        alone = [task for task in jobs if task.method is Method.SORT]
        made = dict(zip((task.job for task in alone), sort(alone), strict=True))
        made |= {task.job: _shuffled(executor, call, task) for task in jobs if task.method is Method.SHUFFLE}
        return [made[task.job] for task in jobs]

    def sort(jobs: Sequence[IngestTask]) -> Sequence[Ingested | Error]:
        if not jobs:
            return []
        target = jobs[0].target
        values = [(task.job, task.method, task.parts) for task in jobs]
        work, limit = partial(_sort, target, call.place), target.memory_limit_bytes
        return executor.run(values, work, Ingested, call.stop, memory_limit_bytes=limit, run=call.run)

    return execute


def _sort(target: IngestTarget, place: Root, value: tuple[str, Method, tuple[JobPart, ...]]) -> Ingested:
    return _in_scratch(run_ingest_task, (place,), IngestTask(*value, target))


def _shuffled(executor: Executor, call: TableCall, task: IngestTask) -> Ingested | Error:
    from lakebed.jobs.bulk_import.importer import Importer

    try:
        return Importer(executor, call).sort([part.file for part in task.parts], task.target.merge)
    except Error as error:
        return error


def check_seen(instance: Instance, executor: Executor) -> None:
    """Raise UsageError unless it is an instance that the tasks of the executor can see."""
    if not isinstance(instance, Instance):
        raise Code.ARGUMENT_INVALID(
            f"instance = {shown(instance)}: must be an Instance, such as lakebed.open(url) gives"
        )
    if not (instance.storage.locality.shared or executor.in_this_process):
        raise Code.INSTANCE_IN_MEMORY(
            f"{instance.url} is in the memory of this process, and tasks, which are other processes, cannot "
            "see it; use a folder or an object store",
            url=instance.url,
        )


def place_of(url: str, instance: Instance) -> Root:
    """Return the place of a URL, with the instance's options if it is of the same kind.

    Raises UsageError for a bad URL.
    """
    options = options_for(url, instance.url, instance.storage_options)
    storage = connect(url, options)
    if not storage.locality.shared:
        raise Code.INSTANCE_IN_MEMORY(
            f"{url} is in the memory of this process, where tasks, which are other processes, cannot write", url=url
        )
    # An absolute URL: a task may run in another folder.
    return Root(storage.url, options)
