"""Writes rows as one local file: Parquet, CSV or JSON lines.

Binary is hex digits in CSV and JSON, and times are ISO 8601 (:mod:`lakebed.model.iso_times`). CSV has a header; a null
is empty and an empty text is ``""``. JSON has one object per line; nulls are omitted, and NaN and the infinities, which
JSON lacks, are null.

Errors: UsageError for a format that cannot represent the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa

from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.files.formats.json_lines import decode_array
from lakebed.files.parquet.sizes import gather
from lakebed.model.arrays import empty_batch
from lakebed.model.extension_values import texts_of_uuids
from lakebed.model.iso_times import has_expanded_years, may_expand
from lakebed.model.json_values import encode_array
from lakebed.model.type_names import JSON, UUID
from lakebed.model.types import is_binary, with_inner
from lakebed.storage.disk_space import scratch_folder, writing_to
from lakebed.upkeep.export.plan import FORMATS
from lakebed.upkeep.export.publication import LocalFile

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
