"""``lakebed table alter``: changes of a table's schema, its name, and whether it is maintained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command
from lakebed.errors import Code
from lakebed.model import types
from lakebed.model.checks import shown
from lakebed.model.documents import UNREADABLE, load
from lakebed.model.foreign_errors import error_text
from lakebed.state.transactions.schema_changes import (
    AddField,
    AllowNulls,
    DropField,
    RenameField,
    SchemaChange,
    WidenField,
    describe,
)

_LADDERS = ", or ".join(" to ".join(ladder) for ladder in types.WIDENING)
_CHANGES: dict[str, Callable[..., SchemaChange]] = {
    "add": lambda name, text: AddField(name, _type(text)),
    "drop": DropField,
    "rename": RenameField,
    "widen": lambda name, text: WidenField(name, _type(text)),
    "allow_nulls": AllowNulls,
}


@command
@options.table
@click.option("--add", metavar="NAME TYPE", nargs=2, help="Add a value field; existing rows have null in it.")
@click.option("--drop", metavar="NAME", help="Drop a value field.")
@click.option("--rename", metavar="NAME NEW_NAME", nargs=2, help="Rename a field, of the keys as well.")
@click.option("--widen", metavar="NAME TYPE", nargs=2, help=f"Widen a value field: {_LADDERS}.")
@click.option("--allow-nulls", metavar="NAME", help="Let a value field be null.")
@click.option("--rename-to", metavar="NEW_NAME", help="Rename the table; nothing moves.")
@click.option("--online", is_flag=True, help="Compact and split the table when due.")
@click.option("--offline", is_flag=True, help="Neither compact nor split the table.")
def alter(
    cli: Invocation, *, table: str, rename_to: str | None, online: bool, offline: bool, **changes: str | tuple[str, str]
) -> None:
    """Change a table's schema, name or state; no file is rewritten.

    Takes one change. A TYPE is Arrow's name, such as int64, string or "timestamp[us, tz=UTC]", or JSON for a nested
    type, such as '{"list": "string"}'.
    """
    schema_changes = {f"--{name.replace('_', '-')}": words for name, words in changes.items()}
    options.check_one({**schema_changes, "--rename-to": rename_to, "--online": online, "--offline": offline})
    if rename_to is not None:
        cli.instance().rename_table(table, rename_to)
        cli.out.document({"table": rename_to, "was": table}, [f"table {table} is now {rename_to}"])
    elif online or offline:
        cli.instance().set_online(table, online)
        text = f"table {table} is {'online' if online else 'offline'}"
        cli.out.document({"table": table, "online": online}, [text])
    else:
        ((name, given),) = ((name, given) for name, given in changes.items() if given)
        change = _CHANGES[name](*((given,) if isinstance(given, str) else given))
        _change_schema(cli, table, change)


def _change_schema(cli: Invocation, name: str, change: SchemaChange) -> None:
    table = cli.table(name)
    version = table.alter(change)
    document = {"table": table.name, "version": version, "schema": table.schema.to_json()}
    cli.out.document(document, [f"table {table.name} at version {version}: {describe(change)}"])


def _type(text: str) -> Any:
    if not text.startswith("{"):
        return types.parse(text)
    try:
        return types.from_json(load(text))
    except UNREADABLE as error:
        raise Code.TYPE_INVALID(
            f"unknown type {shown(text)} ({error_text(error)}); see `lakebed table alter --help`"
        ) from error
