"""Converts stored rows to the rows that reads return: columns declared as dictionaries are encoded as such.

Rows are stored, merged and filtered as plain values, so the files of a table may have different dictionaries, and each
batch of a stream has its own. Pure: no I/O. Source: docs/decisions/0063.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def returned(rows: Rows, schema: Schema) -> Rows:
    """Return stored rows of a schema, with any of its columns, as reads return them.

    The chunks of a table share their dictionaries, which have the values in the order of their first occurrence.
    """
    names = schema.dictionaries
    if names.isdisjoint(rows.schema.names):
        return rows
    columns = [
        column.dictionary_encode() if field.name in names else column
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return type(rows).from_arrays(columns, schema=returned_schema(rows.schema, schema))


def values_of(rows: pa.Table, schema: Schema) -> pa.Table:
    """Decode dictionaries to their values, as they are stored: the inverse of :func:`returned`."""
    names, fields = schema.dictionaries, schema.by_name
    if names.isdisjoint(rows.schema.names):
        return rows
    plain = [one.with_type(fields[one.name].type) if one.name in names else one for one in rows.schema]
    return rows.cast(pa.schema(plain))


def returned_schema(stored: pa.Schema, schema: Schema) -> pa.Schema:
    """Return the Arrow schema of stored rows of a schema as reads return them."""
    names, fields = schema.dictionaries, schema.by_name
    return pa.schema([one.with_type(fields[one.name].returned_type) if one.name in names else one for one in stored])
