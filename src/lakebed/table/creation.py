"""Checks the arguments of a new table: name, settings, schema, merge mode and split points.

All is checked before anything is written, and the first schema of a log is final: it gets version 1 and new field ids,
whichever table it was taken from. Core functions: :func:`new_table` and :func:`new_view` make the first transaction of
a log. Errors: UsageError, with the argument and what it may be.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import structs

from lakebed.errors import Code
from lakebed.files.merging.custom_functions import check as check_custom
from lakebed.model import settings, types
from lakebed.model.checks import TABLE_NAME, shown
from lakebed.model.merge_modes import KEEP_ALL, Latest, MergeMode, check_mode
from lakebed.model.published_types import unpublished
from lakebed.model.schema import HIDDEN_ID_MIN, Schema
from lakebed.model.state.table_state import IndexCoverage, ViewSource
from lakebed.model.state.transactions import AddIndex, CreateTable, ProposeSchema
from lakebed.model.state.transactions.resolution import Rejected
from lakebed.model.state.transactions.schema_changes import AlterSchema

if TYPE_CHECKING:
    from lakebed.model.state.table_state import TableState

_LOG = logging.getLogger("lakebed.views")


def check_name(name: Any) -> None:
    """Raises UsageError for an invalid name of a table."""
    if not isinstance(name, str) or not TABLE_NAME.fullmatch(name):
        length = f" ({len(name)} characters)" if isinstance(name, str) and len(name) > 128 else ""
        raise Code.NAME_INVALID(
            f"not a table name: {shown(name)}{length}; use 1 to 128 of A-Z a-z 0-9 _ and -, not beginning with -",
            table=name,
        )


def own_settings(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a table, checked. Raises UsageError."""
    if not isinstance(own, Mapping):
        raise Code.ARGUMENT_INVALID(f"settings = {shown(own)}: must be values by name, such as {{'split_rows': 1000}}")
    return {name: value for name, value in settings.validate(own).items() if value is not None}


def first_schema(schema: Schema) -> Schema:
    """Return the schema of a new table, with checked expressions."""
    first = Schema(schema.row_key, schema.sort_key, schema.values)
    _check_new(first)
    if not first.generated:
        return first

    from lakebed.engine.computed_columns import checked

    return checked(first)


def new_table(
    table_id: str, schema: Any, split_points: Iterable[Any], own: Mapping[str, Any], merge: MergeMode
) -> CreateTable:
    """Return the creation of a table. Raises UsageError."""
    if not isinstance(schema, Schema):
        raise Code.ARGUMENT_INVALID(f"schema = {shown(schema)}: must be a Schema, such as Schema({{'k': 'int64'}})")
    boundaries = boundaries_of(schema, split_points)
    # A schema taken from another table may be any of its versions; here it is the first.
    first, own_checked = first_schema(schema), own_settings(own)
    publish = own_checked.get("publish")
    if publish in settings.ICEBERG_FORMATS and (refused := unpublished(first)):
        raise Code.TYPE_UNSUPPORTED(f"publish={publish}: {refused}")
    return CreateTable(table_id, first, own_checked, boundaries, checked_mode(merge, first))


