"""The stream as Spark calls it, without Spark: every added file once, in order, whatever else happens to the table."""

import json
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows

import lakebed
from lakebed import AddField, NotFoundError, NotRetainedError, RenameField, SetFilter, UsageError
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.batch_write import Sent
from lakebed.spark.datasource.data_source import DefaultSource
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from tests.spark.cases import SCHEMA, multiset, rows


@pytest.fixture
def table(lake):
    return lake.create_table("t", SCHEMA, split_points=["b"], settings={"history_s": 0})


def source(table, **options):
    return DefaultSource({"instance": table.storage.url, "table": table.name, **options})


def stream(table, **options):
    found = source(table, **options)
    return found.streamReader(found.schema())


def batch(reader, start, end) -> pa.Table:
    """What the tasks of one trigger read; offsets are JSON by then, and the reader has travelled."""
    travelled = pickle.dumps(reader)
    parts = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    found = [one for part in parts for one in pickle.loads(travelled).read(pickle.loads(pickle.dumps(part)))]
    return pa.Table.from_batches(found, spark_columns.arrow_of(spark_columns.spark_schema(SCHEMA, SCHEMA.names)))


def batches(reader, start=None):
    """All triggers until there is nothing more."""
    start = reader.initialOffset() if start is None else start
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        yield batch(reader, start, end)
        start = end


def compacted(table, tmp_path):
    def execute(tasks):
        return [run_merge_task(task, table.storage, tmp_path) for task in tasks]

    return compact(table, prepare(table, "full"), execute, cores=1)


def test_added_rows_are_read_once_whatever_is_compacted_split_and_removed(table, tmp_path):
    made = [rows(seed, 50) for seed in range(4)]
    table.set(history_s=1000)
    table.write(made[0])
    table.write(made[1])
    reader = stream(table)
    begin = reader.initialOffset()
    middle = reader.latestOffset(begin, ReadAllAvailable())
    assert multiset(batch(reader, begin, middle)) == multiset(pa.concat_tables(made[:2]))
    compacted(table, tmp_path)
    table.remove(lakebed.KeyRange(max="b"))
    assert batch(reader, middle, reader.latestOffset(middle, ReadAllAvailable())).num_rows == 0
    table.write(made[2])
    (found,) = batches(reader, middle)
    assert multiset(found) == multiset(made[2])
    assert multiset(batch(reader, begin, middle)) == multiset(pa.concat_tables(made[:2])), "again, after a restart"


def test_a_filter_that_is_set_while_a_stream_runs_hides_rows_of_its_next_triggers(table):
    reader = stream(table)
    table.alter(SetFilter("v > 0.5"))
    table.write(rows(1, 50))
    begin = reader.initialOffset()
    found = batch(reader, begin, reader.latestOffset(begin, ReadAllAvailable()))
    assert multiset(found) == multiset(table.to_arrow())
    assert 0 < found.num_rows < 50


def test_a_running_stream_takes_new_fields_and_ends_at_a_column_that_is_gone(table):
    reader = stream(table)
    begin = reader.initialOffset()
    table.alter(AddField("new", "int64"))
    table.write(rows(1, 20))
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert multiset(batch(reader, begin, end)) == multiset(rows(1, 20))
    table.alter(RenameField("note", "said"))
    with pytest.raises(UsageError, match="note"):
        reader.partitions(begin, end)


def test_since_leaves_out_what_was_there(table):
    table.write(rows(1, 20))
    version = table.write(rows(2, 20))
    table.write(rows(3, 20))
    (found,) = batches(stream(table, since=str(version)))
    assert multiset(found) == multiset(rows(3, 20))


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"maxFilesPerTrigger": "2"}, [20, 20, 10]),
        ({"maxRowsPerTrigger": "25"}, [20, 20, 10]),
        ({"maxRowsPerTrigger": "1"}, [10] * 5),
        ({"maxFilesPerTrigger": "100"}, [50]),
        ({}, [50]),
    ],
)
def test_a_trigger_takes_as_many_files_or_rows_as_it_may_also_in_the_middle_of_an_entry(table, options, sizes):
    """Entries of three files and of two: a limit of two cuts the first."""
    made = [rows(seed, 10) for seed in range(5)]
    add(table, made[:3])
    table.set(page_rows=1000)
    add(table, made[3:])
    found = list(batches(stream(table, **options)))
    assert [part.num_rows for part in found] == sizes
    assert multiset(pa.concat_tables(found)) == multiset(pa.concat_tables(made))


def add(table, parts):
    """One entry with a file for each part."""
    writer = source(table).writer(spark_columns.spark_schema(SCHEMA, SCHEMA.names), overwrite=False)
    given = spark_columns.arrow_of(spark_columns.spark_schema(SCHEMA, SCHEMA.names))
    writer.commit([writer.write(spark_columns.to_spark(b, given) for b in part.to_batches()) for part in parts])


