"""Ctrl-C and SIGTERM, with real signals, at several moments of calls that run on Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.spark import Pipeline
from tests.spark.commands import alive, counted
from tests.waiting import until

SCHEMA = lakebed.Schema({"k": "string"}, {}, {"n": "int64"})
ROWS = 10_000
STOPPING = "lakebed: stopping …; again to stop hard\n"


@pytest.fixture
def instance(tmp_path: Path) -> lakebed.Instance:
    """An empty table, of which each import makes dozens of files; two files of rows lie beside the instance."""
    instance = lakebed.create(tmp_path / "lake")
    instance.create_table("t", SCHEMA).set(file_bytes=16_384, row_group_rows=1000)
    for part in range(2):
        keys = [f"k{(i * 7919) % ROWS:06}-{part}" for i in range(ROWS)]
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(pa.table({"k": keys, "n": range(len(keys))}), tmp_path / "in" / f"{part}.parquet")
    return instance


@pytest.fixture
def plain_ctrl_c() -> Iterator[None]:
    """PySpark's own handler cancels all jobs of the session, whosever they are."""
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


# -- in Python --------------------------------------------------------------------------------------------------


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

    def of_somebody_else() -> None:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "other")
        others.append(spark.range(0, 2, 1, 2).mapInArrow(slowly, "k string, n bigint").count())

    other = threading.Thread(target=of_somebody_else)
    other.start()
    interrupt_when(lambda: len(tracker.getActiveJobsIds()) == 2)
    with pytest.raises(KeyboardInterrupt) as caught:
        pipeline.bulk_import("t", frame)
    assert caught.value.__notes__ == ["nothing was committed"]
    other.join()
    assert others == [2]
    until(lambda: not tracker.getActiveJobsIds())
    assert pipeline.bulk_import("t", str(tmp_path / "in")).rows == 2 * ROWS


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
    assert pipeline.bulk_import("t", source, job_id="monday").rows == 2 * ROWS
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


# -- on the command line ----------------------------------------------------------------------------------------

PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
{before}
from lakebed.cli import main
sys.exit(main())
"""

SLOW_COMMIT = """
from lakebed.table.table import Table
commit = Table.try_commit
def slow(self, proposal):
    if type(proposal).__name__ == "ProposeFiles":
        print("committing", file=sys.stderr, flush=True)
        time.sleep(1)
    return commit(self, proposal)
Table.try_commit = slow
"""

STUCK = """
from lakebed.spark.interrupt import Stop
Stop.cancel = lambda self: time.sleep(600)
"""


class Child:
    """The command line in a process of its own, which hears signals."""

    def __init__(self, instance: lakebed.Instance, mark: Path, *words: str, before: str = "") -> None:
        self.mark = str(mark)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(before=before), *words, "--master", "local[2,4]"],
            env=os.environ | {"LAKEBED_TEST": self.mark, "LAKEBED_INSTANCE": instance.url},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=mark,
        )  # fmt: skip
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def signal_at(self, text: str, number: signal.Signals) -> None:
        until(lambda: text in self.said or self.process.poll() is not None)
        self.process.send_signal(number)

    def end(self) -> str:
        """Its last words, after it has ended as one that was interrupted, and nothing of it is left."""
        assert self.process.wait(300) == 130, self.said
        self._reader.join()
        until(lambda: not alive(self.mark))
        assert "Traceback" not in self.said
        assert "\tat " not in self.said, "a stack trace of Java"
        assert self.said.count(STOPPING) == 1
        return self.said.splitlines()[-1]


def test_an_import_that_has_not_committed_says_so(instance: lakebed.Instance, tmp_path: Path) -> None:
    """While Spark still starts: tests/spark/test_cli.py."""
    child = Child(instance, tmp_path, "import", "t", "in")
    child.signal_at("Starting Spark", signal.SIGTERM)
    assert child.end().startswith("lakebed: interrupted")
    assert instance.table("t").scan().read_all().num_rows == 0


def test_a_commit_that_has_begun_is_finished_and_told(instance: lakebed.Instance, tmp_path: Path) -> None:
    child = Child(instance, tmp_path, "import", "t", "in", before=SLOW_COMMIT)
    child.signal_at("committing", signal.SIGINT)
    version = instance.table("t").state().version
    assert child.end().endswith(" rows added; nothing else was changed")
    table = instance.table("t")
    assert f"lakebed: interrupted: committed, up to version {table.state().version}: 20,000 rows added" in child.said
    assert table.version == version + 1
    assert counted(table.scan().read_all()) == counted(pq.read_table(tmp_path / "in"))


def test_a_second_signal_ends_everything_at_once(instance: lakebed.Instance, tmp_path: Path) -> None:
    child = Child(instance, tmp_path, "import", "t", "in", before=STUCK)
    child.signal_at("Starting Spark", signal.SIGINT)
    child.signal_at(STOPPING, signal.SIGINT)
    assert child.end().startswith("lakebed: stopped hard; `lakebed history` lists what was committed.")
