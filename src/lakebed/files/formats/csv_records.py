"""How a CSV file is read (:class:`CsvReading`), and its records by Python's parser.

The records are for errors: messages name lines, but Arrow's parser counts rows.

Also detects a file that ends within quotes. Arrow's parser accepts it: the rest is one value, and its rows would be
lost silently.

Rules. Lines count from 1, and a record with line breaks in quotes has the number of its first line. Each function reads
the file again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.files.formats.dialect import Dialect
from lakebed.files.formats.input_file import InputFile
from lakebed.files.formats.reading_options import ReadingOptions
from lakebed.files.formats.text_types import ColumnType
from lakebed.model.text_values import is_parsed
from lakebed.model.types import is_binary

_END_BYTES = 256


_LINE_CHARS_MAX = 64 * 1024 * 1024
"""Characters of a line in memory: longer than any that Arrow's parser accepts."""


@dataclass(frozen=True)
class CsvReading:
    """How to read a file. ``columns`` has the detected columns; ``given`` has the types that were not detected;
    ``quoted_nulls``: empty quotes are null. Values of columns in ``casts`` may have any form of their type.
    ``piece_bytes`` is about the size of the pieces that threads parse.
    """

    file: InputFile
    dialect: Dialect
    options: ReadingOptions
    columns: Mapping[str, ColumnType]
    given: Mapping[str, pa.DataType]
    rows: int
    whole: bool
    quoted_nulls: bool = False
    read: tuple[str, ...] | None = field(default=None)
    casts: frozenset[str] = frozenset()
    piece_bytes: int = 4 * 1024 * 1024

    @cached_property
    def nulls(self) -> tuple[str, ...]:
        """The texts that mean null."""
        found = self.options.nulls or sorted({word for one in self.columns.values() for word in one.nulls})
        return ("", *found)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the rows as they are read."""
        names = self.dialect.names if self.read is None else self.read
        return pa.schema([(name, self._read_as(name)) for name in names])

    def type_of(self, name: str) -> pa.DataType:
        """Return the type of a column: given, or detected."""
        return self.given.get(name) or self.columns[name].type

    def form_of(self, name: str) -> pa.DataType:
        """Return the type of a column as its texts are: times have no zone yet if the option gives them one."""
        kind = self.type_of(name)
        local = pa.types.is_timestamp(kind) and kind.tz and self.options.timezone
        return pa.timestamp(kind.unit) if local else kind

    def _read_as(self, name: str) -> pa.DataType:
        kind = self.type_of(name)
        if not (is_parsed(kind) or is_binary(kind)):
            return pa.string()
        zoned = pa.types.is_timestamp(kind) and kind.tz is None and self.options.timezone
        return pa.timestamp(kind.unit, "UTC") if zoned else kind


def _pieces_of(text: io.TextIOWrapper) -> Iterator[str]:
    """Return the lines of a text, which may be cut where they are longer than any row."""
    return iter(partial(text.readline, _LINE_CHARS_MAX), "")


def line_of(plan: CsvReading, row: int) -> int:
    """Return the line on which a row begins, counted from 1; rows count from 0."""
    for line, record in records(plan):
        if row < 0 or (row == 0 and record):
            return line
        row -= 1
    return 0


def records(plan: CsvReading) -> Iterator[tuple[int, list[str]]]:
    """Return the records that Arrow reads as rows, each with its first line."""
    encoding = plan.dialect.encoding
    with plan.file.open() as file, io.TextIOWrapper(file, encoding, "replace", newline="") as text:
        reader = csv.reader(_pieces_of(text), delimiter=plan.dialect.delimiter, quotechar=plan.dialect.quote)
        before, left = plan.file.lines_before(), int(plan.dialect.header)
        ended = before
        for record in reader:
            line, ended = ended + 1, before + reader.line_num
            if not record:
                continue
            if left:
                left -= 1
                continue
            yield line, record


def record_at(plan: CsvReading, row: int) -> tuple[int, list[str]]:
    """Return a row's line and cells; no line if the file cannot be read so far."""
    try:
        return next((found for index, found in enumerate(records(plan)) if index == row), (0, []))
    except (csv.Error, UnicodeError):
        return 0, []


def ends_in_quotes(plan: CsvReading, rows: pa.RecordBatch) -> bool:
    """Return whether the file ends within quotes. Arrow reads the rest as a value of the last column."""
    name = plan.dialect.names[-1]
    if name not in rows.schema.names or not rows.num_rows:
        return False
    kind = rows.schema.field(name).type
    if not pa.types.is_string(kind) and not pa.types.is_binary(kind):
        return False
    value = rows.column(name)[-1].as_buffer()
    if value is None or b"\n" not in value.to_pybytes():
        return False
    # Nearly all files whose last value has a line break end with the closing quote of that value.
    end = plan.file.ending(_END_BYTES).rstrip(b"\r\n\0 ")
    return not end.endswith(plan.dialect.quote.encode()) and bool(unclosed_line(plan))


def unclosed_line(plan: CsvReading) -> int:
    """Return the line on which a record with unclosed quotes begins; 0 if there is none."""
    with plan.file.open() as file, io.TextIOWrapper(file, plan.dialect.encoding, "replace", newline="") as text:
        lines = _pieces_of(text)
        reader = csv.reader(lines, delimiter=plan.dialect.delimiter, quotechar=plan.dialect.quote, strict=True)
        ended = 0
        try:
            for _ in reader:
                ended = reader.line_num
        except csv.Error as error:
            # Python limits the size of one value, which the rest of a file exceeds.
            return ended + 1 if "unexpected end" in str(error) or "field limit" in str(error) else 0
    return 0


def unclosed(plan: CsvReading, line: int) -> Error:
    """Return the error of a file that ends within quotes."""
    return Code.SOURCE_UNPARSABLE(
        f"{plan.file}, line {line + plan.file.lines_before():,}: quotes that begin in this row are not closed, so the "
        "rest of the file would be one value; close or double them, or say which character quotes (--quote)",
        source=str(plan.file),
    )
