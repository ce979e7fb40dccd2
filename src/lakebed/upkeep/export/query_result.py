"""Writes the rows of a submitted query as an export: files in key order, published together.

A scan is divided among tasks like an export of the table. Each task scans its key ranges under the policy of the
reader, and skips files and pages that the query does not need (:func:`run_query_task`). A statement in SQL is one
stream, which is written file by file (:func:`write_stream`). Several services may run a query, each under an export id
of its own that begins with the query's id; the first to publish gives the result.

A statement can also be exported by the process of the caller (:func:`export_statement`).

Core types: :class:`ScanQuery`, :class:`QueryTask`, :class:`QueryResult`, :class:`StatementReport`.

Errors: those of a scan; ExistsError if the target has other files.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Error
from lakebed.model.documents import reading
from lakebed.model.reports import ExportedFiles
from lakebed.model.state.catalog import CatalogTable
from lakebed.read.inspect.history import CopyKind, record_copy
from lakebed.read.rows.plan import coarser, plan
from lakebed.read.rows.summaries import load_summaries
from lakebed.read.snapshot.row_views import raw_choice
from lakebed.read.snapshot.snapshot import Snapshot
from lakebed.storage.disk_space import scratch_folder
from lakebed.table.instance import table_in
from lakebed.upkeep.export.plan import Cell, cells, parts_wanted, share_out, unweighed
from lakebed.upkeep.export.publication import (
    ExportedFile,
    ExportIds,
    check_empty,
    finished,
    names_of,
    publish,
    read_published,
    send,
    withdrawn_on_failure,
)
from lakebed.upkeep.export.run import ROWS_A_CELL, check_format, until_full, write_rows
from lakebed.write import batches as runner

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate
    from lakebed.model.keys import EncodedRange
    from lakebed.model.policies import Policy
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.restricted import RestrictedSnapshot
    from lakebed.storage.contract import Storage
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

PART_BYTES = 128 * 1024 * 1024
"""Bytes of a file of a statement's rows."""


@dataclass(frozen=True, slots=True)
class ScanQuery:
    """The arguments of a scan, as :meth:`lakebed.read.snapshot.snapshot.Readable.scan`; ``policy`` is that of the
    reader.
    """

    ranges: tuple[EncodedRange, ...]
    columns: tuple[str, ...] | None = None
    where: str | None = None
    limit: int | None = None
    reverse: bool = False
    raw: bool = False
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class QueryTask:
    """Write the rows of a scan of one version, in key order, as the file ``index`` of an export."""

    export: str
    index: int
    table_id: str
    version: int
    scan: ScanQuery
    format: str
    rows: int
    """About the number of rows to read."""
    memory_limit_bytes: int


Execute = runner.Execute[QueryTask, tuple[ExportedFile, ...]]
"""Runs query tasks."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A published result: its files in the order of their rows, and its columns."""

    columns: pa.Schema
    files: tuple[str, ...]
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to write the result of a query: below the root of ``target``, in a format of exports."""

    ids: ExportIds
    target: Storage
    format: str

    @classmethod
    def numbered(cls, query_id: str, number: int, target: Storage, format: str) -> Attempt:
        """Return an attempt of a submitted query."""
        return cls(ExportIds(query_id, f"{query_id}-{number:03d}"), target, format)


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A scan divided into parts, in the order of its rows; their stored bytes, and the columns of the result."""

    version: int
    scan: ScanQuery
    parts: tuple[tuple[Cell, ...], ...]
    size_bytes: int
    columns: pa.Schema