def new_view(  # noqa: PLR0913 - what a view is made of
    table_id: str,
    source: TableState,
    select: str,
    *,
    row_key: Sequence[str],
    sort_key: Sequence[str],
    merge: MergeMode = KEEP_ALL,
    split_points: Iterable[Any] = (),
    settings: Mapping[str, Any] | None = None,
) -> CreateTable:
    """Return the creation of a view with the columns of the query, of which some are the row key and the sort key.

    Raises UsageError for a query that cannot feed a view, or whose groups the merge mode cannot combine; NotFoundError
    if the source is an index.
    """
    from lakebed.engine.row_query import RowQuery

    if source.is_index:
        raise Code.INDEX_NOT_READ("an index is not read itself: make the view of its table", table=source.table)
    known = source.created
    query = RowQuery(select, known.arrow)
    query.check_merge({*row_key, *sort_key}, merge)
    # Keys are never null; results with a null in the key are left out when the view is fed.
    null_keys = [f.name for f in query.schema if f.nullable and f.name in {*row_key, *sort_key}]
    fields = [f.with_nullable(f.nullable and f.name not in {*row_key, *sort_key}) for f in query.schema]
    schema = Schema.from_arrow(pa.schema(fields), list(row_key), list(sort_key))
    created = new_table(table_id, schema, split_points, {} if settings is None else settings, merge)
    if null_keys:
        condition = " AND ".join(f'"{name}" IS NOT NULL' for name in null_keys)
        _LOG.warning(
            "the query of the view may give nulls in key columns (%s). Keys are never null: such rows are left out, as "
            "by SELECT * FROM (%s) r WHERE %s",
            ", ".join(null_keys),
            select,
            condition,
        )
    return structs.replace(created, view=ViewSource(source.table, select, 0, known.version))


def new_index(
    table_id: str, source: TableState, on: Sequence[str], own: Mapping[str, Any]
) -> tuple[CreateTable, AddIndex]:
    """Return the creation of the table with the entries of an index, and the change of the table that it is of.

    Raises UsageError, RejectedError.
    """
    from lakebed.read.rows.second_key import entry_schema

    schema = source.created
    fields = [schema.by_name[name] for name in schema.project(tuple(on))]
    if len({field.id for field in fields}) != len(fields):
        raise Code.ARGUMENT_INVALID(f"on = {shown(on)}: a field is named twice")
    added = AddIndex(table_id, tuple(field.id for field in fields))
    refused = added.resolve(source)
    if isinstance(refused, Rejected):
        raise refused.code(refused.reason, **refused.facts)
    # Entries are found by the first fields of their keys. Few files overlap, so the filter may be small.
    filters = {"bloom_fields": len(fields), "bloom_fpp": 0.025}
    created = new_table(table_id, entry_schema(schema, fields), (), filters | dict(own), Latest())
    others = tuple(field.id for field in schema.row_key if field not in fields)
    coverage = IndexCoverage(added.fields, others)
    return structs.replace(created, view=ViewSource(source.table, "", 0, schema.version, coverage)), added


def checked_mode(mode: Any, schema: Schema) -> MergeMode:
    """Return the merge mode, if it fits the schema and its function is installed. Raises UsageError."""
    found = check_mode(mode, schema)
    check_custom(found, schema)
    return found


def check_query_fits(proposal: ProposeSchema, state: TableState) -> None:
    """Raise UsageError if the query of the merge mode does not fit the schema after a change."""
    if state.merge.query:
        resolved = proposal.resolve(state)
        if isinstance(resolved, AlterSchema):
            check_custom(state.merge, resolved.schema)


def _check_new(schema: Schema) -> None:
    """Raise UsageError for names, types and ids that a new table must not have. Tables that have them can be opened."""
    for field in schema.fields:
        types.check_name(field.name)
        types.check_new_type(field.name, field.type)
        if field.id >= HIDDEN_ID_MIN:
            raise Code.SCHEMA_INVALID(f"field {field.name}: id = {field.id} is reserved; use ids below {HIDDEN_ID_MIN}")


def boundaries_of(schema: Schema, split_points: Iterable[Any]) -> tuple[bytes, ...]:
    """Return the split points as encoded keys, in order. Raises UsageError."""
    if isinstance(split_points, str | bytes | Mapping) or not isinstance(split_points, Iterable):
        raise Code.ARGUMENT_INVALID(f"split_points = {shown(split_points)}: must be a list of keys")
    points = [point if isinstance(point, list | tuple) else (point,) for point in split_points]
    encoded = sorted(schema.codec.encode(point) for point in points)
    if len(set(encoded)) != len(encoded) or b"" in encoded:
        raise Code.ARGUMENT_INVALID("split points must be different keys, none of them empty")
    return tuple(encoded)
