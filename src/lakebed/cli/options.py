"""Options and arguments that several commands share, and the keys, columns and ranges that they stand for.

Each is a decorator; options that describe one thing, such as ranges, reach the command as one parameter. Errors:
click.UsageError for options that exclude each other; UsageError and BadKeyError for values that do not fit.
"""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from lakebed.cli import completions
from lakebed.cli.grammar import KEY, KEY_WORD, WholeNumber, name_value, remember
from lakebed.cli.render import FORMATS, check_terminal
from lakebed.errors import BadKeyError, Code

if TYPE_CHECKING:
    from lakebed.model.keys import KeyRange
    from lakebed.model.schema import Schema
    from lakebed.table.table import Table
    from lakebed.upkeep.publish.catalogs import Target

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

_AT = "The table as it was: a version, a tag, a date (UTC), or a time such as 2026-01-31T12:00:00Z."

table = click.argument(
    "table", metavar="TABLE", type=KEY_WORD, help="The table's name.", shell_complete=completions.tables
)
key = click.argument("key", metavar="[KEY]...", nargs=-1, type=KEY_WORD, help="A word for each row key field.")
columns = click.option(
    "--columns",
    metavar="A,B",
    multiple=True,
    help="Only these columns, in this order.",
    shell_complete=completions.columns,
)
where = click.option("--where", metavar="PREDICATE", help="In SQL, over the table's columns: 'n > 3 AND s IS NULL'.")
at = click.option("--at", metavar="WHEN", help=_AT, shell_complete=completions.tags)
reverse = click.option("--reverse", is_flag=True, help="Return the last row first.")
dry_run = click.option("--dry-run", is_flag=True, help="Print what would be done, without doing it.")
yes = click.option("--yes", is_flag=True, help="Do not ask.")


def iceberg_catalogs(name: str, what: str) -> Decorator:
    """Return the option for catalogs to which tables are pushed, as the parameter ``catalogs``."""
    text = f"{what}; repeatable (`lakebed docs open`)."
    return click.option(name, "catalogs", metavar="CATALOG", multiple=True, help=text)


def targets(catalogs: Sequence[str]) -> tuple[Target, ...]:
    """Return the catalogs that the option names. Raises UsageError."""
    from lakebed.upkeep.publish.catalogs import Target

    return tuple(map(Target.parse, catalogs))


