"""``lakebed history`` and ``lakebed log``: what happened to a table, and the log that says so."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from lakebed.cli import arguments as args
from lakebed.cli.render import count_text, plain, shown, size_text
from lakebed.errors import DamagedError, NotFoundError, UsageError
from lakebed.history import detail
from lakebed.state.codec import decode_transaction

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from lakebed.cli.render import Output
    from lakebed.history import HistoryRow
    from lakebed.log.entry import StoredEntry
    from lakebed.verification import VerificationReport

VALUE_CHARS_MAX = 1_000
"""An entry may name thousands of files; for all of them there is --json."""


def add_history(commands: args.Commands) -> None:
    """``lakebed history``."""
    history = args.add_command(
        commands,
        "history",
        "tell what happened to a table, newest first",
        _history,
        more="One line a transaction. Times are the store's. A minus sign stands where the log does not tell, as for\n"
        "the rows that a compaction replaces.",
    )
    history.add_argument("table", metavar="TABLE")
    history.add_argument("--limit", metavar="N", type=int, help="only the newest so many; reads no more of the log")


def add_log(commands: args.Commands) -> None:
    """``lakebed log …``."""
    noun = args.add_noun(commands, "log", "show a table's log and check it")
    show = args.add_command(
        noun,
        "show",
        "show entries of the log, newest first",
        _show,
        more="With a number that entry alone, and all that its transactions say.",
    )
    show.add_argument("table", metavar="TABLE")
    show.add_argument("number", metavar="N", nargs="?", type=int, help="the number of an entry")
    show.add_argument("--limit", metavar="N", type=int, default=10, help="how many entries; default: %(default)s")
    verify = args.add_command(
        noun,
        "verify",
        "check the log, its snapshot and the files it names",
        _verify,
        more="Replays the log from entry 1: numbers without gap, digests, the chain, what holds of every state; and\n"
        "holds the snapshot against it. Changes nothing. Exits with 3 if something is damaged.",
    )
    verify.add_argument("table", metavar="TABLE")
    verify.add_argument("--files", action="store_true", help="also look whether every referenced object is there")


def _history(arguments: argparse.Namespace, out: Output) -> None:
    _check_limit(arguments.limit)
    table = args.open_table(arguments)
    names = ("number", "time", "type", "rows", "removed", "files", "dropped", "size", "key", "writer", "detail")
    out.records(table.history_rows(arguments.limit), names, _cells)


def _cells(row: HistoryRow) -> tuple[Any, ...]:
    size = size_text(row.bytes_added) if row.bytes_added else 0
    counts = (row.rows_added, row.rows_removed, row.files_added, row.references_dropped, size)
    return (row.number, row.time, row.type, *counts, row.request_key or row.job, row.writer, row.detail)


def _show(arguments: argparse.Namespace, out: Output) -> None:
    _check_limit(arguments.limit)
    if arguments.number is not None and arguments.number < 1:
        raise UsageError(f"entry {arguments.number}: numbers begin at 1")
    table = args.open_table(arguments)
    if arguments.number is None:
        for stored in islice(table.log.newest_first(), arguments.limit):
            out.document(_document(stored), _entry_lines(stored))
        return
    found = table.log.read(arguments.number)
    if found is None:
        raise NotFoundError(
            f"table {table.name} has no entry {arguments.number}; its newest is {table.state().number}",
            table=table.name,
            number=arguments.number,
        )
    out.document(_document(found), _entry_lines(found, whole=True))


def _document(stored: StoredEntry) -> dict[str, Any]:
    entry = stored.entry
    return {
        "number": entry.number,
        "time": stored.stored_at,
        "writer": entry.writer,
        "writer_time": entry.time,
        "id": entry.id,
        "digest": entry.digest,
        "previous": entry.previous,
        "size_bytes": stored.size_bytes,
        "transactions": entry.documents,
    }


def _entry_lines(stored: StoredEntry, *, whole: bool = False) -> Iterator[str]:
    entry = stored.entry
    yield f"entry {entry.number}, stored {plain(stored.stored_at)}, {size_text(stored.size_bytes)}"
    yield f"  by {shown(entry.writer)}, at {shown(entry.time)} by its own clock"
    yield f"  digest {entry.digest}, after {entry.previous or 'nothing'}"
    for document in entry.documents:
        text = detail(decode_transaction(document))
        yield f"  {shown(document['type'])}  {shown(text)}".rstrip()
        if whole:
            yield from (f"    {name}: {_short(value)}" for name, value in document.items() if name != "type")
    yield ""


def _short(value: Any) -> str:
    text = shown(plain(value))
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return f"{text[:VALUE_CHARS_MAX]}…" + (f" ({len(value):,} in all)" if isinstance(value, list) else "")


def _verify(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    report = table.verify(files=arguments.files)
    out.document({"sound": report.sound, **plain(report)}, _report_lines(report))
    damages = sum(finding.damage for finding in report.findings)
    if damages:
        raise DamagedError(f"table {table.name}: {count_text(damages, 'finding')} of damage", table=table.name)


def _report_lines(report: VerificationReport) -> Iterator[str]:
    snapshot = "no snapshot" if report.snapshot is None else f"snapshot of {report.snapshot}"
    snapshot += f", trimmed up to {report.floor}" if report.floor else ""
    objects = "" if report.objects is None else f", {count_text(report.objects, 'object')} looked for"
    entries = f"{report.entries:,} {'entry' if report.entries == 1 else 'entries'}"
    yield f"table {report.table}: {entries} listed, applied up to {report.number}; {snapshot}{objects}"
    for finding in report.findings:
        yield f"{'DAMAGE' if finding.damage else 'note'}  {shown(finding.what)}; {shown(finding.remedy)}"
    if report.sound:
        yield "sound"


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise UsageError(f"--limit {limit}: must be 0 or more")
