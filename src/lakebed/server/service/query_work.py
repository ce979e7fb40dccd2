"""Runs one submitted query: finds or makes its result, and publishes it at its target.

A scan reads a pinned version, partition by partition, in the tasks of a pipeline: in worker processes, or on Spark if
it is large. A statement runs in the sandboxed worker of SQL, and its rows are written here. Both are restricted to what
the roles of the submitter show.

Core types: :class:`QueryWork`, :class:`QueryLimits`. Errors: those of the read, and of writing there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import Error
from lakebed.jobs.interrupt import current_stop
from lakebed.jobs.job_progress import Progress
from lakebed.jobs.tasks import place_of, query_tasks
from lakebed.model.files import query_object
from lakebed.model.state.catalog import CatalogTable
from lakebed.model.state.fields import decode_bounds
from lakebed.read.inspect.history import CopyKind, record_copy
from lakebed.read.sql.limited import Limits
from lakebed.server.security.principal import Principal
from lakebed.server.security.sql import run_statement
from lakebed.storage.disk_space import scratch_folder
from lakebed.table.tracker.submitted_queries import ROWS, may_read
from lakebed.upkeep.compaction.failed_partitions import is_fault
from lakebed.upkeep.export.query_result import (
    Attempt,
    QueryResult,
    ScanQuery,
    finished_result,
    plan_query,
    run_query,
    write_stream,
)

if TYPE_CHECKING:
    from lakebed.jobs.executor import Root
    from lakebed.server.service.engines import Engines
    from lakebed.table.instance import Instance
    from lakebed.table.tracker.submitted_queries import AskedScan, SubmittedQuery

Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of submitted queries: memory and time of a statement, and the number of concurrent queries.

    They are deleted ``kept_s`` after their end.
    """

    running_max: int
    kept_s: float
    statement_memory_bytes: int
    statement_s: float


@dataclass(frozen=True, slots=True)
class QueryWork:
    """Runs the queries of an instance."""

    instance: Instance
    engines: Engines
    limits: QueryLimits

    def result(self, query: SubmittedQuery, number: int, report: Report) -> QueryResult:
        """Return the published result of a query, made by this attempt or by an earlier one that died before it
        recorded the result. Raises KeyboardInterrupt if the calling thread is asked to stop.
        """
        place = target_of(query, self.instance)
        target = place.connect()
        done = finished_result(target, query.id)
        if done is not None:
            return done
        attempt = Attempt.numbered(query.id, number, target, query.file_format)
        principal = Principal.from_json(query.principal)
        if query.url is not None:
            self._record(query, target.url)
        if query.scan is not None:
            return self._scanned(query.scan, principal, attempt, place, report)
        assert query.statement is not None
        return self._answered(query.statement, principal, attempt, report)

    def _record(self, query: SubmittedQuery, url: str) -> None:
        """Record the folder as a copy of each table that the query may read, before anything is written."""
        storage = self.instance.storage
        if query.scan is not None:
            record_copy(storage, query.scan.table_id, CopyKind.QUERY, url, query.scan.version)
            return
        for name in self.instance.tables():
            table = self.instance.table(name)
            if may_read(query, table.id, name):
                record_copy(storage, table.id, CopyKind.QUERY, url, table.state().version)

    def _scanned(
        self, asked: AskedScan, principal: Principal, attempt: Attempt, place: Root, report: Report
    ) -> QueryResult:
        wanted = ScanQuery(
            tuple(map(decode_bounds, asked.ranges)),
            asked.columns,
            asked.where,
            asked.limit,
            asked.reverse,
            asked.raw,
            principal.policy(asked.table),
        )
        table = self.instance.opened(CatalogTable(asked.table_id, asked.table))
        with table.pin(asked.version) as snapshot:
            size_bytes = plan_query(table, snapshot, wanted, cores=1).size_bytes
            with self.engines.pipeline(size_bytes) as pipeline:
                maintenance = pipeline.maintenance(table)
                planned = plan_query(table, snapshot, wanted, maintenance.cores)
                execute = query_tasks(maintenance.executor, maintenance.place, place, report)
                return run_query(table, planned, attempt, execute)

    def _answered(self, statement: str, principal: Principal, attempt: Attempt, report: Report) -> QueryResult:
        memory_bytes, cancelled = self.limits.statement_memory_bytes, threading.Event()
        limits = Limits(memory_bytes, self.limits.statement_s, cancelled)
        with (
            current_stop().cancelling(cancelled.set),
            scratch_folder("query") as folder,
            run_statement(principal, self.instance, statement, limits) as rows,
        ):
            return write_stream(
                rows,
                attempt,
                folder,
                memory_limit_bytes=memory_bytes,
                progress=lambda done: report(Progress(done, 0)),
            )


def target_of(query: SubmittedQuery, instance: Instance) -> Root:
    """Return the target of the rows of a query: below its URL, or beside the query."""
    return place_of(query.url or f"{instance.url}/{query_object(query.id, ROWS)}", instance)


def may_pass(error: Exception) -> bool:
    """Return whether another attempt may succeed: a store or Spark was unavailable."""
    return not is_fault(error) and not (isinstance(error, Error) and error.facts.get("transient") is False)
