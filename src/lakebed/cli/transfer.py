"""``lakebed import``, ``attach``, ``export``: rows on their way in and out, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.pipelines import bar, open_pipeline
from lakebed.cli.render import count_text, plain, size_text
from lakebed.cli.rows import add_ranges, ranges_of
from lakebed.export.plan import FORMATS as EXPORT_FORMATS

if TYPE_CHECKING:
    import argparse

    from lakebed.cli.render import Output

FORMATS = ("parquet", "csv", "json", "orc", "avro", "delta", "iceberg", "query")


def add_transfer(commands: args.Commands) -> None:
    """``lakebed import``, ``attach``, ``export``."""
    _add_import(commands)
    _add_attach(commands)
    _add_export(commands)


def _add_import(commands: args.Commands) -> None:
    bulk = args.add_command(
        commands,
        "import",
        "add much at once, on Spark",
        _import,
        more="A source is a file, a folder or a glob, local or s3://…. All rows become visible at once, or none.\n"
        "With --job-id a repeat adds nothing and prints the first number. With --format query the source is a\n"
        "Spark SQL query. More about formats, casts and rejected rows: docs/import.md.",
    )
    bulk.add_argument("table", metavar="TABLE")
    bulk.add_argument("sources", metavar="SOURCE", nargs="+")
    bulk.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="default: %(default)s")
    bulk.add_argument(
        "--column",
        metavar="FIELD=COLUMN",
        action="append",
        default=[],
        help="the source's column of a field; may be repeated",
    )
    bulk.add_argument(
        "--cast", metavar="A,B", action="append", help="fields whose values may be cast: text read as numbers …"
    )
    bulk.add_argument("--select", metavar="SQL", help="import what this Spark SQL query gives, over the view `source`")
    bulk.add_argument("--quarantine", metavar="URL", help="put rows that do not fit there, and import the others")
    bulk.add_argument("--job-id", metavar="ID", help="what makes this import happen once, however often it is run")
    bulk.add_argument(
        "--leaf-rows", metavar="N", type=int, help="cut leaves that would get more rows; default: setting split_rows"
    )
    args.add_launcher(bulk)


def _add_attach(commands: args.Commands) -> None:
    attach = args.add_command(
        commands,
        "attach",
        "add sorted Parquet files as they are, on Spark",
        _attach,
        more="Files of an export, or others with the table's field ids: checked row by row, copied byte for byte.\n"
        "What is not sorted, or has other columns, is refused; import it. --job-id is as for import.",
    )
    attach.add_argument("table", metavar="TABLE")
    attach.add_argument("sources", metavar="SOURCE", nargs="+")
    attach.add_argument("--job-id", metavar="ID", help="what makes this happen once, however often it is run")
    args.add_launcher(attach)


def _add_export(commands: args.Commands) -> None:
    export = args.add_command(
        commands,
        "export",
        "write rows as sorted files to an empty place, on Spark",
        _export,
        more="URL is a folder, or s3://… and the like. All rows, or those of the ranges given, of which the predicate\n"
        "holds. The place is whole when _SUCCESS is there; _manifest.json names every file, and the schema.\n"
        "In JSON, nulls are left out, and NaN and infinities are null. Keys are given as to scan.",
    )
    export.add_argument("table", metavar="TABLE")
    export.add_argument("url", metavar="URL")
    add_ranges(export)
    args.add_where(export)
    export.add_argument("--format", choices=EXPORT_FORMATS, default="parquet", help="default: %(default)s")
    export.add_argument("--partitions", metavar="N", type=int, help="at most so many files; default: by file_bytes")
    args.add_at(export)
    args.add_launcher(export)


def _import(arguments: argparse.Namespace, out: Output) -> None:
    with open_pipeline(arguments) as pipeline, bar(arguments) as progress:
        report = pipeline.bulk_import(
            arguments.table,
            arguments.sources if len(arguments.sources) > 1 else arguments.sources[0],
            format=arguments.format,
            columns=args.columns_of_fields(arguments.column),
            casts=args.names(arguments.cast) or (),
            select=arguments.select,
            quarantine=arguments.quarantine,
            job_id=arguments.job_id,
            leaf_rows=arguments.leaf_rows,
            progress=progress,
        )
    if report.repeated:
        text = f"imported before, at number {report.number}; nothing was added"
    elif report.number is None:
        text = "no rows to import; nothing was added"
    else:
        rows, files = count_text(report.rows, "row"), count_text(report.files, "file")
        text = f"at number {report.number}: {rows} imported as {files} of {size_text(report.size_bytes)}"
    if report.leaves_split:
        text += f"; {count_text(report.leaves_split, 'leaf')} cut before"
    aside = [f"{count_text(report.rejected, 'row')} rejected, in {report.quarantine}"] if report.rejected else []
    out.document(plain(report), [f"table {report.table} {text}", *aside])


def _attach(arguments: argparse.Namespace, out: Output) -> None:
    with open_pipeline(arguments) as pipeline:
        report = pipeline.attach(arguments.table, arguments.sources, job_id=arguments.job_id)
    if report.repeated:
        text = f"attached before, at number {report.number}; nothing was added"
    elif report.number is None:
        text = "no rows to attach; nothing was added"
    else:
        rows, files = count_text(report.rows, "row"), count_text(report.files, "file")
        text = f"at number {report.number}: {rows} attached as {files} of {size_text(report.size_bytes)}"
    out.document(plain(report), [f"table {report.table} {text}"])


def _export(arguments: argparse.Namespace, out: Output) -> None:
    view = args.open_view(arguments)
    ranges = ranges_of(arguments, view.schema)
    with open_pipeline(arguments) as pipeline, bar(arguments) as progress:
        report = pipeline.export(
            arguments.table,
            arguments.url,
            ranges=ranges,
            where=arguments.where,
            format=arguments.format,
            partitions=arguments.partitions,
            at=view.number if arguments.at is not None else None,
            progress=progress,
        )
    rows, files = count_text(report.rows, "row"), count_text(report.files, "file")
    text = f"{rows} exported as {files} of {size_text(report.size_bytes)} to {report.url}"
    out.document(plain(report), [f"table {report.table} at number {report.number}: {text}"])
