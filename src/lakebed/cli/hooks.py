"""``lakebed hook``: webhooks and commands that a service calls after commits of a table.

Hooks are objects of the instance, which services deliver to; nothing is delivered here. Rule: a secret is never
printed. Errors: UsageError, NotFoundError. Source: docs/hooks.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import completions, options
from lakebed.cli.argument_types import WholeNumber
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.errors import Code, NotFoundError
from lakebed.inspect.hooks import add_hook, checked_hook, read_delivered, read_hooks, remove_hook

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lakebed
    from lakebed.inspect.hooks import Hook


@command
@options.table
@click.option("--url", metavar="URL", help="Send each event to this URL, by POST.")
@click.option("--command", "words", metavar="CMD", help="Run this command for each event, without a shell.")
@click.option(
    "--kind", "kinds", metavar="KIND", multiple=True, help="Only transactions of this kind, as in `history`; repeat."
)
@click.option("--since", metavar="VERSION", type=WholeNumber(min=0), help="Begin after this version.")
@click.option(
    "--secret-file",
    metavar="FILE",
    shell_complete=completions.paths,
    help="Sign requests with the secret in this file.",
)
def add(
    cli: Invocation,
    *,
    table: str,
    url: str | None,
    words: str | None,
    kinds: tuple[str, ...],
    since: int | None,
    secret_file: str | None,
) -> None:
    """Notify a webhook or a command of the commits of a table.

    A service (`lakebed serve`) delivers each commit at least once, in version order. It runs commands only if it was
    started with --hook-commands.
    """
    kinds, secret = _checked_kinds(kinds), _secret(secret_file)
    found = cli.table(table)
    hook = checked_hook(found.id, url=url, command=words, kinds=kinds, secret=secret)
    version = found.state().version
    if since is not None and since > version:
        raise Code.VERSION_NOT_FOUND(f"--since {since}: the latest version of {table} is {version}", version=since)
    begin = version if since is None else since
    add_hook(found.storage, hook, begin)
    document = {"hook": hook.id, "table": table, "version": begin}
    cli.out.document(document, [f"hook {hook.id} of table {table}, from version {begin + 1} on"])


@command
@options.row_format
def list_hooks(cli: Invocation) -> None:
    """List hooks and their deliveries."""
    instance = cli.instance()
    documents = [_hook_document(instance, hook) for hook in read_hooks(instance.storage, {})]
    cli.out.document({"hooks": documents}, list(_hook_lines(documents)) or ["no hooks"])


@command
@click.argument("hook", metavar="HOOK", help="The hook's id.", shell_complete=completions.hooks)
def remove(cli: Invocation, *, hook: str) -> None:
    """Remove a hook.

    Events that are being delivered still arrive.
    """
    remove_hook(cli.instance().storage, hook)
    cli.out.document({"hook": hook}, [f"hook {hook} removed"])


def _checked_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    from lakebed.state.transactions import StoredTransaction

    known = sorted(str(one.__struct_config__.tag) for one in StoredTransaction.__args__)
    for kind in kinds:
        if kind not in known:
            raise Code.ARGUMENT_INVALID(f"--kind {kind}: there is no such kind; there are {', '.join(known)}")
    return kinds


def _secret(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise Code.ARGUMENT_INVALID(f"--secret-file {path}: cannot be read ({type(error).__name__})") from error


def _hook_document(instance: lakebed.Instance, hook: Hook) -> dict[str, Any]:
    """Return what there is to say of a hook; never its secret."""
    found = read_delivered(instance.storage, hook.id)
    name, version = None, None
    try:
        table = instance.named(hook.table)
        name, version = table.name, table.state().version
    except NotFoundError:
        # It was dropped.
        pass
    return {
        "hook": hook.id,
        "table": name,
        "table_id": hook.table,
        "url": hook.url,
        "command": hook.command,
        "kinds": list(hook.kinds),
        "signed": hook.secret is not None,
        "delivered": found[0].version if found else 0,
        "version": version,
        "failures": found[0].failures if found else 0,
        "since": found[0].since if found else None,
        "error": found[0].error if found else None,
    }


def _hook_lines(documents: list[dict[str, Any]]) -> Iterator[str]:
    for one in documents:
        state = f"delivered up to version {one['delivered']} of {one['version']}"
        if one["table"] is None:
            state = "its table was dropped"
        elif one["failures"]:
            state += f"; failed {one['failures']} times since {one['since']}: {one['error']}"
        yield f"{one['hook']}  {one['table'] or one['table_id']}  {one['url'] or one['command']}  {state}"
