"""``lakebed table pause`` and ``resume``: switches of the operations that maintain a table."""

from __future__ import annotations

import click

from lakebed.cli import options
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.model.operations import TableOperation

_operations = click.argument(
    "operations",
    metavar="[OPERATION]...",
    nargs=-1,
    type=click.Choice([str(one) for one in TableOperation]),
    required=False,
)


@command
@options.table
@_operations
def pause(cli: Invocation, *, table: str, operations: tuple[str, ...]) -> None:
    """Pause operations of a table, by default all: ingest, compaction, splitting, refresh, gc.

    Every service and `lakebed maintain` leave them out until `lakebed table resume`. Work that has begun goes on, and
    commands that name an operation, such as `lakebed compact`, still do it.
    """
    cli.instance().pause(table, *operations)
    _report(cli, table)


@command
@options.table
@_operations
def resume(cli: Invocation, *, table: str, operations: tuple[str, ...]) -> None:
    """Resume operations of a table that are paused, by default all."""
    cli.instance().resume(table, *operations)
    _report(cli, table)


def _report(cli: Invocation, table: str) -> None:
    paused = sorted(cli.instance().paused(table))
    text = f"paused: {', '.join(paused)}" if paused else "nothing is paused"
    cli.out.document({"table": table, "paused": paused}, [f"table {table}: {text}"])
