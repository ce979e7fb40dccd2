"""Converts columns of CSV that Arrow's parser returns as other types: binary, times of a zone, times with expanded
years, and numbers with a decimal comma that it does not parse. Reads the file again only for the line of an error.

Errors: :func:`unfit` makes the SchemaMismatchError of a value, with its file, line and column, and the remedy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, Error
from lakebed.formats.csv_records import line_of
from lakebed.model.iso_times import times_of_texts
from lakebed.model.types import is_binary

if TYPE_CHECKING:
    from lakebed.formats.csv_file import CsvReading
    from lakebed.formats.reading_options import ReadingOptions

_HEX = r"\A([0-9a-fA-F]{2})*\z"
_LOCAL_NUMBER = re.compile(r"[+-]?\d[\d.,' ]*")


def converted(batch: pa.RecordBatch, plan: CsvReading, rows_before: int) -> pa.RecordBatch:
    """Convert the columns that Arrow's parser returned as others."""
    columns = []
    for read_as, column in zip(plan.schema, batch.columns, strict=True):
        if plan.has_commas(read_as.name):
            columns.append(_from_commas(column, plan, read_as.name, rows_before))
        elif read_as.type == column.type:
            columns.append(column)
        elif is_binary(read_as.type):
            columns.append(_from_hex(column, plan, read_as, rows_before))
        else:
            times = _from_iso(column, plan, read_as, rows_before) if pa.types.is_string(column.type) else column
            columns.append(times if times.type == read_as.type else _in_zone(times, plan, read_as))
    return pa.RecordBatch.from_arrays(columns, schema=plan.schema)


def _in_zone(column: pa.Array, plan: CsvReading, read_as: pa.Field) -> pa.Array:
    try:
        return pc.assume_timezone(column, plan.options.timezone).cast(read_as.type)
    except pa.ArrowInvalid as error:
        text, name = str(error).splitlines()[0], read_as.name
        raise Code.VALUE_NOT_REPRESENTABLE(f"{plan.file}, column {name}: {text}", column=name) from error


def _from_iso(column: pa.Array, plan: CsvReading, read_as: pa.Field, rows_before: int) -> pa.Array:
    """Return the times of a column that was read as text. Raises SchemaMismatchError for other text."""
    local = pa.types.is_timestamp(read_as.type) and plan.options.timezone
    kind = pa.timestamp(read_as.type.unit) if local else read_as.type
    texts = pc.utf8_trim_whitespace(column)
    try:
        return times_of_texts(texts, kind)
    except pa.ArrowInvalid as error:
        place = next(place for place in range(len(texts)) if not _are_times(texts.slice(place, 1), kind))
        row = rows_before + place
        where = f"{plan.file}, line {line_of(plan, row):,}"
        raise unfit(plan, read_as.name, column[place].as_py(), where=where, row=row, text=str(error)) from error


def _are_times(texts: pa.Array, kind: pa.DataType) -> bool:
    try:
        times_of_texts(texts, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _from_commas(column: pa.Array, plan: CsvReading, name: str, rows_before: int) -> pa.Array:
    """Return numbers as text with a decimal point, for the conformer. Raises SchemaMismatchError if one has a point."""
    if (place := pc.index(pc.match_substring(column, "."), True).as_py()) >= 0:
        row = rows_before + place
        where = f"{plan.file}, line {line_of(plan, row):,}"
        raise unfit(plan, name, column[place].as_py(), where=where, row=row, text="")
    return pc.replace_substring(column, pattern=",", replacement=".")


def _from_hex(column: pa.Array, plan: CsvReading, read_as: pa.Field, rows_before: int) -> pa.Array:
    """Return the bytes of hex digits. Raises SchemaMismatchError for other text."""
    kind, name = read_as.type, read_as.name
    fits = pc.match_substring_regex(column, _HEX)
    if pa.types.is_fixed_size_binary(kind):
        fits = pc.and_(fits, pc.equal(pc.binary_length(column), 2 * kind.byte_width))
    if (place := pc.index(fits, False).as_py()) >= 0:
        value = column.cast(pa.binary())[place].as_py().decode(errors="replace")
        row = rows_before + place
        raise Code.VALUE_NOT_REPRESENTABLE(
            f"{plan.file}, line {line_of(plan, row):,}, column {name}: {value[:80]!r} is not {kind} in hex digits, two "
            f"for each byte; if bytes stand there as text, read it as such (--type {name}=string)",
            column=name,
            source=str(plan.file),
            row=row,
        )
    return pa.array([None if text is None else bytes.fromhex(text) for text in column.to_pylist()], kind)


def unfit(  # noqa: PLR0913 - a value, its place, and the parser's reason
    plan: CsvReading, name: str, value: str, *, where: str, row: int, text: str
) -> Error:
    """Return the error of a value that is not of its column's type."""
    kind = plan.type_of(name)
    if name in plan.given:
        form = _other_form(value, kind, plan.options)
        remedy = f"correct it{form}, or say that it stands for null (--null {value!r})"
    else:
        remedy = f"the type was detected from the first {plan.rows:,} rows: give another (--type {name}=string)"
    return Code.VALUE_NOT_REPRESENTABLE(
        f"{where}, column {name}: {value[:80]!r} is not {kind}{_because(text)}; {remedy}",
        column=name,
        source=str(plan.file),
        row=row,
    )


def _other_form(value: str, kind: pa.DataType, options: ReadingOptions) -> str:
    """Return what else to do about a value that may be right in another form: a local date, a decimal comma."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        if options.date_format:
            return f" (it is neither of the format {options.date_format!r} nor ISO 8601)"
        return ", give the format of dates and times (--date-format, such as %d.%m.%Y)"
    if _LOCAL_NUMBER.fullmatch(value) and not pa.types.is_boolean(kind) and not pa.types.is_time(kind):
        if options.decimal_point == ",":
            return " (a number has a decimal comma and no separators of thousands)"
        comma = "; --decimal-point , reads decimal commas" if "," in value else ""
        return f" (a number has a decimal point and no separators of thousands{comma})"
    return ""


def _because(text: str) -> str:
    return (
        " (the fraction is too fine)"
        if "Rescaling" in text
        else " (it has no time zone)"
        if "zone offset" in text
        else ""
    )