def plan_query(table: Table, snapshot: Snapshot, wanted: ScanQuery, cores: int) -> PlannedQuery:
    """Divide a scan of a snapshot. A scan with a limit is one part: it ends after its first rows.

    Raises the errors of the scan.
    """
    opened = _Opened.of(snapshot, wanted)
    planned = plan(snapshot.state, wanted.ranges)
    if opened.predicate is not None:
        from lakebed.read.rows.conditions import plan_where
        from lakebed.read.rows.expressions import condition_of

        planned = plan_where(snapshot.state, wanted.ranges, condition_of(opened.predicate.parts))
        planned = coarser(planned, wanted.ranges, ROWS_A_CELL)
    held = cells(snapshot.state, planned)
    # A predicate may take longer than its bytes suggest: each core gets a part, if there are as many partitions.
    by_bytes = parts_wanted(held, table.settings_in_force().file_bytes, cores)
    count = 1 if wanted.limit is not None else max(by_bytes, min(cores, len(planned.partitions)))
    summaries = load_summaries(table.storage, table.id, unweighed(held, count).values(), snapshot.schema)
    parts = share_out(held, summaries, count)
    size_bytes = sum(cell.size_bytes for part in parts for cell in part)
    with closing(opened.rows(wanted)) as rows:
        columns = rows.schema
    return PlannedQuery(snapshot.version, wanted, parts[::-1] if wanted.reverse else parts, size_bytes, columns)


def run_query(table: Table, planned: PlannedQuery, attempt: Attempt, execute: Execute) -> QueryResult:
    """Run tasks that write the parts, and publish them. Raises the error of the first failed task."""
    check_format(attempt.format, planned.columns)
    limit_bytes = table.settings_in_force().memory_limit_bytes
    tasks = [
        QueryTask(
            attempt.ids.attempt,
            index,
            table.id,
            planned.version,
            replace(planned.scan, ranges=tuple(cell.keys for cell in part)),
            attempt.format,
            sum(cell.rows for cell in part),
            limit_bytes,
        )
        for index, part in enumerate(planned.parts)
    ]
    with withdrawn_on_failure(attempt.target, attempt.ids.attempt):
        files: list[ExportedFile] = []
        for result in execute(tasks) if tasks else ():
            if isinstance(result, Error):
                raise result
            files += result
        return _published(attempt, planned.columns, files)


def run_query_task(task: QueryTask, instance: Instance, target: Storage, scratch: Path) -> tuple[ExportedFile, ...]:
    """Read, write and send the files of one task."""
    table = instance.opened(CatalogTable(task.table_id, task.table_id))
    with closing(_Opened.of(table.at(version=task.version), task.scan).rows(task.scan)) as rows:
        limit_bytes = task.memory_limit_bytes
        file = write_rows(rows, rows.schema, task.format, scratch, memory_limit_bytes=limit_bytes)
    return (send(file, task.export, task.index, target),) if file.rows else ()


def write_stream(
    rows: pa.RecordBatchReader | RowStream,
    attempt: Attempt,
    scratch: Path,
    *,
    memory_limit_bytes: int,
    progress: Callable[[int], None],
) -> QueryResult:
    """Write a stream of rows as files of about :data:`PART_BYTES`, and publish them.

    ``progress`` is called with the number of rows read.
    """
    arrow: pa.Schema = rows.schema
    check_format(attempt.format, arrow)
    files: list[ExportedFile] = []
    with withdrawn_on_failure(attempt.target, attempt.ids.attempt):
        batches = iter(rows)
        done = 0
        for first in batches:
            with scratch_folder("part", scratch) as folder:
                some = until_full(chain([first], batches), folder, PART_BYTES)
                file = write_rows(some, arrow, attempt.format, folder, memory_limit_bytes=memory_limit_bytes)
                done += file.rows
                if file.rows:
                    files.append(send(file, attempt.ids.attempt, len(files), attempt.target))
            progress(done)
        return _published(attempt, arrow, files)


@dataclass(frozen=True, slots=True)
class StatementReport(ExportedFiles):
    """The rows of a statement, in ``files`` below ``url``. ``tables`` are those that it read, and their versions."""

    url: str
    rows: int
    files: int
    size_bytes: int
    tables: Mapping[str, int]


