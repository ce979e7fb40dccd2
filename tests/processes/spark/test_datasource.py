"""The data source as Spark calls it, without Spark: the same calls in the same order, and what is pickled, is."""

import datetime as dt
import json
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThan, StringStartsWith
from pyspark.sql.types import StructType

import lakebed
from lakebed import AddField, KeepAll, Latest, NotFoundError, NotRetainedError, Schema, SchemaMismatchError, UsageError
from lakebed.errors import Code
from lakebed.spark import datasource
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.data_source import DefaultSource
from lakebed.upkeep.retention.run import collect_garbage
from tests.processes.web.serving import serving
from tests.spark.cases import SCHEMA, multiset, rows

WIDE = Schema(
    {"k": "date32", "n": "int64"},
    {"at": "timestamp[ns, tz=UTC]"},
    {
        "u8": "uint8", "u64": "uint64", "half": "halffloat", "time": "time32[s]", "fixed": "fixed_size_binary[3]",
        "ms": "timestamp[ms]", "dec": "decimal256(30, 4)",
        "nested": pa.list_(pa.struct([("a", pa.uint16()), ("b", pa.map_(pa.string(), pa.float32()))])),
    },
)  # fmt: skip
WIDE_ROWS = pa.table(
    {
        "k": [dt.date(2020, 1, 1), dt.date(1, 1, 1)],
        "n": [-(2**63), 2**63 - 1],
        "at": [dt.datetime(2020, 1, 1, 5, tzinfo=dt.UTC)] * 2,
        "u8": [255, None],
        "u64": [2**64 - 1, 0],
        "half": pa.array([1.5, -0.5], pa.float16()),
        "time": [dt.time(1, 2, 3), None],
        "fixed": [b"abc", b"\0\0\0"],
        "ms": pa.array([-1, None], pa.timestamp("ms")),
        "dec": [Decimal("-12345678901234567890123456.7890"), None],
        "nested": [[{"a": 65535, "b": {"x": 0.5}}, None], []],
    },
    schema=WIDE.arrow,
)


@pytest.fixture
def table(lake):
    return lake.create_table("t", SCHEMA, split_points=["a", "b", "z"])


def source(table, /, **options):
    root = table.storage.url
    return DefaultSource({"instance": root, "table": table.name, **options})


def scanned(table, /, *filters, schema=None, **options) -> list[pa.Table]:
    """What each task of a scan gives; the reader travels before it is asked for partitions."""
    found = pickle.loads(pickle.dumps(source(table, **options)))
    spark = found.schema() if schema is None else schema
    reader = pickle.loads(pickle.dumps(found)).reader(spark)
    reader.rest = reader.pushFilters(list(filters)) if filters else []
    travelled = pickle.dumps(reader)
    partitions = [pickle.loads(pickle.dumps(one)) for one in reader.partitions()]
    wanted = spark_columns.arrow_of(spark)
    return [pa.Table.from_batches(pickle.loads(travelled).read(one), wanted) for one in partitions]


def scan(table, /, *filters, **options) -> pa.Table:
    parts = scanned(table, *filters, **options)
    return pa.concat_tables(parts)


def write(table, *parts: pa.Table, spark=None, **options) -> None:
    """A write of one task for each part."""
    spark = spark or spark_columns.spark_schema(
        Schema.from_arrow(parts[0].schema, [parts[0].schema.names[0]]), parts[0].schema.names
    )
    writer = pickle.dumps(source(table, **options).writer(spark, overwrite=False))
    given = spark_columns.arrow_of(spark)
    sent = [pickle.loads(writer).write(spark_columns.to_spark(b, given) for b in part.to_batches()) for part in parts]
    pickle.loads(writer).commit([pickle.loads(pickle.dumps(one)) for one in sent])


# -- reading ----------------------------------------------------------------------------------------------------


def test_rows_go_out_as_they_came_in_and_back_in_as_they_went_out(lake):
    """All types a table may have, those that Spark lacks among them."""
    first, again = lake.create_table("first", WIDE), lake.create_table("again", WIDE)
    first.write(WIDE_ROWS)
    spark = source(first).schema()
    assert StructType.fromJson(json.loads(spark.json())) == spark
    write(again, scan(first), spark=spark)
    assert multiset(again.scan().read_all()) == multiset(WIDE_ROWS)


def test_a_value_that_spark_would_round_is_an_error_that_names_the_column(lake):
    table = lake.create_table("t", Schema({"k": "int64"}, {}, {"at": "timestamp[ns]"}))
    table.write(pa.table({"k": [1], "at": pa.array([1], pa.timestamp("ns"))}))
    with pytest.raises(
        SchemaMismatchError, match=r"column at is timestamp.ns. and holds a value that Spark cannot represent"
    ):
        scan(table)


