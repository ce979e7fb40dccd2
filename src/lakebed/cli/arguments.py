"""What the commands' arguments have in common: the global options, and how texts become names, settings and keys.

Global options may stand before or after the command. Whatever an argument says is checked before any I/O, as far as it
can be without knowing the table.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

import lakebed
from lakebed.checks import is_whole, shown
from lakebed.errors import UsageError
from lakebed.travel import moment_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lakebed.cli.render import Output
    from lakebed.spark.launcher import Submit
    from lakebed.view import View

INSTANCE_VARIABLE = "LAKEBED_INSTANCE"

_WITH_VALUE = ("--instance", "--option", "--log-url")
"""Global options that a word of their own follows."""

Commands = Any
"""What ``add_subparsers`` returns; its class has no public name."""


class Parser(argparse.ArgumentParser):
    """Raises what is wrong as any other error of Lakebed, and takes no abbreviated options: scripts outlive them."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", _formatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError; argparse calls this for every argument that it cannot take."""
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def format_help(self) -> str:
        """The help of a command, with a usage that fits one line wherever it can."""
        self.usage = self.usage or _folded(synopsis(self))
        return super().format_help()


def synopsis(parser: argparse.ArgumentParser) -> str:
    """How a command is written: its own arguments, without the options that every command has."""
    parts = [parser.prog]
    choices = [group._group_actions for group in parser._mutually_exclusive_groups if group.required]  # noqa: SLF001 - argparse has no public list of them
    for action in own_arguments(parser):
        group = next((choice for choice in choices if action in choice), None)
        text = notation(action)
        if group is not None:
            text = f"({' | '.join(notation(a) for a in group)})" if action is group[0] else ""
        elif action.nargs == "?" or (action.option_strings and not action.required):
            text = f"[{text}]"
        parts += [text] if text else []
    return " ".join(parts)


def _folded(text: str) -> str:
    # A bracket is never parted: its blanks are hidden from the one who fills the lines.
    hidden = re.sub(r"\[[^]]*\](?= |$)|\(.*?\)", lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(hidden, 92, subsequent_indent=" " * 9, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def own_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """A command's own arguments, positional ones first."""
    shared = {"help", "instance", "options_after", "log_url", "json"}
    return sorted((a for a in parser._actions if a.dest not in shared), key=lambda a: bool(a.option_strings))  # noqa: SLF001 - argparse has no public list of them


def notation(action: argparse.Action) -> str:
    """An argument as it is written: ``TABLE``, ``FILE…``, ``--limit ROWS``, ``--yes``."""
    if action.nargs == 0:
        return action.option_strings[0]
    value = str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper())
    value += "…" if action.nargs == "+" else ""
    return " ".join([*action.option_strings, value])


def _formatter(prog: str) -> argparse.HelpFormatter:
    # A fixed width: help reads the same in a terminal, a pipe and a test.
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=100)


def add_global_options(parser: argparse.ArgumentParser, *, after: bool) -> None:
    """The options of every command; ``after`` are those behind the command, which win only where they are given."""
    group = parser.add_argument_group("for every command") if after else parser
    unset = argparse.SUPPRESS if after else None
    group.add_argument(
        "--instance", metavar="URL", default=unset, help=f"the instance's root; default: {INSTANCE_VARIABLE}"
    )
    group.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=unset,
        dest="options_after" if after else "options",
        help="a storage option, such as endpoint_url; may be repeated",
    )
    group.add_argument(
        "--log-url",
        metavar="URL",
        default=unset,
        help="a log apart from the data: init puts it there, other commands trust it",
    )
    group.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS if after else False,
        help="print JSON (docs/cli-json.md), errors as well",
    )


def add_command(
    commands: Commands, name: str, help: str, run: Callable[[argparse.Namespace, Output], None], *, more: str = ""
) -> argparse.ArgumentParser:
    """A command that calls ``run``; ``help`` is its one line in the list, ``more`` what only its own help adds.

    A command of two words (:func:`with_verb`) is not listed: the help of the first word tells of it.
    """
    listed = {} if " " in name else {"help": help}
    text = f"{help[0].upper()}{help[1:]}."
    parser: argparse.ArgumentParser = commands.add_parser(
        name, description=f"{text}\n\n{more}" if more else text, **listed
    )
    parser.set_defaults(run=run)
    add_global_options(parser, after=True)
    return parser


def add_noun(commands: Commands, name: str, help: str) -> Commands:
    """A command that only groups others."""
    parser = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    parser.usage = f"{parser.prog} COMMAND …"
    return parser.add_subparsers(metavar="COMMAND", required=True, title="commands", prog=parser.prog)


def with_verb(words: Sequence[str], noun: str, verb: str) -> list[str]:
    """The words of a command line with ``noun verb`` as the one command that it is; ``noun`` alone is one as well.

    What follows the verb tells it from an argument: ``requests withdraw`` lists the requests of a table of that name.
    """
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    if list(words[at : at + 2]) != [noun, verb] or len(words) == at + 2:
        return list(words)
    return [*words[:at], f"{noun} {verb}", *words[at + 2 :]]


