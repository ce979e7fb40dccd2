"""``lakebed gc``: deletes files that are no longer needed, orphans, and the files of dropped tables."""

from __future__ import annotations

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command
from lakebed.cli.pipelines import open_pipeline
from lakebed.cli.render import count_text, plain, size_text
from lakebed.errors import Code


@command
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--orphans", is_flag=True, help="Delete objects that were written and never committed instead.")
@click.option("--dropped", is_flag=True, help="In place of TABLE: delete the files of all dropped tables.")
@click.option("--force", is_flag=True, help="With --orphans: delete although something is in doubt.")
@options.dry_run
def collect(cli: Invocation, *, table: str | None, orphans: bool, dropped: bool, force: bool, dry_run: bool) -> None:
    """Delete files that are no longer needed, or orphans.

    A file is deleted when its last reference has been gone for longer than gc_delay_s and history_s, and no tag or pin
    needs it; a log entry when it is older than log_s.

    --orphans deletes objects that crashes, lost races and second attempts left longer than orphan_age_s ago; a write
    that takes as long is refused. Nothing is deleted, unless forced, if more than 5% of the objects or 10,000 would be,
    if files are missing, or if objects are of no known kind; those are never deleted.
    """
    options.check_one({"TABLE": table, "--dropped": dropped})
    if dropped and orphans:
        raise Code.ARGUMENTS_CONFLICT("--orphans goes with TABLE, not with --dropped")
    if force and not orphans:
        raise Code.ARGUMENTS_CONFLICT("--force goes with --orphans")
    if table is None:
        _collect_dropped(cli, dry_run=dry_run)
    elif orphans:
        _collect_orphans(cli, table, force=force, dry_run=dry_run)
    else:
        _collect_garbage(cli, table, dry_run=dry_run)


def _collect_garbage(cli: Invocation, table: str, *, dry_run: bool) -> None:
    with open_pipeline(cli) as pipeline:
        report = pipeline.collect_garbage(table, dry_run=dry_run)
    text = f"{count_text(report.files, 'file')} of {size_text(report.size_bytes)} {_deleted(dry_run=dry_run)}"
    young = f"; {count_text(report.waiting, 'file')} without reference still too young" if report.waiting else ""
    pinned = f"; {count_text(report.pinned, 'file')} kept for readers by pins" if report.pinned else ""
    truncated = f"; log truncated up to {report.log_start}" if report.entries else ""
    cli.out.document(plain(report), [f"table {report.table}: {text}{young}{pinned}{truncated}"])


def _collect_orphans(cli: Invocation, table: str, *, force: bool, dry_run: bool) -> None:
    with open_pipeline(cli) as pipeline:
        report = pipeline.delete_orphans(table, dry_run=dry_run, force=force)
    text = f"{count_text(report.orphans, 'orphan')} of {size_text(report.size_bytes)} {_deleted(dry_run=dry_run)}"
    temporaries = f", and {count_text(report.temporaries, 'temporary object')}" if report.temporaries else ""
    lines = [f"table {report.table}: {text}{temporaries}, of {count_text(report.objects, 'object')}"]
    if report.held_by is not None:
        lines.append(
            f"objects younger than open job {report.held_by} stay; if its process died, `lakebed compact` releases it"
        )
    lines += [f"unknown, and left alone: {name}" for name in report.unknown_names]
    lines += [f"in doubt: {doubt}" for doubt in report.doubts]
    cli.out.document(plain(report), lines)


def _collect_dropped(cli: Invocation, *, dry_run: bool) -> None:
    with open_pipeline(cli) as pipeline:
        report = pipeline.delete_dropped(dry_run=dry_run)
    deleted = _deleted(dry_run=dry_run)
    lines = [
        f"table {table.id}: {count_text(table.objects, 'object')} of {size_text(table.size_bytes)} "
        + (deleted if table.waiting is None else f"stay: {table.waiting}")
        for table in report.tables
    ]
    if report.temporaries:
        lines.append(f"{count_text(report.temporaries, 'temporary object')} deleted")
    if report.logs:
        lines.append(f"{count_text(report.logs, 'log')} of tables that were never created {deleted}")
    cli.out.document(plain(report), lines or ["dropped tables have left nothing"])


def _deleted(*, dry_run: bool) -> str:
    return "would be deleted" if dry_run else "deleted"
