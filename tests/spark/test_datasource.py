"""The data source under Spark: found by its name, planned, pushed into, and used from SQL.

What needs no Spark to be seen is in tests/processes/spark/test_datasource.py.
"""

import re
from functools import partial

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Latest, Schema
from tests.pages import ROOT
from tests.soaked import few
from tests.spark.cases import SCHEMA, assert_holds, multiset, pushes_filters, rows

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def table(lake):
    return lake.create_table("t", SCHEMA, split_points=["a", "b", "z"])


@pytest.fixture
def pushing(spark):
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.set(PUSHDOWN, "false")


def load(spark, instance, **options):
    return spark.read.format("lakebed").options(instance=instance.url, table="t", **options).load()


def starting(made, *stems):
    return sum(key.startswith(stems) for key in made["k"].to_pylist())


def test_rows_are_appended_by_several_tasks_and_read_by_several(spark, lake, table, pipeline):
    made = rows(1, 600)
    frame = spark.createDataFrame(made).repartition(3)
    frame.write.format("lakebed").mode("append").options(instance=lake.url, table="t").save()
    assert (table.state().version, len(table.state().files)) == (2, 3)
    assert_holds(table, made)
    apart = load(spark, lake, partition_bytes=1)
    assert apart.rdd.getNumPartitions() >= 4
    assert multiset(apart.toArrow()) == multiset(made)
    mine = pipeline.read("t", KeyRange.starts_with("b"), columns=["k"], version=2)
    assert mine.toArrow()["k"].to_pylist() == sorted(k for k in made["k"].to_pylist() if k.startswith("b"))


@pushes_filters
def test_a_frame_that_is_used_more_than_once_answers_each_query_in_full(pushing, lake, table, capsys):
    """Spark keeps what was pushed into a frame for its later queries; so nothing is, unless it is asked for."""
    made = rows(1, 200)
    table.write(made)
    frame = load(pushing, lake)
    both = frame.filter("k like 'b%'").union(frame.filter("k like 'a%'")).union(frame)
    assert both.count() == starting(made, "b", "a") + 200
    assert frame.count() == 200
    once = load(pushing, lake, push_filters="true")
    pushed = once.filter("k like 'b%' and part >= 0")
    pushed.explain("formatted")
    assert "PushedFilters: [StringStartsWith(k,b)]" in capsys.readouterr().out
    assert pushed.count() == sum(r["k"].startswith("b") and r["part"] >= 0 for r in made.to_pylist())
    assert once.count() == starting(made, "b"), "Spark has mended it: filters may be pushed by default (docs/spark.md)"


def test_a_view_in_sql_reads_the_table(spark, lake, table):
    made = rows(1, 100)
    table.write(made)
    spark.sql(f"CREATE TEMPORARY VIEW v USING lakebed OPTIONS (instance '{lake.url}', `table` 't')")
    try:
        found = spark.sql("SELECT k, count(*) AS n FROM v WHERE k LIKE 'b%' GROUP BY k").toArrow()
        assert sum(found["n"].to_pylist()) == starting(made, "b")
    finally:
        spark.sql("DROP VIEW v")


def test_errors_of_planning_are_reported_in_their_words_without_credentials(spark, lake, table):
    with pytest.raises(Exception, match="unknown option 'colums'; options: instance, table, columns"):
        load(spark, lake, colums="k")
    with pytest.raises(Exception, match="is not supported on local disk") as refused:
        load(spark, lake, **{"storage.secret_access_key": "hush-hush"})
    assert "hush-hush" not in str(refused.value)
    with pytest.raises(Exception, match="extra column stray"):
        (
            spark.createDataFrame(rows(1, 5).append_column("stray", pa.nulls(5, pa.int64())))
            .write.format("lakebed").mode("append").options(instance=lake.url, table="t").save()
        )  # fmt: skip


