"""``lakebed history``, ``tag`` and ``restore``: versions of a table, the transactions that made them, and tags.

History is read from the log, newest first, entry by entry, so ``--limit`` bounds what is read. ``--entries`` prints the
entries as they are stored. A restore is planned before it asks, and names what it would change. Errors: those of
:meth:`lakebed.Table.at` and :meth:`lakebed.Table.restore`. Source: docs/removing.md.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import completions, options
from lakebed.cli.grammar import WholeNumber, command
from lakebed.cli.invocation import Invocation
from lakebed.cli.render import columns, shown
from lakebed.errors import Code
from lakebed.model.documents import load
from lakebed.model.json_values import plain
from lakebed.model.state.codec import outline
from lakebed.model.state.transactions import ProposeRestore
from lakebed.model.wording import count_text, size_text
from lakebed.read.inspect.history import committed_on_interrupt, described
from lakebed.read.inspect.report import restored
from lakebed.table.tracker.listing import read_failures

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lakebed
    from lakebed.log.entry import StoredEntry
    from lakebed.read.inspect.history import HistoryRow

ENTRIES_SHOWN = 10
VALUE_CHARS_MAX = 1_000
"""An entry may name thousands of files; --json prints all of them."""


@command
@options.table
@options.limit(f"Only the newest; reads no more of the log. Default: all, and {ENTRIES_SHOWN} with --entries.")
@click.option("--entries", is_flag=True, help="Print the entries of the log.")
@click.option("--entry", metavar="N", type=WholeNumber(min=1), help="Print log entry N in full.")
@click.option("--failures", is_flag=True, help="Print calls that failed within jobs_kept_s, and why.")
@options.row_format
def history(
    cli: Invocation, *, table: str, limit: int | None, entries: bool, entry: int | None, failures: bool
) -> None:
    """List what happened to a table, newest first.

    One line a transaction. Times are the store's. A minus sign means that the log does not record the value, such as
    the rows that a compaction replaces.
    """
    options.check_at_most_one({"--entries": entries, "--entry": entry, "--failures": failures})
    found = cli.table(table)
    if failures:
        names = ("time", "call", "version", "job", "error", "reason")
        records = islice(read_failures(found.storage, found.id), limit)
        cli.out.records(records, names, lambda one: [getattr(one, name) for name in names])
    elif entry is not None:
        stored = _entry(found, entry)
        cli.out.document(_entry_document(stored), _entry_lines(stored, whole=True))
    elif entries:
        for stored in islice(found.log.newest_first(), ENTRIES_SHOWN if limit is None else limit):
            cli.out.document(_entry_document(stored), _entry_lines(stored))
    else:
        headings = ("version", "time", "type", "rows", "removed", "files", "dropped", "size", "key", "writer", "detail")
        cli.out.records(found.history_rows(limit), headings, _history_cells)


def _history_cells(row: HistoryRow) -> tuple[Any, ...]:
    size = size_text(row.bytes_added) if row.bytes_added else 0
    counts = (row.rows_added, row.rows_removed, row.files_added, row.references_dropped, size)
    return (row.version, row.time, row.type, *counts, row.request_key or row.job, row.writer, row.detail)


def _entry(table: lakebed.Table, version: int) -> StoredEntry:
    found = table.log.read(version)
    if found is None:
        raise Code.VERSION_NOT_FOUND(
            f"table {table.name} has no entry {version}; its latest is {table.state().version}",
            table=table.name,
            version=version,
        )
    return found


def _entry_document(stored: StoredEntry) -> dict[str, Any]:
    entry = stored.entry
    return {
        "version": entry.version,
        "time": stored.stored_at,
        "writer": entry.writer,
        "writer_time": entry.time,
        "id": entry.id,
        "digest": entry.digest,
        "previous": entry.previous,
        "size_bytes": stored.size_bytes,
        "sidecars": entry.sidecars,
        "transactions": list(map(load, entry.documents)),
    }


def _entry_lines(stored: StoredEntry, *, whole: bool = False) -> Iterator[str]:
    entry = stored.entry
    yield f"entry {entry.version}, stored {plain(stored.stored_at)}, {size_text(stored.size_bytes)}"
    yield f"  by {shown(entry.writer)}, at {shown(entry.time)} by its own clock"
    yield f"  digest {entry.digest}, after {entry.previous or 'nothing'}"
    for side in entry.sidecars:
        size = size_text(side.size_bytes)
        yield f"  sidecar {side.digest} of {side.version}: {count_text(side.references, 'reference')}, {size}"
    for document in entry.documents:
        found = outline(document)
        yield f"  {shown(found.type)}  {shown(described(found).detail)}".rstrip()
        if whole:
            yield from (f"    {name}: {_shortened(value)}" for name, value in load(document).items() if name != "type")
    yield ""


def _shortened(value: Any) -> str:
    text = shown(plain(value))
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return f"{text[:VALUE_CHARS_MAX]}…" + (f" ({len(value):,} in all)" if isinstance(value, list) else "")


# -- lakebed tag ---------------------------------------------------------------------------------------------------

name_argument = click.argument("name", metavar="NAME")


@command
@options.table
@name_argument
@click.option("--version", metavar="N", type=int, help="The version to name. Default: the newest.")
def create_tag(cli: Invocation, *, table: str, name: str, version: int | None) -> None:
    """Name a version of a table and keep its files.

    A tagged version stays readable (get, scan --at NAME) until the tag is dropped.
    """
    found = cli.table(table)
    tagged = found.tag(name, version)
    document = {"table": found.name, "tag": name, "version": tagged}
    cli.out.document(document, [f"table {found.name}: tag {name} at version {tagged}"])


@command
@options.table
@click.argument("name", metavar="NAME", shell_complete=completions.tags)
def drop_tag(cli: Invocation, *, table: str, name: str) -> None:
    """Drop a tag; its files may then be deleted."""
    found = cli.table(table)
    found.untag(name)
    cli.out.document({"table": found.name, "tag": name}, [f"table {found.name}: tag {name} dropped"])


@command
@options.table
@options.row_format
def list_tags(cli: Invocation, *, table: str) -> None:
    """List a table's tags and their versions."""
    found = cli.table(table)
    tags = list(found.tags().items())
    document = {"table": found.name, "tags": [{"tag": name, "version": version} for name, version in tags]}
    cli.out.document(document, [columns(("tag", "version"), tags)] if tags else ["no tags"])


