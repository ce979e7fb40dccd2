"""The keys of a multi-get: parsed, encoded, and divided among partitions and files.

:func:`encoded_keys` accepts what callers give as a list of keys. :func:`keys_by_part` divides encoded keys among the
partitions that hold them, and there among groups of files that overlap; :mod:`lakebed.read.rows.multi_get_batches`
reads the rows of each part. Core type: :class:`PartKeys`. Pure: no I/O. Errors: BadKeyError.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, Error
from lakebed.model import types
from lakebed.model.checks import shown
from lakebed.model.extension_values import uuids_of
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.type_names import UUID
from lakebed.read.rows.plan import successive

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.schema import Field, Schema
    from lakebed.model.state.table_state import TableState


def encoded_keys(keys: Any, schema: Schema) -> list[bytes]:
    """Return the keys, encoded, ascending, without repetitions; :meth:`lakebed.table.table.Table.get_many` has their
    forms.

    Raises BadKeyError for a null, a wrong type, a key of too few or too many values, or an object that is no list of
    keys.
    """
    keys = objects_of_frame(keys, schema)
    if is_arrow(keys):
        columns: pa.Table | None = _arrow_columns(keys, schema)
    elif isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise Code.KEY_TYPE_MISMATCH(
            f"keys are a list of tuples, or an Arrow table or array; {type(keys).__name__} was given (for one key, a "
            "list of one)"
        )
    else:
        keys = list(keys)
        columns = _value_columns(keys, schema)
    if columns is None:
        return sorted({_encoded_key(key, schema) for key in keys})
    return sorted(set(schema.codec.encode_columns(columns).to_pylist()))


def objects_of_frame(keys: Any, schema: Schema) -> Any:
    """Return the keys of a frame of pandas with a key column of objects as tuples: Arrow would cut nanoseconds of
    their times. Other keys are returned as they are.
    """
    names = schema.row_key_names
    if not hasattr(keys, "iloc") or not hasattr(keys, "columns") or not set(names) <= set(keys.columns):
        return keys
    if not any(str(keys[name].dtype) == "object" for name in names):
        return keys
    return list(zip(*(keys[name].tolist() for name in names), strict=True))


def _encoded_key(key: Any, schema: Schema) -> bytes:
    if isinstance(key, list | tuple):
        return schema.codec.encode_key(key)
    if len(schema.row_key) > 1:
        raise Code.KEY_LENGTH_MISMATCH(f"a key of several fields is a tuple, not {shown(key)}")
    return schema.codec.encode_key((key,))


def _value_columns(keys: list[Any], schema: Schema) -> pa.Table | None:
    """Python keys as columns, which takes a tenth of the time of encoding each key.

    None if a value is not of the field's own Python type: :func:`_encoded_key` then converts it, or says which key is
    invalid.
    """
    fields = schema.row_key
    columns: list[Sequence[Any]] | None = None
    if len(fields) == 1 and {list, tuple}.isdisjoint(map(type, keys)):
        columns = [keys]
    elif keys and all(isinstance(key, list | tuple) and len(key) == len(fields) for key in keys):
        columns = list(zip(*keys, strict=True))
    if columns is None:
        return None
    if any(set(map(type, column)) != {f.key_type.python_type} for f, column in zip(fields, columns, strict=True)):
        return None
    try:
        arrays = [pa.array(column, field.type) for field, column in zip(fields, columns, strict=True)]
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return None
    return pa.table(arrays, names=list(schema.row_key_names))


def is_arrow(keys: Any) -> bool:
    """Return whether keys are given as Arrow data."""
    return hasattr(keys, "__arrow_c_stream__") or isinstance(keys, pa.Array | pa.RecordBatch)


def _arrow_columns(keys: Any, schema: Schema) -> pa.Table:
    """Return the key columns of an Arrow table, stream, struct array or single column, in the types of the fields."""
    if not isinstance(keys, pa.Array | pa.ChunkedArray) and hasattr(keys, "dtype"):
        # A series of Polars or pandas; a frame has dtypes.
        with translate_errors(_unreadable):
            keys = pa.chunked_array(keys)
    if isinstance(keys, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(keys.type):
        if len(schema.row_key) > 1:
            names = ", ".join(schema.row_key_names)
            raise Code.KEY_COLUMN_MISSING(
                f"the key has the fields {names}: give a table with these columns, not one array"
            )
        rows = pa.table([keys], names=[schema.row_key[0].name])
    else:
        with translate_errors(_unreadable):
            is_array = isinstance(keys, pa.StructArray | pa.ChunkedArray)
            rows = pa.Table.from_struct_array(keys) if is_array else pa.table(keys)
    return pa.table([_key_column(rows, field) for field in schema.row_key], names=list(schema.row_key_names))


def _unreadable(error: BaseException) -> Error:
    return Code.KEY_UNPARSABLE(f"the keys cannot be read from their source: {error_text(error)}")


def _key_column(rows: pa.Table, field: Field) -> pa.ChunkedArray:
    if rows.schema.get_field_index(field.name) < 0:
        raise Code.KEY_COLUMN_MISSING(
            f"the keys have no column {field.name}; their columns: {', '.join(rows.column_names)}", column=field.name
        )
    column = rows.column(field.name)
    if column.null_count:
        raise Code.KEY_NULL(f"key field {field.name} ({field.type}) cannot be null", column=field.name)
    if column.type == field.type:
        return column
    if not _can_hold_keys(column.type, field.type):
        raise Code.KEY_TYPE_MISMATCH(
            f"key field {field.name} is {field.type}; the keys have {column.type}", column=field.name
        )
    try:
        if field.type == UUID and not pa.types.is_fixed_size_binary(column.type):
            return pa.chunked_array([_uuids(chunk, field) for chunk in column.chunks], UUID)
        cast = column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise Code.KEY_NOT_REPRESENTABLE(
            f"key field {field.name} is {field.type}: {error}", column=field.name
        ) from error
    if pa.types.is_float32(field.type):
        # Arrow makes infinity of a number that is too large.
        lost = pc.index(pc.and_(pc.is_inf(cast), pc.is_finite(column)), value=True).as_py()
        if lost >= 0:
            raise Code.KEY_NOT_REPRESENTABLE(
                f"key field {field.name}: {column[lost].as_py()} does not fit {field.type}", column=field.name
            )
    return cast


def _uuids(column: pa.Array, field: Field) -> pa.Array:
    uuids = uuids_of(column)
    if uuids.null_count:
        row = uuids.is_null().to_pylist().index(True)
        raise Code.KEY_UNPARSABLE(
            f"key field {field.name} is uuid: cannot read {shown(column[row].as_py())}", column=field.name
        )
    return uuids


def _can_hold_keys(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of the given type that are in range can be keys of the wanted type."""
    if wanted == UUID:
        return types.castable(given, wanted) or types.widens(given, wanted)
    kinds = (
        types.is_text,
        types.is_bytes,
        pa.types.is_integer,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_time,
        pa.types.is_decimal,
        lambda kind: pa.types.is_float32(kind) or pa.types.is_float64(kind),
        pa.types.is_fixed_size_binary,
    )
    if pa.types.is_dictionary(given):
        return _can_hold_keys(given.value_type, wanted)
    zoned = not pa.types.is_timestamp(given) or not pa.types.is_timestamp(wanted) or bool(given.tz) == bool(wanted.tz)
    return zoned and any(kind(given) and kind(wanted) for kind in kinds)


