"""``lakebed tail``: the change feed of a table, and with ``--follow`` each new version as it is committed.

A check for a new version costs one or two requests, so the pause between checks grows while there is none. The command
ends when the reader of stdout exits. Errors: UsageError; those of :meth:`lakebed.Table.changes`. Source:
docs/changes.md.
"""

from __future__ import annotations

import io
import select
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from lakebed import clock
from lakebed.cli import options
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.cli.row_formats import BINARY
from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

PAUSE_S, PAUSE_MAX_S = 0.1, 1.0
"""Between two looks for a new version: at first, and after many in vain. A look is one or two requests, which cost
money, except on a local disk: there the first pause is the longest.
"""

_SINCE = "After this version (0: before the first), tag or time. Default with --follow: the newest."


@command
@options.table
@click.option("--since", metavar="WHEN", help=_SINCE)
@click.option("--until", metavar="WHEN", help="Up to this version, tag or time. Default: the newest.")
@click.option("-f", "--follow", is_flag=True, help="Print the changes of new versions as they come, until Ctrl-C.")
@options.ranges
@options.columns
@options.where
@options.row_format
def tail(
    cli: Invocation,
    *,
    table: str,
    since: str | None,
    until: str | None,
    follow: bool,
    ranges: options.Ranges,
    columns: tuple[str, ...],
    where: str | None,
) -> None:
    """Print what versions changed, and follow new ones.

    One line for each row that was added or deleted, with the version and the kind of change (docs/changes.md): insert,
    delete, update_before and update_after, or remove_range with the range as JSON. Versions come in order; in a version
    removed ranges first, then rows in key order.
    """
    options.check_at_most_one({"--until": until, "--follow": follow})
    if follow and cli.out.row_format in BINARY:
        raise Code.ARGUMENTS_CONFLICT(
            f"--follow prints changes as they come, and {cli.out.row_format} has an end: give --format csv or jsonl, "
            "or leave out --follow"
        )
    if since is None and not follow:
        raise Code.ARGUMENT_MISSING(
            "from which version on? Give --since WHEN, or --follow to print what comes from now on"
        )
    found = cli.table(table)
    wanted: dict[str, Any] = {"ranges": ranges.of(found.schema), "columns": options.names(columns), "where": where}
    if not follow:
        assert since is not None
        newest = found.state().version
        with found.changes(since, newest if until is None else until, **wanted) as stream:
            if not cli.out.rows(stream.schema, stream):
                cli.out.note("no changes there")
        if until is None:
            cli.out.note(f"up to version {newest}")
        return
    from lakebed.read.changes.feed import follow as followed

    idle = _Idle(PAUSE_S if found.storage.locality.near else PAUSE_MAX_S)
    schema, rows = followed(found.versions, since, **wanted, wait=idle.wait)
    cli.no_pager = True  # each change is to be seen when it comes
    with closing(rows):
        cli.out.rows(schema, idle.noted(rows))


class _Idle:
    """Waits for new versions, longer each time, and stops when the reader of stdout goes away."""

    def __init__(self, pause_max_s: float) -> None:
        self._pause_s, self._pause_max_s = PAUSE_S, pause_max_s
        self._poll: select.poll | None = None
        try:
            number = sys.stdout.fileno()
        except io.UnsupportedOperation:
            return
        self._poll = select.poll()
        # For no event: a closed other end is always reported.
        self._poll.register(number, 0)

    def noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches; after each the next wait is short."""
        for batch in batches:
            self._pause_s = PAUSE_S
            yield batch

    def wait(self) -> None:
        """Wait. Raises BrokenPipeError if the reader of stdout is gone."""
        if self._poll is None:
            clock.sleep(self._pause_s)
        elif self._poll.poll(1000 * self._pause_s):
            raise BrokenPipeError
        self._pause_s = min(2 * self._pause_s, self._pause_max_s)
