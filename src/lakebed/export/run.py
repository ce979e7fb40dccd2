"""Exports a table: its rows at one version, in key order, as files in an empty folder, complete or absent.

:func:`export` plans the files, has tasks write and send them (:func:`run_export_task`), and publishes the manifest. The
steps (docs/decisions/0023, docs/format.md 11):

1. Tasks send files under names that no other attempt has.
2. The driver puts the manifest, which names the files that count, create-if-absent.
3. It lists the folder, and deletes what other attempts of this export have sent.
4. It puts ``_SUCCESS``.

An attempt that is given up and still runs sends its file, then looks for the manifest, and deletes the file if the
manifest does not name it. Each side writes before it reads, so one of them sees the other: after ``_SUCCESS`` no file
stays that the manifest does not name, and no row is there twice. Nothing is renamed, because object stores cannot.

The version is pinned while tasks run. Every input is verified against its digest, and the number of rows is checked if
all partitions are exported whole and counted exactly.

*Formats.* Parquet files are like those of the table, so that they can be attached to one. CSV has a header; a null is
empty and an empty text is ``""``. JSON has an object a line; nulls are left out, binary is hex digits, and NaN and the
infinities, which JSON does not have, are null.

Core types: :class:`ExportRequest`, :class:`ExportTask`, :class:`ExportReport`.

Errors: UsageError, BadKeyError and ExistsError before anything is written; DamagedError names an input.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed import clock, runner
from lakebed.clock import random_token
from lakebed.errors import Code, Error
from lakebed.export.plan import FORMATS, Cell, cells, parts_wanted, share_out, unweighed
from lakebed.inspect.copies import CopyKind, record_copy
from lakebed.log.entry import FORMAT
from lakebed.model.documents import dump, load, reading
from lakebed.model.files import data_name
from lakebed.model.keys import ALL_KEYS, KeyRange
from lakebed.model.merge_modes import KEEP_ALL, merge_key
from lakebed.parquet.file_writer import as_schema, write_run
from lakebed.parquet.layout import Layout
from lakebed.parquet.sizes import gather
from lakebed.read.plan import is_merged
from lakebed.read.summaries import load_summaries
from lakebed.storage.contract import PutOutcome
from lakebed.storage.disk_space import scratch_folder, writing_to
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema
    from lakebed.snapshot.snapshot import Snapshot
    from lakebed.storage.contract import Storage
    from lakebed.table.table import Table

MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"

ROWS_A_CELL = 60_000
"""Rows that are read in the 15 ms that a cell costs: many key ranges should not become as many cells."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export: the rows with a key in any of the ranges (without ranges: all) for which ``where`` is true.

    ``where`` is a predicate in SQL over the table's columns, named as they are written. ``partitions`` is the largest
    number of files; by default as many as the setting ``file_bytes`` makes, or one for each of the ``cores``, the tasks
    that run at once.
    """

    ranges: tuple[KeyRange, ...] = ()
    where: str | None = None
    format: str = "parquet"
    partitions: int | None = None
    cores: int = 1


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Write the rows of these cells, which follow one another in key order, as one file of an export.

    ``shown`` is the predicate of visible rows; empty if all are. Rows are merged by ``mode``.
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

    @property
    def rows(self) -> int:
        """About how many rows are read."""
        return sum(cell.rows for cell in self.cells)


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One object of an export."""

    name: str
    rows: int
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote: the table at ``version``, in ``files`` below ``url``."""

    table: str
    version: int
    url: str
    rows: int
    files: int
    size_bytes: int


ExportResult = tuple[ExportedFile, ...] | Error
"""What a task wrote (nothing, if there was no row), or why it could not."""

Execute = runner.Execute[ExportTask, tuple[ExportedFile, ...]]
"""Runs export tasks."""


def export(table: Table, snapshot: Snapshot, target: Storage, wanted: ExportRequest, execute: Execute) -> ExportReport:
    """Write the rows of a pinned snapshot below the root of ``target``, which must be empty.

    Raises:
        UsageError: an unknown format, one that cannot hold the schema, an invalid predicate, fewer than one partition.
        BadKeyError: a range that does not fit the key.
        ExistsError: there is something at the target.
        DamagedError: an input is not what was written; names it. Nothing is left at the target.
    """
    check_format(wanted.format, snapshot.schema)
    if wanted.partitions is not None and wanted.partitions < 1:
        raise Code.ARGUMENT_INVALID(f"partitions = {wanted.partitions}: must be 1 or more")
    ranges = [snapshot.schema.codec.encode_range(one) for one in wanted.ranges] or [ALL_KEYS]
    planned, _ = snapshot.planned(ranges, wanted.where, rows_a_range=ROWS_A_CELL)
    _check_empty(target)
    held = cells(snapshot.state, planned)
    export_id = clock.new_id()
    tasks = _tasks(table, snapshot, wanted, held, export_id)
    record_copy(table.storage, table.id, CopyKind.EXPORT, target.url, snapshot.version)
    try:
        results = list(execute(tasks)) if tasks else []
        files = [file for result in results if not isinstance(result, Error) for file in result]
        _check_results(held, results, files, wanted)
        _publish(
            target, export_id, dump(_manifest(table, snapshot, wanted, files)) + b"\n", [file.name for file in files]
        )
    except BaseException:
        with suppress(Error):
            _delete_but(target, export_id, ())
        raise
    rows, size_bytes = sum(file.rows for file in files), sum(file.size_bytes for file in files)
    return ExportReport(table.name, snapshot.version, target.url, rows, len(files), size_bytes)


def run_export_task(task: ExportTask, storage: Storage, target: Storage, scratch: Path) -> tuple[ExportedFile, ...]:
    """Fetch, verify, merge, write and send: the work of one task. Raises DamagedError naming an input."""
    with ExitStack() as fetched:
        files = {file.id: file for cell in task.cells for file in cell.files}
        paths = {
            name: fetched.enter_context(storage.fetch(data_name(task.table_id, file), digest=file.digest))
            for name, file in files.items()
        }
        written = write_export(
            _rows(task, paths, scratch),
            task.format,
            task.layout,
            scratch,
            rows_estimate=task.rows,
            memory_limit_bytes=task.memory_limit_bytes,
        )
    if written is None:
        return ()
    name = f"part-{task.index:05d}-{task.export}-{clock.random_token()}.{task.format}"
    stored = target.send(name, written.path)
    written.path.unlink(missing_ok=True)
    manifest = target.get(MANIFEST)
    if manifest is not None and name not in _names(manifest):
        target.delete([name])
        raise Code.EXPORT_INCOMPLETE(
            f"the export was finished without {name}, which another attempt wrote as well", name=name
        )
    return (ExportedFile(name, written.rows, stored.size_bytes, stored.digest),)


# -- within -----------------------------------------------------------------------------------------------------


def _tasks(
    table: Table, snapshot: Snapshot, wanted: ExportRequest, held: Sequence[Cell], export_id: str
) -> list[ExportTask]:
    settings = table.settings_in_force()
    count = wanted.partitions or parts_wanted(held, settings.file_bytes, wanted.cores)
    summaries = load_summaries(table.storage, table.id, unweighed(held, count).values(), snapshot.schema)
    layout, limit_bytes = Layout.of(snapshot.schema, settings), settings.memory_limit_bytes
    shown, mode = snapshot.state.visibility.sql, snapshot.state.merge
    return [
        ExportTask(export_id, index, table.id, part, layout, wanted.format, wanted.where, limit_bytes, shown, mode)
        for index, part in enumerate(share_out(held, summaries, count))
    ]


def _rows(task: ExportTask, paths: dict[str, Path], scratch: Path) -> Generator[pa.RecordBatch]:
    from lakebed.engine.predicate import check_where, keep
    from lakebed.read.visible_rows import both
    from lakebed.sorting.merge import merge_stream

    schema = task.layout.schema
    text = both(task.shown, task.where) if task.shown else task.where
    where = None if text is None else check_where(text, schema.arrow)
    for cell in task.cells:
        merged = is_merged(task.mode, cell.files)
        # Another field of a row that supersedes others says nothing of them.
        above = merged and where is not None and not set(where.columns) <= set(merge_key(task.mode, schema))
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
            yield from rows if where is None or not above else (keep(batch, where) for batch in rows)


def _check_empty(target: Storage) -> None:
    found = next(iter(target.list("")), None)
    if found is not None:
        finished = target.get(SUCCESS) is not None
        what = "an export that was finished" if finished else "it may be what an export left that did not finish"
        raise Code.EXPORT_TARGET_NOT_EMPTY(
            f"{target.url} is not empty: it contains {found.name} ({what}). Export to another folder, or empty "
            "this one",
            url=target.url,
        )


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


def _manifest(table: Table, snapshot: Snapshot, wanted: ExportRequest, files: Sequence[ExportedFile]) -> dict[str, Any]:
    codec = snapshot.schema.codec
    encoded = [codec.encode_range(one) for one in wanted.ranges]
    return {
        "format": FORMAT,
        "features": [],
        "table": table.id,
        "name": table.name,
        "version": snapshot.version,
        "schema": snapshot.schema.to_json(),
        "ranges": [[keys.min.hex(), None if keys.max is None else keys.max.hex()] for keys in encoded],
        "where": wanted.where,
        "file_format": wanted.format,
        "rows": sum(file.rows for file in files),
        "files": [[file.name, file.rows, file.size_bytes, file.digest] for file in files],
    }


def _names(manifest: bytes) -> set[str]:
    with reading(f"{MANIFEST} of the export is not one that an export writes"):
        return {file[0] for file in load(manifest)["files"]}


def _publish(target: Storage, export_id: str, manifest: bytes, names: Sequence[str]) -> None:
    _put(target, MANIFEST, manifest)
    _delete_but(target, export_id, names)
    _put(target, SUCCESS, b"")


def _put(target: Storage, name: str, data: bytes) -> None:
    outcome = put_until_clear(lambda: target.create(name, data), name)
    if outcome is PutOutcome.EXISTS and target.get(name) != data:
        raise Code.EXPORT_TARGET_NOT_EMPTY(
            f"{target.object_url(name)} exists: another export wrote to the same folder", name=name
        )


def _delete_but(target: Storage, export_id: str, kept: Sequence[str]) -> None:
    """Delete what this export sent, except for the files to keep. Files of others stay."""
    ours = [found.name for found in target.list("") if f"-{export_id}-" in found.name]
    target.delete(sorted(set(ours) - set(kept)))


# -- files of an export --------------------------------------------------------------------------------------------


_ONE_FILE_BYTES = 2**62
_JSON_ROWS, _JSON_BYTES_MAX, _JSON_SHARE = 500_000, 64 * 1024 * 1024, 8
"""Rows that the engine writes at once; they are held a few times, as rows and as text, beside those of the merge."""


@dataclass(frozen=True, slots=True)
class Written:
    """A local file, and its rows."""

    path: Path
    rows: int


def check_format(format: str, schema: Schema) -> str:
    """The format, if it exists and can hold the schema's rows. Raises UsageError otherwise."""
    if format not in FORMATS:
        raise Code.FORMAT_UNKNOWN(f"unknown export format {format!r}; formats: {', '.join(FORMATS)}", format=format)
    if format == "csv":
        for field in schema.fields:
            if (
                pa.types.is_nested(field.type)
                or pa.types.is_binary(field.type)
                or pa.types.is_fixed_size_binary(field.type)
            ):
                raise Code.TYPE_UNSUPPORTED(
                    f"CSV cannot represent field {field.name} of type {field.type}; export Parquet or JSON",
                    column=field.name,
                )
    return format


