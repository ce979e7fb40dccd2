"""Ids of columns in data files: those of fields, and those of inner columns of lists, structs and maps. Pure.

Readers of Iceberg find every column by its Parquet ``field_id``: items of lists, keys and values of maps, members of
structs. The type of a nested field never changes, so the ids of its inner columns follow from its own: they are
numbered from ``first_inner_id(field.id)`` on, in the order in which the type names them, each before what is inside it.
Two fields share none if their own ids differ modulo :data:`FIELDS_MAX`, as those of the first 131,072 fields of a
table do, and usually those that writers chose; :func:`shared_id` finds the others.

Source: decision 0074; docs/format.md, section 7.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.type_names import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakebed.model.schema import Field, Schema

FIELD_ID_KEY = b"PARQUET:field_id"

INNER_MAX = 2**11
"""Inner columns of one field that have ids; of a field with more, none has."""

FIELDS_MAX = 2**17
"""Ids of fields that have inner ids of their own; with :data:`INNER_MAX` for each, these fill 2^28 ids."""

INNER_ID_MIN = 2**28
"""Inner ids end at 2^29 (:data:`lakebed.model.schema.FIRST_CHOSEN_ID`)."""


def first_inner_id(field_id: int) -> int:
    """Return the id of the first inner column of a field."""
    return INNER_ID_MIN + (field_id % FIELDS_MAX) * INNER_MAX


def children(kind: pa.DataType) -> list[pa.Field]:
    """Return the columns that a type consists of; none for one that is not nested."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(index) for index in range(kind.num_fields)]


def inner_columns(kind: pa.DataType) -> Iterator[pa.Field]:
    """Return the inner columns of a type at all levels, in the order in which they are numbered."""
    for column in children(kind):
        yield column
        yield from inner_columns(column.type)


def numbered(field: Field) -> pa.Field:
    """Return the Arrow field of a field as data files have it: with the ids of its inner columns."""
    arrow = field.arrow
    if not pa.types.is_nested(arrow.type) or len(inner_ids(arrow)) > INNER_MAX:
        return arrow
    ids = count(first_inner_id(field.id))

    def with_id(column: pa.Field) -> pa.Field:
        metadata = {FIELD_ID_KEY: str(next(ids))}
        return column.with_type(with_children(column.type, with_id)).with_metadata(metadata)

    return arrow.with_type(with_children(arrow.type, with_id))


def numbered_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of data files: with the ids of inner columns."""
    return pa.schema([numbered(field) for field in schema.fields])


def shown_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema that data files name for other programs, which has text for JSON.

    PyIceberg reads no extension types. Parquet's own annotation says that it is JSON.
    """

    def as_text(column: pa.Field) -> pa.Field:
        return column.with_type(pa.string() if column.type == JSON else with_children(column.type, as_text))

    return pa.schema(map(as_text, numbered_schema(schema)))


def stored_id(column: pa.Field) -> int | None:
    """Return the id that a column of a file carries; None: it has none."""
    text = (column.metadata or {}).get(FIELD_ID_KEY)
    return None if text is None else int(text)


def inner_ids(column: pa.Field) -> list[int | None]:
    """Return the ids that the inner columns of a column carry."""
    return [stored_id(one) for one in inner_columns(column.type)]


def shared_id(fields: Iterable[Field]) -> tuple[str, str] | None:
    """Return the names of two fields that have an id in common, of their own or of inner columns; None: none have."""
    owners: dict[int, str] = {}
    for field in fields:
        first = first_inner_id(field.id)
        for one in (field.id, *range(first, first + len(inner_ids(field.arrow)))):
            if (other := owners.setdefault(one, field.name)) != field.name:
                return other, field.name
    return None


def with_children(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return a nested type with its columns changed; others are unchanged."""
    columns = [change(column) for column in children(kind)]
    if pa.types.is_map(kind):
        return pa.map_(*columns)
    if pa.types.is_struct(kind):
        return pa.struct(columns)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(columns[0], kind.list_size)
    return pa.list_(columns[0]) if columns else kind
