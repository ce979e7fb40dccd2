"""Sums and extremes of groups by NumPy, for columns of numbers and times of a fixed width.

Rows of a group are neighbours, so one pass over the column is enough; Arrow hashes the number of each row's group,
which takes ten times as long. The results are those of Arrow: nulls are ignored, and so is NaN by an extreme.

Core function: :func:`reduced`. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.arrays import booleans

if TYPE_CHECKING:
    from lakebed.files.merging.groups import Groups

_INT64_MAX = 2**63 - 1

Numbers = np.ndarray[Any, np.dtype[Any]]


def reduced(name: str, column: pa.Array, groups: Groups) -> pa.Array | None:
    """Return ``sum``, ``min`` or ``max`` of each group; None if the column, or the size of a sum, is not supported.

    An extreme has the type of the column; a sum is int64 or double.
    """
    numbers = _numbers(column)
    if numbers is None:
        return None
    kind = column.type
    if not column.null_count:
        combined = _reduceat(name, numbers.to_numpy(), groups)
        return None if combined is None else _masked_array(combined, kind)
    if pa.types.is_floating(kind):
        # No float can stand for null, besides NaN and the infinities.
        return None
    filled = pc.fill_null(numbers, pa.scalar(_neutral(name, numbers.type), numbers.type))
    combined = _reduceat(name, filled.to_numpy(), groups)
    if combined is None:
        return None
    present = np.logical_or.reduceat(booleans(column.is_valid()), groups.starts)
    return _masked_array(combined, kind, mask=~present)


def _numbers(column: pa.Array) -> pa.Array | None:
    """Return the column as NumPy numbers, without a copy; None if NumPy has no such type."""
    kind = column.type
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64()):
        return column
    return None


def _neutral(name: str, kind: pa.DataType) -> int:
    if name == "sum":
        return 0
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.max if name == "min" else limits.min)


def _reduceat(name: str, values: Numbers, groups: Groups) -> Numbers | None:
    floating = values.dtype.kind == "f"
    if name == "sum":
        if floating:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.add.reduceat(values, groups.starts, dtype=np.float64)
        largest = max(abs(int(values.min())), abs(int(values.max())))
        if largest * len(values) > _INT64_MAX:
            return None
        return np.add.reduceat(values, groups.starts, dtype=np.int64)
    if floating:
        return (np.fmin if name == "min" else np.fmax).reduceat(values, groups.starts)
    return (np.minimum if name == "min" else np.maximum).reduceat(values, groups.starts)


def _masked_array(values: Numbers, kind: pa.DataType, mask: Any = None) -> pa.Array:
    array = pa.array(values, mask=mask)
    return array.view(kind) if pa.types.is_temporal(kind) else array
