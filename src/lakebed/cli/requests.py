"""``lakebed requests`` and ``ingest``: files that are recorded to be added, and the commits that add them.

A request is recorded in one commit; it is carried out by ``ingest``, ``maintain`` or a service. Errors: those of the
library; a request that fails is a line of the answer. Source: docs/import.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lakebed.cli import options
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.cli.progress import open_pipeline, report_line
from lakebed.cli.render import columns
from lakebed.errors import Code
from lakebed.model.wording import count_text, size_text
from lakebed.read.inspect.history import committed_on_interrupt
from lakebed.write.plan import Method
from lakebed.write.requests import Standing, WithdrawReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.upkeep.ingest_jobs import IngestReport
    from lakebed.write.requests import SubmitReport


@command
@options.table
@options.files("files", "FILE...", "Files, folders or globs of Parquet.")
@click.option("--again", is_flag=True, help="Ingest them once more, even if they are recorded.")
def submit(cli: Invocation, *, table: str, files: tuple[str, ...], again: bool) -> None:
    """Record files to be added by `lakebed ingest`.

    A file is identified by its URL, size and version. Without --again, a file that is recorded, was ingested within
    log_s, or is older than the record is not submitted again. Exits with 3 if a file is older than the record.
    """
    found = cli.table(table)
    with committed_on_interrupt(found.log):
        report = found.submit(list(files), again=again)
    counts = {str(standing): report.count(standing) for standing in Standing if standing is not Standing.REJECTED}
    document = {"table": report.table, "version": report.version, **counts, "files": report.files}
    cli.out.document(document, _submit_lines(report))
    if left_out := report.count(Standing.OLD):
        raise Code.FILE_TOO_OLD(
            f"table {report.table}: {count_text(left_out, 'file')} left out, older than the record of what was "
            "ingested. If they were not ingested, give --again; if they are new, raise log_s above an hour",
            table=report.table,
        )


def _submit_lines(report: SubmitReport) -> Iterator[str]:
    size = size_text(sum(file.size_bytes for file in report.files if file.standing is Standing.SUBMITTED))
    at = "" if report.version is None else f" at version {report.version}"
    yield f"table {report.table}{at}: {count_text(report.count(Standing.SUBMITTED), 'file')} of {size} submitted"
    for standing, text in (
        (Standing.OPEN, "submitted before, and not ingested yet"),
        (Standing.INGESTED, "ingested before; give --again to ingest once more"),
        (Standing.OLD, "left out: older than the record, so perhaps ingested long ago; give --again to ingest"),
    ):
        if count := report.count(standing):
            yield f"{count_text(count, 'file')} {text}"


@command
@options.table
@options.row_format
def list_requests(cli: Invocation, *, table: str) -> None:
    """List open requests, and the last that were rejected."""
    found = cli.table(table)
    requests = found.requests().to_pylist()
    shown = ("state", "version", "time", "size_bytes", "failures", "url", "reason")
    cells = [[size_text(row[name]) if name == "size_bytes" else row[name] for name in shown] for row in requests]
    text = columns([name.removesuffix("_bytes") for name in shown], cells) if requests else "no requests"
    cli.out.document({"table": found.name, "requests": requests}, [text])


@command
@options.table
@click.argument("requests", metavar="[REQUEST]...", nargs=-1, help="The id of a request, or its URL.")
@click.option("--all", "everything", is_flag=True, help="All open requests.")
def withdraw(cli: Invocation, *, table: str, requests: tuple[str, ...], everything: bool) -> None:
    """Withdraw open requests.

    Withdrawn requests are listed as rejected, and may be submitted anew.
    """
    options.check_one({"REQUEST": requests, "--all": everything})
    found = cli.table(table)
    if everything:
        requests = tuple(row["id"] for row in found.requests().to_pylist() if row["state"] == str(Standing.OPEN))
        if not requests:
            none = WithdrawReport(found.name, None, (), ())
            cli.out.document(none, [f"table {found.name}: no open requests"])
            return
    report = found.withdraw(*requests)
    lines = [f"table {report.table}: {count_text(len(report.withdrawn), 'request')} withdrawn"]
    if report.late:
        lines.append(f"{count_text(len(report.late), 'request')} already ended: see `lakebed requests list`")
    cli.out.document(report, lines)


@command
@options.table
@click.option("--force", is_flag=True, help="Also requests that are not due.")
@click.option("--method", type=click.Choice([str(one) for one in Method]), help="Default: by the size of each job.")
@options.launcher
def ingest(cli: Invocation, *, table: str, force: bool, method: str | None, launcher: str | None) -> None:
    """Carry out open requests that are due.

    The work runs on Spark, or with --in-process without it.

    They are due once they have ingest_bytes_min, or one of them is as old as ingest_age_s. A file
    that is gone or was changed since it was submitted is rejected; one that cannot be read is tried ingest_tries_max
    times. `lakebed requests list` shows the reasons.
    """
    with open_pipeline(cli, launcher) as pipeline:
        report = pipeline.ingest(table, force=force, method=method)
    cli.out.document(report, ingest_lines(report))


def ingest_lines(report: IngestReport) -> Iterator[str]:
    """Return the report of an ingest as lines of text."""
    # What failed is listed below.
    yield report_line(replace(report, failed=()))
    for failed in report.failed:
        result = "was rejected" if failed.rejected else "failed, and will be tried again"
        yield f"{failed.url} {result}: {failed.reason}"
    if report.waiting:
        is_early = report.version is None and not report.failed
        advice = ", not due yet: --force ingests now" if is_early else ""
        yield f"{count_text(report.waiting, 'request')} open{advice}"
