"""Schemas of Lakebed as schemas of Apache Iceberg: the same fields, ids and order.

The types are those that :mod:`lakebed.model.published_types` allows. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, NestedField, StructType

from lakebed.errors import Code
from lakebed.model.field_ids import children, numbered, stored_id
from lakebed.model.published_types import rule_of, unpublished

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

SORT_ORDER_ID = 1
"""0 means unsorted."""


def iceberg_schema(schema: Schema) -> IcebergSchema:
    """Return a schema with the version of ours as its id.

    Raises UsageError for a type that cannot be published.
    """
    if refused := unpublished(schema):
        raise Code.TYPE_UNSUPPORTED(f"the table cannot be published as Iceberg: {refused}")
    return IcebergSchema(
        *(_nested_field(numbered(field)) for field in schema.fields),
        schema_id=schema.version,
    )


def sort_order(schema: Schema) -> SortOrder:
    """Return the order of the rows in data files: by the key fields, ascending; keys are never null."""
    keys = (*schema.row_key, *schema.sort_key)
    fields = [SortField(key.id, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST) for key in keys]
    return SortOrder(*fields, order_id=SORT_ORDER_ID)


def iceberg_type(kind: pa.DataType) -> IcebergType:
    """Return the type with all values of ours, which must be one that can be published, with ids of inner columns."""
    if pa.types.is_map(kind):
        key, value = children(kind)
        return MapType(
            stored_id(key),
            iceberg_type(key.type),
            stored_id(value),
            iceberg_type(value.type),
            value_required=not value.nullable,
        )
    if pa.types.is_struct(kind):
        return StructType(*map(_nested_field, children(kind)))
    if pa.types.is_nested(kind):
        [element] = children(kind)
        return ListType(stored_id(element), iceberg_type(element.type), element_required=not element.nullable)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    return IcebergType.model_validate(rule_of(kind).iceberg)


def _nested_field(column: pa.Field) -> NestedField:
    return NestedField(stored_id(column), column.name, iceberg_type(column.type), required=not column.nullable)
