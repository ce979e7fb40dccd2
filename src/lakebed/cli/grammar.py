"""The grammar of the command line on Click: commands, groups, types of arguments, and the options of every command.

:class:`Group` lists its commands as :class:`Deferred`: a name, a line of help, and where the command is defined. Its
module is imported when the command runs, so ``--help`` and ``--version`` import neither PyArrow nor an engine.
:class:`Command` adds to Click's the options of every command and keys of several words. A word of a key may be a
negative number, which Click would take for an option: the command hides its minus sign, and joins the words of an
option's key, with :data:`MARK`; the types take it away again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any

import click

from lakebed.cli import completions
from lakebed.cli.invocation import (
    COMMIT_VIA_VARIABLE,
    HERE,
    INSTANCE_VARIABLE,
    OPTIONS_VARIABLE,
    PROFILE_VARIABLE,
    TOKEN_VARIABLE,
    Invocation,
)

MARK = "\0"
"""No argument of a process contains it."""


def name_value(text: str) -> tuple[str, str]:
    """Return the parts of ``NAME=VALUE``; the value may hold further equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.")
    return name, value


def byte_count(text: str) -> int:
    """Return a number of bytes, such as ``512MiB``, ``2GiB`` or ``1000000``."""
    found = re.fullmatch(r"([0-9]{1,15})\s*(|KiB|MiB|GiB|TiB)", text.strip(), re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number of bytes, such as 536870912 or 512MiB.")
    return int(found[1]) << 10 * ("", "KiB", "MiB", "GiB", "TiB").index(found[2])


class WholeNumber(click.IntRange):
    """Click's range of integers, under the name that its messages are to use."""

    name = "whole number"


KEY_WORD: click.ParamType[str] = click.types.FuncParamType(lambda text: text.removeprefix(MARK))
"""A positional word of a key; may be a negative number."""
KEY: click.ParamType[tuple[str, ...]] = click.types.FuncParamType(lambda text: tuple(text.split(MARK)))
"""An option whose value is the words of a key: all words up to the next option."""


_NEGATIVE_NUMBER = re.compile(r"-([0-9]+|[0-9]*\.[0-9]+)", re.ASCII)


def remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store a value in the invocation; pairs of NAME=VALUE are added to earlier ones."""
    assert param.name is not None
    if param.multiple:
        getattr(ctx.obj, param.name).update(value)
    elif value:
        setattr(ctx.obj, param.name, value)


def _shared(*names: str, help: str, **settings: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=remember, help=help, **settings)


_OPTION = {"metavar": "NAME=VALUE", "type": name_value, "multiple": True}
_SHARED = (
    _shared(
        "-i",
        "--instance",
        "instance_url",
        metavar="URL",
        shell_complete=completions.instances,
        help=f"Root of the instance, or its name in the configuration. Default: {INSTANCE_VARIABLE}, or {HERE}.",
    ),
    _shared(
        "--config",
        metavar="FILE",
        shell_complete=completions.paths,
        help="See `lakebed docs configuration`. Default: LAKEBED_CONFIG.",
    ),
    _shared(
        "--profile",
        "profile_name",
        metavar="NAME",
        shell_complete=completions.profiles,
        help=f"A profile: options from the configuration. Default: {PROFILE_VARIABLE}.",
    ),
    _shared(
        "--option",
        "storage_options",
        **_OPTION,
        help=f"A storage option; may be repeated. More: {OPTIONS_VARIABLE}, JSON.",
    ),
    _shared(
        "--log-url",
        metavar="URL",
        help="A log outside the data: init creates it there, others trust it.",
    ),
    _shared(
        "--commit-via",
        metavar="URL",
        help=f"Commit through this service ({COMMIT_VIA_VARIABLE}, {TOKEN_VARIABLE}).",
    ),
    _shared("--json", "as_json", is_flag=True, help="Print JSON (`lakebed docs cli-json`); errors too."),
    _shared("-q", "--quiet", is_flag=True, help="No notes and no progress on stderr; only errors."),
    _shared("-v", "--verbose", "verbosity", count=True, help="Log operations to stderr; -vv: every step."),
    _shared("--log-format", type=click.Choice(["text", "json"]), help="Log lines as text or as JSON."),
    _shared("--no-pager", is_flag=True, help="Print long output directly. Default: LAKEBED_PAGER, PAGER or less."),
    _shared(
        "--report",
        "report_url",
        metavar="URL",
        shell_complete=completions.paths,
        help="Write the outcome as JSON to a path or s3://…, gs://….",
    ),
)


class Command(click.Command):
    """A command with the options of every command."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.own_params = list(self.params)
        self.params += _SHARED

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as Click does, after the words of each key were joined into one."""
        return _parsed(super().parse_args, ctx, self._with_keys(ctx, args))

    def _with_keys(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {name: one for one in self.params if isinstance(one, click.Option) for name in one.opts}
        takes_key = any(one.type is KEY_WORD and one.nargs == -1 for one in self.params)
        left, done = list(args), []
        while left and left[0] != "--":
            word = left.pop(0)
            option = options.get(word)
            if option is None:
                done.append(MARK + word if takes_key and _NEGATIVE_NUMBER.fullmatch(word) else word)
            elif option.type is KEY:
                words = list(takewhile(_is_value, left))
                if not words:
                    raise click.BadOptionUsage(word, f"Option {word!r} requires a key.", ctx)
                done += [word, MARK.join(words)]
                del left[: len(words)]
            else:
                count = 0 if option.is_flag else option.nargs
                done += [word, *left[:count]]
                del left[:count]
        return done + left

    def invoke(self, ctx: click.Context) -> Any:
        """Begin the log and the report, then run the command."""
        cli: Invocation = ctx.obj
        if cli.as_json and cli.row_format is not None:
            raise click.UsageError("--json and --format exclude each other; give one", ctx)
        cli.use_profile(formats=any(one.name == "row_format" for one in self.own_params))
        cli.begin_log()
        cli.begin_report()
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options, then those of every command."""
        for title, params in (("Options", self.own_params), ("Options of every command", self.params[-len(_SHARED) :])):
            records = [one.get_help_record(ctx) for one in params if isinstance(one, click.Option)]
            if shown := [record for record in records if record is not None]:
                with formatter.section(title):
                    formatter.write_dl(shown)


def _parsed(parse: Callable[[click.Context, list[str]], list[str]], ctx: click.Context, args: list[str]) -> list[str]:
    """Return what ``parse`` returns; an error of it names the command, which Click's parser leaves out of some."""
    try:
        return parse(ctx, args)
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        raise


def _is_value(word: str) -> bool:
    return not word.startswith("-") or word == "-" or _NEGATIVE_NUMBER.fullmatch(word) is not None


def command(function: Callable[..., None]) -> Command:
    """Return the command that calls ``function`` with its :class:`Invocation` and parameters; its docstring is the
    help.
    """
    return click.command(cls=Command)(click.pass_obj(function))


class Deferred(click.Command):
    """A command as its group lists it; ``target`` is ``module:name`` below ``lakebed.cli``."""

    def __init__(self, name: str, help: str, target: str) -> None:
        super().__init__(name, short_help=help)
        self.target = target

    def load(self) -> Command:
        """Import the command."""
        module, _, name = self.target.partition(":")
        found: Command = getattr(import_module(f"lakebed.cli.{module}"), name)
        return found


class Group(click.Group):
    """Commands in the order in which they are given; a command's module is imported when the command is chosen.

    Words that begin with none of the commands are those of the command ``default``, if there is one. ``old_names`` maps
    former names of commands to today's. They work for one release, and stand in no help.
    """

    def __init__(
        self,
        name: str,
        help: str,
        commands: Sequence[click.Command],
        *,
        default: str | None = None,
        old_names: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(name, commands, help=help, no_args_is_help=False, **settings)
        self.params += _SHARED
        self.default = default
        self.old_names = old_names or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as Click does, after the name of the default command was added."""
        if self.default is not None and (not args or args[0] not in {*self.commands, *ctx.help_option_names}):
            args = [self.default, *args]
        return _parsed(super().parse_args, ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names, imported, and the other words; a line on stderr if the name is
        an old one.
        """
        if (new := self.old_names.get(args[0])) is not None:
            if not ctx.resilient_parsing:
                path = ctx.command_path
                click.echo(f"lakebed: `{path} {args[0]}` is now `{path} {new}`; the old name goes away", err=True)
            args = [new, *args[1:]]
        name, found, rest = super().resolve_command(ctx, args)
        return name, found.load() if isinstance(found, Deferred) else found, rest
