"""Completions of a command line: tables, columns, tags, settings, hooks and roles of the instance.

Called by Click while a shell completes a line. The instance is the one that the line, the environment or the
configuration names. A remote store is read for at most a third of a second; after an error or a time-out there are no
completions. A log whose URL the user has not agreed to is not contacted: opening such an instance is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import lakebed

REMOTE_READ_S = 0.3
LOCAL_READ_S = 5.0
"""A local disk answers at once; what takes long is this process on a busy machine."""

Names = Callable[["lakebed.Instance", click.Context], Iterable[str]]
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def _of_instance(names: Names) -> Completion:
    """Return names that the instance has."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        return _starting(incomplete, _names_in_time(ctx, names))

    return complete


tables = _of_instance(lambda lake, _: lake.tables())
tags = _of_instance(lambda lake, ctx: lake.table(_table_name(ctx)).tags())
"""Those of the table that the line names."""


@_of_instance
def hooks(lake: lakebed.Instance, _: click.Context) -> Iterable[str]:
    """Return the ids of hooks."""
    from lakebed.read.inspect.hooks import read_hooks

    return [hook.id for hook in read_hooks(lake.storage, {})]


@_of_instance
def roles(lake: lakebed.Instance, _: click.Context) -> Iterable[str]:
    """Return the roles that were created."""
    from lakebed.server.security import stored

    return stored.roles_of(lake.storage)


def paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Local files and folders, which the shell lists."""
    from click.shell_completion import CompletionItem

    del ctx, param
    return [CompletionItem(incomplete, type="file")]


def columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the columns of the table that the line names, after those that stand before a comma already."""
    del param
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _starting(last, _names_in_time(ctx, _column_names))]


def settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return settings with an equals sign; tables as well, where the first word may be one."""
    from lakebed.model.settings import NAMES

    found = [f"{name}=" for name in NAMES if name.startswith(incomplete)]
    first = param.name == "words" and not ctx.params.get("words")
    return [*tables(ctx, param, incomplete), *found] if first else found


def instances(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Return the instances of the configuration by their names, and folders."""
    from click.shell_completion import CompletionItem

    del param
    named = _configured(ctx, "instances", incomplete)
    return [*map(CompletionItem, named)] or [CompletionItem(incomplete, type="dir")]


def profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the profiles of the configuration."""
    del param
    return _configured(ctx, "profiles", incomplete)


def _configured(ctx: click.Context, what: str, incomplete: str) -> list[str]:
    try:
        return _starting(incomplete, getattr(ctx.obj.configuration, what))
    except Exception:  # noqa: BLE001 - a shell that completes has nowhere to show it
        return []


def _column_names(lake: lakebed.Instance, ctx: click.Context) -> Iterable[str]:
    return lake.table(_table_name(ctx)).schema.names


def _table_name(ctx: click.Context) -> str:
    """Return the table that the line names; Click leaves words unparsed before an option without its value."""
    return ctx.params.get("table") or ctx.args[0]


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _names_in_time(ctx: click.Context, names: Names) -> list[str]:
    """Return the names, if the instance gives them in time."""
    found: list[str] = []
    is_remote = "://" in (ctx.obj.url_if_given() or "")
    # Imported before the clock is started, because the time of imports depends on the machine.
    import_module("lakebed.table.opening")
    if is_remote:
        import_module("lakebed.storage.object_store")

    def read() -> None:
        try:
            found.extend(names(ctx.obj.instance_to_read(), ctx))
        except Exception:  # noqa: BLE001 - a shell that completes has nowhere to show it
            found.clear()

    # A daemon thread: an unresponsive store does not keep the process alive.
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(REMOTE_READ_S if is_remote else LOCAL_READ_S)
    return [] if reader.is_alive() else found
