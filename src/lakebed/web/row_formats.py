"""The formats of rows in answers: JSON lines or a list, an Arrow stream, CSV and Parquet, made batch by batch.

Core types: :class:`RowFormat`. :func:`chosen_format` finds the one that an ``Accept`` header wants. Each format encodes
a batch when it is asked for the next chunk, so a reader that is slow holds one batch.

JSON: as :mod:`lakebed.model.json_values` has values. CSV: text in double quotes, so that a null, which is an empty
cell, is not an empty text; nested values and binary as in JSON. Errors: an HTTPException with 406.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from litestar.exceptions import HTTPException

from lakebed.model.ipc import drained
from lakebed.model.json_values import encode_array

JSON_ROWS = 4_096
"""Rows that are Python values at a time."""

_JSON = msgspec.json.Encoder()

Chunks = Callable[[pa.Schema, Iterable[pa.RecordBatch]], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How rows are sent. ``chunks`` makes the bytes of a schema and its batches."""

    media_type: str
    chunks: Chunks


def encode_rows(rows: pa.RecordBatch) -> bytes:
    """A line of JSON for each row."""
    names = rows.schema.names
    columns = [encode_array(column) for column in rows.columns]
    if not columns:
        return b"{}\n" * int(rows.num_rows)
    return bytes(_JSON.encode_lines([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]))


def json_lines(_: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """A line of JSON for each row."""
    for batch in batches:
        for begin in range(0, batch.num_rows, JSON_ROWS):
            yield encode_rows(batch.slice(begin, JSON_ROWS))


def json_array(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """A list of the same objects, with its bracket at the end after the last row only."""
    before = b"[\n"
    for lines in json_lines(schema, batches):
        # A line break within a text is escaped.
        yield before + lines[:-1].replace(b"\n", b",\n")
        before = b",\n"
    yield b"\n]\n" if before == b",\n" else b"[]\n"


def arrow_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """An Arrow IPC stream, with its end after the last batch only."""
    return drained(lambda sink: pa.ipc.new_stream(sink, schema), batches)


def parquet_file(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """A Parquet file, a row group for each batch; without its footer it cannot be read."""
    import pyarrow.parquet as pq

    return drained(lambda sink: pq.ParquetWriter(sink, schema, compression="zstd"), batches)


def csv_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """A heading, and a line for each row."""
    from pyarrow import csv

    kinds = [field.type if _is_plain(field.type) else pa.string() for field in schema]
    written = pa.schema([pa.field(name, kind) for name, kind in zip(schema.names, kinds, strict=True)])

    def texts(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [_texts(c) if c.type != kind else c for c, kind in zip(batch.columns, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=written)

    return drained(lambda sink: csv.CSVWriter(sink, written), map(texts, batches))


def _is_plain(kind: pa.DataType) -> bool:
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(numeric or pa.types.is_boolean(kind) or pa.types.is_string(kind))


def _texts(column: pa.Array) -> pa.Array:
    values = encode_array(column)
    return pa.array([v if v is None or isinstance(v, str) else _JSON.encode(v).decode() for v in values], pa.string())


JSON_LINES = RowFormat("application/x-ndjson", json_lines)
JSON_ARRAY = RowFormat("application/json", json_array)
ARROW = RowFormat("application/vnd.apache.arrow.stream", arrow_stream)
CSV = RowFormat("text/csv", csv_lines)
PARQUET = RowFormat("application/vnd.apache.parquet", parquet_file)

FORMATS = (JSON_LINES, JSON_ARRAY, ARROW, CSV, PARQUET)
_BY_NAME = {one.media_type: one for one in FORMATS} | {"application/jsonl": JSON_LINES}


def chosen_format(accept: str | None) -> RowFormat:
    """The format that the header prefers; JSON lines without one, and where it accepts anything.

    Raises HTTPException with status 406 if it accepts none.
    """
    if accept is None or accept == "*/*":
        return JSON_LINES
    ranked = sorted(_accepted(accept), key=lambda one: -one[1])
    for name, quality in ranked:
        if quality > 0 and (found := _matching(name)) is not None:
            return found
    known = ", ".join(one.media_type for one in FORMATS)
    raise HTTPException(detail=f"cannot answer as {accept[:200]}; rows are sent as {known}", status_code=406)


def _accepted(accept: str) -> Iterator[tuple[str, float]]:
    """The media types of the header, each with its quality."""
    for part in accept.split(","):
        name, *parameters = (text.strip().lower() for text in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        yield name, quality


def _matching(name: str) -> RowFormat | None:
    if name in ("*/*", "application/*"):
        return JSON_LINES
    return CSV if name == "text/*" else _BY_NAME.get(name)
