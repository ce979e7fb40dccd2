"""Converts rows of CSV, read as text, to the types of their columns, by :mod:`lakebed.model.text_values`.

Rules. Blanks around a value do not count, except in text. A value has the form by which its type is detected
(:func:`lakebed.files.formats.text_types.usual_values`), whether it was or not, unless its field is to be cast. The
file is read again only for the line of an error.

Errors: SchemaMismatchError names the file, the line, the column, the value and the remedy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, Error
from lakebed.files.formats.csv_records import line_of, unclosed, unclosed_line
from lakebed.files.formats.text_types import is_typed, is_zoneless, times_of_format, usual_values
from lakebed.model.text_values import values_of_texts
from lakebed.model.types import is_binary, is_number

if TYPE_CHECKING:
    from lakebed.files.formats.csv_file import CsvReading
    from lakebed.files.formats.reading_options import ReadingOptions

_HEX = r"\A([0-9a-fA-F]{2})*\z"
_LOCAL_NUMBER = re.compile(r"[+-]?\d[\d.,' ]*")


class _UnfitError(Exception):
    """A text that is no value of its column."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


class _OtherFormError(_UnfitError):
    """A text that only a cast takes."""


def converted(texts: pa.RecordBatch, plan: CsvReading) -> pa.RecordBatch | None:
    """Return rows of text, of which some columns may be converted, with the types of the file's columns; None if a text
    does not fit.
    """
    try:
        columns = [_values(column, plan, name) for name, column in zip(texts.schema.names, texts.columns, strict=True)]
    except _UnfitError:
        return None
    return pa.RecordBatch.from_arrays(columns, schema=plan.schema)


def typed(texts: pa.RecordBatch, plan: CsvReading, rows_before: int) -> pa.RecordBatch:
    """Return rows of text with the types of the file's columns. Raises SchemaMismatchError for a text that does not
    fit, with its line.
    """
    columns = []
    for name, column in zip(texts.schema.names, texts.columns, strict=True):
        try:
            columns.append(_values(column, plan, name))
        except _UnfitError as error:
            value = column.cast(pa.binary())[error.place].as_py().decode(errors="replace")
            raise _refusal(plan, name, value, rows_before, error) from error
    return pa.RecordBatch.from_arrays(columns, schema=plan.schema)


def _values(texts: pa.Array, plan: CsvReading, name: str) -> pa.Array:
    """Return the values of a column. Raises _UnfitError."""
    read_as = plan.schema.field(name).type
    if texts.type == read_as:
        return texts
    if is_binary(read_as):
        return _from_hex(texts, read_as)
    if plan.options.decimal_point == "," and is_number(read_as):
        _raise_first(pc.match_substring(texts, "."))
        texts = pc.replace_substring(texts, pattern=",", replacement=".")
    kind = plan.form_of(name)
    values, odd = _of_texts(texts, plan, kind)
    if values.null_count > texts.null_count:
        texts = _bare(texts, plan)
        values, odd = _of_texts(texts, plan, kind)
        _raise_first(pc.and_(pc.is_null(values), pc.is_valid(texts)))
    if name not in plan.casts:
        _raise_first(odd, _OtherFormError)
    return values if values.type == read_as else _in_zone(values, plan, name, read_as)


def _raise_first(wrong: pa.Array | None, fault: type[_UnfitError] = _UnfitError) -> None:
    """Raise the fault of the first text that is marked."""
    if wrong is not None and (place := pc.index(wrong, pa.scalar(value=True)).as_py()) >= 0:
        raise fault(place)


def _of_texts(texts: pa.Array, plan: CsvReading, kind: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Return the values, null for other text; and a mask of texts in another form than the usual one."""
    date_format = plan.options.date_format
    if date_format is None or not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return usual_values(texts, kind)
    is_date = pa.types.is_date32(kind)
    found = times_of_format(texts, date_format, "s" if is_date else kind.unit)
    if is_date:
        at_midnight = pc.equal(found, pc.floor_temporal(found, unit="day"))
        found = pc.if_else(at_midnight, found, pa.scalar(None, found.type)).cast(kind)
    elif (found.type.tz is None) != (kind.tz is None):
        return usual_values(texts, kind)
    missing = pc.if_else(pc.is_null(found), texts, pa.scalar(None, texts.type))
    return pc.coalesce(found.cast(kind), values_of_texts(missing, kind)), None


def _bare(texts: pa.Array, plan: CsvReading) -> pa.Array:
    """Return texts without blanks around them, and null for words that mean null, which may be in quotes."""
    is_word = pc.is_in(texts, pa.array(plan.nulls, texts.type))
    return pc.ascii_trim(pc.if_else(is_word, pa.scalar(None, texts.type), texts), " \t")


def _in_zone(values: pa.Array, plan: CsvReading, name: str, kind: pa.DataType) -> pa.Array:
    try:
        return pc.assume_timezone(values, plan.options.timezone).cast(kind)
    except pa.ArrowInvalid as error:
        text = str(error).splitlines()[0]
        raise Code.VALUE_NOT_REPRESENTABLE(f"{plan.file}, column {name}: {text}", column=name) from error


def _from_hex(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the bytes of hex digits."""
    fits = pc.match_substring_regex(texts, _HEX)
    if pa.types.is_fixed_size_binary(kind):
        fits = pc.and_(fits, pc.equal(pc.binary_length(texts), 2 * kind.byte_width))
    _raise_first(pc.invert(fits))
    return pa.array([None if text is None else bytes.fromhex(text) for text in texts.to_pylist()], kind)


def _refusal(plan: CsvReading, name: str, value: str, rows_before: int, fault: _UnfitError) -> Error:
    """Return the error of a value that is not of its column's type."""
    if "\n" in value and (line := unclosed_line(plan)):
        return unclosed(plan, line)
    kind, row = plan.type_of(name), rows_before + fault.place
    why = ""
    if is_binary(kind):
        why = " in hex digits, two for each byte"
        remedy = f"if bytes stand there as text, read it as such (--type {name}=string)"
    elif name not in plan.given:
        remedy = f"the type was detected from the first {plan.rows:,} rows: give another (--type {name}=string)"
    elif isinstance(fault, _OtherFormError):
        why = " in its usual form"
        remedy = f"if it means one, say so (--cast {name}), or correct it"
    else:
        why = _because(value, kind, plan.options)
        form = _other_form(value, kind, plan.options)
        remedy = f"correct it{form}, or say that it stands for null (--null {value!r})"
    return Code.VALUE_NOT_REPRESENTABLE(
        f"{plan.file}, line {line_of(plan, row):,}, column {name}: {value[:80]!r} is not {kind}{why}; {remedy}",
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


def _because(value: str, kind: pa.DataType, options: ReadingOptions) -> str:
    """Return why a text in the form of the type is no value of it."""
    if pa.types.is_timestamp(kind) and kind.tz and not options.timezone and is_zoneless(value):
        return " (it has no time zone)"
    if not is_number(kind) or not is_typed(value, options.decimal_point):
        return ""
    if pa.types.is_decimal(kind):
        return f" (it is too large, or has more than {kind.scale} digits after the point)"
    return " (it is too large or too small, or would be rounded)"
