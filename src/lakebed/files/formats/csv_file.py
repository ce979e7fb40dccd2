"""Reads CSV files batch by batch, with the types of a table or detected ones.

:func:`detect` reads the first megabytes and determines how to read the file; :func:`batches` reads it with Arrow's
parser (:mod:`lakebed.files.formats.csv_parser`) as text, which :mod:`lakebed.files.formats.csv_parser` converts. If a
value does not fit, the file is read again to name its line. An empty cell is null. Empty quotes are an empty text, or
null if columns of other types have such cells.

Rules. Binary is hex digits, as in JSON. Columns of types that :mod:`lakebed.model.text_values` does not convert remain
text, which the conformer casts. Lines count from 1, and a record with line breaks in quotes has the number of its first
line.

Errors: SchemaMismatchError names file, line and column.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from lakebed.errors import Code, Error
from lakebed.files.formats.csv_parser import UnparsedError, parsed_batches, parsed_stream, read_options, typed
from lakebed.files.formats.csv_records import CsvReading, ends_in_quotes, line_of, record_at, unclosed, unclosed_line
from lakebed.files.formats.dialect import Dialect, detect_dialect, encoding_name
from lakebed.files.formats.input_file import InputFile, reading
from lakebed.files.formats.reading_options import ReadingOptions
from lakebed.files.formats.text_types import ColumnType, column_type, is_zoneless, words_for_null
from lakebed.model.checks import near_names

SAMPLE_BYTES = 4 * 1024 * 1024

_TOO_LONG = "straddling"
"""Part of the message of Arrow's parser for a row that is longer than two blocks."""

_ROW = re.compile(r"Row #(\d+): ")


# -- detection ------------------------------------------------------------------------------------------------------


def detect(  # noqa: PLR0913 - a file, its types, and how they are read
    file: InputFile,
    options: ReadingOptions,
    fields: Mapping[str, pa.DataType],
    *,
    casts: frozenset[str] = frozenset(),
    only_fields: bool = False,
    strict: bool = True,
    sample_bytes: int = SAMPLE_BYTES,
) -> CsvReading:
    """Determine how to read a file, by its first ``sample_bytes``: columns of the ``fields`` have their types; others
    have detected types, or are left out with ``only_fields``. Values of columns in ``casts`` may have any form of their
    type. Unless ``strict``, invalid text is left to the conformer.

    Raises SchemaMismatchError and UsageError for a file that is not CSV, or whose times lack the zone that a field has.
    """
    with reading(file, text=True):
        sample, whole = file.sample(sample_bytes)
    dialect = detect_dialect(sample, str(file), options, tuple(fields), whole=whole)
    text = _decoded_lines(sample, dialect.encoding, str(file), whole=whole, strict=strict)
    unknown = sorted(set(options.types) - set(dialect.names))
    if unknown:
        raise Code.COLUMN_UNKNOWN(
            f"{file}: no column {', '.join(unknown)}, for which a type is given; it has {', '.join(dialect.names)}",
            fields=unknown,
        )
    table = _sampled(text, dialect, options, str(file))
    given = {name: options.types.get(name, fields.get(name)) for name in dialect.names}
    given = {name: kind for name, kind in given.items() if kind is not None}
    found: dict[str, ColumnType] = {}
    quoted = False
    for name in dialect.names:
        values = table.column(name).combine_chunks()
        found[name] = _column(values, given.get(name), options)
        typed = not _is_text(given.get(name) or found[name].type)
        quoted = quoted or (typed and bool(pc.any(pc.equal(values, "")).as_py()))
    # A name in another case is refused later.
    kept = {*fields, *near_names(dialect.names, fields)}
    read = tuple(name for name in dialect.names if name in kept) if only_fields else None
    plan = CsvReading(file, dialect, options, found, given, table.num_rows, whole, quoted, read, casts)
    for name in plan.schema.names:
        _check_zone(plan, name, table.column(name))
    return plan