def test_a_type_that_spark_lacks_is_refused_unless_it_is_left_out(lake):
    table = lake.create_table("t", Schema({"k": "int64"}, {}, {"d": "decimal256(60, 0)"}))
    table.write(pa.table({"k": [1], "d": pa.array([Decimal(1)], pa.decimal256(60, 0))}))
    with pytest.raises(UsageError, match=r"column d is decimal256.60, 0., which Spark does not support; leave it out"):
        scan(table)
    assert scan(table, columns="k").to_pydict() == {"k": [1]}


def test_each_task_reads_sorted_rows_of_its_own_partitions(table):
    made = rows(1, 900)
    table.write(made)
    assert len(scanned(table)) == 1
    apart = scanned(table, partition_bytes="1")
    assert len(apart) == 4
    assert multiset(pa.concat_tables(apart)) == multiset(made)
    keys = table.schema.codec.encode_columns(pa.concat_tables(apart).select(["k", "part"])).to_pylist()
    assert keys == sorted(keys)


def test_a_large_partition_is_cut_among_tasks_and_loses_no_row(lake):
    table = lake.create_table("t", SCHEMA)
    parts = [rows(seed, 20_000) for seed in range(2)]
    for part in parts:
        table.write(part)
    assert all(file.summarised for file in table.state().referenced().values()), "large enough to have noted keys"
    tasks = scanned(table, partition_bytes="50000")
    assert len(tasks) > 5
    assert max(task.num_rows for task in tasks) < 16_000
    assert multiset(pa.concat_tables(tasks)) == multiset(pa.concat_tables(parts))
    few = [{"starts_with": ["b"]}]
    narrow = scanned(table, partition_bytes="50000", ranges=json.dumps(few))
    assert 0 < len(narrow) < len(tasks)
    assert sum(task.num_rows for task in narrow) == sum(
        k.startswith("b") for part in parts for k in part["k"].to_pylist()
    )


def test_ranges_columns_and_numbers_are_chosen_by_options(table):
    first, second = rows(1, 300), rows(2, 300)
    version = table.write(first)
    table.tag("first")
    table.write(second)
    both = pa.concat_tables([first, second])
    asked = [{"starts_with": "b"}, {"prefix": ["a1"]}, {"key": ["a2", 0]}, {"min": ["b"], "max": ["b3"]}]
    found = scan(table, ranges=json.dumps(asked), columns="note, k,part")
    kept = [
        row["k"].startswith("b") or row["k"] == "a1" or (row["k"], row["part"]) == ("a2", 0) for row in both.to_pylist()
    ]
    assert multiset(found) == multiset(both.filter(pa.array(kept)).select(["note", "k", "part"]))
    assert multiset(scan(table, at=str(version))) == multiset(first)
    assert multiset(scan(table, at="first")) == multiset(first)
    assert multiset(scan(table, at=table.log.now().isoformat())) == multiset(both)
    with pytest.raises(NotFoundError, match="ahead of the store's clock"):
        scan(table, at="2100-01-01T00:00:00Z")
    pruned = spark_columns.spark_schema(SCHEMA, ["note"])
    assert multiset(scan(table, schema=pruned)) == multiset(both.select(["note"]))


def test_a_range_of_nothing_is_no_row(table):
    table.write(rows(1, 10))
    (nothing,) = scanned(table, ranges='[{"key": ["no such", 0]}]') or [rows(1, 0)]
    assert nothing.num_rows == 0


def test_a_frame_is_of_the_number_at_which_it_was_loaded(table):
    made = rows(1, 50)
    table.write(made)
    loaded = source(table)
    spark = loaded.schema()
    table.write(rows(2, 50))
    table.alter(AddField("later", "int64"))
    reader = loaded.reader(spark)
    found = [batch for one in reader.partitions() for batch in reader.read(one)]
    assert multiset(pa.Table.from_batches(found)) == multiset(made)


def replaced(instance, table):
    """Another table with the name, in which the files of the first are not."""
    instance.drop_table(table.name)
    other = instance.create_table(table.name, SCHEMA)
    for seed in range(3):
        other.write(rows(seed, 5))
    return other


def test_a_frame_of_a_table_that_was_dropped_reads_none_that_has_its_name(lake, table):
    table.write(rows(1, 50))
    loaded = source(table)
    spark = loaded.schema()
    replaced(lake, table)
    with pytest.raises(NotFoundError, match="it was dropped"):
        pickle.loads(pickle.dumps(loaded)).reader(spark)


