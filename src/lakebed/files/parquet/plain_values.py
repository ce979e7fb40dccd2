"""Values of key columns in Parquet's plain encoding, which statistics and Bloom filters have. Pure.

Contents are those of :mod:`lakebed.model.key_types`. Source: the Parquet format, "Plain encoding" and "Logical types".
Integers of less than 32 bits are stored in 32, decimals as big-endian two's complement of as many bytes as their digits
need, and seconds as milliseconds.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakebed.model.key_columns import raw
from lakebed.model.key_types import Form, decimal_of, unscaled

if TYPE_CHECKING:
    from lakebed.model.key_types import Content
    from lakebed.model.schema import Field

BOOLEAN, INT32, INT64, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = 0, 1, 2, 4, 5, 6, 7
"""Parquet's physical types."""

_MS_PER_S = 1_000


def physical_type(field: Field) -> int:
    """Return the physical type in which a key column is stored."""
    match field.key_type.form:
        case Form.BOOLEAN:
            return BOOLEAN
        case Form.SIGNED | Form.UNSIGNED:
            return INT64 if field.width == 8 else INT32
        case Form.FLOAT:
            return DOUBLE if field.width == 8 else FLOAT
        case Form.DECIMAL | Form.BYTES:
            return FIXED
        case _:
            return BYTE_ARRAY


def per_unit(field: Field) -> int:
    """Return the units of the file per unit of the column: Parquet has no seconds and stores milliseconds instead."""
    kind = field.type
    return _MS_PER_S if (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and kind.unit == "s" else 1


def content_of(field: Field, data: bytes) -> Content:
    """Return the content of a plain value. Raises ValueError if it is none."""
    match field.key_type.form:
        case Form.SIGNED:
            return int.from_bytes(data, "little", signed=True) // per_unit(field)
        case Form.UNSIGNED:
            return int.from_bytes(data, "little")
        case Form.BOOLEAN:
            return bool(data[0])
        case Form.FLOAT:
            try:
                found: float = struct.unpack("<f" if field.width == 4 else "<d", data)[0]
            except struct.error as error:
                raise ValueError(f"{data.hex()} is no {field.type}") from error
            return found
        case Form.DECIMAL:
            return decimal_of(int.from_bytes(data, "big", signed=True), field.type.scale)
        case Form.BYTES:
            # A writer may shorten bounds; the upper one is then above all values that begin so.
            return data.ljust(field.width, b"\x00")
        case Form.TEXT:
            # A value that was shortened inside a character cannot be a bound: it raises a ValueError, reported as
            # damage. The writer of data files never shortens.
            return data.decode("utf-8")
        case _:
            return data


def plain(field: Field, content: Any) -> bytes:
    """Return the plain value of a content."""
    match field.key_type.form:
        case Form.SIGNED:
            return int(content * per_unit(field)).to_bytes(max(4, field.width), "little", signed=True)
        case Form.UNSIGNED:
            return int(content).to_bytes(max(4, field.width), "little")
        case Form.BOOLEAN:
            return bytes([content])
        case Form.FLOAT:
            return struct.pack("<f" if field.width == 4 else "<d", math.nan if math.isnan(content) else content + 0.0)
        case Form.DECIMAL:
            return unscaled(content, field.type.scale).to_bytes(decimal_bytes(field), "big", signed=True)
        case Form.TEXT:
            return str(content).encode("utf-8")
        case _:
            return bytes(content)


def plain_all(field: Field, column: pa.Array) -> list[bytes]:
    """Return the plain value of each value of a column; not of booleans."""
    if not field.width:
        values: list[bytes] = column.cast(pa.binary()).to_pylist()
        return values
    width = field.width
    match field.key_type.form:
        case Form.SIGNED | Form.UNSIGNED:
            sign = "i" if field.key_type.form is Form.SIGNED else "u"
            width = max(4, width)
            numbers = raw(column).view(f"<{sign}{field.width}").ravel().astype(f"<{sign}{width}")
            data = (numbers * numbers.dtype.type(per_unit(field))).tobytes()
        case Form.DECIMAL:
            width = decimal_bytes(field)
            data = np.ascontiguousarray(raw(column)[:, ::-1][:, -width:]).tobytes()
        case _:
            data = raw(column).tobytes()
    return [data[begin : begin + width] for begin in range(0, len(data), width)]


def decimal_bytes(field: Field) -> int:
    """Return the bytes in which Parquet stores a decimal: as many as its digits and a sign need."""
    return int(10**field.type.precision).bit_length() // 8 + 1
