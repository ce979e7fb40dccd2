"""``lakebed table files`` and ``lakebed table partitions``: what a table is made of."""

from __future__ import annotations

from lakebed.cli.grammar import Invocation, command
from lakebed.cli.options import table_argument
from lakebed.cli.render import ABOUT, columns, key_text, size_text
from lakebed.report import file_rows, partition_rows


@command
@table_argument
def files(cli: Invocation, *, table: str) -> None:
    """List data files, leaf by leaf.

    A file that reaches over several leaves is listed in each. Rows are those in the leaf, with a ~ where they are an
    estimate; size and keys are the whole file's.
    """
    found = cli.table(table)
    state = found.state()
    rows = file_rows(state, found.id, found.storage.object_url)
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
    text = columns(("leaf", "rows", "size", "min key", "max key", "number", "url"), cells)
    cli.out.document({"table": found.name, "number": state.number, "files": rows}, [text])


@command
@table_argument
def partitions(cli: Invocation, *, table: str) -> None:
    """List leaves: their key ranges, rows and files.

    `runs` is how many sorted runs a read of the leaf merges.
    """
    found = cli.table(table)
    state = found.state()
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
    text = columns(("leaf", "from", "to", "rows", "size", "files", "runs"), cells)
    cli.out.document({"table": found.name, "number": state.number, "partitions": rows}, [text])


def _rows(rows: int, *, exact: bool) -> int | str:
    return rows if exact else f"{ABOUT}{rows}"
