"""Partitions that could not be merged, which the compactions of a service leave out for a while.

So one damaged file does not block the rest of a table.

Core types: :class:`FailedPartitions`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, ContentionError, Error, StorageError, UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakebed.upkeep.compaction.merge_jobs import FailedMerge
    from lakebed.upkeep.compaction.plan import CompactionPlan, PartitionMerge
    from lakebed.upkeep.compaction.run import CompactionReport, Prepared

PARTITION_TRIES_MAX = 5
"""A partition that could not be merged so often is left out until someone asks for it."""

RETRY_S = 60.0
"""The wait after the first failure of a partition; twice as long after each further one."""

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
    def error(self) -> Error | None:
        """The first of the errors on record."""
        return next(iter(self.errors.values()), None)

    @property
    def summary(self) -> str:
        """The failures as a part of a sentence; empty without one."""
        return "".join(
            f"; partition {partition} failed {self.tries[partition]} times: {error}"
            for partition, error in list(self.errors.items())[:3]
        )

    @property
    def parked(self) -> tuple[int, ...]:
        """The partitions that are not retried until it is requested."""
        return tuple(partition for partition, next_s in list(self.next_s.items()) if next_s == math.inf)

    def around(self, prepared: Prepared, merge: Callable[[Prepared], CompactionReport]) -> CompactionReport:
        """Have the plan merged without the partitions that are not to be tried yet, and record which failed.

        Raises an error of what a merge needs, such as a store: it is no partition's.
        """
        wanted = replace(prepared, planned=self.without(prepared.planned))
        report = merge(wanted)
        for error in (one.error for one in report.failed):
            if not is_fault(error):
                raise error
        tried = {merge.partition for merge in (*wanted.planned.merges, *wanted.planned.whole)}
        self.note(report.failed, tried - {one.partition for one in report.failed})
        return report

    def note(self, failed: Iterable[FailedMerge], merged: Iterable[int]) -> None:
        """Record the partitions that a compaction failed to merge, and those that it merged."""
        for partition in merged:
            self.forget(partition)
        for one in failed:
            tries = self.tries.get(one.partition, 0) + 1
            self.tries[one.partition] = tries
            wait_s = math.inf if tries >= PARTITION_TRIES_MAX else RETRY_S * 2 ** (tries - 1)
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
