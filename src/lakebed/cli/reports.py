"""``lakebed report``: the files and the leaves of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.render import ABOUT, columns, key_text, size_text
from lakebed.report import file_rows, partition_rows

if TYPE_CHECKING:
    import argparse

    from lakebed.cli.render import Output


def add_report(commands: args.Commands) -> None:
    """``lakebed report …``."""
    noun = args.add_noun(commands, "report", "show what a table is made of")
    files = args.add_command(
        noun,
        "files",
        "list data files, leaf by leaf",
        _files,
        more="A file that reaches over several leaves is listed in each. Rows are those in the leaf, with a ~ where\n"
        "they are an estimate; size and keys are the whole file's.",
    )
    files.add_argument("table", metavar="TABLE")
    partitions = args.add_command(
        noun, "partitions", "list leaves: their key ranges, rows, bytes, files and runs", _partitions
    )
    partitions.add_argument("table", metavar="TABLE")


def _files(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    state = table.state()
    rows = file_rows(state, table.id, table.storage.object_url)
    cells = [
        (
            row["leaf"],
            _rows(row["rows"], exact=row["exact"]),
            size_text(row["size_bytes"]),
            key_text(row["min_key"]),
            key_text(row["max_key"]),
            row["number"],
            row["url"],
        )
        for row in rows
    ]
    names = ("leaf", "rows", "size", "min key", "max key", "number", "url")
    out.document({"table": table.name, "number": state.number, "files": rows}, columns(names, cells))


def _partitions(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    state = table.state()
    rows = partition_rows(state)
    cells = [
        (
            row["leaf"],
            key_text(row["min"]),
            key_text(row["max"]),
            _rows(row["rows"], exact=row["exact"]),
            size_text(row["bytes"]),
            row["files"],
            row["runs"],
        )
        for row in rows
    ]
    names = ("leaf", "from", "to", "rows", "size", "files", "runs")
    out.document({"table": table.name, "number": state.number, "partitions": rows}, columns(names, cells))


def _rows(rows: int, *, exact: bool) -> int | str:
    return rows if exact else f"{ABOUT}{rows}"
