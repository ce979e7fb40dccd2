"""Parses CSV with Arrow, and converts its values: a large file in pieces, several at once, any other as one stream.

Arrow's stream reader parses on one thread. :func:`parsed_batches` therefore cuts a large file after line feeds, some
megabytes apart, and a few threads parse the pieces, each as a file of its own. A line feed may be inside a quoted value
instead of ending a record. So each piece is parsed with an empty record appended. This is the last record exactly if
the piece ends outside quotes; otherwise it becomes text of the value. In that case, and if Arrow refuses a piece, the
file is read as one stream from the beginning of that piece, where a record begins because the previous piece was whole.
Rows, and the error after them, are therefore those of one stream.

Columns are read as text, and converted afterwards. In pieces, Arrow parses dates,
timestamps and booleans itself, for which it accepts no more; if it refuses one, the piece is read again as text.

Rules. A piece is at most twice 4 MiB. One more piece than threads is in memory, as text and as rows. Parts of files
(:mod:`lakebed.files.formats.csv_parts`) are read as streams: their task has one core.

Errors: :class:`UnparsedError` has the message of Arrow's parser.

*Converts rows of CSV, read as text, to the types of their columns, by :mod:`lakebed.model.text_values`.*

Rules. Blanks around a value do not count, except in text. A value has the form by which its type is detected
(:func:`lakebed.files.formats.text_types.usual_values`), whether it was or not, unless its field is to be cast. The
file is read again only for the line of an error.

Errors: SchemaMismatchError names the file, the line, the column, the value and the remedy.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from lakebed.errors import Code, Error
from lakebed.files.formats.csv_records import line_of, unclosed, unclosed_line
from lakebed.files.formats.input_file import read_fully
from lakebed.files.formats.text_types import is_typed, is_zoneless, times_of_format, usual_values
from lakebed.model.text_values import values_of_texts
from lakebed.model.types import is_binary, is_number

if TYPE_CHECKING:
    from lakebed.files.formats.csv_records import CsvReading
    from lakebed.files.formats.dialect import Dialect
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


LINES_APART = ("utf-8", "utf-8-sig", "ascii", "latin-1", "iso-8859-1", "iso8859-1", "windows-1252", "cp1252")
"""Encodings in which the byte of a line feed has no other meaning."""

_BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes of a block. A record must fit into a block, in a stream and in a file in pieces."""

_SKIPPED_BYTES = 1024 * 1024
_THREADS_MAX = 4
"""Maximum parsing threads: sorting and encoding the rows is not faster than four of them."""


class UnparsedError(Exception):
    """Arrow's parser refused the file."""


