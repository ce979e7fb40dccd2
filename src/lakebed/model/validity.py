"""Finds values of Arrow arrays that are invalid for their types, and repairs them.

An Arrow array may contain values that its type does not allow: text that is not UTF-8, a decimal with more digits than
its precision, a time outside a day, a map with equal keys. PyArrow accepts such arrays from any producer without
validation, and Parquet stores them, but most readers refuse the whole page with such a value. So they are refused
before they are written (:mod:`lakebed.write.conformer`, :mod:`lakebed.write.attach`), and replaced where older
versions wrote them (:mod:`lakebed.upkeep.repair`).

Arrow's own full validation is used; this module finds the rows. It costs about 3 ns for a short text, 1 ns if it is
ASCII, and less for anything else. Every depth of nesting is covered, dictionaries too. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.model import types
from lakebed.model.json_values import encode_array, json_text
from lakebed.model.moments import PER_SECOND

_EQUAL_KEYS = "a map with equal keys"
_TEXTS = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def invalid(column: pa.Array) -> pa.Array | None:
    """Return a mask of the rows with a value that their type does not allow, at any depth; None if there is no such
    row.

    Raises ArrowInvalid if the array itself is malformed, for example with offsets outside its buffers, so that no row
    can be named.
    """
    if _is_valid(column):
        return None
    # As bytes and integers all values are valid, so this checks only the layout.
    check_layout(column)
    rows = canonical(column)
    return _bad_rows(rows, _validate)


def unstorable(column: pa.Array) -> pa.Array | None:
    """Return a mask of the rows with a value that Parquet cannot store: seconds that overflow as milliseconds."""
    kind = types.in_parquet(column.type)
    if kind == column.type:
        return None
    try:
        column.cast(kind)
    except pa.ArrowInvalid:
        return _bad_rows(column, lambda part: part.cast(kind))
    return None


def uncastable(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a mask of the rows that Arrow cannot cast to a type without loss."""
    bad = _bad_rows(column, lambda part: part.cast(wanted))
    return pa.repeat(pa.scalar(value=False), len(column)) if bad is None else bad


def check_layout(column: pa.Array) -> None:
    """Raise ArrowInvalid if the array is malformed. Otherwise, reading any value is safe, valid or not."""
    column.validate()
    column.view(_raw(column.type)).validate(full=True)


