"""Converts values of Arrow and Python to JSON. Pure.

Integers are numbers of any size. Binary is text of hex digits; dates and times are ISO 8601 (moments in UTC, with a Z;
:mod:`lakebed.model.iso_times`), decimals are text so that no digit is lost, maps are lists of pairs. JSON has no NaN
and no infinities: they become the texts ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, so that null always means null.

No function makes an Arrow array of Python values, because that imports pandas.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from itertools import repeat
from typing import Any

import msgspec
import pyarrow as pa

from lakebed.model.iso_times import iso_texts


def json_text(value: Any) -> str:
    """Return one line of strict JSON, as :func:`json_bytes`."""
    return json_bytes(value).decode()


def json_bytes(value: Any) -> bytes:
    """Return one line of strict JSON, with a space after commas and colons. Requires values from ``plain`` or
    ``encode_array``.

    Raises UnicodeEncodeError for text that UTF-8 cannot encode.
    """
    return msgspec.json.format(msgspec.json.encode(value), indent=0)


def plain(value: Any) -> Any:
    """Convert a Python value to a JSON value."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _number(value)
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            moment = value if value.tzinfo is None else value.astimezone(dt.UTC)
            return moment.isoformat().replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case Sequence():
            return [plain(item) for item in value]
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case _ if is_dataclass(value):
            return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        case _:
            return str(value)


def encode_array(column: pa.Array) -> list[Any]:
    """Convert a column's values to JSON values."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return iso_texts(column)
    if pa.types.is_dictionary(kind):
        return encode_array(column.dictionary_decode())
    if pa.types.is_struct(kind):
        members = [encode_array(member) for member in column.flatten()]
        names = [kind.field(i).name for i in range(kind.num_fields)]
        rows = zip(*members, strict=True) if members else iter([()] * len(column))
        valid = column.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if ok else None for ok, row in zip(valid, rows, strict=True)]
    if pa.types.is_map(kind):
        parts = (_items_of(column, column.keys), _items_of(column, column.items))
        pairs = zip(*(encode_array(part) for part in parts), strict=True)
        return _sliced(column, [list(pair) for pair in pairs])
    if pa.types.is_fixed_size_list(kind):
        column = column.cast(kind := pa.list_(kind.value_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _sliced(column, encode_array(_items_of(column, column.values)))
    values = list(column.to_pylist())
    as_they_are = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind)
    return values if as_they_are else [plain(value) for value in values]


def encode_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Convert the rows of a batch to JSON values."""
    columns = [encode_array(column) for column in batch.columns]
    return zip(*columns, strict=True) if columns else repeat((), batch.num_rows)


def _items_of(column: pa.Array, items: pa.Array) -> pa.Array:
    """Return the items of the lists of a column, which may be a slice of a longer one."""
    offsets = column.offsets
    first, end = (offsets[0].as_py(), offsets[-1].as_py()) if len(column) else (0, 0)
    return items.slice(first, end - first)


def _sliced(column: pa.Array, items: list[Any]) -> list[Any]:
    """Return the lists of a column, sliced from ``items``, the items of all of them."""
    offsets = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    first = offsets[0] if offsets else 0
    return [items[offsets[i] - first : offsets[i + 1] - first] if ok else None for i, ok in enumerate(valid)]


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
