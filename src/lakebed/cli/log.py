"""``lakebed history``, ``log`` and ``verify``: what happened to a table, the log that says so, and whether it is so."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from lakebed.cli import arguments as args
from lakebed.cli.progress import ProgressBar
from lakebed.cli.render import count_text, key_text, plain, shown, size_text
from lakebed.errors import DamagedError, NotFoundError, UsageError
from lakebed.failures import Failure, read_failures
from lakebed.findings import Deep
from lakebed.history import detail
from lakebed.state.codec import outline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from lakebed.cli.render import Output
    from lakebed.findings import Finding
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
    history.add_argument("--failures", action="store_true", help="calls that failed, and why; the newest 256 are kept")


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
        "check the log, its snapshot and that the files it names are there",
        _verify_log,
        more="`lakebed verify` does the same and more. Changes nothing. Exits with 3 if something is damaged.",
    )
    verify.add_argument("table", metavar="TABLE")
    verify.add_argument("--files", action="store_true", help="also look whether every referenced object is there")


def add_verify(commands: args.Commands) -> None:
    """``lakebed verify``."""
    verify = args.add_command(
        commands,
        "verify",
        "check a table: its log, its files and, if asked, every row",
        _verify,
        more="Replays the log from entry 1: numbers without gap, digests, the chain, what holds of every state; holds\n"
        "the snapshot against it; and looks whether every file is there, of its size. --deep reads every byte of\n"
        "every file, and checks digest, order, key bounds, nulls, UTF-8, counts and summaries; with --digests\n"
        "only digests, as fast as the disk. Changes nothing. Exits with 3 if something is damaged.",
    )
    verify.add_argument("table", metavar="TABLE")
    verify.add_argument("--deep", action="store_true", help="read every data file and summary")
    verify.add_argument(
        "--sample", metavar="SHARE", help="read files by chance with this share of all bytes: 5%% or 0.05"
    )
    verify.add_argument("--digests", action="store_true", help="with --deep or --sample: decode no rows")
    verify.add_argument("--seed", metavar="N", type=int, help="which files --sample reads; told by the run before")


def _history(arguments: argparse.Namespace, out: Output) -> None:
    _check_limit(arguments.limit)
    table = args.open_table(arguments)
    if arguments.failures:
        _failures(islice(read_failures(table.storage, table.id), arguments.limit), out)
        return
    names = ("number", "time", "type", "rows", "removed", "files", "dropped", "size", "key", "writer", "detail")
    out.records(table.history_rows(arguments.limit), names, _cells)


def _cells(row: HistoryRow) -> tuple[Any, ...]:
    size = size_text(row.bytes_added) if row.bytes_added else 0
    counts = (row.rows_added, row.rows_removed, row.files_added, row.references_dropped, size)
    return (row.number, row.time, row.type, *counts, row.request_key or row.job, row.writer, row.detail)


def _failures(failures: Iterable[Failure], out: Output) -> None:
    names = ("time", "call", "number", "job", "error", "reason")
    out.records(failures, names, lambda one: (one.time, one.call, one.number, one.job, one.error, one.reason))


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
        "sides": entry.sides,
        "transactions": entry.documents,
    }


def _entry_lines(stored: StoredEntry, *, whole: bool = False) -> Iterator[str]:
    entry = stored.entry
    yield f"entry {entry.number}, stored {plain(stored.stored_at)}, {size_text(stored.size_bytes)}"
    yield f"  by {shown(entry.writer)}, at {shown(entry.time)} by its own clock"
    yield f"  digest {entry.digest}, after {entry.previous or 'nothing'}"
    for side in entry.sides:
        size = size_text(side.size_bytes)
        yield f"  side object {side.digest} of {side.number}: {count_text(side.references, 'reference')}, {size}"
    for document in entry.documents:
        text = detail(outline(document))
        yield f"  {shown(document['type'])}  {shown(text)}".rstrip()
        if whole:
            yield from (f"    {name}: {_short(value)}" for name, value in document.items() if name != "type")
    yield ""


def _short(value: Any) -> str:
    text = shown(plain(value))
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return f"{text[:VALUE_CHARS_MAX]}…" + (f" ({len(value):,} in all)" if isinstance(value, list) else "")


def _verify_log(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    _report(table.verify(files=arguments.files), out)


def _verify(arguments: argparse.Namespace, out: Output) -> None:
    share = _share(arguments)
    if share is None:
        _report(args.open_table(arguments).verify(files=True), out)
        return
    table = args.open_table(arguments)
    with ProgressBar(f"verify {table.name}", in_bytes=True) as bar:
        report = table.verify(deep=Deep(share, arguments.seed, bar.update, rows=not arguments.digests))
    _report(report, out)


def _share(arguments: argparse.Namespace) -> float | None:
    """The share of all bytes to be read; None: none."""
    if arguments.sample is None:
        if arguments.seed is not None:
            raise UsageError("--seed goes with --sample")
        if arguments.digests and not arguments.deep:
            raise UsageError("--digests goes with --deep or --sample")
        return 1.0 if arguments.deep else None
    if arguments.deep:
        raise UsageError("give --deep, which reads all, or --sample")
    text = arguments.sample.strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        return Deep(share).share
    except (ValueError, UsageError) as error:
        raise UsageError(f"--sample {text}: must be a share above 0 and up to 1, such as 5% or 0.05") from error


def _report(report: VerificationReport, out: Output) -> None:
    out.document({"sound": report.sound, **plain(report)}, _report_lines(report))
    damages = sum(finding.damage for finding in report.findings)
    if damages:
        raise DamagedError(f"table {report.table}: {count_text(damages, 'finding')} of damage", table=report.table)


def _report_lines(report: VerificationReport) -> Iterator[str]:
    snapshot = "no snapshot" if report.snapshot is None else f"snapshot of {report.snapshot}"
    snapshot += f", trimmed up to {report.floor}" if report.floor else ""
    objects = "" if report.objects is None else f", {count_text(report.objects, 'object')} looked for"
    entries = f"{report.entries:,} {'entry' if report.entries == 1 else 'entries'}"
    yield f"table {report.table}: {entries} listed, applied up to {report.number}; {snapshot}{objects}"
    read = report.checked
    if read is not None:
        of_files, of_bytes = count_text(read.of_files, "file"), size_text(read.of_bytes)
        chosen = "" if read.seed is None else f", chosen by seed {read.seed}"
        yield f"read {read.files:,} of {of_files}, {size_text(read.size_bytes)} of {of_bytes}{chosen}"
    for finding in report.findings:
        what = f"{shown(finding.what)}{_at_risk(finding, report.table)}"
        yield f"{'DAMAGE' if finding.damage else 'note'}  {what}; {shown(finding.remedy)}"
    if report.sound:
        yield "sound" if read is None or read.files == read.of_files else "sound, as far as it was read"


def _at_risk(finding: Finding, table: str) -> str:
    if finding.rows is None:
        return ""
    keys = f"keys {key_text(finding.min_key)} to {key_text(finding.max_key)}"
    return f"; table {table}, {keys}, {count_text(finding.rows, 'row')}" + (" at risk" if finding.damage else "")


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise UsageError(f"--limit {limit}: must be 0 or more")
