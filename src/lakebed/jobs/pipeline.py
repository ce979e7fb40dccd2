"""The public interface of the pipeline: operations on whole tables, by the tasks of an executor.

Every call plans in this process, has the executor run tasks, and commits in this process. Tasks return metadata and
commit nothing. Workers or a Spark session are started when the first call needs them; splitting and garbage collection
read and write only metadata and need neither.

Core types: :class:`Pipeline`.

Source: docs/spark.md, docs/clusters.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

from lakebed.errors import UsageError
from lakebed.files.formats.reading_options import DETECTED, ReadingOptions
from lakebed.jobs.executor import Launcher, Root, TableCall, frames_of
from lakebed.jobs.interrupt import call, is_in_call
from lakebed.jobs.job_progress import Callback, CallProgress
from lakebed.jobs.launchers import launcher_of
from lakebed.jobs.maintain import Maintenance, MaintenanceReport
from lakebed.jobs.tasks import check_seen, place_of
from lakebed.model.checks import check_method, check_text, tuple_of
from lakebed.model.operations import WorkKind, kind_of_call
from lakebed.read.inspect.history import committed_on_interrupt
from lakebed.table.instance import Instance
from lakebed.table.table import Table
from lakebed.table.tracker.recorder import noting
from lakebed.table.tracker.runs import Begun
from lakebed.upkeep.compaction.run import CompactionReport
from lakebed.upkeep.export.query_result import StatementReport, export_statement
from lakebed.upkeep.export.run import ExportReport, ExportRequest
from lakebed.upkeep.ingest_jobs import IngestReport
from lakebed.upkeep.publish.run import PublishReport
from lakebed.upkeep.retention.erasure.run import ErasureReport, RowsSought
from lakebed.upkeep.retention.run import GcReport, gc
from lakebed.upkeep.rewrite.run import RewriteReport, RewriteRequest
from lakebed.upkeep.splitting.run import JoinReport, SplitReport
from lakebed.write.attach import AttachReport
from lakebed.write.imports import ImportReport, SourceReading
from lakebed.write.plan import method_of

if TYPE_CHECKING:
    from lakebed.engine.statement_parameters import Parameters
    from lakebed.model.keys import KeyRange
    from lakebed.upkeep.migration.foreign_table import ForeignTable
    from lakebed.upkeep.migration.run import MigrationReport, Selection
    from lakebed.upkeep.view_feed import RefreshReport

Given = ParamSpec("Given")
T = TypeVar("T")


def interruptible(
    method: Callable[Concatenate[Pipeline, Table | str, Given], T],
) -> Callable[Concatenate[Pipeline, Table | str, Given], T]:
    """Run a method of :class:`Pipeline` as an interruptible call. A call within a call is part of it."""

    @functools.wraps(method)
    def run(self: Pipeline, table: Table | str, *args: Given.args, **kwargs: Given.kwargs) -> T:
        if is_in_call():
            return method(self, table, *args, **kwargs)
        target = table if isinstance(table, Table) else self.instance.table(table)
        with committed_on_interrupt(target.log):
            begun = Begun(
                operation=kind_of_call(method.__name__),
                table=target.name,
                table_id=target.id,
                base_version=target.version,
                key=_job_id(kwargs),
            )
            with noting() as recorded, self.progress.shown(f"{begun.operation} {target.name}"):
                try:
                    return call(lambda: method(self, target, *args, **kwargs), self.call_thread)
                except Exception as error:
                    # A UsageError is not recorded: the call was refused before it began.
                    if type(error) is not UsageError and not any(error is one for one in recorded):
                        target.tracker.record_failure(begun, error)
                    raise

    return cast("Callable[Concatenate[Pipeline, Table | str, Given], T]", run)


def _job_id(given: Mapping[str, object]) -> str | None:
    job_id = given.get("job_id")
    return job_id if isinstance(job_id, str) else None


class Pipeline:
    """Import, ingest, compaction, rewrites, splitting, joining, export and garbage collection, of one instance.

    Tasks run on Spark where PySpark is installed, and otherwise in worker processes of this machine, which is logged;
    ``executor.name`` says where. A Spark ``session`` is used as it is and never stopped. Without one, ``launcher``
    selects where Spark runs: a master, or the ``sc://`` URL of a Spark Connect server. A session that is active in this
    process is used instead of a master. A session that the pipeline starts is stopped by :meth:`close` or at the end of
    a ``with`` block.

    With ``launcher="in-process"``, or ``"in-process[4]"`` for at most four at once, there is no Spark: tasks run in
    worker processes, which end with :meth:`close` or the ``with`` block. With ``"this-thread"`` they run in this
    process, one after the other. A launcher may also be a value: :class:`~lakebed.InProcess`, or one of
    :mod:`lakebed.spark`.

    ``progress`` is called with the progress of each call; by default a bar shows it on a terminal and in a notebook.

    A KeyboardInterrupt cancels the tasks of the call, finishes a commit that has begun, and leaves the pipeline usable;
    its note says what was committed. A second KeyboardInterrupt does not wait.

    Raises UsageError for an instance in memory if tasks run in other processes, which cannot see it.
    """

    def __init__(
        self,
        instance: Instance,
        session: Any = None,
        *,
        launcher: Launcher | str | None = None,
        progress: Callback | str | None = "auto",
    ) -> None:
        self.launcher = launcher_of(launcher, session)
        self.executor = self.launcher.executor()
        check_seen(instance, self.executor)
        self.instance = instance
        self.progress = CallProgress(progress)
        self._place = Root(instance.url, instance.storage_options, instance.log_url)
        self.call_thread = self.executor.call_thread

    def __repr__(self) -> str:
        return f"Pipeline({self.instance.url!r}, on {self.executor.name})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers, and the session if this pipeline started it."""
        self.instance.tracker.flush()
        self.executor.close()

    @property
    def session(self) -> Any:
        """The Spark session; starts one if there is none. Raises UsageError without Spark."""
        return frames_of(self.executor, "a session").session

    # -- work ---------------------------------------------------------------------------------------------------

    @interruptible
    def bulk_import(  # noqa: PLR0913 - all that describes a source
        self,
        table: Table | str,
        source: Any,
        *,
        format: str | None = None,
        columns: Mapping[str, str] | None = None,
        casts: Sequence[str] = (),
        reading: ReadingOptions | None = None,
        ignore_extra: bool = False,
        select: str | None = None,
        quarantine: str | Path | None = None,
        job_id: str | None = None,
        partition_rows: int | None = None,
        progress: Callback | None = None,
    ) -> ImportReport:
        """Add all rows of a source, sorted, in one atomic commit.

        ``source`` is a path, folder, glob or URI, several of them, or a Spark DataFrame. ``format`` is csv, json,
        parquet, arrow or orc, by default found as in ``Table.write``; or, on Spark, avro, delta, iceberg, or query,
        whose source is a Spark SQL query. ``job_id`` is a request key: a repeat with the same one adds nothing.

        ``columns`` maps fields to the source's columns where the names differ; ``casts`` names the fields whose values
        may be cast; ``reading`` says of text what would be detected; ``ignore_extra`` leaves out columns that the table
        lacks. ``select`` is a Spark SQL query over the view ``source``, whose rows are imported instead. With a
        ``quarantine``, rows that do not fit are written there with the reason, in a folder named by the job.

        Partitions that would exceed ``split_rows`` or ``split_bytes``, or get more than ``partition_rows`` rows, are
        cut before the import, at sampled keys, and stay cut if it fails. See docs/import.md.

        Raises:
            UsageError: an invalid argument; a source that only Spark reads, without Spark or its connector.
            ExistsError: the quarantine holds rows of another import with the job id.
            NotFoundError: a path or glob matches nothing.
            SchemaMismatchError, BadKeyError: rows that do not fit the table; names column and file.
            DamagedError: a file cannot be read; names it. In every case nothing was imported.
            UnknownOutcomeError: repeat it with the same ``job_id``.
        """
        columns = {} if columns is None else columns
        how = SourceReading(columns, casts, select, quarantine, reading or DETECTED, ignore_extra)
        maintenance = self.maintenance(table, progress)
        return maintenance.bulk_import(source, format, job_id, how, partition_rows=partition_rows)

    @interruptible
    def migrate(  # noqa: PLR0913 - all that describes a source
        self,
        table: Table | str,
        source: ForeignTable,
        chosen: Selection,
        *,
        job_id: str | None = None,
        again: bool = False,
        progress: Callback | None = None,
    ) -> MigrationReport:
        """Add the rows of a table of another system, in one commit: all of them, or those since the version that was
        migrated last; all in any case with ``again``, which needs a ``job_id``.

        Raises as :meth:`bulk_import`; UsageError if an earlier version was migrated, and it is not known which rows are
        new.
        """
        from lakebed.upkeep.migration.run import plan

        maintenance = self.maintenance(table, progress)
        return maintenance.migrate(plan(maintenance.table.state(), source, job_id, again=again), chosen)

    @interruptible
    def attach(self, table: Table | str, source: Any, *, job_id: str | None = None) -> AttachReport:
        """Add sorted Parquet files as they are, in one atomic commit: copied byte for byte, not sorted, not rewritten.

        ``source`` is a path, folder, glob or URI, or several of them. Every row is checked first: the columns are those
        of the newest schema or of an earlier one, by field id, name and type, as in an export; there is no null where
        none may be; every value is one that its type allows; the rows are sorted by row key, then sort key. ``job_id``
        is as for :meth:`bulk_import`.

        Raises:
            NotFoundError: a path or glob matches nothing.
            SchemaMismatchError, BadKeyError, UsageError: a file does not fit, or is not sorted; names it, and the row.
            DamagedError: a file cannot be read; names it. In every case nothing was attached.
            UnknownOutcomeError: repeat it with the same ``job_id``.
        """
        return self.maintenance(table).attach(source, job_id)

    def read(
        self, table: Table | str, *ranges: KeyRange, columns: Sequence[str] | None = None, version: int | None = None
    ) -> Any:
        """Return a DataFrame of the rows with a key in any of the ranges, by default of all rows; sorted within each
        task.

        It reads the latest version, or the given one. Raises UsageError, BadKeyError, NotFoundError.
        """
        call = TableCall(self._table(table), self._place)
        instead = "read with Table.scan"
        return frames_of(self.executor, "a DataFrame", instead).read(call, ranges, columns, version)

    @interruptible
    def ingest(self, table: Table | str, *, force: bool = False, method: str | None = None) -> IngestReport:
        """Carry out the open requests that are due, or all of them with ``force``. Each job is one atomic commit.

        ``method`` is how the rows of a job are sorted, by default by their size: ``sort`` by one task, ``shuffle`` by
        many, as in a bulk import. Requests that failed or were rejected are in the report, with the reason.

        Raises UsageError for an unknown method; StorageError if a store did not answer, or a disk is full: the requests
        concerned stay open.
        """
        asked = None if method is None else method_of(method)
        report = self.maintenance(table).ingest(force=force, method=asked)
        if report.errors:
            raise report.errors[0]
        return report

    @interruptible
    def compact(
        self, table: Table | str, *, strategy: str | None = None, progress: Callback | None = None
    ) -> CompactionReport:
        """Merge the runs that the strategy chooses, by default the table's (setting ``compaction_strategy``).

        ``full`` merges each partition with more than one run into one; for the others see
        :mod:`lakebed.upkeep.compaction.strategies`. Runs that do not overlap become one without being rewritten.
        Raises UsageError for an unknown strategy, DamagedError for an input; other partitions are compacted.
        """
        return self.maintenance(table, progress).compact(strategy)

    @interruptible
    def rewrite(
        self,
        table: Table | str,
        *ranges: KeyRange,
        set: Mapping[str, str] | None = None,
        where: str | None = None,
        delete_where: str | None = None,
        progress: Callback | None = None,
    ) -> RewriteReport:
        """Delete rows, or change value columns of rows, in all files that have them, in one atomic commit.

        ``delete_where`` is a predicate in SQL: rows for which it is true are deleted. ``set`` maps value columns to SQL
        expressions over the row as it was; rows for which ``where`` is true, by default all, take their values. Both
        apply to rows with a key in any of the ranges, by default to all. Expressions must depend only on their row.
        Rows that are committed meanwhile are not changed. See docs/erasure.md.

        Raises:
            UsageError, BadKeyError: nothing to do, an invalid text or range, a key column in ``set``.
            SchemaMismatchError: an expression of another type, or a value that does not fit: names column and key.
            RejectedError: another rewrite is under way, a compaction did not end, or the table was restored meanwhile.
            DamagedError: a file is not what was written; names it. In every case nothing was changed.
        """
        wanted = RewriteRequest(ranges, {} if set is None else set, where, delete_where)
        return self.maintenance(table, progress).rewrite(wanted)

    def split(self, table: Table | str) -> SplitReport:
        """Cut every partition above ``split_rows`` or ``split_bytes``. Metadata only; needs no Spark."""
        return self.maintenance(table).split()

    @interruptible
    def join_partitions(self, table: Table | str, *, progress: Callback | None = None) -> JoinReport:
        """Join small neighbouring partitions that are together within half of the limits of a split.

        Metadata only, and without Spark, except that partitions are compacted first if a file keeps them apart, because
        it was merged away in one of them and not in the others.

        Raises DamagedError as :meth:`compact` does; partitions that need no compaction are joined.
        """
        return self.maintenance(table, progress).join()

    @interruptible
    def export(  # noqa: PLR0913 - what, where to, which rows, in what form
        self,
        table: Table | str,
        url: str,
        *,
        ranges: Sequence[KeyRange] = (),
        where: str | None = None,
        format: str = "parquet",
        partitions: int | None = None,
        columns: Sequence[str] | None = None,
        at: int | None = None,
        job_id: str | None = None,
        progress: Callback | None = None,
    ) -> ExportReport:
        """Write the table's rows in key order to files of about ``file_bytes`` in an empty folder.

        The rows are those of the version ``at``, by default the latest, which is pinned meanwhile. ``where`` is a
        predicate in SQL over the columns; ``format`` is parquet, csv or json; ``partitions`` is the largest number of
        files. ``columns`` are written in that order, by default all; only Parquet files with all columns can be
        attached to a table. The export is complete once ``_SUCCESS`` exists; its ``_manifest.json`` names the schema,
        and each file with its rows and digest. The storage options are those of the instance if the URL is of the same
        kind of store; otherwise the environment needs the credentials.

        With a ``job_id`` an export that failed or was killed can be repeated into the same folder: the files that it
        left are deleted. A repeat of one that is complete writes nothing and returns its report.

        Raises:
            UsageError: an unknown format or column, an invalid predicate, fewer than one partition, an invalid URL.
            BadKeyError: a range that does not fit the key.
            ExistsError: the folder is not empty; with a ``job_id``, it has files of something else.
            NotRetainedError: files of that version may be deleted.
            DamagedError: a file of the table is not what was written; names it. Nothing is left in the folder.
        """
        wanted = ExportRequest(tuple_of("ranges", ranges), where, format, partitions, columns)
        return self.maintenance(table, progress).export(place_of(url, self.instance), wanted, at, job_id)

    def export_sql(
        self,
        statement: str,
        url: str,
        *,
        format: str = "parquet",
        parameters: Parameters | None = None,
        job_id: str | None = None,
    ) -> StatementReport:
        """Write the rows of a query in SQL as files of about 128 MiB in an empty folder.

        The statement and ``parameters`` are those of :meth:`lakebed.Instance.sql`; it runs in this process. The export
        is complete once ``_SUCCESS`` exists; its ``_manifest.json`` names each file with its rows and digest, in the
        order of the rows. The versions that the statement reads are pinned meanwhile. ``job_id`` is as for
        :meth:`export`; the report of a repeat names no ``tables``.

        Raises:
            UsageError: an invalid statement, an unknown format or one that cannot hold the columns, an invalid URL.
            NotFoundError: no such table, tag or version.
            ExistsError: the folder is not empty; with a ``job_id``, it has files of something else.
        """
        check_text("statement", statement)
        from lakebed.engine.statement_parameters import with_parameters

        text, target = with_parameters(statement, parameters), place_of(url, self.instance)

        def export() -> StatementReport:
            with self.instance.tracker.running(Begun(operation=WorkKind.EXPORT)) as run:
                made = export_statement(self.instance, text, target.connect(), format, job_id=job_id)
                return run.reported(made)

        return call(export, self.call_thread)

    @interruptible
    def erase_report(
        self,
        table: Table | str,
        *ranges: KeyRange,
        where: str | None = None,
        also: Sequence[str] = (),
        progress: Callback | None = None,
    ) -> ErasureReport:
        """Find every object that still holds such rows, or their keys; changes nothing.

        The rows are those with a key in any of the ranges, by default all, for which the predicate ``where`` is true.
        All objects of the table are read, the exports and quarantines on record, and the folders ``also``. ``erased``
        of the report is true if nothing was found and all was read. See docs/erasure.md for what is not searched.

        Raises:
            UsageError, BadKeyError: neither a predicate nor a range, or an invalid one, or an invalid URL.
            StorageError: the store of the table does not answer.
        """
        rows = RowsSought(ranges, where)
        return self.maintenance(table, progress).search(rows, tuple_of("also", also), self.instance.storage_options)

    def gc(self, table: Table | str | None = None, *, dry_run: bool = False, force: bool = False) -> GcReport:
        """Delete objects that are no longer needed, of one table, or of all tables and dropped ones; needs no Spark.

        That is: files without references for ``history_s``, log entries older than ``log_s``, and objects that were
        written and never committed for ``orphan_age_s``. Orphans are kept, unless ``force`` is given, if something is
        in doubt (``GcReport.orphans``): a table that misses files, objects of no known kind, or more orphans than 5% of
        its objects or 10,000. An error of one table is in ``GcReport.errors``. Lists all objects.
        """
        return gc(self.instance, None if table is None else [self._table(table)], dry_run=dry_run, force=force)

    @interruptible
    def maintain(self, table: Table | str, *, progress: Callback | None = None) -> MaintenanceReport:
        """Do all that is due: ingest, compact, split and join until nothing is left to do, publish, collect garbage.

        Compaction follows the table's strategy; partitions that can be split only when they are one run are merged into
        one. A version that cannot be published before more is merged is left to a later call. A table that is offline
        is neither compacted nor split nor joined; operations that are paused (:meth:`lakebed.Instance.pause`) are left
        out.
        """
        maintenance = self.maintenance(table, progress)
        name = maintenance.table.name
        return maintenance.maintain(online=self.instance.is_online(name), paused=self.instance.paused(name))

    @interruptible
    def refresh(self, view: Table | str, *, anew: bool = False) -> RefreshReport:
        """Bring a view up to date with its source, in one commit: with the rows that came, went or changed.

        ``anew`` reads the whole source, and replaces all rows of the view; so does a refresh after more changes than
        fit into memory. The whole of a large source is read by tasks; all else in this process.

        Raises:
            UsageError: the table is no view, or its query fails on a row of the source.
            NotFoundError: its source was dropped.
            RejectedError: the versions that the view lacks are no longer retained (``view_not_fed``): refresh it with
                ``anew``. Or another process fed the view meanwhile.
            SchemaMismatchError, BadKeyError: a row that the query makes does not fit the view.
        """
        return self.maintenance(view).refresh(anew=anew)

    @interruptible
    def publish(self, table: Table | str, *, compact: bool = False, raw: bool | None = None) -> PublishReport:
        """Publish the latest version of a table as Apache Iceberg, for other engines (docs/open.md); needs no Spark.

        Nothing is done if it is published already. With ``compact``, partitions are merged first if rows of them are
        computed from those of several files. With ``raw`` all stored rows are rows, also of a table that merges them;
        None: as it was published before.

        Raises:
            UsageError: the table has not the setting ``publish`` (``iceberg``, or ``iceberg-3`` for format 3), or
                pyiceberg is not installed.
            RejectedError: rows are computed from those of several files: compact the table.
            DamagedError: another program wrote metadata of the table, or changed them.
            ContentionError: other processes publish the table all the time.
        """
        return self.maintenance(table).publish(compact=compact, raw=raw)

    # -- within -------------------------------------------------------------------------------------------------

    def _table(self, table: Table | str) -> Table:
        return table if isinstance(table, Table) else self.instance.table(table)

    def maintenance(self, table: Table | str, progress: Callback | None = None) -> Maintenance:
        """Return the maintenance of one table, step by step, for a service."""
        if (callback := progress or self.progress.callback) is not None:
            check_method("progress", callback, "__call__", "function")
        return Maintenance(self._table(table), self.executor, self._place, callback, instance=self.instance)
