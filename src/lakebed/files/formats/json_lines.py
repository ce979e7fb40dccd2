"""Reads rows of JSON as Arrow batches of a schema: the inverse of :func:`lakebed.files.formats.row_chunks.json_lines`.

A file has one object per line, or is one array of objects, which is read piece by piece and never held whole. An object
has a member for each column; a missing nullable column is null. Members that the schema lacks become columns of text or
numbers, which the table refuses or adds. Batches may differ in their columns.

Errors: SchemaMismatchError, which names the file, the line and the column.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.files.formats.json_columns import UNCONVERTIBLE, WrittenFloat, decode_array, is_lost, json_text
from lakebed.model.checks import shown
from lakebed.model.foreign_errors import error_text
from lakebed.model.members import UnknownMemberError, check_members
from lakebed.model.text_values import numbers_of
from lakebed.model.type_names import JSON, name_of

BATCH_ROWS = 8_192

_TEXT: Any = object()
"""The type of columns that become text."""


def read_json_lines(  # noqa: PLR0913 - a file, its types, and where in it
    file: io.BufferedReader,
    fields: Mapping[str, pa.DataType],
    source: str,
    *,
    whole: bool = True,
    lines_before: Callable[[], int] = lambda: 0,
    texts: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file, read lazily; ``fields`` has types by name, ``source`` names it in errors.

    Unless the bytes are the ``whole`` file, an array may end in the middle of an element, which is left out.
    ``lines_before`` counts the lines of the file before them; it is called for an error. Values of the columns
    ``texts`` are converted to text.
    """
    fields = {name: _TEXT if name in texts else kind for name, kind in fields.items()}
    exact = bool(texts) or any(map(_keeps_digits, fields.values()))
    lines = _Lines(source, lines_before)
    rows = _objects(file, lines, whole=whole, decode=_EXACTLY if exact else _FAST)
    while found := list(islice(rows, BATCH_ROWS)):
        _check_names(found, lines)
        batch = _batch([row for _, row, _ in found], [number for number, _, _ in found], fields, lines)
        if not exact:
            _check_zeros(batch, found, lines)
        yield batch


_Row = tuple[int, Any, bytes]
"""A row after the line on which it begins; then the text of that line, if the whole row is on it."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Names a file and its lines in errors; lines are counted from 1 in the bytes that are read."""

    source: str
    before: Callable[[], int]

    def in_file(self, number: int) -> int:
        return self.before() + number


def _keeps_digits(kind: pa.DataType) -> bool:
    """Return whether values of the type are made of their digits, and not of a double."""
    if pa.types.is_nested(kind):
        return any(_keeps_digits(kind.field(index).type) for index in range(kind.num_fields))
    narrow = pa.types.is_floating(kind) and not pa.types.is_float64(kind)
    return bool(pa.types.is_decimal(kind) or narrow or kind == JSON)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _with_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError for one that has two members of a name, of which a decoder keeps the last."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ValueError(f"an object has the member {shown(twice)} twice; rename one, or leave it out")
    return made


def _check_names(rows: list[_Row], lines: _Lines) -> None:
    """Raise SchemaMismatchError if a line has an object with two members of a name."""
    members_max = _members_max(b"".join(text for _, _, text in rows))
    # Most files have no objects inside of their rows, and no texts that look like names.
    if any(sum(count(row) for _, row, _ in rows) >= members_max for count in (len, _members_in)):
        return
    for number, row, text in rows:
        if _members_in(row) < _members_max(text):
            try:
                _NAMES.decode(text.decode())
            except (ValueError, RecursionError) as error:
                at = lines.in_file(number)
                raise Code.SOURCE_UNPARSABLE(f"{lines.source}, line {at} is not JSON: {error}", row=at) from error


def _members_max(text: bytes) -> int:
    """Return the number of members in a text of JSON, or more: of colons after a quote or a blank."""
    content = np.frombuffer(text, np.uint8)
    return int(np.count_nonzero((content[1:] == ord(":")) & (content[:-1] <= ord('"'))))


def _members_in(value: Any) -> int:
    """Return the number of members of all objects of a value."""
    if isinstance(value, dict):
        return len(value) + sum(_members_in(item) for item in value.values() if type(item) in _NESTED)
    return sum(map(_members_in, value)) if isinstance(value, list) else 0


_NESTED = frozenset({dict, list})


def _has_zero(column: pa.Array) -> bool:
    """Return whether a column has a double that is zero, at any depth."""
    if pa.types.is_float64(column.type):
        return bool((numbers_of(column) == 0).any())
    if pa.types.is_map(column.type):
        return _has_zero(column.keys) or _has_zero(column.items)
    if pa.types.is_struct(column.type):
        return any(_has_zero(column.field(index)) for index in range(column.type.num_fields))
    return pa.types.is_nested(column.type) and _has_zero(column.values)


_MAY_BE_LOST = re.compile(rb"[eE]-|0{300}")
"""Digits of a number that is nearer to zero than any double, which becomes zero."""


