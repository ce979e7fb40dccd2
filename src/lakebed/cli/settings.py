"""``lakebed settings``: what is in force, what may be set, and setting it, for a table or for the whole instance."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from lakebed import settings
from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command, name_value
from lakebed.cli.render import columns
from lakebed.errors import Code


@command
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--defaults", is_flag=True, help="Every setting with its unit, default and meaning; needs no instance.")
def show(cli: Invocation, *, table: str | None, defaults: bool) -> None:
    """Show the settings in force.

    Without TABLE: the instance's defaults.
    """
    options.check_at_most_one({"TABLE": table, "--defaults": defaults})
    if defaults:
        described = settings.describe()
        rows = [(d.name, d.default, d.unit, d.help) for d in described]
        text = columns(("setting", "default", "unit", "meaning"), rows)
        cli.out.document({"settings": [asdict(d) for d in described]}, [text])
        return
    instance = cli.instance()
    _print(cli, table, instance.settings() if table is None else instance.table(table).settings())


@command
@click.argument("words", metavar="[TABLE] NAME=VALUE...", nargs=-1, required=True)
def change(cli: Invocation, *, words: tuple[str, ...]) -> None:
    """Change settings.

    Without TABLE: the instance's defaults, for all tables that do not set their own. An empty value (NAME=) restores
    the default.
    """
    table, texts = (None, words) if "=" in words[0] else (words[0], words[1:])
    if not texts:
        raise Code.ARGUMENT_MISSING(
            f"give NAME=VALUE after {table}; `lakebed settings show --defaults` lists the names"
        )
    changes = options.setting_changes([name_value(text) for text in texts])
    settings.validate(changes)
    instance = cli.instance()
    target = instance if table is None else instance.table(table)
    target.set(**changes)
    _print(cli, table, target.settings())


def _print(cli: Invocation, table: str | None, in_force: dict[str, Any]) -> None:
    rows = [(d.name, in_force[d.name], d.unit) for d in settings.describe()]
    cli.out.document({"table": table, "settings": in_force}, [columns(("setting", "value", "unit"), rows)])
