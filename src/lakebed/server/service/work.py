"""Runs one operation on one table, and describes the result in a sentence.

The work itself is :class:`lakebed.jobs.maintain.Maintenance`, the same as that of the commands.

Core types: :class:`Done`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.model.operations import OPERATIONS
from lakebed.storage import telemetry
from lakebed.upkeep.compaction.failed_partitions import FailedPartitions

if TYPE_CHECKING:
    from lakebed.errors import Error
    from lakebed.jobs.job_progress import Callback
    from lakebed.jobs.pipeline import Pipeline
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class Done:
    """The result of an operation, as a sentence; ``error`` is why a part of it failed."""

    text: str
    error: Error | None = None


def carry_out(name: str, pipeline: Pipeline, table: Table, failures: FailedPartitions, progress: Callback) -> Done:
    """Run the operation. Raises its errors, but not those of partitions, which ``failures`` records."""
    operation = OPERATIONS[name]
    known = failures if operation.merges else FailedPartitions()
    with telemetry.span("operation", operation=name, table=table.id, outcome="failed") as span:
        try:
            report = operation.run(replace(pipeline.maintenance(table, progress), failures=known))
        except KeyboardInterrupt:
            span.labels["outcome"] = "cancelled"
            raise
        if report.error is not None and not operation.merges:
            raise report.error
        span.labels["outcome"] = "succeeded" if known.error is None else "partly"
    waits = f"; no more, because {report.unfinished}" if report.unfinished else ""
    return Done(f"{report.summary}{waits}{known.summary}", known.error)