def storage_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The ``--option`` values given before and after the command."""
    given = [*(arguments.options or ()), *getattr(arguments, "options_after", ())]
    return dict(name_and_value(text, "--option") for text in given)


def instance_url(arguments: argparse.Namespace) -> str:
    """Where the instance lies. Raises UsageError if nothing says so."""
    url: str | None = arguments.instance or os.environ.get(INSTANCE_VARIABLE)
    if not url:
        raise UsageError(f"which instance? Give --instance URL or set {INSTANCE_VARIABLE}")
    return url


def open_instance(arguments: argparse.Namespace) -> lakebed.Instance:
    """The instance that the command is about."""
    options = storage_options(arguments)
    return lakebed.open(instance_url(arguments), storage_options=options, log_url=arguments.log_url)


def open_table(arguments: argparse.Namespace) -> lakebed.Table:
    """The table that the command is about."""
    return open_instance(arguments).table(arguments.table)


def add_at(parser: argparse.ArgumentParser) -> None:
    """``--at``, for :func:`open_view`."""
    parser.add_argument(
        "--at", metavar="WHEN", help="the table as it was: a log number, a tag, or a time such as 2026-01-31T12:00:00Z"
    )


def add_where(parser: argparse.ArgumentParser) -> None:
    """``--where``, a predicate."""
    parser.add_argument("--where", metavar="PREDICATE", help='in SQL, over the table\'s columns: "n > 3 AND s IS NULL"')


def csv_lines(path: Path) -> list[list[str]]:
    """The fields of each line of a text file that is not empty. Raises as :func:`lakebed.cli.inputs.read_text`."""
    from lakebed.cli.inputs import read_text

    return [texts for texts in csv.reader(read_text(path).splitlines()) if texts]


def open_view(arguments: argparse.Namespace) -> lakebed.Table | View:
    """The table that the command is about, as it was at the ``--at`` of its arguments."""
    table = open_table(arguments)
    at = arguments.at
    return table if at is None else table.at(**moment_in(at))


def add_launcher(parser: argparse.ArgumentParser) -> None:
    """``--master`` and ``--submit``, for :func:`launcher`."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--master",
        metavar="URL",
        help="where Spark runs: a master, or sc://… of a Spark Connect server; default: as spark-submit says, or "
        "local[*,4]",
    )
    where.add_argument(
        "--submit", metavar="COMMAND", help="start a driver for this, as with 'spark-submit --master yarn'"
    )


def launcher(arguments: argparse.Namespace) -> Submit | str | None:
    """Where Spark runs, as ``--master`` or ``--submit`` says; None for a command that has neither, and needs none."""
    if getattr(arguments, "submit", None) is None:
        master: str | None = getattr(arguments, "master", None)
        return master
    from lakebed.spark.launcher import Submit

    return Submit(arguments.submit)


def byte_count(text: str, what: str) -> int:
    """A number of bytes, such as ``512MiB``, ``2GiB`` or ``1000000``. Raises UsageError naming the option."""
    found = re.fullmatch(r"([0-9]{1,15})\s*(|KiB|MiB|GiB|TiB)", text.strip(), re.ASCII)
    count = int(found[1]) * 1024 ** ("", "KiB", "MiB", "GiB", "TiB").index(found[2]) if found else None
    if not is_whole(count):
        raise UsageError(f"{what} {shown(text)}: must be a number of bytes, such as 536870912 or 512MiB")
    return count


def name_and_value(text: str, what: str) -> tuple[str, str]:
    """The parts of ``name=value``; the value may hold further equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{what} takes name=value, not {text!r}")
    return name, value


def columns_of_fields(texts: Sequence[str]) -> dict[str, str]:
    """The source's column of each field, as ``--column`` names them. Raises UsageError for a field named twice."""
    columns = dict(name_and_value(text, "--column") for text in texts)
    if len(columns) < len(texts):
        raise UsageError(f"--column names a field twice: {', '.join(texts)}; give each field one column")
    return columns


def setting_changes(texts: Sequence[str], what: str) -> dict[str, str | None]:
    """Settings by name; an empty value takes one back."""
    return {name: value or None for name, value in (name_and_value(text, what) for text in texts)}


def names(texts: Sequence[str] | None) -> list[str] | None:
    """Column names from options with commas in them; None if there was no such option.

    A name with a comma is written in double quotes, as in a CSV file.
    """
    if texts is None:
        return None
    return [name for row in csv.reader(texts, skipinitialspace=True) for name in row if name]


def key_values(schema: lakebed.Schema, texts: Sequence[str]) -> tuple[Any, ...]:
    """Key values, a word for each row key field; words too many stay text, for the library to refuse."""
    fields = schema.row_key
    return (*(field.parse(text) for field, text in zip(fields, texts, strict=False)), *texts[len(fields) :])


def check_answerable(question: str) -> None:
    """Raise UsageError if nobody is there to be asked."""
    if not sys.stdin.isatty():
        raise UsageError(f"nobody is there to be asked {question}; give --yes if it should go")


def ask_for(name: str, warning: str, out: Output) -> None:
    """Go on only when the name was typed. Raises UsageError if it was not."""
    out.note(f"{warning}. Type its name to go on:")
    if sys.stdin.readline().strip() != name:
        raise UsageError(f"that was not {name}; nothing was changed")
