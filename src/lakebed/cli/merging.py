"""Options for merge modes and filters; ``lakebed view``: tables that are computed from others.

Errors: UsageError for modes that exclude each other, and for an age that is none. Source: docs/merging.md,
docs/views.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import completions, options
from lakebed.cli.grammar import KEY_WORD, command, name_value
from lakebed.cli.invocation import Invocation
from lakebed.errors import Code
from lakebed.model.merge_modes import KEEP_ALL, Aggregate, First, Latest
from lakebed.model.row_filters import AgeOff
from lakebed.model.wording import duration_text

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode

_MODES: dict[str, MergeMode] = {
    "keep-all": KEEP_ALL,
    "latest": Latest(),
    "latest-by-sort-key": Latest(by="sort_key"),
    "first": First(),
}


def merge_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--merge`` and ``--aggregate``, as one parameter ``merge``."""

    @click.option(
        "--merge", type=click.Choice([*_MODES]), help="How rows with equal keys are merged; default: keep-all."
    )
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


def merge_of_made(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--merge`` for commands that may make a table, as ``merge``; None if it is not given."""

    @click.option("--merge", type=click.Choice([*_MODES]), help="How rows with equal keys are merged in a new table.")
    @functools.wraps(function)
    def wrapped(*args: Any, merge: str | None, **given: Any) -> None:
        function(*args, merge=None if merge is None else _MODES[merge], **given)

    return wrapped


_AGE = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,8})h)?(?:([0-9]{1,10})s)?(?: *of (s|ms|us|ns))?")


def age_off_of(name: str, text: str) -> AgeOff:
    """Return the age-off by a field after an age such as ``30d``, ``12h`` or ``1d12h``. Raises UsageError."""
    found = _AGE.fullmatch(text)
    if found is None or not any(found.groups()[:3]):
        raise Code.FILTER_INVALID(
            f"--age-off {name}={text}: give an age as 30d, 12h or 90s; for a field of milliseconds, '30d of ms'"
        )
    days, hours, seconds = (int(number or 0) for number in found.groups()[:3])
    return AgeOff(name, days=days, hours=hours, seconds=seconds, unit=found[4] or "")


def filter_lines(document: dict[str, Any]) -> list[str]:
    """Return the same in words."""
    lines = [] if document["filter"] is None else [f"filter: {document['filter']}"]
    if (aged := document["age_off"]) is not None:
        lines.append(
            f"age-off: {duration_text(aged['age_s'])} by {aged['field']}, hidden is what is before {aged['cut']}"
        )
    return lines


@command
@click.argument("name", metavar="NAME", type=KEY_WORD, help="The view's name.")
@click.option("--source", metavar="TABLE", required=True, shell_complete=completions.tables, help="The source table.")
@click.option("--select", metavar="SQL", required=True, help="A query over the table `source`.")
@click.option("--key", "row_key", metavar="A,B", multiple=True, required=True, help="Row key columns of the query.")
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
    """Create a view: a table that is computed from the rows of another one by a query.

    The query sees new rows as they come, in parts: it may filter, compute columns and group, and has no limit, window
    or join. With GROUP BY, --aggregate defines how the groups of several parts are combined: sum for a count. The view
    is empty until `lakebed view refresh` (`lakebed docs views`).
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
    """Bring a view up to date with its source, in one commit, in this process."""
    from lakebed.upkeep.view_feed import beside_others, view_source
    from lakebed.upkeep.view_feed import refresh as feed

    instance = cli.instance()
    view = instance.table(table)
    source = instance.named(view_source(view).table)
    report = beside_others(lambda: feed(view, source, anew=anew))
    cli.out.document(report, [f"view {report.view} at version {report.version}: {report.summary}"])
