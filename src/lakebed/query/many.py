"""Many keys at once: each leaf, file and page is met once, however many of the keys lie there.

The keys are encoded, sorted and shared out by bounds: to leaves, to the files that reach them, to row groups. Each row
group is a task of its own (:mod:`lakebed.query.places`), and tasks run side by side. What a page costs is the same as
in a scan, and no page is read twice, so even keys that touch every page cost no more than reading all of the table.

Where files overlap and the keys in a row group are fewer than its pages, its filters are asked first.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import BadKeyError
from lakebed.query.membership import Membership
from lakebed.query.places import GroupRows, parts

if TYPE_CHECKING:
    from lakebed.files import DataFile
    from lakebed.query.cache import ReadCache
    from lakebed.query.opening import OpenFile
    from lakebed.schema import Field, Schema
    from lakebed.state.table import TableState


def encoded_keys(keys: Any, schema: Schema) -> list[bytes]:
    """The keys, encoded, in order, each once. See :meth:`lakebed.table.Table.get_many` for what is a list of keys.

    Raises BadKeyError for a null, a wrong type, a key of too few or many values, or what is no list of keys.
    """
    columns = _columns(keys, schema)
    if columns is not None:
        return sorted(set(schema.codec.encode_columns(columns).to_pylist()))
    if isinstance(keys, str | bytes | Mapping) or not hasattr(keys, "__iter__"):
        raise BadKeyError(f"keys are a list of tuples, or an Arrow table or array; {type(keys).__name__} was given")
    one = len(schema.row_key) == 1
    tuples = [key if isinstance(key, list | tuple) or not one else (key,) for key in keys]
    columns = _plain_columns(tuples, schema)
    if columns is not None:
        return sorted(set(schema.codec.encode_columns(columns).to_pylist()))
    return sorted({schema.codec.encode_key(_as_key(key)) for key in tuples})


def _as_key(key: Any) -> Sequence[Any]:
    if not isinstance(key, list | tuple):
        raise BadKeyError(f"a key of several fields is a tuple, not {key!r}")
    return key


_PLAIN = {str: pa.types.is_string, bytes: pa.types.is_binary, int: pa.types.is_integer}


def _plain_columns(tuples: Sequence[Any], schema: Schema) -> pa.Table | None:
    """The keys as columns, if their values are of Python's plain types and fit: ten times as fast as one by one."""
    if not tuples or any(len(key) != len(schema.row_key) for key in tuples if isinstance(key, list | tuple)):
        return None
    try:
        columns = list(zip(*tuples, strict=True))
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
            raise BadKeyError(f"the key has the fields {names}: give a table with these columns, not one array")
        rows = pa.table([keys], names=[schema.row_key[0].name])
    elif hasattr(keys, "__arrow_c_stream__") or isinstance(keys, pa.RecordBatch | pa.StructArray):
        rows = pa.table(keys) if not isinstance(keys, pa.StructArray) else pa.Table.from_struct_array(keys)
    else:
        return None
    return pa.table([_fitting(rows, field) for field in schema.row_key], names=list(schema.row_key_names))


def _fitting(rows: pa.Table, field: Field) -> pa.ChunkedArray:
    if rows.schema.get_field_index(field.name) < 0:
        raise BadKeyError(
            f"the keys have no column {field.name}; theirs are {', '.join(rows.column_names)}", column=field.name
        )
    column = rows.column(field.name)
    if column.null_count:
        raise BadKeyError(f"key field {field.name} ({field.type}) cannot be null", column=field.name)
    if column.type == field.type:
        return column
    if not _alike(column.type, field.type):
        raise BadKeyError(f"key field {field.name} is {field.type}; the keys have {column.type}", column=field.name)
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise BadKeyError(f"key field {field.name} is {field.type}: {error}", column=field.name) from error


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
class LeafKeys:
    """Keys ``[first, last)`` of those asked for, which lie in one leaf, and its files that reach any of them."""

    leaf: int
    first: int
    last: int
    files: tuple[DataFile, ...]


def by_leaf(state: TableState, keys: Sequence[bytes]) -> Iterator[LeafKeys]:
    """The ascending keys, shared out to the leaves they lie in."""
    first = 0
    while first < len(keys):
        position = state.leaves.position(keys[first])
        end = state.leaves.range_at(position).max
        last = len(keys) if end is None else bisect_left(keys, end, first)
        leaf = state.leaves.ids[position]
        held = state.files_of(leaf)
        files = tuple(file for file in held if _inside(keys, file, first, last))
        if files:
            yield LeafKeys(leaf, first, last, files)
        first = last


