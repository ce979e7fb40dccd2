"""What an unknown command or option means: the words of other systems, the nouns and verbs of ours in another order,
and names that are alike. Pure.

Source: docs/words.md has more words of other systems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click

from lakebed.model.wording import nearest

WORDS = {
    "add_files": "attach",
    "analyze": "status",
    "append": "write",
    "batchput": "write",
    "bootstrap": "migrate",
    "branch": "tag create",
    "bulk-load": "import",
    "bulkimport": "import",
    "bulkload": "import",
    "cat": "scan",
    "cdc": "follow run",
    "changes": "tail",
    "check": "verify",
    "checkpoint": "backup create",
    "cherrypick": "restore",
    "clean": "gc",
    "clone": "backup create",
    "cluster": "compact",
    "compact_files": "compact",
    "compactions": "compact",
    "commits": "history",
    "convert": "migrate",
    "convert-to-delta": "migrate",
    "copy": "backup create",
    "create_changelog_view": "tail",
    "daemon": "serve",
    "dedup": "docs late-data",
    "deduplicate": "docs late-data",
    "deleteall": "delete",
    "desc": "table show",
    "describe": "table show",
    "detail": "table show",
    "diff": "tail",
    "disable": "table pause",
    "du": "status",
    "enable": "table resume",
    "evolve": "table alter",
    "example": "docs tutorial",
    "examples": "docs tutorial",
    "exists": "table show",
    "expire": "gc",
    "expire_snapshots": "gc",
    "feed": "tail",
    "find": "get",
    "flush": "compact",
    "fsck": "verify",
    "get_splits": "table partitions",
    "grant": "role create",
    "guide": "docs tutorial",
    "head": "scan",
    "health": "doctor",
    "help": "--help",
    "info": "status",
    "initialise": "init",
    "initialize": "init",
    "insert": "write",
    "inspect": "table show",
    "kill": "query drop",
    "list": "table list",
    "load": "import",
    "log": "history",
    "login": "token create",
    "logs": "history",
    "ls": "table list",
    "major_compact": "compact",
    "man": "docs",
    "manual": "docs",
    "merge": "sql",
    "metrics": "status",
    "mirror": "follow run",
    "mkdir": "init",
    "monitor": "top",
    "mv": "table alter",
    "new": "init",
    "optimise": "compact",
    "optimize": "compact",
    "peek": "scan",
    "ping": "doctor",
    "preview": "scan",
    "print": "scan",
    "ps": "jobs list",
    "purge": "gc",
    "put": "write",
    "quickstart": "docs tutorial",
    "read": "scan",
    "rebuild": "view refresh",
    "register_table": "attach",
    "remove_orphan_files": "gc",
    "rename": "table alter",
    "reorg": "table rewrite",
    "replicate": "follow run",
    "restore-backup": "backup restore",
    "revoke": "token drop",
    "rewrite_data_files": "compact",
    "rewrite_manifests": "compact",
    "rm": "remove",
    "rollback": "restore",
    "rollback_to_snapshot": "restore",
    "run": "maintain",
    "savepoint": "tag create",
    "scrub": "verify",
    "search": "sql",
    "select": "sql",
    "server": "serve",
    "setup": "init",
    "shell": "sql",
    "show": "table show",
    "size": "status",
    "snapshot": "backup create",
    "snapshots": "history",
    "start": "serve",
    "stats": "status",
    "subscribe": "tail",
    "sync": "follow run",
    "tables": "table list",
    "truncate": "remove",
    "tutorial": "docs tutorial",
    "ui": "serve",
    "undo": "restore",
    "unload": "export",
    "update": "sql",
    "upgrade": "docs compatibility",
    "upload": "write",
    "upsert": "write",
    "use": "config show",
    "user": "token create",
    "vacuum": "gc",
    "validate": "verify",
    "version": "--version",
    "versions": "history",
    "watch": "tail",
    "web": "serve",
    "wipe": "remove",
    "words": "docs words",
    "z-order": "compact",
    "zorder": "compact",
}
"""Words of other systems, and the command that does it here; docs/words.md has more of them."""
_ACTIONS = {
    "add": "create",
    "delete": "drop",
    "describe": "show",
    "load": "restore",
    "ls": "list",
    "make": "create",
    "new": "create",
    "remove": "drop",
    "rm": "drop",
    "run": "create",
    "take": "create",
}
"""Words for what a command of a group does, and its own."""
_INSTANCE = frozenset({"instance", "lake", "database", "db", "warehouse", "catalog", "namespace"})
_OF_INSTANCE = {
    "add": "init", "backup": "backup create", "check": "doctor", "copy": "backup create", "create": "init",
    "describe": "status", "dump": "dump", "info": "status", "init": "init", "list": "config show", "make": "init",
    "new": "init", "open": "status", "setup": "init", "show": "status",
}  # fmt: skip
"""Words for an instance, and the commands for what is done with it."""
_OPTIONS = {
    "--as-of": "--at",
    "--column": "--columns",
    "--csv": "--format",
    "--end": "--to",
    "--fields": "--columns",
    "--filter": "--where",
    "--force": "--yes",
    "--head": "--limit",
    "--row-key": "--key",
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


_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
"""The words in a word: ``create-instance``, ``list_tables``, ``dropIndex``."""


def options_meant(error: click.NoSuchOption) -> list[str]:
    """Return the options of the command that are meant."""
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


def commands_meant(word: str, context: click.Context) -> list[str]:
    """Return the commands of the group, or command lines from the root if only other groups have it."""
    commands = _commands_in(context)
    if context.parent is not None:
        if word in _commands_in(context.find_root()):
            return [f"lakebed {word}"]
        other = _ACTIONS.get(word, "")
        return [other] if other in commands else nearest(word, commands)
    known = WORDS.get(word) or WORDS.get(word.lower().replace("_", "-")) or WORDS.get(word.lower().replace("-", "_"))
    if known is not None:
        return [f"lakebed {known}"]
    groups = {name: found for name, found in commands.items() if isinstance(found, click.Group)}
    same = [f"lakebed {name} {word}" for name, found in groups.items() if word in found.commands]
    parts = [part.lower() for part in _PARTS.findall(word)]
    compound = next(_lines_of(parts, commands, groups), None) if len(parts) > 1 else None
    return same or ([compound] if compound else [f"lakebed {name}" for name in nearest(word, commands)])


def _lines_of(
    parts: list[str], commands: Mapping[str, click.Command], groups: Mapping[str, click.Group]
) -> Iterator[str]:
    """Return the command lines that the parts of a word may mean: a group and its command in any order, then one that
    a part alone means, then a group and its command if a part is misspelt.
    """
    singular = {**{f"{name}s": name for name in groups}, "indexes": "index", "indices": "index"}
    yield from _nouns_and_verbs(parts, singular, groups)
    yield from (f"lakebed {part}" for part in parts if part in commands and part not in groups)
    yield from (f"lakebed {WORDS[part]}" for part in parts if part in WORDS)
    verbs = [verb for group in groups.values() for verb in group.commands]
    known = list(dict.fromkeys([*groups, *singular, *_INSTANCE, *verbs, *_ACTIONS, *_OF_INSTANCE]))
    spelt = [next(iter(nearest(part, known)), part) for part in parts]
    yield from _nouns_and_verbs(spelt, singular, groups)


def _nouns_and_verbs(parts: list[str], singular: Mapping[str, str], groups: Mapping[str, click.Group]) -> Iterator[str]:
    """Return the command lines of a noun among the parts and a verb among them."""
    nouns = [singular.get(part, part) for part in parts]
    for noun, verb in [(noun, verb) for noun in nouns for verb in parts if verb != noun]:
        known = groups[noun].commands if noun in groups else {}
        yield from (f"lakebed {noun} {action}" for action in (verb, _ACTIONS.get(verb)) if action in known)
        if noun in _INSTANCE and verb in _OF_INSTANCE:
            yield f"lakebed {_OF_INSTANCE[verb]}"


def _commands_in(context: click.Context) -> Mapping[str, click.Command]:
    assert isinstance(context.command, click.Group)
    return context.command.commands


def meant_text(words: list[str]) -> str:
    """Return the end of a message that suggests words; empty if there is none."""
    texts = [f"`{word}`" if " " in word else repr(word) for word in words]
    return f"; did you mean {', '.join(texts[:-1])}{' or ' if texts[1:] else ''}{texts[-1]}?" if texts else ""
