"""Calls that failed, of one table: its failed runs, in the few columns that say which call, when, and why.

Errors: those of :mod:`lakebed.tracker.records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.tracker.listing import RunFilter, job_runs
from lakebed.tracker.runs import RunOutcome

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed at ``time``, by the clock of its process; ``version`` is that of the table when it began.

    ``call`` is the operation, ``job`` the job id if it was given one, ``error`` the kind of the error.
    """

    time: datetime
    version: int
    call: str
    job: str | None
    error: str
    reason: str
    writer: str


SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("call", pa.string(), nullable=False),
        pa.field("job", pa.string()),
        pa.field("error", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("writer", pa.string(), nullable=False),
    ]
)


def read_failures(storage: Storage, table_id: str) -> Iterator[Failure]:
    """The failed runs of a table, newest first."""
    for run in job_runs(storage, RunFilter(frozenset([table_id]), outcomes=frozenset([RunOutcome.FAILED]))):
        error = run.error
        kind, reason = ("", "") if error is None else (error.kind, error.message)
        version = run.base_version or 0
        yield Failure(run.finished or run.updated, version, run.operation, run.key, kind, reason, run.where.writer)


def failures_table(failures: Iterable[Failure]) -> pa.Table:
    """The failures as Arrow."""
    return pa.Table.from_pylist([asdict(failure) for failure in failures], schema=SCHEMA)
