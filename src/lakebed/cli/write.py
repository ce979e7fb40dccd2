"""``lakebed write`` and ``lakebed remove``: rows into a table and out of it, in this process."""

from __future__ import annotations

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command
from lakebed.cli.progress import ProgressBar
from lakebed.cli.render import count_text
from lakebed.errors import Code
from lakebed.ingest.input_files import input_file, is_remote, kind_of, read_rows, rows_known
from lakebed.inspect.history import committed_on_interrupt
from lakebed.inspect.report import removed
from lakebed.read.summaries import removal


@command
@options.table
@click.argument("files", metavar="FILE...", nargs=-1, required=True, help="Local paths, or s3://… and the like.")
@options.run_once_id("--commit-id")
def write(cli: Invocation, *, table: str, files: tuple[str, ...], commit_id: str | None) -> None:
    """Add the rows of files, in this process.

    Takes Parquet, Arrow IPC and CSV (by its name: .csv, .csv.gz …). All files become visible at once, or none. A repeat
    with the same --commit-id prints the first number.
    """
    for text in files:
        if not is_remote(text):
            kind_of(input_file(text))
    found = cli.table(table)
    inputs = [input_file(text, found.storage) for text in files]
    total = rows_known(inputs)
    read = 0
    with ProgressBar(f"write {found.name}") as bar:

        def progress(done: int) -> None:
            nonlocal read
            read = done
            bar.update(done, total)

        limit = found.settings_in_force().value_bytes_max
        rows = read_rows(inputs, found.schema, progress, value_bytes_max=limit)
        with committed_on_interrupt(found.log):
            version = found.write(rows, commit_id=commit_id)
    document = {"table": found.name, "version": version, "rows_read": read}
    cli.out.document(document, [f"table {found.name} at version {version}: {count_text(read, 'row')} read"])


@command
@options.table
@options.ranges
@click.option("--fence", is_flag=True, help="Also keep out writes and compactions that began before.")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@options.yes
def remove(cli: Invocation, *, table: str, ranges: options.Ranges, fence: bool, dry_run: bool, yes: bool) -> None:
    """Remove the rows of key ranges; asks for the table's name first.

    Ranges are given as to scan; at least one. Older numbers of the table, and tags, still have the rows.
    """
    if not yes and not dry_run:
        options.check_answerable(f"whether to remove rows of {table}")
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
            options.ask_for(found.name, f"This removes {rows} from table {found.name}", cli.out)
        with committed_on_interrupt(found.log):
            version = found.remove(*wanted, fence=fence)
    document = {"table": found.name, "rows": going.rows, "exact": going.exact, "files": going.files, "fence": fence}
    text = f"would remove {rows} from table {found.name}"
    if version is not None:
        text = f"table {found.name} at version {version}: {rows} removed"
    cli.out.document({**document, "dry_run": dry_run, "version": version}, [text])
