"""Tables with a filter on Spark: the data source shows what a scan shows, and tasks drop what it hides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed import AgeOff, Schema, SetFilter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import lakebed
    from lakebed import Pipeline

SCHEMA = Schema({"k": "string"}, sort_key={"at": "timestamp[us]"}, values={"n": "int64"})


def test_the_data_source_and_a_compaction_show_the_same_rows(
    spark: SparkSession, lake: lakebed.Instance, pipeline: Pipeline
) -> None:
    table = lake.create_table("t", SCHEMA, split_points=["c"])
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    for write in range(3):
        held = [(k, now - timedelta(days=days), write + days) for k in "abcd" for days in (1, 29, 50)]
        table.write(pa.table([list(column) for column in zip(*held, strict=True)], schema=SCHEMA.arrow))
    table.alter(SetFilter("n % 2 = 1 AND k <> 'b'"), AgeOff("at", days=30))
    shown = sorted((row["k"], row["n"]) for row in table.to_arrow().to_pylist())
    assert 0 < len(shown) < 24

    def read() -> list[tuple[str, int]]:
        frame = spark.read.format("lakebed").option("instance", lake.url).option("table", "t").load()
        return sorted((row["k"], row["n"]) for row in frame.collect())

    assert read() == shown
    assert pipeline.compact("t", strategy="full").rows == len(shown)
    assert read() == shown
    assert sorted((row["k"], row["n"]) for row in table.to_arrow().to_pylist()) == shown
