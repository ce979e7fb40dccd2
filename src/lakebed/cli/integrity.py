"""``lakebed verify``, ``table repair``, ``table rewrite`` and ``erase-report``: what files hold, checked and changed.

``verify`` and ``erase-report`` print what they found, and then raise an error: the one if something is damaged, the
other unless nothing was found and all was read. Rewrites run as jobs of a pipeline. Source: docs/erasure.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakebed.cli import completions, options
from lakebed.cli.grammar import command, name_value
from lakebed.cli.invocation import Invocation
from lakebed.cli.progress import command_bar, open_pipeline, progress_bar, report_line
from lakebed.cli.render import TextColumns, columns, key_text, shown
from lakebed.errors import Code, UsageError
from lakebed.model.findings import Deep
from lakebed.model.json_values import plain
from lakebed.model.wording import count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.cli.render import Output
    from lakebed.model.findings import Finding
    from lakebed.read.inspect.verification import VerificationReport
    from lakebed.upkeep.repair import InvalidRows, RepairReport
    from lakebed.upkeep.retention.erasure.run import ErasurePlace, ErasureReport


def _parse_share(text: str) -> float:
    try:
        return Deep(float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)).share
    except (ValueError, UsageError):
        raise click.BadParameter(f"{text!r} is not a share above 0 and up to 1, such as 5% or 0.05.") from None


@command
@options.table
@click.option("--log", "only_log", is_flag=True, help="Check only the log, not the files.")
@click.option("--deep", is_flag=True, help="Read every data file and summary.")
@click.option(
    "--sample", metavar="SHARE", type=_parse_share, help="Read random files with this share of all bytes: 5%."
)
@click.option("--digests", is_flag=True, help="With --deep or --sample: decode no rows.")
@click.option("--seed", metavar="N", type=int, help="Seed of --sample; each run prints its seed.")
def verify(
    cli: Invocation, *, table: str, only_log: bool, deep: bool, sample: float | None, digests: bool, seed: int | None
) -> None:
    """Check a table: its log, its files and, if asked, every row.

    Replays the log from entry 1, and checks that versions have no gap, that digests chain, and that every state is
    valid; compares the checkpoint; and checks that every file exists with its size. --deep reads every byte of every
    file, and checks digest, order, key bounds, nulls, UTF-8, counts and summaries; with --digests only digests, as
    fast as the disk. Changes nothing. Exits with 3 if something is damaged.
    """
    options.check_at_most_one({"--log": only_log, "--deep": deep, "--sample": sample})
    if seed is not None and sample is None:
        raise Code.ARGUMENTS_CONFLICT("--seed goes with --sample")
    if digests and not deep and sample is None:
        raise Code.ARGUMENTS_CONFLICT("--digests goes with --deep or --sample")
    found = cli.table(table)
    if not deep and sample is None:
        _print_verification(found.verify(files=not only_log), cli.out)
        return
    with command_bar(f"verify {found.name}", in_bytes=True) as bar:
        report = found.verify(deep=Deep(sample or 1.0, seed, bar.update, rows=not digests))
    _print_verification(report, cli.out)


def _print_verification(report: VerificationReport, out: Output) -> None:
    out.document({"sound": report.sound, **plain(report)}, _report_lines(report))
    damages = sum(finding.damage for finding in report.findings)
    if damages:
        raise Code.TABLE_DAMAGED(
            f"table {report.table}: {count_text(damages, 'finding')} of damage", table=report.table
        )


def _report_lines(report: VerificationReport) -> Iterator[str]:
    checkpoint = "no checkpoint" if report.checkpoint is None else f"checkpoint of {report.checkpoint}"
    checkpoint += f", truncated up to {report.log_start}" if report.log_start else ""
    objects = "" if report.objects is None else f", {count_text(report.objects, 'object')} looked for"
    entries = count_text(report.entries, "entry", "entries")
    yield f"table {report.table}: {entries} listed, applied up to {report.version}; {checkpoint}{objects}"
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


# -- lakebed table repair ------------------------------------------------------------------------------------------


@command
@options.table
@click.option(
    "--removed", metavar="FOLDER", shell_complete=completions.paths, help="A local folder for rows that are removed."
)
@options.dry_run
def repair(cli: Invocation, *, table: str, removed: str | None, dry_run: bool) -> None:
    """Replace invalid values, such as text that is not UTF-8.

    Reads every file of the table. Bytes that are not UTF-8 become U+FFFD; decimals and times that their types do not
    allow become null. Rows with an invalid key are removed, with their keys replaced, into Parquet files in the folder
    --removed; `lakebed write` adds them again.
    """
    from lakebed.upkeep.repair import find
    from lakebed.upkeep.repair import repair as repair_table

    found = cli.table(table)
    if dry_run:
        invalid = find(found)
        cli.out.document({"table": found.name, "files": plain(invalid)}, _found_lines(found.name, invalid))
        return
    report = repair_table(found, removed)
    document = {
        **plain(report),
        "failed": [{"partition": one.partition, "reason": str(one.error)} for one in report.failed],
    }
    cli.out.document(document, _repair_lines(report))
    if report.failed:
        raise report.failed[0].error


def _found_lines(table: str, found: Sequence[InvalidRows]) -> Iterator[str]:
    if not found:
        yield f"table {table}: nothing to repair"
    for file in found:
        columns = ", ".join(file.columns)
        yield f"file {file.file}: {count_text(file.rows, 'invalid row')} in {columns}, {file.in_keys} to be taken out"


def _repair_lines(report: RepairReport) -> Iterator[str]:
    if not report.files:
        yield f"table {report.table}: nothing to repair"
    if report.version is not None:
        removed = f"{count_text(report.removed, 'row')} taken out"
        yield f"table {report.table} at version {report.version}: {count_text(report.mended, 'row')} mended, {removed}"
    for path in report.removed_files:
        yield f"taken out: {path}"
    if report.waits is not None:
        yield f"table {report.table} is not repaired further: {report.waits}"
    for skipped in report.skipped:
        yield f"partition {skipped.partition} was left alone: {skipped.reason}; repair again"


@command
@options.table
@options.ranges
@click.option("--delete-where", metavar="PREDICATE", help="Delete the rows for which it is true.")
@click.option(
    "--set",
    "changes",
    metavar="COLUMN=SQL",
    type=name_value,
    multiple=True,
    help="Give a value column the value of an expression over the row. May be repeated.",
)
@click.option("--where", metavar="PREDICATE", help="With --set: change only the rows for which it is true.")
@options.dry_run
@options.yes
@options.launcher
def rewrite(
    cli: Invocation,
    *,
    table: str,
    ranges: options.Ranges,
    delete_where: str | None,
    changes: tuple[tuple[str, str], ...],
    where: str | None,
    dry_run: bool,
    yes: bool,
    launcher: str | None,
) -> None:
    """Delete or change rows in one commit; asks for its name first.

    The work runs on Spark, or with --in-process without it.

    Key ranges are given as to scan; by default all rows are considered. Files in which no row changes are kept. Older
    versions and tags keep the original rows: `lakebed docs erasure`.
    """
    # DataFusion, which `verify` does not need.
    from lakebed.upkeep.rewrite.run import RewriteRequest, prepare

    assignments = dict(changes)
    if len(assignments) < len(changes):
        raise Code.COLUMN_DUPLICATE("--set names a column twice; give each column one expression")
    found = cli.table(table)
    wanted = ranges.of(found.schema)
    prepared = prepare(found, RewriteRequest(tuple(wanted), assignments, where, delete_where))
    rows, files = sum(one.rows for one in prepared.planned), len({one.file.id for one in prepared.planned})
    reads = f"{count_text(files, 'file')} with {count_text(rows, 'row')}"
    if dry_run:
        document = {"table": found.name, "version": prepared.version, "files": files, "rows": rows}
        cli.out.document(document, [f"table {found.name} at version {prepared.version}: would read {reads}"])
        return
    if not yes:
        options.confirm(f"rewrite rows of {table}", f"This rewrites rows of table {table}, in {reads}", table)
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"rewrite {table}") as progress:
        report = pipeline.rewrite(
            table, *wanted, set=assignments, where=where, delete_where=delete_where, progress=progress
        )
    cli.out.document(report, [report_line(report)])


# -- lakebed erase-report ------------------------------------------------------------------------------------------


@command
@options.table
@options.ranges
@options.where
@click.option("--also", metavar="URL", multiple=True, help="Another folder with copies of rows. May be repeated.")
@options.launcher
def erase_report(
    cli: Invocation,
    *,
    table: str,
    ranges: options.Ranges,
    where: str | None,
    also: tuple[str, ...],
    launcher: str | None,
) -> None:
    """List every object that still holds such rows, or their keys.

    The work runs on Spark, or with --in-process without it.

    Reads the data files of all versions, files that wait for deletion, orphans, files of requests, and the exports and
    quarantines on record. If the predicate names only row key columns, keys in the log, checkpoints and summaries are
    searched too. Shows which versions and tags need an object, and when it will be deleted. Changes nothing. Exits with
    3 unless everything was read and nothing was found.
    """
    found = cli.table(table)
    wanted = ranges.of(found.schema)
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"erase-report {table}") as progress:
        report = pipeline.erase_report(table, *wanted, where=where, also=also, progress=progress)
    cli.out.document({"erased": report.erased, **plain(report)}, _erasure_lines(report))
    if not report.erased:
        places, unread = count_text(len(report.places), "object"), count_text(len(report.unread), "object")
        raise Code.ROWS_NOT_ERASED(
            f"table {report.table}: {places} with such rows or keys, {unread} that could not be read",
            table=report.table,
        )


def _erasure_lines(report: ErasureReport) -> Iterator[str | TextColumns]:
    read = ", ".join(f"{kind}: {count:,}" for kind, count in report.searched.items())
    yield f"table {report.table} at version {report.version}: searched {read or 'nothing: there is no object'}"
    if report.places:
        names = ["found in", "rows", "live", "unclear", "keys", "versions", "goes", "object"]
        yield columns(names, [_place_row(place) for place in report.places])
    for one in report.unread:
        yield f"not read  {shown(one.object)} ({one.where}): {shown(one.reason)}"
    yield from (f"not searched: {text}" for text in report.not_searched)
    if report.erased:
        yield "no object has such rows" + (" or keys" if report.keys_searched else "")


def _place_row(place: ErasurePlace) -> list[object]:
    last = "" if place.last_version is None else place.last_version
    versions = "" if place.first_version is None else f"{place.first_version}-{last}"
    due = f", {place.due:%Y-%m-%d %H:%M} UTC" if place.due is not None else ""
    kept = "".join(f", tag {tag}" for tag in place.tags) + "".join(f", pin at {version}" for version in place.pins)
    counts = [count or "" for count in (place.rows, place.live_rows, place.unclear_rows, place.keys)]
    return [place.where, *counts, f"{versions}{kept}", f"{place.goes}{due}", place.object]
