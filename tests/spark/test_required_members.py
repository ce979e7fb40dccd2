"""Struct members that are not nullable, below structs that are null, on Spark."""

import lakebed
from lakebed import Schema

ROW = "struct<id: int64 not null, name: string>"
ONE = {"id": 7, "name": "a"}


def test_a_null_struct_with_a_required_member_goes_through_spark_both_ways(spark, tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("cdc", Schema({"lsn": "int64"}, values={"before": ROW, "after": ROW}))
    table.write([{"lsn": 1, "before": None, "after": ONE}, {"lsn": 2, "before": ONE, "after": None}])
    source = spark.read.format("lakebed").options(instance=lake.url, table="cdc").load()
    found = source.selectExpr("lsn", "before.id AS b", "after.id AS a").orderBy("lsn").collect()
    assert [tuple(row) for row in found] == [(1, None, 7), (2, 7, None)]
    lake.create_table("copy", table.schema)
    source.write.format("lakebed").options(instance=lake.url, table="copy").mode("append").save()
    assert lake.table("copy").scan().read_all().to_pylist() == table.scan().read_all().to_pylist()
