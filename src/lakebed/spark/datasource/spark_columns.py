"""Converts the columns of a table to Spark's types, and Spark's rows to the table's.

Spark has fewer types than Arrow. Numbers without a sign become the next wider one with a sign, half floats floats,
times nanoseconds, bytes of a fixed size bytes, lists of a fixed size lists, UUIDs (in lower case) and JSON text, and
timestamps of any unit microseconds. A value that a conversion would change is an error; nothing is rounded. Rows from
Spark are converted back by the same casts in reverse, and each value is checked.

*Translates schemas between Spark's types and Arrow's, by PySpark's own functions, whose options differ by version.*
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code, UsageError
from lakebed.model import types
from lakebed.model.extension_values import texts_of_uuids
from lakebed.model.type_names import JSON, UUID
from lakebed.read.changes.plan import FEED_COLUMNS, change_schema
from lakebed.write.row_encoder import RowEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from lakebed.model.schema import Field, Schema


def arrow_of(spark: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges rows of these columns; timestamps with a zone are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Up to Spark 4.1 there is a flag in its place, which is set by default.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(spark, **zone)


def spark_of(kind: pa.DataType, column: str) -> Any:
    """Return Spark's type for an Arrow type, a timestamp without a zone being one. Raises UsageError if it has none."""
    import pyspark
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(kind, prefer_timestamp_ntz=True)
    except PySparkTypeError as error:
        raise Code.TYPE_UNSUPPORTED(
            f"column {column} is {kind}, which Spark {pyspark.__version__} does not support; leave it out with the "
            "option columns, or use a later Spark",
            column=column,
        ) from error


_PLAIN = {
    "uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64(), "uint64": pa.decimal128(20, 0),
    "halffloat": pa.float32(),
}  # fmt: skip
_DECIMAL_DIGITS_MAX = 38


def spark_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the Arrow type in which Spark exchanges values of a type. Raises UsageError if it has none."""
    if kind in (UUID, JSON):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", spark_type(kind.value_type, column)))
    if pa.types.is_map(kind):
        key, item = spark_type(kind.key_type, column), spark_type(kind.item_type, column)
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", item))
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(spark_type(member.type, column)) for member in kind])
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_decimal(kind):
        if kind.precision > _DECIMAL_DIGITS_MAX or not 0 <= kind.scale <= kind.precision:
            raise Code.TYPE_UNSUPPORTED(
                f"column {column} is {kind}, which Spark does not support; leave it out with the option columns",
                column=column,
            )
        return pa.decimal128(kind.precision, kind.scale)
    return _PLAIN.get(str(kind), kind)


def spark_schema(schema: Schema, names: Sequence[str]) -> StructType:
    """Return columns of a table in Spark's types. Raises UsageError for one that Spark has no type for."""
    return _in_spark(schema.arrow_of(names))


def changes_schema(schema: Schema, names: Sequence[str]) -> StructType:
    """Return the columns of the change feed of a table with these columns in Spark's types. Raises UsageError."""
    return _in_spark(change_schema(schema, names))


def _in_spark(schema: pa.Schema) -> StructType:
    from pyspark.sql.types import StructField, StructType

    kinds = (spark_of(spark_type(field.type, field.name), field.name) for field in schema)
    return StructType(
        [StructField(field.name, kind, field.nullable) for field, kind in zip(schema, kinds, strict=True)]
    )


def check_requested(spark: StructType, schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the columns that Spark requests.

    Raises UsageError for a column that the table does not have, or has with another type, because the table was altered
    after the frame was made, or a schema was given by hand.
    """
    names = schema.project(spark.fieldNames())
    wanted, found = arrow_of(spark), arrow_of(spark_schema(schema, names))
    for name in names:
        if wanted.field(name).type != found.field(name).type:
            raise Code.TABLE_CHANGED(
                f"column {name} is {found.field(name).type}, and was requested as {wanted.field(name).type}; load the "
                "frame again, or leave out the schema",
                column=name,
            )
    return wanted


def check_requested_changes(spark: StructType, schema: Schema) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the same of the change feed: also returns the columns of the table among those that Spark requests."""
    from pyspark.sql.types import StructType

    feed = {field.name for field in FEED_COLUMNS}
    columns = StructType([field for field in spark.fields if field.name not in feed])
    if columns.fields:
        check_requested(columns, schema)
    return arrow_of(spark), tuple(columns.fieldNames())


def to_spark(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return the rows in Spark's schema ``wanted``.

    Raises SchemaMismatchError for a value that its type cannot represent.
    """
    columns = [_cast(rows.column(field.name), field.type, field.name, "Spark") for field in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def check_columns(spark: StructType, encoder: RowEncoder, source: str) -> None:
    """Raise SchemaMismatchError unless rows of Spark's columns can become the table's, before any is computed."""
    encoder.check(pa.schema([_restored(field, encoder.conformer.schema) for field in arrow_of(spark)]), source)


def from_spark(rows: pa.RecordBatch, encoder: RowEncoder, source: str) -> pa.RecordBatch:
    """Return rows whose columns :func:`check_columns` accepted, as the table stores them.

    Raises SchemaMismatchError, BadKeyError for a value that the table does not take.
    """
    meant = [_restored(field, encoder.conformer.schema) for field in rows.schema]
    columns = [_cast(rows.column(field.name), field.type, field.name, "the table") for field in meant]
    return encoder.conform(pa.RecordBatch.from_arrays(columns, schema=pa.schema(meant)), source)


def _restored(given: pa.Field, schema: Schema) -> pa.Field:
    """Return the column with the table's type if its own type is Spark's for that; otherwise as it is."""
    field: Field | None = schema.by_name.get(given.name)
    if field is not None and field.type not in (UUID, JSON) and not types.widens(given.type, field.type):
        try:
            image = spark_type(field.type, field.name)
        except UsageError:
            return given
        if _shape(given.type) == _shape(image):
            return given.with_type(field.type)
    return given


def _shape(kind: pa.DataType) -> str:
    """Return a type without what Spark changes: the names, and the nullability, inside lists and maps."""
    return str(types.to_json(types.canonical(kind))).replace("False", "True")


def _cast(column: pa.Array, kind: pa.DataType, name: str, whose: str) -> pa.Array:
    if column.type == kind:
        return column
    if column.type == UUID and pa.types.is_string(kind):
        return texts_of_uuids(column)
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Code.VALUE_NOT_REPRESENTABLE(
            f"column {name} is {column.type} and holds a value that {whose} cannot represent as {kind} ({error})",
            column=name,
        ) from error
