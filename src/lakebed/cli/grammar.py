"""The grammar of the command line on Click: commands, groups, and the options that every command has.

:class:`Group` lists its commands as :class:`Deferred`: a name, a line of help, and where the command is defined. Its
module is imported when the command runs, so ``--help`` and ``--version`` import neither PyArrow nor an engine.
:class:`Command` adds to Click's the options of every command and keys of several words (:data:`KEY`).
:class:`Invocation` has the values of the options of every command; it is the first argument of each command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import lakebed
from lakebed.cli import completions
from lakebed.errors import Code, NotFoundError
from lakebed.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from lakebed.cli.configuration import Configuration, NamedInstance
    from lakebed.cli.outcome import Report
    from lakebed.cli.render import Output
    from lakebed.snapshot.snapshot import Snapshot

INSTANCE_VARIABLE = "LAKEBED_INSTANCE"
COMMIT_VIA_VARIABLE = "LAKEBED_COMMIT_VIA"
CONFIG_VARIABLE = "LAKEBED_CONFIG"
TOKEN_VARIABLE = "LAKEBED_TOKEN"  # noqa: S105 - its name
OPTIONS_VARIABLE = "LAKEBED_STORAGE_OPTIONS"
"""Storage options that no command line is to show, as a JSON object."""
HERE = "./lake"
"""The instance where nothing else names one: `lakebed init` makes it, and the other commands find it."""
COMPLETION_VARIABLE = "_LAKEBED_COMPLETE"
"""Set by completion scripts, which run ``lakebed`` to list the possible next words."""

_NEGATIVE_NUMBER = re.compile(r"-([0-9]+|[0-9]*\.[0-9]+)", re.ASCII)
_MARK = "\0"
"""Joins the words of a key, and hides the minus sign of a number from Click; no argument of a process contains it."""


@dataclass
class Invocation:
    """The values of the options of every command, and the objects that follow from them."""

    instance_url: str | None = None
    """A URL or path, or the name of an instance in the configuration."""
    config: str | None = None
    """The configuration file of ``--config``."""
    storage_options: dict[str, str] = field(default_factory=dict)
    log_url: str | None = None
    commit_via: str | None = None
    as_json: bool = False
    row_format: str | None = None
    """Of :data:`lakebed.cli.row_formats.FORMATS`; None for a command without ``--format``, or where it is not given."""
    quiet: bool = False
    verbosity: int = 0
    log_format: str = "text"
    no_pager: bool = False
    report_url: str | None = None
    report: Report | None = None
    """None until :meth:`begin_report` has written the first document."""
    answer: Mapping[str, Any] | None = None
    """The document of the command's answer, as JSON values."""

    @property
    def out(self) -> Output:
        """The output of the command; a document that it prints is kept for the report."""
        from lakebed.cli.render import Output

        return Output(
            as_json=self.as_json,
            keep=self._keep,
            row_format=self.row_format,
            quiet=self.quiet,
            paged=not self.no_pager,
        )

    def _keep(self, answer: Mapping[str, Any]) -> None:
        self.answer = answer

    def begin_log(self) -> None:
        """Log to stderr as ``-v``, ``--quiet`` and ``--log-format`` say; without them as Python does: warnings."""
        if self.verbosity or self.quiet or self.log_format != "text":
            from lakebed.cli.logs import log_to_stderr

            log_to_stderr(verbosity=self.verbosity, quiet=self.quiet, log_format=self.log_format)

    def begin_report(self) -> None:
        """Write the first document of the report, if ``--report`` was given. Raises UsageError, StorageError."""
        if self.report_url is None or self.report is not None:
            return
        from lakebed.cli.outcome import Report

        report = Report(self.report_url, self.url_if_given() or "", self.options_in_force())
        report.write(None, {})
        self.report = report

    @cached_property
    def configuration(self) -> Configuration:
        """The configuration file. Raises as :func:`lakebed.cli.configuration.read_configuration`."""
        from lakebed.cli.configuration import read_configuration

        return read_configuration(self.config)

    @property
    def named_instance(self) -> NamedInstance | None:
        """The instance as the configuration describes it; None if it is given by its URL, or not at all."""
        found = self.instance_url or os.environ.get(INSTANCE_VARIABLE) or self.configuration.default
        return self.configuration.instances.get(found or "")

    def url_if_given(self) -> str | None:
        """The root of the instance; None if nothing names it, and there is none in the folder ``lake``."""
        named = self.named_instance
        if named is not None:
            return named.url
        url = self.instance_url or os.environ.get(INSTANCE_VARIABLE) or self.configuration.default
        if url:
            return url
        from lakebed.model.files import instance_name

        return HERE if Path(HERE, instance_name()).is_file() else None

    def url(self) -> str:
        """The root of the instance. Raises UsageError if nothing names it."""
        url = self.url_if_given()
        if not url:
            raise Code.ARGUMENT_MISSING(
                f"which instance? There is none at {HERE}: make it with `lakebed init`, or give --instance URL, set "
                f"{INSTANCE_VARIABLE}, or name a default in {self.configuration.path}"
            )
        return url

    def log_url_in_force(self) -> str | None:
        """The log's URL of ``--log-url``, else of the configuration."""
        named = self.named_instance
        return self.log_url or (None if named is None else named.log_url)

    def instance(self) -> lakebed.Instance:
        """The instance, opened."""
        named = self.named_instance
        via = self.commit_via or os.environ.get(COMMIT_VIA_VARIABLE) or (named and named.commit_via) or None
        # The variable is of other clients of a service as well, so it may be set without one.
        token = (os.environ.get(TOKEN_VARIABLE) or (named and named.token()) or None) if via else None
        try:
            return self._opened(commit_via=via, token=token)
        except NotFoundError as error:
            if named is None and (meant := did_you_mean(self.instance_url or "", self.configuration.instances)):
                raise Code(error.code)(f"{error.message}{meant}", **error.facts) from None
            raise

    def instance_to_read(self) -> lakebed.Instance:
        """The instance, opened for reading alone: no service for commits is asked."""
        return self._opened()

    def _opened(self, commit_via: str | None = None, token: str | None = None) -> lakebed.Instance:
        return lakebed.open(
            self.url(),
            storage_options=self.options_in_force(),
            log_url=self.log_url_in_force(),
            commit_via=commit_via,
            token=token,
        )

    def options_in_force(self) -> dict[str, str]:
        """The storage options of the configuration, of the environment, which wins over it, and of ``--option``, which
        wins over both. Raises UsageError.
        """
        from lakebed.model.documents import load

        try:
            found = load(os.environ.get(OPTIONS_VARIABLE) or "{}")
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            # Without the value, which may be a secret.
            raise Code.ARGUMENT_INVALID(
                f'{OPTIONS_VARIABLE} is not a JSON object of texts, such as {{"aws_region": "eu-west-1"}}'
            )
        named = self.named_instance
        return ({} if named is None else named.storage_options()) | found | self.storage_options

    def table(self, name: str) -> lakebed.Table:
        """A table of the instance."""
        return self.instance().table(name)

    def snapshot(self, name: str, at: str | None) -> lakebed.Table | Snapshot:
        """A table, or with ``--at`` the table as it was."""
        table = self.table(name)
        if at is None:
            return table
        from lakebed.state.time_travel import moment_in

        return table.at(**moment_in(at))


