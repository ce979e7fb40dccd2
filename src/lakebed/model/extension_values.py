"""Converts columns of Arrow's extension types, UUID and JSON, from and to text. Pure.

A UUID is 16 bytes; its text is read in either case, with or without hyphens. JSON is text in one of the forms of RFC
8259, kept as it was written.

*Converts stored rows to the rows that reads return: columns declared as dictionaries are encoded as such.*

Rows are stored, merged and filtered as plain values, so the files of a table may have different dictionaries, and each
batch of a stream has its own. Pure: no I/O. Source: docs/decisions/0063.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from lakebed.model.type_names import JSON, UUID

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def returned(rows: Rows, schema: Schema) -> Rows:
    """Return stored rows of a schema, with any of its columns, as reads return them.

    The chunks of a table share their dictionaries, which have the values in the order of their first occurrence.
    """
    names = schema.dictionaries
    if not names or names.isdisjoint(rows.schema.names):
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


_DIGITS = "^[0-9a-fA-F]{32}$"
_BYTES = 16


def uuids_of(column: pa.Array) -> pa.Array:
    """Return the UUIDs of texts, or of values of 16 bytes; null for any other value."""
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        plain = column.cast(pa.binary() if "binary" in str(column.type) else pa.string())
        if pa.types.is_string(plain.type):
            return uuids_of(plain)
        fits = pc.equal(pc.binary_length(plain), _BYTES)
        return pc.if_else(fits, plain, pa.scalar(None, plain.type)).cast(pa.binary(_BYTES)).cast(UUID)
    digits = pc.replace_substring(column.cast(pa.string()), "-", "")
    valid = pc.fill_null(pc.match_substring_regex(digits, _DIGITS), fill_value=False)
    filled = pc.if_else(valid, digits, pa.scalar("0" * 32))
    content = pa.py_buffer(bytes.fromhex("".join(filled.to_pylist())))
    made = pa.Array.from_buffers(pa.binary(_BYTES), len(column), [None, content])
    # Arrow has no if_else for extension types.
    return pc.if_else(valid, made, pa.scalar(None, made.type)).cast(UUID)


def texts_of_uuids(column: pa.Array) -> pa.Array:
    """Return the canonical text of each UUID, in lower case with hyphens. Texts have the same order as the bytes."""
    return pa.array([None if one is None else str(uuid.UUID(bytes=one)) for one in _storage(column)], pa.string())


def json_of(column: pa.Array) -> pa.Array:
    """Return the column as JSON; null for text that is not JSON."""
    texts = column.cast(pa.string()) if column.type != JSON else column.storage
    bad = {row for row, text in enumerate(texts.to_pylist()) if text is not None and not is_json(text)}
    if bad:
        kept = [None if row in bad else text for row, text in enumerate(texts.to_pylist())]
        texts = pa.array(kept, pa.string())
    return texts.cast(JSON)


def is_json(text: str) -> bool:
    """Return whether a text is one JSON value."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _storage(column: pa.Array) -> list[Any]:
    values: list[Any] = column.storage.to_pylist()
    return values
