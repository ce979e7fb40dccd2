"""``lakebed tag``, ``untag`` and ``tags``: names for numbers whose files are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.render import columns

if TYPE_CHECKING:
    import argparse

    from lakebed.cli.render import Output


def add_tags(commands: args.Commands) -> None:
    """``lakebed tag``, ``untag``, ``tags``."""
    tag = args.add_command(
        commands,
        "tag",
        "name a number of a table and keep its files",
        _tag,
        more="A tagged number can be read (get, scan --at NAME) however old it becomes. Without --number the newest.",
    )
    tag.add_argument("table", metavar="TABLE")
    tag.add_argument("name", metavar="NAME")
    tag.add_argument("--number", metavar="N", type=int, help="the log number to name")
    untag = args.add_command(commands, "untag", "take a tag away; its files may then be deleted", _untag)
    untag.add_argument("table", metavar="TABLE")
    untag.add_argument("name", metavar="NAME")
    tags = args.add_command(commands, "tags", "list a table's tags and their numbers", _tags)
    tags.add_argument("table", metavar="TABLE")


def _tag(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    number = table.tag(arguments.name, arguments.number)
    document = {"table": table.name, "tag": arguments.name, "number": number}
    out.document(document, [f"table {table.name}: tag {arguments.name} at number {number}"])


def _untag(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    table.untag(arguments.name)
    out.document({"table": table.name, "tag": arguments.name}, [f"table {table.name}: tag {arguments.name} removed"])


def _tags(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    found = [{"tag": name, "number": number} for name, number in table.tags().items()]
    lines = list(columns(["tag", "number"], [list(row.values()) for row in found])) if found else ["no tags"]
    out.document({"table": table.name, "tags": found}, lines)
