"""``lakebed import``, ``attach``, ``export``: rows into and out of a table, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command, name_value
from lakebed.cli.pipelines import open_pipeline, progress_bar
from lakebed.cli.render import count_text, plain, size_text
from lakebed.errors import Code
from lakebed.export.plan import FORMATS as EXPORT_FORMATS

if TYPE_CHECKING:
    from lakebed.ingest.attach import AttachReport
    from lakebed.spark.bulk_import import ImportReport

FORMATS = ("parquet", "csv", "json", "orc", "avro", "delta", "iceberg", "query")

_COLUMN = "The source's column of a field. May be repeated."

sources_argument = click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)


@command
@options.table
@sources_argument
@click.option("--format", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True)
@click.option("--column", metavar="FIELD=COLUMN", type=name_value, multiple=True, help=_COLUMN)
@click.option("--cast", metavar="A,B", multiple=True, help="Fields whose values may be cast, such as text to numbers.")
@click.option("--select", metavar="SQL", help="Import the rows of this Spark SQL query over the view `source`.")
@click.option("--quarantine", metavar="URL", help="Write rows that do not fit there, and import the others.")
@options.run_once_id("--job-id")
@click.option(
    "--partition-rows", metavar="N", type=int, help="Split partitions that would get more rows. Default: split_rows."
)
@options.master
def import_rows(
    cli: Invocation,
    *,
    table: str,
    sources: tuple[str, ...],
    column: tuple[tuple[str, str], ...],
    cast: tuple[str, ...],
    launcher: str | None,
    **how: Any,
) -> None:
    """Add large files at once, on Spark.

    A SOURCE is a file, a folder or a glob, local or s3://…. All rows become visible at once, or none. A repeat with the
    same --job-id prints the first version. With --format query the source is a Spark SQL query. More about formats,
    casts and rejected rows: docs/import.md.
    """
    columns = dict(column)
    if len(columns) < len(column):
        texts = ", ".join("=".join(pair) for pair in column)
        raise Code.COLUMN_DUPLICATE(f"--column names a field twice: {texts}; give each field one column")
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"import {table}") as progress:
        source = list(sources) if len(sources) > 1 else sources[0]
        casts = options.names(cast) or ()
        report = pipeline.bulk_import(table, source, columns=columns, casts=casts, progress=progress, **how)
    text = _added("import", report)
    if report.partitions_split:
        text += f"; {count_text(report.partitions_split, 'partition')} split before"
    rejected = [f"{count_text(report.rejected, 'row')} rejected, in {report.quarantine}"] if report.rejected else []
    cli.out.document(plain(report), [f"table {report.table} {text}", *rejected])


@command
@options.table
@sources_argument
@options.run_once_id("--job-id")
@options.launcher
def attach(cli: Invocation, *, table: str, sources: tuple[str, ...], job_id: str | None, launcher: str | None) -> None:
    """Add sorted Parquet files as they are, on Spark.

    Files of an export, or others with the table's field ids: checked row by row, copied byte for byte. Files that are
    not sorted, or have other columns, are refused; import them. --job-id is as for import.
    """
    with open_pipeline(cli, launcher) as pipeline:
        report = pipeline.attach(table, list(sources), job_id=job_id)
    cli.out.document(plain(report), [f"table {report.table} {_added('attach', report)}"])


def _added(verb: str, report: ImportReport | AttachReport) -> str:
    if report.repeated:
        return f"{verb}ed before, at version {report.version}; nothing was added"
    if report.version is None:
        return f"no rows to {verb}; nothing was added"
    rows, files = count_text(report.rows, "row"), count_text(report.files, "file")
    return f"at version {report.version}: {rows} {verb}ed as {files} of {size_text(report.size_bytes)}"


@command
@options.table
@click.argument("url", metavar="URL", help="An empty or new folder, or s3://… and the like.")
@options.ranges
@options.where
@click.option("--format", type=click.Choice(EXPORT_FORMATS), default="parquet", show_default=True)
@click.option("--partitions", metavar="N", type=int, help="At most this many files. Default: by file_bytes.")
@options.at
@options.launcher
def export(
    cli: Invocation,
    *,
    table: str,
    url: str,
    ranges: options.Ranges,
    at: str | None,
    launcher: str | None,
    **how: Any,
) -> None:
    """Write rows as sorted files to an empty folder, on Spark.

    All rows, or those of the ranges given for which the predicate holds. The export is complete when _SUCCESS is there;
    _manifest.json names every file, and the schema. In JSON, nulls are left out, and NaN and infinities are null. Keys
    are given as to scan.
    """
    snapshot = cli.snapshot(table, at)
    wanted = ranges.of(snapshot.schema)
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"export {table}") as progress:
        version = snapshot.version if at is not None else None
        report = pipeline.export(table, url, ranges=wanted, at=version, progress=progress, **how)
    rows, files = count_text(report.rows, "row"), count_text(report.files, "file")
    text = f"{rows} exported as {files} of {size_text(report.size_bytes)} to {report.url}"
    cli.out.document(plain(report), [f"table {report.table} at version {report.version}: {text}"])
