"""A default value of each type, for columns that need a value in a row that has none: zero, or empty.

Deletes have only a key. In columns that are not nullable they have these values, which no reader sees.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.model.type_names import JSON, UUID


def default_column(kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column of ``rows`` default values."""
    return pa.array([_default(kind)], kind).take(pa.array(np.zeros(rows, np.int64)))


def _default(kind: pa.DataType) -> Any:
    """Return the default value, as Arrow takes it for the type; nullable members are null."""
    if pa.types.is_struct(kind):
        members = [kind.field(index) for index in range(kind.num_fields)]
        return {member.name: None if member.nullable else _default(member.type) for member in members}
    if pa.types.is_fixed_size_list(kind):
        return [_default(kind.value_type)] * kind.list_size
    if pa.types.is_nested(kind):
        return []
    if kind == UUID:
        return bytes(16)
    if kind == JSON:
        return "null"
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_decimal(kind):
        return Decimal(0)
    if pa.types.is_float16(kind):
        return np.float16(0)
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return 0
    if pa.types.is_null(kind):
        return None
    return b"" if "binary" in str(kind) else ""
