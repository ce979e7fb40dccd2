"""Procedures in SQL: ``SELECT * FROM lakebed_compact('t')``. They are functions, since no Python can add a ``CALL``.

    register(session, "s3://bucket/lake")

They are named as those of Iceberg and Paimon are, where these have them, and give their report as rows. A function runs
in one Python worker, where no Spark job can be started: what moves data moves it through that one worker. For a table
of any size use the :class:`~lakebed.spark.Pipeline`; these are for a look, and for small tables.

Spark may run a function again, when a task is lost or a frame is used twice. All of them may be: what is done is not
done again, and ``lakebed_import`` takes a commit id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.errors import Error
from lakebed.spark.batch import Place, on_one_core, task_scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.maintenance.compaction.job_batches import MergeTask, TaskResult
    from lakebed.table.table import Table

Row = tuple[Any, ...]


def compact(table: Table, strategy: str | None = None) -> Iterator[Row]:
    """Merge the runs of every partition that the strategy picks."""
    from lakebed.maintenance.compaction.run import compact as run_compaction
    from lakebed.maintenance.compaction.run import prepare, run_merge_task

    def execute(tasks: Sequence[MergeTask]) -> list[TaskResult]:
        return [merged(task) for task in tasks]

    def merged(task: MergeTask) -> TaskResult:
        try:
            with task_scratch() as scratch:
                return run_merge_task(task, table.storage, scratch)
        except Error as error:
            return error

    report = run_compaction(table, prepare(table, strategy), execute, cores=1)
    if report.failed:
        raise report.failed[0].error
    yield (
        report.partitions,
        report.files_in,
        report.files_out,
        report.rows,
        report.bytes_in,
        report.bytes_out,
        report.version,
    )


def split(table: Table) -> Iterator[Row]:
    """Cut every partition that is too large; one row a partition."""
    from lakebed.maintenance.splitting.run import split as run_split

    report = run_split(table)
    for partition in report.split:
        yield partition.partition, partition.parts, report.version


def import_files(table: Table, source: str, commit_id: str) -> Iterator[Row]:
    """Add the rows of Parquet files: a path, folder, glob or URI."""
    import pyarrow as pa

    from lakebed.ingest.conformer import Conformer
    from lakebed.ingest.sources import find_files, read_file
    from lakebed.parquet.sizes import pages_bytes_max

    files = find_files(source, table.storage)
    settings = table.settings_in_force()
    conformer = Conformer(table.state().created, value_bytes_max=settings.value_bytes_max)
    pages_bytes = pages_bytes_max(settings.memory_limit_bytes)
    rows = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for file in files:
            for batch in read_file(file, conformer, pages_bytes=pages_bytes, home=table.storage):
                rows += batch.num_rows
                yield batch

    known = table.outcome(commit_id)
    version = table.write(pa.RecordBatchReader.from_batches(conformer.schema.arrow, batches()), commit_id=commit_id)
    yield 0 if known is not None else rows, len(files), version, known is not None


def collect_garbage(table: Table, dry_run: bool = False) -> Iterator[Row]:  # noqa: FBT001, FBT002 - SQL's arguments
    """Delete files that nothing needs any more, and truncate the log."""
    from lakebed.retention.run import collect_garbage as run_collection

    report = run_collection(table, dry_run=dry_run)
    yield report.files, report.size_bytes, report.waiting, report.pinned, report.entries, report.version


def remove_orphan_files(table: Table, dry_run: bool = False) -> Iterator[Row]:  # noqa: FBT001, FBT002 - as above
    """Delete what was written and never committed."""
    from lakebed.retention.orphans import delete_orphans

    report = delete_orphans(table, dry_run=dry_run)
    yield report.orphans, report.size_bytes, report.objects, report.version


def create_tag(table: Table, name: str, version: int | None = None) -> Iterator[Row]:
    """Give a number, by default the newest, a name that keeps it readable."""
    yield name, table.tag(name, version)


def delete_tag(table: Table, name: str) -> Iterator[Row]:
    """Take a tag away; the answer is the version."""
    yield name, table.untag(name)


def tags(table: Table) -> Iterator[Row]:
    """The tags and the versions that they stand at."""
    yield from table.tags().items()


def history(table: Table, limit: int | None = None) -> Iterator[Row]:
    """What happened, newest first."""
    for row in table.history_rows(limit):
        counts = row.rows_added, row.rows_removed, row.files_added, row.bytes_added
        yield row.version, row.time, row.writer, row.type, *counts, row.request_key, row.detail


def files(table: Table) -> Iterator[Row]:
    """One row a reference, in key order; keys as JSON."""
    from lakebed.inspect.report import file_rows

    for row in file_rows(table.state(), table.id, table.storage.object_url):
        keys = _json(row["min_key"]), _json(row["max_key"])
        yield (
            row["file_id"],
            row["url"],
            row["partition"],
            row["rows"],
            row["exact"],
            row["size_bytes"],
            *keys,
            row["version"],
        )


def partitions(table: Table) -> Iterator[Row]:
    """One row a partition, in key order; bounds as JSON, null where there is none."""
    from lakebed.inspect.report import partition_rows

    for row in partition_rows(table.state()):
        bounds = _json(row["min"]), _json(row["max"])
        yield row["partition"], *bounds, row["rows"], row["exact"], row["bytes"], row["files"], row["runs"]


PROCEDURES: Mapping[str, tuple[Callable[..., Iterator[Row]], str]] = {
    "lakebed_compact": (
        compact,
        (
            "partitions bigint, files_in bigint, files_out bigint, row_count bigint, bytes_in bigint, bytes_out "
            "bigint, version bigint"
        ),
    ),
    "lakebed_split": (split, "partition bigint, parts int, version bigint"),
    "lakebed_import": (import_files, "row_count bigint, source_files bigint, version bigint, repeated boolean"),
    "lakebed_collect_garbage": (
        collect_garbage,
        "files bigint, size_bytes bigint, waiting bigint, pinned bigint, entries bigint, version bigint",
    ),
    "lakebed_remove_orphan_files": (
        remove_orphan_files,
        "orphans bigint, size_bytes bigint, objects bigint, version bigint",
    ),
    "lakebed_create_tag": (create_tag, "name string, version bigint"),
    "lakebed_delete_tag": (delete_tag, "name string, version bigint"),
    "lakebed_tags": (tags, "name string, version bigint"),
    "lakebed_history": (
        history,
        (
            "version bigint, time timestamp, writer string, type string, rows_added bigint, rows_removed bigint, "
            "files_added bigint, bytes_added bigint, request_key string, detail string"
        ),
    ),
    "lakebed_files": (
        files,
        (
            "file_id string, url string, partition bigint, row_count bigint, exact boolean, size_bytes bigint, "
            "min_key string, max_key string, version bigint"
        ),
    ),
    "lakebed_partitions": (
        partitions,
        (
            "partition bigint, min_key string, max_key string, row_count bigint, exact boolean, size_bytes bigint, "
            "files bigint, runs bigint"
        ),
    ),
}
"""By their names in SQL: what runs, given a table and SQL's further arguments, and the columns of its rows."""


def register(
    session: SparkSession,
    instance_url: str,
    storage_options: Mapping[str, str] | None = None,
    log_url: str | None = None,
) -> None:
    """Make the procedures known to a session, for the tables of one instance. The options stand in no plan."""
    from pyspark.sql.functions import udtf

    place = Place(instance_url, dict(storage_options or {}), log_url)
    for name, (run, columns) in PROCEDURES.items():
        function: Any = udtf(_function(place, run), returnType=columns)
        session.udtf.register(name, function)


def _function(place: Place, run: Callable[..., Iterator[Row]]) -> type:
    """The class that Spark wants, which runs in a worker."""

    class Procedure:
        def eval(self, table_name: str, *given: Any, **named: Any) -> Iterator[Row]:
            on_one_core()
            yield from run(place.open().table(table_name), *given, **named)

    return Procedure


def _json(values: Mapping[str, Any] | None) -> str | None:
    return None if values is None else json.dumps(values, default=_text, ensure_ascii=False)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
