"""Runs submitted queries: those submitted to this service, and those whose service died.

A query is a folder of objects (:mod:`lakebed.table.tracker.submitted_queries`), so any service of the instance can
show it, cancel it and take it over. This service claims the queries submitted to it; a limited number runs at once,
and the others wait. A thread writes their heartbeats, stops queries that another service cancelled, looks for queries
that wait or were lost, and deletes expired ones.

Each run is on record as a job whose id is the query's.

Core types: :class:`SubmittedQueries`. Errors: NotFoundError, StorageError.
"""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from msgspec import structs

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.jobs.interrupt import Stop, stoppable
from lakebed.jobs.job_progress import Progress
from lakebed.model.operations import WorkKind
from lakebed.model.version import this_writer
from lakebed.model.wording import count_text
from lakebed.server.security.principal import Principal
from lakebed.server.service.query_work import QueryLimits, QueryWork, may_pass, target_of
from lakebed.storage.processes import this_process
from lakebed.table.tracker.runs import Begun, RunPlace
from lakebed.table.tracker.submitted_queries import (
    LOST_S,
    UNDER_WAY,
    AskedScan,
    FoundQuery,
    QueryAttempt,
    QueryEnd,
    QueryObjects,
    QueryState,
    SubmittedQuery,
    shown_state,
)
from lakebed.upkeep.export.publication import check_empty
from lakebed.upkeep.export.query_result import result_at

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.server.service.engines import Engines
    from lakebed.table.instance import Instance

_LOG = logging.getLogger("lakebed.queries")

BEAT_S = LOST_S / 6
"""How often a sign of life is written, and the end of a query is looked for."""

LOOK_S = 60.0
"""How often queries that wait are looked for; each look is one request."""

EXPIRE_S = 3600.0

LOOK_EVERY_S = 0.5
"""Pauses of the thread that does these; meanwhile it cancels the tasks of queries that were stopped."""

LOST_MAX = 3
"""A query whose service died so often has failed: it may be what the services die of."""

ATTEMPTS_MAX = 10
"""Attempts of a query that meets a store or Spark that is away."""


@dataclass(slots=True)
class _HeldQuery:
    """An attempt of this service, which waits or runs."""

    query: SubmittedQuery
    attempt: QueryAttempt
    stop: Stop = field(default_factory=Stop)