@command
@options.table
@click.option(
    "--to",
    "moment",
    metavar="WHEN",
    required=True,
    shell_complete=completions.tags,
    help="A version, a tag, a date (UTC), or a time such as 2026-01-31T12:00Z.",
)
@options.dry_run
@options.yes
def restore(cli: Invocation, *, table: str, moment: str, dry_run: bool, yes: bool) -> None:
    """Restore the rows of an older version; asks for the table's name first.

    One commit, which moves no data. Everything written since is undone; it stays readable at its own version, so a
    restore can be undone by another. Schema, settings and tags do not change.
    """
    found = cli.table(table)
    target = found.at(moment).state
    change = restored(found.state(), ProposeRestore(target))
    before, after = (count_text(rows, "row", exact=change.exact) for rows in (change.rows_before, change.rows_after))
    version = None
    if not dry_run:
        if not yes:
            warning = f"This restores table {table} to version {target.version}: {after} in place of {before}"
            options.confirm(f"restore {table}", warning, table)
        with committed_on_interrupt(found.log):
            version = found.restore(version=target.version)
    document = {
        "table": found.name,
        "restored": target.version,
        **asdict(change),
        "dry_run": dry_run,
        "version": version,
    }
    text = f"would restore table {found.name} to version {target.version}"
    if version is not None:
        text = f"table {found.name} at version {version}: restored to version {target.version}"
    parts = count_text(change.partitions, "partition")
    files = f"{count_text(change.files_gained, 'file')} gained, {change.files_lost:,} lost"
    cli.out.document(document, [f"{text}: {after} in place of {before}; {parts} replaced, {files}"])
