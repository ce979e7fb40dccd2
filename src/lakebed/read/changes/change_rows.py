"""Rows of a change feed: three columns for the change, then columns of the table.

Core types. :class:`ChangeKind`; :func:`change_schema`. A removed range is a row as well: ``_range`` has its bounds as
JSON, and all columns of the table are null. Rows of other kinds have a null there. Pure: no I/O.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.arrays import of_binary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Schema

VERSION, CHANGE, RANGE = "_version", "_change", "_range"

FEED_COLUMNS = (
    pa.field(VERSION, pa.int64(), nullable=False),
    pa.field(CHANGE, pa.string(), nullable=False),
    pa.field(RANGE, pa.string()),
)


class ChangeKind(IntEnum):
    """The kind of a change. Rows of one key in one version are in this order."""

    REMOVE_RANGE = 0
    DELETE = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    INSERT = 4


_TEXTS = of_binary([kind.name.lower().encode() for kind in ChangeKind], pa.string())


def change_schema(schema: Schema, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of a feed with these columns of a table. All of them are nullable, for removed ranges.

    Raises UsageError if one has the name of a column of the feed.
    """
    if taken := [name for name in names if name in (VERSION, CHANGE, RANGE)]:
        raise Code.COLUMN_DUPLICATE(
            f"the table has a column {taken[0]}, which is a column of every feed of changes; name the columns to read "
            "without it, or rename it",
            column=taken[0],
        )
    return pa.schema([*FEED_COLUMNS, *(field.with_nullable(nullable=True) for field in schema.arrow_of(names))])


def change_rows(rows: pa.RecordBatch, kinds: pa.Array | ChangeKind, version: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a table as rows of a feed; ``kinds`` are the numbers of their kinds, or one kind for all."""
    count = rows.num_rows
    texts = pa.repeat(_TEXTS[kinds], count) if isinstance(kinds, ChangeKind) else _TEXTS.take(kinds)
    columns = [pa.repeat(pa.scalar(version, pa.int64()), count), texts, pa.nulls(count, pa.string())]
    columns += [rows.column(name) for name in schema.names[len(FEED_COLUMNS) :]]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def removed_ranges(ranges: Sequence[EncodedRange], version: int, feed: pa.Schema, schema: Schema) -> pa.RecordBatch:
    """Return a row for each removed range."""
    count = len(ranges)
    bounds = of_binary([range_json(keys, schema).encode() for keys in ranges], pa.string())
    columns = [
        pa.repeat(pa.scalar(version, pa.int64()), count),
        pa.repeat(_TEXTS[ChangeKind.REMOVE_RANGE], count),
        bounds,
    ]
    columns += [pa.nulls(count, field.type) for field in list(feed)[len(FEED_COLUMNS) :]]
    return pa.RecordBatch.from_arrays(columns, schema=feed)


def range_json(keys: EncodedRange, schema: Schema) -> str:
    """Return the JSON of :func:`range_document`."""
    return json.dumps(range_document(keys, schema), ensure_ascii=False)


def range_document(keys: EncodedRange, schema: Schema) -> dict[str, Any]:
    """Return a range for JSON: ``{"min": […], "max": […], "max_inclusive": false}``, as :class:`KeyRange` has it.

    A bound has values of the first row key fields, or is null for no bound. Dates and times are ISO 8601, binary values
    hex digits.
    """
    low, after_low = _bound_values(keys.min, schema) if keys.min else (None, False)
    high, after = (None, False) if keys.max is None else _bound_values(keys.max, schema)
    assert not after_low, "a range begins at a key, never after all keys with a prefix"
    return {"min": low, "max": high, "max_inclusive": after}


def _bound_values(bound: bytes, schema: Schema) -> tuple[list[Any], bool]:
    """Return the values of a bound, and whether it lies after the keys that begin with them."""
    found = schema.codec.decode_bound(bound)
    return [field.key_type.json(value) for field, value in zip(schema.row_key, found.values, strict=False)], found.after
