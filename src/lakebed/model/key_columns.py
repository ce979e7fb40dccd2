"""Encodes the keys of many rows from columns, and decodes them: the encoding of :mod:`lakebed.model.keys`, vectorised.

Works on bytes, so that nothing imports pandas (:mod:`lakebed.model.arrays`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lakebed.model.arrays import of_binary, plain
from lakebed.model.key_types import key_type
from lakebed.model.types import is_untyped, with_inner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Field


Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def encode_columns(fields: Sequence[Field], rows: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return the encoded key of every row, as one binary array in row order. Columns must have the fields' types."""
    import pyarrow.compute as pc

    if isinstance(rows, pa.Table):
        rows = rows.combine_chunks()
    parts = []
    for field in fields:
        column = rows.column(field.name)
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], field.type)
        parts += field.key_type.encode_column(column)
    if len(parts) == 1:
        return parts[0]
    # Joins all parts at once: each join copies every key.
    return pc.binary_join_element_wise(*parts, *of_binary([b""]))


def inside(keys: pa.Array, key_range: EncodedRange) -> pa.Array:
    """Return whether each encoded key lies in the range."""
    import pyarrow.compute as pc

    mask = pc.greater_equal(keys, pa.scalar(key_range.min, keys.type))
    if key_range.max is None:
        return mask
    return pc.and_(mask, pc.less(keys, pa.scalar(key_range.max, keys.type)))


def decode_columns(fields: Sequence[Field], keys: Sequence[bytes]) -> pa.RecordBatch:
    """Decode whole keys into columns of the fields' types."""
    columns = []
    for field in fields:
        column, keys = field.key_type.decode_column(keys)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, [field.name for field in fields])


def same_key(column: pa.Array) -> pa.Array:
    """Return a key column with one value for each key: floats with one zero and one NaN."""
    found = key_type(column.type)
    return column if found is None else found.one_form(column)


def comparable(column: pa.Array) -> pa.Array:
    """Return a key column without nulls in a form that Arrow orders as keys."""
    found = key_type(column.type)
    return plain(column) if found is None else found.comparable(column)


def by_bits(column: pa.Array) -> pa.Array:
    """Return floats and times, at any depth, as integers of the same bits, and UUIDs as bytes.

    So NaN is itself, zero has a sign, and times that Python's types lack become Python values. A column with a null
    type inside stays as it is: a view by Arrow would give its null arrays the length of the column.
    """
    column = plain(column)
    kind = _with_bits(column.type)
    return column if kind == column.type or is_untyped(kind) else column.view(kind)


def _with_bits(kind: pa.DataType) -> pa.DataType:
    is_time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    if pa.types.is_floating(kind) or is_time:
        return _BITS[kind.bit_width]
    return kind if pa.types.is_dictionary(kind) else with_inner(kind, _with_bits)


def sorted_by(rows: Rows, names: Sequence[str]) -> Rows:
    """Return the rows in ascending order of some columns, sorted stably."""
    import pyarrow.compute as pc

    keys = pa.table([plain(rows.column(name)) for name in names], [str(number) for number in range(len(names))])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return rows.take(order)