class SubmittedQueries:
    """The queries of an instance, of which this service runs some. Safe to use from many threads.

    Without ``engines``, as for an instance in memory, there are none and none is taken.
    """

    def __init__(self, instance: Instance, engines: Engines | None, limits: QueryLimits) -> None:
        self._instance = instance
        self._work = None if engines is None else QueryWork(instance, engines, limits)
        self._limits = limits
        self._objects = QueryObjects(instance.storage)
        self._threads = ThreadPoolExecutor(limits.running_max, "lakebed-query")
        self._runs: dict[str, _HeldQuery] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to look for waiting queries."""
        if self._work is not None:
            self._thread = threading.Thread(target=self._look_after, name="lakebed-queries", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the queries that run here; other services, or the next one, run them from the beginning."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        while True:
            with self._lock:
                runs = list(self._runs.values())
            if not runs:
                break
            for run in runs:
                run.stop.ask()
                run.stop.cancel()
            clock.sleep(0.05)
        self._threads.shutdown()

    # -- what callers do ------------------------------------------------------------------------------------------

    def submit(  # noqa: PLR0913 - a query, whose, and where its rows go
        self,
        principal: Principal,
        asked: dict[str, object],
        *,
        scan: AskedScan | None = None,
        statement: str | None = None,
        url: str | None = None,
        file_format: str = "parquet",
        query_id: str | None = None,
    ) -> QueryState:
        """Record a query, and queue it. A repeat with the same ``query_id`` submits nothing.

        Raises ExistsError if the folder ``url`` is not empty, UsageError if another query has the id.
        """
        if self._work is None:
            raise Code.INSTANCE_IN_MEMORY(
                f"{self._instance.url} is in the memory of this process, and queries that are submitted run in others",
                url=self._instance.url,
            )
        earlier = None if query_id is None else self._objects.find(query_id)
        if earlier is not None:
            return self._repeated(earlier, principal, asked)
        query = SubmittedQuery(
            id=query_id or clock.new_id(),
            submitted_by=principal.name,
            principal=principal.to_json(),
            asked=asked,
            created_at=clock.now(),
            kept_s=self._limits.kept_s,
            scan=scan,
            statement=statement,
            url=url,
            file_format=file_format,
        )
        if url is not None:
            check_empty(target_of(query, self._instance).connect())
        if not self._objects.submit(query):
            return self._repeated(self._objects.query(query.id), principal, asked)
        run = self._claim(query, 1)
        return shown_state(query, None if run is None else run.attempt, None)

    def _repeated(self, earlier: SubmittedQuery, principal: Principal, asked: dict[str, object]) -> QueryState:
        """Return the state of the query that a request has submitted before."""
        if (earlier.submitted_by, earlier.asked) != (principal.name, asked):
            raise Code.ARGUMENT_INVALID(f"another query has the id {earlier.id}: give each query an id of its own")
        return self.state(earlier)

    def state(self, query: SubmittedQuery) -> QueryState:
        """Return the state of a query."""
        with self._lock:
            run = self._runs.get(query.id)
        return self._objects.state(query) if run is None else shown_state(query, run.attempt, None)

    def query(self, query_id: str) -> SubmittedQuery:
        """Return the query. Raises NotFoundError."""
        return self._objects.query(query_id)

    def queries(self) -> Iterator[SubmittedQuery]:
        """Return all queries, the newest first."""
        for found in self._objects.found():
            # It may be deleted meanwhile.
            with suppress(Error):
                yield self._objects.query(found.id)

    def cancel(self, query: SubmittedQuery) -> QueryState:
        """End a query that has not ended, wherever it runs; delete one that has, with its rows if they are kept."""
        if self._objects.end(query.id, QueryEnd(state="cancelled", ended_at=clock.now())):
            self._stop(query.id)
            return self._objects.state(query)
        state = self._objects.state(query)
        self._objects.delete(query.id)
        return state

    def rows(self, query: SubmittedQuery) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the rows of a completed query.

        Raises UsageError for one that is not, or whose rows are in text files.
        """
        state = self.state(query)
        if state.state != "completed":
            more = "" if state.state in UNDER_WAY else "; submit it again"
            raise Code.ARGUMENT_INVALID(
                f"query {query.id} is {state.state}; its rows are there once it is completed{more}"
            )
        if query.file_format != "parquet":
            raise Code.ARGUMENT_INVALID(f"the rows of query {query.id} are {query.file_format} files at {query.url}")
        target = target_of(query, self._instance).connect()
        result = result_at(target, query.id)
        if result is None:
            raise Code.QUERY_NOT_FOUND(f"the rows of query {query.id} are not at {target.url} any more", query=query.id)

        def batches() -> Iterator[pa.RecordBatch]:
            import pyarrow.parquet as pq

            for name in result.files:
                with target.fetch(name) as path, pq.ParquetFile(path) as file:
                    yield from (batch.cast(result.columns) for batch in file.iter_batches())

        return result.columns, batches()

    # -- attempts -------------------------------------------------------------------------------------------------

    def _claim(self, query: SubmittedQuery, number: int) -> _HeldQuery | None:
        where = RunPlace(platform.node(), this_process(), writer=this_writer())
        attempt = QueryAttempt(number=number, token=clock.random_token(), where=where, updated_at=clock.now())
        if not self._objects.claim(query.id, attempt):
            return None
        run = _HeldQuery(query, attempt)
        with self._lock:
            self._runs[query.id] = run
        self._threads.submit(self._run, run)
        return run

    def _run(self, run: _HeldQuery) -> None:
        """Run the query and record its outcome, in a thread of the pool."""
        query = run.query
        try:
            end = None if self._stopped.is_set() else self._ended(run)
            if end is not None:
                self._objects.end(query.id, end)
            else:
                self._objects.release(query.id, run.attempt)
        except Exception as error:  # noqa: BLE001 - the store is away: the query is lost, and taken over
            _LOG.warning("query %s could not be ended: %s", query.id, error)
        finally:
            with self._lock:
                self._runs.pop(query.id, None)

    def _ended(self, run: _HeldQuery) -> QueryEnd | None:
        """Run the query; None if it was stopped, or if another attempt may do what this one could not."""
        query = run.query
        name, table_id = ("", "") if query.scan is None else (query.scan.table, query.scan.table_id)
        begun = Begun(
            operation=WorkKind.QUERY,
            table=name,
            table_id=table_id,
            id=query.id,
            created=query.created_at,
            base_version=None if query.scan is None else query.scan.version,
            tries=run.attempt.number,
        )
        work = self._work
        assert work is not None
        self._note(run, started_at=clock.now())
        try:
            with self._instance.tracker.running(begun) as handle:

                def report(progress: Progress) -> None:
                    done, total = progress.rows_done, progress.rows_total
                    handle.progress(rows_done=done, rows_total=total)
                    self._note(run, rows=done, rows_total=total)

                try:
                    result = stoppable(run.stop, lambda: work.result(query, run.attempt.number, report))
                except Exception as error:  # noqa: BLE001 - a query may fail in any way
                    handle.failed(error)
                    return self._failed(run, error)
                handle.progress(rows_done=result.rows, bytes_done=result.size_bytes)
                handle.ended(None, f"{count_text(result.rows, 'row')} in {count_text(len(result.files), 'file')}")
        except KeyboardInterrupt:
            return None
        rows, files = result.rows, len(result.files)
        return QueryEnd(state="completed", ended_at=clock.now(), rows=rows, size_bytes=result.size_bytes, files=files)

    def _failed(self, run: _HeldQuery, error: Exception) -> QueryEnd | None:
        if may_pass(error) and run.attempt.number < ATTEMPTS_MAX:
            return None
        if not isinstance(error, Error):
            _LOG.error("query %s failed", run.query.id, exc_info=error)
            error = Code.INTERNAL_ERROR("the service failed; its log says why")
        return self._end_of(error)

    def _end_of(self, error: Error) -> QueryEnd:
        return QueryEnd(state="failed", ended_at=clock.now(), error=self._instance.tracker.error_of(error))

    def _note(self, run: _HeldQuery, **changes: object) -> None:
        with self._lock:
            run.attempt = structs.replace(run.attempt, updated_at=clock.now(), **changes)

    def _stop(self, query_id: str) -> None:
        with self._lock:
            run = self._runs.get(query_id)
        if run is not None:
            run.stop.ask()
            run.stop.cancel()

    # -- the thread that looks after queries ------------------------------------------------------------------------

    def _look_after(self) -> None:
        beaten_s = looked_s = expired_s = -inf
        while not self._stopped.wait(LOOK_EVERY_S):
            now_s = clock.monotonic_s()
            try:
                if now_s - beaten_s >= BEAT_S:
                    beaten_s = now_s
                    self.beat()
                if now_s - looked_s >= LOOK_S:
                    looked_s = now_s
                    self.look()
                if now_s - expired_s >= EXPIRE_S:
                    expired_s = now_s
                    self._objects.expire()
                self._cancel_stopped()
            except Error as error:
                _LOG.warning("submitted queries could not be looked after: %s", error)

    def beat(self) -> None:
        """Write a heartbeat of each query that runs or waits here, and stop those that ended elsewhere."""
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            self._note(run)
            if self._objects.has_ended(run.query.id):
                run.stop.ask()
            elif run.query.id in self._runs:
                self._objects.beat(run.query.id, run.attempt)

    def look(self) -> None:
        """Claim queries that wait or were lost, as many as can run now."""
        waiting = [one for one in self._objects.found() if one.ended is None and one.id not in self._runs]
        if not waiting:
            return
        now = self._instance.storage.now()
        # The oldest first.
        for one in reversed(waiting):
            if len(self._runs) >= self._limits.running_max:
                break
            if one.is_waiting(now):
                self._take(one)

    def _take(self, found: FoundQuery) -> None:
        query = self._objects.query(found.id)
        if found.lost_attempts >= LOST_MAX:
            error = Code.INTERNAL_ERROR(
                f"the services that ran query {query.id} ended {found.lost_attempts} times while they did"
            )
            self._objects.end(query.id, self._end_of(error))
        else:
            self._claim(query, found.attempt + 1)

    def _cancel_stopped(self) -> None:
        """Cancel again: tasks may have begun just after they were cancelled."""
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            if run.stop.asked:
                run.stop.cancel()
