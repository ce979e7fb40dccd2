"""``lakebed table repair``: values that their types do not allow, in tables that took them before they were refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.render import count_text, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from lakebed.cli.render import Output
    from lakebed.repair import InvalidRows, RepairReport


def add_repair(commands: args.Commands) -> None:
    """``lakebed table repair``."""
    repair = args.add_command(
        commands,
        "repair",
        "mend text that is not UTF-8, in place",
        _repair,
        more="Reads every file of the table. Bytes that are not UTF-8 become U+FFFD; decimals and times that their\n"
        "types do not allow become null. Rows with an invalid key are taken out, with their keys mended, into\n"
        "Parquet files in the folder --removed; `lakebed write` adds them again.",
    )
    repair.add_argument("table", metavar="TABLE")
    repair.add_argument("--removed", metavar="FOLDER", help="a local folder for rows that are taken out")
    repair.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")


def _repair(arguments: argparse.Namespace, out: Output) -> None:
    from lakebed.repair import find, repair

    table = args.open_table(arguments)
    if arguments.dry_run:
        found = find(table)
        out.document({"table": table.name, "files": plain(found)}, _found_lines(table.name, found))
        return
    report = repair(table, arguments.removed)
    document = {**plain(report), "failed": [{"leaf": one.leaf, "reason": str(one.error)} for one in report.failed]}
    out.document(document, _lines(report))
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
    if report.number is not None:
        removed = f"{count_text(report.removed, 'row')} taken out"
        yield f"table {report.table} at number {report.number}: {count_text(report.mended, 'row')} mended, {removed}"
    for path in report.removed_files:
        yield f"taken out: {path}"
    if report.waits is not None:
        yield f"table {report.table} is not repaired further: {report.waits}"
    for skipped in report.skipped:
        yield f"leaf {skipped.leaf} was left alone: {skipped.reason}; repair again"
