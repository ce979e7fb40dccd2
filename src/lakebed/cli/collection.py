"""``lakebed gc``: deletes all that is no longer needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command
from lakebed.cli.pipelines import open_pipeline
from lakebed.cli.render import count_text, plain, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.retention.orphans import DroppedReport, OrphanReport
    from lakebed.retention.run import CollectionReport, GcReport


@command
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--force", is_flag=True, help="Delete uncommitted objects although something is in doubt.")
@options.dry_run
def collect(cli: Invocation, *, table: str | None, force: bool, dry_run: bool) -> None:
    """Delete what TABLE, or all tables and dropped ones, no longer need.

    A file is deleted when its last reference has been gone for longer than history_s, and no tag or pin needs it; a log
    entry when it is older than log_s.

    Objects that crashes, lost races and second attempts left are deleted after orphan_age_s; a write that takes as long
    is refused. None of them is deleted, unless forced, if more than 5% of the objects or 10,000 would be, if files are
    missing, or if objects are of no known kind; those are never deleted. The command fails then, after all other steps.
    """
    with open_pipeline(cli) as pipeline:
        report = pipeline.gc(table, dry_run=dry_run, force=force)
    cli.out.document({**plain(report), "errors": [str(error) for error in report.errors]}, _lines(report))
    for error in report.errors:
        raise error
    for orphans in report.orphans:
        if orphans.refused:
            from lakebed.retention.orphans import refusal

            raise refusal(orphans)


def _lines(report: GcReport) -> Iterator[str]:
    deleted = "would be deleted" if report.dry_run else "deleted"
    for collection in report.collections:
        yield _collection_line(collection, deleted)
    for orphans in report.orphans:
        yield from _orphan_lines(orphans, deleted)
    yield from _dropped_lines(report.dropped, deleted)


def _collection_line(report: CollectionReport, deleted: str) -> str:
    text = f"{count_text(report.files, 'file')} of {size_text(report.size_bytes)} {deleted}"
    young = f"; {count_text(report.waiting, 'file')} without reference still too young" if report.waiting else ""
    pinned = f"; {count_text(report.pinned, 'file')} kept for readers by pins" if report.pinned else ""
    truncated = f"; log truncated up to {report.log_start}" if report.entries else ""
    return f"table {report.table}: {text}{young}{pinned}{truncated}"


def _orphan_lines(report: OrphanReport, deleted: str) -> Iterator[str]:
    text = f"{count_text(report.orphans, 'orphan')} of {size_text(report.size_bytes)} {deleted}"
    temporaries = f", and {count_text(report.temporaries, 'temporary object')}" if report.temporaries else ""
    yield f"table {report.table}: {text}{temporaries}, of {count_text(report.objects, 'object')}"
    if report.held_by is not None:
        yield f"objects younger than open job {report.held_by} stay; if its process died, `lakebed compact` releases it"
    yield from (f"unknown, and left alone: {name}" for name in report.unknown_names)
    yield from (f"in doubt: {doubt}" for doubt in report.doubts)


def _dropped_lines(report: DroppedReport, deleted: str) -> Iterator[str]:
    for table in report.tables:
        text = f"{count_text(table.objects, 'object')} of {size_text(table.size_bytes)}"
        yield f"dropped table {table.id}: {text} " + (deleted if table.waiting is None else f"stay: {table.waiting}")
    if report.temporaries:
        yield f"{count_text(report.temporaries, 'temporary object')} deleted"
    if report.logs:
        yield f"{count_text(report.logs, 'log')} of tables that were never created {deleted}"
