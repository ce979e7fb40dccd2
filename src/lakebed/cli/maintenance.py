"""``lakebed compact``, ``split``, ``join``, ``gc``, ``sweep``, ``maintain``.

Splitting and garbage collection only touch metadata and start no Spark; nor does a command that finds nothing to do.
``--dry-run`` prints what would be done and does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.pipelines import bar, open_pipeline
from lakebed.cli.render import columns, count_text, plain, size_text
from lakebed.cli.requests import ingest_lines
from lakebed.compaction.plan import check_strategy
from lakebed.compaction.plan import plan as plan_compaction
from lakebed.errors import UsageError
from lakebed.settings import Strategy
from lakebed.splitting.plan import due, small

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from lakebed.cli.render import Output
    from lakebed.compaction.run import CompactionReport
    from lakebed.splitting.plan import SmallLeaves
    from lakebed.splitting.run import JoinReport, SplitReport

LEAVES_SHOWN = 8


def add_maintenance(commands: args.Commands) -> None:
    """``lakebed compact``, ``split``, ``join``, ``gc``, ``sweep``, ``maintain``."""
    compact = _add_compact(commands)
    split = args.add_command(commands, "split", "cut leaves that have grown too large", _split)
    split.add_argument("table", metavar="TABLE")
    join = args.add_command(
        commands,
        "join",
        "make one leaf of small neighbours",
        _join,
        more="As far as the setting join_share allows. Leaves that a file keeps apart are compacted first, on Spark:\n"
        "it was merged away in one of them, where its rows must not come back.",
    )
    join.add_argument("table", metavar="TABLE")
    collect = args.add_command(
        commands,
        "gc",
        "delete files that nothing needs any more",
        _collect,
        more="A file goes when its last reference has been gone for longer than gc_delay_s and history_s, and no tag\n"
        "or pin needs it; an entry of the log when it is older than log_s.",
    )
    collect.add_argument("table", metavar="TABLE")
    sweep = args.add_command(
        commands,
        "sweep",
        "delete what was written and never committed",
        _sweep,
        more="By crashes, lost races and second attempts, longer ago than orphan_age_s; who is uploading for\n"
        "so long is refused then. Nothing is deleted, unless forced, where more than 5% of the objects or\n"
        "10,000 would go, files are missing, or objects are of no known kind, which are never deleted.",
    )
    sweep.add_argument("table", metavar="TABLE", nargs="?")
    sweep.add_argument("--dropped", action="store_true", help="in place of a table: the files of all dropped ones")
    sweep.add_argument("--force", action="store_true", help="go on where someone should look first, and has")
    for parser in (compact, split, join, collect, sweep):
        parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    maintain = args.add_command(
        commands, "maintain", "ingest, compact, split, join and collect garbage, as far as due", _maintain
    )
    maintain.add_argument("table", metavar="TABLE")
    for parser in (compact, join, maintain):
        args.add_launcher(parser)


def _add_compact(commands: args.Commands) -> argparse.ArgumentParser:
    compact = args.add_command(
        commands,
        "compact",
        "merge runs of leaves that have several, on Spark",
        _compact,
        more="size-ratio merges runs of like size, basic the smallest that fill a batch, by-bytes the smallest that\n"
        "reach compaction_run_bytes, full all of a leaf. Runs that do not overlap become one as they are.",
    )
    compact.add_argument("table", metavar="TABLE")
    compact.add_argument("--strategy", choices=tuple(Strategy), help="default: the table's setting compaction_strategy")
    return compact


def _compact(arguments: argparse.Namespace, out: Output) -> None:
    if arguments.dry_run:
        _plan_compaction(arguments, out)
        return
    with open_pipeline(arguments) as pipeline, bar(arguments) as progress:
        report = pipeline.compact(arguments.table, strategy=arguments.strategy, progress=progress)
    out.document(plain(report), _compaction_lines(report))


def _compaction_lines(report: CompactionReport) -> Iterator[str]:
    if report.number is None and report.waits is None:
        yield f"table {report.table}: nothing to compact"
    if report.jobs:
        yield (
            f"table {report.table} at number {report.number}: {count_text(report.leaves, 'leaf')} compacted, "
            f"{count_text(report.files_in, 'file reference')} of {size_text(report.bytes_in)} into "
            f"{count_text(report.files_out, 'file')} of {size_text(report.bytes_out)}"
        )
    if report.chained:
        yield f"table {report.table}: {count_text(report.chained, 'run')} less without rewriting any"
    if report.waits is not None:
        yield f"table {report.table} is not compacted further: {report.waits}"
    for skipped in report.skipped:
        yield f"leaf {skipped.leaf} was left alone: {skipped.reason}"


def _plan_compaction(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    planned = plan_compaction(table.state(), table.settings_in_force(), check_strategy(arguments.strategy))
    merges = [
        {
            "leaf": merge.leaf,
            "rows": merge.rows,
            "exact": merge.exact,
            "bytes": merge.size_bytes,
            "files": len(merge.inputs),
            "runs": merge.runs,
            "leaves": len(merge.leaves) or 1,
        }
        for merge in (*planned.whole, *planned.merges)
    ]
    chains = [
        {"leaf": one.leaf, "bytes": one.size_bytes, "files": len(one.files), "runs": one.runs} for one in planned.chains
    ]
    document = {"table": table.name, "merges": merges, "chains": chains, "skipped": planned.skipped}
    out.document(document, _compaction_plan_lines(merges, chains))


def _compaction_plan_lines(
    merges: Sequence[Mapping[str, object]], chains: Sequence[Mapping[str, object]]
) -> Iterator[str]:
    if merges or not chains:
        yield from _plan_lines(merges, "nothing to compact")
    if chains:
        yield "runs that become one without being rewritten:"
        yield from _plan_lines(chains, "")


def _split(arguments: argparse.Namespace, out: Output) -> None:
    if arguments.dry_run:
        _plan_split(arguments, out)
        return
    with open_pipeline(arguments) as pipeline:
        report = pipeline.split(arguments.table)
    out.document(plain(report), _split_lines(report))


def _split_lines(report: SplitReport) -> Iterator[str]:
    for leaf in report.split:
        yield f"leaf {leaf.leaf} cut into {leaf.parts}"
    for waiting in report.not_split:
        yield f"leaf {waiting.leaf} stays whole: {waiting.reason}"
    if report.number is None and not report.not_split:
        yield f"table {report.table}: no leaf is too large"


def _plan_split(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_table(arguments)
    planned = due(table.state(), table.settings_in_force())
    large = [
        {"leaf": leaf.leaf, "rows": leaf.rows, "bytes": leaf.size_bytes, "runs": leaf.runs, "parts": leaf.parts}
        for leaf in planned.large
    ]
    document = {"table": table.name, "large": large, "waiting": planned.waiting}
    out.document(document, _plan_lines(large, "no leaf is too large"))


def _join(arguments: argparse.Namespace, out: Output) -> None:
    if arguments.dry_run:
        table = args.open_table(arguments)
        groups = small(table.state(), table.settings_in_force())
        out.document({"table": table.name, "small": groups}, _small_lines(groups))
        return
    with open_pipeline(arguments) as pipeline, bar(arguments) as progress:
        report = pipeline.join_leaves(arguments.table, progress=progress)
    lines = list(_join_lines(report))
    out.document(plain(report), lines or [f"table {report.table}: no neighbours are small enough to be joined"])


def _join_lines(report: JoinReport) -> Iterator[str]:
    for leaves in report.joined:
        yield f"{_some_leaves(leaves)} made one"
    for apart in report.not_joined:
        yield f"{_some_leaves(apart.leaves)} stay apart: {apart.reason}"


def _small_lines(groups: Sequence[SmallLeaves]) -> Iterator[str]:
    if not groups:
        yield "no neighbours are small enough to be joined"
    for group in groups:
        first = f", after {_some_leaves(group.compact_first)} are compacted" if group.compact_first else ""
        yield f"{_some_leaves(group.leaves)} would be one of {count_text(group.rows, 'row')}{first}"


def _some_leaves(leaves: Sequence[int]) -> str:
    shown = ", ".join(map(str, leaves[:LEAVES_SHOWN])) + (" …" if len(leaves) > LEAVES_SHOWN else "")
    return f"{count_text(len(leaves), 'leaf')} ({shown})"


def _plan_lines(rows: Sequence[Mapping[str, object]], nothing: str) -> Iterator[str]:
    if not rows:
        yield nothing
    else:
        yield from columns(list(rows[0]), [list(row.values()) for row in rows])


def _collect(arguments: argparse.Namespace, out: Output) -> None:
    with open_pipeline(arguments) as pipeline:
        report = pipeline.collect_garbage(arguments.table, dry_run=arguments.dry_run)
    verb = "would be deleted" if report.dry_run else "deleted"
    text = f"{count_text(report.files, 'file')} of {size_text(report.size_bytes)} {verb}"
    young = f"; {count_text(report.waiting, 'file')} without reference still too young" if report.waiting else ""
    pinned = f"; {count_text(report.pinned, 'file')} kept for readers by pins" if report.pinned else ""
    trimmed = f"; log trimmed up to {report.floor}" if report.entries else ""
    out.document(plain(report), [f"table {report.table}: {text}{young}{pinned}{trimmed}"])


def _sweep(arguments: argparse.Namespace, out: Output) -> None:
    if arguments.dropped is (arguments.table is not None) or (arguments.dropped and arguments.force):
        raise UsageError("sweep takes a table, or --dropped alone; see `lakebed sweep --help`")
    if arguments.dropped:
        _sweep_dropped(arguments, out)
        return
    with open_pipeline(arguments) as pipeline:
        report = pipeline.sweep_orphans(arguments.table, dry_run=arguments.dry_run, force=arguments.force)
    verb = "would be deleted" if report.dry_run else "deleted"
    text = f"{count_text(report.orphans, 'orphan')} of {size_text(report.size_bytes)} {verb}"
    temporaries = f", and {count_text(report.temporaries, 'temporary object')}" if report.temporaries else ""
    lines = [f"table {report.table}: {text}{temporaries}, of {count_text(report.objects, 'object')}"]
    if report.held_by is not None:
        lines.append(
            f"what is younger than open job {report.held_by} stays; if that is dead, `lakebed compact` releases it"
        )
    lines += [f"unknown, and left alone: {name}" for name in report.unknown_names]
    lines += [f"in doubt: {doubt}" for doubt in report.doubts]
    out.document(plain(report), lines)


def _sweep_dropped(arguments: argparse.Namespace, out: Output) -> None:
    with open_pipeline(arguments) as pipeline:
        report = pipeline.sweep_dropped(dry_run=arguments.dry_run)
    verb = "would be deleted" if report.dry_run else "deleted"
    lines = [
        f"table {table.id}: {count_text(table.objects, 'object')} of {size_text(table.size_bytes)} "
        + (verb if table.waiting is None else f"stay: {table.waiting}")
        for table in report.tables
    ]
    if report.temporaries:
        lines.append(f"{count_text(report.temporaries, 'temporary object')} deleted")
    if report.logs:
        lines.append(f"{count_text(report.logs, 'log')} of tables that were never made {verb}")
    out.document(plain(report), lines or ["dropped tables have left nothing"])


def _maintain(arguments: argparse.Namespace, out: Output) -> None:
    with open_pipeline(arguments) as pipeline, bar(arguments) as progress:
        report = pipeline.maintain(arguments.table, progress=progress)
    lines = list(ingest_lines(report.ingest)) if report.ingest.number or report.ingest.failed else []
    lines += [] if report.online else [f"table {report.table} is offline: neither compacted nor split nor joined"]
    lines += [line for compaction in report.compactions for line in _compaction_lines(compaction)]
    lines += [line for split in report.splits for line in _split_lines(split)]
    lines += [line for join in report.joins for line in _join_lines(join)]
    deleted = count_text(report.collection.files, "file")
    lines.append(f"table {report.table}: {deleted} of {size_text(report.collection.size_bytes)} deleted")
    out.document(plain(report), lines)
