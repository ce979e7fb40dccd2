"""Reads timestamps of the old Parquet type INT96 exactly, in whatever unit holds them.

An INT96 is a day and the nanoseconds of that day, and covers millions of years; Spark, Hive and Impala write it by
default. Arrow reads it in nanoseconds, which wrap around outside of the years 1678 to 2261, or in seconds, which are
cut off but never wrap for a day of 32 bits. The two together give the exact time: the seconds, and the difference of
the nanoseconds modulo 2^64, which is less than a second.

So a file with such columns is read in both ways, and each batch gets the finest unit in which all of its times are
exact: nanoseconds where possible, else microseconds, milliseconds or seconds. A batch whose rows need different units
is divided.

Errors: SchemaMismatchError for a row whose times no unit holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.errors import Code
from lakebed.model import types
from lakebed.model.arrays import Integers
from lakebed.model.moments import PER_SECOND

_NS = PER_SECOND["ns"]
_UNITS = ("us", "ms", "s")
_JULIAN_DAY = 2_440_588
"""The day 1970-01-01."""
_UNSIGNED_S, _WRAP_S = (2**31 - _JULIAN_DAY) * 86_400, 2**32 * 86_400


def int96_columns(metadata: Any, columns: Sequence[str] | None = None) -> list[str]:
    """Return the columns of a file, of those named, that are or contain INT96."""
    leaves = (metadata.schema.column(index) for index in range(metadata.num_columns))
    names = dict.fromkeys(leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96")
    return [name for name in names if columns is None or name in columns]


def with_exact_times(
    batches: Iterator[pa.RecordBatch], seconds: Iterator[pa.RecordBatch], name: str
) -> Iterator[pa.RecordBatch]:
    """Return the rows of batches whose INT96 columns are read in nanoseconds, with exact times.

    ``seconds`` has these columns of the same rows, read in seconds; ``name`` is the file's name in errors.
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        while sum(one.num_rows for one in waiting) < batch.num_rows:
            waiting.append(next(seconds))
        table = pa.Table.from_batches(waiting).combine_chunks()
        (coarse,) = table.slice(0, batch.num_rows).to_batches() or [batch.select(table.column_names)]
        waiting = table.slice(batch.num_rows).to_batches()
        yield from _in_exact_units(batch, coarse, name)


def _in_exact_units(batch: pa.RecordBatch, coarse: pa.RecordBatch, name: str) -> Iterator[pa.RecordBatch]:
    """Return the rows in as few batches as their units require."""
    columns = {column: batch.column(column) for column in batch.schema.names}
    for column in coarse.schema.names:
        pair = _compact(columns[column]), _compact(coarse.column(column))
        leaves = list(_leaves(*pair))
        if all(_is_exact_in_ns(*leaf) for leaf in leaves):
            continue
        unit = next((unit for unit in _UNITS if all(_is_exact_in(unit, *leaf) for leaf in leaves)), None)
        if unit is None and batch.num_rows == 1:
            raise Code.VALUE_NOT_REPRESENTABLE(
                f"{name}: column {column} has times of INT96 in one row that are finer than microseconds and outside "
                "of the years 1678 to 2261: no type holds both; write the file again with INT64 timestamps",
                column=column,
                name=name,
            )
        if unit is None:
            middle = batch.num_rows // 2
            yield from _in_exact_units(batch.slice(0, middle), coarse.slice(0, middle), name)
            yield from _in_exact_units(batch.slice(middle), coarse.slice(middle), name)
            return
        columns[column] = _in_unit(*pair, unit)
    yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _compact(column: pa.Array) -> pa.Array:
    """Return the column with children that begin with its first row."""
    return pa.concat_arrays([column, column.slice(0, 0)]) if pa.types.is_nested(column.type) else column


def _leaves(fine: pa.Array, coarse: pa.Array) -> Iterator[tuple[Integers, Integers]]:
    """Return the times that are not null in nanoseconds modulo 2^64, and in whole seconds."""
    if fine.type == coarse.type:
        return
    if pa.types.is_timestamp(fine.type):
        there = fine.is_valid().to_numpy(zero_copy_only=False)
        numbers = _exact_pair(fine, coarse)
        yield numbers[0][there], numbers[1][there]
        return
    for parts in zip(_children(fine), _children(coarse), strict=True):
        yield from _leaves(*parts)


def _children(column: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(column.type):
        return [column.field(index) for index in range(column.type.num_fields)]
    if pa.types.is_map(column.type):
        return [column.keys, column.items]
    return [column.values]


def _exact_pair(fine: pa.Array, coarse: pa.Array) -> tuple[Integers, Integers]:
    """Return the numbers of both. Arrow takes the number of the day, which may be negative, for an unsigned one."""
    pair = [np.frombuffer(one.buffers()[1] or b"", np.int64, len(one), 8 * one.offset) for one in (fine, coarse)]
    beyond_s = np.where(pair[1] >= _UNSIGNED_S, _WRAP_S, 0)
    return pair[0] - beyond_s * _NS, pair[1] - beyond_s


def _nanoseconds(fine: Integers, coarse: Integers) -> Integers:
    """Return the nanoseconds after the whole seconds."""
    return fine - coarse * _NS


def _is_exact_in_ns(fine: Integers, coarse: Integers) -> bool:
    return bool((fine // _NS == coarse).all())


def _is_exact_in(unit: str, fine: Integers, coarse: Integers) -> bool:
    per_second = PER_SECOND[unit]
    reach = (2**63 - 1) // per_second - 1
    return bool((np.abs(coarse) <= reach).all() and (_nanoseconds(fine, coarse) % (_NS // per_second) == 0).all())


def _in_unit(fine: pa.Array, coarse: pa.Array, unit: str) -> pa.Array:
    """Return the column with its times of INT96 in a unit in which they are exact."""
    kind = fine.type
    if kind == coarse.type:
        return fine
    if pa.types.is_timestamp(kind):
        per_second = PER_SECOND[unit]
        exact, seconds = _exact_pair(fine, coarse)
        rest = _nanoseconds(exact, seconds)
        numbers = pa.array(seconds * per_second + rest // (_NS // per_second), pa.int64(), mask=_nulls(fine))
        return numbers.view(pa.timestamp(unit, kind.tz))
    children = [_in_unit(*parts, unit) for parts in zip(_children(fine), _children(coarse), strict=True)]
    if pa.types.is_struct(kind):
        members = [member.with_type(child.type) for member, child in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=members, mask=fine.is_null())
    if pa.types.is_map(kind):
        found = pa.map_(children[0].type, children[1].type)
        entries = pa.StructArray.from_arrays(children, fields=[found.key_field, found.item_field])
        return pa.Array.from_buffers(found, len(fine), fine.buffers()[:2], children=[entries])
    found = types.with_inner(kind, lambda _: children[0].type)
    buffers = fine.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(found, len(fine), buffers, children=children)


def _nulls(column: pa.Array) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)
