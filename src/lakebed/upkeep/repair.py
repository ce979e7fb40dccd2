"""Repairs values that their types do not allow, in tables that accepted such values before they were refused.

:func:`find` reads every data file of a table and counts its invalid rows (:mod:`lakebed.model.validity`).
:func:`repair` rewrites the files with such rows by compaction jobs, partition by partition: a job claims the
references, its task writes new files, and one log entry replaces the old ones. A job that fails changes nothing. Tasks
run in the calling process, within the table's setting ``memory_limit_bytes``.

Core types: :class:`InvalidRows`, :class:`RepairReport`.

Rules:

* In text, each byte that is not UTF-8 is replaced by U+FFFD. A decimal or time that its type does not allow becomes
  null.
* A row with an invalid row key is removed from the table, because its repaired key may belong to another partition. So
  is a row that would get a null in a field that is not nullable. Removed rows are written to a Parquet file, with
  repaired values, and ``Table.write`` can add them again. The file is complete before the entry that removes the rows.
* The number of rows read equals the rows written plus the rows removed, or the job fails. If rows are merged, repaired
  sort keys may be equal, and fewer rows are written. Deletes and partial rows remain such.
* Earlier versions and tags keep the old rows. The entries say that rows changed, so feeds of changes, views, indexes
  and publications look at them.

Errors: UsageError if there is no folder for removed rows, DamagedError for a damaged file; those of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.files.parquet.row_groups import read_row_groups
from lakebed.files.parquet.sizes import decoded_rows
from lakebed.model import validity
from lakebed.model.field_ids import stored_id
from lakebed.model.files import data_name
from lakebed.model.html_tables import FactsView
from lakebed.model.keys import inside
from lakebed.model.row_kinds import with_hidden
from lakebed.storage.local import user_path
from lakebed.upkeep.compaction.merge_jobs import (
    FailedMerge,
    MergeProgress,
    MergeTask,
    run_merges,
)
from lakebed.upkeep.compaction.plan import PartitionMerge, Skipped
from lakebed.write.run import FileTarget, TaskResult, write_files

if TYPE_CHECKING:
    from lakebed.model.files import DataFile, NewFile
    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class InvalidRows:
    """A data file with invalid rows. A repair would remove ``in_keys`` of them from the table."""

    file: str
    rows: int
    in_keys: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepairReport(FactsView):
    """The result of a repair: ``mended`` rows are in the table, ``removed`` rows in ``removed_files``.

    ``version`` is that of its last commit, None if there was nothing to do.
    """

    table: str
    files: tuple[InvalidRows, ...]
    mended: int
    removed: int
    removed_files: tuple[str, ...]
    version: int | None
    skipped: tuple[Skipped, ...]
    failed: tuple[FailedMerge, ...]
    waits: str | None


@dataclass(slots=True)
class _Removed:
    """The rows that one task removes, and the file to which they are written, if there are any."""

    keys: EncodedRange
    path: Path | None
    rows: int = 0
    mended: int = 0
    writer: Any = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows to the file."""
        import pyarrow.parquet as pq

        if not rows.num_rows:
            return
        if self.path is None:
            raise Code.TABLE_CHANGED("new rows with an invalid key were added during the repair; repair again")
        # A removed row may have a null in a field that is not nullable.
        nullable = pa.schema([column.with_nullable(True) for column in rows.schema])  # noqa: FBT003 - PyArrow's own
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, nullable)
        self.writer.write_batch(pa.RecordBatch.from_arrays(rows.columns, schema=nullable))
        self.rows += rows.num_rows

    def close(self) -> None:
        """Complete the file."""
        if self.writer is not None:
            self.writer.close()


@dataclass(slots=True)
class _Split:
    """The rows of one batch: valid rows, rows that are mended in place, and rows that are removed."""

    good: pa.RecordBatch
    mended: pa.RecordBatch
    removed: pa.RecordBatch
    columns: set[str] = field(default_factory=set)


def find(table: Table) -> tuple[InvalidRows, ...]:
    """Return the data files of a table with invalid rows; reads all of them.

    Raises DamagedError for a file whose bytes are not those that were written.
    """
    state, schema = table.state(), table.schema
    files = {file.id: file for partition in state.partitions.ids for file in state.files_of(partition)}
    invalid_rows = []
    for file in files.values():
        rows = in_keys = 0
        columns: set[str] = set()
        for batch in _undecoded_rows(table.storage, table.id, file, schema):
            split = _split(batch, schema)
            rows += split.mended.num_rows + split.removed.num_rows
            in_keys += split.removed.num_rows
            columns |= split.columns
        if rows:
            invalid_rows.append(
                InvalidRows(file.id, rows, in_keys, tuple(name for name in schema.names if name in columns))
            )
    return tuple(invalid_rows)


