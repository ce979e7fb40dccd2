"""The sorted files that a merge reads: what they are, how large, and where their keys lie.

An input is a Parquet file (told by its first bytes, not by its name) or an Arrow IPC file. Its columns must be the
schema's; anything that cannot be opened is damaged, and the error names the file.

To cut a merge into slices of keys one must know where in the key space its bytes lie. The first row of every row
group tells: it is read with one page per key column, and stands for the bytes of its group. Row groups that are very
large tell too little, so there the keys are read and every 131,072nd row is taken.

Local paths only; a file is opened for each question and closed again, so 1,000 inputs need no 1,000 descriptors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import DamagedError, SchemaMismatchError, StorageError
from lakebed.keys import EncodedRange
from lakebed.schema import Schema, check_columns

HEAD_ROWS = 131_072

_SAMPLE_ROWS = 256
_ARROW_MAGIC = b"ARROW1"


@dataclass(frozen=True, slots=True)
class Input:
    """One sorted file. A row takes ``row_bytes`` in memory; a reader holds ``batch_bytes`` of it at the least."""

    path: Path
    rows: int
    file_bytes: int
    row_bytes: int
    batch_bytes: int
    is_arrow: bool


def open_input(path: Path, schema: Schema) -> Input:
    """Look at an input's metadata and first rows.

    Raises SchemaMismatchError if its columns are not the schema's, DamagedError if it is not a whole Parquet or Arrow
    file, StorageError if it cannot be read at all; each names the file.
    """
    try:
        with path.open("rb") as file:
            is_arrow = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        return _open_arrow(path, schema) if is_arrow else _open_parquet(path, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, EOFError) as error:
        raise damaged(path, error) from error
    except OSError as error:
        if error.errno is None:
            # Arrow reports a file that ends too soon as an input error without a number.
            raise damaged(path, error) from error
        raise StorageError(f"cannot read {path}: {error.strerror}", name=str(path), errno=error.errno) from error


def damaged(path: Path, reason: object) -> DamagedError:
    """The error for an input whose bytes are not those that were written."""
    return DamagedError(f"{path} is damaged: {reason}. Fetch or restore it, then run the merge again", name=str(path))


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


def heads(inputs: Sequence[Input], schema: Schema, key_range: EncodedRange | None) -> tuple[pa.Table, list[int]]:
    """Sorted rows of key columns inside the range, and for each the file bytes that begin with it."""
    tables, weights = [], []
    for item in inputs:
        for row, weight in _heads_of(item, schema):
            tables.append(row)
            weights.append(weight)
    if not tables:
        return pa.schema([field.arrow for field in (*schema.row_key, *schema.sort_key)]).empty_table(), []
    table = pa.Table.from_batches(tables).combine_chunks().append_column("", pa.array(weights, pa.int64()))
    if key_range is not None:
        keys = schema.codec.encode_columns(table.select(schema.row_key_names)).to_pylist()
        table = table.filter(pa.array([key_range.contains(key) for key in keys]))
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in schema.sort_names])
    table = table.take(order)
    return table.drop_columns([""]), table.column("").to_pylist()


def _heads_of(item: Input, schema: Schema) -> Iterator[tuple[pa.RecordBatch, int]]:
    names = list(schema.sort_names)
    with pq.ParquetFile(item.path, memory_map=True) as file:
        for index in range(file.num_row_groups):
            group = file.metadata.row_group(index)
            group_bytes = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            parts = max(1, group.num_rows // HEAD_ROWS)
            size = 1 if parts == 1 else HEAD_ROWS
            batches = file.iter_batches(batch_size=size, row_groups=[index], columns=names, use_threads=False)
            for _part, batch in zip(range(parts), batches, strict=False):
                row = batch.slice(0, 1).select(names)
                fields = [row.column(name).cast(schema.arrow.field(name).type) for name in names]
                # Copied: a slice would keep its whole batch.
                yield pa.RecordBatch.from_arrays(fields, names=names).take(pa.array([0])), group_bytes // parts


def _open_parquet(path: Path, schema: Schema) -> Input:
    with pq.ParquetFile(path, memory_map=True) as file:
        _check_columns(file.schema_arrow, schema, path)
        metadata = file.metadata
        rows = metadata.num_rows
        encoded = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        first = next(file.iter_batches(batch_size=_SAMPLE_ROWS, use_threads=False), None) if rows else None
    row_bytes = 1 if first is None else max(1, encoded // rows, first.nbytes // first.num_rows)
    return Input(path, rows, path.stat().st_size, row_bytes, batch_bytes=row_bytes, is_arrow=False)


def _open_arrow(path: Path, schema: Schema) -> Input:
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        _check_columns(reader.schema, schema, path)
        count = reader.num_record_batches
        first = reader.get_batch(0) if count else None
        last_rows = reader.get_batch(count - 1).num_rows if count > 1 else 0
    if first is None:
        return Input(path, 0, path.stat().st_size, row_bytes=1, batch_bytes=1, is_arrow=True)
    # Exact for one or two batches; else an estimate, which batches of one size make nearly exact.
    rows = first.num_rows * max(1, count - 1) + last_rows
    row_bytes = max(1, first.nbytes // max(1, first.num_rows))
    return Input(path, rows, path.stat().st_size, row_bytes, batch_bytes=max(1, first.nbytes), is_arrow=True)


def _check_columns(found: pa.Schema, schema: Schema, path: Path) -> None:
    check_columns(found, schema, str(path))
    for field in schema.fields:
        kind = found.field(field.name).type
        if kind != field.type:
            raise SchemaMismatchError(
                f"{path}: column {field.name} is {kind}; a sorted file of this table has {field.type}",
                column=field.name,
                source=str(path),
                found=str(kind),
                expected=str(field.type),
            )
