"""``lakebed write``, ``remove``, ``import``, ``attach``, ``migrate`` and ``export``: rows into a table and out of it.

``write``, ``delete`` and ``remove`` work in this process; ``import``, ``attach`` and ``export`` have a pipeline do it.
An interrupted command says what was committed. Rows of other systems are committed after they were counted against the
source, all or none. Errors: UsageError for options that do not go together; those of the library. Source:
docs/import.md, docs/bulk-load.md, docs/removing.md, docs/migrate.md.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from lakebed.cli import completions, options
from lakebed.cli.grammar import command, name_value
from lakebed.cli.invocation import Invocation
from lakebed.cli.merging import merge_of_made
from lakebed.cli.progress import command_bar, open_pipeline, progress_bar, report_line
from lakebed.cli.reading import STDIN, Keys, dropped_if_unused, inputs, reading_options, reading_options_of, table_for
from lakebed.errors import Code, NotFoundError
from lakebed.files.formats.file_format import format_of
from lakebed.files.formats.reading_options import SPARK_FORMATS
from lakebed.model.schema import Schema
from lakebed.model.type_names import name_of
from lakebed.model.wording import count_text
from lakebed.read.inspect.history import committed_on_interrupt
from lakebed.read.inspect.report import removed
from lakebed.read.rows.summaries import removal
from lakebed.table.ahead import confirmed
from lakebed.upkeep.export.plan import FORMATS as EXPORT_FORMATS
from lakebed.upkeep.migration.foreign_table import ForeignTable, SourceLocation
from lakebed.upkeep.migration.run import SYSTEMS, MigrationReport, Selection, check_again, plan
from lakebed.upkeep.migration.run import migrate as migrate_rows
from lakebed.write.input_files import find_inputs, open_files, rows_known
from lakebed.write.row_encoder import Operation
from lakebed.write.run import LOSSLESS, Added, Write, add

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakebed.files.formats.input_file import InputFile
    from lakebed.files.formats.reading_options import ReadingOptions
    from lakebed.model.merge_modes import MergeMode
    from lakebed.table.deletion import DeleteReport
    from lakebed.table.table import Table
    from lakebed.write.source_rows import SourceRows


_key = click.option(
    "--key", metavar="A,B", multiple=True, help="Row key columns: makes the table if it does not exist."
)
_sort_key = click.option("--sort-key", metavar="C", multiple=True, help="Sort key columns of a new table.")
_column = click.option(
    "--column",
    metavar="FIELD=COLUMN",
    type=name_value,
    multiple=True,
    help="The source column for a field. May be repeated.",
)
_ignore_extra = click.option("--ignore-extra", is_flag=True, help="Ignore columns that the table lacks.")
_cast = click.option(
    "--cast", metavar="A,B", multiple=True, help="Fields that may also be parsed from text, in files with types."
)


@command
@options.table
@options.files("files", "FILE...", "Paths, folders, globs, s3://…, or - (stdin).")
@_key
@_sort_key
@merge_of_made
@_column
@_ignore_extra
@_cast
@click.option("--partial", is_flag=True, help="Keep the older values of columns that a file lacks.")
@click.option("--row-kind", metavar="COLUMN", help="The column with the kind of each row: c, u, d, +I, +U, -D …")
@reading_options
@options.run_once_id("--commit-id")
def write(
    cli: Invocation,
    *,
    table: str,
    files: tuple[str, ...],
    key: tuple[str, ...],
    sort_key: tuple[str, ...],
    merge: MergeMode | None,
    column: tuple[tuple[str, str], ...],
    ignore_extra: bool,
    cast: tuple[str, ...],
    reading: ReadingOptions,
    commit_id: str | None,
    partial: bool,
    row_kind: str | None,
) -> None:
    """Add the rows of files, in this process.

    Takes Parquet, Arrow IPC, ORC, CSV, TSV and JSON; text may be compressed (gzip, zstd, bzip2, xz). All files
    become visible at once, or none. A repeat with the same --commit-id prints the first version. Columns that the table
    lacks are refused, or added as fields if its setting schema_growth is add. CSV is read as the table's types; its
    form is detected unless given (`lakebed docs import`): `lakebed schema infer FILE` shows it. With --key, a table
    that does not exist is created from the columns of the files. --partial and --row-kind are for tables that merge by
    latest (`lakebed docs merging`).
    """
    operation = Operation.of(partial, row_kind)
    keys = Keys.of(key, sort_key, merge)
    casts = options.names(cast) or LOSSLESS
    how = Write(
        commit_id, operation=operation, casts=casts, ignore_extra=ignore_extra, columns=_columns_of_fields(column)
    )
    instance = cli.instance()
    with inputs(files, instance.storage) as found:
        for file in found:
            format_of(file, reading)
        with table_for(cli, table, lambda: found, keys, reading) as (target, made):
            added, read = _write(target, found, reading, how)
    document = {"table": table, "version": added.version, "rows_read": read, "rows_added": added.rows}
    document |= {"repeated": added.repeated, "created": made is not None}
    lines = [] if made is None else [_created(target)]
    cli.out.document(document, [*lines, f"table {table} at version {added.version}: {_added_text(added, read)}"])


def _columns_of_fields(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the source's column of each field. Raises UsageError for a field that is named twice."""
    columns = dict(pairs)
    if len(columns) < len(pairs):
        texts = ", ".join("=".join(pair) for pair in pairs)
        raise Code.COLUMN_DUPLICATE(f"--column names a field twice: {texts}; give each field one column")
    return columns


