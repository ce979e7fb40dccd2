"""Executes the tasks of compactions, ingest jobs, exports and attaches, on Spark or in worker processes.

An executor encodes tasks as documents, has :class:`~lakebed.spark.batch.Tasks` run a function of this module on each,
and decodes the results. A large ingest job goes through the shuffle of a bulk import instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebed import runner
from lakebed.errors import Code, Error
from lakebed.export.run import ExportedFile, ExportResult, ExportTask, run_export_task
from lakebed.ingest.attach import AttachTarget, AttachTask, run_attach_task
from lakebed.ingest.plan import Method
from lakebed.maintenance.compaction.merge_jobs import Execute as Merge
from lakebed.maintenance.compaction.merge_jobs import MergeTask
from lakebed.maintenance.compaction.merge_jobs import TaskResult as MergeResult
from lakebed.maintenance.compaction.run import run_merge_task
from lakebed.maintenance.ingest_jobs import Execute, IngestTarget, IngestTask, TaskResult, run_ingest_task
from lakebed.model.files import NewFile
from lakebed.spark import wire
from lakebed.spark.batch import Place, Tasks, task_scratch
from lakebed.spark.bulk_import import Importer
from lakebed.spark.interrupt import current_stop
from lakebed.spark.job_progress import Callback, Together
from lakebed.state.transactions import Source
from lakebed.storage import connect
from lakebed.storage.external import options_for

if TYPE_CHECKING:
    from lakebed.table.instance import Instance


def merge_executor(tasks: Tasks, place: Place, progress: Callback | None, rows_total: int) -> Merge:
    """Runs merge tasks."""
    together = None if progress is None else Together(progress, rows_total)
    # Read in the thread of the call; batches of jobs run in other threads.
    stop = current_stop()

    def execute(merges: Sequence[MergeTask]) -> Sequence[MergeResult]:
        documents = [wire.encode_task(merge) for merge in merges]
        report = None if together is None else together.part()
        rows = sum(merge.rows for merge in merges)
        # The tasks of one call are of one table.
        limit = max((merge.memory_limit_bytes for merge in merges), default=0)
        found = tasks.run(documents, partial(_merge, place), stop, memory_limit_bytes=limit, progress=report, rows=rows)
        return [result if isinstance(result, Error) else wire.decode_new_files(result) for result in found]

    return execute


def _merge(place: Place, document: Any) -> Any:
    with task_scratch() as scratch:
        return wire.encode_new_files(run_merge_task(wire.decode_task(document), place.connect(), scratch))


def export_executor(
    tasks: Tasks, source: Place, target: Place, progress: Callback | None
) -> Callable[[Sequence[ExportTask]], Sequence[ExportResult]]:
    """Runs export tasks, from one place to another."""
    stop = current_stop()

    def execute(exports: Sequence[ExportTask]) -> Sequence[ExportResult]:
        documents = [wire.encode_export_task(task) for task in exports]
        rows = sum(task.rows for task in exports)
        limit = max((task.memory_limit_bytes for task in exports), default=0)
        found = tasks.run(
            documents, partial(_export, source, target), stop, memory_limit_bytes=limit, progress=progress, rows=rows
        )
        return [result if isinstance(result, Error) else tuple(ExportedFile(**f) for f in result) for result in found]

    return execute


def _export(source: Place, target: Place, document: Any) -> Any:
    with task_scratch() as scratch:
        task = wire.decode_export_task(document)
        return [asdict(file) for file in run_export_task(task, source.connect(), target.connect(), scratch)]


def attach_executor(tasks: Tasks, place: Place) -> runner.Execute[AttachTask, tuple[NewFile, ...]]:
    """Runs attach tasks."""
    stop = current_stop()

    def execute(attaches: Sequence[AttachTask]) -> list[tuple[NewFile, ...] | Error]:
        target = attaches[0].target
        documents = [asdict(task.file) for task in attaches]
        found = tasks.run(
            documents, partial(_attach, target, place), stop, memory_limit_bytes=target.memory_limit_bytes
        )
        return [result if isinstance(result, Error) else wire.decode_new_files(result) for result in found]

    return execute


def _attach(target: AttachTarget, place: Place, document: Any) -> Any:
    with task_scratch() as scratch:
        task = AttachTask(Source(**document), target)
        return wire.encode_new_files(run_attach_task(task, place.connect(), scratch))


def place_of(url: str, instance: Instance) -> Place:
    """The place of a URL, with the instance's options if it is of the same kind. Raises UsageError for a bad URL."""
    options = options_for(url, instance.url, instance.storage_options)
    storage = connect(url, options)
    if not storage.shared:
        raise Code.INSTANCE_IN_MEMORY(
            f"{url} is in the memory of this process, where tasks, which are other processes, cannot write", url=url
        )
    # An absolute URL: a task may run in another folder.
    return Place(storage.url, options)


def ingest_executor(tasks: Tasks, place: Place, importer: Importer | None) -> Execute:
    """Runs ingest tasks; the importer runs those that are shuffled, of which there are none without it."""
    stop = current_stop()

    def execute(jobs: Sequence[IngestTask]) -> Sequence[TaskResult]:
        alone = [task for task in jobs if importer is None or task.method is Method.SORT]
        made = dict(zip((task.job for task in alone), sort(alone), strict=True))
        if importer is not None:
            made |= {task.job: _shuffled(importer, task) for task in jobs if task.method is Method.SHUFFLE}
        return [made[task.job] for task in jobs]

    def sort(jobs: Sequence[IngestTask]) -> list[TaskResult]:
        if not jobs:
            return []
        target = jobs[0].target
        documents = [wire.encode_ingest_task(task) for task in jobs]
        work, limit = partial(_sort, target, place), target.memory_limit_bytes
        found = tasks.run(documents, work, stop, memory_limit_bytes=limit)
        return [result if isinstance(result, Error) else wire.decode_new_files(result) for result in found]

    return execute


def _sort(target: IngestTarget, place: Place, document: Any) -> Any:
    with task_scratch() as scratch:
        files = run_ingest_task(wire.decode_ingest_task(document, target), place.connect(), scratch)
    return wire.encode_new_files(files)


def _shuffled(importer: Importer, task: IngestTask) -> TaskResult:
    try:
        return importer.sort([part.file for part in task.parts])
    except Error as error:
        return error
