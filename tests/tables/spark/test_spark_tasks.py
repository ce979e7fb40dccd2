"""What Spark does with tasks, without a JVM: functions travel by cloudpickle, rows as Arrow, each in a partition."""

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import lakebed
from lakebed import DamagedError, Schema
from lakebed.errors import Code
from lakebed.jobs.bulk_import.map_inputs import native_chunks, native_input, source_rows, staged_chunks
from lakebed.jobs.bulk_import.shuffle import Reduced, Shuffle, map_task, reduce_task, settle
from lakebed.jobs.bulk_import.staging import Staged, Staging, stage_task
from lakebed.jobs.executor import MapReduce, Piece, Root, TableCall
from lakebed.jobs.interrupt import Stop
from lakebed.spark.scattered import scattered
from lakebed.spark.spark_exchange import PIECES, SparkExchange, map_function, reduce_function
from lakebed.spark.spark_executor import SparkExecutor, _task_function
from lakebed.spark.spark_job import spark_errors
from lakebed.upkeep.export.publication import ExportedFile
from lakebed.write.conformer import Conformer
from lakebed.write.sources import find_files
from tests.tables.spark.sessions import Frame, Session

SCHEMA = Schema({"k": "int64"}, values={"v": "string"})
ROWS = pa.table({"k": range(100), "v": [str(n) for n in range(100)]}, schema=SCHEMA.arrow)


def work(limit, value):
    if value >= limit:
        raise Code.OBJECT_DAMAGED("too large", name=str(value))
    return (ExportedFile(str(value), value, 1, ""),)


@pytest.fixture
def table(tmp_path):
    return lakebed.create(tmp_path / "lake").create_table("t", SCHEMA)


@pytest.fixture
def shuffle(table):
    return Shuffle(Root(table.storage.url), table.id, "job-00001", table.layout(), 2**26, (), ())


def test_each_value_has_a_task_and_its_result_or_error_in_order():
    made = tuple[ExportedFile, ...]
    found = SparkExecutor(Session).run([2, 9, 1], partial(work, 5), made, Stop(), memory_limit_bytes=1)
    assert found[0] == (ExportedFile("2", 2, 1, ""),)
    assert found[2] == (ExportedFile("1", 1, 1, ""),)
    assert isinstance(found[1], DamagedError)
    assert found[1].facts == {"name": "9"}


def test_without_values_no_value_is_worked_on():
    def fails(_):
        raise AssertionError

    frame = scattered(Session(), [])
    assert frame.mapInArrow(_task_function(fails), "item int, answer binary").parts == [[]]


@pytest.fixture
def call(table, shuffle):
    return TableCall(table, shuffle.place)


def map_reduce(values, chunks, shuffle):
    maps, reduces = partial(map_task, shuffle=shuffle, chunks=chunks), partial(reduce_task, shuffle=shuffle)
    return MapReduce(values, maps, len(shuffle.boundaries) + 1, reduces, Reduced, 100)


def test_files_go_through_map_and_reduce(shuffle, call, tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    found = native_input(find_files(tmp_path / "a.parquet"), shuffle, Conformer(SCHEMA), Stop(), lambda: 1)
    made = SparkExchange(Session).map_reduce(map_reduce(found.tasks, found.chunks, shuffle), call)
    files = settle(dict(enumerate(found.rows)), made)
    assert sum(new.file.rows for new in files) == 100


def test_staged_files_are_read_by_map_tasks(shuffle, call, tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    found = native_input(find_files(tmp_path / "a.parquet"), shuffle, Conformer(SCHEMA), Stop(), lambda: 1)
    rows = partial(source_rows, shuffle=shuffle)
    work = partial(stage_task, rows=rows, staging=Staging(shuffle, Conformer(SCHEMA), None))
    (staged,) = SparkExchange(Session).run_all(found.tasks, work, Staged, call)
    files = [new.file for new in staged.files]
    assert sum(file.rows for file in files) == 100
    mapped = map_function(map_reduce(files, staged_chunks, shuffle))
    assert scattered(Session(), files).mapInArrow(mapped, PIECES).toArrow().column("map").to_pylist() == [0, 0]


def test_the_error_of_a_map_task_arrives_with_its_class(shuffle, call, tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    (file,) = find_files(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes(b"PAR1" * 9)
    work = map_reduce([((file, (0,)),)], partial(native_chunks, conformer=Conformer(SCHEMA)), shuffle)
    with pytest.raises(lakebed.StorageError, match="was changed since"):
        SparkExchange(Session).map_reduce(work, call)


def sent_to_both(number, _):
    return [Piece(reducer, number, 0, 0, pa.py_buffer(b"x")) for reducer in (0, 1)]


def test_pieces_of_two_reducers_in_one_task_are_refused():
    """As a Spark whose shuffle places rows by another hash would bring them."""
    work = MapReduce([None], sent_to_both, 2, lambda _, pieces: len(list(pieces)), int, 0)
    sent = scattered(Session(), work.values).mapInArrow(map_function(work), PIECES)
    assert len(sent.toArrow()) == 2
    with pytest.raises(lakebed.Error, match="pieces of reducers 0 and 1 to one task"), spark_errors():
        Frame(Session(), sent.parts).mapInArrow(reduce_function(work), "")


@pytest.mark.parametrize("reason", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk_under_spark_says_so(reason):
    with pytest.raises(lakebed.StorageError, match=r"disk is full.*SPARK_LOCAL_DIRS") as caught, spark_errors():
        raise PySparkException(f"Job aborted: Task 0 failed: java.io.IOException: {reason}\n\tat java.base/x")
    assert caught.value.code == Code.TEMPORARY_STORAGE_FAILED


def test_an_error_of_spark_is_one_of_lakebed_in_any_job():
    """Here that which counts the cores."""

    class Gone(Session):
        conf = {"spark.master": "spark://host:7077"}  # noqa: RUF012 - not written

        def range(self, *_):
            raise PySparkException("[CONTEXT_STOPPED] the application was killed")

    with pytest.raises(lakebed.Error, match=r"Spark failed: \[CONTEXT_STOPPED\] the application") as caught:
        SparkExecutor(Gone).cores(1)
    assert caught.value.code == Code.SPARK_FAILED
