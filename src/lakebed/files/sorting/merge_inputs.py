"""The sorted files that a merge reads: writes spills, inspects formats, sizes, and the distribution of keys.

An input is a Parquet file or an Arrow IPC file, recognised by its first bytes. Its columns are matched by field id to
those of the schema or of an earlier schema of the table (:mod:`lakebed.model.state.transactions.schema_changes` says
what may differ).

Spills are Arrow IPC files with lz4. They take twice the disk of a data file, but reading one back costs half the CPU of
Parquet, and a reader holds one batch of it. Batches are therefore small: a merge holds a few of each input.

Dividing a merge into slices of keys requires the distribution of bytes over the key space. It is estimated by a sample
of rows, evenly spaced by bytes over all inputs. Statistics are not sufficient: they may be truncated or absent, and
cover one column each.

Core types: :class:`MergeInput`, :class:`GroupSpan`.

Rules. Local paths only. The caller owns a spill. A file is opened for each question and closed again, so that 1,000
inputs do not need 1,000 descriptors.

Errors: DamagedError for a file that cannot be opened as what it is, SchemaMismatchError for columns that do not fit,
StorageError for a file that cannot be read; each names the file.
"""

from __future__ import annotations

import itertools
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import Code, Error
from lakebed.files.parquet.row_groups import read_row_groups
from lakebed.files.parquet.sizes import decoded_rows, gather
from lakebed.model import types
from lakebed.model.field_ids import stored_id
from lakebed.model.files import WIDE_ROW_BYTES
from lakebed.model.keys import ALL_KEYS, EncodedRange, sorted_by
from lakebed.model.schema import Schema
from lakebed.storage.disk_space import writing_to

_FIRST_ROWS = 256
_FIRST_BYTES = 4 * 1024 * 1024
_SAMPLED_ROWS = 65_536
"""The most rows decoded at once for a sample."""
_GOLDEN = 0.618_033_988_749_895
_ARROW_MAGIC = b"ARROW1"


@dataclass(frozen=True, slots=True)
class MergeInput:
    """One sorted file. A reader holds at least ``batch_bytes`` of it.

    ``row_bytes`` is the size of a row in memory: the average of the row group with the widest rows. ``columns`` are the
    file's, one for each field of the schema; None for a field that the file was written without.
    """

    path: Path
    rows: int
    file_bytes: int
    row_bytes: int
    batch_bytes: int
    columns: tuple[pa.Field | None, ...]
    is_arrow: bool

    @property
    def is_wide(self) -> bool:
        """Whether it is a Parquet file with wide rows, which the engine must not read."""
        return not self.is_arrow and self.row_bytes >= WIDE_ROW_BYTES


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """One row group of a Parquet input."""

    item: MergeInput
    group: int
    rows: int
    file_bytes: int


def open_input(path: Path, schema: Schema) -> MergeInput:
    """Look at an input's metadata and first rows.

    Raises SchemaMismatchError if its columns cannot be read as the schema's, DamagedError if it is not a whole Parquet
    or Arrow file, StorageError if it cannot be read at all; each names the file.
    """
    try:
        with path.open("rb") as file:
            is_arrow = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        return _open_arrow(path, schema) if is_arrow else _open_parquet(path, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, EOFError) as error:
        raise damaged(path, error) from error
    except OSError as error:
        if error.errno is None:
            # Arrow reports a file that ends too soon as an OSError without a number.
            raise damaged(path, error) from error
        raise Code.TEMPORARY_STORAGE_FAILED(
            f"cannot read {path}: {error.strerror}", name=str(path), errno=error.errno
        ) from error


def damaged(path: Path, reason: object) -> Error:
    """Return the error for an input whose bytes are not those that were written."""
    if "UTF8" in str(reason):
        # The bytes are those that were written, by a version that accepted any.
        remedy = "It was written before such text was refused: run `lakebed table repair` on its table"
    else:
        remedy = "Fetch or restore it, then run the merge again"
    return Code.SOURCE_DAMAGED(f"{path} is damaged: {reason}. {remedy}", name=str(path))


def read_through(path: Path, schema: Schema) -> None:
    """Read all of an input, checking page CRCs. Raises DamagedError naming the file if that fails."""
    try:
        if open_input(path, schema).is_arrow:
            with pa.memory_map(str(path)) as source:
                reader = pa.ipc.open_file(source)
                for index in range(reader.num_record_batches):
                    reader.get_batch(index).validate(full=True)
        else:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                for batch in file.iter_batches(use_threads=False):
                    batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error


