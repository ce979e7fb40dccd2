"""``lakebed table rewrite``: rows that are deleted or changed in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command, name_value
from lakebed.cli.progress import open_pipeline, progress_bar
from lakebed.cli.render import count_text, size_text
from lakebed.errors import Code
from lakebed.maintenance.rewrite.run import RewriteRequest, prepare

if TYPE_CHECKING:
    from lakebed.maintenance.rewrite.run import RewriteReport


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
    """Delete or change rows in one commit, on Spark; asks for its name first.

    Key ranges are given as to scan; without one, all rows are concerned. Files without a row that differs stay as they
    are. Older versions and tags keep the rows as they were: docs/erasure.md.
    """
    if not yes and not dry_run:
        options.check_answerable(f"whether to rewrite rows of {table}")
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
        options.ask_for(found.name, f"This rewrites rows of table {found.name}, in {reads}", cli.out)
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"rewrite {table}") as progress:
        report = pipeline.rewrite(
            table, *wanted, set=assignments, where=where, delete_where=delete_where, progress=progress
        )
    cli.out.document(report, [_rewrite_line(report)])


def _rewrite_line(report: RewriteReport) -> str:
    read = f"{count_text(report.files_read, 'file')} read"
    if report.version is None:
        return f"table {report.table}: no row differs; nothing was changed, {read}"
    rows = [f"{count_text(report.rows_deleted, 'row')} deleted"] if report.rows_deleted else []
    rows += [f"{count_text(report.rows_changed, 'row')} changed"] if report.rows_changed else []
    into = f"{count_text(report.files_in, 'file')} of {size_text(report.bytes_in)} replaced by {report.files_out}"
    return f"table {report.table} at version {report.version}: {', '.join(rows)}; {read}, {into}"