def _created(table: Table) -> str:
    return f"table {table.name} created: {_fields_said(table.schema)}"


def _write(table: Table, files: Sequence[InputFile], reading: ReadingOptions, how: Write) -> tuple[Added, int]:
    """Write the rows of files; returns what was added, and how many rows were read."""
    how.operation.check(table.state().merge)
    schema, columns = table.schema, how.columns
    named, only_fields = how.casts_in(schema), how.ignore_extra
    stream = open_files(files, schema, table.storage, reading, columns=columns, casts=named, only_fields=only_fields)
    total = rows_known(files, reading)
    read = 0
    with command_bar(f"write {table.name}") as bar:

        def counted() -> Iterator[SourceRows]:
            nonlocal read
            for rows in stream.rows:
                yield rows
                read += rows.batch.num_rows
                bar.update(read, total, phase="read and sort")
            bar.update(read, phase="merge and send")

        with committed_on_interrupt(table.log):
            return add(table, replace(stream, rows=counted()), how), read


def _fields_said(schema: Schema) -> str:
    """Return the fields of a table, for people."""
    roles = (("row key", schema.row_key), ("sort key", schema.sort_key), ("", schema.values))
    return ", ".join(
        f"{f.name} {name_of(f.returned_type)}{f' ({role})' if role else ''}" for role, fields in roles for f in fields
    )


def _added_text(added: Added, read: int) -> str:
    if added.repeated:
        return "seen before: nothing added"
    merged = "" if added.rows == read else f" (merged from {read:,})"
    return f"{count_text(added.rows, 'row')} added{merged}"


@command
@options.table
@options.key
@options.file("--keys", "In place of KEY: a text file, one key a line, as in CSV.")
@click.option("--where", metavar="PREDICATE", help="All keys with rows for which it is true, instead of KEY: 'n > 3'.")
@options.run_once_id("--commit-id")
@options.yes
def delete(
    cli: Invocation,
    *,
    table: str,
    key: tuple[str, ...],
    keys: Path | None,
    where: str | None,
    commit_id: str | None,
    yes: bool,
) -> None:
    """Delete keys of a table that merges by latest; with --where asks first.

    Keys are given as to get. Older versions and tags still have the rows. If the table merges by sort key, only --where
    names what is to be deleted.
    """
    options.check_one({"KEY": key, "--keys": keys, "--where": where})
    found = cli.table(table)
    given: Any = None
    if where is None:
        given = [found.schema.codec.parse(key)] if keys is None else options.keys_in(keys, found.schema)
    elif not yes:
        warning = f"This deletes the rows of table {table} that meet {where}"
        options.confirm(f"delete rows of {table}", warning, table)
    with committed_on_interrupt(found.log):
        report = found.delete(given, where=where, commit_id=commit_id)
    cli.out.document(report, [f"table {report.table} at version {report.version}: {_deleted(report)}"])


