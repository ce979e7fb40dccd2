"""``lakebed table repair``: values that their types do not allow, in tables that took them before they were refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command
from lakebed.cli.render import count_text, plain
from lakebed.maintenance.repair import find
from lakebed.maintenance.repair import repair as repair_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.maintenance.repair import InvalidRows, RepairReport


@command
@options.table
@click.option("--removed", metavar="FOLDER", help="A local folder for rows that are removed.")
@options.dry_run
def repair(cli: Invocation, *, table: str, removed: str | None, dry_run: bool) -> None:
    """Replace invalid values, such as text that is not UTF-8.

    Reads every file of the table. Bytes that are not UTF-8 become U+FFFD; decimals and times that their types do not
    allow become null. Rows with an invalid key are removed, with their keys replaced, into Parquet files in the folder
    --removed; `lakebed write` adds them again.
    """
    found = cli.table(table)
    if dry_run:
        invalid = find(found)
        cli.out.document({"table": found.name, "files": plain(invalid)}, _found_lines(found.name, invalid))
        return
    report = repair_table(found, removed)
    document = {
        **plain(report),
        "failed": [{"partition": one.partition, "reason": str(one.error)} for one in report.failed],
    }
    cli.out.document(document, _lines(report))
    if report.failed:
        raise report.failed[0].error


def _found_lines(table: str, found: Sequence[InvalidRows]) -> Iterator[str]:
    if not found:
        yield f"table {table}: nothing to repair"
    for file in found:
        columns = ", ".join(file.columns)
        yield f"file {file.file}: {count_text(file.rows, 'invalid row')} in {columns}, {file.in_keys} to be taken out"


def _lines(report: RepairReport) -> Iterator[str]:
    if not report.files:
        yield f"table {report.table}: nothing to repair"
    if report.version is not None:
        removed = f"{count_text(report.removed, 'row')} taken out"
        yield f"table {report.table} at version {report.version}: {count_text(report.mended, 'row')} mended, {removed}"
    for path in report.removed_files:
        yield f"taken out: {path}"
    if report.waits is not None:
        yield f"table {report.table} is not repaired further: {report.waits}"
    for skipped in report.skipped:
        yield f"partition {skipped.partition} was left alone: {skipped.reason}; repair again"