def put_into_arrow(item: MergeInput, schema: Schema, key_range: EncodedRange | None, path: Path) -> MergeInput:
    """Copy a Parquet input into an Arrow file at ``path``: all columns, and the rows that may be in the range.

    Rows are decoded in bounded memory, whatever their size. Raises DamagedError, and StorageError for a full disk.
    """
    try:
        groups = [span.group for span in spans([item], schema, key_range)]
        with pa.OSFile(str(item.path)) as source:
            stored = pq.read_schema(source)
            # A page may be as large as a row that the table once allowed.
            rows = map(decoded_rows, read_row_groups(source, str(item.path), groups, pages_bytes=sys.maxsize))
            # Arrow's reader drops the field ids of dictionary columns.
            write_spill((pa.RecordBatch.from_arrays(batch.columns, schema=stored) for batch in rows), stored, path)
    except (pa.ArrowException, OSError) as error:
        raise damaged(item.path, error) from error
    return replace(open_input(path, schema), row_bytes=item.row_bytes)


def spans(inputs: Sequence[MergeInput], schema: Schema, key_range: EncodedRange | None) -> list[GroupSpan]:
    """Return the row groups of Parquet inputs that may hold keys of the range; all of them without one.

    A group ends where the next one of its file begins, so only the first row of each is read.
    """
    selected: list[GroupSpan] = []
    for item in inputs:
        with pq.ParquetFile(item.path, memory_map=True) as file:
            every = (_span(item, file.metadata.row_group(index), index) for index in range(file.num_row_groups))
            # An attached file may have row groups without a row.
            groups = [span for span in every if span.rows]
            if key_range is None or key_range == ALL_KEYS or len(groups) == 1:
                selected += groups
                continue
            firsts = [_first_key(file, span, schema) for span in groups]
        for index, span in enumerate(groups):
            ends_below = index + 1 < len(groups) and firsts[index + 1] < key_range.min
            if not ends_below and (key_range.max is None or firsts[index] < key_range.max):
                selected.append(span)
    return selected


def first_keys(item: MergeInput, schema: Schema) -> list[tuple[GroupSpan, bytes]]:
    """Return the row groups of a Parquet input that have rows, each with the row key of its first row, encoded."""
    with pq.ParquetFile(item.path, memory_map=True) as file:
        groups = (_span(item, file.metadata.row_group(index), index) for index in range(file.num_row_groups))
        return [(span, _first_key(file, span, schema)) for span in groups if span.rows]


def sample(places: Sequence[GroupSpan], schema: Schema, step_bytes: int, decoded_rows: int = _SAMPLED_ROWS) -> pa.Table:
    """Return the sort columns of about one row for every ``step_bytes`` of the row groups, in sort order.

    Rows are taken from all over the groups, not at their heads: files of equal layout begin at the same keys. Each step
    gives one row, at a fraction of the step that follows the golden ratio: deterministic, and not in phase with any
    regular layout. At most ``decoded_rows`` are decoded at once.
    """
    rows = []
    position, number, target = 0, 0, step_bytes / 2
    for item, group in itertools.groupby(places, key=lambda span: span.item):
        with pq.ParquetFile(item.path, memory_map=True) as file:
            for span in group:
                offsets = []
                while target < position + span.file_bytes:
                    offset = int((target - position) * span.rows / span.file_bytes)
                    offsets.append(max(0, min(offset, span.rows - 1)))
                    number += 1
                    target = (number + (number * _GOLDEN) % 1.0) * step_bytes
                rows += _rows_at(file, span, offsets, schema, decoded_rows)
                position += span.file_bytes
    if not rows:
        return schema.arrow_of(schema.sort_names).empty_table()
    table = pa.Table.from_batches(rows).combine_chunks()
    return sorted_by(table, schema.sort_names)


def _span(item: MergeInput, group: Any, index: int) -> GroupSpan:
    size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
    return GroupSpan(item, index, group.num_rows, max(1, size))


def _first_key(file: pq.ParquetFile, span: GroupSpan, schema: Schema) -> bytes:
    """Return the row key of the first row of a row group, encoded."""
    return schema.codec.encode_row(_rows_at(file, span, [0], schema, 1)[0], 0)