def _inside(keys: Sequence[bytes], file: DataFile, first: int, last: int) -> range:
    """Which of these keys lie between the bounds of a file."""
    return range(bisect_left(keys, file.min_key, first, last), bisect_right(keys, file.max_key, first, last))


def read_leaves(  # noqa: PLR0913 - where, of what files, which keys, as what
    leaves: Sequence[LeafKeys],
    opened: Mapping[str, OpenFile],
    keys: Sequence[bytes],
    schema: Schema,
    *,
    columns: Sequence[str],
    kept: ReadCache,
) -> Iterator[pa.Table]:
    """The rows of some leaves with one of the ascending keys: a table for each leaf, with the columns asked for, once.

    ``opened`` has the leaves' files by id, each with a path. Raises OSError or ArrowException if one is not what was
    written.
    """
    tasks = [
        _Task(leaf, GroupRows(opened[file.id], position, schema, kept), inside.start + first, inside.start + last)
        for leaf in leaves
        for file in leaf.files
        for inside in (_inside(keys, file, leaf.first, leaf.last),)
        for position, first, last in parts(opened[file.id], keys[inside.start : inside.stop])
    ]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, max(1, len(tasks))), "lakebed-keys") as threads:
        found = threads.map(lambda task: task.read(keys, schema, columns), tasks)
        for leaf, several in groupby(zip(tasks, found, strict=True), key=lambda pair: pair[0].leaf):
            read = [rows for _, rows in several if rows.num_rows]
            if read:
                yield _in_order(pa.concat_tables(read), len(leaf.files), schema)


def _in_order(rows: pa.Table, files: int, schema: Schema) -> pa.Table:
    """The rows by the index of their key, which is the first column, then by sort key; without the index."""
    if files > 1:
        by = [rows.column(0), *(rows.column(rows.column_names.index(field.name, 1)) for field in schema.sort_key)]
        names = [str(place) for place in range(len(by))]
        rows = rows.take(pc.sort_indices(pa.table(by, names), sort_keys=[(name, "ascending") for name in names]))
    return rows.remove_column(0)


@dataclass(frozen=True, slots=True)
class _Task:
    """Keys ``[first, last)`` of those asked for, looked for in one row group."""

    leaf: LeafKeys
    rows: GroupRows
    first: int
    last: int

    def read(self, keys: Sequence[bytes], schema: Schema, columns: Sequence[str]) -> pa.Table:
        """The rows with the keys: the index of their key, then the columns, and what else they are sorted by."""
        overlap = len(self.leaf.files) > 1
        names = dict.fromkeys((*columns, *(field.name for field in schema.sort_key if overlap)))
        indices = np.arange(self.first, self.last)
        if overlap:
            indices = self._maybe(keys, indices)
        if not len(indices):
            nothing = [pa.array([], schema.by_name[name].type) for name in names]
            return pa.table([pa.array(indices), *nothing], names=["", *names])
        found = self.rows.find([keys[index] for index in indices.tolist()])
        held = dict(zip(found.keys.schema.names, found.keys.columns, strict=True))
        if len(found.places):
            missing = [schema.by_name[name] for name in names if name not in held]
            held |= self.rows.take(missing, found.places)
        arrays = [held[name] if name in held else pa.array([], schema.by_name[name].type) for name in names]
        return pa.table([pa.array(indices[found.indices]), *arrays], names=["", *names])

    def _maybe(self, keys: Sequence[bytes], indices: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
        """Without the keys that the row group's filters do not know, if these are few enough for pages to be spared."""
        rows, schema = self.rows, self.rows.schema
        if not rows.opened.footer.paged:
            return indices
        with rows.file as file:
            if len(indices) > len(file.key_pages(rows.position, rows.group).fences.starts):
                return indices
            known = (
                Membership(schema.row_key, schema.codec.decode_bound(keys[index]).values, keys[index]).may_be_in(
                    file.descriptor, rows.group
                )
                for index in indices.tolist()
            )
            return indices[np.fromiter(known, bool, len(indices))]