def write_export(  # noqa: PLR0913 - what, how, where, how much
    batches: Iterable[pa.RecordBatch],
    format: str,
    layout: Layout,
    scratch: Path,
    *,
    rows_estimate: int,
    memory_limit_bytes: int,
) -> Written | None:
    """Write the rows as one file in the folder ``scratch``, which the caller owns; None without rows."""
    if format == "parquet":
        one = replace(layout, file_bytes=_ONE_FILE_BYTES)
        files = write_run(batches, one, scratch, rows_estimate=rows_estimate, memory_limit_bytes=memory_limit_bytes)
        return Written(files[0].path, files[0].rows) if files else None
    path = scratch / f"export-{random_token()}.{format}"
    if format == "csv":
        rows = _write_csv(batches, layout.schema, path)
    else:
        rows = _write_json(batches, layout.schema, path, min(_JSON_BYTES_MAX, memory_limit_bytes // _JSON_SHARE))
    return Written(path, rows) if rows else None


def _write_csv(batches: Iterable[pa.RecordBatch], schema: Schema, path: Path) -> int:
    import pyarrow.csv as pacsv

    rows = 0
    with writing_to(path.parent), pacsv.CSVWriter(path, schema.arrow) as writer:
        for batch in batches:
            writer.write_batch(as_schema(batch, schema))
            rows += batch.num_rows
    return rows


def _write_json(batches: Iterable[pa.RecordBatch], schema: Schema, path: Path, bytes_max: int) -> int:
    """Write JSON lines by the engine, some rows at a time, and append them to one file."""
    from lakebed.engine.datafusion import context

    rows = 0
    with scratch_folder(path.parent, "json") as folder, path.open("wb") as whole:
        tables = gather((as_schema(batch, schema) for batch in batches), _JSON_ROWS, bytes_max)
        for number, table in zip(count(), tables, strict=False):
            part = folder / f"{number:06d}.json"
            with writing_to(folder):
                context(partitions=1, batch_rows=8192, pool_bytes=2**30).from_arrow(table).write_json(part)
                with part.open("rb") as stream:
                    while chunk := stream.read(2**20):
                        whole.write(chunk)
            part.unlink()
            rows += table.num_rows
    return rows
