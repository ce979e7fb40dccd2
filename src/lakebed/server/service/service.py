"""A service of one instance: maintains its tables in the background, and answers requests, such as those of HTTP.

One thread follows the catalog and the tables, plans (:mod:`lakebed.server.service.plan`) and begins operations, each
of which runs in a thread of its own until it has committed. Any number of services may work on one instance: due
operations are derived from the logs, a compaction job is claimed in the table's state, and the log decides which of
two commits is valid. The other service only loses the work of an attempt. A service stores no state of its own, so it
may be killed at any point.

Core types: :class:`Service`.

Source: docs/service.md.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.jobs.interrupt import Stop, stoppable
from lakebed.jobs.job_progress import Progress
from lakebed.jobs.pipeline import Pipeline
from lakebed.model.operations import OPERATIONS, Publication, operations_named
from lakebed.model.table_summary import Record
from lakebed.model.version import VERSION
from lakebed.server.security.sql import spare_workers
from lakebed.server.service.declared_followers import DeclaredFollowers
from lakebed.server.service.engines import Engines
from lakebed.server.service.follower import Follower
from lakebed.server.service.hook_delivery import Hooks
from lakebed.server.service.parking import Parking
from lakebed.server.service.plan import Due, ServiceLimits, choose, failed, succeeded
from lakebed.server.service.publications import Publications
from lakebed.server.service.recent_reads import RecentReads
from lakebed.server.service.status import LastError, ServiceStatus, SparkState, StoreRequests, TableStatus, Work
from lakebed.server.service.watch import Watch, error_now
from lakebed.storage import telemetry
from lakebed.storage.client_errors import SENT
from lakebed.storage.disk_space import delete_abandoned_folders
from lakebed.table.instance import Instance
from lakebed.table.tracker.recorder import noting
from lakebed.table.tracker.runs import Begun
from lakebed.upkeep.compaction.failed_partitions import PARTITION_TRIES_MAX, FailedPartitions, is_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakebed.jobs.executor import Launcher
    from lakebed.jobs.job_progress import Callback
    from lakebed.server.service.subscriptions import Subscription
    from lakebed.table.table import Table
    from lakebed.upkeep.publish.catalogs import Target
    from lakebed.upkeep.view_feed import RefreshReport

START_S = 2.0
"""How long the first look at all tables may hold up the start."""

STOP_S = 30.0
"""How long operations may take to end after they were cancelled: a commit that has begun is finished."""

CANCEL_EVERY_S = 0.5

Key = tuple[str, str]


@dataclass(slots=True)
class _Running:
    """A running operation."""

    due: Due
    name: str
    since: datetime
    stop: Stop = field(default_factory=Stop)
    progress: Progress = field(default_factory=lambda: Progress(0, 0))


@dataclass(frozen=True, slots=True)
class _Finished:
    """The result of an operation, as a sentence; ``error`` is why a part of it failed."""

    text: str
    error: Error | None = None


@dataclass(frozen=True, slots=True)
class _Ended:
    """How an operation ended, and the versions of the table before and after it; no outcome: it was cancelled."""

    running: _Running
    before: int
    after: int
    outcome: _Finished | BaseException | None


class Service:
    """Maintenance in the background, from :meth:`start` to :meth:`stop`, and the instance for the interfaces.

    Without ``maintain`` tables are only followed for the status; so are those of an instance in memory, which worker
    processes cannot see. ``launcher`` and ``memory_bytes`` are as for :class:`~lakebed.jobs.pipeline.Pipeline` and
    :class:`~lakebed.jobs.worker_pool.InProcess`; workers and Spark are stopped after ``idle_s`` without work. Hooks run
    commands only with ``hook_commands``, and declared followers run only with ``followers``. Published tables are
    pushed to ``catalogs``. ``report`` takes sentences about failures, for a log.
    """

    def __init__(  # noqa: PLR0913 - all that a service may do
        self,
        instance: Instance,
        *,
        launcher: Launcher | str | None = None,
        memory_bytes: int | None = None,
        idle_s: float = 300.0,
        limits: ServiceLimits | None = None,
        maintain: bool = True,
        hook_commands: bool = False,
        followers: bool = False,
        catalogs: Iterable[Target] = (),
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.instance = instance
        self.limits = limits or ServiceLimits()
        self.maintains = maintain and instance.storage.locality.shared
        # Submitted queries need them as well.
        shared = instance.storage.locality.shared
        self.engines = Engines(instance, launcher, memory_bytes=memory_bytes, idle_s=idle_s) if shared else None
        self.spare_workers = spare_workers(instance)
        self._report = report or (lambda _: None)
        self.hooks = Hooks(instance, commands=hook_commands, report=self._report)
        self.followers = DeclaredFollowers(instance, self._report, runs=followers)
        self.reads = RecentReads()
        self._started_at: datetime | None = None
        self._error: LastError | None = None
        self._follower = Follower(instance, self.limits, self._report)
        self.publications = Publications(
            instance, self._follower.published, self._report, catalogs, period=self._publication_period
        )
        self._parking = Parking(instance, self._retry)
        self._running: dict[Key, _Running] = {}
        self._news: queue.SimpleQueue[_Ended | Key] = queue.SimpleQueue()
        self._looking = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._followed = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start; returns when all tables were checked once, or after :data:`START_S`."""
        self._started_at = clock.now()
        delete_abandoned_folders()
        self._thread = threading.Thread(target=self._serve, name="lakebed-service", daemon=True)
        self._thread.start()
        self.followers.start()
        self._followed.wait(START_S)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Cancel running operations, finish commits that have begun, and return when nothing is running.

        Returns after ``timeout_s`` in any case; operations that still run then end with the process, and no committed
        row is lost.
        """
        self._stopping.set()
        self._wake.set()
        deadline_s = clock.monotonic_s() + timeout_s
        if self._thread is not None:
            self._thread.join(timeout_s)
        self.hooks.subscriptions.stop()
        self.publications.subscriptions.stop()
        while self._running and clock.monotonic_s() < deadline_s:
            for running in list(self._running.values()):
                running.stop.ask()
                running.stop.cancel()
            self._wake.wait(CANCEL_EVERY_S)
            self._take_news()
        self.followers.stop(max(0.0, deadline_s - clock.monotonic_s()))
        self._follower.close()
        self.spare_workers.close()
        if self.engines is not None:
            self.engines.close()

    def run_once(self) -> ServiceStatus:
        """Run all due operations on all tables in this thread, and return the status afterwards; for a scheduler.

        An operation that failed is in the status with its error. A KeyboardInterrupt cancels running operations.
        """
        if self.engines is None:
            raise Code.INSTANCE_IN_MEMORY(
                f"{self.instance.url} is in the memory of this process, and tasks, which are other processes, cannot "
                "see it; use a folder or an object store",
                url=self.instance.url,
            )
        self._started_at = clock.now()
        self._follower.spread = False
        self.limits = self._follower.limits = replace(self.limits, periods=dict.fromkeys(OPERATIONS, 0.0))
        try:
            self._round()
            while self._running and self._follower.error is None:
                self._wake.wait(CANCEL_EVERY_S)
                self._round()
            self.hooks.subscriptions.finish()
            self.publications.subscriptions.finish()
        finally:
            self.stop()
        return self.status()

    def retry(self, table: str, operation: str) -> None:
        """Retry an operation that is parked or waits after failures. Raises UsageError, NotFoundError."""
        (named,) = operations_named([operation])
        self._news.put((self.instance.table(table).id, named))
        self._wake.set()

    def refresh(self, table: Table, *, anew: bool = False) -> RefreshReport:
        """Bring a view or an index up to date in this call; see :meth:`lakebed.Pipeline.refresh`."""
        if self.engines is None:
            with Pipeline(self.instance, launcher="this-thread", progress=None) as pipeline:
                return pipeline.refresh(table, anew=anew)
        with self.engines.pipeline(0) as pipeline:
            return pipeline.refresh(table, anew=anew)

    def status(self) -> ServiceStatus:
        """Return the current status, from memory; a service that was not started checks all tables first."""
        self._look_unless_started()
        work = [
            Work(one.name, one.due.operation, one.since, one.progress.rows_done, one.progress.rows_total)
            for one in list(self._running.values())
        ]
        published = self.publications.status()
        watches = list(self._follower.watches.values())
        tables = sorted((self._with_publication(watch.status(), published) for watch in watches), key=_by_name)
        sent = SENT.last_hour()
        return ServiceStatus(
            started_at=self._started_at,
            version=VERSION,
            spark=SparkState.NONE if self.engines is None else self.engines.spark,
            work=tuple(work),
            tables=tuple(tables),
            maintains=self.maintains,
            error=self._follower.error or self._error,
            hooks=self.hooks.status(),
            last_hour=StoreRequests.of(sent.puts, sent.gets),
            reads=self.reads.rates(),
            followers=self.followers.status(),
        )

    def _with_publication(self, table: TableStatus, published: Mapping[str, Subscription]) -> TableStatus:
        one, catalogs = published.get(table.id), self.publications.catalogs(table.id)
        found = table if one is None else replace(table, published=one.version, publication_error=one.error)
        return replace(found, catalogs=catalogs) if catalogs else found

    def published(self) -> frozenset[str]:
        """Return the ids of the tables that are to be published, from memory as :meth:`status`."""
        self._look_unless_started()
        return frozenset(self._follower.published())

    def view_lags(self) -> dict[str, int]:
        """Return how many versions of its source each view lacks, by the id of the view; from memory."""
        return self._follower.view_lags()

    def fed_from(self, source: str) -> dict[str, int]:
        """Return the versions of a table (by its id) that its views and indexes have, by their ids; from memory."""
        self._look_unless_started()
        return self._follower.fed_from(source)

    def _publication_period(self, table: str) -> float | None:
        """Return the least time between two publications of a table, by its id; None: it is paused. From memory."""
        watch = self._follower.watches.get(table)
        is_paused = watch is not None and Publication.name in watch.found.paused
        return None if is_paused else self.limits.periods[Publication.name]

    def _look_unless_started(self) -> None:
        if self._started_at is None:
            with self._looking:
                self._follower.look()

    # -- the thread of the service ------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stopping.is_set():
            found = [self._error_of(step) for step in (self._round, self._look_at_subscribers)]
            self._error = next((error for error in found if error is not None), None)
            self._wake.wait(self._follower.pause_s() if self._error is None else self.limits.follow_s)

    def _error_of(self, step: Callable[[], None]) -> LastError | None:
        """Do a step of a round; return its error, with which the service goes on."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the service goes on, and says what it is
            found = error_now(error)
            self._report(f"a round failed: {found.message}")
            return found
        return None

    def _look_at_subscribers(self) -> None:
        heads, followed = self._follower.heads(), self.hooks.subscriptions
        followed.look(heads)
        tables = followed.tables()
        if self.maintains:
            self.publications.subscriptions.look(heads)
            tables |= self.publications.subscriptions.tables()
        self._follower.follow_closely(tables, clock.monotonic_s())

    def _round(self) -> None:
        """Collect finished operations, follow tables that are due to be checked, and begin due operations."""
        self._wake.clear()
        self._take_news()
        now_s = clock.monotonic_s()
        self._follower.follow(now_s)
        self._parking.look(now_s)
        self._followed.set()
        if self.maintains and not self._stopping.is_set():
            waiting = (one for watch in self._follower.waiting.values() for one in watch.waiting)
            for one in choose(waiting, self._running, self.limits):
                self._begin(one)
        if self.engines is not None:
            self.engines.end_idle()
        self.spare_workers.end_idle()

    # -- operations ---------------------------------------------------------------------------------------------

    def _begin(self, one: Due) -> None:
        watch = self._follower.watches[one.table]
        key = (one.table, one.operation)
        running = self._running[key] = _Running(one, watch.found.name, clock.now())
        record = watch.records.get(one.operation) or Record()
        watch.records[one.operation] = replace(record, begun_s=clock.monotonic_s())
        watch.note(one.operation, last_begun=running.since)
        watch.waiting = tuple(due for due in watch.waiting if due is not one)
        threading.Thread(
            target=self._carry_out, args=(running, watch), name=f"lakebed-{one.operation}", daemon=True
        ).start()

    def _carry_out(self, running: _Running, watch: Watch) -> None:
        """Run the operation and record its outcome, in a separate thread."""
        before = after = watch.summary.version
        outcome: _Finished | BaseException | None = None
        recorded: list[BaseException] = []
        try:
            assert self.engines is not None
            table = self.instance.opened(watch.found)
            with self.engines.pipeline(running.due.size_bytes) as pipeline:
                before = table.state().version

                def work() -> _Finished:
                    return _perform(
                        running.due.operation,
                        pipeline,
                        table,
                        watch.failures,
                        lambda progress: setattr(running, "progress", progress),
                    )

                with noting() as recorded:
                    outcome = stoppable(running.stop, work)
            after = table.log.head.version
        except KeyboardInterrupt:
            outcome = None
        except BaseException as error:  # noqa: BLE001 - the outcome of the operation
            outcome = error
            if not any(error is one for one in recorded):
                begun = Begun(
                    operation=OPERATIONS[running.due.operation].kinds[0], table=running.name, table_id=running.due.table
                )
                self.instance.tracker.record_failure(begun, error)
        finally:
            self._news.put(_Ended(running, before, after, outcome))
            self._wake.set()

    def _take_news(self) -> None:
        while True:
            try:
                news = self._news.get_nowait()
            except queue.Empty:
                return
            if isinstance(news, _Ended):
                self._end(news)
            else:
                self._retry(*news)

    def _end(self, ended: _Ended) -> None:
        running, outcome = ended.running, ended.outcome
        operation, table_id = running.due.operation, running.due.table
        del self._running[table_id, operation]
        watch = self._follower.watches.get(table_id)
        if watch is None:
            return
        now_s = clock.monotonic_s()
        record = watch.records[operation]
        watch.note(operation, last_ended=clock.now())
        if isinstance(outcome, _Finished):
            if record.failures:
                self._report(f"table {running.name}: {operation} succeeded after {record.failures} failures")
            watch.records[operation] = succeeded(record, now_s, ended.before, ended.after)
            error = None if outcome.error is None else error_now(outcome.error)
            watch.note(operation, last_outcome=outcome.text, last_error=error, waiting_since=None, next_at=None)
            if outcome.error is not None and watch.failures.parked and not self._parking.has(table_id, operation):
                self._parking.park(watch.found, operation, outcome.error, PARTITION_TRIES_MAX)
        elif outcome is not None and not _is_gone(outcome):
            watch.records[operation] = failed(
                record, now_s, self.limits.retry, clock.jitter_s(1.0), fault=is_fault(outcome)
            )
            self._note_failure(watch, running, error_now(outcome), now_s)
            if watch.records[operation].parked:
                self._parking.park(watch.found, operation, outcome, record.faults + 1)
        watch.stale = True
        watch.follow(self.instance)
        self._follower.plan(watch, now_s)

    def _note_failure(self, watch: Watch, running: _Running, error: LastError, now_s: float) -> None:
        operation = running.due.operation
        record = watch.records[operation]
        wait_s = record.next_s - now_s
        watch.note(
            operation,
            last_outcome=None,
            last_error=error,
            waiting_since=watch.last_runs[operation].waiting_since or error.at,
            next_at=None if record.parked else clock.now() + timedelta(seconds=wait_s),
        )
        if record.parked:
            self._report(
                f"table {running.name}: {operation} is parked after {record.faults} failures: {error.message}; "
                "it is tried again when a retry is asked for"
            )
        elif record.failures == 1:
            self._report(
                f"table {running.name}: {operation} failed: {error.message}; tried again in {wait_s:.1f} s, and so on"
            )

    def _retry(self, table_id: str, operation: str) -> None:
        watch = self._follower.watches.get(table_id)
        if watch is None:
            return
        self._parking.forget(table_id, operation)
        record = watch.records.get(operation) or Record()
        watch.records[operation] = Record(record.begun_s)
        if OPERATIONS[operation].merges:
            watch.failures.clear()
        watch.stale = True
        self._follower.turn(watch, clock.monotonic_s())


def _by_name(table: TableStatus) -> str:
    return table.name


def _is_gone(error: BaseException) -> bool:
    """Return whether the table was dropped during an operation."""
    return isinstance(error, Error) and error.code in (Code.TABLE_DROPPED, Code.TABLE_NOT_FOUND)


def _perform(name: str, pipeline: Pipeline, table: Table, failures: FailedPartitions, progress: Callback) -> _Finished:
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
    return _Finished(f"{report.summary}{waits}{known.summary}", known.error)
