"""Reads rows of JSON as Arrow batches of a schema: the inverse of :func:`lakebed.files.formats.row_chunks.json_lines`.

A file has one object per line, or is one array of objects, which is read piece by piece and never held whole. An object
has a member for each column; a missing nullable column is null. Members that the schema lacks become columns of text or
numbers, which the table refuses or adds. Batches may differ in their columns.

Errors: SchemaMismatchError, which names the file, the line and the column.

*Converts JSON values to Arrow columns of a type. Pure.*

Text that stands for a number, a date or a time has the same form as in CSV (:mod:`lakebed.files.formats.text_types`). A
number is converted by its digits, unless it becomes a double, as which it was decoded.

Errors: :data:`UNCONVERTIBLE`, for a value that is not of the type; the caller names it.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from types import NoneType
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.files.formats.text_types import is_zoneless, usual_values
from lakebed.model.checks import shown
from lakebed.model.foreign_errors import error_text
from lakebed.model.members import UnknownMemberError, check_members
from lakebed.model.text_values import numbers_of, values_of_texts
from lakebed.model.type_names import JSON, UUID, name_of
from lakebed.model.types import is_binary, is_number

UNCONVERTIBLE = (TypeError, ValueError, OverflowError, KeyError, AttributeError, pa.ArrowException)

_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_HEX = re.compile("([0-9a-fA-F]{2})*")
_ZERO = re.compile(r"[^eE1-9]*([eE]|$)")


class WrittenFloat(float):
    """A number with all its digits, of which a float keeps some."""

    digits: str

    def __new__(cls, digits: str) -> Self:
        """Return the number of these digits."""
        made = super().__new__(cls, digits)
        made.digits = digits
        return made


def decode_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert JSON values to a column of the type. Raises TypeError, ValueError, ArrowException for misfits. Members
    that a struct does not have are left out: :func:`lakebed.model.members.check_members` finds them before.
    """
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _times(values, kind)
    if pa.types.is_struct(kind):
        if (odd := next((v for v in values if not isinstance(v, dict | None)), None)) is not None:
            raise TypeError(f"{odd!r} is not an object")
        members = [kind.field(i) for i in range(kind.num_fields)]
        parts = [decode_array([None if v is None else v.get(m.name) for v in values], m.type) for m in members]
        return pa.StructArray.from_arrays(parts, fields=members, mask=_nulls(values))
    if pa.types.is_map(kind):
        # Pairs, or an object: most programs write a map with text keys as an object.
        maps = [list(value.items()) if isinstance(value, dict) else value for value in values if value is not None]
        items = [pair for pairs in maps for pair in pairs]
        keys = decode_array([key for key, _ in items], kind.key_type)
        found = decode_array([item for _, item in items], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(values, pa.int32()), keys, found, kind)
    if pa.types.is_fixed_size_list(kind):
        return decode_array(values, pa.list_(kind.value_type)).cast(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = [item for value in values if value is not None for item in _list(value)]
        cls, offset = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(kind) else (pa.ListArray, pa.int32())
        return cls.from_arrays(_offsets(values, offset), decode_array(items, kind.value_type), type=kind)
    if is_number(kind) and not pa.types.is_float64(kind):
        return _numbers_by_digits(values, kind)
    convert = _converter(kind)
    # Arrow converts most columns directly, without a call for each value.
    if convert is None or _all_are(values, _UNCONVERTED.get(convert, NoneType)):
        return pa.array(values, kind)
    return pa.array([None if v is None else convert(v) for v in values], kind)


def _all_are(values: list[Any], kind: type) -> bool:
    """Return whether all values are exactly of this class, or None."""
    return {kind, NoneType}.issuperset(map(type, values))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _nulls(values: list[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return the offsets of lists; a null offset makes its list null."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], kind)


def _times(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not _all_are(values, str) and any(not isinstance(value, str | None) for value in values):
        raise TypeError("dates and times are text in ISO 8601")
    return _of_texts(values, kind)


def _of_texts(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Return the values of texts. Raises ValueError for text that is no value of the type in its usual form."""
    column = pa.array(texts, pa.string())
    values, odd = usual_values(column, kind)
    lost = values.null_count > column.null_count
    if lost and pa.types.is_timestamp(kind) and kind.tz and any(is_zoneless(text) for text in texts if text):
        raise ValueError("it has no time zone, and the field has one: --cast reads it in that zone")
    _check_kept(column, values)
    if odd is not None:
        raise ValueError("it has another form than usual: --cast reads that, too")
    return values


def _check_kept(texts: pa.Array, values: pa.Array) -> None:
    """Raise ValueError if a text has no value."""
    if values.null_count > texts.null_count:
        raise ValueError("no value of the type is written so, or it would be rounded or out of range")


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that converts a JSON value for Arrow; None if it needs no conversion."""
    if kind == UUID:
        return _uuid
    if kind == JSON:
        return _json
    if pa.types.is_float64(kind):
        return _float
    if is_binary(kind):
        return _binary
    return None


def _numbers_by_digits(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return integers, decimals and floats that are not doubles: by their digits, unless all are whole."""
    if pa.types.is_integer(kind) and _all_are(values, int):
        return pa.array(values, kind)
    is_integer, is_float = pa.types.is_integer(kind), pa.types.is_floating(kind)
    digits_of = _integer_text if is_integer else _float_text if is_float else _number_text
    digits = [None if value is None else digits_of(value) for value in values]
    if not is_float and (texts := [value for value in values if isinstance(value, str)]):
        _of_texts(texts, kind)
    column = pa.array(digits, pa.string())
    made = values_of_texts(column, kind)
    _check_kept(column, made)
    return made


def _uuid(value: Any) -> uuid.UUID:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return uuid.UUID(value)


def _json(value: Any) -> str:
    """Return the text of a value of a JSON column: a text is JSON itself, and any other value is encoded."""
    return value if isinstance(value, str) else json_text(value)


def json_text(value: Any) -> str:
    """Return a value as JSON, with all digits of numbers that have them."""
    return msgspec.json.encode(value, enc_hook=_digits).decode()


def _digits(value: Any) -> msgspec.Raw:
    if not isinstance(value, WrittenFloat):
        raise TypeError(f"{value!r} is no value of JSON")
    return msgspec.Raw(value.digits.encode())


def _integer_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not a whole number")
    return str(value)


def _number_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str | WrittenFloat):
        raise TypeError(f"{value!r} is not a decimal, as a number or in text")
    return value.digits if isinstance(value, WrittenFloat) else str(value)


def _float_text(value: Any) -> str:
    if isinstance(value, str):
        return repr(_FLOATS[value])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value.digits if isinstance(value, WrittenFloat) else repr(value)


def _float(value: Any) -> float:
    if isinstance(value, str):
        return _FLOATS[value]
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    made = float(value)
    if (isinstance(value, int) and value not in (made, Decimal(repr(made)))) or is_lost(value):
        raise ValueError(f"{value!r} is no double")
    return made


def is_lost(value: Any) -> bool:
    """Return whether a number became infinity or zero because a float cannot hold it."""
    if not isinstance(value, WrittenFloat):
        return False
    number = float(value)
    return math.isinf(number) or (number == 0 and not _ZERO.match(value.digits))


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"{str(value)[:100]!r} is not text of hex digits, two for each byte")
    return bytes.fromhex(value)


_UNCONVERTED: dict[Callable[[Any], Any], type] = {_float: float}
"""The class whose values a converter returns unchanged."""


BATCH_ROWS = 8_192
PIECE_BYTES = 1024 * 1024
"""Bytes of an array that are read at once."""

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
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file, read lazily; ``fields`` has types by name, ``source`` names it in errors.

    Unless the bytes are the ``whole`` file, an array may end in the middle of an element, which is left out.
    ``lines_before`` counts the lines of the file before them; it is called for an error. Values of the columns
    ``texts`` are converted to text. Of an array ``piece_bytes`` are read at once.
    """
    fields = {name: _TEXT if name in texts else kind for name, kind in fields.items()}
    exact = bool(texts) or any(map(_keeps_digits, fields.values()))
    lines = _Lines(source, lines_before)
    rows = _objects(file, lines, piece_bytes, whole=whole, decode=_EXACTLY if exact else _FAST)
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


def line_of(file: io.BufferedReader, row: int, *, piece_bytes: int = PIECE_BYTES) -> int:
    """Return the line on which a row begins, counted from 1; rows count from 0."""
    if _is_array(file):
        numbers = (number for number, _ in _elements(file, "", _FAST.element, piece_bytes, whole=False))
    else:
        numbers = (number for number, line in enumerate(_lines_of(file), 1) if line.strip())
    return next(islice(numbers, row, None), 0)


def _objects(
    file: io.BufferedReader, lines: _Lines, piece_bytes: int, *, whole: bool, decode: _Decoders
) -> Iterator[_Row]:
    found: Iterator[_Row]
    if _is_array(file):
        elements = _elements(file, lines.source, decode.element, piece_bytes, whole=whole)
        found = ((number, row, b"") for number, row in elements)
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
_ELEMENT_CHARS_MAX = 256 * 1024 * 1024
"""Maximum characters of an element: a stray quote makes the rest of a file one text, which must not be read into
memory."""
_TOKEN_CHARS = 16
"""Longer than any token, except text, that a decoder refuses because its end is missing."""


def _elements(
    file: io.BufferedReader, source: str, decoder: json.JSONDecoder, piece_bytes: int, *, whole: bool
) -> Iterator[tuple[int, Any]]:
    """Return the elements of a file's array, each with the line on which it begins."""
    text = _ArrayText(file, source, decoder, piece_bytes)
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

    def __init__(self, file: io.BufferedReader, source: str, decoder: json.JSONDecoder, piece_bytes: int) -> None:
        self._file, self._source, self._decoder, self._piece_bytes = file, source, decoder, piece_bytes
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text, self._at, self._ended = "", 0, False
        self.line = 1

    def next(self) -> str:
        """Return the next character that is not blank; an empty text at the end of the file."""
        while True:
            self._move(_BLANK.match(self._text, self._at).end())  # type: ignore[union-attr]
            if self._at < len(self._text) or not self._more(self._piece_bytes):
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
        size = self._piece_bytes
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

    def _more(self, size: int) -> bool:
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
