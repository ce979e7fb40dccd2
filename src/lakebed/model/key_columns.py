"""Encoded keys of many rows at once, from columns and back: what :mod:`lakebed.model.keys` says of one, in steps of
Arrow's.

By bytes, so that nothing imports pandas (:mod:`lakebed.model.arrays`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.model.arrays import of_binary
from lakebed.model.key_encoding import ESCAPED_ZERO, TERMINATOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Field


def encode_columns(fields: Sequence[Field], rows: pa.RecordBatch | pa.Table) -> pa.Array:
    """The encoded key of every row, as one binary array in row order. Columns must have the fields' types."""
    import pyarrow.compute as pc

    if isinstance(rows, pa.Table):
        rows = rows.combine_chunks()
    parts = []
    for field in fields:
        column = rows.column(field.name)
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], field.type)
        parts.append(_encode(field, column))
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, *of_binary([b""]))


def inside(keys: pa.Array, key_range: EncodedRange) -> pa.Array:
    """Whether each encoded key lies in the range."""
    import pyarrow.compute as pc

    mask = pc.greater_equal(keys, pa.scalar(key_range.min, keys.type))
    if key_range.max is None:
        return mask
    return pc.and_(mask, pc.less(keys, pa.scalar(key_range.max, keys.type)))


def decode_columns(fields: Sequence[Field], keys: Sequence[bytes]) -> pa.RecordBatch:
    """The fields of whole keys as columns, of the fields' types."""
    columns = []
    for field in fields:
        if field.width:
            contents, keys = [key[: field.width] for key in keys], [key[field.width :] for key in keys]
            flipped = np.frombuffer(b"".join(contents), f">i{field.width}").astype(f"<i{field.width}")
            data = pa.py_buffer(flipped ^ np.iinfo(flipped.dtype).min)
            columns.append(pa.Array.from_buffers(field.type, len(contents), [None, data]))
        else:
            # An escaped zero never begins a terminator.
            parts = [key.partition(TERMINATOR) for key in keys]
            columns.append(of_binary([content.replace(ESCAPED_ZERO, b"\x00") for content, _, _ in parts], field.type))
            keys = [rest for _, _, rest in parts]
    return pa.RecordBatch.from_arrays(columns, [field.name for field in fields])


def _encode(field: Field, column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    if field.width:
        content = column.buffers()[1] or b""
        values = np.frombuffer(content, f"u{field.width}", len(column), field.width * column.offset)
        flipped = (values ^ values.dtype.type(1 << (8 * field.width - 1))).astype(f">u{field.width}")
        fixed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(field.width), len(column), [None, pa.py_buffer(flipped.tobytes())]
        )
        return fixed.cast(pa.binary())
    escaped = pc.replace_substring(column.cast(pa.binary()), pattern=b"\x00", replacement=ESCAPED_ZERO)
    return pc.binary_join_element_wise(escaped, *of_binary([TERMINATOR, b""]))
