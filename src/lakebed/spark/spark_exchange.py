"""The exchange on Spark: map tasks and reduce tasks as ``mapInArrow``, and Spark's shuffle between them.

Pieces are rows of a frame whose payload is opaque to Spark, so rows of tables never enter the JVM. Each is placed in
the Spark partition of its reducer (:mod:`lakebed.spark.scattered`). One action runs both stages.

A task that raises fails its Spark job, which Spark tries again as often as it is configured to; the error arrives with
its class (:func:`~lakebed.spark.spark_job.raising`).

Core types: :class:`SparkExchange`. Errors: those of tasks; SPARK_FAILED and others for Spark's.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.jobs.executor import Piece, answer_of, take_answer
from lakebed.spark.scattered import Scattered, address_of, scattered, values_in
from lakebed.spark.spark_job import ArrowFunction, JobSpan, application_of, attempt_number, raising, spark_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.jobs.executor import MapReduce, T, TableCall, Work

PIECES = "reducer int, map int, chunk int, part int, payload binary, address int"
"""The columns of pieces; by their ``address`` Spark places them."""
_PIECE_SCHEMA = pa.schema(
    [
        *((name, pa.int32()) for name in ("reducer", "map", "chunk", "part")),
        ("payload", pa.binary()),
        ("address", pa.int32()),
    ]
)

ANSWERS = "number int, answer binary"
_ANSWER_SCHEMA = pa.schema([("number", pa.int32()), ("answer", pa.binary())])
"""The answer of a task, with the number of its Spark partition."""


@dataclass(frozen=True, slots=True)
class SparkExchange:
    """The exchange of a session, which ``start`` gives when there are tasks."""

    start: Callable[[], SparkSession]

    piece_bytes_max: ClassVar[int] = 32 * 1024 * 1024
    """Of larger values, Spark's shuffle and its Python workers copy more at once than a task should hold."""

    @staticmethod
    def compression(size_bytes: int) -> str | None:  # noqa: ARG004 - pieces travel, whatever their size
        """As :meth:`lakebed.jobs.executor.Exchange.compression`."""
        return "lz4"

    def run_all(self, values: Sequence[Any], work: Work[T], made: type[T], call: TableCall) -> list[T]:
        """As :meth:`lakebed.jobs.executor.Exchange.run_all`, by one action."""
        if not values:
            return []

        def of_one(batches: Iterator[pa.RecordBatch]) -> T:
            ((_, value),) = values_in(batches)
            return work(value)

        return run_tasks(scattered(self.start(), values), of_one, made, call)

    def map_reduce(self, work: MapReduce[T], call: TableCall) -> list[tuple[int, T]]:
        """As :meth:`lakebed.jobs.executor.Exchange.map_reduce`: one Spark job, one action."""
        session = self.start()
        span = JobSpan(0, work.rows, work.rows, tasks=len(work.values) + work.reducers)
        with spark_job(session, call.stop, call.progress, span):
            pieces = scattered(session, work.values).mapInArrow(map_function(work), PIECES)
            placed = pieces.repartition(work.reducers, "address")
            found = placed.mapInArrow(reduce_function(work), ANSWERS).toArrow()
        return _results_of(found, session, work.made, call)


def run_tasks(
    frame: DataFrame | Scattered, work: Callable[[Iterator[pa.RecordBatch]], T], made: type[T], call: TableCall
) -> list[T]:
    """Run a task on each Spark partition of a frame; return the results in the order of the partitions.

    The tasks are recorded as those of the call. Raises KeyboardInterrupt if the call was asked to stop.
    """
    session = frame.sparkSession
    with spark_job(session, call.stop, call.progress):
        found = frame.mapInArrow(_task_of_partition(work), ANSWERS).toArrow()
    return [result for _, result in _results_of(found, session, made, call)]


def _task_of_partition(work: Callable[[Iterator[pa.RecordBatch]], Any]) -> ArrowFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        began = clock.now()
        yield _answer_row(
            0 if context is None else context.partitionId(), answer_of(work(batches), began, attempt_number())
        )

    return raising(run)


def _answer_row(number: int, answer: bytes) -> pa.RecordBatch:
    return pa.record_batch([[number], [answer]], schema=_ANSWER_SCHEMA)


def _results_of(found: pa.Table, session: SparkSession, made: type[T], call: TableCall) -> list[tuple[int, T]]:
    """Return the results by number, recorded as tasks of the call's run."""
    answers = sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=itemgetter(0))
    first = call.run.plan_tasks(len(answers), application_of(session))
    results = []
    for place, (number, answer) in enumerate(answers, first):
        result = take_answer(answer, made, call.run, place)
        # A task that fails raises.
        assert not isinstance(result, Error)
        results.append((number, result))
    return results


# -- map and reduce ---------------------------------------------------------------------------------------------


def map_function(work: MapReduce[Any]) -> ArrowFunction:
    """Return the function that ``mapInArrow`` applies to the frame of map tasks; gives rows of PIECES."""
    map_task = work.map

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, value in values_in(batches):
            yield from map(_row, map_task(number, value))

    return raising(run)


def reduce_function(work: MapReduce[Any]) -> ArrowFunction:
    """Return the function that ``mapInArrow`` applies to the pieces of one reducer; gives a row of ANSWERS, or none."""
    reduce_task = work.reduce

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began = clock.now()
        pieces = _pieces_in(batches)
        first = next(pieces, None)
        if first is None:
            return
        result = reduce_task(first.reducer, _of_reducer(first.reducer, itertools.chain([first], pieces)))
        if result is not None:
            yield _answer_row(first.reducer, answer_of(result, began, attempt_number()))

    return raising(run)


def _row(piece: Piece) -> pa.RecordBatch:
    *numbers, payload = piece[:5]
    *columns, address = (pa.array([value], pa.int32()) for value in (*numbers, address_of(piece.reducer)))
    # Without a copy of the payload.
    ends = pa.py_buffer(array("i", (0, payload.size)))
    content = pa.Array.from_buffers(pa.binary(), 1, [None, ends, payload])
    return pa.record_batch([*columns, content, address], schema=_PIECE_SCHEMA)


def _pieces_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        for index in range(batch.num_rows):
            reducer, number, chunk, part = (column[index].as_py() for column in batch.columns[:4])
            yield Piece(reducer, number, chunk, part, batch.column(4)[index].as_buffer())


def _of_reducer(reducer: int, pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Return the pieces. Raises Error if one is another reducer's."""
    for piece in pieces:
        if piece.reducer != reducer:
            raise Code.SPARK_FAILED(
                f"Spark sent the pieces of reducers {reducer} and {piece.reducer} to one task: this Spark places rows "
                "by another hash than Apache Spark; nothing was imported. Turn off what replaces its shuffle"
            )
        yield piece