# -- types of arguments -----------------------------------------------------------------------------------------------


def name_value(text: str) -> tuple[str, str]:
    """The parts of ``NAME=VALUE``; the value may hold further equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.")
    return name, value


def byte_count(text: str) -> int:
    """A number of bytes, such as ``512MiB``, ``2GiB`` or ``1000000``."""
    found = re.fullmatch(r"([0-9]{1,15})\s*(|KiB|MiB|GiB|TiB)", text.strip(), re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number of bytes, such as 536870912 or 512MiB.")
    return int(found[1]) << 10 * ("", "KiB", "MiB", "GiB", "TiB").index(found[2])


class WholeNumber(click.IntRange):
    """Click's range of integers, under the name that its messages are to use."""

    name = "whole number"


KEY_WORD: click.ParamType[str] = click.types.FuncParamType(lambda text: text.removeprefix(_MARK))
"""A positional word of a key; may be a negative number."""
KEY: click.ParamType[tuple[str, ...]] = click.types.FuncParamType(lambda text: tuple(text.split(_MARK)))
"""An option whose value is the words of a key: all words up to the next option."""


# -- commands -------------------------------------------------------------------------------------------------------


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
    _shared("--config", metavar="FILE", help=f"The configuration (docs/configuration.md). Default: {CONFIG_VARIABLE}."),
    _shared(
        "--option",
        "storage_options",
        **_OPTION,
        help=f"A storage option; may be repeated. Others: {OPTIONS_VARIABLE}, JSON.",
    ),
    _shared("--log-url", metavar="URL", help="A log apart from the data: init creates it there, others trust it."),
    _shared(
        "--commit-via",
        metavar="URL",
        help=f"Commit through this service. Default: {COMMIT_VIA_VARIABLE}; its token: {TOKEN_VARIABLE}.",
    ),
    _shared("--json", "as_json", is_flag=True, help="Print JSON (docs/cli-json.md); errors too."),
    _shared("-q", "--quiet", is_flag=True, help="Neither notes nor progress on stderr; only errors."),
    _shared("-v", "--verbose", "verbosity", count=True, help="Log what is done to stderr; -vv: every step."),
    _shared("--log-format", type=click.Choice(["text", "json"]), help="Log lines as text or as JSON."),
    _shared("--no-pager", is_flag=True, help="Print long output directly. Default: LAKEBED_PAGER, PAGER or less."),
    _shared(
        "--report", "report_url", metavar="URL", help="Write the outcome there, as JSON: a path or s3://…, gs://…."
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
                done.append(_MARK + word if takes_key and _NEGATIVE_NUMBER.fullmatch(word) else word)
            elif option.type is KEY:
                words = list(takewhile(_is_value, left))
                if not words:
                    raise click.BadOptionUsage(word, f"Option {word!r} requires a key.", ctx)
                done += [word, _MARK.join(words)]
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
    """What ``parse`` returns; an error of it names the command, which Click's parser leaves out of some."""
    try:
        return parse(ctx, args)
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        raise


def _is_value(word: str) -> bool:
    return not word.startswith("-") or word == "-" or _NEGATIVE_NUMBER.fullmatch(word) is not None


def command(function: Callable[..., None]) -> Command:
    """The command that calls ``function`` with its :class:`Invocation` and parameters; its docstring is the help."""
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

    Words that begin with none of the commands are those of the command ``default``, if there is one.
    """

    def __init__(
        self, name: str, help: str, commands: Sequence[click.Command], *, default: str | None = None, **settings: Any
    ) -> None:
        super().__init__(name, commands, help=help, no_args_is_help=False, **settings)
        self.params += _SHARED
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as Click does, after the name of the default command was added."""
        if self.default is not None and (not args or args[0] not in {*self.commands, *ctx.help_option_names}):
            args = [self.default, *args]
        return _parsed(super().parse_args, ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of the help."""
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names, imported, and the other words."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found.load() if isinstance(found, Deferred) else found, rest
