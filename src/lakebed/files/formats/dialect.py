"""Detects the dialect of a CSV file: encoding, delimiter, quote, header and names of columns.

The delimiter is the one of ``, ; tab |`` with which most records have the same number of columns, and more than one.
The first record is a header if a cell is the name of a field of the table, or if no cell is a number, boolean, date or
time. A file without a header has the columns column0, column1 …, or those of the table in order if their number is the
same.

Core types: :class:`Dialect`. Pure: works on the first bytes of a file. Errors: SchemaMismatchError and UsageError name
the file and the line. Source: the sniffer of DuckDB, in its main steps.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.errors import Code
from lakebed.files.formats.reading_options import ReadingOptions
from lakebed.files.formats.text_types import is_typed

SNIFFED_CHARACTERS = 256 * 1024
_DELIMITERS = (",", ";", "\t", "|")
_SNIFFED_RECORDS = 1_000
_JUDGED_BYTES = 65_536
"""Bytes by which a file is judged to be text."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect of a text file; ``names`` are those of its columns, in order."""

    delimiter: str
    quote: str
    header: bool
    encoding: str
    names: tuple[str, ...]

    @property
    def said(self) -> str:
        """A description for people."""
        delimiter = {"\t": "tab", " ": "blank"}.get(self.delimiter, repr(self.delimiter))
        header = "a header" if self.header else "no header"
        return f"CSV with delimiter {delimiter}, quote {self.quote}, {header}, {encoding_name(self.encoding)}"


def encoding_name(encoding: str) -> str:
    """Return the usual name of an encoding."""
    return encoding.removesuffix("-sig").upper()


def detect_dialect(
    sample: bytes, name: str, options: ReadingOptions, fields: Sequence[str] = (), *, whole: bool
) -> Dialect:
    """Return the dialect of a file that begins with ``sample`` (all of it if ``whole``); ``fields`` are those of the
    table.

    Raises SchemaMismatchError if it has no text, or columns without distinct names; UsageError for a binary file.
    """
    encoding = options.encoding or detect_encoding(sample, name)
    text = sample.decode(encoding, "replace")[:SNIFFED_CHARACTERS]
    quote = options.quote or '"'
    delimiters = (options.delimiter,) if options.delimiter else _delimiters(name, options.decimal_point)
    found = {one: _records(text, one, quote, whole=whole and len(text) < SNIFFED_CHARACTERS) for one in delimiters}
    delimiter = max(delimiters, key=lambda one: _score(found[one]))
    records = found[delimiter]
    if not records:
        raise Code.SOURCE_UNPARSABLE(f"{name}: the file is empty; give a file with a header, or with rows", source=name)
    first = records[0]
    _check_points(first, name, options)
    if options.columns:
        return Dialect(delimiter, quote, header=False, encoding=encoding, names=options.columns)
    header = _is_header(records, fields, options.decimal_point) if options.header is None else options.header
    if header:
        _check_header(first, name, delimiter)
        names = tuple(first)
    elif len(fields) == len(first):
        names = tuple(fields)
    else:
        names = tuple(f"column{index}" for index in range(len(first)))
    return Dialect(delimiter, quote, header, encoding, names)


def detect_encoding(sample: bytes, name: str) -> str:
    """Detect the encoding from the first bytes. Raises UsageError for a file that is not text.

    A value of UTF-8 may have the character U+0000; names of columns have none, so the first line tells UTF-16 apart.
    """
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return encoding
    place = sample[:_JUDGED_BYTES].find(0)
    if place >= 0 and (place < _line_end(sample) or not _is_utf8(sample[:_JUDGED_BYTES])):
        known = "an Excel or ZIP file" if sample.startswith(b"PK") else "not text"
        raise Code.SOURCE_UNSUPPORTED(
            f"{name} is {known}: its byte {place:,} is 0. Save it as CSV, or give the encoding of its text", source=name
        )
    return "utf-8"


def _line_end(sample: bytes) -> int:
    """Return where the first line ends; the end of the sample if it has no other line."""
    end = sample.find(b"\n")
    return len(sample) if end < 0 else end


def _is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8, of which the last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _delimiters(name: str, decimal_point: str) -> tuple[str, ...]:
    found = ("\t", *(one for one in _DELIMITERS if one != "\t")) if ".tsv" in name.lower() else _DELIMITERS
    return tuple(one for one in found if one != decimal_point)


def _check_points(first: list[str], file: str, options: ReadingOptions) -> None:
    """Raise UsageError if the only cell of the first record is not a number, and seems divided by the decimal point."""
    point = options.decimal_point
    if options.delimiter or point not in _DELIMITERS or len(first) != 1:
        return
    if point in first[0] and not is_typed(first[0], point):
        raise Code.ARGUMENTS_CONFLICT(
            f"{file}, line 1: the delimiter of {first[0][:80]!r} seems to be {point!r}, which is the decimal point; "
            "leave out the decimal point, or write the file with another delimiter, such as ';'",
            source=file,
        )


def _records(text: str, delimiter: str, quote: str, *, whole: bool) -> list[list[str]]:
    """Return the first records; the last one of a truncated text is left out."""
    found: list[list[str]] = []
    # A record that is too long for the parser, for example with unclosed quotes, ends the search.
    with contextlib.suppress(csv.Error):
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote)
        for record, _ in zip(reader, range(_SNIFFED_RECORDS + 1), strict=False):
            found += [record] if record else []
    return found if whole or len(found) == 1 else found[: min(len(found) - 1, _SNIFFED_RECORDS)]


def _score(records: list[list[str]]) -> tuple[float, int]:
    """Return the share of records with the most frequent number of columns, and this number; nothing for one column."""
    if not records:
        return -1.0, 0
    columns, count = Counter(map(len, records)).most_common(1)[0]
    return (count / len(records), columns) if columns > 1 else (0.0, 1)


def _is_header(records: list[list[str]], fields: Sequence[str], decimal_point: str) -> bool:
    first, others = records[0], records[1:]
    if set(first) & set(fields):
        return True
    if any(is_typed(cell, decimal_point) for cell in first) or not any(first):
        return False
    if any(len(record) != len(first) for record in others[:1]):
        return True
    typed = [any(index < len(r) and is_typed(r[index], decimal_point) for r in others) for index in range(len(first))]
    # If all columns are text, nothing distinguishes a header from a row; most files have one.
    return any(typed) or all(first)


def _check_header(names: list[str], file: str, delimiter: str) -> None:
    empty = [index for index, name in enumerate(names, 1) if not name.strip()]
    if empty:
        raise Code.SOURCE_UNPARSABLE(
            f"{file}, line 1: column {empty[0]} of {len(names)} has no name (the delimiter is {delimiter!r}); name it, "
            "or say that there is no header (--no-header)",
            source=file,
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        places = [str(index) for index, name in enumerate(names, 1) if name == twice[0]]
        raise Code.COLUMN_DUPLICATE(
            f"{file}, line 1: duplicate column {twice[0]}, in places {' and '.join(places)}; rename one of them",
            columns=twice,
        )
