"""Sizes of decoded rows, and cutting of rows by size.

A number of rows does not bound memory: 2,000 references to one text of a megabyte are a file of a few kilobytes and 2
GB of rows. Code that keeps rows in memory cuts them here, by the bytes of each row and not by their average.

The size of a row is that of its values in plain layout: text and bytes at full length even if a dictionary shares them,
with list items, struct members and the offsets of variable-length values. Slices share memory with the rows that they
were cut from. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model import types, validity
from lakebed.model.arrays import Integers, of_binary
from lakebed.model.settings import MIB, Settings

BATCH_BYTES = 8 * 1024 * 1024
"""The decoded size limit of a batch during ingest, unless a single row is larger."""


PAGES_BYTES_MIN = 72 * MIB
"""The pages that Arrow may hold at once under any memory limit: a value of 64 MiB, and some more."""

_SHORT_BYTES = 128
_MEASURED_ROWS = 1024 * 1024
"""Rows whose sizes are computed at once."""


def pages_bytes_max(memory_limit_bytes: int) -> int:
    """Return the bytes of pages of a row group that may be held at once, under a memory limit."""
    # A page is held stored, decompressed, and up to twice as rows while their buffer grows.
    return PAGES_BYTES_MIN + memory_limit_bytes // 4


def limit_for(pages_bytes: int) -> int:
    """Return the memory limit under which this many bytes of pages may be held."""
    return 4 * max(0, pages_bytes - PAGES_BYTES_MIN)


DEFAULT_PAGES_BYTES_MAX = pages_bytes_max(Settings().memory_limit_bytes)


def row_ends(rows: pa.RecordBatch) -> Integers:
    """Return the size of the first ``i`` rows, for ``i`` from 0 to the number of rows."""
    ends: Integers = reduce(add, map(value_ends, rows.columns), np.zeros(rows.num_rows + 1, np.int64))
    return ends


def size_of(rows: pa.RecordBatch) -> int:
    """Return an upper estimate of the size of the rows."""
    if all(map(_is_plain, rows.schema.types)):
        return int(rows.nbytes)
    return sum(map(_column_size, rows.columns))


def value_ends(column: pa.Array) -> Integers:
    """Return the size of the first ``i`` values of a column, for ``i`` from 0 to their number."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    kind, count = column.type, len(column)
    if not count or pa.types.is_null(kind):
        # Takes no memory, however many.
        return np.broadcast_to(np.int64(0), (count + 1,))
    if pa.types.is_dictionary(kind):
        return _dictionary_ends(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text_ends(_offsets(column, np.int32))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _text_ends(_offsets(column, np.int64))
    if pa.types.is_struct(kind):
        members = (value_ends(column.field(index)) for index in range(kind.num_fields))
        return reduce(add, members, np.zeros(count + 1, np.int64))
    if types.is_list(kind) or pa.types.is_map(kind):
        return _list_ends(column)
    if _is_view(kind):
        # A view begins with its length, in 4 of 16 bytes.
        lengths = np.frombuffer(column.buffers()[1], np.int32)[4 * column.offset :: 4][:count].astype(np.int64)
        if column.null_count:
            lengths[np.asarray(column.is_null())] = 0
        return _text_ends(np.concatenate([[0], np.cumsum(lengths)]))
    return _steps(count, -(-kind.bit_width // 8))


def slice_rows(rows: pa.RecordBatch, bytes_max: int, rows_max: int = 2**31 - 1) -> Iterator[pa.RecordBatch]:
    """Return slices of the rows in order, each of at most ``bytes_max`` unless it is one row, and ``rows_max`` rows."""
    if rows.num_rows > _MEASURED_ROWS:
        # Row sizes are numbers of their own, and a batch may have more rows than bytes.
        for begin in range(0, rows.num_rows, _MEASURED_ROWS):
            yield from slice_rows(rows.slice(begin, _MEASURED_ROWS), bytes_max, rows_max)
        return
    if rows.num_rows <= rows_max and size_of(rows) <= bytes_max:
        yield rows
        return
    ends = row_ends(rows)
    begin = 0
    while begin < rows.num_rows:
        end = max(begin + 1, _reach(ends, begin, bytes_max, rows_max))
        yield rows.slice(begin, end - begin)
        begin = end


def has_dictionary(kind: pa.DataType) -> bool:
    """Return whether values are shared by reference, here or anywhere in a nested type."""
    if pa.types.is_dictionary(kind):
        return True
    return pa.types.is_nested(kind) and any(has_dictionary(kind.field(index).type) for index in range(kind.num_fields))


def decoded(column: pa.Array) -> pa.Array:
    """Return the same values without dictionaries: text as text, wherever in a nested type it is."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _looked_up(column)
    if not has_dictionary(kind):
        return column
    valid = column.is_valid() if column.null_count else None
    if pa.types.is_struct(kind):
        members = [decoded(column.field(index)) for index in range(kind.num_fields)]
        fields = [kind.field(index).with_type(member.type) for index, member in enumerate(members)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=None if valid is None else pc.invert(valid))
    mask = None if valid is None else pc.invert(valid)
    if pa.types.is_map(kind):
        offsets = _offsets(column, np.int32)
        first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys, items = (decoded(part.slice(first, length)) for part in (column.keys, column.items))
        return pa.MapArray.from_arrays(pa.array((offsets - first).astype(np.int32)), keys, items, mask=mask)
    lengths = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    items = decoded(column.flatten())
    return pa.ListArray.from_arrays(ends, items, type=pa.list_(kind.value_field.with_type(items.type)), mask=mask)


def decoded_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows without dictionaries."""
    if not any(map(has_dictionary, rows.schema.types)):
        return rows
    return pa.RecordBatch.from_arrays([decoded(column) for column in rows.columns], names=rows.schema.names)


def _looked_up(column: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary column. Arrow reserves the mean length for each: too much if one is long."""
    values = validity.canonical(column.dictionary)
    kind = values.type
    total, mean = int(value_ends(column)[-1]), values.nbytes / max(1, len(values))
    if mean * len(column) <= 2 * total + BATCH_BYTES or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return validity.canonical(column)
    texts = [value or b"" for value in values.cast(pa.binary()).to_pylist()]
    found = of_binary([texts[index] for index in column.indices.fill_null(0).to_pylist()], kind)
    return pc.if_else(column.is_valid(), found, pa.scalar(None, kind)) if column.null_count else found


def gather(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """Return the same rows in tables of at most ``rows_max`` rows and ``bytes_max``, unless one row is larger."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        whole = size_of(batch)
        if rows + batch.num_rows <= rows_max and size + whole <= bytes_max:
            if batch.num_rows:
                held.append(batch)
                rows, size = rows + batch.num_rows, size + whole
            del batch
            continue
        ends = row_ends(batch)
        begin = 0
        while begin < batch.num_rows:
            end = _reach(ends, begin, bytes_max - size, rows_max - rows)
            if end == begin and held:
                yield _drain(held)
                rows = size = 0
                continue
            end = max(end, begin + 1)
            held.append(batch.slice(begin, end - begin))
            rows, size = rows + end - begin, size + int(ends[end] - ends[begin])
            begin = end
        del batch
    if held:
        yield _drain(held)


def _reach(ends: Integers, begin: int, bytes_max: int, rows_max: int) -> int:
    """Return the end of the rows from ``begin`` on that fit."""
    end = int(np.searchsorted(ends, ends[begin] + max(bytes_max, 0), side="right")) - 1
    return max(begin, min(end, begin + rows_max, len(ends) - 1))


def _drain(held: list[pa.RecordBatch]) -> pa.Table:
    """Return the batches as a table, with no other reference to them: a suspended generator keeps its variables."""
    table = pa.Table.from_batches(held)
    held.clear()
    return table


# -- columns ----------------------------------------------------------------------------------------------------


def _column_size(column: pa.Array) -> int:
    kind = column.type
    if _is_plain(kind):
        return int(column.nbytes)
    if pa.types.is_dictionary(kind) and _is_plain(kind.value_type):
        longest = int(np.diff(value_ends(column.dictionary)).max(initial=0))
        # Long values are counted exactly.
        if longest <= _SHORT_BYTES:
            return longest * len(column)
    return int(value_ends(column)[-1])


def _steps(count: int, width: int) -> Integers:
    return np.arange(count + 1, dtype=np.int64) * width


def _offsets(column: pa.Array, kind: type[np.int32 | np.int64]) -> Integers:
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, kind, len(column) + 1, column.offset * np.dtype(kind).itemsize).astype(np.int64)


def _text_ends(offsets: Integers) -> Integers:
    ends: Integers = offsets - offsets[0] + _steps(len(offsets) - 1, 4)
    return ends


def _dictionary_ends(column: pa.DictionaryArray) -> Integers:
    sizes = np.diff(value_ends(column.dictionary))
    if not len(sizes):
        return np.zeros(len(column) + 1, np.int64)
    indices = np.asarray(column.indices.fill_null(0).cast(pa.int64()))
    taken = sizes[indices]
    if column.indices.null_count:
        taken[np.asarray(column.indices.is_null())] = 0
    return np.concatenate([[0], np.cumsum(taken)])


def _list_ends(column: pa.Array) -> Integers:
    kind, count = column.type, len(column)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        items = value_ends(column.values.slice(column.offset * size, count * size))
        return items[::size] if size else np.zeros(count + 1, np.int64)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        begins, sizes = (np.asarray(part).astype(np.int64) for part in (column.offsets, column.sizes))
        items = value_ends(column.values)
        items = np.concatenate([[0], np.cumsum(items[begins + sizes] - items[begins])])
        offsets = np.arange(count + 1)
    else:
        offsets = _offsets(column, np.int64 if pa.types.is_large_list(kind) else np.int32)
        first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
        offsets -= first
        if pa.types.is_map(kind):
            items = value_ends(column.keys.slice(first, length)) + value_ends(column.items.slice(first, length))
        else:
            items = value_ends(column.values.slice(first, length))
    ends: Integers = items[offsets] + _steps(count, 4)
    return ends


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether the bytes of a column's buffers are at least those of its values."""
    if kind.num_fields:
        inner = [kind.field(index).type for index in range(kind.num_fields)]
        views = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
        return not views and all(map(_is_plain, inner))
    return not (pa.types.is_dictionary(kind) or _is_view(kind))
