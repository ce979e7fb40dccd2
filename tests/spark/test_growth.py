"""Columns that a table lacks, brought by Spark: frames, shuffled ingest jobs, and the data source.

What needs no JVM: tests/tables/spark/test_growth.py.
"""

import pytest

from lakebed import Schema
from tests.spark.cases import writes_streams
from tests.tables.ingest.columns import fields, put, read, rows

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


@pytest.fixture
def table(lake):
    return lake.create_table("t", SCHEMA, settings={"schema_growth": "add"})


def test_a_frame_and_a_csv_are_imported_with_their_columns(pipeline, table, spark, tmp_path):
    frame = spark.createDataFrame([("a", 1, 1.5)], "k string, v bigint, d double")
    assert pipeline.bulk_import(table, frame).rows == 1
    (tmp_path / "in.csv").write_text("key,v,word\nb,2,3\nc,oops,4\n")
    report = pipeline.bulk_import(
        table, tmp_path / "in.csv", format="csv", columns={"k": "key"}, quarantine=str(tmp_path / "aside")
    )
    assert (report.rows, report.rejected) == (1, 1)
    assert fields(table) == ["v: int64", "d: double", "word: int64"]
    assert read(table) == ["k=a v=1 d=1.5", "k=b v=2 word=3"]


def test_requests_that_are_shuffled_add_the_columns_of_their_files(pipeline, table, tmp_path):
    table.submit(put(tmp_path / "in", rows("b", x=[1]), rows("a", y=["t"])))
    report = pipeline.ingest(table, force=True, method="shuffle")
    assert (report.requests, report.rows) == (2, 2)
    assert read(table) == ["k=a y=t", "k=b x=1"]


@writes_streams
def test_the_data_source_writes_new_columns_in_batches_and_streams(spark, lake, table, tmp_path):
    options = {"instance": lake.url, "table": "t"}

    def write(frame):
        frame.write.format("lakebed").options(**options).mode("append").save()

    before = table.version
    write(spark.createDataFrame([("a", 1, [1, 2])], "k string, x int, items array<int>"))
    assert table.state().version == before + 1
    assert fields(table) == ["v: int64", "x: int32", "items: list<item: int32>"]
    with pytest.raises(Exception, match="column x is string; the table has int32"):
        write(spark.createDataFrame([("b", "t")], "k string, x string"))
    source = tmp_path / "source"
    for number in range(2):
        spark.createDataFrame([(f"s{number}", number)], "k string, y bigint").write.mode("append").parquet(str(source))
    stream = spark.readStream.schema("k string, y bigint").option("maxFilesPerTrigger", 1).parquet(str(source))
    sink = stream.writeStream.format("lakebed").options(**options).option("checkpointLocation", str(tmp_path / "c"))
    assert sink.trigger(availableNow=True).start().awaitTermination(300)
    assert fields(table) == ["v: int64", "x: int32", "items: list<item: int32>", "y: int64"]
    assert read(table) == ["k=a x=1 items=[1, 2]", "k=s0 y=0", "k=s1 y=1"]
    assert len(table.state().schemas) == 3
    assert table.verify(files=True, deep=True).sound
