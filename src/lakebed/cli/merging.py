"""Options that say what rows with equal keys become, and ``lakebed view``: tables that are fed from others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import options
from lakebed.cli.grammar import KEY_WORD, Invocation, command, name_value
from lakebed.cli.render import count_text
from lakebed.errors import Code
from lakebed.model.merge_modes import KEEP_ALL, Aggregate, First, Latest

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode

_MODES: dict[str, MergeMode] = {
    "keep-all": KEEP_ALL,
    "latest": Latest(),
    "latest-by-sort-key": Latest(by="sort_key"),
    "first": First(),
}


def merge_options(function: Callable[..., None]) -> Callable[..., None]:
    """``--merge`` and ``--aggregate``, as one parameter ``merge``."""

    @click.option("--merge", type=click.Choice([*_MODES]), help="What rows with equal keys become; default: keep-all.")
    @click.option(
        "--aggregate",
        metavar="NAME=FUNCTION",
        type=name_value,
        multiple=True,
        help="Aggregate rows with equal keys: sum, max, last … for each value field. May be repeated.",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, merge: str | None, aggregate: tuple[tuple[str, str], ...], **given: Any) -> None:
        if merge is not None and aggregate:
            raise Code.ARGUMENTS_CONFLICT("--merge and --aggregate are two modes of one table: give one of them")
        function(*args, merge=Aggregate(aggregate) if aggregate else _MODES[merge or "keep-all"], **given)

    return wrapped


@command
@click.argument("name", metavar="NAME", type=KEY_WORD, help="The view's name.")
@click.option("--source", metavar="TABLE", required=True, help="The table that feeds it.")
@click.option("--select", metavar="SQL", required=True, help="A query over the table `source`.")
@click.option("--row-key", metavar="A,B", multiple=True, required=True, help="Row key columns of the query.")
@click.option("--sort-key", metavar="C", multiple=True, help="Sort key columns of the query.")
@merge_options
def create_view(
    cli: Invocation,
    *,
    name: str,
    source: str,
    select: str,
    row_key: tuple[str, ...],
    sort_key: tuple[str, ...],
    merge: MergeMode,
) -> None:
    """Create a view: a table that is fed from the rows of another one, through a query.

    The query sees new rows as they come, in parts: it may filter, compute columns and group, and has no limit, window
    or join. With GROUP BY, --aggregate says how the groups of several parts are put together: sum for a count. The view
    is empty until `lakebed view refresh` (docs/views.md).
    """
    keys = options.names(row_key) or [], options.names(sort_key) or []
    view = cli.instance().create_view_table(
        name, source=source, select=select, row_key=keys[0], sort_key=keys[1], merge=merge
    )
    document = {"view": view.name, "id": view.id, "version": view.version, "source": source}
    cli.out.document(document, [f"created view {view.name} of table {source}; `lakebed view refresh {name}` feeds it"])


@command
@options.table
@click.option("--anew", is_flag=True, help="Read the whole source, and replace all rows of the view.")
def refresh(cli: Invocation, *, table: str, anew: bool) -> None:
    """Add to a view what its source added since the last refresh, in one commit, in this process."""
    from lakebed.maintenance.view_feed import refresh as feed
    from lakebed.maintenance.view_feed import view_source

    instance = cli.instance()
    view = instance.table(table)
    report = feed(view, instance.named(view_source(view).table), anew=anew)
    if report.rows_read or report.anew or report.since != report.until:
        line = (
            f"view {report.view} at version {report.version}: {count_text(report.rows_read, 'row')} of {report.source} "
            f"read; it has version {report.until}"
        )
    else:
        line = f"view {report.view}: nothing to do; it has version {report.until} of {report.source}"
    cli.out.document(asdict(report), [line])