def _deleted(report: DeleteReport) -> str:
    return "deleted before; nothing was deleted now" if report.repeated else f"{count_text(report.keys, 'key')} deleted"


@command
@options.table
@options.ranges
@click.option("--fence", is_flag=True, help="Also refuse writes and compactions that began earlier.")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@options.yes
def remove(cli: Invocation, *, table: str, ranges: options.Ranges, fence: bool, dry_run: bool, yes: bool) -> None:
    """Remove the rows of key ranges; asks for the table's name first.

    Ranges are given as to scan; at least one. Older versions and tags still have the rows.
    """
    found = cli.table(table)
    wanted = ranges.of(found.schema)
    if not wanted:
        raise Code.ARGUMENT_MISSING("nothing is removed without a range; give --from, --to, --prefix or --starts-with")
    snapshot = found.snapshot()
    going = removed(snapshot.state, removal(snapshot.state, snapshot.reader, found.storage, snapshot.encoded(wanted)))
    rows = count_text(going.rows, "row", exact=going.exact)
    version = None
    if not dry_run:
        if not yes:
            options.confirm(f"remove rows of {table}", f"This removes {rows} from table {table}", table)
        with committed_on_interrupt(found.log):
            version = found.remove(*wanted, fence=fence)
    document = {"table": found.name, "rows": going.rows, "exact": going.exact, "files": going.files, "fence": fence}
    text = f"would remove {rows} from table {found.name}"
    if version is not None:
        text = f"table {found.name} at version {version}: {rows} removed"
    cli.out.document({**document, "dry_run": dry_run, "version": version}, [text])


# -- large files ---------------------------------------------------------------------------------------------------

_sources = options.files("sources", "SOURCE...")


@command
@options.table
@_sources
@_key
@_sort_key
@merge_of_made
@_column
@_ignore_extra
@_cast
@reading_options_of(*SPARK_FORMATS)
@click.option("--select", metavar="SQL", help="Import the rows of this Spark SQL query over the view `source`.")
@click.option(
    "--quarantine",
    metavar="URL",
    shell_complete=completions.paths,
    help="Write rows that do not fit to this folder, and import the others.",
)
@options.run_once_id("--job-id")
@click.option(
    "--partition-rows", metavar="N", type=int, help="Split partitions that would get more rows. Default: split_rows."
)
@options.launcher
def import_rows(
    cli: Invocation,
    *,
    table: str,
    sources: tuple[str, ...],
    key: tuple[str, ...],
    sort_key: tuple[str, ...],
    merge: MergeMode | None,
    column: tuple[tuple[str, str], ...],
    cast: tuple[str, ...],
    launcher: str | None,
    **how: Any,
) -> None:
    """Add large files at once.

    The work runs on Spark, or with --in-process without it.

    A SOURCE is a file, a folder or a glob, local or s3://…, of the formats of write: the same options, and the same is
    detected. All rows become visible at once, or none. A repeat with the same --job-id prints the first version. With
    --key, a table that does not exist is made of the columns of the files. Only Spark takes --select and these
    formats: query, whose source is a Spark SQL query, and avro, delta and iceberg, which need a connector. More about
    formats, casts and rejected rows: `lakebed docs import`.
    """
    columns, casts, keys = _columns_of_fields(column), options.names(cast) or (), Keys.of(key, sort_key, merge)
    if STDIN in sources:
        raise Code.ARGUMENT_INVALID("tasks cannot read standard input: give a file, or use lakebed write")
    if keys.row_key is not None and (how["format"] in SPARK_FORMATS or how["select"] is not None):
        raise Code.ARGUMENTS_CONFLICT(
            "--key makes a table of the columns of a file, not of what Spark reads: leave it out, and create the table "
            "first (lakebed table create)"
        )

    def files() -> list[InputFile]:
        return find_inputs(sources, cli.instance().storage)

    with (
        table_for(cli, table, files, keys, how["reading"]) as (target, made),
        open_pipeline(cli, launcher) as pipeline,
        progress_bar(f"import {table}") as progress,
    ):
        source = list(sources) if len(sources) > 1 else sources[0]
        report = pipeline.bulk_import(target, source, columns=columns, casts=casts, progress=progress, **how)
    lines = [] if made is None else [_created(target)]
    cli.out.document(report, [*lines, report_line(report)])


