"""The formats of ``--format``, in which rows and listings are printed for other programs.

All are written to stdout chunk by chunk, in bounded memory, as :mod:`lakebed.files.formats.row_chunks` makes them;
Markdown, which only people read, is made here. Records of a listing may be nested: in JSON they are as with
``--json``, elsewhere nested values are JSON text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.model.json_values import encode_rows, json_bytes, json_text

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.files.formats.row_chunks import Chunks

FORMATS = ("table", "csv", "json", "jsonl", "markdown", "arrow", "parquet")
BINARY = ("arrow", "parquet")
"""Formats with an end."""


def check_terminal(row_format: str | None) -> None:
    """Raise UsageError for a binary format on a terminal."""
    if row_format in BINARY and sys.stdout.isatty():
        raise Code.ARGUMENT_INVALID(
            f"--format {row_format} is binary, and stdout is a terminal; redirect it (> rows.{row_format}), or choose "
            "table, csv, json, jsonl or markdown"
        )


def write_rows(row_format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows in any format but table. Returns their number."""
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches:
            yield batch
            rows += batch.num_rows

    _write(row_format, _chunks(row_format)(schema, counted()))
    return rows


def write_records(row_format: str, records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Write the records of a listing, which are JSON values, in any format but table."""
    from lakebed.files.formats.row_chunks import lines_as_array

    lines = (json_bytes(record) + b"\n" for record in records)
    match row_format:
        case "jsonl":
            _write(row_format, lines)
        case "json":
            _write(row_format, lines_as_array(lines))
        case _:
            import pyarrow as pa

            rows = pa.table({name: _column([record.get(name) for record in records]) for name in names})
            write_rows(row_format, rows.schema, rows.to_batches())


def _chunks(row_format: str) -> Chunks:
    from lakebed.files.formats import row_chunks

    return {
        "csv": row_chunks.csv_lines,
        "json": row_chunks.json_array,
        "jsonl": row_chunks.json_lines,
        "markdown": _markdown,
        "arrow": row_chunks.arrow_stream,
        "parquet": row_chunks.parquet_file,
    }[row_format]


def _write(row_format: str, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        if row_format in BINARY:
            sys.stdout.buffer.write(chunk)
        else:
            sys.stdout.write(chunk.decode())
        sys.stdout.flush()


def _markdown(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    names = schema.names
    yield (_markdown_row(names) + _markdown_row(["---"] * len(names))).encode()
    for batch in batches:
        yield "".join(map(_markdown_row, encode_rows(batch))).encode()


def _markdown_row(values: Iterable[Any]) -> str:
    texts = ("" if v is None else v if isinstance(v, str) else json_text(v) for v in values)
    return f"| {' | '.join(map(_markdown_cell, texts))} |\n"


def _markdown_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r\n", "<br>").replace("\n", "<br>")


def _column(values: list[Any]) -> pa.Array:
    """Return an Arrow array of JSON values; nested values, and values of several types, become text."""
    import pyarrow as pa

    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int, float} or (len(kinds) == 1 and not kinds & {dict, list}):
        return pa.array(values)
    return pa.array([value if value is None or isinstance(value, str) else json_text(value) for value in values])