def repair(table: Table, removed: str | Path | None = None) -> RepairReport:
    """Rewrite the files that :func:`find` finds. ``removed`` is a local folder for removed rows.

    Raises:
        UsageError: rows have to be removed, and there is no folder for them. Nothing was changed.
        DamagedError: a file's bytes are not those that were written. Nothing was changed.
        ContentionError, UnknownOutcomeError, StorageError: the log. Partitions that were committed stay repaired, and
            the next repair does the rest.
    """
    invalid_rows = find(table)
    count = sum(one.in_keys for one in invalid_rows)
    if count and removed is None:
        raise Code.ARGUMENT_MISSING(
            f"table {table.name}: {count} rows have an invalid value in a key or in a field that is not nullable; a "
            "repair removes them from the table, so name a folder to write them to (removed=, --removed)",
            rows=count,
        )
    folder = None if removed is None else user_path(removed)
    if folder is not None and count:
        folder.mkdir(parents=True, exist_ok=True)
    notes: list[_Removed] = []
    progress = MergeProgress()
    merges = _merges(table, {one.file for one in invalid_rows})
    run_merges(table, _executing(table, folder, notes), merges, progress, cores=1, changes_rows=True)
    committed = [one.merge.keys for one in progress.done]
    counted = [note for note in notes if any(keys.covers(note.keys) for keys in committed)]
    for note in notes:
        if note not in counted and note.path is not None:
            # Its rows are still in the table.
            note.path.unlink(missing_ok=True)
    return RepairReport(
        table=table.name,
        files=invalid_rows,
        mended=sum(note.mended for note in counted),
        removed=sum(note.rows for note in counted),
        removed_files=tuple(str(note.path) for note in counted if note.rows),
        version=max((one.version for one in progress.done), default=None),
        skipped=tuple(progress.skipped),
        failed=tuple(progress.failed),
        waits=progress.waits,
    )


# -- within -----------------------------------------------------------------------------------------------------


def _merges(table: Table, invalid: set[str]) -> list[PartitionMerge]:
    """Return merges of the invalid files of each partition, not exact: a job may write fewer rows than it reads.

    If the table merges rows, each file is rewritten alone, because the inputs of a job are neighbours by arrival.
    """
    state = table.state()
    merges = []
    for position, partition in enumerate(state.partitions.ids):
        files = tuple(file for file in state.files_of(partition) if file.id in invalid)
        groups = ([files] if files else []) if state.merge.keeps_all else [(file,) for file in files]
        for inputs in groups:
            rows, size = sum(file.rows for file in inputs), sum(file.size_bytes for file in inputs)
            merges.append(PartitionMerge(partition, state.partitions.range_at(position), inputs, 1, rows, False, size))  # noqa: FBT003
    return merges


def _executing(table: Table, folder: Path | None, notes: list[_Removed]) -> Any:
    def execute(tasks: Sequence[MergeTask]) -> list[TaskResult]:
        results: list[TaskResult] = []
        for task in tasks:
            path = None if folder is None else folder / f"{table.name}-{clock.random_token()}.parquet"
            note = _Removed(task.keys, path)
            notes.append(note)
            try:
                results.append(_merge_task(task, table.storage, note))
            except Error as error:
                results.append(error)
        return results

    return execute


def _merge_task(task: MergeTask, storage: Storage, note: _Removed) -> tuple[NewFile, ...]:
    schema = task.layout.schema
    if any(file.markers for file in task.inputs):
        schema = with_hidden(schema)
    read = 0

    def kept() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for file in task.inputs:
            for rows in _undecoded_rows(storage, task.table_id, file, schema):
                in_keys = rows.filter(inside(schema.codec.encode_columns(rows), task.keys))
                read += in_keys.num_rows
                split = _split(in_keys, schema)
                note.mended += split.mended.num_rows
                note.add(split.removed)
                yield split.good
                yield split.mended

    try:
        files = write_files(
            kept(),
            replace(task.layout, schema=schema),
            FileTarget(storage, task.table_id, task.job),
            memory_limit_bytes=task.memory_limit_bytes,
            cuts=(),
            merge=task.mode,
        )
    finally:
        note.close()
    kept_rows, written = read - note.rows, sum(new.file.rows for new in files)
    # Repaired sort keys may be equal, so that their rows are merged.
    if written != kept_rows if task.mode.keeps_all else written > kept_rows:
        raise Code.ROWS_LOST(f"{read} rows were read, but another number was written and removed; nothing was changed")
    return files


def _undecoded_rows(storage: Storage, table_id: str, file: DataFile, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Return all rows of a data file with the schema's columns. Text is not decoded, since it may be invalid."""
    import pyarrow.parquet as pq

    with ExitStack() as opened:
        path = opened.enter_context(storage.fetch(data_name(table_id, file), digest=file.digest))
        source = opened.enter_context(pa.OSFile(str(path)))
        stored = {stored_id(column): column.name for column in pq.read_schema(source)}
        for batch in map(decoded_rows, read_row_groups(source, file.id)):
            columns = [
                validity.as_stored(batch.column(stored[f.id]), f.stored_type)
                if f.id in stored
                else pa.nulls(batch.num_rows, f.stored_type)
                for f in schema.fields
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _split(rows: pa.RecordBatch, schema: Schema) -> _Split:
    marks = {f.name: validity.invalid(rows.column(f.name)) for f in schema.fields}
    marked = {name: mark for name, mark in marks.items() if mark is not None}
    none = rows.slice(0, 0)
    if not marked:
        return _Split(rows, none, none)
    bad = pa.array([False] * rows.num_rows)
    in_keys = bad
    for name, mark in marked.items():
        bad = pc.or_(bad, mark)
        if name in schema.row_key_names:
            in_keys = pc.or_(in_keys, mark)
    fixed = validity.mended_rows(rows.filter(bad))
    out = in_keys.filter(bad)
    for f in schema.fields:
        if not f.nullable:
            out = pc.or_(out, pc.is_null(fixed.column(f.name)))
    fixed = pa.RecordBatch.from_arrays(fixed.columns, schema=schema.arrow)
    return _Split(rows.filter(pc.invert(bad)), fixed.filter(pc.invert(out)), fixed.filter(out), set(marked))
