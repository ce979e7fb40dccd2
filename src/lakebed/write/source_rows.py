"""Rows on their way into a table: a stream of batches, each with the source that it came from.

:func:`lakebed.write.python_data.open_stream` makes a stream of any Python object, and
:func:`lakebed.write.input_files.open_files` of files. :func:`conformed` makes its rows fit a table.

Core types: :class:`RowInput`, :class:`SourceRows`.

Rules. A stream is read once, batch by batch, and never collected. The batches of one source may differ in their types:
each is made to fit by itself. No I/O here.

Errors: those of the conformer, with the line of a text file; UsageError for a producer that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.files.parquet.sizes import BATCH_BYTES, slice_rows
from lakebed.model.foreign_errors import error_text, translate_errors

if TYPE_CHECKING:
    from lakebed.write.row_encoder import RowEncoder

BATCH_ROWS_MAX = 65_536
"""Larger batches are sliced, by rows and by bytes: a batch may be all rows of its producer, and they may be wide."""

WRITE = "write"
"""The source of rows that are given as a Python object."""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """A batch, the name of its source for errors, and the rows of the source that came before.

    ``line_of`` gives the line of a row of the source, counted from 0, if it is text.
    """

    batch: pa.RecordBatch
    source: str = WRITE
    rows_before: int = 0
    line_of: Callable[[int], int] | None = None


@dataclass(frozen=True, slots=True)
class RowInput:
    """``columns`` has the name of each source and its columns, as far as they are known before its rows are read.

    If it is ``untyped``, the sources have text in place of the table's types, and every field may be cast.
    """

    columns: tuple[tuple[str, pa.Schema], ...]
    rows: Iterator[SourceRows]
    untyped: bool = False

    @classmethod
    def of(cls, reader: pa.RecordBatchReader) -> RowInput:
        """Return the rows of an Arrow stream, whose producer may raise anything."""
        return cls.of_batches(reader.schema, _batches_of(reader))

    @classmethod
    def of_batches(cls, columns: pa.Schema, batches: Iterator[pa.RecordBatch], source: str = WRITE) -> RowInput:
        """Return the rows of batches that may differ in their types; ``columns`` are those of the first one."""
        return cls(((source, columns),), _with_row_numbers(batches, source))

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as an Arrow stream, with the types of the first columns. Later batches are cast to them."""
        source, schema = self.columns[0]

        def batches() -> Iterator[pa.RecordBatch]:
            for rows in self.rows:
                if rows.batch.schema.names != schema.names:
                    raise Code.COLUMN_MISSING(
                        f"{rows.source}: columns {', '.join(rows.batch.schema.names)}; {source} has "
                        f"{', '.join(schema.names)}, and all rows must have the same",
                        columns=rows.batch.schema.names,
                    )
                with translate_errors(partial(unread, rows.source)):
                    yield rows.batch.cast(schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


def conformed(stream: RowInput, encoder: RowEncoder) -> Iterator[pa.RecordBatch]:
    """Return the rows as the encoder makes them; the columns are checked before the first row is read."""
    for source, columns in stream.columns:
        encoder.check(columns, source)
    return (batch for rows in stream.rows for batch in conformed_rows(rows, encoder))


def conformed_rows(rows: SourceRows, encoder: RowEncoder) -> Iterator[pa.RecordBatch]:
    """Return the rows of a batch as the encoder makes them, in batches of bounded size."""
    before = rows.rows_before
    for piece in _pieces(rows.batch):
        try:
            yield encoder.conform(piece, rows.source, rows_before=before)
        except Error as error:
            named = _with_line(error, rows)
            if named is error:
                raise
            raise named from error.__cause__
        before += piece.num_rows


def _with_line(error: Error, rows: SourceRows) -> Error:
    """Return the error with the line of the row that it names, if there are lines."""
    row = error.facts.get("row")
    if rows.line_of is None or row is None:
        return error
    place = f"{rows.source}, line {rows.line_of(row):,}"
    return error.restated(error.message.replace(rows.source, place, 1))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    try:
        yield from slice_rows(batch, BATCH_BYTES, BATCH_ROWS_MAX)
    except (ValueError, IndexError):
        # An array has invalid offsets; the conformer says which.
        yield batch


def _with_row_numbers(batches: Iterator[pa.RecordBatch], source: str) -> Iterator[SourceRows]:
    before = 0
    for batch in batches:
        yield SourceRows(batch, source, before)
        before += batch.num_rows


def _batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        with translate_errors(partial(unread, "their source")):
            batch = next(reader, None)
        if batch is None:
            return
        yield batch


def unread(source: str, error: BaseException) -> Error:
    """Return the error of a producer of rows that failed."""
    code = Code.SOURCE_UNPARSABLE if isinstance(error, pa.ArrowInvalid) else Code.SOURCE_UNSUPPORTED
    return code(f"cannot read rows from {source}: {type(error).__name__}: {error_text(error)}")
