"""Rows of a DataFrame into a table and out of it again, by Spark's own reader and writer.

python examples/batch.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import lakebed
from lakebed import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, folder: Path) -> int:
    """Sensor readings: a thousand sensors, a hundred readings each. Returns how many one sensor has."""
    instance = lakebed.create(folder / "lake")
    schema = lakebed.Schema({"sensor": "int64"}, {"minute": "int64"}, {"celsius": "double"})
    instance.create_table("readings", schema, split_points=[250, 500, 750])
    options = {"instance": instance.url, "table": "readings"}

    readings = spark.range(100_000).selectExpr("id % 1000 AS sensor", "id DIV 1000 AS minute", "id % 37 / 2 AS celsius")
    readings.write.format("lakebed").options(**options).mode("append").save()

    whole = spark.read.format("lakebed").options(**options).load()
    print(f"{whole.count():,} rows, as many as went in: {readings.count():,}")

    # Only the partition and the pages of one sensor are read: the range belongs to the frame.
    one = spark.read.format("lakebed").options(**options, ranges='[{"key": [42]}]', columns="minute,celsius").load()
    print("the warmest minutes of sensor 42:")
    one.orderBy("celsius", ascending=False).show(3)

    # The same with Python's own values, from the pipeline.
    same = Pipeline(instance, spark).read("readings", lakebed.KeyRange.prefix(42))
    return int(same.count())


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as scratch:
        found = run(
            SparkSession.builder.master("local[2,4]").getOrCreate(), Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        )
    print(f"sensor 42 has {found} readings")
