"""Who runs the tasks of compactions, exports and ingest jobs: Spark, a task a core, as one Spark job.

A small ingest job is a task; a large one goes through the shuffle of a bulk import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakebed.errors import Error, UsageError
from lakebed.export.run import ExportedFile, ExportResult, ExportTask, run_export_task
from lakebed.ingest.plan import Method
from lakebed.maintenance.compaction.job_batches import Execute as Merge
from lakebed.maintenance.compaction.job_batches import MergeTask
from lakebed.maintenance.compaction.job_batches import TaskResult as MergeResult
from lakebed.maintenance.compaction.run import run_merge_task
from lakebed.maintenance.ingest_jobs import Execute, IngestTarget, IngestTask, TaskResult, run_ingest_task
from lakebed.spark import wire
from lakebed.spark.batch import Place, run_batch, task_scratch
from lakebed.spark.bulk_import import Importer
from lakebed.spark.interrupt import current_stop
from lakebed.spark.job_progress import Callback, JobSpan, Together, watched
from lakebed.storage import connect
from lakebed.storage.external import options_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.table.instance import Instance


def merge_executor(
    session: Callable[[], SparkSession], place: Place, progress: Callback | None, rows_total: int
) -> Merge:
    """Runs merge tasks. The session is asked for when there are any."""
    together = None if progress is None else Together(progress, rows_total)
    # Asked for here, in the thread of the call: batches of jobs run in others.
    stop = current_stop()

    def work(document: Any) -> Any:
        with task_scratch() as scratch:
            files = run_merge_task(wire.decode_task(document), place.connect(), scratch)
        return wire.encode_new_files(files)

    def execute(tasks: Sequence[MergeTask]) -> Sequence[MergeResult]:
        rows = sum(task.rows for task in tasks)
        tell = None if together is None else together.part()
        stop.check()
        with watched(session(), tell, JobSpan(0, rows, rows, len(tasks))):
            found = run_batch(session(), [wire.encode_task(task) for task in tasks], work, stop)
        return [result if isinstance(result, Error) else wire.decode_new_files(result) for result in found]

    return execute


def export_executor(
    session: SparkSession, source: Place, target: Place, progress: Callback | None
) -> Callable[[Sequence[ExportTask]], Sequence[ExportResult]]:
    """Runs export tasks, from one place to another."""
    stop = current_stop()

    def work(document: Any) -> Any:
        with task_scratch() as scratch:
            task = wire.decode_export_task(document)
            return [asdict(file) for file in run_export_task(task, source.connect(), target.connect(), scratch)]

    def execute(tasks: Sequence[ExportTask]) -> Sequence[ExportResult]:
        rows = sum(task.rows for task in tasks)
        with watched(session, progress, JobSpan(0, rows, rows, len(tasks))):
            found = run_batch(session, [wire.encode_export_task(task) for task in tasks], work, stop)
        return [result if isinstance(result, Error) else tuple(ExportedFile(**f) for f in result) for result in found]

    return execute


def place_of(url: str, instance: Instance) -> Place:
    """A place beside an instance, with its options if it is of the same kind. Raises UsageError for a bad URL."""
    options = options_for(url, instance.url, instance.storage_options)
    storage = connect(url, options)
    if not storage.shared:
        raise UsageError(f"{url} lives in the memory of this process, where Spark's tasks cannot write", url=url)
    # Whole, for a task may run in another folder.
    return Place(storage.url, options)


def ingest_executor(importer: Importer) -> Execute:
    """Runs ingest tasks of the importer's table."""

    def execute(target: IngestTarget, tasks: Sequence[IngestTask]) -> Sequence[TaskResult]:
        small = [task for task in tasks if task.method is Method.SORT]
        made = dict(zip((task.job for task in small), _sorted(importer, target, small), strict=True))
        made |= {task.job: _shuffled(importer, task) for task in tasks if task.method is Method.SHUFFLE}
        return [made[task.job] for task in tasks]

    return execute


def _sorted(importer: Importer, target: IngestTarget, tasks: Sequence[IngestTask]) -> list[TaskResult]:
    if not tasks:
        return []
    place = importer.place

    def work(document: Any) -> Any:
        with task_scratch() as scratch:
            files = run_ingest_task(wire.decode_ingest_task(document), target, place.connect(), scratch)
        return wire.encode_new_files(files)

    found = run_batch(importer.start(), [wire.encode_ingest_task(task) for task in tasks], work, importer.stop)
    return [result if isinstance(result, Error) else wire.decode_new_files(result) for result in found]


def _shuffled(importer: Importer, task: IngestTask) -> TaskResult:
    try:
        return importer.sort([part.file for part in task.parts])
    except Error as error:
        return error
