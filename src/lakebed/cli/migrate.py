"""``lakebed migrate``: the rows of tables of other systems.

Rule: rows are committed after they were counted against the source, all or none. Errors: UsageError for options that do
not go together; those of :mod:`lakebed.upkeep.migration`. Source: docs/migrate.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pyarrow as pa

from lakebed.cli import completions, options
from lakebed.cli.argument_types import name_value
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.cli.progress import command_bar, open_pipeline, progress_bar, report_line
from lakebed.errors import Code, NotFoundError
from lakebed.model.schema import Schema
from lakebed.read.inspect.history import committed_on_interrupt
from lakebed.upkeep.migration.foreign_table import ForeignTable, SourceLocation
from lakebed.upkeep.migration.run import SYSTEMS, MigrationReport, Selection
from lakebed.upkeep.migration.run import migrate as migrate_rows

if TYPE_CHECKING:
    from lakebed.table.table import Table

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
@click.option("--row-key", metavar="A,B", multiple=True, help="Create the table, with this row key, if it is missing.")
@click.option("--sort-key", metavar="C", multiple=True, help="With --row-key: the sort key of the new table.")
@click.option("--column", metavar="FIELD=COLUMN", type=name_value, multiple=True, help=_COLUMN)
@click.option("--cast", metavar="A,B", multiple=True, help="Fields that are also converted from or to text.")
@click.option("--ignore", metavar="A,B", multiple=True, help="Columns of the source to ignore.")
@click.option("--version", metavar="N", help=_VERSION)
@click.option("--catalog", metavar="NAME", help="With iceberg: a catalog of PyIceberg, where SOURCE is a table's name.")
@options.run_once_id("--job-id")
@click.option("--spark", is_flag=True, help="Read and sort on Spark, for large tables.")
@options.master
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
    spark: bool,
    launcher: str | None,
) -> None:
    """Add the rows of a table of Delta, Iceberg, Hive, Sleeper or IceDB, in this process or on Spark.

    Rows that were deleted there are skipped, and columns are matched by name. The rows are counted against the source;
    all of them become visible at once, or none. A repeat with the same --job-id adds nothing. See docs/migrate.md.
    """
    if launcher is not None and not spark:
        raise Code.ARGUMENTS_CONFLICT("--master says where Spark runs: add --spark, or leave it out")
    if catalog is not None and system != "iceberg":
        raise Code.ARGUMENTS_CONFLICT("--catalog goes with --from iceberg")
    if sort_key and not row_key:
        raise Code.ARGUMENTS_CONFLICT("--sort-key needs --row-key: together they are the keys of a new table")
    instance = cli.instance()
    try:
        found: Table | None = instance.table(table)
    except NotFoundError as error:
        if not row_key:
            advice = "to make it from the source, give --row-key A,B: its row key columns"
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
    if found is None:
        found = instance.create_table(table, _schema_of_source(opened, chosen, *keys))
    elif row_key:
        options.check_keys(found, *keys, option="--row-key")
    if spark:
        with open_pipeline(cli, launcher) as pipeline, progress_bar(f"migrate {table}") as progress:
            report = pipeline.migrate(found, opened, chosen, job_id=job_id, progress=progress)
    else:
        with command_bar(f"migrate {table}") as bar, committed_on_interrupt(found.log):
            report = migrate_rows(found, opened, chosen, job_id, lambda read: bar.update(read, opened.rows))
    cli.out.document(report, [report_line(report)])


def _schema_of_source(source: ForeignTable, chosen: Selection, row_key: list[str], sort_key: list[str]) -> Schema:
    """Return the schema of a new table: the columns of the source by the names of their fields, less those left out."""
    fields = {column: field for field, column in chosen.columns.items()}
    kept = [one.with_name(fields.get(one.name, one.name)) for one in source.schema if one.name not in chosen.ignored]
    return Schema.from_arrow(pa.schema(kept), row_key, sort_key)
