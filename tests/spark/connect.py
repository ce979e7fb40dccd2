"""What a user of Spark Connect does with the data source, in a process of its own: ``python -m tests.spark.connect``.

PySpark starts the server; both listen on the loopback address only.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

import lakebed
from lakebed.spark import Pipeline, procedures


def main() -> None:
    instance = lakebed.create(sys.argv[1])
    instance.create_table("t", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}), split_points=[50])
    # What the server runs sources, procedures and tasks with.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    assert "connect" in type(session).__module__
    options = {"instance": instance.url, "table": "t"}
    frame = session.range(100).selectExpr("id AS k", "concat('v', id) AS v")
    frame.write.format("lakebed").options(**options).mode("append").save()
    print("read", session.read.format("lakebed").options(**options).load().filter("k >= 90").count())
    print("ranges", Pipeline(instance, session).read("t", lakebed.KeyRange(10, 15)).toArrow()["v"].to_pylist())
    added = session.readStream.format("lakebed").options(**options).load()
    instance.create_table("copy", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}))
    sink = added.writeStream.format("lakebed").options(instance=instance.url, table="copy")
    query = sink.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start()
    query.awaitTermination()
    print("stream", instance.table("copy").scan().read_all().num_rows)
    procedures.register(session, instance.url)
    print("procedure", session.sql("SELECT row_count FROM lakebed_partitions('t')").toArrow()["row_count"].to_pylist())
    session.stop()


if __name__ == "__main__":
    main()
