"""Exports a table: its rows at one version, in key order, as files in an empty folder, complete or absent.

:func:`export` plans the files, runs tasks that write and send them (:func:`run_export_task`), and publishes the
manifest (:mod:`lakebed.upkeep.export.publication`).

The version is pinned while tasks run. Every input is verified against its digest, and the number of rows is checked if
all partitions are exported whole and counted exactly.

Parquet files with all columns are like data files, so that they can be attached to a table; those with some are plain
Parquet. For CSV and JSON see :mod:`lakebed.upkeep.export.run`.

Core types: :class:`ExportRequest`, :class:`ExportTask`, :class:`ExportReport`.

Errors: UsageError, BadKeyError and ExistsError before anything is written; DamagedError names an input.

*Writes rows as one local file: Parquet, CSV or JSON lines.*

Binary is hex digits in CSV and JSON, and times are ISO 8601 (:mod:`lakebed.model.iso_times`). CSV has a header; a null
is empty and an empty text is ``""``. JSON has one object per line; nulls are omitted, and NaN and the infinities, which
JSON lacks, are null.

Errors: UsageError for a format that cannot represent the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.clock import random_token
from lakebed.errors import Code, Error
from lakebed.files.formats.json_lines import decode_array
from lakebed.files.parquet.file_writer import as_schema, write_run
from lakebed.files.parquet.layout import ONE_FILE_BYTES, Layout
from lakebed.files.parquet.sizes import gather
from lakebed.model.arrays import empty_batch
from lakebed.model.checks import is_whole, repeated_names, shown
from lakebed.model.extension_values import texts_of_uuids
from lakebed.model.files import data_name
from lakebed.model.iso_times import has_expanded_years, may_expand
from lakebed.model.json_values import encode_array
from lakebed.model.keys import KeyRange
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.reports import ExportedFiles
from lakebed.model.schema import Schema
from lakebed.model.type_names import JSON, UUID
from lakebed.model.types import is_binary, with_inner
from lakebed.read.inspect.history import CopyKind, record_copy
from lakebed.read.rows.plan import is_merged
from lakebed.read.rows.summaries import load_summaries
from lakebed.storage.disk_space import scratch_folder, writing_to
from lakebed.upkeep.export.plan import FORMATS, Cell, cells, parts_wanted, share_out, unweighed
from lakebed.upkeep.export.publication import (
    ExportedFile,
    ExportIds,
    LocalFile,
    check_empty,
    finished,
    publish,
    send,
    withdrawn_on_failure,
)
from lakebed.write import batches as runner

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate
    from lakebed.model.merge_modes import MergeMode
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.storage.contract import Storage
    from lakebed.table.table import Table

_JSON_ROWS, _JSON_BYTES_MAX, _JSON_SHARE = 500_000, 64 * 1024 * 1024, 8
"""Limits of the rows that the engine writes at once; they are in memory several times, as rows and as text, beside
those of the merge."""


def check_format(format: str, arrow: pa.Schema) -> str:
    """Return the format if it exists and can represent the columns. Raises UsageError otherwise."""
    if format not in FORMATS:
        raise Code.FORMAT_UNKNOWN(f"unknown export format {format!r}; formats: {', '.join(FORMATS)}", format=format)
    if format == "csv":
        for field in arrow:
            if pa.types.is_nested(field.type):
                raise Code.TYPE_UNSUPPORTED(
                    f"CSV cannot represent field {field.name} of type {field.type}; export Parquet or JSON",
                    column=field.name,
                )
    return format


def write_rows(
    batches: Iterable[pa.RecordBatch], arrow: pa.Schema, format: str, scratch: Path, *, memory_limit_bytes: int
) -> LocalFile:
    """Write the rows, which have the columns ``arrow``, as one file in the folder ``scratch``, which the caller owns.

    A Parquet file is not a data file of a table: it has no keys, summaries or filters.
    """
    path = scratch / f"rows-{random_token()}.{format}"
    counted = _CountedBatches(batches)
    match format:
        case "csv":
            _write_csv(counted, arrow, path)
        case "json":
            _write_json(counted, path, min(_JSON_BYTES_MAX, memory_limit_bytes // _JSON_SHARE))
        case _:
            _write_parquet(counted, arrow, path)
    return LocalFile(path, counted.rows)


def until_full(batches: Iterator[pa.RecordBatch], folder: Path, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Return batches until the output in the folder has this size; the others stay in the iterator."""
    for batch in batches:
        yield batch
        if sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) >= bytes_max:
            return


