"""Row kinds: hidden columns that mark rows that are not whole rows.

A data file of a table with the merge mode ``Latest`` may contain *deletes*, which remove the rows of a key, and
*partial rows*, which keep the values of older rows in some columns; together they are its *markers*. Files with neither
have no hidden column, and a file without the columns has only whole rows: they are nullable, and null means a whole
row.

Core types: :class:`RowKind`; :func:`merge_schema`, the schema by which rows are read in order to be merged.

Rules: names and ids of hidden columns are reserved. Hidden columns come after all others.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.schema import HIDDEN_ID_MIN, Field, Schema
from lakebed.model.types import HIDDEN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.model.merge_modes import MergeMode

KIND = HIDDEN_PREFIX + "kind"

ARRIVAL = HIDDEN_PREFIX + "arrival"
"""A column used by the engine while merging, never stored: the position of the row's file in the order of arrival."""


class RowKind(IntEnum):
    """The kind of a row; the numbers are stored."""

    WHOLE = 0
    PARTIAL = 1
    DELETE = 2


def presence_name(field: Field) -> str:
    """Return the hidden column that marks whether a partial row has a value, or null, for this field."""
    return f"{HIDDEN_PREFIX}has_{field.id}"


def hidden_fields(schema: Schema) -> tuple[Field, ...]:
    """Return the hidden fields of a schema: the kind, and the presence of each value field, by the field's id."""
    return hidden_of(schema.values)


def hidden_of(values: Iterable[Field]) -> tuple[Field, ...]:
    """Return the hidden fields of rows with these value fields."""
    presences = (Field(HIDDEN_ID_MIN + f.id, presence_name(f), pa.bool_(), nullable=True) for f in values)
    return (Field(HIDDEN_ID_MIN, KIND, pa.int8(), nullable=True), *presences)


def with_hidden(schema: Schema) -> Schema:
    """Return the schema of a file with markers: the hidden fields are further value fields."""
    return Schema(schema.row_key, schema.sort_key, (*schema.values, *hidden_fields(schema)), version=schema.version)


def merge_schema(mode: MergeMode, schema: Schema, *, hidden: bool) -> Schema:
    """Return the schema by which rows are sorted and read to be merged; ``hidden``: some of their files have markers.

    Its keys are those that rows must share to be merged and, by ``Latest(by="sort_key")``, the sort key. Files of the
    table are sorted by them too, as they have one row for each key by which rows are merged. The columns are the same,
    in the same order.
    """
    wanted = schema
    if mode.one_row_per_key and not mode.by_sort_key and schema.sort_key:
        demoted = tuple(replace(field, expression="", inputs=()) for field in schema.sort_key)
        wanted = Schema(schema.row_key, (), (*demoted, *schema.values), version=schema.version)
    if not hidden:
        return wanted
    return Schema(wanted.row_key, wanted.sort_key, (*wanted.values, *hidden_fields(schema)), version=schema.version)


def visible_schema(schema: Schema) -> Schema:
    """Return the schema of the table: without hidden fields."""
    if KIND not in schema.by_name:
        return schema
    values = [field for field in schema.values if not is_hidden(field.name)]
    return Schema(schema.row_key, schema.sort_key, values, version=schema.version)


def is_hidden(name: str) -> bool:
    """Return whether a column is hidden."""
    return name.startswith(HIDDEN_PREFIX)


def without_hidden(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names without hidden columns."""
    return tuple(name for name in names if not is_hidden(name))