@dataclass(frozen=True, slots=True)
class PartKeys:
    """Keys ``[first, last)`` of a multi-get, which lie in one partition, and overlapping files that may hold some."""

    partition: int
    first: int
    last: int
    files: tuple[DataFile, ...]


def keys_by_part(state: TableState, keys: Sequence[bytes]) -> Iterator[PartKeys]:
    """Divide ascending encoded keys among their partitions, and there among groups of files that overlap."""
    first = 0
    while first < len(keys):
        position = state.partitions.position(keys[first])
        end = state.partitions.range_at(position).max
        last = len(keys) if end is None else bisect_left(keys, end, first)
        partition = state.partitions.ids[position]
        candidates = [file for file in state.files_of(partition) if _may_hold_any(file, keys, first, last)]
        bounds = EncodedRange(keys[first], successor(keys[last - 1]))
        for part, files in successive(candidates, bounds) if candidates else ():
            part_end = last if part.max is None else bisect_left(keys, part.max, first, last)
            yield PartKeys(partition, bisect_left(keys, part.min, first, last), part_end, files)
        first = last


def gathered(parts: Iterable[PartKeys], files_max: int) -> Iterator[list[PartKeys]]:
    """Groups of parts whose files are opened together: ``files_max`` or a few more in each but the last."""
    group: list[PartKeys] = []
    for part in parts:
        group.append(part)
        if sum(len(one.files) for one in group) >= files_max:
            yield group
            group = []
    if group:
        yield group


def _may_hold_any(file: DataFile, keys: Sequence[bytes], first: int, last: int) -> bool:
    """Return whether any of these keys lies within the bounds of a file."""
    index = bisect_left(keys, file.min_key, first, last)
    return index < last and keys[index] <= file.max_key