class _CountedBatches:
    """The batches, with the number of rows so far."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _write_parquet(batches: Iterable[pa.RecordBatch], arrow: pa.Schema, path: Path) -> None:
    import pyarrow.parquet as pq

    with writing_to(path.parent), pq.ParquetWriter(path, arrow, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_csv(batches: Iterable[pa.RecordBatch], arrow: pa.Schema, path: Path) -> None:
    import pyarrow.csv as pacsv

    rows = pacsv.WriteOptions(include_header=False)
    with writing_to(path.parent), pa.OSFile(str(path), "wb") as file:
        pacsv.write_csv(_in_csv(empty_batch(arrow)), file)
        for batch in batches:
            pacsv.write_csv(_in_csv(batch), file, rows)


def _in_csv(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pa.array(encode_array(column), pa.string()) if is_binary(column.type) or has_expanded_years(column) else column
        for column in _with_texts(rows).columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _in_json(rows: pa.Table) -> pa.Table:
    """Return the rows with text for times that the engine's writer would replace by an error."""
    columns = []
    for column in rows.columns:
        if any(map(has_expanded_years, column.chunks)):
            kind = _with_text_times(column.type)
            columns.append(pa.chunked_array([decode_array(encode_array(chunk), kind) for chunk in column.chunks], kind))
        else:
            columns.append(column)
    return pa.Table.from_arrays(columns, names=rows.schema.names)


def _with_text_times(kind: pa.DataType) -> pa.DataType:
    return pa.string() if may_expand(kind) else with_inner(kind, _with_text_times)


def _write_json(batches: Iterable[pa.RecordBatch], path: Path, bytes_max: int) -> None:
    """Write JSON lines by the engine, some rows at a time, and append them to one file."""
    from lakebed.engine.datafusion import context, url

    with scratch_folder("json", path.parent) as folder, path.open("wb") as whole:
        for number, table in zip(count(), gather(map(_with_texts, batches), _JSON_ROWS, bytes_max), strict=False):
            part = folder / f"{number:06d}.json"
            with writing_to(folder):
                engine = context(partitions=1, batch_rows=8192, pool_bytes=2**30)
                engine.from_arrow(_in_json(table)).write_json(url(engine, part))
                with part.open("rb") as stream:
                    while chunk := stream.read(2**20):
                        whole.write(chunk)
            part.unlink()


def _with_texts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with UUIDs and JSON as text: Arrow's CSV writer accepts neither, and the engine's JSON writer
    writes bytes.

    Times are in UTC: both write offsets without seconds, which zones had before standard time.
    """
    columns = [
        texts_of_uuids(column) if column.type == UUID else column.storage if column.type == JSON else _in_utc(column)
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _in_utc(column: pa.Array) -> pa.Array:
    def zoned(kind: pa.DataType) -> pa.DataType:
        is_zoned = pa.types.is_timestamp(kind) and kind.tz
        return pa.timestamp(kind.unit, "UTC") if is_zoned else with_inner(kind, zoned)

    kind = zoned(column.type)
    return column if kind == column.type else column.cast(kind)


ROWS_A_CELL = 60_000
"""The rows read in the 15 ms that a cell costs: many key ranges should not become as many cells."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The rows to export: those with a key in any of the ranges (without ranges: all) for which ``where`` is true.

    ``where`` is a predicate in SQL over the table's columns. ``partitions`` is the maximum number of files; the default
    is one per ``file_bytes`` (a setting) or one per core. ``columns`` are the names of those that are written, in this
    order; by default all.
    """

    ranges: tuple[KeyRange, ...] = ()
    where: str | None = None
    format: str = "parquet"
    partitions: int | None = None
    columns: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Write the rows of these cells, which are consecutive in key order, as one file of an export.

    ``shown`` is the predicate of visible rows; empty if all are. Rows are merged by ``mode``. ``columns`` are those to
    write; None: all.
    """

    export: str
    index: int
    table_id: str
    cells: tuple[Cell, ...]
    layout: Layout
    format: str
    where: str | None
    memory_limit_bytes: int
    shown: str = ""
    mode: MergeMode = KEEP_ALL
    columns: tuple[str, ...] | None = None

    @property
    def rows(self) -> int:
        """About the number of rows to read."""
        return sum(cell.rows for cell in self.cells)


@dataclass(frozen=True, slots=True)
class ExportReport(ExportedFiles):
    """The result of an export: the table at ``version``, in ``files`` below ``url``."""

    table: str
    version: int
    url: str
    rows: int
    files: int
    size_bytes: int


ExportResult = tuple[ExportedFile, ...] | Error
"""The files of a task (none if there was no row), or its error."""

Execute = runner.Execute[ExportTask, tuple[ExportedFile, ...]]
"""Runs export tasks."""


