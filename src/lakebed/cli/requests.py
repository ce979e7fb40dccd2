"""``lakebed submit``, ``requests``, ``requests withdraw`` and ``ingest``: files put on record, what became of them, how
they are taken back, and carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.pipelines import open_pipeline
from lakebed.cli.render import columns, count_text, plain, size_text
from lakebed.history import committed_on_interrupt
from lakebed.ingest.plan import Method
from lakebed.ingest.requests import Standing, WithdrawReport

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from lakebed.cli.render import Output
    from lakebed.ingest.jobs import IngestReport
    from lakebed.ingest.requests import SubmitReport

METHODS = tuple(map(str, Method))
WITHDRAW = ("requests", "withdraw")


def add_requests(commands: args.Commands) -> None:
    """``lakebed submit``, ``requests``, ``requests withdraw``, ``ingest``."""
    submit = args.add_command(
        commands,
        "submit",
        "put files on record, to be ingested by `lakebed ingest`",
        _submit,
        more="A file, a folder or a glob of Parquet, local or s3://…. A file is known by its URL, size and version:\n"
        "one that is on record, or was ingested in the last requests_s, is not submitted again, nor one that\n"
        "is older than what is remembered, unless --again means it.",
    )
    submit.add_argument("table", metavar="TABLE")
    submit.add_argument("files", metavar="FILE", nargs="+")
    submit.add_argument("--again", action="store_true", help="ingest them once more, whatever is on record")
    requests = args.add_command(
        commands,
        "requests",
        "list the files that wait to be ingested, and the last that were rejected",
        _requests,
        more="`lakebed requests withdraw` takes some off the record.",
    )
    requests.add_argument("table", metavar="TABLE")
    withdraw = args.add_command(
        commands,
        " ".join(WITHDRAW),
        "take open requests off the record",
        _withdraw,
        more="What was withdrawn is listed as rejected, and may be submitted anew.",
    )
    withdraw.add_argument("table", metavar="TABLE")
    which = withdraw.add_mutually_exclusive_group(required=True)
    which.add_argument("requests", metavar="REQUEST…", nargs="*", default=[], help="the id of a request, or its URL")
    which.add_argument("--all", action="store_true", help="all that are open")
    ingest = args.add_command(
        commands,
        "ingest",
        "carry out the open requests, as far as due, on Spark",
        _ingest,
        more="They are due once they have ingest_bytes_min and ingest_files_min, or one of them is as old as\n"
        "ingest_age_s. A file that is gone or was changed since it was submitted is rejected; one that cannot be\n"
        "read is tried ingest_tries_max times. `lakebed requests` says why.",
    )
    ingest.add_argument("table", metavar="TABLE")
    ingest.add_argument("--force", action="store_true", help="whether due or not")
    ingest.add_argument("--method", choices=METHODS, help="how rows are sorted; default: by the size of each job")
    args.add_launcher(ingest)


def _submit(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    with committed_on_interrupt(table.log):
        report = table.submit(arguments.files, again=arguments.again)
    counts = {str(standing): report.count(standing) for standing in Standing if standing is not Standing.REJECTED}
    out.document(
        {"table": report.table, "number": report.number, **counts, "files": report.files}, _submit_lines(report)
    )


def _submit_lines(report: SubmitReport) -> Iterator[str]:
    size = size_text(sum(file.size_bytes for file in report.files if file.standing is Standing.SUBMITTED))
    at = "" if report.number is None else f" at number {report.number}"
    yield f"table {report.table}{at}: {count_text(report.count(Standing.SUBMITTED), 'file')} of {size} submitted"
    for standing, text in (
        (Standing.OPEN, "submitted before, and not ingested yet"),
        (Standing.INGESTED, "ingested before; --again ingests once more"),
        (Standing.OLD, "left out: older than what is remembered, so maybe ingested long ago; --again means it"),
    ):
        if count := report.count(standing):
            yield f"{count_text(count, 'file')} {text}"


def _requests(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    found = table.requests().to_pylist()
    shown = ("state", "number", "time", "size_bytes", "failures", "url", "reason")
    cells = [[size_text(row[name]) if name == "size_bytes" else row[name] for name in shown] for row in found]
    names = [name.removesuffix("_bytes") for name in shown]
    out.document({"table": table.name, "requests": found}, columns(names, cells) if found else ["no requests"])


def _withdraw(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    asked = list(arguments.requests)
    if arguments.all:
        asked = [row["id"] for row in table.requests().to_pylist() if row["state"] == str(Standing.OPEN)]
        if not asked:
            none = WithdrawReport(table.name, None, (), ())
            out.document(plain(none), [f"table {table.name}: no open requests"])
            return
    report = table.withdraw(*asked)
    lines = [f"table {report.table}: {count_text(len(report.withdrawn), 'request')} withdrawn"]
    if report.late:
        lines.append(f"{count_text(len(report.late), 'request')} came to an end before: see `lakebed requests`")
    out.document(plain(report), lines)


def _ingest(arguments: argparse.Namespace, out: Output) -> None:
    with open_pipeline(arguments) as pipeline:
        report = pipeline.ingest(arguments.table, force=arguments.force, method=arguments.method)
    out.document(plain(report), ingest_lines(report))


def ingest_lines(report: IngestReport) -> Iterator[str]:
    """What an ingest did, for people."""
    if report.number is None:
        yield f"table {report.table}: nothing to ingest"
    else:
        yield (
            f"table {report.table} at number {report.number}: {count_text(report.requests, 'request')} of "
            f"{size_text(report.source_bytes)} carried out by {count_text(report.jobs, 'job')}: "
            f"{count_text(report.rows, 'row')} as {count_text(report.files, 'file')} of {size_text(report.size_bytes)}"
        )
    for failed in report.failed:
        fate = "was rejected" if failed.rejected else "failed, and will be tried again"
        yield f"{failed.url} {fate}: {failed.reason}"
    if report.waiting:
        yield f"{count_text(report.waiting, 'request')} open"
