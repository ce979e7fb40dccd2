"""Maintains one table: ingests, compacts, rewrites, splits, joins and searches, by the tasks of a pipeline.

:class:`Maintenance` plans, has tasks run, and commits. The executor starts what it needs only if there are tasks.

Core types: :class:`Maintenance`, :class:`MaintenanceReport`.

Errors: DamagedError of the first partition that could not be compacted, after the others were; those of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.errors import Error, RejectedError
from lakebed.jobs.executor import Executor, Root, TableCall
from lakebed.jobs.interrupt import current_stop
from lakebed.jobs.job_progress import Callback, in_phase, watching
from lakebed.jobs.tasks import (
    attach_tasks,
    entries_tasks,
    export_tasks,
    ingest_tasks,
    merge_tasks,
    rewrite_tasks,
    search_tasks,
)
from lakebed.model.checks import check_request_key
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.operations import OPERATIONS, TableOperation, WorkKind
from lakebed.model.reports import WorkReport
from lakebed.model.settings import Publish
from lakebed.read.inspect.history import committed_on_interrupt
from lakebed.table.tracker.runs import Begun
from lakebed.upkeep.compaction.plan import whole
from lakebed.upkeep.compaction.run import CompactionReport, Prepared, compact, prepare
from lakebed.upkeep.export.run import ExportReport, ExportRequest, export
from lakebed.upkeep.ingest_jobs import IngestReport, ingest
from lakebed.upkeep.ingest_jobs import prepare as prepare_ingest
from lakebed.upkeep.publish.run import UNPUBLISHABLE, PublishReport, partitions_to_rewrite, publish
from lakebed.upkeep.retention.erasure.run import ErasureReport, RowsSought, erase_report
from lakebed.upkeep.retention.run import CollectionReport, collect_garbage
from lakebed.upkeep.rewrite.run import RewriteReport, RewriteRequest, rewrite
from lakebed.upkeep.rewrite.run import prepare as prepare_rewrite
from lakebed.upkeep.splitting.plan import small
from lakebed.upkeep.splitting.run import JoinReport, SplitReport, join, split
from lakebed.write.attach import AttachReport, attach
from lakebed.write.imports import ImportReport, SourceReading
from lakebed.write.plan import Method

if TYPE_CHECKING:
    from lakebed.jobs.bulk_import.importer import Importer
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table
    from lakebed.table.tracker.recorder import RunHandle
    from lakebed.upkeep.compaction.failed_partitions import FailedPartitions
    from lakebed.upkeep.migration.run import MigrationPlan, MigrationReport, Selection
    from lakebed.upkeep.view_feed import RefreshReport

ROUNDS_MAX = 8
"""Rounds of compacting, splitting and joining in one call. Each makes partitions smaller; two are enough as a rule."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """The result of a round of maintenance, in order; empty parts had nothing to do.

    ``paused`` operations were skipped. ``others`` are the reports of operations that are none of these.
    """

    table: str
    online: bool
    paused: tuple[str, ...]
    ingest: IngestReport
    compactions: tuple[CompactionReport, ...]
    splits: tuple[SplitReport, ...]
    joins: tuple[JoinReport, ...]
    collection: CollectionReport
    others: tuple[WorkReport, ...] = ()


@dataclass(frozen=True, slots=True)
class DivisionReport(WorkReport):
    """The result of splitting and joining, with the compaction that a split needed; None: it needed none."""

    split: SplitReport
    compacted: CompactionReport | None
    join: JoinReport

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        return f"{self.split.summary}, {self.join.summary}"

    @property
    def idle(self) -> bool:
        """Whether no partition was cut, compacted or joined."""
        return all(part.idle for part in self.parts)

    @property
    def parts(self) -> tuple[WorkReport, ...]:
        """The reports of the steps."""
        return tuple(part for part in (self.split, self.compacted, self.join) if part is not None)


@dataclass(frozen=True, slots=True)
class Unpublished(WorkReport):
    """A table whose latest version was not published, and why; ``refused`` None: it is not to be published.

    A version that cannot be published before a compaction is no error: a later one will be.
    """

    table: str
    refused: Error | None
    version: int | None = None

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        return "not published" if self.refused is None else f"not published: {self.refused.message}"

    @property
    def idle(self) -> bool:
        """Whether there was nothing to publish."""
        return self.refused is None

    @property
    def error(self) -> Error | None:
        """The error, unless the table has to be compacted."""
        return None if self.refused is None or self.refused.code in UNPUBLISHABLE else self.refused


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The maintenance of one table. ``failures`` are partitions that compactions leave out and add to; None: none."""

    table: Table
    executor: Executor
    place: Root
    progress: Callback | None = None
    failures: FailedPartitions | None = None
    instance: Instance = field(kw_only=True)

    @property
    def cores(self) -> int:
        """How many tasks of the table run at once."""
        return self.executor.cores(self.table.settings_in_force().memory_limit_bytes)

    def ingest(self, *, force: bool = False, method: Method | None = None) -> IngestReport:
        """Carry out the open requests that are due, or all; errors that are no file's fault are in the report."""
        with self.tracked(WorkKind.INGEST) as run:
            planned = prepare_ingest(self.table, force=force, method=method)
            execute = ingest_tasks(self.executor, TableCall(self.table, self.place, watching(run)))
            return run.reported(ingest(self.table, planned, execute, cores=self.cores if planned.jobs else 1))

    def bulk_import(
        self,
        source: Any,
        format: str | None,
        job_id: str | None,
        reading: SourceReading,
        *,
        partition_rows: int | None = None,
    ) -> ImportReport:
        """Import a source; see :meth:`lakebed.jobs.pipeline.Pipeline.bulk_import`."""
        with self.tracked(WorkKind.IMPORT, key=job_id) as run, optional_imports():
            importer = self._importer(watching(run, self.progress), partition_rows)
            return run.reported(importer.run(source, format, job_id, reading))

    def migrate(self, planned: MigrationPlan, chosen: Selection) -> MigrationReport:
        """Add the rows of a table of another system, as those of an import."""
        from lakebed.jobs.bulk_import.migration import migrate_rows

        with self.tracked(WorkKind.IMPORT, key=planned.request_key) as run, optional_imports():
            return run.reported(migrate_rows(self._importer(watching(run, self.progress)), planned, chosen))

    def refresh(self, *, anew: bool = False) -> RefreshReport:
        """Add to the table, a view, what its source has gained; see :meth:`lakebed.jobs.pipeline.Pipeline.refresh`."""
        from lakebed.upkeep.view_feed import beside_others, refresh, view_source

        with self.tracked(WorkKind.REFRESH) as run:
            fed = self.table.state().view
            if fed is not None and fed.index is not None:
                from lakebed.upkeep.index_feed import Workers, feed_index

                workers = Workers(entries_tasks(self.executor, self.place), lambda: self.cores)
                source = self.instance.named(fed.table)
                return run.reported(beside_others(lambda: feed_index(self.table, source, anew=anew, workers=workers)))
            source = self.instance.named(view_source(self.table).table)
            from lakebed.jobs.bulk_import.view_backfill import backfill

            feed = partial(backfill, self._importer(), source)
            return run.reported(beside_others(lambda: refresh(self.table, source, anew=anew, backfill=feed)))

    def attach(self, source: Any, job_id: str | None) -> AttachReport:
        """Add sorted files as they are; see :meth:`lakebed.jobs.pipeline.Pipeline.attach`."""
        with self.tracked(WorkKind.ATTACH, key=job_id) as run:
            return run.reported(attach(self.table, source, job_id, attach_tasks(self.executor, self.place)))

    def export(self, target: Root, wanted: ExportRequest, at: int | None, job_id: str | None = None) -> ExportReport:
        """Export a version; see :meth:`lakebed.jobs.pipeline.Pipeline.export`."""
        with self.tracked(WorkKind.EXPORT) as run, self.table.pin(at) as snapshot:
            execute = export_tasks(self.executor, self.place, target, watching(run, in_phase(self.progress, "export")))
            made = export(
                self.table, snapshot, target.connect(), wanted, execute, cores=lambda: self.cores, job_id=job_id
            )
            return run.reported(made)

    def compact(self, strategy: str | None = None) -> CompactionReport:
        """Merge the runs that the strategy picks. Raises UsageError for an unknown strategy, and as :meth:`merge`."""
        return self._raised(self.merge_due(strategy))

    def merge_due(self, strategy: str | None = None) -> CompactionReport:
        """Merge the runs that the strategy picks; partitions that could not be merged are in the report."""
        prepared = prepare(self.table, strategy)
        return self.merge(prepared) if self.failures is None else self.failures.around(prepared, self.merge)

    def merge(self, prepared: Prepared) -> CompactionReport:
        """Carry out a plan; partitions that could not be merged are in the report."""
        merges = (*prepared.planned.whole, *prepared.planned.merges)
        rows = sum(merge.rows for merge in merges)
        with self.tracked(WorkKind.COMPACTION, rows, sum(merge.size_bytes for merge in merges)) as run:
            execute = merge_tasks(self.executor, self.place, watching(run, in_phase(self.progress, "merge")), rows)
            # With merges, a session is started here, before several threads need it.
            return run.reported(compact(self.table, prepared, execute, cores=self.cores if merges else 1))

    def rewrite(self, wanted: RewriteRequest) -> RewriteReport:
        """Delete or change rows; see :meth:`lakebed.jobs.pipeline.Pipeline.rewrite`."""
        prepared = prepare_rewrite(self.table, wanted)
        rows = sum(one.rows for one in prepared.planned)
        with self.tracked(WorkKind.REWRITE, rows) as run:
            execute = rewrite_tasks(self.executor, self.place, watching(run, in_phase(self.progress, "rewrite")), rows)
            cores = self.cores if prepared.planned else 1
            return run.reported(rewrite(self.table, prepared, execute, cores=cores, check=current_stop().check))

    def search(self, rows: RowsSought, also: Sequence[str], options: Mapping[str, str]) -> ErasureReport:
        """Find the objects that hold such rows; see :meth:`lakebed.jobs.pipeline.Pipeline.erase_report`."""
        with self.tracked(WorkKind.ERASE_REPORT) as run:
            execute = search_tasks(self.executor, self.place, watching(run, in_phase(self.progress, "search")))
            return erase_report(self.table, rows, also, options, execute)

    def split(self) -> SplitReport:
        """Cut the partitions that exceed a limit."""
        with self.tracked(WorkKind.SPLIT) as run, committed_on_interrupt(self.table.log):
            return run.reported(split(self.table))

    def join(self) -> JoinReport:
        """Join small neighbours; those that a file keeps apart are compacted first."""
        groups = small(self.table.state(), self.table.settings_in_force())
        compacted = self.merge(Prepared(whole(self.table.state(), [one for g in groups for one in g.compact_first])))
        with self.tracked(WorkKind.JOIN) as run:
            joined = run.reported(join(self.table))
        self._raised(compacted)
        return joined

    def divide(self) -> DivisionReport:
        """Cut large partitions, which are compacted first where that is necessary, and join small ones."""
        cut = self.split()
        compacted = None
        if cut.compact_first:
            compacted = self._raised(self.merge(Prepared(whole(self.table.state(), cut.compact_first))))
        return DivisionReport(cut, compacted, self.join())

    def publish(self, *, compact: bool = False, raw: bool | None = None) -> PublishReport:
        """Publish the latest version for other engines; see :meth:`lakebed.jobs.pipeline.Pipeline.publish`."""
        with self.tracked(WorkKind.PUBLISH) as run:
            for mend in (self._merge_all, self._rewrite_unpublishable) if compact else ():
                try:
                    return run.reported(publish(self.table, raw=raw))
                except RejectedError as error:
                    if error.code not in UNPUBLISHABLE:
                        raise
                mend()
            return run.reported(publish(self.table, raw=raw))

    def publish_latest(self) -> PublishReport | Unpublished:
        """Publish the latest version if the table has the setting; why that was not possible is in the report.

        An index has the setting of its instance, and is not read by engines either.
        """
        table = self.table
        if table.settings_in_force().publish is Publish.NONE or table.state().is_index:
            return Unpublished(table.name, None)
        try:
            return self.publish()
        except Error as error:
            return Unpublished(table.name, error)

    def _merge_all(self) -> None:
        self._raised(self.compact("full"))

    def _rewrite_unpublishable(self) -> None:
        """Rewrite the files that other engines cannot read, each with the others of its partitions."""
        self._raised(self.merge(Prepared(whole(self.table.state(), partitions_to_rewrite(self.table)))))

    def collect(self) -> CollectionReport:
        """Delete files that no version needs, and truncate the log."""
        with self.tracked(WorkKind.GC) as run, committed_on_interrupt(self.table.log):
            report = run.reported(collect_garbage(self.table))
        self.table.tracker.trim_if_due()
        return report

    def maintain(self, *, online: bool, paused: Collection[str] = ()) -> MaintenanceReport:
        """Run all operations that are not paused, in their order; some of them only if the table is ``online``.

        Neighbours that repeat are run by turns. Work that was crowded out is tried again last.
        """
        active = [one for one in OPERATIONS.values() if one.in_calls and (online or not one.needs_online)]
        made: list[tuple[TableOperation, WorkReport]] = []

        def run(operation: TableOperation) -> WorkReport:
            current_stop().check()
            report = operation.run(self)
            if operation.repeats and report.error is not None:
                raise report.error
            made.append((operation, report))
            return report

        for repeats, several in groupby((one for one in active if one.name not in paused), attrgetter("repeats")):
            turns = tuple(several)
            for _ in range(ROUNDS_MAX if repeats else 1):
                reports = [run(one) for one in turns]
                if all(report.idle for report in reports):
                    break
        if any(one.repeats and not report.idle for one, report in made):
            for operation in [one for one, report in made if report.crowded_out]:
                run(operation)
        for report in {one.name: report for one, report in made}.values():
            # Raised last, so that an unavailable store of sources does not block the other operations.
            if report.error is not None:
                raise report.error
        parts = [part for _, report in made for part in report.parts]
        return _combined(self.table.name, parts, online=online, paused=paused)

    def tracked(
        self, operation: str, rows_total: int = 0, bytes_total: int = 0, *, key: str | None = None
    ) -> AbstractContextManager[RunHandle]:
        """Record the block as a run on this table. Raises UsageError for a key that is no request key."""
        if key is not None:
            check_request_key("job_id", key)
        table = self.table
        return table.tracker.running(
            Begun(
                operation=operation,
                table=table.name,
                table_id=table.id,
                base_version=table.version,
                rows_total=rows_total,
                bytes_total=bytes_total,
                key=key,
            )
        )

    def _importer(self, progress: Callback | None = None, partition_rows: int | None = None) -> Importer:
        """Return what imports into the table, as a part of the call of this thread."""
        from lakebed.jobs.bulk_import.importer import Importer

        return Importer(self.executor, TableCall(self.table, self.place, progress), partition_rows)

    def _raised(self, report: CompactionReport) -> CompactionReport:
        if report.failed:
            raise report.failed[0].error
        return report


Part = TypeVar("Part", bound=WorkReport)


def _combined(table: str, parts: Sequence[WorkReport], *, online: bool, paused: Collection[str]) -> MaintenanceReport:
    def changed(kind: type[Part]) -> tuple[Part, ...]:
        return tuple(part for part in parts if isinstance(part, kind) and not part.idle)

    ingests = [part for part in parts if isinstance(part, IngestReport)]
    listed = (IngestReport, CompactionReport, SplitReport, JoinReport, CollectionReport)
    return MaintenanceReport(
        table,
        online,
        tuple(sorted(paused)),
        reduce(IngestReport.followed_by, ingests) if ingests else IngestReport(table),
        changed(CompactionReport),
        changed(SplitReport),
        changed(JoinReport),
        next((part for part in parts if isinstance(part, CollectionReport)), CollectionReport(table)),
        tuple(part for part in changed(WorkReport) if not isinstance(part, listed)),
    )
