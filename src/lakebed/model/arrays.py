"""Convert between Arrow arrays and bytes or NumPy arrays, without importing pandas.

``pyarrow.array``, ``pyarrow.scalar`` and ``to_numpy`` import pandas if it is installed, to recognise its types. This
takes half a second of a new process that reads one row. Only :func:`of_binary` copies.

DataFusion calls them when it is imported. So a process that runs only Lakebed calls :func:`leave_pandas_out` first, and
:func:`recognise_pandas` before it runs code of the user.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

Integers = np.ndarray[Any, np.dtype[np.int64]]


def of_integers(numbers: Integers) -> pa.Array:
    """Return an int64 array of the numbers."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def of_binary(values: Sequence[bytes], kind: pa.DataType | None = None) -> pa.Array:
    """Return an array of the values, of type binary or another type with the same layout."""
    ends = array("i", accumulate(map(len, values), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind or pa.binary(), len(values), buffers)


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows. Arrow's own ``empty_table`` fails for lists of UUIDs."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every column nullable."""
    return pa.schema([field.with_nullable(nullable=True) for field in schema])


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows, as :func:`empty_table`."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def integers(column: pa.Array) -> Integers:
    """Return the numbers of an array of 64-bit integers without nulls."""
    found: Integers = np.frombuffer(column.buffers()[1] or b"", np.int64, len(column), 8 * column.offset)
    return found


def booleans(column: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return the values of a boolean array without nulls."""
    bits = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, bitorder="little")[column.offset : column.offset + len(column)].view(np.bool_)


def plain(column: Any) -> Any:
    """Return an array or chunked array without its extension type, which Arrow's kernels do not support."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column.storage


def raw(column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the bytes of a fixed-width column without nulls, one row per value; not for booleans, which are bits."""
    column = plain(column)
    width = column.type.bit_width // 8
    content = column.buffers()[1] or b""
    return np.frombuffer(content, np.uint8, width * len(column), width * column.offset).reshape(-1, width)


class _Hidden:
    """A finder of modules that hides pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise ImportError for pandas; leave other modules to the finders after this one."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed", name=name)


def leave_pandas_out() -> None:
    """Make PyArrow recognise no pandas types from now on, so that it does not import pandas. Does nothing in a process
    that has imported pandas.

    Only for a process that runs only Lakebed: ``pa.array`` would take a pandas series for a sequence, in which NaN is
    not null. PyArrow looks for pandas once, and caches the result. ``to_pandas`` looks again.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Hidden)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(_Hidden)


def recognise_pandas() -> None:
    """Make PyArrow recognise the types of pandas, if it is installed: undoes :func:`leave_pandas_out`."""
    with suppress(ImportError):
        pa.table({}).to_pandas()
