"""What a user of Spark Connect does with the data source, in a process of its own: ``python -m tests.spark.connect``.

PySpark starts the server; both listen on the loopback address only.
"""

from __future__ import annotations

import os
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import lakebed
from lakebed import Pipeline
from tests.spark.cases import SPARK


def main() -> None:
    instance = lakebed.create(sys.argv[1])
    instance.create_table("t", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}), split_points=[50])
    # What the server runs sources and tasks with.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    assert "connect" in type(session).__module__
    options = {"instance": instance.url, "table": "t"}
    frame = session.range(100).selectExpr("id AS k", "concat('v', id) AS v")
    frame.write.format("lakebed").options(**options).mode("append").save()
    print("read", session.read.format("lakebed").options(**options).load().filter("k >= 90").count())
    print("ranges", Pipeline(instance, session).read("t", lakebed.KeyRange(10, 15)).toArrow()["v"].to_pylist())
    if SPARK >= (4, 2):
        stream(session, instance, options)
    session.stop()


def stream(session: SparkSession, instance: lakebed.Instance, options: dict[str, str]) -> None:
    """From one table into another."""
    added = session.readStream.format("lakebed").options(**options).load()
    instance.create_table("copy", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}))
    sink = added.writeStream.format("lakebed").options(instance=instance.url, table="copy")
    for attempt in range(5):
        query = sink.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as error:
            # On a busy machine Spark gives the source's worker up after ten seconds.
            if attempt == 4 or "failed to connect back" not in str(error):
                raise
    print("stream", instance.table("copy").scan().read_all().num_rows)


if __name__ == "__main__":
    main()
