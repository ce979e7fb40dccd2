"""Schemas of Lakebed as schemas of Apache Iceberg: the same fields, ids and order.

The types are those that :mod:`lakebed.model.published_types` allows. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakebed.errors import Code
from lakebed.model.published_types import unpublished
from lakebed.model.type_names import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.model.schema import Schema

SORT_ORDER_ID = 1
"""0 means unsorted."""

_INT_BITS = 32


def iceberg_schema(schema: Schema) -> IcebergSchema:
    """Return a schema with the version of ours as its id.

    Raises UsageError for a type that cannot be published.
    """
    if refused := unpublished(schema):
        raise Code.TYPE_UNSUPPORTED(f"the table cannot be published as Iceberg: {refused}")
    return IcebergSchema(
        *(
            NestedField(field.id, field.name, iceberg_type(field.type), required=not field.nullable)
            for field in schema.fields
        ),
        schema_id=schema.version,
    )


def sort_order(schema: Schema) -> SortOrder:
    """Return the order of the rows in data files: by the key fields, ascending; keys are never null."""
    keys = (*schema.row_key, *schema.sort_key)
    fields = [SortField(key.id, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST) for key in keys]
    return SortOrder(*fields, order_id=SORT_ORDER_ID)


def iceberg_type(kind: pa.DataType) -> PrimitiveType:
    """Return the type with all values of ours, which must be one that can be published."""
    if pa.types.is_integer(kind):
        return IntegerType() if kind.bit_width <= _INT_BITS else LongType()
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return TimestampType() if kind.tz is None else TimestamptzType()
    if kind == UUID:
        return UUIDType()
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    return _SIMPLE[kind]()


_SIMPLE: dict[pa.DataType, Callable[[], PrimitiveType]] = {
    pa.bool_(): BooleanType,
    pa.float32(): FloatType,
    pa.float64(): DoubleType,
    pa.date32(): DateType,
    pa.time64("us"): TimeType,
    pa.string(): StringType,
    pa.binary(): BinaryType,
}
