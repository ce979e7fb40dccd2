"""``lakebed hook``: webhooks and commands that a service calls after commits of a table.

Hooks are objects of the instance, which services deliver to; nothing is delivered here. Rule: a secret is never
printed. Errors: UsageError, NotFoundError. Source: docs/hooks.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import completions, options
from lakebed.cli.grammar import WholeNumber, command
from lakebed.cli.invocation import Invocation
from lakebed.errors import Code, DamagedError, NotFoundError
from lakebed.read.inspect.hooks import (
    DamagedHook,
    Delivered,
    Hook,
    add_hook,
    checked_hook,
    read_delivered,
    read_hooks,
    remove_hook,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lakebed


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
def create(
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
def drop(cli: Invocation, *, hook: str) -> None:
    """Drop a hook.

    Events that are being delivered still arrive.
    """
    remove_hook(cli.instance().storage, hook)
    cli.out.document({"hook": hook}, [f"hook {hook} removed"])


def _checked_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    from lakebed.model.state.transactions import StoredTransaction

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


_AGAIN = "a service delivers the events since it was added again"


def _hook_document(instance: lakebed.Instance, hook: Hook | DamagedHook) -> dict[str, Any]:
    """Return what there is to say of a hook; never its secret."""
    if isinstance(hook, DamagedHook):
        empty = Hook(id=hook.id, table="", url=None, command=None, kinds=(), secret=None)
        return _document_of(empty, None, None, Delivered(version=0, failures=1, error=hook.error))
    try:
        found = read_delivered(instance.storage, hook.id)
        lost = "its delivery state is lost"
    except DamagedError as error:
        found, lost = None, error.message
    delivered = Delivered(version=hook.since, failures=1, error=f"{lost}; {_AGAIN}") if found is None else found[0]
    name, version = None, None
    try:
        table = instance.named(hook.table)
        name, version = table.name, table.state().version
    except NotFoundError:
        # It was dropped.
        pass
    return _document_of(hook, name, version, delivered)


def _document_of(hook: Hook, name: str | None, version: int | None, delivered: Delivered) -> dict[str, Any]:
    return {
        "hook": hook.id,
        "table": name,
        "table_id": hook.table,
        "url": hook.url,
        "command": hook.command,
        "kinds": list(hook.kinds),
        "signed": hook.secret is not None,
        "delivered": delivered.version,
        "version": version,
        "failures": delivered.failures,
        "since": delivered.since,
        "error": delivered.error,
    }


def _hook_lines(documents: list[dict[str, Any]]) -> Iterator[str]:
    for one in documents:
        state = f"delivered up to version {one['delivered']} of {one['version']}"
        if one["since"]:
            state += f"; failed {one['failures']} times since {one['since']}: {one['error']}"
        elif one["failures"]:
            state = f"damaged: {one['error']}"
        elif one["table"] is None:
            state = "its table was dropped"
        yield f"{one['hook']}  {one['table'] or one['table_id']}  {one['url'] or one['command'] or '?'}  {state}"