def export(  # noqa: PLR0913 - what, where to, which rows, and who runs the tasks
    table: Table,
    snapshot: Snapshot,
    target: Storage,
    wanted: ExportRequest,
    execute: Execute,
    *,
    cores: Callable[[], int] = lambda: 1,
    job_id: str | None = None,
) -> ExportReport:
    """Write the rows of a pinned snapshot below the root of ``target``, which must be empty.

    If an attempt with the same ``job_id`` has written them, at this or another version, nothing is read: its report.
    ``cores`` returns how many tasks run at once. It is called after all checks, because to count them may start Spark.

    Raises:
        UsageError: an unknown format or column, a column named twice, a format that cannot hold the columns, an invalid
            predicate, fewer than one partition.
        BadKeyError: a range that does not fit the key.
        ExistsError: there is something at the target, other than what attempts with the job id left.
        DamagedError: an input is not what was written; names it. Nothing is left at the target.
    """
    columns = _columns(snapshot.schema, wanted.columns)
    check_format(wanted.format, _projected(snapshot.schema, columns))
    if wanted.partitions is not None and not is_whole(wanted.partitions, 1):
        raise Code.ARGUMENT_INVALID(f"partitions = {shown(wanted.partitions)}: must be a whole number, 1 or more")
    ids = ExportIds.of(job_id)
    if job_id is not None and (done := finished(target, ids.export)) is not None:
        _check_same(done, _manifest(table, snapshot, wanted, ids.export, ()), target)
        return _report(table, target, done)
    planned, _ = snapshot.planned(snapshot.encoded(wanted.ranges), wanted.where, rows_a_range=ROWS_A_CELL)
    check_empty(target, None if job_id is None else ids.export)
    held = cells(snapshot.state, planned)
    parts = _parts(table, snapshot, held, wanted, cores)
    tasks = [replace(task, columns=columns) for task in _tasks(table, snapshot, wanted, parts, ids.attempt)]
    record_copy(table.storage, table.id, CopyKind.EXPORT, target.url, snapshot.version)
    with withdrawn_on_failure(target, ids.attempt):
        results = list(execute(tasks)) if tasks else []
        files = [file for result in results if not isinstance(result, Error) for file in result]
        _check_results(held, results, files, wanted)
        done = publish(target, _manifest(table, snapshot, wanted, ids.export, files), ids.export)
    return _report(table, target, done)


def run_export_task(task: ExportTask, storage: Storage, target: Storage, scratch: Path) -> tuple[ExportedFile, ...]:
    """Fetch, verify, merge, write and send: the work of one task. Raises DamagedError, which names an input."""
    with ExitStack() as fetched:
        files = {file.id: file for cell in task.cells for file in cell.files}
        paths = {
            name: fetched.enter_context(storage.fetch(data_name(task.table_id, file), digest=file.digest))
            for name, file in files.items()
        }
        written = _write_task(task, _rows_to_export(task, paths, scratch), scratch)
    return () if written is None else (send(written, task.export, task.index, target),)


# -- within -----------------------------------------------------------------------------------------------------