def test_filters_are_taken_on_demand_and_reach_the_ranges(table):
    made = rows(1, 600)
    table.write(made)
    filters = [StringStartsWith(("k",), "b"), GreaterThan(("v",), 0.5)]
    reader = source(table, push_filters="true").reader(source(table).schema())
    assert reader.pushFilters(filters) == filters[1:]
    found = scanned(table, *filters, push_filters="true", partition_bytes="1")
    assert len(found) == 1
    assert set(pa.concat_tables(found)["k"].to_pylist()) == {k for k in made["k"].to_pylist() if k.startswith("b")}
    assert scan(table, EqualTo(("k",), "no such"), push_filters="true").num_rows == 0


def test_filters_on_later_key_fields_leave_out_files_that_cannot_match(lake):
    """Spark has to look at the rows again: bounds say only which files may have some."""
    table = lake.create_table("bounded", Schema({"k": "string", "n": "int64"}, {"s": "string"}))
    for version in range(4):
        table.write(pa.table({"k": ["a", "z"], "n": [version, version], "s": [f"s{version}"] * 2}))
    for filters, numbers in (
        ([EqualTo(("n",), 2)], {2}),
        ([GreaterThan(("n",), 1), StringStartsWith(("s",), "s3")], {3}),
        ([EqualTo(("s",), "s0")], {0}),
        ([EqualTo(("k",), "a")], {0, 1, 2, 3}),
        ([EqualTo(("n",), None)], set()),
    ):
        found = pa.concat_tables(scanned(table, *filters, push_filters="true") or [table.scan(limit=0).read_all()])
        assert set(found["n"].to_pylist()) == numbers, filters


