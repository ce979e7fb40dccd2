"""``lakebed tag``: names for log numbers whose files are kept."""

from __future__ import annotations

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command
from lakebed.cli.render import columns

name_argument = click.argument("name", metavar="NAME")


@command
@options.table
@name_argument
@click.option("--version", metavar="N", type=int, help="The version to name. Default: the newest.")
def create(cli: Invocation, *, table: str, name: str, version: int | None) -> None:
    """Name a version of a table and keep its files.

    A tagged version can be read (get, scan --at NAME) however old it becomes.
    """
    found = cli.table(table)
    tagged = found.tag(name, version)
    document = {"table": found.name, "tag": name, "version": tagged}
    cli.out.document(document, [f"table {found.name}: tag {name} at version {tagged}"])


@command
@options.table
@name_argument
def drop(cli: Invocation, *, table: str, name: str) -> None:
    """Drop a tag; its files may then be deleted."""
    found = cli.table(table)
    found.untag(name)
    cli.out.document({"table": found.name, "tag": name}, [f"table {found.name}: tag {name} dropped"])


@command
@options.table
def list_tags(cli: Invocation, *, table: str) -> None:
    """List a table's tags and their versions."""
    found = cli.table(table)
    tags = list(found.tags().items())
    document = {"table": found.name, "tags": [{"tag": name, "version": version} for name, version in tags]}
    cli.out.document(document, [columns(("tag", "version"), tags)] if tags else ["no tags"])
