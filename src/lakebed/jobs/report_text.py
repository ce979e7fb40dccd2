"""Reports as one sentence, for the record of a job, the status of a service and the command line.

:func:`summary` has a case for each report of work on a table. It names neither the table nor the version, which stand
beside it everywhere. The report of a refresh has its sentence itself (:mod:`lakebed.upkeep.view_feed`): its module
imports the engine, which other work does without. Pure.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from lakebed.model.wording import count_text, size_text
from lakebed.upkeep.compaction.run import CompactionReport
from lakebed.upkeep.export.run import ExportReport
from lakebed.upkeep.ingest_jobs import IngestReport
from lakebed.upkeep.migration.run import MigrationReport
from lakebed.upkeep.retention.run import CollectionReport
from lakebed.upkeep.rewrite.run import RewriteReport
from lakebed.upkeep.splitting.run import JoinReport, SplitReport
from lakebed.write.attach import AttachReport
from lakebed.write.imports import ImportReport


@singledispatch
def summary(report: Any) -> str:
    """Return the sentence, without a full stop. Raises TypeError for a value that is not one of these reports."""
    raise TypeError(f"no report of work on a table: {report!r}")


@summary.register
def _import(report: ImportReport) -> str:
    split = f"; {count_text(report.partitions_split, 'partition')} split before" if report.partitions_split else ""
    rejected = f"; {count_text(report.rejected, 'row')} rejected, in {report.quarantine}" if report.rejected else ""
    return f"{_added('import', report, report.rows_written)}{split}{rejected}"


@summary.register
def _attach(report: AttachReport) -> str:
    return _added("attach", report, report.rows)


def _added(verb: str, report: ImportReport | AttachReport, rows_written: int) -> str:
    if report.repeated:
        return f"{verb}ed before; nothing was added"
    if report.version is None:
        return f"no rows to {verb}; nothing was added"
    return f"{count_text(report.rows, 'row')} {verb}ed{_files(report, report.rows, rows_written)}"


def _files(report: ImportReport | AttachReport | IngestReport, rows: int, rows_written: int) -> str:
    """Return the files that rows became, and how many rows these have if rows with equal keys were merged."""
    merged = "" if rows_written == rows else f", merged to {rows_written:,},"
    return f"{merged} as {count_text(report.files, 'file')} of {size_text(report.size_bytes)}"


@summary.register
def _migration(report: MigrationReport) -> str:
    if report.repeated:
        return "migrated before; nothing was added"
    counted = "as many as the source says" if report.rows_expected is not None else "the source has no exact count"
    of = "" if report.source_version is None else f", of version {report.source_version} there"
    return f"{count_text(report.rows_read, 'row')} migrated{of}; {counted}"


@summary.register
def _export(report: ExportReport) -> str:
    files = f"{count_text(report.files, 'file')} of {size_text(report.size_bytes)}"
    return f"{count_text(report.rows, 'row')} exported as {files} to {report.url}"


@summary.register
def _rewrite(report: RewriteReport) -> str:
    read = f"{count_text(report.files_read, 'file')} read"
    if report.version is None:
        return f"no row differs; nothing was changed, {read}"
    rows = [f"{count_text(report.rows_deleted, 'row')} deleted"] if report.rows_deleted else []
    rows += [f"{count_text(report.rows_changed, 'row')} changed"] if report.rows_changed else []
    into = f"{count_text(report.files_in, 'file')} of {size_text(report.bytes_in)} replaced by {report.files_out}"
    return f"{', '.join(rows)}; {read}, {into}"


@summary.register
def _split(report: SplitReport) -> str:
    return f"{count_text(len(report.split), 'partition')} cut"


@summary.register
def _join(report: JoinReport) -> str:
    return f"{count_text(len(report.joined), 'group')} of partitions became one each"


@summary.register
def _ingest(report: IngestReport) -> str:
    said = "nothing ingested"
    if report.version is not None:
        requests = f"{count_text(report.requests, 'request')} of {size_text(report.source_bytes)}"
        rows = f"{count_text(report.rows_read, 'row')}{_files(report, report.rows_read, report.rows)}"
        said = f"{requests} ingested by {count_text(report.jobs, 'job')}: {rows}"
    if report.failed:
        said += f"; {count_text(len(report.failed), 'request')} failed: {report.failed[0].said}"
    return said


@summary.register
def _compaction(report: CompactionReport) -> str:
    said = [f"{count_text(report.files_in, 'file')} became {report.files_out}"] if report.jobs else []
    said += [f"{count_text(report.concatenated, 'run')} concatenated"] if report.concatenated else []
    said += [f"{len(report.skipped)} skipped"] if report.skipped else []
    said += [f"{len(report.failed)} failed"] if report.failed else []
    return ", ".join(said) or "nothing to compact"


@summary.register
def _collection(report: CollectionReport) -> str:
    deleted = "would be deleted" if report.dry_run else "deleted"
    young = f"; {count_text(report.waiting, 'file')} without reference still too young" if report.waiting else ""
    pinned = f"; {count_text(report.pinned, 'file')} kept for readers by pins" if report.pinned else ""
    truncated = f"; log truncated up to {report.log_start}" if report.entries else ""
    files = f"{count_text(report.files, 'file')} of {size_text(report.size_bytes)}"
    return f"{files} {deleted}{young}{pinned}{truncated}"
