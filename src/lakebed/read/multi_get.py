"""Many keys at once: they are encoded, sorted, and shared out to partitions and to the files there that reach them.

How their rows are read is told by :mod:`lakebed.read.multi_get_batches`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.keys import EncodedRange, successor
from lakebed.read.plan import successive

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.schema import Field, Schema
    from lakebed.state.table_state import TableState


def encoded_keys(keys: Any, schema: Schema) -> list[bytes]:
    """The keys, encoded, in order, each once. See :meth:`lakebed.table.table.Table.get_many` for what is a list of
    keys.

    Raises BadKeyError for a null, a wrong type, a key of too few or many values, or what is no list of keys.
    """
    columns = _columns(keys, schema)
    if columns is not None:
        return sorted(set(schema.codec.encode_columns(columns).to_pylist()))
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise Code.KEY_TYPE_MISMATCH(
            f"keys are a list of tuples, or an Arrow table or array; {type(keys).__name__} was given"
        )
    given = list(keys)
    # Plain values are one column as they are, which need not be made of tuples of one.
    plain = len(schema.row_key) == 1 and not any(issubclass(kind, list | tuple) for kind in set(map(type, given)))
    columns = _plain_columns([given] if plain else _turned(given, len(schema.row_key)), schema)
    if columns is not None:
        return sorted(set(schema.codec.encode_columns(columns).to_pylist()))
    one = len(schema.row_key) == 1
    tuples = (key if isinstance(key, list | tuple) or not one else (key,) for key in given)
    return sorted({schema.codec.encode_key(_as_key(key)) for key in tuples})


def _as_key(key: Any) -> Sequence[Any]:
    if not isinstance(key, list | tuple):
        raise Code.KEY_LENGTH_MISMATCH(f"a key of several fields is a tuple, not {shown(key)}")
    return key


_PLAIN = {str: pa.types.is_string, bytes: pa.types.is_binary, int: pa.types.is_integer}


def _turned(keys: Sequence[Any], fields: int) -> Sequence[Sequence[Any]] | None:
    """Tuples as columns; None if not all are tuples of so many values."""
    if not all(isinstance(key, list | tuple) and len(key) == fields for key in keys):
        return None
    return list(zip(*keys, strict=True))


def _plain_columns(columns: Sequence[Sequence[Any]] | None, schema: Schema) -> pa.Table | None:
    """The keys as columns, if their values are of Python's plain types and fit: ten times as fast as one by one."""
    if not columns or not columns[0]:
        return None
    try:
        for field, column in zip(schema.row_key, columns, strict=True):
            kinds = set(map(type, column))
            if len(kinds) != 1 or not _PLAIN.get(kinds.pop(), _never)(field.type):
                return None
        arrays = [pa.array(column, field.type) for field, column in zip(schema.row_key, columns, strict=True)]
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        # Which key it is, and what is wrong with it, is told by looking at one after another.
        return None
    return pa.table(arrays, names=list(schema.row_key_names))


def _never(_: pa.DataType) -> bool:
    return False


def _columns(keys: Any, schema: Schema) -> pa.Table | None:
    """The key columns of anything Arrow, exactly of the fields' types; None if it is not Arrow's."""
    if isinstance(keys, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(keys.type):
        if len(schema.row_key) > 1:
            names = ", ".join(schema.row_key_names)
            raise Code.KEY_COLUMN_MISSING(
                f"the key has the fields {names}: give a table with these columns, not one array"
            )
        rows = pa.table([keys], names=[schema.row_key[0].name])
    elif hasattr(keys, "__arrow_c_stream__") or isinstance(keys, pa.RecordBatch | pa.StructArray):
        with translate_errors(
            lambda error: Code.KEY_UNPARSABLE(f"the keys cannot be read from their source: {error_text(error)}")
        ):
            rows = pa.table(keys) if not isinstance(keys, pa.StructArray) else pa.Table.from_struct_array(keys)
    else:
        return None
    return pa.table([_fitting(rows, field) for field in schema.row_key], names=list(schema.row_key_names))


def _fitting(rows: pa.Table, field: Field) -> pa.ChunkedArray:
    if rows.schema.get_field_index(field.name) < 0:
        raise Code.KEY_COLUMN_MISSING(
            f"the keys have no column {field.name}; their columns: {', '.join(rows.column_names)}", column=field.name
        )
    column = rows.column(field.name)
    if column.null_count:
        raise Code.KEY_NULL(f"key field {field.name} ({field.type}) cannot be null", column=field.name)
    if column.type == field.type:
        return column
    if not _alike(column.type, field.type):
        raise Code.KEY_TYPE_MISMATCH(
            f"key field {field.name} is {field.type}; the keys have {column.type}", column=field.name
        )
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise Code.KEY_NOT_REPRESENTABLE(
            f"key field {field.name} is {field.type}: {error}", column=field.name
        ) from error


def _alike(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type may be keys of the other, those that fit."""
    kinds = (
        lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
        lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind),
        pa.types.is_integer,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    if pa.types.is_dictionary(given):
        return _alike(given.value_type, wanted)
    zoned = not pa.types.is_timestamp(given) or not pa.types.is_timestamp(wanted) or bool(given.tz) == bool(wanted.tz)
    return zoned and any(kind(given) and kind(wanted) for kind in kinds)


@dataclass(frozen=True, slots=True)
class PartKeys:
    """Keys ``[first, last)`` of those asked for, which lie in one partition, and files that overlap there and reach
    some.
    """

    partition: int
    first: int
    last: int
    files: tuple[DataFile, ...]


def by_part(state: TableState, keys: Sequence[bytes]) -> Iterator[PartKeys]:
    """The ascending keys, shared out to the partitions they lie in, and there to files that do not overlap."""
    first = 0
    while first < len(keys):
        position = state.partitions.position(keys[first])
        end = state.partitions.range_at(position).max
        last = len(keys) if end is None else bisect_left(keys, end, first)
        partition = state.partitions.ids[position]
        held = [file for file in state.files_of(partition) if _reaches(file, keys, first, last)]
        asked = EncodedRange(keys[first], successor(keys[last - 1]))
        for inside, files in successive(held, asked) if held else ():
            until = last if inside.max is None else bisect_left(keys, inside.max, first, last)
            yield PartKeys(partition, bisect_left(keys, inside.min, first, last), until, files)
        first = last


def _reaches(file: DataFile, keys: Sequence[bytes], first: int, last: int) -> bool:
    """Whether any of these keys lies between the bounds of a file."""
    at = bisect_left(keys, file.min_key, first, last)
    return at < last and keys[at] <= file.max_key
