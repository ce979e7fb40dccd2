"""Running export tasks on Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakebed.errors import Error
from lakebed.export.run import ExportedFile, ExportResult, ExportTask, run_export_task
from lakebed.spark import wire
from lakebed.spark.batch import Place, run_batch, task_scratch
from lakebed.spark.progress import Callback, Span, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_executor(
    session: Callable[[], SparkSession], source: Place, place: Place, progress: Callback | None
) -> Callable[[Sequence[ExportTask]], Sequence[ExportResult]]:
    """Runs export tasks from one place to another. The session is asked for when there are any."""

    def work(document: Any) -> Any:
        with task_scratch() as scratch:
            task = wire.decode_export_task(document)
            return [asdict(file) for file in run_export_task(task, source.connect(), place.connect(), scratch)]

    def execute(tasks: Sequence[ExportTask]) -> Sequence[ExportResult]:
        rows = sum(task.rows for task in tasks)
        on = session()
        with watched(on, progress, Span(0, rows, rows, len(tasks))):
            found = run_batch(on, [wire.encode_export_task(task) for task in tasks], work)
        return [result if isinstance(result, Error) else tuple(ExportedFile(**f) for f in result) for result in found]

    return execute
