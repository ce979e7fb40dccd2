"""Rows in key order as one local file for others to read: Parquet, CSV or lines of JSON.

Parquet files are as the table's own, so that they may be attached to one. CSV has a header; a null is empty and an
empty text is ``""``. JSON has an object a line; nulls are left out, binary is hex digits, and NaN and the infinities,
which JSON does not have, are null.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.export.plan import FORMATS
from lakebed.parquet.file_writer import as_schema, write_run
from lakebed.parquet.layout import Layout
from lakebed.parquet.sizes import gather
from lakebed.storage.scratch import scratch_folder, writing_to

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

_ONE_FILE_BYTES = 2**62
_JSON_ROWS, _JSON_BYTES_MAX, _JSON_SHARE = 500_000, 64 * 1024 * 1024, 8
"""Rows that the engine writes at once; they are there a few times, as rows and as text, beside those of the merge."""


@dataclass(frozen=True, slots=True)
class Written:
    """A local file, and its rows."""

    path: Path
    rows: int


def check_format(format: str, schema: Schema) -> str:
    """The name of a format that can hold the schema's rows. Raises UsageError."""
    if format not in FORMATS:
        raise Code.FORMAT_UNKNOWN(f"no format {format!r} to export to; there are: {', '.join(FORMATS)}", format=format)
    if format == "csv":
        for field in schema.fields:
            if (
                pa.types.is_nested(field.type)
                or pa.types.is_binary(field.type)
                or pa.types.is_fixed_size_binary(field.type)
            ):
                raise Code.TYPE_UNSUPPORTED(
                    f"CSV has no form for field {field.name} of type {field.type}: export parquet or json",
                    column=field.name,
                )
    return format


def write_export(  # noqa: PLR0913 - what, how, where, how much: each is the caller's to say
    batches: Iterable[pa.RecordBatch],
    format: str,
    layout: Layout,
    scratch: Path,
    *,
    rows_estimate: int,
    memory_limit_bytes: int,
) -> Written | None:
    """The rows as one file in the folder ``scratch``; no rows, no file. The caller owns it from then on."""
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
    """By the engine, some rows at a time: lines of JSON may be put one after another."""
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
