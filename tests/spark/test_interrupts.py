"""Ctrl-C, with real signals, at several moments of calls that run on the session of all tests.

On the command line: tests/spark/test_signals.py.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed import Pipeline
from tests.spark.commands import counted, slow_to_import
from tests.waiting import until


@pytest.fixture
def instance(tmp_path: Path) -> lakebed.Instance:
    return slow_to_import(tmp_path)


@pytest.fixture
def plain_ctrl_c() -> Iterator[None]:
    """PySpark's own handler cancels all jobs of the session, not only those of the call."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_when(condition: Callable[[], bool]) -> None:
    def wait() -> None:
        until(condition)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=wait).start()


def files_sent(instance: lakebed.Instance) -> int:
    return sum(o.name.endswith(".parquet") for o in instance.storage.list("tables"))


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(2)
        yield pa.record_batch([batch.column(0).cast(pa.string()), batch.column(0)], names=["k", "n"])


@pytest.mark.usefixtures("plain_ctrl_c")
def test_an_interrupt_cancels_the_jobs_of_the_import_and_no_others(
    instance: lakebed.Instance, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline, tracker = Pipeline(instance, spark), spark.sparkContext.statusTracker()
    frame = spark.range(0, 200, 1, 100).mapInArrow(slowly, "k string, n bigint")
    others: list[int] = []

    def of_another() -> None:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "other")
        others.append(spark.range(0, 2, 1, 2).mapInArrow(slowly, "k string, n bigint").count())

    other = threading.Thread(target=of_another)
    other.start()
    interrupt_when(lambda: len(tracker.getActiveJobsIds()) == 2)
    with pytest.raises(KeyboardInterrupt) as caught:
        pipeline.bulk_import("t", frame)
    assert caught.value.__notes__ == ["nothing was committed"]
    other.join()
    assert others == [2]
    until(lambda: not tracker.getActiveJobsIds())
    assert pipeline.bulk_import("t", str(tmp_path / "in")).rows == 20_000


@pytest.mark.usefixtures("plain_ctrl_c")
def test_an_import_that_was_interrupted_while_it_sent_files_is_repeated_once(
    instance: lakebed.Instance, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline, source = Pipeline(instance, spark), str(tmp_path / "in")
    interrupt_when(lambda: files_sent(instance) > 2)
    with pytest.raises(KeyboardInterrupt) as caught:
        pipeline.bulk_import("t", source, job_id="monday")
    assert caught.value.__notes__ == ["nothing was committed"]
    assert instance.table("t").scan().read_all().num_rows == 0
    assert pipeline.bulk_import("t", source, job_id="monday").rows == 20_000
    assert counted(instance.table("t").scan().read_all()) == counted(pq.read_table(source))


@pytest.mark.usefixtures("plain_ctrl_c")
def test_an_ingest_that_is_interrupted_counts_no_failure(
    instance: lakebed.Instance, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline, table = Pipeline(instance, spark), instance.table("t")
    table.submit(str(tmp_path / "in"))
    interrupt_when(lambda: files_sent(instance) > 0)
    with pytest.raises(KeyboardInterrupt):
        pipeline.ingest("t", force=True, method="shuffle")
    assert [request.failures for request in table.state().open_requests.values()] in ([0, 0], [0])
    pipeline.ingest("t", force=True)
    assert counted(table.scan().read_all()) == counted(pq.read_table(tmp_path / "in"))
