"""The reference of the command line, generated from its commands: ``python -m lakebed.cli.reference > docs/cli.md``.

The text of a command is its help, so the page says what ``--help`` says. A test compares the page with the commands.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator

import click

from lakebed.cli.commands import LAKEBED
from lakebed.cli.grammar import Command, Deferred
from lakebed.cli.run import EXIT_CODES, HELP_SETTINGS

_OPENING = """\
# The command line

This page is generated from the commands. To change it, change `src/lakebed/cli` and run
`python -m lakebed.cli.reference > docs/cli.md`.

A command prints its answer to stdout; messages and progress go to stderr. With `--json` the answer is JSON, which
[cli-json.md](cli-json.md) specifies. Commands that print rows or a listing have `--format`: csv, json (an array), jsonl
(an object a line), markdown, arrow (an IPC stream) or parquet. On a terminal a table is cut to its width, and one that
is longer than the screen goes to a pager; with `NO_COLOR` there are no colours. Commands, options, JSON and exit codes
are stable interfaces. `lakebed completion` prints a script with which bash, zsh or fish completes commands, options,
choices, files, and the names of tables, columns, tags, instances and profiles."""


def reference() -> str:
    """Return the whole reference as Markdown."""
    root = _context(LAKEBED, "lakebed", None)
    codes = [f"| {code} | {_escaped(text)} |" for code, text in EXIT_CODES.items()]
    parts = [_OPENING, "## Options of every command", "They may stand before or after the command."]
    parts.append(_argument_table(LAKEBED.get_params(root), root))
    parts += ["## Exit codes", "\n".join(["| code | meaning |", "|---|---|", *codes])]
    for command, context in every_command():
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        text = inspect.cleandoc(command.help or "")
        parts += [f"## `{context.command_path}`", _escaped(text), f"```\n{usage}\n```"]
        table = _argument_table(command.own_params, context)
        parts += [table] if table else []
    return "\n\n".join(parts) + "\n"


def every_command() -> Iterator[tuple[Command, click.Context]]:
    """Return every command, with its context, in the order of the help."""
    return _below(LAKEBED, _context(LAKEBED, "lakebed", None))


def _below(group: click.Group, parent: click.Context) -> Iterator[tuple[Command, click.Context]]:
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from _below(found, _context(found, name, parent))
        elif isinstance(found, Deferred):
            command = found.load()
            yield command, _context(command, name, parent)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, **HELP_SETTINGS)


def _argument_table(params: Iterable[click.Parameter], context: click.Context) -> str:
    records = [param.get_help_record(context) for param in params]
    rows = [f"| `{r[0].replace('|', chr(92) + '|')}` | {_escaped(r[1])} |" for r in records if r is not None and r[1]]
    return "\n".join(["| argument | meaning |", "|---|---|", *rows]) if rows else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(reference())
