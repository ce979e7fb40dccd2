"""Messages about invalid command lines: the mistake, the nearest valid word, and the usage.

Words of other systems are mapped to commands here; otherwise the nearest word is suggested. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from lakebed.model.wording import nearest

_COMMANDS = {
    "append": "write",
    "describe": "table show",
    "head": "scan",
    "insert": "write",
    "list": "table list",
    "load": "import",
    "log": "history",
    "ls": "table list",
    "query": "sql",
    "read": "scan",
    "rollback": "restore",
    "schema": "table show",
    "select": "sql",
    "shell": "sql",
    "show": "table show",
    "stats": "status",
    "tables": "table list",
    "truncate": "remove",
    "undo": "restore",
    "upload": "write",
    "upsert": "write",
    "vacuum": "gc",
}
"""Words of other systems, and the command that does it here."""
_ACTIONS = {"add": "create", "delete": "drop", "describe": "show", "ls": "list", "remove": "drop", "rm": "drop"}
"""Words for what a command of a group does, and its own."""
_OPTIONS = {
    "--as-of": "--at",
    "--column": "--columns",
    "--csv": "--format",
    "--end": "--to",
    "--fields": "--columns",
    "--filter": "--where",
    "--force": "--yes",
    "--head": "--limit",
    "--key": "--row-key",
    "--lake": "--instance",
    "--max": "--to",
    "--min": "--from",
    "--no-confirm": "--yes",
    "--order": "--reverse",
    "--output": "--format",
    "--schema-file": "--schema",
    "--select": "--columns",
    "--source": "--from",
    "--start": "--from",
    "--tag": "--at",
    "--url": "--instance",
    "-n": "--limit",
    "-y": "--yes",
}
"""Options of other systems, and the one that means it here, if the command has it."""


def mistake_in(error: click.UsageError) -> str:
    """Return the message: what is wrong, with which word, and which words are meant."""
    match error:
        case click.NoSuchOption():
            return f"no option {error.option_name!r}{_meant(_options_meant(error))}"
        case click.exceptions.NoSuchCommand():
            assert error.ctx is not None
            of = "" if error.ctx.parent is None else f" of `{error.ctx.command_path}`"
            return f"no command {error.command_name!r}{of}{_meant(_commands_meant(error, error.ctx))}"
        case _:
            message = error.format_message().rstrip(".")
            # Not a first word in capitals, such as KEY.
            return message[:1].lower() + message[1:] if message[1:2].islower() else message


def beside(error: click.UsageError) -> Iterator[str]:
    """Return the lines below the message: the usage, the suggested or wrong option, and where to find more."""
    context = error.ctx
    if context is None:
        yield "see `lakebed --help`"
        return
    command = context.command
    if isinstance(command, click.Group):
        if context.parent is not None:
            yield f"commands: {', '.join(command.list_commands(context))}"
    else:
        yield f"usage: {' '.join([context.command_path, *command.collect_usage_pieces(context)])}"
    shown = [param for param in command.params if _is_about(error, param)]
    records = [record for record in (param.get_help_record(context) for param in shown) if record is not None]
    yield from (f"  {name}  {meaning}" for name, meaning in records if meaning)
    if isinstance(error, click.NoSuchOption) and not error.option_name.startswith("--"):
        yield "  a word that begins with a minus sign and is no option comes after `--`"
    yield f"see `{context.command_path} --help`"


def _is_about(error: click.UsageError, param: click.Parameter) -> bool:
    if isinstance(error, click.NoSuchOption):
        return bool({*_options_meant(error)} & {*param.opts})
    if isinstance(error, click.BadOptionUsage):
        return error.option_name in param.opts
    return isinstance(error, click.BadParameter) and error.param is param


def _options_meant(error: click.NoSuchOption) -> list[str]:
    if error.ctx is None:
        return []
    options = [name for param in error.ctx.command.params if isinstance(param, click.Option) for name in param.opts]
    if (other := _OPTIONS.get(error.option_name, "")) in options:
        return [other]
    if not error.option_name.startswith("--"):
        return []
    # The minus signs would make any two options alike.
    names = {name[2:]: name for name in options if name.startswith("--")}
    return [names[word] for word in nearest(error.option_name[2:], names)]


def _commands_meant(error: click.exceptions.NoSuchCommand, context: click.Context) -> list[str]:
    """Return the commands of the group, or command lines from the root if only other groups have it."""
    commands = _commands(context)
    word = error.command_name
    if context.parent is not None:
        if word in _commands(context.find_root()):
            return [f"lakebed {word}"]
        other = _ACTIONS.get(word, "")
        return [other] if other in commands else nearest(word, commands)
    if word in _COMMANDS:
        return [f"lakebed {_COMMANDS[word]}"]
    groups = {name: found for name, found in commands.items() if isinstance(found, click.Group)}
    same = [f"lakebed {name} {word}" for name, found in groups.items() if word in found.commands]
    return same or [f"lakebed {name}" for name in nearest(word, commands)]


def _commands(context: click.Context) -> Mapping[str, click.Command]:
    assert isinstance(context.command, click.Group)
    return context.command.commands


def _meant(words: list[str]) -> str:
    texts = [f"`{word}`" if " " in word else repr(word) for word in words]
    return f"; did you mean {', '.join(texts[:-1])}{' or ' if texts[1:] else ''}{texts[-1]}?" if texts else ""
