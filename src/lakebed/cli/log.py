"""``lakebed history`` and ``lakebed log``: what happened to a table, and the log that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.cli import arguments as args
from lakebed.cli.render import size_text
from lakebed.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from lakebed.cli.render import Output
    from lakebed.history import HistoryRow


def add_history(commands: args.Commands) -> None:
    """``lakebed history``."""
    history = args.add_command(
        commands,
        "history",
        "tell what happened to a table, newest first",
        _history,
        more="One line a transaction. Times are the store's. A minus sign stands where the log does not tell, as for\n"
        "the rows that a compaction replaces.",
    )
    history.add_argument("table", metavar="TABLE")
    history.add_argument("--limit", metavar="N", type=int, help="only the newest so many; reads no more of the log")


def _history(arguments: argparse.Namespace, out: Output) -> None:
    _check_limit(arguments.limit)
    table = args.open_table(arguments)
    names = ("number", "time", "type", "rows", "removed", "files", "dropped", "size", "key", "writer", "detail")
    out.records(table.history_rows(arguments.limit), names, _cells)


def _cells(row: HistoryRow) -> tuple[Any, ...]:
    size = size_text(row.bytes_added) if row.bytes_added else 0
    counts = (row.rows_added, row.rows_removed, row.files_added, row.references_dropped, size)
    return (row.number, row.time, row.type, *counts, row.request_key or row.job, row.writer, row.detail)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise UsageError(f"--limit {limit}: must be 0 or more")
