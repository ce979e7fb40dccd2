"""What is noted of a run when its work has ended: the version, a few words, and failures that are no exception."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, TypeVar

from lakebed.errors import Code
from lakebed.export.run import ExportReport
from lakebed.ingest.attach import AttachReport
from lakebed.maintenance.compaction.run import CompactionReport
from lakebed.maintenance.ingest_jobs import IngestReport
from lakebed.maintenance.rewrite.run import RewriteReport
from lakebed.maintenance.splitting.run import JoinReport, SplitReport
from lakebed.migration.run import MigrationReport
from lakebed.model.wording import count_text
from lakebed.retention.run import CollectionReport
from lakebed.spark.bulk_import import ImportReport
from lakebed.spark.job_progress import Callback, Progress
from lakebed.tracker.recorder import RunHandle

Report = TypeVar("Report")


def noted(run: RunHandle, report: Report) -> Report:
    """The report, of which the run takes notes. Work that found nothing to do leaves none."""
    _note(report, run)
    return report


def watching(run: RunHandle, progress: Callback | None = None) -> Callback:
    """Progress, for the notes of a run and for its caller."""

    def report(made: Progress) -> None:
        run.progress(rows_done=made.rows_done, rows_total=made.rows_total)
        if progress is not None:
            progress(made)

    return report


@singledispatch
def _note(report: Any, run: RunHandle) -> None:
    """A report without a commit: that it was made is all there is to say."""


@_note.register
def _import(report: ImportReport, run: RunHandle) -> None:
    run.progress(rows_done=report.rows, bytes_done=report.size_bytes)
    said = [f"{count_text(report.rows, 'row')} of {count_text(report.source_files, 'file')}"]
    said += [f"{report.rejected} rejected, to {report.quarantine}"] if report.rejected else []
    run.ended(report.version, "the job id was committed before" if report.repeated else ", ".join(said))


@_note.register
def _migration(report: MigrationReport, run: RunHandle) -> None:
    run.progress(rows_done=report.rows_read)
    said = f"{count_text(report.rows_read, 'row')} of {report.source}"
    run.ended(report.version, "the job id was committed before" if report.repeated else said)


@_note.register
def _attach(report: AttachReport, run: RunHandle) -> None:
    said = f"{count_text(report.files, 'file')} of {count_text(report.rows, 'row')}"
    run.progress(rows_done=report.rows, bytes_done=report.size_bytes)
    run.ended(report.version, "the job id was committed before" if report.repeated else said)


@_note.register
def _export(report: ExportReport, run: RunHandle) -> None:
    run.progress(rows_done=report.rows, bytes_done=report.size_bytes)
    run.ended(None, f"{count_text(report.rows, 'row')} of version {report.version} to {report.url}")


@_note.register
def _rewrite(report: RewriteReport, run: RunHandle) -> None:
    run.ended(report.version, f"{count_text(report.rows_deleted, 'row')} deleted, {report.rows_changed:,} changed")


@_note.register
def _split(report: SplitReport, run: RunHandle) -> None:
    if report.version is None:
        run.nothing()
    run.ended(report.version, f"{count_text(len(report.split), 'partition')} cut")


@_note.register
def _join(report: JoinReport, run: RunHandle) -> None:
    if report.version is None:
        run.nothing()
    run.ended(report.version, f"{count_text(len(report.joined), 'group')} of partitions became one each")


@_note.register
def _ingest(report: IngestReport, run: RunHandle) -> None:
    # Failed if a store did not answer, or if requests failed and none was ingested.
    if report.version is None and not report.failed and not report.errors:
        run.nothing()
    run.progress(rows_done=report.rows_read, bytes_done=report.source_bytes)
    said = f"{count_text(report.requests, 'request')} ingested"
    if report.failed:
        first = report.failed[0]
        reason = first.reason if first.reason.startswith(first.url) else f"{first.url}: {first.reason}"
        said += f", {len(report.failed)} failed: {reason}"
        if report.version is None:
            run.failed(Code.REQUEST_FAILED(reason, source=first.url))
    run.ended(report.version, said)
    if report.errors:
        run.failed(report.errors[0])


@_note.register
def _compaction(report: CompactionReport, run: RunHandle) -> None:
    # Failed if a partition could not be merged; the others were.
    if report.version is None and not report.failed:
        run.nothing()
    run.progress(rows_done=report.rows, bytes_done=report.bytes_in)
    said = [f"{count_text(report.files_in, 'file')} became {report.files_out}"] if report.jobs else []
    said += [f"{count_text(report.concatenated, 'run')} concatenated"] if report.concatenated else []
    said += [f"{len(report.skipped)} skipped"] if report.skipped else []
    said += [f"{len(report.failed)} failed"] if report.failed else []
    run.ended(report.version, ", ".join(said))
    if report.failed:
        run.failed(report.failed[0].error)


@_note.register
def _collection(report: CollectionReport, run: RunHandle) -> None:
    if not (report.files or report.entries or report.checkpoint_segments or report.sidecars):
        run.nothing()
    freed = f"{count_text(report.files, 'file')} of {report.size_bytes / 2**20:,.1f} MiB"
    run.ended(report.version, f"{freed} and {count_text(report.entries, 'log entry', 'log entries')} deleted")
