"""``lakebed get``, ``scan``, ``count``, ``sample``, ``prefixes``, ``explain`` and ``tail``: rows, in this process.

Keys and ranges are parsed by the schema of the version that is read. Rows are printed batch by batch. ``tail --follow``
checks for new versions; a check costs one or two requests, so the pause between checks grows while there is none, and
the command ends when the reader of stdout exits. Errors: BadKeyError for a key that does not fit; those of reads.
Source: docs/keys.md, docs/queries.md, docs/changes.md.
"""

from __future__ import annotations

import io
import select
import sys
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed import clock
from lakebed.cli import options
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.cli.render import ABOUT, BINARY, Output
from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    import lakebed
    from lakebed.jobs.progress_bar import ProgressBar
    from lakebed.model.keys import KeyRange
    from lakebed.read.snapshot.snapshot import Snapshot


@command
@options.table
@options.key
@options.file("--keys", "In place of KEY: a text file, one key a line, as in CSV.")
@options.by
@options.columns
@options.at
@options.row_format
def get(
    cli: Invocation,
    *,
    table: str,
    key: tuple[str, ...],
    keys: Path | None,
    by: tuple[tuple[str, str], ...],
    columns: tuple[str, ...],
    at: str | None,
) -> None:
    """Print all rows of a key, or of many keys.

    A key is given as words, one for each row key field in order: numbers, text, hex digits for binary, dates and times
    in ISO 8601 (without an offset: UTC). A word that begins with a minus sign and is not a number needs `--` before it.
    Rows of many keys are printed in key order, those of a repeated key once.
    """
    options.check_one({"KEY": key, "--keys": keys, "--by": by})
    snapshot = cli.snapshot(table, at)
    wanted = options.names(columns)
    if by:
        found = snapshot.get(by=options.values_by(by, snapshot.schema), columns=wanted)
        _print_table(found, cli.out, "no rows with these values")
    elif keys is None:
        found = snapshot.get(*snapshot.schema.codec.parse(key), columns=wanted)
        _print_table(found, cli.out, "no rows with that key")
    else:
        found = snapshot.get_many(options.keys_in(keys, snapshot.schema), columns=wanted)
        _print_table(found, cli.out, "no rows with these keys")


def _print_table(rows: pa.Table, out: Output, nothing: str) -> None:
    out.rows(rows.schema, rows.to_batches())
    if not rows.num_rows:
        out.note(nothing)


@command
@options.table
@options.by
@options.row_choice
@options.row_format
def scan(
    cli: Invocation,
    *,
    table: str,
    by: tuple[tuple[str, str], ...],
    ranges: options.Ranges,
    columns: tuple[str, ...],
    at: str | None,
    **how: Any,
) -> None:
    """Print rows in key order.

    All rows, or those of the ranges given; rows in several ranges are printed once. Keys are given as to get; bounds
    may have fewer fields than the key. A word that begins with a minus sign and is not a number needs the form
    --from=-x. Give TABLE before options that take several words.
    """
    snapshot = cli.snapshot(table, at)
    wanted = ranges.of(snapshot.schema)
    how["by"] = options.values_by(by, snapshot.schema)
    with snapshot.scan(*wanted, columns=options.names(columns), **how) as stream, _progress(f"scan {table}") as bar:
        total = None if bar is None or how["where"] or by else _expected(snapshot, wanted, how["limit"])
        if not cli.out.rows(stream.schema, _shown_on_bar(stream, bar, total)):
            cli.out.note("no rows there")


