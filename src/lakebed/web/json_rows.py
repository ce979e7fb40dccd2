"""Rows of JSON lines as Arrow batches of a schema: the inverse of :func:`lakebed.web.row_formats.json_lines`.

A line is an object with a member for each column; a nullable column may be missing, and is null then. Members that the
schema does not have stay text columns or numbers, for the table to refuse or to add. Errors: SchemaMismatchError, which
names the column and the line.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakebed.errors import Code

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

BATCH_ROWS = 8_192

_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_UNCONVERTIBLE = (TypeError, ValueError, OverflowError, KeyError, AttributeError, InvalidOperation, pa.ArrowException)


def read_json_lines(file: IO[bytes], schema: Schema) -> pa.RecordBatchReader:
    """The rows of the file, read as they are asked for. The columns are those of the first batch of lines."""
    batches = _batches(file, schema)
    first = next(batches, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(schema.arrow, [])
    return pa.RecordBatchReader.from_batches(first.schema, _same(first, batches))


def _same(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    for batch in others:
        if batch.schema.names != first.schema.names:
            raise Code.SOURCE_UNPARSABLE(
                f"lines have different columns: first {', '.join(first.schema.names)}, later "
                f"{', '.join(batch.schema.names)}; give each line every column"
            )
        yield batch


def _batches(file: IO[bytes], schema: Schema) -> Iterator[pa.RecordBatch]:
    done = 0
    while lines := list(islice(file, BATCH_ROWS)):
        rows = [_row(line, done + number) for number, line in enumerate(lines, 1) if line.strip()]
        if rows:
            yield _batch(rows, schema, done)
        done += len(lines)


def _row(line: bytes, number: int) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Code.SOURCE_UNPARSABLE(f"line {number} is not JSON: {error}", row=number) from error
    if not isinstance(row, dict):
        raise Code.SOURCE_UNPARSABLE(f"line {number} is not a JSON object", row=number)
    return row


def _batch(rows: list[dict[str, Any]], schema: Schema, before: int) -> pa.RecordBatch:
    given = dict.fromkeys(name for row in rows for name in row)
    arrays, fields = [], []
    for name in given:
        values = [row.get(name) for row in rows]
        known = schema.by_name.get(name)
        try:
            array = decode_array(values, known.type) if known is not None else pa.array(values)
        except _UNCONVERTIBLE as error:
            kind = "" if known is None else f" ({known.type})"
            raise Code.VALUE_NOT_REPRESENTABLE(
                f"column {name!r}{kind}: a value of lines {before + 1} to {before + len(rows)} cannot be read: {error}",
                column=name,
            ) from error
        arrays.append(array)
        fields.append(pa.field(name, array.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


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
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return _decimal
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _binary
    return lambda value: value


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
