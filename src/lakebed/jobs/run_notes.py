"""Records the end of a run: the version, a sentence, and failures that are not exceptions.

Each report of work on a table has a case in :func:`noted`. A run that found nothing to do leaves no record. A call that
ends without an exception may have failed in part: an ingest whose requests failed, or a compaction of which a partition
could not be merged, is recorded as failed with the first of these errors.
"""

from __future__ import annotations

from typing import TypeVar

from lakebed.errors import Code
from lakebed.jobs.job_progress import Callback, Progress
from lakebed.jobs.report_text import summary
from lakebed.table.tracker.recorder import RunHandle
from lakebed.upkeep.compaction.run import CompactionReport
from lakebed.upkeep.export.run import ExportReport
from lakebed.upkeep.ingest_jobs import IngestReport
from lakebed.upkeep.migration.run import MigrationReport
from lakebed.upkeep.retention.run import CollectionReport
from lakebed.upkeep.rewrite.run import RewriteReport
from lakebed.upkeep.splitting.run import JoinReport, SplitReport
from lakebed.write.attach import AttachReport
from lakebed.write.imports import ImportReport

WorkReport = (
    ImportReport
    | MigrationReport
    | AttachReport
    | ExportReport
    | IngestReport
    | CompactionReport
    | RewriteReport
    | SplitReport
    | JoinReport
    | CollectionReport
)
Report = TypeVar("Report", bound=WorkReport)


def noted(run: RunHandle, report: Report) -> Report:
    """Return the report, which is recorded in the run. A run without work leaves no record."""
    _note(run, report)
    return report


def watching(run: RunHandle, progress: Callback | None = None) -> Callback:
    """Return a callback that passes progress to the notes of a run and to its caller."""

    def report(made: Progress) -> None:
        run.progress(rows_done=made.rows_done, rows_total=made.rows_total)
        if progress is not None:
            progress(made)

    return report


def _note(run: RunHandle, report: WorkReport) -> None:
    version = None if isinstance(report, ExportReport) else report.version
    match report:
        case ImportReport() | AttachReport() | ExportReport():
            run.progress(rows_done=report.rows, bytes_done=report.size_bytes)
        case MigrationReport():
            run.progress(rows_done=report.rows_read)
        case IngestReport():
            run.progress(rows_done=report.rows_read, bytes_done=report.source_bytes)
            # Failed if a store did not answer, or if requests failed and none was ingested.
            if report.errors:
                run.failed(report.errors[0])
            elif version is None and report.failed:
                first = report.failed[0]
                run.failed(Code.REQUEST_FAILED(first.said, source=first.url))
            elif version is None:
                run.nothing()
        case CompactionReport():
            run.progress(rows_done=report.rows, bytes_done=report.bytes_in)
            # Failed if a partition could not be merged; the others were.
            if report.failed:
                run.failed(report.failed[0].error)
            elif version is None:
                run.nothing()
        case SplitReport() | JoinReport():
            if version is None:
                run.nothing()
        case CollectionReport():
            if not (report.files or report.entries or report.checkpoint_segments or report.sidecars):
                run.nothing()
        case RewriteReport():
            pass
    run.ended(version, summary(report))