@command
@options.table
@_sources
@options.run_once_id("--job-id")
@options.launcher
def attach(cli: Invocation, *, table: str, sources: tuple[str, ...], job_id: str | None, launcher: str | None) -> None:
    """Add sorted Parquet files as they are.

    The work runs on Spark, or with --in-process without it.

    Files of an export, or others with the table's field ids: checked row by row, copied byte for byte. Files that are
    not sorted, or have other columns, are refused; import them. --job-id is as for import.
    """
    with open_pipeline(cli, launcher) as pipeline:
        report = pipeline.attach(table, list(sources), job_id=job_id)
    cli.out.document(report, [report_line(report)])


@command
@options.table
@click.argument(
    "url", metavar="URL", shell_complete=completions.paths, help="An empty or new folder, or s3://… and the like."
)
@options.ranges
@options.where
@click.option("--format", type=click.Choice(EXPORT_FORMATS), default="parquet", show_default=True)
@click.option("--partitions", metavar="N", type=int, help="At most this many files. Default: by file_bytes.")
@options.columns
@options.at
@options.run_once_id("--job-id")
@options.launcher
def export(
    cli: Invocation,
    *,
    table: str,
    url: str,
    ranges: options.Ranges,
    columns: tuple[str, ...],
    at: str | None,
    launcher: str | None,
    **how: Any,
) -> None:
    """Write rows as sorted files to an empty folder.

    The work runs on Spark, or with --in-process without it.

    All rows, or those of the ranges given for which the predicate holds. The export is complete when _SUCCESS is there;
    _manifest.json names every file, and the schema. In JSON, nulls are left out (of a map the whole entry), and NaN and
    infinities are null: Parquet keeps them. Keys are given as to scan. With a --job-id, an export that was killed can
    be repeated into the same folder.
    """
    snapshot = cli.snapshot(table, at)
    how |= {"ranges": ranges.of(snapshot.schema), "columns": options.names(columns)}
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"export {table}") as progress:
        version = snapshot.version if at is not None else None
        report = pipeline.export(table, url, at=version, progress=progress, **how)
    cli.out.document(report, [report_line(report)])


_COLUMN = "The source's column of a field. May be repeated."
_VERSION = "A version of Delta, a snapshot id of Iceberg, a snapshot's number of Sleeper. Default: the latest."