def test_available_now_ends_at_what_was_there_when_it_began(table):
    table.write(rows(1, 10))
    reader = stream(table, maxFilesPerTrigger="1")
    reader.prepareForTriggerAvailableNow()
    table.write(rows(2, 10))
    found = list(batches(reader))
    assert multiset(pa.concat_tables(found)) == multiset(rows(1, 10))
    assert reader.reportLatestOffset()["version"] == 3


def test_a_checkpoint_older_than_the_log_is_refused_with_the_numbers_that_are_kept(table):
    table.write(rows(1, 10))
    reader = stream(table)
    begin = reader.initialOffset()
    for seed in range(2, 5):
        table.write(rows(seed, 10))
        table.log.retain_checkpoint()
    table.log.truncate(3)
    for limit in (ReadMaxFiles(1), ReadMaxRows(1)):
        with pytest.raises(
            NotRetainedError, match=r"is at version 0, and the log is retained from version 4 on.*start the"
        ):
            reader.latestOffset(begin, limit)
    with pytest.raises(NotRetainedError, match="log_s"):
        reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))


def test_files_that_are_collected_before_they_are_read_are_an_error_and_not_fewer_rows(table, lake, tmp_path):
    for seed in range(2):
        table.write(rows(seed, 10))
    reader = stream(table)
    begin = reader.initialOffset()
    compacted(table, tmp_path)
    assert collect_garbage(table).files == 2
    with pytest.raises(NotRetainedError, match=r"too far behind.*history_s"):
        batch(reader, begin, reader.latestOffset(begin, ReadAllAvailable()))


def test_a_checkpoint_of_another_table_of_that_name_is_refused(table, lake):
    begin = stream(table).initialOffset()
    lake.drop_table("t")
    other = lake.create_table("t", SCHEMA)
    with pytest.raises(NotFoundError, match="the checkpoint is of a table with the id"):
        stream(other).latestOffset(begin, ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "9"}, "since = '9': must be a version of the table, 0 to 1"),
        ({"since": "now"}, "since = 'now'"),
        ({"maxFilesPerTrigger": "1", "maxRowsPerTrigger": "1"}, "not both"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger = '0'"),
        ({"at": "1"}, "unknown option 'at'; options: instance, table, columns, since"),
    ],
)
def test_bad_options_are_refused_and_named(table, options, message):
    with pytest.raises(UsageError, match=message):
        list(batches(stream(table, **options)))


# -- changes --------------------------------------------------------------------------------------------------------


def changes(table, reader, start, end) -> list[dict]:
    """What the tasks of one trigger read, by version and key."""
    travelled = pickle.dumps(reader)
    parts = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    found = [one for part in parts for one in pickle.loads(travelled).read(pickle.loads(pickle.dumps(part)))]
    rows = [row for one in found for row in one.to_pylist()]
    return sorted(rows, key=lambda row: (row["_version"], row["_range"] or "", row["k"] or "", repr(row)))


def feed(table, since, until):
    """The same, by the table itself; Spark has no half floats and the like in this schema."""
    rows = table.changes(since, until).read_all().to_pylist()
    return sorted(rows, key=lambda row: (row["_version"], row["_range"] or "", row["k"] or "", repr(row)))


def test_changes_are_those_of_the_feed_however_they_are_divided(table, tmp_path):
    table.set(history_s=1000)
    for seed in range(3):
        table.write(rows(seed, 50))
    compacted(table, tmp_path)
    table.remove(lakebed.KeyRange(max="b"))
    add(table, [rows(seed, 40) for seed in range(3, 6)])
    table.restore(version=2)
    version = table.version
    for options in ({}, {"partition_bytes": "1"}, {"partition_bytes": "4000"}):
        reader = stream(table, changes="true", **options)
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert end["version"] == version
        found = changes(table, reader, begin, end)
        assert repr(whole(found)) == repr(whole(feed(table, 0, version)))
        assert (len(reader.partitions(begin, end)) > 3) == ("partition_bytes" in options)


def whole(rows):
    """Without removed ranges, which come in parts where a version is cut."""
    return [row for row in rows if row["_change"] != "remove_range"]


def test_a_trigger_takes_whole_versions_of_changes(table):
    add(table, [rows(seed, 10) for seed in range(3)])
    table.remove(lakebed.KeyRange(max="b"))
    table.write(rows(4, 10))
    reader = stream(table, changes="true", maxRowsPerTrigger="15")
    start, ends = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        ends.append(end["version"])
        start = end
    assert ends == [2, 4]
    reader = stream(table, changes="true", since="2")
    begin = reader.initialOffset()
    found = changes(table, reader, begin, reader.latestOffset(begin, ReadAllAvailable()))
    assert [row["_change"] for row in found][:1] == ["remove_range"]
    assert len(found) == 11


def test_changes_of_some_columns_have_the_types_of_spark(table):
    table.write(rows(1, 10))
    found = source(table, changes="true", columns="v")
    assert found.schema().fieldNames() == ["_version", "_change", "_range", "v"]
    reader = found.streamReader(found.schema())
    begin = reader.initialOffset()
    (row, *_) = changes_of_one(reader, begin)
    assert list(row) == ["_version", "_change", "_range", "v"]
    table.alter(lakebed.AddField("later", "string"))
    assert len(changes_of_one(reader, begin)) == 10, "a frame has the columns of its own time"