def export_statement(
    instance: Instance, statement: str, target: Storage, format: str, *, job_id: str | None
) -> StatementReport:
    """Write the rows of a statement in SQL below the root of ``target``, which must be empty: all of them, or none.

    If an attempt with the same ``job_id`` has written them, nothing is read: its result, without ``tables``.

    The versions that it reads are pinned meanwhile, and the folder is recorded as a copy of each table.

    Raises UsageError for an invalid statement, an unknown format, or one that cannot hold the columns; NotFoundError
    for a table that there is not; ExistsError if there is something at the target.
    """
    from lakebed.read.sql.query import SqlEngine

    read: dict[str, Snapshot] = {}

    def snapshot_named(name: str) -> Snapshot | None:
        snapshot = instance.snapshot_named(name)
        if snapshot is not None:
            read[name] = snapshot
        return snapshot

    attempt = Attempt(ExportIds.of(job_id), target, format)
    if job_id is not None and (done := finished_result(target, attempt.ids.export)) is not None:
        return StatementReport(target.url, done.rows, len(done.files), done.size_bytes, {})
    limit_bytes = instance.sql_pool_bytes()
    with ExitStack() as held:
        rows = held.enter_context(closing(SqlEngine(snapshot_named, instance.tables).run(statement, limit_bytes)))
        check_format(format, rows.schema)
        check_empty(target, None if job_id is None else attempt.ids.export)
        for name, snapshot in read.items():
            table = instance.table(table_in(name))
            held.enter_context(table.pin(snapshot.version))
            record_copy(instance.storage, table.id, CopyKind.QUERY, target.url, snapshot.version)
        folder = held.enter_context(scratch_folder("export"))
        result = write_stream(rows, attempt, folder, memory_limit_bytes=limit_bytes, progress=lambda _: None)
    tables = {name: snapshot.version for name, snapshot in sorted(read.items())}
    return StatementReport(target.url, result.rows, len(result.files), result.size_bytes, tables)


def result_at(target: Storage, query_id: str) -> QueryResult | None:
    """Return the result that an attempt of the query published at the target; None if there is none."""
    manifest = read_published(target)
    if manifest is None or manifest.get("export") != query_id:
        return None
    return _result_of(manifest)


def finished_result(target: Storage, query_id: str) -> QueryResult | None:
    """As :func:`result_at`, but first completes an interrupted publication."""
    manifest = finished(target, query_id)
    return None if manifest is None else _result_of(manifest)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A snapshot with the policy of the reader, and the checked arguments of the scan."""

    shown: Snapshot | RestrictedSnapshot
    names: tuple[str, ...]
    predicate: Predicate | None

    @classmethod
    def of(cls, snapshot: Snapshot, scan: ScanQuery) -> _Opened:
        view = raw_choice(snapshot, None, raw=scan.raw, reverse=scan.reverse)
        shown: Snapshot | RestrictedSnapshot = view
        if scan.policy is not None:
            # It imports the engine, which a pipeline with nothing to do does not need.
            from lakebed.read.snapshot.restricted import RestrictedSnapshot

            shown = RestrictedSnapshot(view, scan.policy)
        predicate = None
        if scan.where is not None:
            from lakebed.engine.predicate import check_where

            predicate = check_where(scan.where, shown.schema.arrow)
        return cls(shown, tuple(shown.schema.project(scan.columns)), predicate)

    def rows(self, scan: ScanQuery) -> RowStream:
        return self.shown.rows(scan.ranges, self.names, where=self.predicate, limit=scan.limit, reverse=scan.reverse)


def _published(attempt: Attempt, columns: pa.Schema, files: Sequence[ExportedFile]) -> QueryResult:
    manifest = {
        "export": attempt.ids.export,
        "columns": base64.b64encode(columns.serialize().to_pybytes()).decode(),
        "file_format": attempt.format,
        "rows": sum(file.rows for file in files),
        "files": [[file.name, file.rows, file.size_bytes, file.digest] for file in files],
    }
    return _result_of(publish(attempt.target, manifest, attempt.ids.export))


def _result_of(manifest: Mapping[str, Any]) -> QueryResult:
    with reading("the manifest of a query's result is not one that a query writes"):
        columns = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(manifest["columns"])))
        size_bytes = sum(int(file[2]) for file in manifest["files"])
        return QueryResult(columns, tuple(names_of(manifest)), int(manifest["rows"]), size_bytes)
