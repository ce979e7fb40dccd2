"""``lakebed index``: indexes of tables, by which rows are found by other fields than the key.

Errors: those of :meth:`lakebed.Instance.create_index`. Source: docs/second-key.md.
"""

from __future__ import annotations

import click

from lakebed.cli import completions, options
from lakebed.cli.grammar import KEY_WORD, command
from lakebed.cli.invocation import Invocation


@command
@click.argument("name", metavar="NAME", type=KEY_WORD, help="The index's name.")
@click.option("--table", metavar="TABLE", required=True, shell_complete=completions.tables, help="The indexed table.")
@click.option("--on", metavar="A,B", multiple=True, required=True, help="The indexed columns.")
def create(cli: Invocation, *, name: str, table: str, on: tuple[str, ...]) -> None:
    """Create an index: rows are then found by the values of these columns.

    Reads by them read all rows until `lakebed index refresh` has built it, and use it from then on.
    """
    index = cli.instance().create_index(name, table=table, on=options.names(on) or [])
    document = {"index": index.name, "id": index.id, "version": index.version, "table": table}
    cli.out.document(document, [f"created index {name} of table {table}; `lakebed index refresh {name}` builds it"])


@command
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=completions.tables, help="Only these tables.")
def list_indexes(cli: Invocation, *, tables: tuple[str, ...]) -> None:
    """List indexes, their columns, and the version of its table that each has."""
    from lakebed.table.description import index_document

    instance = cli.instance()
    found = [index_document(instance, instance.table(name)) for name in tables or instance.tables()]
    indexes = [{"table": one["table"], **index, "latest": one["version"]} for one in found for index in one["indexes"]]
    lines = [
        f"{one['index']}: {', '.join(one['on'])} of table {one['table']}; has version {one['version']} of "
        f"{one['latest']}"
        for one in indexes
    ]
    cli.out.document({"indexes": indexes}, lines or [f"no index{' of ' + ', '.join(tables) if tables else ''}"])


@command
@options.table
@click.option("--anew", is_flag=True, help="Build it from all rows; entries of rows that are gone are dropped.")
def refresh(cli: Invocation, *, table: str, anew: bool) -> None:
    """Add to an index the rows that its table has gained, in this process; the first time, all rows."""
    from lakebed.upkeep.index_feed import feed_index, source_of
    from lakebed.upkeep.view_feed import beside_others

    instance = cli.instance()
    index = instance.table(table)
    fed, _ = source_of(table, index.state())
    source = instance.named(fed.table)
    report = beside_others(lambda: feed_index(index, source, anew=anew))
    cli.out.document(report, [f"index {report.view} at version {report.version}: {report.summary}"])


@command
@options.table
def drop(cli: Invocation, *, table: str) -> None:
    """Drop an index; its table keeps its rows."""
    cli.instance().drop_index(table)
    cli.out.document({"index": table}, [f"dropped index {table}"])
