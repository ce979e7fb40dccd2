"""Converts columns of Arrow's extension types, UUID and JSON, from and to text. Pure.

A UUID is 16 bytes; its text is read in either case, with or without hyphens. JSON is text in one of the forms of RFC
8259, kept as it was written.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pyarrow as pa

from lakebed.model.type_names import JSON, UUID

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
