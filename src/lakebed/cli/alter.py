"""``lakebed alter``: changes of a table's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed import types
from lakebed.checks import shown
from lakebed.cli import arguments as args
from lakebed.documents import UNREADABLE, load
from lakebed.errors import UsageError
from lakebed.foreign import said
from lakebed.state.evolution import (
    AddField,
    AllowNulls,
    DropField,
    RenameField,
    SchemaChange,
    WidenField,
    describe,
)

if TYPE_CHECKING:
    import argparse

    from lakebed.cli.render import Output

_ADDED = """\
Rows that are there have null in it. A TYPE is Arrow's name, such as int64, string or "timestamp[us, tz=UTC]",
or JSON for a nested one, such as '{"list": "string"}'."""


def add_alter(commands: args.Commands) -> None:
    """``lakebed alter …``."""
    noun = args.add_noun(commands, "alter", "change a table's schema; no file is rewritten")
    _change(noun, "add", "add a value field", ("NAME", "TYPE"), more=_ADDED)
    _change(noun, "drop", "take a value field away", ("NAME",))
    more = "Any field, of the keys as well. Rows that are written from then on have it under the new name."
    _change(noun, "rename", "give a field another name", ("NAME", "NEW_NAME"), more=more)
    ladders = ", or ".join(" to ".join(ladder) for ladder in types.WIDENING)
    _change(noun, "widen", "give a value field a wider type", ("NAME", "TYPE"), more=f"From {ladders}.")
    _change(noun, "allow-nulls", "let a value field be null", ("NAME",))


def _change(noun: args.Commands, verb: str, help: str, words: tuple[str, ...], *, more: str = "") -> None:
    parser = args.add_command(noun, verb, help, _alter, more=more)
    parser.add_argument("table", metavar="TABLE")
    for word in words:
        parser.add_argument(word.lower(), metavar=word)
    parser.set_defaults(verb=verb)


def _alter(arguments: argparse.Namespace, out: Output) -> None:
    change = _parsed(arguments)
    table = args.open_table(arguments)
    number = table.alter(change)
    schema = table.schema
    document = {"table": table.name, "number": number, "schema": schema.to_json()}
    out.document(document, [f"table {table.name} at number {number}: {describe(change)}"])


def _parsed(arguments: argparse.Namespace) -> SchemaChange:
    name: str = arguments.name
    match arguments.verb:
        case "add":
            return AddField(name, _type(arguments.type))
        case "drop":
            return DropField(name)
        case "rename":
            return RenameField(name, arguments.new_name)
        case "widen":
            return WidenField(name, _type(arguments.type))
        case _:
            return AllowNulls(name)


def _type(text: str) -> Any:
    if not text.startswith("{"):
        return types.parse(text)
    try:
        return types.from_json(load(text))
    except UNREADABLE as error:
        raise UsageError(f"not a type: {shown(text)} ({said(error)}); see `lakebed alter add --help`") from error