@pytest.mark.parametrize("merge", [KeepAll(), Latest()], ids=["keep all", "latest"])
def test_filters_on_values_leave_out_pages_that_cannot_match(lake, merge):
    """Spark has to look at the rows again. A row that a newer one replaces stays hidden."""
    rows_max = 20_000
    schema = Schema({"k": "int64"}, values={"v": "int64"})
    table = lake.create_table("paged", schema, merge=merge, settings={"page_rows": 1000})
    table.write(pa.table({"k": range(rows_max), "v": range(rows_max)}))
    table.write(pa.table({"k": range(0, rows_max, 2), "v": [-1] * (rows_max // 2)}))
    filters = [GreaterThan(("v",), 100), LessThan(("v",), 104)]
    found = pa.concat_tables(scanned(table, *filters, push_filters="true"))
    assert 0 < found.num_rows < rows_max
    passing = [k for k, v in zip(*(found[name].to_pylist() for name in ("k", "v")), strict=True) if 100 < v < 104]
    assert sorted(passing) == ([101, 102, 103] if merge == KeepAll() else [101, 103])


def test_filters_are_left_to_spark_by_default(table):
    made = rows(1, 60)
    table.write(made)
    filters = [EqualTo(("k",), "b1")]
    assert source(table).reader(source(table).schema()).pushFilters(filters) == filters
    assert scan(table, *filters).num_rows == 60


def test_files_that_were_given_up_meanwhile_are_reported_by_the_task(lake):
    table = lake.create_table("t", SCHEMA, settings={"history_s": 0})
    table.write(rows(1, 50))
    loaded = source(table)
    reader = loaded.reader(loaded.schema())
    partitions = reader.partitions()
    table.remove(lakebed.KeyRange())
    collect_garbage(table)
    with pytest.raises(NotRetainedError) as refused:
        list(reader.read(partitions[0]))
    assert refused.value.code is Code.DATA_FILE_NOT_RETAINED


# -- writing ----------------------------------------------------------------------------------------------------


def test_the_files_of_all_tasks_come_with_one_entry(table):
    parts = [rows(seed, 100) for seed in range(3)]
    write(table, *parts, rows(9, 0))
    assert table.state().version == 2
    assert len(table.state().files) == 3
    assert multiset(table.scan().read_all()) == multiset(pa.concat_tables(parts))


@pytest.mark.parametrize("options", [{}, {"commit_id": "once"}])
def test_files_of_a_table_that_was_dropped_are_not_added_to_one_that_has_its_name(lake, table, options):
    spark = spark_columns.spark_schema(SCHEMA, SCHEMA.names)
    writer = source(table, **options).writer(spark, overwrite=False)
    sent = writer.write(iter(rows(7, 30).cast(spark_columns.arrow_of(spark)).to_batches()))
    other = replaced(lake, table)
    with pytest.raises(NotFoundError, match="it was dropped"):
        writer.commit([sent])
    assert other.to_arrow().num_rows == 15


def test_a_table_that_is_renamed_takes_the_files_that_were_sent_to_it(lake, table):
    spark = spark_columns.spark_schema(SCHEMA, SCHEMA.names)
    writer = source(table).writer(spark, overwrite=False)
    sent = writer.write(iter(rows(7, 30).cast(spark_columns.arrow_of(spark)).to_batches()))
    lake.rename_table("t", "renamed")
    lake.create_table("t", SCHEMA)
    writer.commit([sent])
    assert lake.table("renamed").to_arrow().num_rows == 30
    assert lake.table("t").to_arrow().num_rows == 0


def test_a_commit_id_counts_once(table):
    made = rows(1, 40)
    for _ in range(2):
        write(table, made, commit_id="load 1")
    assert table.state().version == 2
    assert multiset(table.scan().read_all()) == multiset(made)


def test_what_no_message_names_is_not_added(table):
    """A second attempt of a task, and one whose write was called off."""
    spark = spark_columns.spark_schema(SCHEMA, SCHEMA.names)
    writer = source(table).writer(spark, overwrite=False)
    given = spark_columns.arrow_of(spark)
    attempts = [writer.write(spark_columns.to_spark(b, given) for b in rows(1, 30).to_batches()) for _ in range(2)]
    writer.commit(attempts[1:])
    source(table).writer(spark, overwrite=False).abort(attempts)
    assert multiset(table.scan().read_all()) == multiset(rows(1, 30))
    with pytest.raises(lakebed.Error, match="without the message of a task; nothing was added"):
        writer.commit([attempts[0], None])


def test_missing_columns_that_may_be_null_are_null(table):
    made = rows(1, 40)
    write(table, made.select(["ts", "part", "k"]))
    found = table.scan().read_all()
    assert multiset(found.select(["k", "part", "ts"])) == multiset(made.select(["k", "part", "ts"]))
    assert found["v"].null_count == found["note"].null_count == 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.append_column("stray", t["v"]), "extra column stray"),
        (lambda t: t.drop_columns(["part"]), "missing column part"),
        (lambda t: t.set_column(1, "part", t["part"].cast(pa.string())), "column part is string; the table has int32"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_any_is_computed(table, change, message):
    made = change(rows(1, 5))
    spark = spark_columns.spark_schema(Schema.from_arrow(made.schema, ["k"]), made.schema.names)
    with pytest.raises(SchemaMismatchError, match=message):
        source(table).writer(spark, overwrite=False)


def test_new_columns_are_added_in_the_entry_of_the_rows_of_all_tasks(lake):
    table = lake.create_table("grows", Schema({"k": "string"}), settings={"schema_growth": "add"})
    part = pa.table({"k": ["a"], "x": [1], "items": [[1.5]], "n": pa.nulls(1, pa.int32())})
    before = table.version
    write(table, part, part.set_column(0, "k", [["b"]]))
    assert table.state().version == before + 1
    assert [f"{field.name}: {field.type}" for field in table.schema.values] == [
        "x: int64", "items: list<item: double>", "n: int32",
    ]  # fmt: skip
    assert table.scan(columns=["k", "x"]).read_all().to_pylist() == [{"k": "a", "x": 1}, {"k": "b", "x": 1}]
    with pytest.raises(SchemaMismatchError, match="column x is string; the table has int64"):
        write(table, pa.table({"k": ["c"], "x": ["t"]}))


def test_a_writer_that_is_used_again_or_overtaken_takes_the_field_that_is_there(lake):
    """A streaming query has one writer for all of its batches."""
    table = lake.create_table("grows", Schema({"k": "string"}), settings={"schema_growth": "add"})
    spark = spark_columns.spark_schema(Schema({"k": "string"}, values={"x": "int64"}), ["k", "x"])
    writer = source(table).writer(spark, overwrite=False)
    given = spark_columns.arrow_of(spark)
    table.write(pa.table({"k": ["a"], "x": [0], "y": [0]}))
    for number in (1, 2):
        (batch,) = pa.table({"k": ["a"], "x": [number]}).to_batches()
        writer.commit([writer.write(iter([spark_columns.to_spark(batch, given)]))])
    table.state()
    assert table.schema.names == ("k", "x", "y")
    assert [row["x"] for row in table.get("a").to_pylist()] == [0, 1, 2]
    table.alter(lakebed.RenameField("x", "z"))
    with pytest.raises(lakebed.RejectedError, match="the schema was changed while its rows were written"):
        writer.commit([writer.write(iter([spark_columns.to_spark(batch, given)]))])
    assert table.count().rows == 3


def test_a_value_that_the_table_cannot_keep_is_refused_where_it_is_met(lake):
    table = lake.create_table("t", Schema({"k": "int64"}, {}, {"small": "uint8"}))
    made = pa.table({"k": [1], "small": pa.array([300], pa.int16())})
    with pytest.raises(
        SchemaMismatchError, match="column small is int16 and holds a value that the table cannot represent"
    ):
        write(table, made)
    made = pa.table({"k": pa.array([None], pa.int64())})
    with pytest.raises(SchemaMismatchError, match="column k is null, and is not nullable"):
        write(table, made)
    assert table.state().version == 1


# -- options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "k"}, "unknown option 'colums'; options: instance, table, columns, ranges, at"),
        ({"columns": "x"}, "unknown column 'x'; columns: k, part"),
        ({"columns": "[1]"}, "names separated by commas, or a JSON list"),
        ({"ranges": "a-b"}, "not JSON"),
        ({"ranges": "[]"}, "a JSON list such as"),
        ({"ranges": '[{"from": "a"}]'}, "not a range"),
        ({"ranges": '[{"key": ["a"]}]'}, "a key has 2 values"),
        ({"ranges": '[{"min": ["b"], "max": ["a"]}]'}, "above its maximum"),
        ({"ranges": '[{"min": ["b", 1, 2]}]'}, "one to 2 values"),
        ({"at": "99"}, "version 99 does not exist"),
        ({"at": "x"}, "has no tag 'x'"),
        ({"at": "12:00"}, "must be a datetime or ISO 8601"),
        ({"partition_bytes": "0"}, "partition_bytes = '0': must be a whole number, 1 or more"),
        ({"push_filters": "yes"}, "push_filters = 'yes': must be true or false"),
        ({"commit_id": "x"}, "unknown option 'commit_id'"),
        ({"path": "s3://bucket/t"}, "for path set the options instance and table: load"),
        ({"versionasof": "1"}, "for versionasof set the option at to a version"),
        ({"readchangefeed": "true"}, "set changes=true on readStream"),
        ({"table": ""}, "no table was given"),
        ({"table": "none"}, "none"),
        ({"instance": ""}, "no instance was given"),
    ],
)
def test_bad_options_are_refused_and_named(table, options, message, monkeypatch):
    monkeypatch.delenv("LAKEBED_INSTANCE", raising=False)
    table.write(rows(1, 5))
    with pytest.raises((UsageError, NotFoundError, SchemaMismatchError), match=message):
        scan(table, EqualTo(("k",), "b1"), **options)


def test_the_instance_may_be_named_by_the_environment(table, monkeypatch):
    monkeypatch.setenv("LAKEBED_INSTANCE", table.storage.url)
    assert DefaultSource({"table": "t"}).schema().fieldNames() == list(SCHEMA.names)


def test_overwriting_is_refused(table):
    spark = spark_columns.spark_schema(SCHEMA, SCHEMA.names)
    with pytest.raises(UsageError, match=r'use mode\("append"\)'):
        source(table).writer(spark, overwrite=True)
    with pytest.raises(UsageError, match=r'use outputMode\("append"\)'):
        source(table).streamWriter(spark, overwrite=True)


def test_a_write_is_committed_by_the_service_that_is_named(lake, table, monkeypatch):
    """Its tasks send files to the store, and the driver the proposal to the service."""
    committed = []
    with serving(lakebed.open(lake.url), answering=committed.append) as url:
        write(table, rows(1, 2), commit_via=url)
        monkeypatch.setenv("LAKEBED_COMMIT_VIA", url)
        write(table, rows(2, 2))
    assert committed == [f"/v1/tables/{table.id}/commits"] * 2
    with pytest.raises(lakebed.StorageError, match="nothing was committed"):
        write(table, rows(3, 2))
    monkeypatch.delenv("LAKEBED_COMMIT_VIA")
    with pytest.raises(UsageError, match="token without commit_via"):
        write(table, rows(3, 2), token="hush")
    assert table.count().rows == 4


def test_options_of_the_store_show_in_no_text(table):
    given = datasource.options.parse({"Instance": "s3://b", "STORAGE.secret_access_key": "hush"})
    assert given.place.options == {"secret_access_key": "hush"}
    assert "hush" not in repr(given) + repr(given.place)
    with pytest.raises(UsageError) as refused:
        scan(table, **{"storage.secret_access_key": "hush"})
    assert "hush" not in str(refused.value)
