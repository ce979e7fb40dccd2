"""Runs one operation on one table, and describes the result in a sentence.

The work itself is :class:`lakebed.jobs.maintain.Maintenance`, the same as that of the commands. A compaction skips
partitions that failed recently, so one damaged file does not block the rest of a table.

Core types: :class:`FailedPartitions`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from lakebed import clock
from lakebed.errors import Code, ContentionError, Error, StorageError, UnknownOutcomeError
from lakebed.model.operations import TableOperation
from lakebed.server.service.plan import RETRY_MAX_S
from lakebed.storage import telemetry
from lakebed.upkeep.compaction.run import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.jobs.job_progress import Callback
    from lakebed.jobs.maintain import Maintenance
    from lakebed.jobs.pipeline import Pipeline
    from lakebed.table.table import Table
    from lakebed.upkeep.compaction.merge_jobs import FailedMerge
    from lakebed.upkeep.compaction.plan import CompactionPlan, PartitionMerge

PARTITION_TRIES_MAX = 5
"""A partition that could not be merged so often is left out until someone asks for it."""

ELSEWHERE = frozenset({Code.SPARK_NOT_STARTED, Code.JAVA_MISSING, Code.WORKER_NOT_STARTED, Code.ALREADY_CLOSED})
"""Errors of what an operation needs, not of the operation."""


def is_fault(error: BaseException) -> bool:
    """Return whether an operation failed by its own fault. An unavailable store, database or Spark is not: the
    operation is retried without limit.
    """
    if isinstance(error, StorageError | ContentionError | UnknownOutcomeError):
        return False
    return not (isinstance(error, Error) and (error.code in ELSEWHERE or error.facts.get("transient")))


@dataclass(slots=True)
class FailedPartitions:
    """The partitions of one table that could not be merged: how often, and when they may be retried."""

    tries: dict[int, int] = field(default_factory=dict)
    next_s: dict[int, float] = field(default_factory=dict)
    errors: dict[int, Error] = field(default_factory=dict)

    @property
    def parked(self) -> tuple[int, ...]:
        """The partitions that are not retried until it is requested."""
        return tuple(partition for partition, next_s in list(self.next_s.items()) if next_s == math.inf)

    def note(self, failed: Iterable[FailedMerge], merged: Iterable[int], tries_max: int) -> None:
        """Record the partitions that a compaction failed to merge, and those that it merged."""
        for partition in merged:
            self.forget(partition)
        for one in failed:
            tries = self.tries.get(one.partition, 0) + 1
            self.tries[one.partition] = tries
            wait_s = math.inf if tries >= tries_max else RETRY_MAX_S * 2 ** (tries - 1)
            self.next_s[one.partition] = clock.monotonic_s() + wait_s
            self.errors[one.partition] = one.error

    def forget(self, partition: int) -> None:
        """Drop the failures of a partition: it is tried like any other."""
        for noted in (self.tries, self.next_s, self.errors):
            noted.pop(partition, None)

    def clear(self) -> None:
        """Drop the failures of all partitions."""
        for partition in list(self.tries):
            self.forget(partition)

    def without(self, planned: CompactionPlan) -> CompactionPlan:
        """Return the plan without the merges of partitions that are not to be tried yet."""
        now_s = clock.monotonic_s()

        def waits(merge: PartitionMerge) -> bool:
            return any(now_s < self.next_s.get(one, 0.0) for one in merge.partitions or (merge.partition,))

        merges, whole = (tuple(m for m in some if not waits(m)) for some in (planned.merges, planned.whole))
        return replace(planned, merges=merges, whole=whole)


@dataclass(frozen=True, slots=True)
class Done:
    """The result of an operation, as a sentence; ``error`` is why a part of it failed."""

    text: str
    error: Error | None = None


def carry_out(
    operation: TableOperation, pipeline: Pipeline, table: Table, failures: FailedPartitions, progress: Callback
) -> Done:
    """Run the operation. Raises its errors."""
    with telemetry.span("operation", operation=operation.value, table=table.id, outcome="failed") as span:
        try:
            done = _carried_out(operation, pipeline, table, failures, progress)
        except KeyboardInterrupt:
            span.labels["outcome"] = "cancelled"
            raise
        span.labels["outcome"] = "succeeded" if done.error is None else "partly"
        return done


def _carried_out(
    operation: TableOperation, pipeline: Pipeline, table: Table, failures: FailedPartitions, progress: Callback
) -> Done:
    maintenance = pipeline.maintenance(table, progress)
    match operation:
        case TableOperation.INGEST:
            ingested = maintenance.ingest()
            if ingested.errors:
                raise ingested.errors[0]
            return Done(ingested.summary)
        case TableOperation.COMPACTION:
            return _compact(maintenance, table, failures)
        case TableOperation.SPLITTING:
            divided = maintenance.divide()
            return Done(f"{divided.split.summary}, {divided.join.summary}")
        case TableOperation.REFRESH:
            return Done(pipeline.refresh(table).summary)
        case TableOperation.GC:
            return Done(maintenance.collect().summary)
        case _:
            assert_never(operation)


def _compact(maintenance: Maintenance, table: Table, failures: FailedPartitions) -> Done:
    prepared = prepare(table)
    wanted = replace(prepared, planned=failures.without(prepared.planned))
    report = maintenance.merge(wanted)
    elsewhere = next((one.error for one in report.failed if not is_fault(one.error)), None)
    if elsewhere is not None:
        raise elsewhere
    tried = {merge.partition for merge in (*wanted.planned.merges, *wanted.planned.whole)}
    failures.note(report.failed, tried - {one.partition for one in report.failed}, PARTITION_TRIES_MAX)
    waits = f"; no more, because {report.waits}" if report.waits else ""
    failed = "".join(
        f"; partition {partition} failed {failures.tries[partition]} times: {error}"
        for partition, error in list(failures.errors.items())[:3]
    )
    return Done(f"{report.summary}{waits}{failed}", next(iter(failures.errors.values()), None))