def _column(values: pa.Array, given: pa.DataType | None, options: ReadingOptions) -> ColumnType:
    if given is None:
        found = column_type(values, options.date_format, options.decimal_point)
        # The option gives these times a zone.
        if options.timezone and pa.types.is_timestamp(found.type) and found.type.tz is None:
            found = ColumnType(pa.timestamp(found.type.unit, "UTC"), found.nulls, found.examples)
        return ColumnType(found.type, frozenset(), found.examples) if options.nulls else found
    examples = tuple(pc.unique(values.drop_null())[:3].to_pylist())
    nulls = frozenset() if _is_text(given) or options.nulls else words_for_null(values)
    return ColumnType(given, nulls, examples)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _check_zone(plan: CsvReading, name: str, values: pa.Array) -> None:
    """Raise SchemaMismatchError if times in the first rows lack the zone that the field has."""
    kind, options = plan.given.get(name), plan.options
    if kind is None or not pa.types.is_timestamp(kind) or kind.tz is None or options.timezone or options.date_format:
        return
    for row, value in enumerate(values.to_pylist()[:1_000]):
        if value and is_zoneless(value):
            raise Code.VALUE_NOT_REPRESENTABLE(
                f"{plan.file}, line {line_of(plan, row)}, column {name}: {value!r} has no time zone, and the table has "
                f"{kind}: give the zone of the file's times, such as UTC or Europe/Berlin (--timezone)",
                column=name,
                source=str(plan.file),
                row=row,
            )


def _decoded_lines(sample: bytes, encoding: str, name: str, *, whole: bool, strict: bool) -> str:
    """Return the whole lines of the sample."""
    if not whole and encoding in ("utf-8", "utf-8-sig"):
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    try:
        errors = "strict" if whole or encoding in ("utf-8", "utf-8-sig") else "ignore"
        text = sample.decode(encoding, errors if strict else "replace")
    except UnicodeDecodeError as error:
        # The error's object is the sample without a byte order mark.
        line = error.object[: error.start].count(b"\n") + 1
        raise Code.VALUE_INVALID(
            f"{name}, line {line}: the byte 0x{error.object[error.start]:02x} is not {encoding_name(encoding)}; give "
            "the encoding of the file, such as latin-1 (--encoding)",
            source=name,
        ) from error
    return text if whole else text[: text.rfind("\n") + 1] or text


def _sampled(text: str, dialect: Dialect, options: ReadingOptions, name: str) -> pa.Table:
    """Return the first rows as text. Records of other lengths are left out here, and refused when the file is read."""
    try:
        return arrow_csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=read_options(dialect, "utf-8", block_size=4 * len(text) + 1),
            parse_options=arrow_csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote,
                newlines_in_values=True,
                invalid_row_handler=lambda _: "skip",
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(dialect.names, pa.string()),
                null_values=["", *options.nulls],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise Code.SOURCE_UNPARSABLE(f"{name}: {error}", source=name) from error


# -- reading --------------------------------------------------------------------------------------------------------


def batches(plan: CsvReading) -> Iterator[pa.RecordBatch]:
    """Return the rows, with the columns of :attr:`CsvReading.schema`."""
    before = 0
    try:
        with reading(plan.file, text=True):
            last = None
            for batch in parsed_batches(plan):
                last = batch if batch.schema == plan.schema else typed(batch, plan, before)
                yield last
                before += batch.num_rows
            if last is not None and ends_in_quotes(plan, last):
                raise unclosed(plan, unclosed_line(plan))
    except UnparsedError as error:
        raise _diagnosed(plan, error) from error


# -- errors ---------------------------------------------------------------------------------------------------------


def _diagnosed(plan: CsvReading, error: UnparsedError) -> Error:
    """Return the error with the line of the record that Arrow's parser refused."""
    message = str(error)
    if _TOO_LONG in message and (line := unclosed_line(plan)):
        return unclosed(plan, line)
    try:
        for _ in parsed_stream(plan, use_threads=False):
            pass
    except UnparsedError as again:
        message = str(again)
    place, text = _ROW.search(message), _ROW.sub("", message)
    row = None if place is None else int(place[1]) - 1 - plan.dialect.header
    line, record = (0, []) if row is None else record_at(plan, row)
    where = f"{plan.file}, line {line:,}" if line else str(plan.file)
    if record and len(record) != len(plan.dialect.names):
        text = f"{_cells(len(record))}, and the file has {_cells(len(plan.dialect.names))}: {','.join(record)[:80]!r}"
    return Code.SOURCE_UNPARSABLE(f"{where}: {text}", source=str(plan.file), row=row or 0)


def _cells(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"