@command
@options.table
@click.argument(
    "source",
    metavar="SOURCE",
    shell_complete=completions.paths,
    help="A folder or a URL; of Iceberg also a metadata file or a name.",
)
@click.option("--from", "system", type=click.Choice([*SYSTEMS]), required=True, help="The system that wrote it.")
@click.option(
    "--key", "row_key", metavar="A,B", multiple=True, help="Create the table, with this row key, if it is missing."
)
@click.option("--sort-key", metavar="C", multiple=True, help="With --key: the sort key of the new table.")
@click.option("--column", metavar="FIELD=COLUMN", type=name_value, multiple=True, help=_COLUMN)
@click.option("--cast", metavar="A,B", multiple=True, help="Fields that are also converted from or to text.")
@click.option("--ignore", metavar="A,B", multiple=True, help="Columns of the source to ignore.")
@click.option("--version", metavar="N", help=_VERSION)
@click.option("--catalog", metavar="NAME", help="With iceberg: a catalog of PyIceberg, where SOURCE is a table's name.")
@options.run_once_id("--job-id")
@click.option("--again", is_flag=True, help="Add all rows, also if a version of SOURCE was migrated. Needs --job-id.")
@click.option("--spark", is_flag=True, help="Read and sort on Spark, for large tables.")
@options.launcher
def migrate(
    cli: Invocation,
    *,
    table: str,
    source: str,
    system: str,
    row_key: tuple[str, ...],
    sort_key: tuple[str, ...],
    column: tuple[tuple[str, str], ...],
    cast: tuple[str, ...],
    ignore: tuple[str, ...],
    version: str | None,
    catalog: str | None,
    job_id: str | None,
    again: bool,
    spark: bool,
    launcher: str | None,
) -> None:
    """Add the rows of a table of Delta, Iceberg, Hive, Sleeper or IceDB.

    Runs in this process; for large tables with --in-process in worker processes, or with --spark on Spark. Rows that
    were deleted there are skipped, and columns are matched by name. The rows are counted against the source; all of
    them become visible at once, or none. A repeat adds nothing. Of a later version of the source only the new rows are
    added; it is refused if the source cannot say which rows are new. See `lakebed docs migrate`.
    """
    within = launcher is not None and launcher.startswith("in-process")
    if spark and within:
        raise Code.ARGUMENTS_CONFLICT("--in-process is without Spark: leave out --spark, or --in-process")
    if launcher is not None and not (spark or within):
        raise Code.ARGUMENTS_CONFLICT("--master says where Spark runs: add --spark, or leave it out")
    if catalog is not None and system != "iceberg":
        raise Code.ARGUMENTS_CONFLICT("--catalog goes with --from iceberg")
    if sort_key and not row_key:
        raise Code.ARGUMENTS_CONFLICT("--sort-key needs --key: together they are the keys of a new table")
    check_again(job_id, again=again)
    instance = confirmed(cli.instance())
    try:
        found: Table | None = instance.table(table)
    except NotFoundError as error:
        if not row_key:
            advice = "to make it from the source, give --key A,B: its row key columns"
            raise error.restated(f"{error.message}; {advice}") from error.__cause__
        found = None
    done = found.outcome(job_id) if found is not None and job_id is not None else None
    if found is not None and done is not None:
        report = MigrationReport(found.name, done, source, None, 0, None, repeated=True)
        cli.out.document(report, [report_line(report)])
        return
    wanted = {} if found is None else {one.name: one.type for one in found.schema.fields}
    opened = SYSTEMS[system](SourceLocation(source, instance.storage, version, catalog, wanted))
    chosen = Selection(dict(column), frozenset(options.names(cast) or ()), frozenset(options.names(ignore) or ()))
    keys = (options.names(row_key) or [], options.names(sort_key) or [])
    unused: AbstractContextManager[None] = nullcontext()
    if found is None:
        found = instance.create_table(table, _schema_of_source(opened, chosen, *keys))
        unused = dropped_if_unused(instance, found)
    elif row_key:
        options.check_keys(found, *keys, option="--key")
    with unused:
        if spark or within:
            with open_pipeline(cli, launcher) as pipeline, progress_bar(f"migrate {table}") as progress:
                report = pipeline.migrate(found, opened, chosen, job_id=job_id, again=again, progress=progress)
        else:
            planned = plan(found.state(), opened, job_id, again=again)
            with command_bar(f"migrate {table}") as bar, committed_on_interrupt(found.log):
                report = migrate_rows(found, planned, chosen, bar.update)
    cli.out.document(report, [report_line(report)])


def _schema_of_source(source: ForeignTable, chosen: Selection, row_key: list[str], sort_key: list[str]) -> Schema:
    """Return the schema of a new table: the columns of the source by the names of their fields, less those left out."""
    fields = {column: field for field, column in chosen.columns.items()}
    kept = [one.with_name(fields.get(one.name, one.name)) for one in source.schema if one.name not in chosen.ignored]
    return Schema.from_arrow(pa.schema(kept), row_key, sort_key)
