"""Encodes rows as bytes in the formats of other programs: JSON lines, a JSON array, CSV, an Arrow stream, Parquet.

Each function yields chunks: the beginning, each batch as it is consumed, and the end only after the last batch. So a
slow reader keeps one batch in memory, and truncated output lacks its end. The command line prints these chunks and the
service sends them.

JSON: values as in :mod:`lakebed.model.json_values`, one row per line. CSV: cells are quoted if needed, so that a null,
which is an empty cell, differs from an empty text; nested values are JSON. Source: RFC 4180. Exports write CSV files by
:mod:`lakebed.upkeep.export.run`, with the types and speed of Arrow's own writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.ipc import drained
from lakebed.model.json_values import encode_array, encode_rows, json_bytes

_JSON_ROWS = 4_096
"""Rows converted to Python values at a time."""

Chunks = Callable[[pa.Schema, Iterable[pa.RecordBatch]], Iterator[bytes]]


def json_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Return a line of JSON for each row. Raises UsageError, at the first chunk, if two columns have one name."""
    names = schema.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Code.COLUMN_DUPLICATE(f"two columns are named {', '.join(twice)}; give one of them another name with AS")
    for batch in batches:
        for begin in range(0, batch.num_rows, _JSON_ROWS):
            rows = batch.slice(begin, _JSON_ROWS)
            yield b"".join([json_bytes(dict(zip(names, row, strict=True))) + b"\n" for row in encode_rows(rows)])


def json_array(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Return an array of the same objects, with its closing bracket only after the last row."""
    return lines_as_array(json_lines(schema, batches))


def lines_as_array(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return an array of the values of JSON lines; each chunk has whole lines."""
    before = b"[\n"
    for lines in chunks:
        # A line break within a text is escaped.
        yield before + lines[:-1].replace(b"\n", b",\n")
        before = b",\n"
    yield b"\n]\n" if before == b",\n" else b"[]\n"


def csv_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Return a header, and a line for each row."""
    yield _csv([pa.array([name], _TEXT) for name in schema.names], 1)
    for batch in batches:
        if batch.num_rows:
            yield _csv(batch.columns, batch.num_rows)


_TEXT = pa.large_string()


def _csv(columns: list[pa.Array], rows: int) -> bytes:
    import pyarrow.compute as pc

    # An empty line would not be a row.
    null = "" if len(columns) > 1 else '""'
    cells = [pc.fill_null(_csv_cells(column), null) for column in columns or [pa.nulls(rows)]]
    lines = pc.binary_join_element_wise(*cells, pa.scalar(",", _TEXT)).to_pylist()
    return "".join([f"{line}\n" for line in lines]).encode()


def _csv_cells(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(_TEXT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = column.cast(_TEXT)
    else:
        values = encode_array(column)
        texts = pa.array([v if v is None or isinstance(v, str) else json_bytes(v).decode() for v in values], _TEXT)
    # Without quotes, the null of a JSON document would be read as a null.
    needs_quotes = pc.match_substring_regex(texts, r'^$|^null$|[",\r\n]')
    if not pc.any(needs_quotes).as_py():
        return texts
    quote = pa.scalar('"', _TEXT)
    doubled = pc.replace_substring(texts, pattern='"', replacement='""')
    return pc.if_else(needs_quotes, pc.binary_join_element_wise(quote, doubled, quote, pa.scalar("", _TEXT)), texts)


def arrow_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Return an Arrow IPC stream."""
    return drained(lambda sink: pa.ipc.new_stream(sink, schema), batches)


def parquet_file(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Return a Parquet file with a row group for each batch; without its footer it cannot be read."""
    import pyarrow.parquet as pq

    return drained(lambda sink: pq.ParquetWriter(sink, schema, compression="zstd"), batches)