def _remember_format(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if not ctx.resilient_parsing:
        check_terminal(value)
        remember(ctx, param, value)


row_format = click.option(
    "--format",
    "row_format",
    type=click.Choice(FORMATS),
    expose_value=False,
    callback=_remember_format,
    help="How rows are printed. Default: table.",
)
"""For commands that print rows or a listing."""


def limit(help: str) -> Decorator:
    """Return the option ``--limit``."""
    return click.option("--limit", metavar="N", type=WholeNumber(min=0), help=help)


def file(name: str, help: str) -> Decorator:
    """Return an option that names a local file."""
    return click.option(name, metavar="FILE", type=Path, shell_complete=completions.paths, help=help)


def files(name: str, metavar: str, help: str | None = None) -> Decorator:
    """Return an argument with files, one or more."""
    return click.argument(name, metavar=metavar, nargs=-1, required=True, shell_complete=completions.paths, help=help)


def run_once_id(name: str) -> Decorator:
    """Return the option that makes a call idempotent: ``--commit-id`` or ``--job-id``."""
    return click.option(name, metavar="ID", help="Repeating the call with the same id adds nothing.")


# -- key ranges -----------------------------------------------------------------------------------------------------


class Ranges(Struct, frozen=True):
    """The words of ``--from``, ``--to``, ``--prefix`` and ``--starts-with``."""

    low: tuple[str, ...] | None
    high: tuple[str, ...] | None
    prefix: Sequence[tuple[str, ...]]
    starts_with: Sequence[tuple[str, ...]]

    @property
    def given(self) -> bool:
        """Whether there are such options."""
        return bool(self.low or self.high or self.prefix or self.starts_with)

    @property
    def text(self) -> str:
        """The options as they are typed, for people."""
        found = {"--from": [self.low or ()], "--to": [self.high or ()]}
        found |= {"--prefix": list(self.prefix), "--starts-with": list(self.starts_with)}
        return " ".join(f"{name} {' '.join(words)}" for name, given in found.items() for words in given if words)

    def of(self, schema: Schema) -> list[KeyRange]:
        """Return the ranges of a table with this schema; none if there are no such options. Raises BadKeyError."""
        from lakebed.model.keys import KeyRange

        ranges = [KeyRange.prefix(*schema.codec.parse(words)) for words in self.prefix]
        ranges += [KeyRange.starts_with(*schema.codec.parse(words)) for words in self.starts_with]
        if self.low or self.high:
            ranges.append(KeyRange(*(schema.codec.parse(words) if words else None for words in (self.low, self.high))))
        return ranges


_STARTS_WITH = "As --prefix, but the last word, text or binary, is a prefix itself. May be repeated."


def ranges(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select key ranges, as one parameter ``ranges``."""

    @_key("--from", "low", help="First key (inclusive).")
    @_key("--to", "high", help="End of the range (exclusive).")
    @_key("--prefix", multiple=True, help="Keys with these first fields. May be repeated.")
    @_key("--starts-with", multiple=True, help=_STARTS_WITH)
    @functools.wraps(function)
    def with_ranges(*args: Any, low: Any, high: Any, prefix: Any, starts_with: Any, **others: Any) -> None:
        function(*args, ranges=Ranges(low, high, prefix, starts_with), **others)

    return with_ranges


def _key(*names: str, help: str, multiple: bool = False) -> Decorator:
    return click.option(*names, metavar="KEY...", type=KEY, multiple=multiple, help=help)


by = click.option(
    "--by",
    metavar="NAME=VALUE",
    type=name_value,
    multiple=True,
    help="Only rows with this value of an indexed column. May be repeated.",
)


def values_by(pairs: Sequence[tuple[str, str]], schema: Schema) -> dict[str, Any] | None:
    """Return the values of indexed columns; None if none is given. Raises UsageError, BadKeyError."""
    if not pairs:
        return None
    schema.project([name for name, _ in pairs])
    return {name: schema.by_name[name].parse(text) for name, text in pairs}


def row_choice(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select rows and columns, as those of `lakebed scan`."""
    for option in (at, reverse, limit("Stop after this many rows."), where, columns, ranges):
        function = option(function)
    return function


_MASTER = "Where Spark runs: a master, or sc://… (Spark Connect). Default: as spark-submit says, or local[*,4]."

_IN_PROCESS = "Run on this machine's cores, without Spark and Java."
_WORKERS = "With --in-process: tasks that run at once, at most. Default: one a core, as far as memory allows."


def launcher(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--master``, ``--in-process`` and ``--workers``, as one parameter ``launcher``."""

    @click.option("--master", metavar="URL", help=_MASTER)
    @click.option("--in-process", is_flag=True, help=_IN_PROCESS)
    @click.option("--workers", metavar="N", type=WholeNumber(min=1), help=_WORKERS)
    @functools.wraps(function)
    def with_launcher(*args: Any, master: str | None, in_process: bool, workers: int | None, **others: Any) -> None:
        check_at_most_one({"--master": master, "--in-process": in_process})
        if workers is not None and not in_process:
            raise Code.CONFIRMATION_MISSING(
                "--workers is the number of processes of --in-process: add --in-process, or leave it out"
            )
        within = "in-process" if workers is None else f"in-process[{workers}]"
        function(*args, launcher=within if in_process else master, **others)

    return with_launcher


_MEMORY = "Memory that tasks in worker processes may use together; default: 80% of the machine's."

memory = click.option("--memory", "memory_bytes", metavar="BYTES", type=WholeNumber(min=1), help=_MEMORY)


# -- values ---------------------------------------------------------------------------------------------------------


def check_at_most_one(options: Mapping[str, Any]) -> None:
    """Raise click.UsageError if several of these were given."""
    given = [name for name, value in options.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other; give one", click.get_current_context())


def check_one(options: Mapping[str, Any]) -> None:
    """Raise click.UsageError unless exactly one of these was given."""
    check_at_most_one(options)
    if not any(options.values()):
        raise click.UsageError(f"give one of {', '.join(options)}", click.get_current_context())


def names(texts: Sequence[str]) -> list[str] | None:
    """Return column names from options with commas in them; None if there were none.

    A name with a comma is written in double quotes, as in a CSV file.
    """
    return [name for row in csv.reader(texts, skipinitialspace=True) for name in row if name] if texts else None


def keys_in(path: Path, schema: Schema) -> list[tuple[Any, ...]]:
    """Return the keys of a text file, one a line, with fields as in CSV.

    Raises as :func:`read_text`, and BadKeyError with the number of the line.
    """
    from lakebed.files.formats.input_file import read_text

    lines = csv.reader(read_text(path).splitlines())
    found = []
    for texts in lines:
        try:
            found += [schema.codec.parse(texts)] if texts else []
        except BadKeyError as error:
            raise Code(error.code)(f"{path}, line {lines.line_num}: {error.message}", **error.facts) from None
    return found


def setting_changes(pairs: Sequence[tuple[str, str]]) -> dict[str, str | None]:
    """Return settings by name; an empty value restores the default."""
    return {name: value or None for name, value in pairs}


# -- questions ------------------------------------------------------------------------------------------------------


def confirm(action: str, warning: str, name: str, *, what: str = "its name") -> None:
    """Return if ``name``, which the question calls ``what``, is typed after the warning.

    Raises UsageError if something else is typed, or stdin is not a terminal; the message then names the ``action``.
    """
    if not sys.stdin.isatty():
        raise Code.CONFIRMATION_MISSING(
            f"cannot ask whether to {action}: stdin is not a terminal. {warning}; give --yes to do it without a "
            "question"
        )
    print(f"{warning}. Type {what} to go on:", file=sys.stderr)
    if sys.stdin.readline().strip() != name:
        raise Code.CONFIRMATION_MISSING(f"the input is not {name}; nothing was changed")


def check_keys(table: Table, row_key: Sequence[str], sort_key: Sequence[str], *, option: str) -> None:
    """Raise UsageError if the table has other keys than those that were given for a new one, by an option."""
    found = [[one.name for one in fields] for fields in (table.schema.row_key, table.schema.sort_key)]
    if found != [list(row_key), list(sort_key)]:
        raise Code.ARGUMENTS_CONFLICT(
            f"table {table.name} exists with the row key {', '.join(found[0])} and "
            f"{'no sort key' if not found[1] else 'the sort key ' + ', '.join(found[1])}; leave out {option} and "
            "--sort-key, or name another table"
        )
