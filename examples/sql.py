"""A table in SQL: a view of it, compacted by the pipeline in the same session.

python examples/sql.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lakebed
from lakebed import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, folder: Path) -> int:
    """Visits of pages. Returns how many there are of one of them, after a compaction."""
    instance = lakebed.create(folder / "lake")
    table = instance.create_table("visits", lakebed.Schema({"page": "string"}, {"at": "int64"}, {"ms": "int64"}))
    for hour in range(4):
        minutes = range(60 * hour, 60 * (hour + 1))
        table.write(pa.table({"page": [f"/{m % 5}" for m in minutes], "at": minutes, "ms": [m % 90 for m in minutes]}))

    report = Pipeline(instance, spark).compact(table, strategy="full")
    print(f"{report.files_in} files into {report.files_out}")

    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW visits USING lakebed OPTIONS (instance '{instance.url}', `table` 'visits')"
    )
    spark.sql("SELECT page, count(*) AS visits, avg(ms) FROM visits GROUP BY page ORDER BY page").show()
    return int(spark.sql("SELECT count(*) AS n FROM visits WHERE page = '/3'").collect()[0].n)


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as scratch:
        run(
            SparkSession.builder.master("local[2,4]").getOrCreate(), Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        )