@pytest.mark.parametrize("name", few(["k=3/region=eu", "a*b/[x]/{a,b} %41 #?", "_hidden/.hidden", "a\nb"], 2))
def test_no_folder_name_changes_what_spark_reads_and_writes(spark, tmp_path, name):
    lake = lakebed.create(str(tmp_path / name / "lake"))
    schema = Schema({"k": "int64"}, values={"region": "string"})
    table = lake.create_table("t", schema, merge=Latest())
    table.write(pa.table({"k": [1, 2], "region": ["us", None]}, schema.arrow))
    table.write(pa.table({"k": [2], "region": ["x"]}, schema.arrow))
    frame = spark.createDataFrame([(5, "five")], "k long, region string")
    frame.write.format("lakebed").mode("append").options(instance=f"{tmp_path}/{name}/lake", table="t").save()
    read = spark.read.format("lakebed").options(instance=f"{tmp_path}/{name}/lake", table="t").load()
    assert sorted(map(tuple, read.collect())) == [(1, "us"), (2, "x"), (5, "five")]


def frames(spark, lake):
    """What the table of Spark's own errors calls what was done, by the beginning of its cell, as calls."""
    frame = spark.createDataFrame(rows(1, 3))
    write = frame.write.format("lakebed").options(instance=lake.url, table="t")
    sql = partial(partial, spark.sql)
    return {
        "``SELECT": [sql(f"SELECT * FROM lakebed.`{lake.url}`")],
        "`read.table": [lambda: spark.read.table("flights"), lambda: frame.write.insertInto("flights")],
        "`VERSION AS OF`": [sql("SELECT * FROM held VERSION AS OF 1")],
        "`save()`": [write.save],
        "`MERGE INTO`": [
            sql("MERGE INTO held USING held AS s ON held.k = s.k WHEN MATCHED THEN DELETE"),
            sql("UPDATE held SET v = 1"),
            sql("DELETE FROM held"),
        ],
        "`partitionBy`": [
            lambda: write.mode("append").partitionBy("k").save(),
            lambda: write.mode("append").bucketBy(2, "k").save(),
            lambda: write.mode("append").bucketBy(2, "k").sortBy("k").save(),
        ],
        "the statements": [sql("OPTIMIZE held"), sql("VACUUM held"), sql("RESTORE held TO VERSION AS OF 1")],
        "`CALL": [sql("CALL system.rewrite_data_files('held')")],
        "`format": [lambda: frame.write.format("lakebed_2").save()],
    }


def test_the_page_has_the_words_of_each_error_that_is_sparks_own(spark, lake, table):
    load(spark, lake).createOrReplaceTempView("held")
    section = (ROOT / "docs/spark.md").read_text("utf-8").partition("| Spark says |")[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines()[2:]]
    calls = frames(spark, lake)
    assert len(cells) == len(calls)
    for said, after, _ in cells:
        (made,) = (calls[begin] for begin in calls if after.startswith(begin))
        parts = re.findall("`(.*?)`", said)
        for call, number in zip(made, range(len(made)), strict=True):
            with pytest.raises(Exception, match=r"\w") as caught:
                call()
            text = str(caught.value).replace("lakebed_2", "lakebed")
            # A row with one phrase has the same one for all of its calls.
            phrase = parts[min(number, len(parts) - 1)]
            assert all(piece in text for piece in phrase.split("…")), (phrase, text[:300])
    spark.catalog.dropTempView("held")


def test_what_spark_cannot_do_says_what_can_be_done(spark, lake, table):
    options = f"OPTIONS (instance '{lake.url}', table 't')"
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW name USING lakebed"):
        spark.sql(f"CREATE TABLE x USING lakebed {options}")
    spark.sql(f"CREATE TEMPORARY VIEW held USING lakebed {options}")
    assert spark.sql("SELECT * FROM held").columns == list(SCHEMA.names)
    frame = spark.createDataFrame(rows(1, 3))
    with pytest.raises(Exception, match="instead of saveAsTable"):
        frame.write.format("lakebed").saveAsTable("y")
    # With the option it adds the rows, and leaves a name: an error says how to be rid of it, and no rows go with it.
    frame.write.format("lakebed").options(instance=lake.url, table="t").saveAsTable("y")
    with pytest.raises(Exception, match="DROP TABLE it"):
        spark.table("y").collect()
    spark.sql("DROP TABLE y")
    assert table.count().rows == 3
    texts = frame.withColumn(SCHEMA.names[0], frame[SCHEMA.names[0]].cast("binary"))
    with pytest.raises(Exception) as caught:
        texts.write.format("lakebed").mode("append").options(instance=lake.url, table="t").save()
    assert "casts=" not in str(caught.value)