def _check_zeros(batch: pa.RecordBatch, rows: list[_Row], lines: _Lines) -> None:
    """Raise SchemaMismatchError if a number of a row became zero when its line was decoded."""
    zeros = np.zeros(len(rows), bool)
    for column in batch.columns:
        zeros |= numbers_of(column) == 0 if pa.types.is_float64(column.type) else _has_zero(column)
    for place in np.flatnonzero(zeros):
        number, _, text = rows[place]
        if _MAY_BE_LOST.search(text):
            for name, value in _EXACTLY.line.decode(text).items():
                _check_digits(name, value, lines, number)


def _check_digits(name: str, value: Any, lines: _Lines, number: int) -> None:
    """Raise SchemaMismatchError for a number, at any depth of a value, that a double cannot hold."""
    for item in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _check_digits(name, item, lines, number)
    if is_lost(value):
        at = lines.in_file(number)
        raise Code.VALUE_NOT_REPRESENTABLE(
            f"{lines.source}, line {at}, column {name}: {value.digits[:80]} is too large or too small for a double; "
            f"correct it, or keep it as text (--type {name}=string)",
            column=name,
            source=lines.source,
            row=at,
        )


@dataclass(frozen=True, slots=True)
class _Decoders:
    """The decoders of a line and of an element of an array."""

    line: msgspec.json.Decoder[Any]
    element: json.JSONDecoder


def _finite(digits: str) -> float:
    value = WrittenFloat(digits)
    if is_lost(value):
        raise ValueError(f"{digits[:80]} is too large or too small for a double")
    return float(value)


_NAMES = json.JSONDecoder(object_pairs_hook=_with_names_once, parse_int=str)
_FAST = _Decoders(
    msgspec.json.Decoder(),
    json.JSONDecoder(object_pairs_hook=_with_names_once, parse_constant=_refuse_constant, parse_float=_finite),
)
_EXACTLY = _Decoders(
    msgspec.json.Decoder(float_hook=WrittenFloat),
    json.JSONDecoder(object_pairs_hook=_with_names_once, parse_constant=_refuse_constant, parse_float=WrittenFloat),
)


def line_of(file: io.BufferedReader, row: int) -> int:
    """Return the line on which a row begins, counted from 1; rows count from 0."""
    if _is_array(file):
        numbers = (number for number, _ in _elements(file, "", _FAST.element, whole=False))
    else:
        numbers = (number for number, line in enumerate(_lines_of(file), 1) if line.strip())
    return next(islice(numbers, row, None), 0)


def _objects(file: io.BufferedReader, lines: _Lines, *, whole: bool, decode: _Decoders) -> Iterator[_Row]:
    found: Iterator[_Row]
    if _is_array(file):
        found = ((number, row, b"") for number, row in _elements(file, lines.source, decode.element, whole=whole))
    else:
        found = _decoded_lines(file, lines, decode.line)
    for one in found:
        number, row, _ = one
        if not isinstance(row, dict):
            at = lines.in_file(number)
            raise Code.SOURCE_UNPARSABLE(f"{lines.source}, line {at}: {shown(row)} is not a JSON object", row=at)
        yield one


def _is_array(file: io.BufferedReader) -> bool:
    """Return whether the first non-blank character of the file opens an array; skips a byte order mark."""
    if file.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
        file.read(len(codecs.BOM_UTF8))
    return file.peek(1).lstrip()[:1] == b"["


_LINE_BYTES_MAX = 128 * 1024 * 1024
"""Maximum bytes of a line: a compressed file of a megabyte may have one of a gigabyte."""


def _lines_of(file: io.BufferedReader) -> Iterator[bytes]:
    """Return the lines of a file; of one that is too long, somewhat more than is allowed, and then its rest."""
    return iter(partial(file.readline, _LINE_BYTES_MAX + 1), b"")


def _decoded_lines(file: io.BufferedReader, lines: _Lines, decoder: msgspec.json.Decoder[Any]) -> Iterator[_Row]:
    """Return the values of the lines that are not blank."""
    for number, line in enumerate(_lines_of(file), 1):
        if len(line) > _LINE_BYTES_MAX:
            at = lines.in_file(number)
            raise Code.SOURCE_UNPARSABLE(
                f"{lines.source}, line {at} has more than {_LINE_BYTES_MAX:,} bytes: a row is one line; divide it, or "
                "give the rows as Parquet",
                row=at,
            )
        if line.isspace():
            continue
        try:
            value = decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            at = lines.in_file(number)
            raise Code.SOURCE_UNPARSABLE(f"{lines.source}, line {at} is not JSON: {error}", row=at) from error
        yield number, value, line


_BLANK = re.compile(r"[ \t\r\n]*")
_PIECE_BYTES = 1024 * 1024
_ELEMENT_CHARS_MAX = 256 * 1024 * 1024
"""Maximum characters of an element: a stray quote makes the rest of a file one text, which must not be read into
memory."""
_TOKEN_CHARS = 16
"""Longer than any token, except text, that a decoder refuses because its end is missing."""


