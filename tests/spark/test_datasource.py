"""The data source: the same rows out as in, only those that were asked for, and bad requests refused by name."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from lakebed import AddField, KeyRange, Schema
from tests.spark.cases import SCHEMA, assert_holds, multiset, rows

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SPLIT = ["a", "b", "z"]


@pytest.fixture
def table(instance):
    return instance.create_table("t", SCHEMA, split_points=SPLIT)


@pytest.fixture
def pushing(spark):
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.set(PUSHDOWN, "false")


def load(spark, instance, **options):
    return spark.read.format("lakebed").options(instance=instance.url, table="t", **options).load()


def append(frame, instance, **options):
    frame.write.format("lakebed").mode("append").options(instance=instance.url, table="t", **options).save()


def arrow(frame) -> pa.Table:
    return frame.toArrow()


def test_rows_go_out_as_they_came_in_and_back_in_as_they_went_out(spark, instance, table):
    """All types a table may have, those that Spark lacks among them."""
    wide = Schema(
        {"k": "date32", "n": "int64"},
        {"at": "timestamp[ns, tz=UTC]"},
        {
            "u8": "uint8", "u64": "uint64", "half": "halffloat", "time": "time32[s]", "fixed": "fixed_size_binary[3]",
            "ms": "timestamp[ms]", "dec": "decimal256(30, 4)",
            "nested": pa.list_(pa.struct([("a", pa.uint16()), ("b", pa.map_(pa.string(), pa.float32()))])),
        },
    )  # fmt: skip
    made = pa.table(
        {
            "k": [dt.date(2020, 1, 1), dt.date(1, 1, 1)],
            "n": [-(2**63), 2**63 - 1],
            "at": [dt.datetime(2020, 1, 1, 5, tzinfo=dt.UTC)] * 2,
            "u8": [255, None],
            "u64": [2**64 - 1, 0],
            "half": pa.array([1.5, -0.5], pa.float16()),
            "time": [dt.time(1, 2, 3), None],
            "fixed": [b"abc", b"\0\0\0"],
            "ms": [dt.datetime(1969, 12, 31, 23, 59, 59, 999000), None],
            "dec": [Decimal("-12345678901234567890123456.7890"), None],
            "nested": [[{"a": 65535, "b": {"x": 0.5}}, None], []],
        },
        schema=wide.arrow,
    )
    source = instance.create_table("wide", wide)
    source.write(made)
    instance.create_table("again", wide)
    read = spark.read.format("lakebed").options(instance=instance.url, table="wide").load()
    read.write.format("lakebed").mode("append").options(instance=instance.url, table="again").save()
    assert multiset(instance.table("again").scan().read_all()) == multiset(made)


def test_each_task_reads_sorted_rows_of_its_own_leaves(spark, instance, table):
    made = rows(1, 900)
    table.write(made)
    together, apart = load(spark, instance), load(spark, instance, partition_bytes=1)
    assert together.rdd.getNumPartitions() == 1
    assert apart.rdd.getNumPartitions() == 4
    found = arrow(apart)
    assert multiset(found) == multiset(made)
    keys = table.schema.codec.encode_columns(found.select(["k", "part"])).to_pylist()
    assert keys == sorted(keys)


def test_a_large_leaf_is_cut_among_tasks_and_loses_no_row(spark, instance):
    table = instance.create_table("t", SCHEMA)
    parts = [rows(seed, 8000) for seed in range(2)]
    for part in parts:
        table.write(part)
    assert all(file.summarised for file in table.state().referenced().values()), "large enough to have noted keys"
    frame = load(spark, instance, partition_bytes=100_000)
    assert frame.rdd.getNumPartitions() > 3
    assert multiset(arrow(frame)) == multiset(pa.concat_tables(parts))


def test_ranges_columns_and_numbers_are_chosen_by_options(spark, instance, table, pipeline):
    first, second = rows(1, 300), rows(2, 300)
    number = table.write(first)
    table.tag("first")
    table.write(second)
    both = pa.concat_tables([first, second])
    asked = [{"starts_with": ["b"]}, {"prefix": ["a1"]}, {"key": ["a2", 0]}, {"min": ["b"], "max": ["b3"]}]
    found = arrow(load(spark, instance, ranges=json.dumps(asked), columns="note, k,part"))
    kept = [
        (row["note"], row["k"], row["part"])
        for row in both.to_pylist()
        if row["k"].startswith("b") or row["k"] == "a1" or (row["k"], row["part"]) == ("a2", 0)
    ]
    assert sorted(map(repr, zip(*(c.to_pylist() for c in found.columns), strict=True))) == sorted(map(repr, kept))
    assert multiset(arrow(load(spark, instance, at=str(number)))) == multiset(first)
    assert multiset(arrow(load(spark, instance, at="first"))) == multiset(first)
    pruned = spark.read.format("lakebed").options(instance=instance.url, table="t").schema("note string").load()
    assert multiset(arrow(pruned)) == multiset(both.select(["note"]))
    mine = pipeline.read("t", KeyRange.starts_with("b"), columns=["k"])
    assert multiset(arrow(mine)) == multiset(table.scan(KeyRange.starts_with("b"), columns=["k"]).read_all())


def test_a_frame_is_of_the_number_at_which_it_was_loaded(spark, instance, table):
    made = rows(1, 50)
    table.write(made)
    frame = load(spark, instance)
    table.write(rows(2, 50))
    table.alter(AddField("later", "int64"))
    assert multiset(arrow(frame)) == multiset(made)
    assert arrow(load(spark, instance)).num_rows == 100


def test_pushed_filters_reach_the_key_ranges_and_the_plan_tells(pushing, instance, table, capsys):
    made = rows(1, 600)
    table.write(made)
    frame = load(pushing, instance, push_filters="true", partition_bytes="1")
    found = frame.filter("k like 'b%' and part >= 0 and note is not null")
    found.explain("formatted")
    plan = capsys.readouterr().out
    assert "PushedFilters: [StringStartsWith(k,b)]" in plan
    kept = [
        row for row in made.to_pylist() if row["k"].startswith("b") and row["part"] >= 0 and row["note"] is not None
    ]
    assert multiset(arrow(found)) == multiset(pa.Table.from_pylist(kept, schema=made.schema))
    assert found.rdd.getNumPartitions() == 1, "of four leaves"


def test_a_frame_that_is_used_more_than_once_answers_each_query_in_full(pushing, instance, table):
    """Spark keeps what was pushed into a frame for its later queries; so nothing is, unless it is asked for."""
    made = rows(1, 200)
    table.write(made)
    frame = load(pushing, instance)
    b = sum(key.startswith("b") for key in made["k"].to_pylist())
    assert frame.filter("k like 'b%'").count() == b
    assert frame.count() == 200
    assert frame.filter("k like 'b%'").union(frame.filter("k like 'a%'")).union(frame).count() == (
        b + sum(key.startswith("a") for key in made["k"].to_pylist()) + 200
    )
    once = load(pushing, instance, push_filters="true")
    assert once.filter("k like 'b%'").count() == b
    assert once.count() == b, "Spark has mended it: filters may be pushed by default (docs/spark.md)"


def test_a_view_in_sql_reads_the_table(spark, instance, table):
    made = rows(1, 100)
    table.write(made)
    spark.sql(f"CREATE TEMPORARY VIEW v USING lakebed OPTIONS (instance '{instance.url}', `table` 't')")
    try:
        assert spark.sql("SELECT count(*) AS n FROM v WHERE k LIKE 'b%'").collect()[0].n == sum(
            key.startswith("b") for key in made["k"].to_pylist()
        )
        spark.sql("INSERT INTO v SELECT * FROM v")
    finally:
        spark.sql("DROP VIEW v")
    assert_holds(table, made, made)


def test_missing_columns_that_may_be_null_are_null(spark, instance, table):
    made = rows(1, 40)
    append(spark.createDataFrame(made.select(["ts", "part", "k"])), instance)
    nulls = pa.nulls(40)
    assert_holds(
        table, pa.table({**{n: made[n] for n in ("k", "part", "ts")}, "v": nulls, "note": nulls}).cast(made.schema)
    )


def test_all_tasks_files_come_with_one_entry_and_a_commit_id_counts_once(spark, instance, table):
    made = rows(1, 400)
    frame = spark.createDataFrame(made).repartition(3)
    for _ in range(2):
        append(frame, instance, commit_id="load 1")
    assert table.state().number == 2
    assert len(table.state().files) == 3
    assert_holds(table, made)


def test_a_task_that_fails_leaves_the_table_as_it_was(spark, instance, table):
    made = rows(1, 100)
    frame = spark.createDataFrame(made).repartition(2).selectExpr("k", "part", "if(k < 'b', ts, null) AS ts")
    with pytest.raises(Exception, match="column ts has .* nulls; it is not nullable"):
        append(frame, instance)
    assert table.state().number == 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (["k", "part", "ts", "1 AS stray"], "extra column stray"),
        (["k", "ts"], "missing column part"),
        (["k", "part + 1.5D AS part", "ts"], "column part is double; the table has int32"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_any_is_computed(spark, instance, table, expression, message):
    frame = spark.createDataFrame(rows(1, 5)).selectExpr(*expression)
    with pytest.raises(Exception, match=message):
        append(frame, instance)
    assert table.state().number == 1


def test_bad_options_are_refused_and_the_known_ones_named(spark, instance, table):
    bad = {
        "no option 'colums'.*there are instance, table, columns": {"colums": "k"},
        "no column 'x'; the columns are: k, part": {"columns": "x"},
        "not JSON": {"ranges": "a-b"},
        "not a range": {"ranges": '[{"from": "a"}]'},
        "there is no number 99": {"at": "99"},
        "has no tag 'x'": {"at": "x"},
        "partition_bytes = '0'": {"partition_bytes": "0"},
    }
    for message, options in bad.items():
        with pytest.raises(Exception, match=message):
            load(spark, instance, **options).count()
    with pytest.raises(Exception, match="no table named|no table 'none'|none"):
        spark.read.format("lakebed").options(instance=instance.url, table="none").load()
    with pytest.raises(Exception, match=r'use mode\("append"\)'):
        spark.range(1).write.format("lakebed").mode("overwrite").options(instance=instance.url, table="t").save()
    with pytest.raises(Exception, match="column part is int32, and was asked for as string"):
        spark.read.format("lakebed").options(instance=instance.url, table="t").schema("part string").load().count()


def test_options_of_the_store_stand_in_no_plan_and_no_message(spark, instance, table, capsys):
    with pytest.raises(Exception, match="means nothing on local disk") as refused:
        load(spark, instance, **{"storage.secret_access_key": "hush-hush"})
    assert "hush-hush" not in str(refused.value)
    from lakebed.spark.datasource.options import parse

    assert "hush-hush" not in repr(parse({"storage.secret_access_key": "hush-hush"}).place)
