"""``lakebed submit`` and ``requests``: files put on record to be ingested, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.render import columns, count_text, size_text
from lakebed.ingest.requests import Standing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from lakebed.cli.render import Output
    from lakebed.ingest.requests import SubmitReport


def add_requests(commands: args.Commands) -> None:
    """``lakebed submit``, ``requests``."""
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
    )
    requests.add_argument("table", metavar="TABLE")


def _submit(arguments: argparse.Namespace, out: Output) -> None:
    report = args.open_table(arguments).submit(arguments.files, again=arguments.again)
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