def _rows_at(
    file: pq.ParquetFile, span: GroupSpan, offsets: Sequence[int], schema: Schema, decoded_rows: int
) -> list[pa.RecordBatch]:
    """Return the sort columns of the rows at ascending offsets of a row group, decoding keys once, up to the last."""
    if not offsets:
        return []
    keys = (*schema.row_key, *schema.sort_key)
    stored = [column.name for column in span.item.columns[: len(keys)] if column is not None]
    count = max(1, min(offsets[-1] + 1, decoded_rows, _FIRST_BYTES // span.item.row_bytes))
    batches = []
    begin = taken = 0
    for batch in file.iter_batches(count, row_groups=[span.group], columns=stored, use_threads=False):
        end = begin + batch.num_rows
        until = bisect_left(offsets, end, taken)
        positions = pa.array([offset - begin for offset in offsets[taken:until]], pa.int64())
        # take() copies; a slice would keep its whole batch.
        columns = [batch.column(name).take(positions).cast(key.type) for name, key in zip(stored, keys, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(columns, names=list(schema.sort_names)))
        begin, taken = end, until
        if taken == len(offsets):
            break
    return batches


def _open_parquet(path: Path, schema: Schema) -> MergeInput:
    with pq.ParquetFile(path, memory_map=True) as file:
        columns = _columns_of_fields(file.schema_arrow, schema, path)
        metadata = file.metadata
        rows = metadata.num_rows
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        with_rows = [index for index, group in enumerate(groups) if group.num_rows]
        widest = max((groups[index].total_byte_size // groups[index].num_rows for index in with_rows), default=1)
        # These are of the first row group alone; the rows of another may be much wider.
        count = max(1, min(_FIRST_ROWS, _FIRST_BYTES // max(1, widest)))
        first = next(file.iter_batches(count, row_groups=with_rows[:1], use_threads=False), None) if with_rows else None
    row_bytes = 1 if first is None else max(1, widest, first.nbytes // first.num_rows)
    return MergeInput(
        path, rows, path.stat().st_size, row_bytes, batch_bytes=row_bytes, columns=columns, is_arrow=False
    )


def _open_arrow(path: Path, schema: Schema) -> MergeInput:
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        columns = _columns_of_fields(reader.schema, schema, path)
        count = reader.num_record_batches
        first = reader.get_batch(0) if count else None
        last_rows = reader.get_batch(count - 1).num_rows if count > 1 else 0
    if first is None:
        return MergeInput(path, 0, path.stat().st_size, row_bytes=1, batch_bytes=1, columns=columns, is_arrow=True)
    # Exact for one or two batches; otherwise nearly exact, because batches are of one size.
    rows = first.num_rows * max(1, count - 1) + last_rows
    row_bytes = max(1, first.nbytes // max(1, first.num_rows))
    batch_bytes = max(1, first.nbytes)
    return MergeInput(
        path, rows, path.stat().st_size, row_bytes, batch_bytes=batch_bytes, columns=columns, is_arrow=True
    )


def _columns_of_fields(stored: pa.Schema, schema: Schema, path: Path) -> tuple[pa.Field | None, ...]:
    """Return the column of each field of the schema, by field id; None for a field that was added after the file."""
    by_id = {stored_id(column): column for column in stored}
    columns = tuple(by_id.get(field.id) for field in schema.fields)
    missing = [f.name for f, column in zip(schema.fields, columns, strict=True) if column is None and not f.nullable]
    if missing:
        raise Code.COLUMN_MISSING(
            f"{path}: missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
            "a sorted file of this table has them, with their field ids",
            columns=missing,
            source=str(path),
        )
    for field, column in zip(schema.fields, columns, strict=True):
        kind = field.stored_type
        if column is None or types.nullable_members(column.type) in (kind, types.in_parquet(kind)):
            continue
        if not types.can_become(column.type, field.type):
            raise Code.COLUMN_TYPE_MISMATCH(
                f"{path}: column {column.name} is {column.type}; a sorted file of this table has {field.type}",
                column=field.name,
                source=str(path),
                found=str(column.type),
                expected=str(field.type),
            )
    return columns


# -- spills -------------------------------------------------------------------------------------------------------


BATCH_ROWS_MAX = 8192
BATCH_BYTES_MAX = 1024 * 1024


def arrow_options() -> pa.ipc.IpcWriteOptions:
    """lz4, on the calling thread."""
    return pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def write_spill(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path) -> Path:
    """Write batches to one Arrow IPC file. Raises StorageError if there is no room."""
    with writing_to(path.parent):
        writer = pa.ipc.new_file(path, schema, options=arrow_options())
    try:
        for batch in batches_of(batches):
            with writing_to(path.parent):
                writer.write_batch(batch)
    finally:
        with writing_to(path.parent):
            writer.close()
    return path


def batches_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows in batches of the size that a reader of a spill holds."""
    for rows in gather(batches, BATCH_ROWS_MAX, BATCH_BYTES_MAX):
        yield rows.combine_chunks().to_batches()[0]
