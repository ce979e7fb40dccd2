"""Attaches sorted Parquet files as they are: checks every row, copies the bytes, and adds all files in one commit.

:func:`attach` has one task run for each file: :func:`run_attach_task` checks a local copy and sends it. No row is
sorted, shuffled or written anew. The copy belongs to the table; the original may be changed or deleted afterwards.

What readers rely on is checked (:func:`check_sorted`): the columns are those of the newest schema or of an earlier one,
by field id, name and type; non-nullable fields have no nulls; every value is valid for its type; the rows are in
the order of row key, then sort key. What a file may lack only makes reads slower: small pages, page indexes, Bloom
filters. Exports are such files. Files without field ids are imported instead, which sorts and rewrites their rows.

Core types: :class:`AttachTask`, :class:`AttachReport`.

Errors: SchemaMismatchError, BadKeyError, UsageError and DamagedError name the file, and the row where there is one.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.files.parquet.int96_times import int96_columns
from lakebed.files.parquet.layout import SortedFile
from lakebed.files.parquet.ranks import RankNotes
from lakebed.files.parquet.row_groups import path_of, read_row_groups
from lakebed.files.parquet.sizes import decoded_rows, pages_bytes_max, size_of
from lakebed.log.outcomes import Committed, version_of
from lakebed.model import types, validity
from lakebed.model.arrays import raw
from lakebed.model.field_ids import stored_id
from lakebed.model.files import NewFile
from lakebed.model.key_type import KEY_BYTES_MAX
from lakebed.model.keys import KeyCodec, same_key
from lakebed.model.reports import AddedFiles
from lakebed.model.settings import Settings
from lakebed.model.state.table_state import Source
from lakebed.model.state.time_travel import committed_at
from lakebed.model.state.transactions import ProposeFiles
from lakebed.storage.blocks import digests_of
from lakebed.storage.disk_space import writing_to
from lakebed.storage.external import open_external
from lakebed.write import batches as runner
from lakebed.write.run import WriteTarget, commit_files, discard, send_run
from lakebed.write.sources import check_unchanged, find_files

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage


_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AttachReport(AddedFiles):
    """The result of an attach. ``repeated``: the job id was committed before, at ``version``; nothing was added.

    ``version`` is None if there were no rows (and no job id to remember).
    """

    table: str
    rows: int
    files: int
    size_bytes: int
    version: int | None
    repeated: bool = False

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        return self.added("attach", self.rows)


@dataclass(frozen=True, slots=True)
class AttachTarget:
    """The common part of all files that are attached to one table; ``cuts`` are its partition boundaries."""

    table_id: str
    schemas: tuple[Schema, ...]
    cuts: tuple[bytes, ...]
    value_bytes_max: int
    memory_limit_bytes: int


@dataclass(frozen=True, slots=True)
class AttachTask:
    """Check one file, and send a copy of it."""

    file: Source
    target: AttachTarget


Execute = runner.Execute[AttachTask, tuple[NewFile, ...]]
"""Runs attach tasks; those of one call have one target."""


def attach(table: WriteTarget, source: Any, job_id: str | None, execute: Execute) -> AttachReport:
    """Add the files of a source as they are; see :meth:`lakebed.jobs.pipeline.Pipeline.attach`."""
    state = table.state()
    first = committed_at(state, "job_id", job_id)
    if first is not None:
        return AttachReport(table.name, 0, 0, 0, first, repeated=True)
    if not state.merge.keeps_all:
        raise Code.MERGE_MODE_MISMATCH(
            f"table {table.name} merges rows by {state.merge}, and files are attached as they are: import them instead",
            table=table.name,
        )
    settings = table.settings_in_force()
    target = AttachTarget(
        table.id,
        tuple(state.schemas),
        state.partitions.boundaries,
        settings.value_bytes_max,
        settings.memory_limit_bytes,
    )
    results = execute([AttachTask(file, target) for file in find_files(source, table.storage)])
    failed = next((result for result in results if isinstance(result, Error)), None)
    sent = [new for result in results if not isinstance(result, Error) for new in result]
    if failed is not None:
        discard(table.storage, table.id, sent)
        raise failed
    files = as_run(sent)
    if not files and job_id is None:
        return AttachReport(table.name, 0, 0, 0, None)
    outcome = commit_files(table, ProposeFiles(files, job_id, state.version))
    version = version_of(outcome, f"table {table.name}, attach")
    if isinstance(outcome, Committed) and outcome.repeated:
        return AttachReport(table.name, 0, 0, 0, version, repeated=True)
    rows, size_bytes = sum(new.file.rows for new in files), sum(new.file.size_bytes for new in files)
    return AttachReport(table.name, rows, len(files), size_bytes, version)


def run_attach_task(task: AttachTask, storage: Storage, scratch: Path) -> tuple[NewFile, ...]:
    """Check a file, and send a copy of it; none if it has no rows. Raises as :func:`check_sorted`, and StorageError."""
    target = task.target
    checked = check_sorted(
        _copied(task.file, scratch, storage),
        target.schemas,
        target.cuts,
        task.file.url,
        value_bytes_max=target.value_bytes_max,
        memory_limit_bytes=target.memory_limit_bytes,
    )
    # A separate job, because overlapping files are not a run.
    return send_run(storage, target.table_id, [checked] if checked else [], job=clock.new_id())


def as_run(files: Sequence[NewFile]) -> tuple[NewFile, ...]:
    """Return the files in key order, as one run if their ranges at most touch."""
    ordered = sorted(files, key=lambda new: (new.file.min_key, new.file.max_key))
    touching = all(a.file.max_key <= b.file.min_key for a, b in itertools.pairwise(ordered))
    return tuple(replace(new, run=ordered[0].run) if touching else new for new in ordered)


def _copied(file: Source, scratch: Path, home: Storage) -> Path:
    """Return a local copy. Raises StorageError if the original has changed since it was found."""
    path = scratch / f"attach-{clock.random_token()}.parquet"
    check_unchanged(file, home)
    files, name = open_external(file.url, home)
    try:
        source = files.open(name)
    except OSError as error:
        raise Code.SOURCE_UNREADABLE(f"cannot read {file.url}: {error}", name=file.url) from error
    with source, writing_to(scratch), path.open("wb") as copy:
        shutil.copyfileobj(source, copy, _COPY_BYTES)
    check_unchanged(file, home)
    return path


def check_sorted(  # noqa: PLR0913 - the file, what it must fit, and two limits
    path: Path,
    schemas: Sequence[Schema],
    cuts: Sequence[bytes],
    name: str,
    *,
    value_bytes_max: int = Settings().value_bytes_max,
    memory_limit_bytes: int = Settings().memory_limit_bytes,
) -> SortedFile | None:
    """Return the local file as one of a run, read through once; None if it has no rows. ``name`` is its name in errors.

    ``schemas`` are those that the table has had, the newest last. The file gets the newest
    schema that has its columns, so an export that was made before an alter can be attached after it.
    Its summary has the exact ranks of those ``cuts`` (ascending encoded keys) that fall inside it, and the digests of
    the file's blocks.

    Raises:
        SchemaMismatchError, BadKeyError: its columns are no schema's, a value is invalid, a null is where none may
            be, a key too long.
        UsageError: its rows are not sorted; says where.
        DamagedError: it cannot be read as Parquet.
    """
    import pyarrow.parquet as pq

    try:
        with pa.OSFile(str(path)) as source, pq.ParquetFile(source) as parquet:
            schema = _schema_of(parquet.schema_arrow, schemas, name)
            if old_times := int96_columns(parquet.metadata):
                raise Code.SOURCE_NOT_ATTACHABLE(
                    f"cannot attach {name}: column {old_times[0]} has timestamps of INT96, which readers read in "
                    "different ways. Import it instead",
                    name=name,
                )
            bounded = _bounded(parquet.metadata)
            nullable = {field.id: field.nullable for field in schemas[-1].fields}
            rows = parquet.metadata.num_rows
            if not rows:
                return None
            notes = RankNotes(schema.codec, cuts, rows_estimate=rows)
            codec = KeyCodec((*schema.row_key, *schema.sort_key))
            last: bytes | None = None
            # All columns are read, so that damage in any of them is found before the file is added.
            for stored in read_row_groups(source, name, pages_bytes=pages_bytes_max(memory_limit_bytes)):
                if stored.num_rows:
                    _check_sizes(stored, value_bytes_max, name)
                    stored = decoded_rows(stored)  # noqa: PLW2901 - nothing else may read the undecoded rows
                    _check_values(stored, notes.rows, name)
                    batch = _in_seconds(stored, schema, name)
                    _check_members(batch, schema, notes.rows, name)
                    _check_nulls(batch, [f.name for f in schema.fields if not nullable.get(f.id, True)], name)
                    _check_floats(batch, schema.sort_names, bounded, name)
                    last = _check_order(batch, codec, last, name, rows_before=notes.rows)
                    _check_lengths(batch, schema, name)
                    notes.add(pa.Table.from_batches([batch.select(list(schema.row_key_names))]))
        # The file may have no digests, or those of a file that it was made from.
        summary = replace(notes.summary(), blocks=digests_of(path))
    except (pa.ArrowException, OSError) as error:
        raise Code.SOURCE_DAMAGED(
            f"{name} cannot be read as Parquet ({str(error)[:300]}); nothing was attached", name=name
        ) from error
    return SortedFile(path, notes.rows, notes.min_key, notes.max_key, summary, schema.version)


def _schema_of(found: pa.Schema, schemas: Sequence[Schema], name: str) -> Schema:
    given = [(stored_id(column), column.name, types.nullable_members(column.type)) for column in found]
    for schema in reversed(schemas):
        if given == [(field.id, field.name, types.in_parquet(field.stored_type)) for field in schema.fields]:
            return schema
    if all(field_id is None for field_id, _, _ in given):
        reason = "its columns have no field ids"
    else:
        wanted = [(field.id, field.name, field.type) for field in schemas[-1].fields]
        shown = [", ".join(f"{field_id} {name} {kind}" for field_id, name, kind in some) for some in (given, wanted)]
        reason = f"its columns are {shown[0]}, and not {shown[1]}, nor those of an earlier schema"
    raise Code.SOURCE_NOT_ATTACHABLE(f"cannot attach {name}: {reason}. Import it instead", name=name)


def _in_seconds(stored: pa.RecordBatch, schema: Schema, name: str) -> pa.RecordBatch:
    """Return the rows in the schema's types. Parquet has no seconds, so it stores such times in milliseconds."""
    columns = []
    for column, field in zip(stored.columns, schema.fields, strict=True):
        try:
            columns.append(validity.as_stored(column, field.stored_type))
        except pa.ArrowInvalid as error:
            raise Code.VALUE_NOT_REPRESENTABLE(
                f"cannot attach {name}: column {field.name} is {column.type} and holds a value that {field.type} "
                f"cannot represent ({error})",
                column=field.name,
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _check_values(batch: pa.RecordBatch, before: int, name: str) -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        bad = validity.invalid(column)
        if bad is not None:
            row = pc.index(bad, value=True).as_py()
            raise Code.VALUE_INVALID(
                f"{name}: column {field.name} is {field.type} and holds {validity.reason(column, row)}; row "
                f"{before + row}: {validity.shown(column, row)[:40]!r}. Correct the file, or import it with a "
                "quarantine",
                column=field.name,
                name=name,
                row=before + row,
            )


def _check_members(batch: pa.RecordBatch, schema: Schema, before: int, name: str) -> None:
    for field in schema.fields:
        lacking = validity.unfilled(batch.column(field.name), field.type) if field.has_required_members else None
        if lacking is not None:
            row = before + pc.index(lacking, value=True).as_py()
            raise Code.VALUE_NULL(
                f"{name} has a null in a member of {field.name} that is not nullable, in row {row}; fill it",
                column=field.name,
                row=row,
            )


def _check_nulls(batch: pa.RecordBatch, columns: Sequence[str], name: str) -> None:
    for column in columns:
        if batch.column(column).null_count:
            raise Code.VALUE_NULL(f"{name} has a null in {column}, which is not nullable", column=column)


def _bounded(metadata: Any) -> frozenset[str]:
    """Return the columns with statistics in the file, of row groups or of pages."""
    groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return frozenset(
        path_of(chunk)
        for chunk in chunks
        if chunk.has_column_index or (chunk.statistics is not None and chunk.statistics.has_min_max)
    )


def _check_floats(batch: pa.RecordBatch, keys: Sequence[str], bounded: Collection[str], name: str) -> None:
    """Refuse the zero and NaNs that are not those of keys, and every NaN in a column that is ``bounded``.

    Its statistics leave NaN out, and engines skip rows by them.
    """
    for column in batch.schema.names:
        values = batch.column(column)
        if not pa.types.is_floating(values.type):
            continue
        wrong = None
        if column in keys and not (raw(same_key(values)) == raw(values)).all():
            wrong = "a negative zero, or a NaN with a sign or a payload"
        elif column in bounded and pc.any(pc.is_nan(values)).as_py():
            wrong = "NaN, which the file's statistics of that column leave out"
        if wrong is not None:
            raise Code.VALUE_INVALID(
                f"cannot attach {name}: {'key ' * (column in keys)}column {column} holds {wrong}. Import it, which "
                "gives keys one zero and one NaN, or write the file without statistics of that column",
                column=column,
                name=name,
            )


def _check_sizes(stored: pa.RecordBatch, value_bytes_max: int, name: str) -> None:
    # A batch of more has one row.
    size = size_of(stored)
    if size > value_bytes_max and stored.num_rows == 1:
        raise Code.ROW_TOO_LARGE(
            f"{name} has a row of {size} bytes, and at most {value_bytes_max} are allowed: split its values, or raise "
            "the table's setting value_bytes_max",
            name=name,
        )


def _check_lengths(batch: pa.RecordBatch, schema: Schema, name: str) -> None:
    if all(field.width for field in schema.row_key):
        return
    longest = pc.max(pc.binary_length(schema.codec.encode_columns(batch))).as_py()
    if longest > KEY_BYTES_MAX:
        raise Code.KEY_TOO_LONG(
            f"{name} has a key of {longest} bytes when encoded; at most {KEY_BYTES_MAX} are allowed"
        )


def _check_order(batch: pa.RecordBatch, codec: KeyCodec, last: bytes | None, name: str, *, rows_before: int) -> bytes:
    """Return the key of the last row. Raises UsageError unless the keys ascend from ``last`` on."""
    keys = codec.encode_columns(batch)
    first_wrong = 0 if last is not None and keys[0].as_py() < last else -1
    if len(keys) > 1 and first_wrong < 0:
        first_wrong = pc.index(pc.less(keys[1:], keys[:-1]), value=True).as_py() + 1 or -1
    if first_wrong >= 0:
        by = ", ".join(field.name for field in codec.fields)
        raise Code.SOURCE_NOT_SORTED(
            f"{name} is not sorted by {by}: row {rows_before + first_wrong + 1} is below the one before it. Import it, "
            "which sorts it",
            name=name,
            row=rows_before + first_wrong + 1,
        )
    key: bytes = keys[-1].as_py()
    return key
