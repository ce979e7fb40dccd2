"""A table with a key field of every type: imported, merged, exported, and read and written as frames of Spark."""

import datetime as dt
import decimal
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from tests.spark.cases import SPARK

COUNT = 300
TIMES = {} if SPARK < (4, 1) else {"time64[us]": lambda n: dt.time(n % 24, 59, 1, n)}
VALUES = {
    "uuid": lambda n: str(uuid.UUID(int=n * 7919 << 96)),
    "bool": lambda n: n % 2 == 0,
    "int8": lambda n: n % 200 - 100,
    "int16": lambda n: -n,
    "uint8": lambda n: n % 251,
    "uint16": lambda n: 65_000 + n,
    "uint32": lambda n: 2**32 - 1 - n,
    "uint64": lambda n: 2**64 - 1 - n,
    "float": lambda n: (n - 100) / 4,
    "double": lambda n: [float("nan"), float("-inf"), -0.0, n / 3][n % 4],
    "decimal128(20, 3)": lambda n: decimal.Decimal(n - 100) / 8,
    "fixed_size_binary[3]": lambda n: bytes([n % 256, 0, 255]),
    "date32": lambda n: dt.date(1960, 1, 1) + dt.timedelta(n * 50),
    **TIMES,
    "timestamp[ms]": lambda n: dt.datetime(2000, 1, 1) + dt.timedelta(milliseconds=n),  # noqa: DTZ001 - no zone
    "timestamp[us, tz=UTC]": lambda n: dt.datetime(1950, 1, 1, tzinfo=dt.UTC) + dt.timedelta(n),
}


def rows(table, numbers):
    """As files of others have them: UUIDs as text."""
    kinds = [
        pa.string() if name == "uuid" else field.type for name, field in zip(VALUES, table.schema.row_key, strict=True)
    ]
    columns = [pa.array([value(n) for n in numbers], kind) for value, kind in zip(VALUES.values(), kinds, strict=True)]
    names = [field.name for field in table.schema.fields]
    return pa.Table.from_arrays([*columns, pa.array(numbers, pa.int64())], names=names)


def shown(table):
    """All rows in a form in which NaN equals itself."""
    return repr(table.scan().read_all().to_pylist())


def test_a_key_of_every_type_goes_through_spark(spark, lake, pipeline, tmp_path):
    schema = lakebed.Schema({f"k {name}": name for name in VALUES}, {}, {"n": "int64"})
    table = lake.create_table("t", schema)
    (tmp_path / "in").mkdir()
    for part in range(3):
        pq.write_table(rows(table, list(range(part, COUNT, 3))), tmp_path / "in" / f"{part}.parquet")
    pipeline.bulk_import(table, str(tmp_path / "in"))
    table.write(rows(table, list(range(COUNT, COUNT + 10))))
    pipeline.compact(table, strategy="full")
    found = table.scan().read_all()
    assert sorted(found["n"].to_pylist()) == list(range(COUNT + 10))
    assert found["k uuid"].to_pylist() == sorted(found["k uuid"].to_pylist())
    key = tuple(kind(5) for kind in VALUES.values())
    assert table.get(*key)["n"].to_pylist() == [5]

    frame = spark.read.format("lakebed").options(instance=lake.url, table="t").load()
    assert sorted(row["n"] for row in frame.collect()) == list(range(COUNT + 10))
    assert [row["n"] for row in frame.where(frame["k uuid"] == key[0]).collect()] == [5]
    copy = lake.create_table("copy", schema)
    frame.write.format("lakebed").mode("append").options(instance=lake.url, table="copy").save()
    assert shown(copy) == shown(table)

    exported = pipeline.export(table, str(tmp_path / "out"))
    assert exported.rows == COUNT + 10
    again = lake.create_table("again", schema)
    pipeline.bulk_import(again, str(tmp_path / "out"))
    assert shown(again) == shown(table)


def test_lists_of_a_fixed_size_and_nulls_go_through_spark(lake, pipeline, tmp_path):
    def made(first, last):
        lists = [[n, n + 0.5, None] if n % 7 else None for n in range(first, last)]
        columns = {
            "k": range(first, last),
            "f": pa.array(lists, pa.list_(pa.float32(), 3)),
            "z": pa.nulls(last - first),
        }
        return pa.table(columns)

    values = {"f": "fixed_size_list<float>[3]", "z": "null"}
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, {}, values))
    pq.write_table(made(0, 200), tmp_path / "in.parquet")
    pipeline.bulk_import(table, str(tmp_path / "in.parquet"))
    table.write(made(200, 300))
    pipeline.compact(table, strategy="full")
    assert table.scan().read_all().to_pylist() == made(0, 300).to_pylist()
    frame = pipeline.read(table)
    assert [(field.name, field.dataType.typeName()) for field in frame.schema][1:] == [("f", "array"), ("z", "void")]
    assert frame.where("k = 5").collect()[0].asDict() == {"k": 5, "f": [5.0, 5.5, None], "z": None}
    assert pipeline.export(table, str(tmp_path / "out")).rows == 300


def test_a_dictionary_is_its_values_in_spark_and_a_dictionary_again_in_reads(spark, lake, pipeline, tmp_path):
    def made(numbers):
        return pa.table({"k": numbers, "c": pa.array([f"c{n % 5}" if n % 7 else None for n in numbers], pa.string())})

    schema = lakebed.Schema({"k": "int64"}, {}, {"c": "dictionary<string>"})
    table = lake.create_table("t", schema)
    pq.write_table(
        made(range(200)).set_column(1, "c", made(range(200))["c"].dictionary_encode()), tmp_path / "in.parquet"
    )
    pipeline.bulk_import(table, str(tmp_path / "in.parquet"))
    table.write(made(range(200, 300)))
    pipeline.compact(table, strategy="full")
    frame = pipeline.read(table)
    assert [field.dataType.typeName() for field in frame.schema] == ["long", "string"]
    assert frame.where("c = 'c3' and k < 10").collect()[0].asDict() == {"k": 3, "c": "c3"}
    copy = lake.create_table("copy", schema)
    frame.write.format("lakebed").mode("append").options(instance=lake.url, table="copy").save()
    for one in (table, copy):
        assert one.to_arrow().schema.field("c").type == schema.returned.field("c").type
        assert one.to_arrow().to_pylist() == made(range(300)).to_pylist()
