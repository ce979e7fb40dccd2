"""The reference of the command line, generated from its parser: ``python -m lakebed.cli.reference > docs/cli.md``.

Written from the arguments themselves rather than from argparse's own help, whose layout differs from one version of
Python to the next.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lakebed.cli.arguments import notation, own_arguments, synopsis
from lakebed.cli.run import EXIT_CODES, build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPENING = """\
# The command line

Generated from the code; to change it, change `src/lakebed/cli` and run `python -m lakebed.cli.reference > docs/cli.md`.

Data go to stdout; messages and progress go to stderr. With `--json` the answer is JSON whose shape is a promise
([cli-json.md](cli-json.md)). A command that only reads a table's state imports neither pandas nor an engine, and
answers at once."""


def reference() -> str:
    """The whole reference as Markdown."""
    parser = build_parser()
    codes = [f"| {code} | {_escaped(text)} |" for code, text in EXIT_CODES.items()]
    parts = [_OPENING, "## Options of every command", "They may stand before or after the command."]
    parts.append(_table(a for a in parser._actions if a.option_strings))  # noqa: SLF001 - argparse has no public list of them
    parts += ["## Exit codes", "\n".join(["| code | meaning |", "|---|---|", *codes])]
    for command, text in _commands(parser):
        parts += [f"## `{command.prog}`", _escaped(text), f"```\n{synopsis(command)}\n```"]
        table = _table(own_arguments(command))
        parts += [table] if table else []
    return "\n\n".join(parts) + "\n"


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Every command that does something, with its description, in the order of the help."""
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for command in action.choices.values():
                if command.get_default("run") is None:
                    yield from _commands(command)
                else:
                    yield command, command.description or ""


def _table(actions: Iterator[argparse.Action] | list[argparse.Action]) -> str:
    rows = []
    for action in actions:
        if action.help:
            text = action.help % {"default": action.default, "prog": "lakebed"}
            written = notation(action).replace("|", "\\|")
            rows.append(f"| `{written}` | {_escaped(text)} |")
    return "\n".join(["| argument | meaning |", "|---|---|", *rows]) if rows else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(reference())
