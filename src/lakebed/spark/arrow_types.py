"""Translates schemas between Spark's types and Arrow's, by PySpark's own functions, whose options differ by version."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


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