def _elements(
    file: io.BufferedReader, source: str, decoder: json.JSONDecoder, *, whole: bool
) -> Iterator[tuple[int, Any]]:
    """Return the elements of a file's array, each with the line on which it begins."""
    text = _ArrayText(file, source, decoder)
    text.take("[")
    if text.next() == "]":
        text.take("]")
    else:
        while True:
            if not whole and not text.has_element():
                return
            text.next()
            line = text.line
            yield line, text.element()
            if not whole and not text.next():
                return
            if text.next() != ",":
                text.take("]")
                break
            text.take(",")
    if text.next():
        raise text.wrong("there is more after the end of the array")


class _ArrayText:
    """The text of a file from a position on, of which only the current element is in memory."""

    def __init__(self, file: io.BufferedReader, source: str, decoder: json.JSONDecoder) -> None:
        self._file, self._source, self._decoder = file, source, decoder
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text, self._at, self._ended = "", 0, False
        self.line = 1

    def next(self) -> str:
        """Return the next character that is not blank; an empty text at the end of the file."""
        while True:
            self._move(_BLANK.match(self._text, self._at).end())  # type: ignore[union-attr]
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, character: str) -> None:
        """Skip this character. Raises SchemaMismatchError if there is another."""
        if self.next() != character:
            raise self.wrong(f"expected {character!r} here, not {self._text[self._at : self._at + 20]!r}")
        self._move(self._at + 1)

    def has_element(self) -> bool:
        """Return whether the text has the whole of the next element."""
        try:
            self.next()
            self._scan()
        except (ValueError, RecursionError):
            return False
        return True

    def element(self) -> Any:
        """Return the next value. Raises SchemaMismatchError if it is not JSON, or the file ends within it."""
        self.next()
        try:
            value, end = self._scan()
        except (ValueError, RecursionError) as error:
            raise self.wrong(str(error)) from error
        self._move(end)
        return value

    def wrong(self, why: str) -> Error:
        """Return the error about the current line."""
        return Code.SOURCE_UNPARSABLE(f"{self._source}, line {self.line} is not JSON: {why}", row=self.line)

    def _scan(self) -> tuple[Any, int]:
        """Return the value at the position, and its end; reads on, twice as much each time, until it is whole."""
        size = _PIECE_BYTES
        while True:
            try:
                return self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated string") or error.pos > len(self._text) - _TOKEN_CHARS
                if not is_cut or len(self._text) > _ELEMENT_CHARS_MAX or not self._more(size):
                    raise
                size *= 2

    def _move(self, position: int) -> None:
        self.line += self._text.count("\n", self._at, position)
        self._at = position

    def _more(self, size: int = _PIECE_BYTES) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        data = self._file.read(size)
        self._ended = not data
        try:
            self._text = self._text[self._at :] + self._decode(data, self._ended)
        except UnicodeDecodeError as error:
            self.line += self._text.count("\n", self._at) + error.object[: error.start].count(b"\n")
            raise self.wrong(str(error)) from error
        self._at = 0
        return not self._ended


def _batch(
    rows: list[dict[str, Any]], numbers: list[int], fields: Mapping[str, pa.DataType], lines: _Lines
) -> pa.RecordBatch:
    given = dict.fromkeys(chain.from_iterable(rows))
    arrays = []
    for name in given:
        kind = fields.get(name)
        try:
            arrays.append(_column_array([row.get(name) for row in rows], kind))
        except UNCONVERTIBLE as error:
            raise _unread(name, kind, [row.get(name) for row in rows], numbers, lines) from error
        if kind is None:
            for number, row in zip(numbers, rows, strict=True):
                _check_digits(name, row.get(name), lines, number)
    return pa.RecordBatch.from_arrays(arrays, names=list(given))


def _column_array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    if kind is _TEXT:
        return pa.array([value if value is None else _value_text(value) for value in values], pa.string())
    if kind is None:
        return pa.array(values)
    check_members(values, kind)
    return decode_array(values, kind)


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _unread(name: str, kind: pa.DataType | None, values: list[Any], numbers: list[int], lines: _Lines) -> Error:
    """Return the error of the first value that cannot be read, or whose type differs from those before.

    ``numbers`` are those of the values' lines.
    """
    source = lines.source
    for index, value in enumerate(values):
        try:
            _column_array([value] if kind is not None else values[: index + 1], kind)
        except UNCONVERTIBLE as error:
            at = lines.in_file(numbers[index])
            return Code.VALUE_NOT_REPRESENTABLE(
                f"{source}, line {at}, column {name}: {shown(value)} {_why_unread(name, kind, error)}",
                column=name,
                source=source,
                row=at,
            )
    return Code.VALUE_NOT_REPRESENTABLE(f"{source}: column {name} cannot be read as {kind}", column=name, source=source)


def _why_unread(name: str, kind: pa.DataType | None, error: BaseException) -> str:
    if isinstance(error, UnknownMemberError):
        return str(error)
    if kind is None:
        return f"is not the type of the values before; say what they are, as in --type {name}=string or {name}=json"
    if pa.types.is_string(kind):
        return f"is not text; casts=[{name!r}] (--cast {name}) takes any value as its text"
    return f"is not {name_of(kind)} ({error_text(error)})"
