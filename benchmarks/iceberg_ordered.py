"""Iceberg on Spark, a peer of :mod:`benchmarks.appends` and :mod:`benchmarks.bulk_import`, without Lakebed.

    python -m benchmarks.iceberg_ordered ORDER SOURCE FOLDER

Iceberg runs on the Spark version of its runtime, installed with pip in its own environment; that Spark fetches the
runtime from Maven Central.

As a program, the module writes the Parquet files of SOURCE twice, each time into a new table, as zstd. The table is
``WRITE ORDERED BY`` the fields of ORDER: Iceberg distributes rows by ranges of the order, then sorts them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.turns import Found, core_seconds, measured, python_with

SPARK = "4.0.1"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
PEERS = (f"pyspark=={SPARK}", "psutil", "pyarrow", "numpy")


def peers() -> Path:
    """Return the Python of an environment that has Iceberg's Spark."""
    return python_with(f"iceberg-{SPARK}", PEERS)


def iceberg_session(warehouse: Path) -> Any:
    """Return a session whose catalog ``lake`` keeps tables in a folder."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars.packages": ICEBERG,
        "spark.jars.ivy": str(Path(sys.prefix) / "ivy"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def create_table(session: Any, name: str, example: Path) -> str:
    """Create a table with the columns of a Parquet file; return its name in the catalog."""
    table = f"lake.db.{name}"
    empty = session.read.parquet(str(example)).limit(0)
    empty.writeTo(table).tableProperty("write.parquet.compression-codec", "zstd").create()
    return table


def files_of(session: Any, table: str) -> Found:
    """Return the number of rows, files and bytes of a table."""
    columns = "sum(record_count), count(*), sum(file_size_in_bytes)"
    rows, files, size = session.sql(f"SELECT {columns} FROM {table}.files").collect()[0]
    return {"rows": rows, "files": files, "bytes": size}


def ordered_writes(order: str, source: Path, folder: Path) -> Found:
    """Write the rows twice in order. The second write is the result, and has the first."""
    session = iceberg_session(folder)

    def run(name: str) -> Found:
        table = create_table(session, name, next(source.glob("*.parquet")))
        session.sql(f"ALTER TABLE {table} WRITE ORDERED BY {order}")
        begin, begin_cores = time.perf_counter(), core_seconds()
        session.read.parquet(str(source)).writeTo(table).append()
        return measured(begin, begin_cores) | files_of(session, table)

    first = run("first")
    result = run("rows") | {"first": first}
    session.stop()
    return result


if __name__ == "__main__":
    print(json.dumps(ordered_writes(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
