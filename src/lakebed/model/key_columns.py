"""Encodes the keys of many rows from columns, and decodes them: the encoding of :mod:`lakebed.model.keys`, vectorised.

Works on bytes, so that nothing imports pandas (:mod:`lakebed.model.arrays`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from lakebed.model.arrays import booleans, of_binary
from lakebed.model.key_types import Form, KeyType, key_type
from lakebed.model.key_values import ESCAPED_ZERO, TERMINATOR
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
        parts += _encode(field, column)
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
        if field.width:
            contents, keys = [key[: field.width] for key in keys], [key[field.width :] for key in keys]
            columns.append(_decode_column(field.key_type, np.frombuffer(b"".join(contents), np.uint8)))
        else:
            # An escaped zero never begins a terminator.
            parts = [key.partition(TERMINATOR) for key in keys]
            columns.append(of_binary([content.replace(ESCAPED_ZERO, b"\x00") for content, _, _ in parts], field.type))
            keys = [rest for _, _, rest in parts]
    return pa.RecordBatch.from_arrays(columns, [field.name for field in fields])


def same_key(column: pa.Array) -> pa.Array:
    """Return the column with one zero and one NaN if it has floats, as in keys (:mod:`lakebed.model.key_types`)."""
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    plain = pc.add(column, pa.scalar(0, column.type))
    return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), column.type), plain)


def comparable(column: pa.Array) -> pa.Array:
    """Return a key column without nulls in a form that Arrow orders as keys: codes for floats, bytes for UUIDs."""
    found = key_type(column.type)
    if found is not None and found.form is Form.FLOAT:
        codes = pa.py_buffer(_codes(found, column).astype(f"<u{found.width}"))
        kind = pa.uint32() if found.width == 4 else pa.uint64()
        return pa.Array.from_buffers(kind, len(column), [None, codes])
    return plain(column)


def plain(column: Any) -> Any:
    """Return an array or chunked array without its extension type, which Arrow's kernels do not support."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column.storage


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


def raw(column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the bytes of a fixed-width column without nulls, one row per value; not for booleans, which are bits."""
    column = plain(column)
    width = column.type.bit_width // 8
    content = column.buffers()[1] or b""
    return np.frombuffer(content, np.uint8, width * len(column), width * column.offset).reshape(-1, width)


def _encode(field: Field, column: pa.Array) -> list[pa.Array | pa.Scalar]:
    """Return the parts whose concatenation encodes each value: an array, and a terminator for variable-width types."""
    import pyarrow.compute as pc

    if field.width:
        codes = np.ascontiguousarray(_codes(field.key_type, column))
        kind = pa.binary(field.width)
        return [pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(codes)]).cast(pa.binary())]
    content = column.cast(pa.binary())
    if not np.all(_content_bytes(content)):
        content = pc.replace_substring(content, pattern=b"\x00", replacement=ESCAPED_ZERO)
    return [content, *of_binary([TERMINATOR])]


def _content_bytes(column: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of all values of a binary array, one after another."""
    _, offsets, content = column.buffers()
    if not len(column) or content is None:
        return np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)
    begin, end = int(ends[column.offset]), int(ends[column.offset + len(column)])
    return np.frombuffer(content, np.uint8, end - begin, begin)


def _codes(key: KeyType, column: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the encodings of the values of a column, as rows of bytes or as big-endian numbers."""
    match key.form:
        case Form.BOOLEAN:
            return booleans(column)
        case Form.BYTES:
            return raw(column)
        case Form.DECIMAL:
            codes = raw(column)[:, ::-1].copy()
            codes[:, 0] ^= 0x80
            return codes
        case _:
            numbers = raw(same_key(column)).view(f"<u{key.width}").ravel()
            return _flipped(key, numbers, back=False).astype(f">u{key.width}")


def _decode_column(key: KeyType, codes: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.Array:
    """Return the values of these encodings, one after another."""
    count = len(codes) // key.width
    match key.form:
        case Form.BOOLEAN:
            content = np.packbits(codes, bitorder="little")
        case Form.BYTES:
            found = pa.Array.from_buffers(pa.binary(key.width), count, [None, pa.py_buffer(codes)])
            return found.cast(key.kind)
        case Form.DECIMAL:
            content = codes.reshape(-1, key.width)[:, ::-1].copy()
            content[:, -1] ^= 0x80
        case _:
            numbers = codes.view(f">u{key.width}").astype(f"<u{key.width}")
            content = _flipped(key, numbers, back=True)
    return pa.Array.from_buffers(key.kind, count, [None, pa.py_buffer(np.ascontiguousarray(content))])


def _flipped(key: KeyType, numbers: np.ndarray[Any, np.dtype[Any]], *, back: bool) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the unsigned codes for the bits of a column's values; with ``back``, the reverse."""
    if key.form is Form.UNSIGNED:
        return numbers
    top = numbers.dtype.type(1 << (8 * key.width - 1))
    if key.form is Form.SIGNED:
        flipped = np.bitwise_xor(numbers, top)
    else:
        negative = (numbers & top == 0) if back else (numbers & top != 0)
        flipped = np.where(negative, ~numbers, numbers ^ top)
    return np.asarray(flipped)