def changes_of_one(reader, begin):
    (part,) = reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))
    return [row for one in reader.read(part) for row in one.to_pylist()]


def test_a_table_that_merges_rows_streams_its_changes_only(lake):
    table = lake.create_table("m", SCHEMA, merge=lakebed.Latest())
    with pytest.raises(UsageError, match="option changes"):
        stream(table).initialOffset()
    for seed in range(3):
        table.write(rows(seed, 60))
    table.remove(lakebed.KeyRange(max="b"))
    for options in ({}, {"partition_bytes": "1"}):
        reader = stream(table, changes="true", **options)
        begin = reader.initialOffset()
        found = changes(table, reader, begin, reader.latestOffset(begin, ReadAllAvailable()))
        assert repr(whole(found)) == repr(whole(feed(table, 0, table.version)))
    assert {row["_change"] for row in found} == {"insert", "update_before", "update_after", "remove_range"}


def test_a_checkpoint_of_the_other_kind_of_stream_is_refused(table):
    table.write(rows(1, 10))
    plain, feeding = stream(table), stream(table, changes="true")
    with pytest.raises(UsageError, match="without the option changes"):
        feeding.latestOffset(plain.initialOffset(), ReadAllAvailable())
    with pytest.raises(UsageError, match="with the option changes"):
        plain.partitions(feeding.initialOffset(), feeding.initialOffset())


def test_a_stream_of_changes_that_is_too_late_learns_where_it_can_start(table, tmp_path):
    table.write(rows(1, 10))
    reader = stream(table, changes="true")
    begin = reader.initialOffset()
    table.write(rows(2, 10))
    parts = reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))
    compacted(table, tmp_path)
    collect_garbage(table)
    with pytest.raises(NotRetainedError, match=r"is at version 0, and changes are retained since version \d+"):
        reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))
    with pytest.raises(NotRetainedError, match=r"too far behind.*history_s"):
        [list(reader.read(part)) for part in parts]


def test_a_batch_that_is_written_again_is_added_once_and_another_query_is_another(table):
    spark = spark_columns.spark_schema(SCHEMA, SCHEMA.names)
    given = spark_columns.arrow_of(spark)
    made = rows(1, 30)

    def written(query, version):
        writer = source(table, checkpointLocation="/somewhere").streamWriter(spark, overwrite=False)
        sent = writer.write(spark_columns.to_spark(b, given) for b in made.to_batches())
        writer.commit([Sent(sent.files, query)], version)

    for query, version in (("q", 0), ("q", 0), ("q", 1), ("other", 0), ("q", 0)):
        written(query, version)
    assert table.scan().read_all().num_rows == 90
    with pytest.raises(lakebed.Error, match="Spark passed no query id to the tasks"):
        written(None, 2)


@pytest.mark.parametrize(("first", "again"), [(rows(1, 30), rows(1, 31)), (rows(1, 30), rows(2, 30))])
def test_other_rows_under_the_number_of_a_batch_that_was_added_are_refused(table, first, again):
    """The offsets of the checkpoint are lost, and the id of the query is not: Spark counts from 0 again."""
    spark = spark_columns.spark_schema(SCHEMA, SCHEMA.names)
    given = spark_columns.arrow_of(spark)

    def written(made, parts):
        writer = source(table, checkpointLocation="/somewhere").streamWriter(spark, overwrite=False)
        size = -(-made.num_rows // parts)
        tasks = [made.slice(begin, size).combine_chunks() for begin in range(0, made.num_rows, size)]
        sent = [writer.write(spark_columns.to_spark(b, given) for b in task.to_batches()) for task in tasks]
        writer.commit([Sent(one.files, "q") for one in sent], 0)

    written(first, 1)
    # The same rows, however they are divided among tasks, are a repeat.
    written(first, 3)
    assert multiset(table.scan().read_all()) == multiset(first)
    with pytest.raises(lakebed.RejectedError, match=r"batch q/0 was added at version \d+ with 30 rows.*new, empty"):
        written(again, 1)
    assert multiset(table.scan().read_all()) == multiset(first)


def test_a_batch_of_a_table_that_was_dropped_is_not_added_to_one_that_has_its_name(table, lake):
    spark = spark_columns.spark_schema(SCHEMA, SCHEMA.names)
    writer = source(table, checkpointLocation="/somewhere").streamWriter(spark, overwrite=False)
    sent = writer.write(iter(rows(1, 30).cast(spark_columns.arrow_of(spark)).to_batches()))
    lake.drop_table("t")
    other = lake.create_table("t", SCHEMA)
    with pytest.raises(NotFoundError, match="it was dropped"):
        writer.commit([Sent(sent.files, "q")], 0)
    assert other.to_arrow().num_rows == 0
