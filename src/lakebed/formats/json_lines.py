"""Rows of JSON lines as Arrow batches of a schema: the inverse of :func:`lakebed.web.row_formats.json_lines`.

A line is an object with a member for each column; a nullable column may be missing, and is null then. Members that the
schema does not have stay text columns or numbers, for the table to refuse or to add. Batches may differ in their
columns. Errors: SchemaMismatchError, which names the file, the line and the column.
"""

from __future__ import annotations

import binascii
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import IO, Any

import msgspec
import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.model.checks import shown
from lakebed.model.foreign_errors import error_text
from lakebed.model.type_names import JSON, UUID

BATCH_ROWS = 8_192

_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_UNCONVERTIBLE = (TypeError, ValueError, OverflowError, KeyError, AttributeError, InvalidOperation, pa.ArrowException)


def read_json_lines(file: IO[bytes], fields: Mapping[str, pa.DataType], source: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, read as they are asked for; ``fields`` has types by name, ``source`` names it in errors."""
    lines_before = 0
    while lines := list(islice(file, BATCH_ROWS)):
        numbered = [(lines_before + number, line) for number, line in enumerate(lines, 1) if line.strip()]
        rows = [_row(line, number, source) for number, line in numbered]
        if rows:
            yield _batch(rows, [number for number, _ in numbered], fields, source)
        lines_before += len(lines)


def line_of(file: IO[bytes], row: int) -> int:
    """The line of a row, counted from 1; rows count from 0."""
    numbers = (number for number, line in enumerate(file, 1) if line.strip())
    return next(islice(numbers, row, None), 0)


def _row(line: bytes, number: int, source: str) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        array = "; the file is one array: give one object a line, as `jq -c '.[]'` does" if line[:1] == b"[" else ""
        raise Code.SOURCE_UNPARSABLE(f"{source}, line {number} is not JSON: {error}{array}", row=number) from error
    if not isinstance(row, dict):
        array = "; give one object a line, as `jq -c '.[]'` does" if isinstance(row, list) else ""
        raise Code.SOURCE_UNPARSABLE(f"{source}, line {number} is not a JSON object{array}", row=number)
    return row


def _batch(
    rows: list[dict[str, Any]], numbers: list[int], fields: Mapping[str, pa.DataType], source: str
) -> pa.RecordBatch:
    given = dict.fromkeys(name for row in rows for name in row)
    arrays = []
    for name in given:
        kind = fields.get(name)
        try:
            arrays.append(_array([row.get(name) for row in rows], kind))
        except _UNCONVERTIBLE as error:
            raise _unread(name, kind, [row.get(name) for row in rows], (numbers, source)) from error
    return pa.RecordBatch.from_arrays(arrays, names=list(given))


def _array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    return pa.array(values) if kind is None else decode_array(values, kind)


def _unread(name: str, kind: pa.DataType | None, values: list[Any], place: tuple[list[int], str]) -> Error:
    """The error of the first value that cannot be read, or that is of another type than those before."""
    numbers, source = place
    for index, value in enumerate(values):
        try:
            _array([value] if kind is not None else values[: index + 1], kind)
        except _UNCONVERTIBLE as error:
            what = "the type of the values before" if kind is None else kind
            return Code.VALUE_NOT_REPRESENTABLE(
                f"{source}, line {numbers[index]}, column {name}: {shown(value)} is not {what} ({error_text(error)})",
                column=name,
                source=source,
                row=numbers[index],
            )
    return Code.VALUE_NOT_REPRESENTABLE(f"{source}: column {name} cannot be read as {kind}", column=name, source=source)


def decode_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """JSON values as a column of the type. Raises TypeError, ValueError, ArrowException for one that does not fit."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _times(values, kind)
    if pa.types.is_struct(kind):
        members = [kind.field(i) for i in range(kind.num_fields)]
        parts = [decode_array([None if v is None else v.get(m.name) for v in values], m.type) for m in members]
        return pa.StructArray.from_arrays(parts, fields=members, mask=_nulls(values))
    if pa.types.is_map(kind):
        items = [pair for value in values if value is not None for pair in value]
        keys = decode_array([key for key, _ in items], kind.key_type)
        found = decode_array([item for _, item in items], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(values, pa.int32()), keys, found, kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = [item for value in values if value is not None for item in _list(value)]
        cls, offset = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(kind) else (pa.ListArray, pa.int32())
        return cls.from_arrays(_offsets(values, offset), decode_array(items, kind.value_type), type=kind)
    convert = _converter(kind)
    return pa.array([None if v is None else convert(v) for v in values], kind)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _nulls(values: list[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The offsets of lists; a null offset makes its list null."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], kind)


def _times(values: list[Any], kind: pa.DataType) -> pa.Array:
    # Through Arrow, whose times have nanoseconds and years beyond 9999.
    if any(not isinstance(value, str | None) for value in values):
        raise TypeError("dates and times are text in ISO 8601")
    return pa.array(values, pa.string()).cast(kind)


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    if kind == UUID:
        return uuid.UUID
    if kind == JSON:
        return _json
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return _decimal
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _binary
    return lambda value: value


def _json(value: Any) -> str:
    """The text of a value of a JSON column: a text is JSON itself, and any other value is encoded."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not a whole number")
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, str):
        return _FLOATS[value]
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not a decimal in text or a whole number")
    return Decimal(value)


def _binary(value: Any) -> bytes:
    try:
        return b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{str(value)[:100]!r} is not base64: {error}") from error
