"""Running ingest tasks on Spark: small ones together as one job, a task each; large ones by a bulk import's shuffle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lakebed.errors import Error
from lakebed.ingest.jobs import Execute, IngestTask, Target, TaskResult, run_ingest_task
from lakebed.ingest.plan import Method
from lakebed.spark import wire
from lakebed.spark.batch import run_batch, task_scratch
from lakebed.spark.bulk_import import Importer


def ingest_executor(importer: Callable[[], Importer]) -> Execute:
    """Runs ingest tasks of the importer's table. The importer, and so the session, is asked for when there are any."""

    def execute(target: Target, tasks: Sequence[IngestTask]) -> Sequence[TaskResult]:
        on = importer()
        small = [task for task in tasks if task.method is Method.SORT]
        made = dict(zip((task.job for task in small), _sorted(on, target, small), strict=True))
        made |= {task.job: _shuffled(on, task) for task in tasks if task.method is Method.SHUFFLE}
        return [made[task.job] for task in tasks]

    return execute


def _sorted(importer: Importer, target: Target, tasks: Sequence[IngestTask]) -> list[TaskResult]:
    if not tasks:
        return []
    place = importer.place

    def work(document: Any) -> Any:
        with task_scratch() as scratch:
            files = run_ingest_task(wire.decode_ingest_task(document), target, place.connect(), scratch)
        return wire.encode_new_files(files)

    found = run_batch(importer.session, [wire.encode_ingest_task(task) for task in tasks], work)
    return [result if isinstance(result, Error) else wire.decode_new_files(result) for result in found]


def _shuffled(importer: Importer, task: IngestTask) -> TaskResult:
    try:
        return importer.sort([part.file for part in task.parts])
    except Error as error:
        return error
