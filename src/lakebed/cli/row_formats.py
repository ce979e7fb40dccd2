"""The formats of ``--format``, in which rows and listings are printed for other programs.

Text formats (csv, json, jsonl, markdown) take encoded values, as :mod:`lakebed.model.json_values` has them; binary ones
(arrow, parquet) take Arrow batches with their types. All are written batch by batch to stdout, in bounded memory.
Records of a listing may be nested: in JSON they are as with ``--json``, elsewhere nested values are JSON text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lakebed.errors import Code
from lakebed.model.json_values import encode_array

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "jsonl", "markdown", "arrow", "parquet")
BINARY = ("arrow", "parquet")
"""Formats with a schema, and with an end."""


@runtime_checkable
class TypedBatches(Protocol):
    """Batches of one schema: a RecordBatchReader of Arrow, or the rows of a scan."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of each batch."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches."""


_QUOTED = re.compile(r'[",\r\n]')

Rows = list[Sequence[Any]]
"""Encoded rows of one batch."""


def check_terminal(row_format: str | None) -> None:
    """Raise UsageError for a binary format on a terminal."""
    if row_format in BINARY and sys.stdout.isatty():
        raise Code.ARGUMENT_INVALID(
            f"--format {row_format} is binary, and stdout is a terminal; redirect it (> rows.{row_format}), or choose "
            "table, csv, json, jsonl or markdown"
        )


def write_rows(row_format: str, batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> int:
    """Write rows in any format but table; binary ones need batches with a schema. Returns the number of rows."""
    if row_format in BINARY:
        assert isinstance(batches, TypedBatches)
        return _write_binary(row_format, batches)
    return _TEXT[row_format](_encoded(batches), names)


def write_records(row_format: str, records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Write the records of a listing, which are JSON values, in any format but table."""
    if row_format in BINARY:
        import pyarrow as pa

        columns = {name: _column([record.get(name) for record in records]) for name in names}
        _write_binary(row_format, pa.table(columns).to_reader())
    elif row_format == "jsonl":
        _write(f"{json_text(record)}\n" for record in records)
    else:
        _TEXT[row_format](iter([[[record.get(name) for name in names] for record in records]]), names)


def json_text(value: Any) -> str:
    """One line of strict JSON; requires what ``plain`` or ``encode_array`` gave."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def write_csv(batches: Iterator[Rows], names: Sequence[str]) -> int:
    """Write CSV with a heading; null is an empty cell, and the empty text is ``""``."""
    _write([_csv_row(names)])
    return _each(batches, lambda rows: _write(map(_csv_row, rows)))


def _write_json(batches: Iterator[Rows], names: Sequence[str]) -> int:
    """One array with an object for each row, a line each."""
    lead = "[\n"

    def write(rows: Rows) -> None:
        nonlocal lead
        sys.stdout.write(lead + ",\n".join(json_text(dict(zip(names, row, strict=True))) for row in rows))
        lead = ",\n"

    count = _each(batches, write)
    sys.stdout.write("[]\n" if lead == "[\n" else "\n]\n")
    return count


def _write_jsonl(batches: Iterator[Rows], names: Sequence[str]) -> int:
    return _each(batches, lambda rows: _write(f"{json_text(dict(zip(names, row, strict=True)))}\n" for row in rows))


def _write_markdown(batches: Iterator[Rows], names: Sequence[str]) -> int:
    _write([_markdown_row(names), _markdown_row(["---"] * len(names))])
    return _each(batches, lambda rows: _write(map(_markdown_row, rows)))


_TEXT: dict[str, Callable[[Iterator[Rows], Sequence[str]], int]] = {
    "csv": write_csv,
    "json": _write_json,
    "jsonl": _write_jsonl,
    "markdown": _write_markdown,
}


def _each(batches: Iterator[Rows], write: Callable[[Rows], object]) -> int:
    count = 0
    for rows in batches:
        if rows:
            write(rows)
            sys.stdout.flush()
            count += len(rows)
    return count


def _encoded(batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
    for batch in batches:
        yield list(zip(*map(encode_array, batch.columns), strict=True))


def _write(lines: Iterable[str]) -> None:
    # One write for each batch: a call for each line would take longer than the rows.
    sys.stdout.write("".join(lines if isinstance(lines, list) else list(lines)))


def _csv_row(row: Sequence[Any]) -> str:
    # Python's writer of CSV makes the same cell of null and of the empty text. An empty line would be no row.
    return (",".join(["" if value is None else _csv_cell(str(_in_csv(value))) for value in row]) or '""') + "\n"


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or _QUOTED.search(text) else text


def _in_csv(value: Any) -> Any:
    """An encoded value as a CSV or Markdown cell."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_text(value) if isinstance(value, dict | list) else value


def _markdown_row(values: Iterable[Any]) -> str:
    cells = ("" if value is None else str(_in_csv(value)) for value in values)
    return f"| {' | '.join(_markdown_cell(cell) for cell in cells)} |\n"


def _markdown_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r\n", "<br>").replace("\n", "<br>")


def _column(values: list[Any]) -> pa.Array:
    """An Arrow array of JSON values; nested values, and values of several types, become text."""
    import pyarrow as pa

    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int, float} or (len(kinds) == 1 and not kinds & {dict, list}):
        return pa.array(values)
    return pa.array([value if value is None or isinstance(value, str) else json_text(value) for value in values])


def _write_binary(row_format: str, reader: TypedBatches) -> int:
    import pyarrow as pa

    # A sink of Python's: Arrow would close the file descriptor.
    sink = pa.PythonFile(sys.stdout.buffer, mode="w")
    if row_format == "parquet":
        import pyarrow.parquet as pq

        writer = pq.ParquetWriter(sink, reader.schema)
    else:
        writer = pa.ipc.new_stream(sink, reader.schema)
    count = 0
    with writer:
        for batch in reader:
            writer.write_batch(batch)
            count += batch.num_rows
    sys.stdout.buffer.flush()
    return count