def _progress(what: str) -> AbstractContextManager[ProgressBar | None]:
    """Return a bar if stderr is a terminal and stdout is not."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        return nullcontext()
    from lakebed.cli.progress import command_bar

    return command_bar(what)


def _expected(table: lakebed.Table | Snapshot, ranges: Sequence[KeyRange], limit: int | None) -> int:
    rows = table.count(*ranges).rows
    return rows if limit is None else min(rows, limit)


def _shown_on_bar(
    batches: Iterable[pa.RecordBatch], bar: ProgressBar | None, total: int | None
) -> Iterator[pa.RecordBatch]:
    """Return the same batches, of which the bar shows how many rows are printed."""
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        if bar is not None:
            bar.update(done, total)


@command
@options.table
@options.ranges
@options.by
@click.option("--exact", is_flag=True, help="Read keys instead of estimating.")
@options.at
def count(
    cli: Invocation,
    *,
    table: str,
    ranges: options.Ranges,
    by: tuple[tuple[str, str], ...],
    exact: bool,
    at: str | None,
) -> None:
    """Count rows.

    All rows, or those of the ranges given, as to scan. Where a range cuts a file, the count is an estimate (~) that is
    off by at most 0.1% of the file's rows at each end; --exact reads the keys there.
    """
    snapshot = cli.snapshot(table, at)
    schema = snapshot.schema
    found = snapshot.count(*ranges.of(schema), by=options.values_by(by, schema), exact=exact)
    document = {"table": table, "version": snapshot.version, "rows": found.rows, "exact": found.exact}
    document |= {"rows_min": found.rows_min, "rows_max": found.rows_max}
    cli.out.document(document, [f"{'' if found.exact else ABOUT}{found.rows}"])


@command
@options.table
@click.argument("rows", metavar="ROWS", type=int, help="How many rows.")
@click.option("--seed", metavar="N", type=int, help="The same seed gives the same rows of the same version.")
@options.columns
@options.at
@options.row_format
def sample(
    cli: Invocation, *, table: str, rows: int, seed: int | None, columns: tuple[str, ...], at: str | None
) -> None:
    """Print random rows, in key order.

    Every row is equally likely, and none is repeated.
    """
    snapshot = cli.snapshot(table, at)
    _print_table(snapshot.sample(rows, columns=options.names(columns), seed=seed), cli.out, "no rows there")


@command
@options.table
@click.option("--depth", metavar="N", type=int, required=True, help="How many row key fields.")
@options.ranges
@options.limit("Stop after this many.")
@options.at
@options.row_format
def prefixes(
    cli: Invocation, *, table: str, depth: int, ranges: options.Ranges, limit: int | None, at: str | None
) -> None:
    """Print the distinct values of the first row key fields.

    In key order; those of all rows, or of the rows in the ranges given, as to scan. The rows between them are not read.
    """
    snapshot = cli.snapshot(table, at)
    _print_table(snapshot.prefixes(depth, *ranges.of(snapshot.schema), limit=limit), cli.out, "no rows there")


@command
@options.table
@options.key
@options.row_choice
def explain(
    cli: Invocation,
    *,
    table: str,
    key: tuple[str, ...],
    ranges: options.Ranges,
    columns: tuple[str, ...],
    at: str | None,
    **how: Any,
) -> None:
    """Read a key or ranges, and print statistics of the read.

    With KEY as get, otherwise as scan. Prints partitions and files read, files skipped by key bounds and by filters,
    row groups, pages and bytes read, and the time of each step.
    """
    snapshot = cli.snapshot(table, at)
    wanted = ranges.of(snapshot.schema)
    if key and wanted:
        raise Code.ARGUMENTS_CONFLICT("explain takes a KEY or ranges, not both")
    values = snapshot.schema.codec.parse(key) if key else ()
    found = snapshot.explain(*values, *wanted, columns=options.names(columns), **how)
    cli.out.document({"table": table, **found.to_dict()}, found.lines())


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

    One line for each row that was added or deleted, with the version and the kind of change (`lakebed docs changes`):
    insert, delete, update_before and update_after, or remove_range with the range as JSON. Versions come in order; in a
    version removed ranges first, then rows in key order.
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
        cli.out.rows(schema, idle.reset_after(rows))


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

    def reset_after(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
