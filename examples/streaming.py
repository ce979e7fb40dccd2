"""From one table into another as rows are added, exactly once: a stream that is stopped and started again.

python examples/streaming.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lakebed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def carry_over(spark: SparkSession, instance: lakebed.Instance, checkpoint: Path) -> None:
    """One run of the query: whatever was added since the last one, then it ends."""
    orders = (
        spark.readStream.format("lakebed")
        .options(instance=instance.url, table="orders", maxFilesPerTrigger=2)
        .load()
    )  # fmt: skip
    large = orders.filter("amount >= 100").select("customer", "day", "amount")
    sink = large.writeStream.format("lakebed").options(instance=instance.url, table="large_orders")
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def run(spark: SparkSession, folder: Path) -> int:
    """Orders come in; the large ones are kept by customer as well. Returns how many of these there are."""
    instance = lakebed.create(folder / "lake")
    orders = instance.create_table(
        "orders", lakebed.Schema({"day": "date32"}, {"order": "int64"}, {"customer": "string", "amount": "int64"})
    )
    large = instance.create_table(
        "large_orders", lakebed.Schema({"customer": "string"}, {"day": "date32"}, {"amount": "int64"})
    )
    for morning in range(2):
        for part in range(2):
            first = 1000 * (2 * morning + part)
            orders.write(
                pa.table(
                    {
                        "day": pa.array([20_000 + morning] * 1000, pa.int32()).cast(pa.date32()),
                        "order": range(first, first + 1000),
                        "customer": [f"customer {number % 17}" for number in range(1000)],
                        "amount": [number % 110 for number in range(1000)],
                    }
                )
            )
        carry_over(spark, instance, folder / "checkpoint")
        print(f"after morning {morning + 1}: {large.scan().read_all().num_rows} large orders")
    return int(large.scan().read_all().num_rows)


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as scratch:
        run(
            SparkSession.builder.master("local[2,4]").getOrCreate(), Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        )