def unfilled(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return a mask of the rows with a null in a struct member not nullable in ``kind``, a type of the same layout."""
    return _bad_rows(column, lambda part: _check_filled(part, kind))


def as_stored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values as the type of a field. Of a struct that is null, all members are: see
    :func:`lakebed.model.types.nullable_members`.
    """
    rows = masked(column)
    return rows if rows.type == kind else rows.cast(kind)


def masked(column: pa.Array) -> pa.Array:
    """Return the values with struct members that are nullable, and null wherever their struct is null."""
    kind = types.nullable_members(column.type)
    if not _holds_struct(kind):
        return column
    if pa.types.is_struct(kind):
        # Flattening applies the nulls of the struct to its members.
        members = [masked(member) for member in column.flatten()]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    rows = _compact(column)
    buffers = rows.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    if pa.types.is_map(kind):
        entries = [masked(rows.keys), masked(rows.items)]
        inside = pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
    else:
        inside = masked(rows.values)
    return pa.Array.from_buffers(kind, len(rows), buffers, children=[inside])


def _holds_struct(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or any(_holds_struct(kind.field(index).type) for index in range(kind.num_fields))


def reason(column: pa.Array, row: int) -> str:
    """Return the fault of a row that :func:`invalid` has marked, to follow "column x holds" in a message."""
    try:
        _validate(_compact(column.slice(row, 1)))
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            return "text that is not UTF-8"
        if str(error) == _EQUAL_KEYS:
            return _EQUAL_KEYS
    return f"a value that {column.type} does not allow"


def shown(column: pa.Array, row: int) -> str:
    """Format a value for an error message: its bytes or its integer if it is invalid."""
    one = canonical(column.slice(row, 1))
    try:
        _compact(one).validate(full=True)
    except pa.ArrowInvalid:
        return str(one.view(_raw(one.type))[0])
    try:
        return str(one[0])
    except (OverflowError, ValueError):
        # Python has no such time: it is finer than microseconds, or outside of the years 1 to 9999.
        found = encode_array(one)[0]
        return found if isinstance(found, str) else json_text(found)


def mended(column: pa.Array) -> pa.Array:
    """Return the same values in the canonical type, with U+FFFD for each byte that is not UTF-8, and null for a decimal
    or time that its type does not allow. A map has the last value of equal keys, as the Parquet specification says. For
    few rows: each becomes a Python value.
    """
    rows = canonical(column)
    kind = types.nullable_members(rows.type)
    values = [_valid_value(value, kind) for value in rows.view(_raw(kind)).to_pylist(maps_as_pydicts=None)]
    return pa.array(values, _type_of_valid(kind)).view(kind)


def mended_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with each column that has an invalid value :func:`mended`; the others are unchanged."""
    columns = [column if _is_valid(column) else mended(column) for column in rows.columns]
    fields = [field.with_type(column.type) for field, column in zip(rows.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def canonical(column: pa.Array) -> pa.Array:
    """Return the same values in the layout of tables (:func:`lakebed.model.types.canonical`).

    Raises ArrowNotImplementedError for list views inside a map.
    """
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        values = canonical(column.dictionary)
        # PyArrow 26 has no lookup in views, of which Polars makes its categories.
        return pa.DictionaryArray.from_arrays(column.indices, values).cast(values.type)
    # PyArrow 26 casts list views as if they were ordered and without gaps, and so returns wrong values.
    if "list_view" not in str(kind):
        return column.cast(types.canonical(kind))
    if pa.types.is_struct(kind):
        members = [canonical(member) for member in column.flatten()]
        return pa.StructArray.from_arrays(members, fields=list(types.canonical(kind)), mask=column.is_null())
    if not types.is_list(kind):
        raise pa.ArrowNotImplementedError(f"list views inside {kind} cannot be read; give lists")
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)]).cast(pa.int32())
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(offsets, canonical(column.flatten()), mask=mask)


# -- finding ----------------------------------------------------------------------------------------------------


def _is_valid(column: pa.Array) -> bool:
    try:
        # Without this, the following code may read outside the buffers.
        column.validate()
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column):
            # Slices of one array share a dictionary; validating all of it for each slice would be quadratic.
            column.view(_raw(column.type)).validate(full=True)
            column = canonical(column)
        if column.type == pa.string() and _is_ascii(column):
            column = column.view(pa.binary())
        _validate(_without_parent(column))
    except pa.ArrowInvalid:
        return False
    return True


def _validate(column: pa.Array) -> None:
    """Raise ArrowInvalid for a value that the type does not allow."""
    column.validate(full=True)
    if _holds_map(column.type):
        _check_map_keys(column)


@lru_cache(1024)
def _holds_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_holds_map(kind.field(index).type) for index in range(kind.num_fields))


def _check_map_keys(column: pa.Array) -> None:
    """Raise ArrowInvalid for a map with equal keys, at any depth. Requires an array that is otherwise valid."""
    kind, rows = column.type, column.drop_null()
    if pa.types.is_dictionary(kind) or not _holds_map(kind):
        return
    if pa.types.is_struct(kind):
        parts = [rows.field(index) for index in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        entries = rows.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        parts = entries.flatten().flatten()
        _check_distinct(parts[0], np.diff(entries.offsets.to_numpy()))
    else:
        parts = [rows.flatten()]
    for part in parts:
        _check_map_keys(part)


def _check_distinct(keys: pa.Array, lengths: np.ndarray[Any, np.dtype[np.int32]]) -> None:
    """Raise ArrowInvalid if a group of successive keys has two equal ones; the groups have these lengths."""
    if lengths.max(initial=0) < 2:
        return
    plain = keys.storage if isinstance(keys, pa.ExtensionArray) else keys
    try:
        codes = plain.dictionary_encode().indices.to_numpy().astype(np.int64)
    except pa.ArrowNotImplementedError:
        known: dict[str, int] = {}
        codes = np.array([known.setdefault(repr(key), len(known)) for key in plain.to_pylist(maps_as_pydicts=None)])
    groups = np.repeat(np.arange(len(lengths)), lengths)
    entries = np.sort(groups * (codes.max() + 1) + codes)
    if (entries[1:] == entries[:-1]).any():
        raise pa.ArrowInvalid(_EQUAL_KEYS)


def _is_ascii(column: pa.Array) -> bool:
    """Return whether a text column is ASCII. Arrow's own test takes five times as long for short texts."""
    _, offsets, content = column.buffers()
    if content is None or not len(column):
        return False
    ends = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    # Malformed offsets may be in any order; the bytes between them are then not checked.
    return bool(np.frombuffer(content, np.uint8)[max(0, ends[0]) : max(0, ends[-1])].max(initial=0) < 0x80)


def _without_parent(column: pa.Array) -> pa.Array:
    """Return the column without the rest of a slice's parent: Arrow validates the children of a nested array whole."""
    small = pa.types.is_nested(column.type) and 2 * column.nbytes < column.get_total_buffer_size()
    return _compact(column) if small else column


def _compact(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, column.slice(0, 0)]) if pa.types.is_nested(column.type) else column


def _bad_rows(rows: pa.Array, check: Callable[[pa.Array], Any]) -> pa.Array | None:
    """Return a mask of the rows for which the check raises ArrowInvalid, found by bisection; None if there is none."""
    bad: set[int] = set()
    parts = [(0, len(rows))]
    while parts:
        begin, end = parts.pop()
        try:
            check(_compact(rows.slice(begin, end - begin)))
        except pa.ArrowInvalid:
            if end - begin == 1:
                bad.add(begin)
            else:
                middle = (begin + end) // 2
                parts += [(begin, middle), (middle, end)]
    return pa.array([index in bad for index in range(len(rows))], pa.bool_()) if bad else None


def _check_filled(column: pa.Array, kind: pa.DataType) -> None:
    rows = column.drop_null()
    if pa.types.is_struct(kind):
        for index, member in enumerate(kind):
            if rows.field(index).null_count and not member.nullable:
                raise pa.ArrowInvalid(f"member {member.name} is null")
            _check_filled(rows.field(index), member.type)
    elif pa.types.is_map(kind):
        _check_filled(_compact(rows).items, kind.item_type)
    elif types.is_list(kind):
        _check_filled(rows.flatten(), kind.value_type)


def _raw(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same layout that allows every value: bytes for text and decimals, integers for times, and
    null in each member of a struct.
    """
    kind = types.nullable_members(kind)
    if kind in _TEXTS:
        return _TEXTS[kind]
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    return _integers(types.with_inner(kind, _raw))


def _integers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


# -- mending ----------------------------------------------------------------------------------------------------


def _type_of_valid(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of :func:`_valid_value`: that of the column, with integers for times."""
    return _integers(types.with_inner(kind, _type_of_valid))


def _valid_value(value: Any, kind: pa.DataType) -> Any:
    """Convert a raw value to an allowed one."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value.decode("utf-8", "replace")
    if pa.types.is_decimal(kind):
        digits = int.from_bytes(value, "little", signed=True)
        return Decimal(f"{digits}e{-kind.scale}") if abs(digits) < 10**kind.precision else None
    if pa.types.is_time(kind):
        return value if 0 <= value < 86_400 * PER_SECOND[kind.unit] else None
    if pa.types.is_map(kind):
        entries = [(_valid_value(key, kind.key_type), _valid_value(item, kind.item_type)) for key, item in value]
        return list({repr(key): (key, item) for key, item in entries}.values())
    if pa.types.is_struct(kind):
        return {member.name: _valid_value(value[member.name], member.type) for member in kind}
    if types.is_list(kind):
        return [_valid_value(item, kind.value_type) for item in value]
    return value
