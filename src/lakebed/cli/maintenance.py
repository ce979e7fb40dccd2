"""``lakebed compact``, ``split``, ``join``, ``publish``, ``gc``, ``ingest``, ``maintain``, ``table pause``, requests.

Spark is started only for work that needs it: splitting writes metadata alone. With ``--dry-run`` a command prints its
plan and changes nothing. A request to add files is recorded in one commit; ``ingest``, ``maintain`` or a service
carries it out. Errors: those of the library; a request that fails is a line of the answer. Source: docs/import.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lakebed.cli import completions, options
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.cli.progress import open_pipeline, progress_bar, report_line
from lakebed.cli.render import TextColumns, columns
from lakebed.errors import Code
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.json_values import plain
from lakebed.model.operations import OPERATIONS
from lakebed.model.settings import Strategy
from lakebed.model.wording import count_text, size_text
from lakebed.read.inspect.history import committed_on_interrupt
from lakebed.upkeep.compaction.plan import check_strategy
from lakebed.upkeep.compaction.plan import plan as plan_compaction
from lakebed.upkeep.splitting.plan import due, small
from lakebed.write.plan import Method
from lakebed.write.requests import Standing, WithdrawReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebed.table.table import Table
    from lakebed.upkeep.compaction.run import CompactionReport
    from lakebed.upkeep.ingest_jobs import IngestReport
    from lakebed.upkeep.publish.catalogs import CatalogEntry, Target
    from lakebed.upkeep.retention.orphans import DroppedReport, OrphanReport
    from lakebed.upkeep.retention.run import GcReport
    from lakebed.upkeep.splitting.plan import SmallPartitions
    from lakebed.upkeep.splitting.run import JoinReport, SplitReport
    from lakebed.write.requests import SubmitReport


PARTITIONS_SHOWN = 8


@command
@options.table
@click.option(
    "--strategy", type=click.Choice([str(one) for one in Strategy]), help="Default: the setting compaction_strategy."
)
@options.dry_run
@options.launcher
def compact(cli: Invocation, *, table: str, strategy: str | None, dry_run: bool, launcher: str | None) -> None:
    """Merge the runs of partitions that have several.

    The work runs on Spark, or with --in-process without it.

    Strategies: size-ratio merges runs of similar size, basic the smallest that fill a batch, by-bytes the smallest that
    reach compaction_run_bytes, full all of a partition. Runs that do not overlap are concatenated without rewriting.
    """
    if dry_run:
        _plan_compaction(cli, table, strategy)
        return
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"compact {table}") as progress:
        report = pipeline.compact(table, strategy=strategy, progress=progress)
    cli.out.document(report, _compaction_lines(report))


def _compaction_lines(report: CompactionReport) -> Iterator[str]:
    if report.version is not None or report.waits is None:
        partitions = count_text(report.partitions, "partition")
        sizes = f"{size_text(report.bytes_in)} into {size_text(report.bytes_out)} in {partitions}"
        yield f"{report_line(report)}{f'; {sizes}' if report.jobs else ''}"
    if report.waits is not None:
        yield f"table {report.table} is not compacted further: {report.waits}"
    for skipped in report.skipped:
        yield f"partition {skipped.partition} was left alone: {skipped.reason}"


def _plan_compaction(cli: Invocation, name: str, strategy: str | None) -> None:
    table = cli.table(name)
    planned = plan_compaction(table.state(), table.settings_in_force(), check_strategy(strategy))
    merges = [
        {
            "partition": merge.partition,
            "rows": merge.rows,
            "exact": merge.exact,
            "bytes": merge.size_bytes,
            "files": len(merge.inputs),
            "runs": merge.runs,
            "partitions": len(merge.partitions) or 1,
        }
        for merge in (*planned.whole, *planned.merges)
    ]
    concatenations = [
        {"partition": one.partition, "bytes": one.size_bytes, "files": len(one.files), "runs": one.runs}
        for one in planned.concatenations
    ]
    document = {"table": table.name, "merges": merges, "concatenations": concatenations, "skipped": planned.skipped}
    cli.out.document(document, _compaction_plan_lines(merges, concatenations))


def _compaction_plan_lines(
    merges: Sequence[Mapping[str, object]], concatenations: Sequence[Mapping[str, object]]
) -> Iterator[str | TextColumns]:
    if merges or not concatenations:
        yield _plan_text(merges, "nothing to compact")
    if concatenations:
        yield "runs that are concatenated without rewriting:"
        yield _plan_text(concatenations, "")


def _plan_text(rows: Sequence[Mapping[str, object]], nothing: str) -> str | TextColumns:
    return columns(list(rows[0]), [list(row.values()) for row in rows]) if rows else nothing


@command
@options.table
@options.dry_run
def split(cli: Invocation, *, table: str, dry_run: bool) -> None:
    """Split partitions that have grown too large."""
    if dry_run:
        _plan_split(cli, table)
        return
    with open_pipeline(cli) as pipeline:
        report = pipeline.split(table)
    cli.out.document(report, _split_lines(report))


def _split_lines(report: SplitReport) -> Iterator[str]:
    for partition in report.split:
        yield f"partition {partition.partition} cut into {partition.parts}"
    for waiting in report.not_split:
        yield f"partition {waiting.partition} stays whole: {waiting.reason}"
    if report.version is None and not report.not_split:
        yield f"table {report.table}: no partition is too large"


def _plan_split(cli: Invocation, name: str) -> None:
    table = cli.table(name)
    planned = due(table.state(), table.settings_in_force())
    large = [
        {
            "partition": partition.partition,
            "rows": partition.rows,
            "bytes": partition.size_bytes,
            "runs": partition.runs,
            "parts": partition.parts,
        }
        for partition in planned.large
    ]
    document = {"table": table.name, "large": large, "waiting": planned.waiting}
    cli.out.document(document, [_plan_text(large, "no partition is too large")])


@command
@options.table
@options.dry_run
@options.launcher
def join(cli: Invocation, *, table: str, dry_run: bool, launcher: str | None) -> None:
    """Join small neighbouring partitions.

    As far as the setting join_share allows. Some partitions are compacted first, on Spark: those with a file that was
    merged away in one of them, whose rows must not reappear there.
    """
    if dry_run:
        found = cli.table(table)
        groups = small(found.state(), found.settings_in_force())
        cli.out.document({"table": found.name, "small": groups}, _small_lines(groups))
        return
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"join {table}") as progress:
        report = pipeline.join_partitions(table, progress=progress)
    lines = list(_join_lines(report))
    cli.out.document(report, lines or [f"table {report.table}: no neighbours are small enough to be joined"])


def _join_lines(report: JoinReport) -> Iterator[str]:
    for partitions in report.joined:
        yield f"{_some_partitions(partitions)} made one"
    for apart in report.not_joined:
        yield f"{_some_partitions(apart.partitions)} stay apart: {apart.reason}"


def _small_lines(groups: Sequence[SmallPartitions]) -> Iterator[str]:
    if not groups:
        yield "no neighbours are small enough to be joined"
    for group in groups:
        first = f", after {_some_partitions(group.compact_first)} are compacted" if group.compact_first else ""
        yield f"{_some_partitions(group.partitions)} would be one of {count_text(group.rows, 'row')}{first}"


def _some_partitions(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:PARTITIONS_SHOWN])) + (" …" if len(partitions) > PARTITIONS_SHOWN else "")
    return f"{count_text(len(partitions), 'partition')} ({shown})"


@command
@click.argument("table", metavar="[TABLE]", required=False, shell_complete=completions.tables)
@click.option(
    "--all", "--once", "every", is_flag=True, help="Maintain all tables and refresh views, as a service does."
)
@options.launcher
@options.memory
def maintain(
    cli: Invocation, *, table: str | None, every: bool, launcher: str | None, memory_bytes: int | None
) -> None:
    """Ingest, compact, split, join, publish and collect garbage, as far as due.

    For cron, Airflow or a Kubernetes CronJob, where no `lakebed serve` runs. Run `lakebed gc` once a day as well.
    """
    if (table is None) is not every:
        raise Code.ARGUMENTS_CONFLICT("name a table, or give --all for all tables: one of them")
    if table is None:
        _maintain_all(cli, launcher, memory_bytes)
        return
    if memory_bytes is not None:
        raise Code.ARGUMENTS_CONFLICT("--memory is for --all; leave it out, or maintain all tables")
    with open_pipeline(cli, launcher) as pipeline, progress_bar(f"maintain {table}") as progress:
        report = pipeline.maintain(table, progress=progress)
    lines = list(ingest_lines(report.ingest)) if report.ingest.version or report.ingest.failed else []
    lines += [] if report.online else [f"table {report.table} is offline: neither compacted nor split nor joined"]
    lines += [f"table {report.table}: paused: {', '.join(report.paused)}"] if report.paused else []
    lines += [line for compaction in report.compactions for line in _compaction_lines(compaction)]
    lines += [line for split in report.splits for line in _split_lines(split)]
    lines += [line for join in report.joins for line in _join_lines(join)]
    lines += [report_line(one) for one in (report.collection, *report.others)]
    cli.out.document(report, lines)


def _maintain_all(cli: Invocation, launcher: str | None, memory_bytes: int | None) -> None:
    """Maintain all tables once; fail after the last one if any failed. Each error is printed to stderr once."""
    with optional_imports():
        from lakebed.server.service.service import Service

    status = Service(cli.instance(), launcher=launcher, memory_bytes=memory_bytes).run_once()
    tables: list[dict[str, object]] = []
    lines: list[str] = []
    errors = [("", status.error)]
    not_published = []
    for found in status.tables:
        operations = []
        errors.append((f"table {found.name}: ", found.error))
        for one in (one for one in found.operations if one.last_ended is not None):
            error = one.last_error and one.last_error.message
            operations.append({"operation": one.operation, "outcome": one.last_outcome, "error": error})
            lines.append(f"table {found.name}: {one.operation}: {one.last_outcome or 'failed'}")
            errors.append((f"table {found.name}: {one.operation}: ", one.last_error))
        if found.publication_error is not None:
            not_published.append(Code.NOT_PUBLISHED(f"table {found.name}: not published: {found.publication_error}"))
        document = {"table": found.name, "online": found.online, "paused": list(found.paused)}
        tables.append({**document, "version": found.version, "operations": operations})
    cli.out.document({"tables": tables}, lines or ["nothing was due"])
    failures = {error.message: Code(error.code)(f"{where}{error.message}") for where, error in errors if error}
    if failures or not_published:
        first, *others = [*failures.values(), *not_published]
        for other in others:
            cli.out.note(f"lakebed: {other}")
        raise first


# -- lakebed publish -----------------------------------------------------------------------------------------------


@command
@options.table
@click.option("--compact", is_flag=True, help="Compact the table first if it cannot be published as it is.")
@click.option(
    "--raw/--merged", default=None, help="All stored rows, or those of the table. Default: as it was published before."
)
@options.iceberg_catalogs("--catalog", "Push it to this catalog too")
def publish(cli: Invocation, *, table: str, compact: bool, raw: bool | None, catalogs: tuple[str, ...]) -> None:
    """Publish the latest version of a table as Apache Iceberg.

    Other engines read it in place. The table needs the setting publish=iceberg, or iceberg-3 for format 3. A service,
    and `lakebed maintain`, publish such tables by themselves. Prints the metadata file.
    """
    targets = options.targets(catalogs)
    with open_pipeline(cli) as pipeline:
        report = pipeline.publish(table, compact=compact, raw=raw)
        entries = [_pushed(cli.instance().table(table), one) for one in targets]
    lines = [f"table {one.table} of catalog {one.catalog} names {one.metadata_location}" for one in entries]
    cli.out.document({**plain(report), "catalogs": [plain(one) for one in entries]}, [report_line(report), *lines])


def _pushed(table: Table, target: Target) -> CatalogEntry:
    from lakebed.upkeep.publish.catalogs import push
    from lakebed.upkeep.publish.run import current

    published = current(table)
    if published is None:
        raise Code.NOT_PUBLISHED(f"table {table.name} has no rows to publish yet; write some first", table=table.name)
    return push(published, table.name, target)


# -- lakebed gc ----------------------------------------------------------------------------------------------------


@command
@click.argument("table", metavar="[TABLE]", required=False, shell_complete=completions.tables)
@click.option("--force", is_flag=True, help="Delete uncommitted objects even if something is in doubt.")
@options.dry_run
def gc(cli: Invocation, *, table: str | None, force: bool, dry_run: bool) -> None:
    """Delete objects that are no longer needed, of one table or of all.

    Without TABLE, the objects and the logs of dropped tables are deleted as well.

    A file is deleted when its last reference has been gone for longer than history_s, and no tag or pin needs it; a log
    entry when it is older than log_s.

    Objects left by crashes, lost races and second attempts are deleted after orphan_age_s; a write that takes longer is
    refused. Without --force none of them is deleted if more than 5% of the objects or 10,000 would be, if files are
    missing, or if objects are of an unknown kind; the command then fails after all other steps. Objects of an unknown
    kind are never deleted.
    """
    with open_pipeline(cli) as pipeline:
        report = pipeline.gc(table, dry_run=dry_run, force=force)
    cli.out.document({**plain(report), "errors": [str(error) for error in report.errors]}, _gc_lines(report))
    for error in report.errors:
        raise error
    for orphans in report.orphans:
        if orphans.refused:
            from lakebed.upkeep.retention.orphans import refusal

            raise refusal(orphans)


def _gc_lines(report: GcReport) -> Iterator[str]:
    deleted = "would be deleted" if report.dry_run else "deleted"
    for collection in report.collections:
        yield report_line(collection)
    for orphans in report.orphans:
        yield from _orphan_lines(orphans, deleted)
    yield from _dropped_lines(report.dropped, deleted)


def _orphan_lines(report: OrphanReport, deleted: str) -> Iterator[str]:
    text = f"{count_text(report.orphans, 'orphan')} of {size_text(report.size_bytes)} {deleted}"
    temporaries = f", and {count_text(report.temporaries, 'temporary object')}" if report.temporaries else ""
    yield f"table {report.table}: {text}{temporaries}, of {count_text(report.objects, 'object')}"
    if report.held_by is not None:
        yield f"objects younger than open job {report.held_by} stay; if its process died, `lakebed compact` releases it"
    yield from (f"unknown, and left alone: {name}" for name in report.unknown_names)
    yield from (f"in doubt: {doubt}" for doubt in report.doubts)


def _dropped_lines(report: DroppedReport, deleted: str) -> Iterator[str]:
    for table in report.tables:
        text = f"{count_text(table.objects, 'object')} of {size_text(table.size_bytes)}"
        text += f" and {count_text(table.entries, 'log entry', 'log entries')}" if table.entries else ""
        yield f"dropped table {table.id}: {text} " + (deleted if table.waiting is None else f"stay: {table.waiting}")
    if report.temporaries:
        yield f"{count_text(report.temporaries, 'temporary object')} deleted"
    if report.logs:
        yield f"{count_text(report.logs, 'log')} of tables that were never created {deleted}"


# -- lakebed table pause and resume ----------------------------------------------------------------------------------


_operations = click.argument(
    "operations",
    metavar="[OPERATION]...",
    nargs=-1,
    type=click.Choice(list(OPERATIONS)),
    required=False,
)


@command
@options.table
@_operations
def pause(cli: Invocation, *, table: str, operations: tuple[str, ...]) -> None:
    """Pause operations of a table, by default all: ingest, compaction, splitting, refresh, publication, gc.

    Services and `lakebed maintain` skip them until `lakebed table resume`. Running operations continue, and commands
    that name an operation, such as `lakebed compact`, still run it.
    """
    cli.instance().pause(table, *operations)
    _print_paused(cli, table)


@command
@options.table
@_operations
def resume(cli: Invocation, *, table: str, operations: tuple[str, ...]) -> None:
    """Resume operations of a table that are paused, by default all."""
    cli.instance().resume(table, *operations)
    _print_paused(cli, table)


def _print_paused(cli: Invocation, table: str) -> None:
    paused = sorted(cli.instance().paused(table))
    text = f"paused: {', '.join(paused)}" if paused else "nothing is paused"
    cli.out.document({"table": table, "paused": paused}, [f"table {table}: {text}"])


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
def drop_requests(cli: Invocation, *, table: str, requests: tuple[str, ...], everything: bool) -> None:
    """Drop open requests.

    Dropped requests are listed as rejected, and may be submitted anew.
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
