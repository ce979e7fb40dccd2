"""Streams under Spark: from one table into another, stopped and started again, exactly once."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.cases import SCHEMA, assert_holds, rows


@pytest.fixture
def tables(instance):
    return instance.create_table("from", SCHEMA), instance.create_table("to", SCHEMA)


def query(spark, instance, checkpoint, **trigger):
    added = spark.readStream.format("lakebed").options(instance=instance.url, table="from", maxFilesPerTrigger=1).load()
    sink = added.writeStream.format("lakebed").options(instance=instance.url, table="to")
    return sink.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def forget_last_batch(checkpoint: Path) -> bool:
    """As if the driver had died after a batch was added and before Spark wrote that it was."""
    done = sorted(checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
    for path in done[-1:]:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return bool(done)


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


@pytest.mark.parametrize("restarts", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_stream_that_is_restarted_in_the_middle_of_batches_ends_with_exactly_the_input(
    spark, instance, tables, tmp_path, restarts
):
    """Each restart finds its last batch added and not known to be, half of them another one half done as well."""
    source, target = tables
    made = []
    checkpoint = tmp_path / "checkpoint"
    repeated = 0
    for restart in range(restarts):
        made += [rows(10 * restart + seed, 40) for seed in range(2)]
        for part in made[-2:]:
            source.write(part)
        before = target.state().number
        running = query(spark, instance, checkpoint, processingTime="0 seconds")
        while target.state().number == before:
            time.sleep(0.01)
            if not running.isActive:
                running = query(spark, instance, checkpoint, processingTime="0 seconds")
        # In the middle of whatever it does by now; what that makes of the query does not matter.
        running.stop()
        repeated += forget_last_batch(checkpoint)
    run_to_the_end(lambda: query(spark, instance, checkpoint, availableNow=True))
    assert repeated == restarts
    assert_holds(target, *made)
    keys = [row.request_key for row in target.history_rows() if row.type == "add_files"]
    assert len(set(keys)) == len(keys) == len(made), "one entry for each file of the source"
    assert pa.concat_tables(made).num_rows == 80 * restarts
