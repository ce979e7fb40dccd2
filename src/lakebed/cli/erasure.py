"""``lakebed table rewrite`` and ``erase-report``: rows that are deleted or changed, and where they still are.

Both run as jobs of a pipeline. ``erase-report`` prints what it found, and then raises an error unless nothing was found
and all was read. Source: docs/erasure.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakebed.cli import options
from lakebed.cli.argument_types import name_value
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.cli.progress import open_pipeline, progress_bar, report_line
from lakebed.cli.render import TextColumns, columns, shown
from lakebed.errors import Code
from lakebed.model.json_values import plain
from lakebed.model.wording import count_text
from lakebed.upkeep.rewrite.run import RewriteRequest, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.upkeep.retention.erasure.run import ErasurePlace, ErasureReport


@command
@options.table
@options.ranges
@click.option("--delete-where", metavar="PREDICATE", help="Delete the rows for which it is true.")
@click.option(
    "--set",
    "changes",
    metavar="COLUMN=SQL",
    type=name_value,
    multiple=True,
    help="Give a value column the value of an expression over the row. May be repeated.",
)
@click.option("--where", metavar="PREDICATE", help="With --set: change only the rows for which it is true.")
@options.dry_run
@options.yes
@options.launcher
def rewrite(
    cli: Invocation,
    *,
    table: str,
    ranges: options.Ranges,
    delete_where: str | None,
    changes: tuple[tuple[str, str], ...],
    where: str | None,
    dry_run: bool,
    yes: bool,
    launcher: str | None,
) -> None:
    """Delete or change rows in one commit; asks for its name first.

    The work runs on Spark, or with --in-process without it.

    Key ranges are given as to scan; by default all rows are considered. Files in which no row changes are kept. Older
    versions and tags keep the original rows: docs/erasure.md.
    """
    assignments = dict(changes)
    if len(assignments) < len(changes):
        raise Code.COLUMN_DUPLICATE("--set names a column twice; give each column one expression")
    found = cli.table(table)
    wanted = ranges.of(found.schema)
    prepared = prepare(found, RewriteRequest(tuple(wanted), assignments, where, delete_where))
    rows, files = sum(one.rows for one in prepared.planned), len({one.file.id for one in prepared.planned})
    reads = f"{count_text(files, 'file')} with {count_text(rows, 'row')}"
    if dry_run:
        document = {"table": found.name, "version": prepared.version, "files": files, "rows": rows}
        cli.out.document(document, [f"table {found.name} at version {prepared.version}: would read {reads}"])
        return
    if not yes:
        options.confirm(f"rewrite rows of {table}", f"This rewrites rows of table {table}, in {reads}", table)
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"rewrite {table}") as progress:
        report = pipeline.rewrite(
            table, *wanted, set=assignments, where=where, delete_where=delete_where, progress=progress
        )
    cli.out.document(report, [report_line(report)])


# -- lakebed erase-report ------------------------------------------------------------------------------------------


@command
@options.table
@options.ranges
@options.where
@click.option("--also", metavar="URL", multiple=True, help="Another folder with copies of rows. May be repeated.")
@options.launcher
def erase_report(
    cli: Invocation,
    *,
    table: str,
    ranges: options.Ranges,
    where: str | None,
    also: tuple[str, ...],
    launcher: str | None,
) -> None:
    """List every object that still holds such rows, or their keys.

    The work runs on Spark, or with --in-process without it.

    Reads the data files of all versions, files that wait for deletion, orphans, files of requests, and the exports and
    quarantines on record. If the predicate names only row key columns, keys in the log, checkpoints and summaries are
    searched too. Shows which versions and tags need an object, and when it will be deleted. Changes nothing. Exits with
    3 unless everything was read and nothing was found.
    """
    found = cli.table(table)
    wanted = ranges.of(found.schema)
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"erase-report {table}") as progress:
        report = pipeline.erase_report(table, *wanted, where=where, also=also, progress=progress)
    cli.out.document({"erased": report.erased, **plain(report)}, _report_lines(report))
    if not report.erased:
        places, unread = count_text(len(report.places), "object"), count_text(len(report.unread), "object")
        raise Code.ROWS_NOT_ERASED(
            f"table {report.table}: {places} with such rows or keys, {unread} that could not be read",
            table=report.table,
        )


def _report_lines(report: ErasureReport) -> Iterator[str | TextColumns]:
    read = ", ".join(f"{kind}: {count:,}" for kind, count in report.searched.items())
    yield f"table {report.table} at version {report.version}: searched {read or 'nothing: there is no object'}"
    if report.places:
        names = ["found in", "rows", "live", "unclear", "keys", "versions", "goes", "object"]
        yield columns(names, [_place_row(place) for place in report.places])
    for one in report.unread:
        yield f"not read  {shown(one.object)} ({one.where}): {shown(one.reason)}"
    yield from (f"not searched: {text}" for text in report.not_searched)
    if report.erased:
        yield "no object has such rows" + (" or keys" if report.keys_searched else "")


def _place_row(place: ErasurePlace) -> list[object]:
    last = "" if place.last_version is None else place.last_version
    versions = "" if place.first_version is None else f"{place.first_version}-{last}"
    due = f", {place.due:%Y-%m-%d %H:%M} UTC" if place.due is not None else ""
    kept = "".join(f", tag {tag}" for tag in place.tags) + "".join(f", pin at {version}" for version in place.pins)
    counts = [count or "" for count in (place.rows, place.live_rows, place.unclear_rows, place.keys)]
    return [place.where, *counts, f"{versions}{kept}", f"{place.goes}{due}", place.object]