def parsed_batches(plan: CsvReading) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file in order, with the columns of :attr:`CsvReading.schema`; batches in which a value does
    not fit, as text.

    Raises UnparsedError after the rows before the one that cannot be parsed.
    """
    streamed_from: int | None = 0
    if _is_divisible(plan):
        streamed_from = yield from _parsed_pieces(plan)
    if streamed_from is not None:
        yield from parsed_stream(plan, begin=streamed_from)


def parsed_stream(plan: CsvReading, *, begin: int = 0, use_threads: bool = True) -> Iterator[pa.RecordBatch]:
    """Return the rows from a position on, which is 0 or follows a line feed; as :func:`parsed_batches`."""
    options = _parse_options(plan, begin, {}, block_bytes=_BLOCK_BYTES, use_threads=use_threads)
    with plan.file.open() as file:
        _skip(file, begin)
        try:
            with arrow_csv.open_csv(file, **options) as reader:
                for batch in reader:
                    yield converted(batch, plan) or batch
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise UnparsedError(str(error)) from error


def _skip(file: Any, begin: int) -> None:
    """Skip to a position, except for the line feed before it: Arrow would take a byte order mark there for that of the
    file, and skips an empty line instead.
    """
    left = begin - 1
    while left > 0 and (data := file.read(min(left, _SKIPPED_BYTES))):
        left -= len(data)


# -- pieces ---------------------------------------------------------------------------------------------------------


def _is_divisible(plan: CsvReading) -> bool:
    """Return whether a file is large, and an empty record read as text would be detected, because all columns are read.
    An empty record of one column is an empty line, which Arrow skips.
    """
    columns = len(plan.dialect.names)
    lines_apart = plan.dialect.encoding.lower() in LINES_APART
    is_large = not plan.whole and plan.file.part is None
    return is_large and lines_apart and len(plan.schema) == columns > 1 and pa.cpu_count() > 1


def _parsed_pieces(plan: CsvReading) -> Generator[pa.RecordBatch, None, int | None]:
    """Return the rows of the pieces, in order; then the position from which to read the file as a stream, if any."""
    threads = min(pa.cpu_count(), _THREADS_MAX)
    ahead: deque[tuple[int, Future[list[pa.RecordBatch] | None]]] = deque()
    with plan.file.open() as file, ThreadPoolExecutor(threads, "lakebed-csv") as pool:
        pieces = _pieces(file, plan.dialect.delimiter.encode(), plan.piece_bytes)
        while True:
            while len(ahead) <= threads and (piece := next(pieces, None)) is not None:
                ahead.append((piece[0], pool.submit(_parsed, plan, *piece)))
            if not ahead:
                return None
            begin, parsed = ahead.popleft()
            rows = parsed.result()
            if rows is None:
                return begin
            yield from rows


def _pieces(file: Any, delimiter: bytes, piece_bytes: int) -> Iterator[tuple[int, tuple[bytes | memoryview, ...]]]:
    """Return the position of each piece and its text, which begins with the line feed before it; no text if the last
    one must be read as a stream.
    """
    begin = end = 0
    left = b""
    while block := read_fully(file, piece_bytes):
        cut = block.rfind(b"\n") + 1
        if not cut:
            # A record of this size may not fit into a block.
            yield begin, ()
            return
        yield begin, (left, memoryview(block)[:cut])
        begin, end, left = end + cut, end + len(block), block[cut - 1 :]
    if len(left) > 1:
        # Arrow reads an empty cell at the end of a file as quoted if the previous cell is.
        yield begin, () if left.endswith(delimiter) else (left, b"\n")


def _parsed(plan: CsvReading, begin: int, texts: tuple[bytes | memoryview, ...]) -> list[pa.RecordBatch] | None:
    """Return the rows of a piece, converted unless a value does not fit; None if it cannot be parsed by itself."""
    if not texts:
        return None
    empty_record = plan.dialect.delimiter.encode() * (len(plan.dialect.names) - 1) + b"\n"
    text = b"".join((*texts, empty_record))
    for types in (_strict_types(plan), {}):
        options = _parse_options(plan, begin, types, block_bytes=len(text), use_threads=False)
        try:
            rows = arrow_csv.read_csv(pa.BufferReader(text), **options)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            # Perhaps only a value of one of these types has another form.
            continue
        last = rows.num_rows - 1
        is_whole = last >= 0 and all(column.null_count for column in rows.slice(last).columns)
        return [converted(batch, plan) or batch for batch in rows.slice(0, last).to_batches()] if is_whole else None
    return None


# -- options of Arrow -----------------------------------------------------------------------------------------------


def read_options(dialect: Dialect, encoding: str, **more: Any) -> Any:
    """Return the options for a text that begins with the header, if the file has one."""
    return arrow_csv.ReadOptions(
        column_names=list(dialect.names),
        skip_rows=0,
        skip_rows_after_names=int(dialect.header),
        encoding=encoding,
        **more,
    )


def _strict_types(plan: CsvReading) -> dict[str, pa.DataType]:
    """Return the types of columns for which Arrow's parser accepts only what
    :func:`lakebed.files.formats.text_types.usual_values` does; it is faster than a cast of text.
    """
    found = {}
    for one in plan.schema:
        is_time = pa.types.is_date32(one.type) or pa.types.is_timestamp(one.type)
        by_option = plan.options.date_format or plan.options.timezone
        if pa.types.is_boolean(one.type) or (is_time and not by_option):
            found[one.name] = one.type
    return found


def _parse_options(
    plan: CsvReading, begin: int, types: Mapping[str, pa.DataType], *, block_bytes: int, use_threads: bool
) -> dict[str, Any]:
    """Return the options for the text of a file from a position on. Columns without a type are text."""
    dialect = plan.dialect if not begin else replace(plan.dialect, header=False)
    encoding = "utf-8" if dialect.encoding == "utf-8-sig" else dialect.encoding
    names = list(plan.schema.names)
    return {
        "read_options": read_options(dialect, encoding, use_threads=use_threads, block_size=block_bytes),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=dialect.delimiter, quote_char=dialect.quote, newlines_in_values=True
        ),
        "convert_options": arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()) | dict(types),
            include_columns=names,
            # The conformer checks for valid UTF-8, and names the column and the row.
            check_utf8=False,
            null_values=list(plan.nulls),
            strings_can_be_null=True,
            quoted_strings_can_be_null=plan.quoted_nulls,
            timestamp_parsers=[arrow_csv.ISO8601],
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
        ),
    }
