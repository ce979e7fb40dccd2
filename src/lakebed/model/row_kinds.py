"""Row kinds: hidden columns that say of a row that it is not a whole row.

A data file of a table with the merge mode ``Latest`` may hold *deletes*, which say that a key has no row any more, and
*partial rows*, which leave some columns as older rows have them. Files with neither have no hidden column, and a file
without the column has whole rows only: the columns are nullable, and null is the whole row.

Core types: :class:`RowKind`; :func:`with_hidden`, a schema with the hidden columns as value fields.

Rules: names and ids of hidden columns are reserved. Hidden columns come after all others.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN_PREFIX = "__lakebed_"
"""No field of a user's has a name that begins so."""

HIDDEN_ID_MIN = 2**30
"""Ids of hidden fields; those of users' fields are below. The field ``HIDDEN_ID_MIN + id`` is the presence of a field.
"""

KIND = HIDDEN_PREFIX + "kind"
ARRIVAL = HIDDEN_PREFIX + "arrival"
"""A column of rows while they are merged, never of files: the order of arrival, as int64."""


class RowKind(IntEnum):
    """What a row stands for; the numbers are stored."""

    WHOLE = 0
    PARTIAL = 1
    DELETE = 2


def presence_name(field: Field) -> str:
    """The hidden column that says whether a partial row has a value, or null, for this field."""
    return f"{HIDDEN_PREFIX}has_{field.id}"


def hidden_fields(schema: Schema) -> tuple[Field, ...]:
    """The hidden fields of a schema: the kind, and the presence of each value field."""
    presences = (Field(HIDDEN_ID_MIN + f.id, presence_name(f), pa.bool_(), nullable=True) for f in schema.values)
    return (Field(HIDDEN_ID_MIN, KIND, pa.int8(), nullable=True), *presences)


def with_hidden(schema: Schema) -> Schema:
    """The schema with the hidden fields as further value fields."""
    return Schema(
        schema.row_key, schema.sort_key, (*schema.values, *hidden_fields(schema)), version=schema.version
    )


def is_hidden(name: str) -> bool:
    """Whether a column is a hidden one."""
    return name.startswith(HIDDEN_PREFIX)


def without_hidden(names: Iterable[str]) -> tuple[str, ...]:
    """The names of users' columns."""
    return tuple(name for name in names if not is_hidden(name))