def _columns(schema: Schema, columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the columns to write; None: all, as a data file has them."""
    if columns is None:
        return None
    names = schema.project(columns)
    if repeated := repeated_names(names):
        raise Code.ARGUMENT_INVALID(f"columns = {shown(list(names))}: {', '.join(repeated)} is named twice")
    return names


def _projected(schema: Schema, columns: tuple[str, ...] | None) -> pa.Schema:
    return schema.arrow if columns is None else pa.schema([schema.arrow.field(name) for name in columns])


def _read_schema(task: ExportTask, where: Predicate | None) -> Schema:
    """Return the fields that have to be read: the keys, the columns to write, and those of the predicate."""
    schema = task.layout.schema
    if task.columns is None or task.mode.reads_whole_rows:
        return schema
    names = {*task.columns, *(where.columns if where else ())}
    # Generated keys are stored like others, and the fields that they are computed from may be left out.
    row_key, sort_key = (
        tuple(replace(field, expression="", inputs=()) for field in part) for part in (schema.row_key, schema.sort_key)
    )
    values = tuple(field for field in schema.values if field.name in names)
    return Schema(row_key, sort_key, values, version=schema.version)


def _parts(
    table: Table, snapshot: Snapshot, held: Sequence[Cell], wanted: ExportRequest, cores: Callable[[], int]
) -> tuple[tuple[Cell, ...], ...]:
    """Return the cells of each task; no task if there are no cells."""
    if not held:
        return ()
    count = wanted.partitions or parts_wanted(held, table.settings_in_force().file_bytes, cores())
    summaries = load_summaries(table.storage, table.id, unweighed(held, count).values(), snapshot.schema)
    return share_out(held, summaries, count)


def _tasks(
    table: Table, snapshot: Snapshot, wanted: ExportRequest, parts: Sequence[tuple[Cell, ...]], export_id: str
) -> list[ExportTask]:
    settings = table.settings_in_force()
    layout, limit_bytes = Layout.of(snapshot.schema, settings), settings.memory_limit_bytes
    shown, mode = snapshot.state.visibility.sql, snapshot.state.merge
    return [
        ExportTask(export_id, index, table.id, part, layout, wanted.format, wanted.where, limit_bytes, shown, mode)
        for index, part in enumerate(parts)
    ]


def _write_task(task: ExportTask, rows: Generator[pa.RecordBatch], scratch: Path) -> LocalFile | None:
    """Return the rows as a file; None without rows."""
    limit_bytes, layout = task.memory_limit_bytes, task.layout
    if task.format == "parquet" and task.columns is None:
        one = replace(layout, file_bytes=ONE_FILE_BYTES)
        files = write_run(rows, one, scratch, rows_estimate=task.rows, memory_limit_bytes=limit_bytes)
        assert len(files) <= 1, "one file has room for all rows"
        return LocalFile(files[0].path, files[0].rows) if files else None
    if task.columns is None:
        fitted = (as_schema(batch, layout.schema) for batch in rows)
    else:
        fitted = (batch.select(list(task.columns)) for batch in rows)
    arrow = _projected(layout.schema, task.columns)
    file = write_rows(fitted, arrow, task.format, scratch, memory_limit_bytes=limit_bytes)
    return file if file.rows else None


def _rows_to_export(task: ExportTask, paths: dict[str, Path], scratch: Path) -> Generator[pa.RecordBatch]:
    from lakebed.engine.predicate import check_where, keep
    from lakebed.files.sorting.merge import merge_stream
    from lakebed.read.rows.visible_rows import both

    text = both(task.shown, task.where) if task.shown else task.where
    where = None if text is None else check_where(text, task.layout.schema.arrow)
    schema = _read_schema(task, where)
    for cell in task.cells:
        merged = is_merged(task.mode, cell.files)
        # A condition on another field must not be evaluated before the merge: it may exclude a row that replaces
        # others.
        above = merged and where is not None and not set(where.columns) <= set(task.mode.merge_key(schema))
        rows = merge_stream(
            [paths[file.id] for file in cell.files],
            schema,
            key_range=cell.keys,
            where=None if above else where,
            memory_limit_bytes=task.memory_limit_bytes,
            scratch=scratch,
            mode=task.mode if merged else KEEP_ALL,
        )
        with closing(rows):
            kept = rows if where is None or not above else (keep(batch, where) for batch in rows)
            yield from kept if task.columns is None else (as_schema(batch, schema) for batch in kept)


def _check_results(
    held: Sequence[Cell], results: Sequence[ExportResult], files: Sequence[ExportedFile], wanted: ExportRequest
) -> None:
    failure = next((result for result in results if isinstance(result, Error)), None)
    if failure is not None:
        raise failure
    rows, expected = sum(file.rows for file in files), sum(cell.rows for cell in held)
    if wanted.where is None and all(cell.exact for cell in held) and rows != expected:
        raise Code.ROW_COUNT_MISMATCH(
            f"the table has {expected} rows, but {rows} were exported; verify its files", rows=rows
        )


_REQUEST = ("table", "columns", "ranges", "where", "file_format")
"""The fields of a manifest that say what was asked for."""


def _check_same(done: Mapping[str, Any], wanted: Mapping[str, Any], target: Storage) -> None:
    """Raise ExistsError if an export with the same job id wrote something else."""
    if changed := [name for name in _REQUEST if done.get(name) != wanted.get(name)]:
        raise Code.EXPORT_TARGET_NOT_EMPTY(
            f"{target.url} has an export with this job_id, of another request: {', '.join(changed)} differ. Give each "
            "export a job_id of its own, and a folder",
            url=target.url,
        )


def _report(table: Table, target: Storage, manifest: Mapping[str, Any]) -> ExportReport:
    size_bytes = sum(int(file[2]) for file in manifest["files"])
    rows, files = int(manifest["rows"]), len(manifest["files"])
    return ExportReport(table.name, int(manifest["version"]), target.url, rows, files, size_bytes)


def _manifest(
    table: Table, snapshot: Snapshot, wanted: ExportRequest, export_id: str, files: Sequence[ExportedFile]
) -> dict[str, Any]:
    codec = snapshot.schema.codec
    encoded = [codec.encode_range(one) for one in wanted.ranges]
    columns = {} if wanted.columns is None else {"columns": list(wanted.columns)}
    return {
        "export": export_id,
        "table": table.id,
        "name": table.name,
        "version": snapshot.version,
        "schema": snapshot.schema.to_json(),
        **columns,
        "ranges": [[keys.min.hex(), None if keys.max is None else keys.max.hex()] for keys in encoded],
        "where": wanted.where,
        "file_format": wanted.format,
        "rows": sum(file.rows for file in files),
        "files": [[file.name, file.rows, file.size_bytes, file.digest] for file in files],
    }
