"""``lakebed settings``: what is in force, what may be set, and setting it, for a table or for the whole instance."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakebed import settings
from lakebed.cli import arguments as args
from lakebed.cli.render import columns
from lakebed.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from lakebed.cli.render import Output


def add_settings(commands: args.Commands) -> None:
    """``lakebed settings …``."""
    noun = args.add_noun(commands, "settings", "show and change settings")
    show = args.add_command(
        noun, "show", "show the settings in force", _show, more="Without TABLE: the instance's defaults."
    )
    show.add_argument("table", metavar="TABLE", nargs="?")
    change = args.add_command(
        noun,
        "set",
        "change settings",
        _set,
        more="Without TABLE: the instance's defaults, for all tables that do not set their own.\n"
        "An empty value (NAME=) takes a setting back.",
    )
    change.add_argument("words", metavar="[TABLE] NAME=VALUE", nargs="+", help="may be repeated")
    args.add_command(noun, "list", "list every setting with its unit, default and meaning", _list)


def _show(arguments: argparse.Namespace, out: Output) -> None:
    instance = args.open_instance(arguments)
    in_force = instance.settings() if arguments.table is None else instance.table(arguments.table).settings()
    _print(out, arguments.table, in_force)


def _set(arguments: argparse.Namespace, out: Output) -> None:
    first, *rest = arguments.words
    table, texts = (None, arguments.words) if "=" in first else (first, rest)
    if not texts:
        raise UsageError(f"set what? Give NAME=VALUE after {table}; `lakebed settings list` has the names")
    changes = args.setting_changes(texts, "settings set")
    settings.validate(changes)
    instance = args.open_instance(arguments)
    if table is None:
        instance.set(**changes)
        _print(out, None, instance.settings())
    else:
        handle = instance.table(table)
        handle.set(**changes)
        _print(out, table, handle.settings())


def _print(out: Output, table: str | None, in_force: dict[str, Any]) -> None:
    rows = [(d.name, in_force[d.name], d.unit) for d in settings.describe()]
    out.document({"table": table, "settings": in_force}, _text(("setting", "value", "unit"), rows))


def _list(_: argparse.Namespace, out: Output) -> None:
    described = settings.describe()
    rows = [(d.name, d.default, d.unit, d.help) for d in described]
    out.document({"settings": [asdict(d) for d in described]}, _text(("setting", "default", "unit", "meaning"), rows))


def _text(names: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> Iterable[str]:
    return columns(names, list(rows))
