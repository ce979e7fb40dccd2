"""Streams under Spark: from one table into another, stopped and started again, exactly once."""

import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from lakebed import KeyRange, Latest
from tests.spark.cases import SCHEMA, assert_holds, reads_streams, rows

pytestmark = reads_streams


@pytest.fixture
def tables(lake):
    return lake.create_table("from", SCHEMA), lake.create_table("to", SCHEMA)


def query(spark, instance, checkpoint, **trigger):
    added = spark.readStream.format("lakebed").options(instance=instance.url, table="from", maxFilesPerTrigger=1).load()
    sink = added.writeStream.format("lakebed").options(instance=instance.url, table="to")
    return sink.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def forget_last_batch(checkpoint: Path) -> int:
    """As if the driver had died before Spark wrote that the last batch was done; returns its number."""
    last = max(int(path.name) for path in checkpoint.glob("offsets/[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    return last


def run_to_the_end(start) -> None:
    """Start a query until it ends well: on a busy machine Spark gives its source's worker up after ten seconds."""
    for _ in range(5):
        running = start()
        try:
            if running.awaitTermination(300):
                return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError(f"the stream does not end: {running.status}")


def test_a_stream_of_changes_that_is_restarted_gives_each_version_once(spark, lake, tables, tmp_path):
    """The last batch of each run is done again after the restart; its rows are the same."""
    source, _ = tables
    batches = {}

    def keep(frame, number):
        rows = [tuple(row) for row in frame.orderBy("_version", "_range", "k", "part", "ts", "note").collect()]
        assert repr(batches.setdefault(number, rows)) == repr(rows), "done again, and other rows"

    def start():
        changes = spark.readStream.format("lakebed").options(instance=lake.url, table="from", changes="true").load()
        writer = changes.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    for seed in range(2):
        source.write(rows(seed, 40))
        if seed:
            source.remove(KeyRange(max="b"))
        run_to_the_end(start)
        forget_last_batch(tmp_path / "checkpoint")
    source.restore(version=2)
    run_to_the_end(start)
    found = [row[:2] for number in sorted(batches) for row in batches[number]]
    wanted = source.changes(0).read_all()
    assert sorted(found) == sorted(zip(*(wanted.column(i).to_pylist() for i in range(2)), strict=True))


@pytest.mark.parametrize("restarts", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_stream_that_is_restarted_in_the_middle_of_batches_ends_with_exactly_the_input(
    spark, lake, tables, tmp_path, restarts
):
    """Every other time the last batch was added without an acknowledgement; else it is stopped in whatever it does."""
    source, target = tables
    made = []
    checkpoint = tmp_path / "checkpoint"
    known = []

    def start():
        return query(spark, lake, checkpoint, processingTime="0 seconds")

    for restart in range(restarts):
        made += [rows(10 * restart + seed, 40) for seed in range(2)]
        for part in made[-2:]:
            source.write(part)
        wanted = 1 + len(made) if restart % 2 == 0 else target.state().version + 1
        running = start()
        while target.state().version < wanted:
            time.sleep(0.01)
            running = running if running.isActive else start()
        running.stop()
        last = forget_last_batch(checkpoint)
        known.append(target.outcome(f"spark-stream/{running.id}/{last}") is not None)
    run_to_the_end(lambda: query(spark, lake, checkpoint, availableNow=True))
    assert all(known[::2]), "a batch that Spark does again is in the table already"
    assert_holds(target, *made)
    keys = [row.request_key for row in target.history_rows() if row.type == "add_files"]
    assert len(set(keys)) == len(keys) == len(made), "one entry for each file of the source"
    assert pa.concat_tables(made).num_rows == 80 * restarts


def test_a_stream_that_cannot_begin_ends_with_the_reason(spark, lake, tmp_path):
    """Spark would say that a local variable of its own has no value."""
    lake.create_table("from", SCHEMA, merge=Latest())
    lake.create_table("to", SCHEMA)
    running = query(spark, lake, tmp_path / "checkpoint", availableNow=True)
    with pytest.raises(StreamingQueryException) as caught:
        running.awaitTermination(300)
    assert "table from merges rows by" in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)


def test_a_checkpoint_without_its_offsets_is_not_taken_for_a_repeat(spark, lake, tables, tmp_path):
    """Spark counts from 0 again under the same id of the query: its first batch has rows that were never added."""
    source, target = tables
    made = [rows(1, 40), rows(2, 40)]
    checkpoint = tmp_path / "checkpoint"

    def start():
        added = spark.readStream.format("lakebed").options(instance=lake.url, table="from").load()
        sink = added.writeStream.format("lakebed").options(instance=lake.url, table="to")
        return sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()

    source.write(made[0])
    run_to_the_end(start)
    source.write(made[1])
    for name in ("offsets", "commits"):
        shutil.rmtree(checkpoint / name)
    with pytest.raises(StreamingQueryException, match="comes again with other ones"):
        run_to_the_end(start)
    assert_holds(target, made[0])
