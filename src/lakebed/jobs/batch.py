"""Runs tasks on Spark: sends values to tasks, one to each, and returns the metadata that the tasks give back.

Core types: :class:`Place` (where an instance is), :class:`Tasks` (what runs tasks), :class:`SparkTasks`.

Rules:

* A task gets its value pickled, like the function that it runs. What a task returns is data (MessagePack), and the
  driver checks its type when it decodes it: a cluster cannot run code on the driver. Both ends have one version.
* The values travel with the function (:mod:`lakebed.spark.scattered`), and one task gets one value.
* Results come back by exactly one action: a second one would run the tasks again.
* A task that fails returns its error as a value, so that one bad file does not cost the others their work and is not
  tried four times. Spark repeats a task whose worker dies.
* An attempt writes only new names, so the number of attempts does not matter: only what came back is committed.

Errors: Spark's own become those of Lakebed (:mod:`lakebed.spark.spark_job`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
from msgspec import msgpack

from lakebed import clock
from lakebed.errors import Code, Error, decode_error, encode_error
from lakebed.jobs.interrupt import current_stop
from lakebed.jobs.job_progress import Callback
from lakebed.model import types
from lakebed.model.version import VERSION
from lakebed.spark.scattered import scattered
from lakebed.spark.session import cores_of
from lakebed.spark.spark_job import JobSpan, TaskError, spark_job
from lakebed.storage import connect
from lakebed.storage.disk_space import scratch_folder
from lakebed.table.tracker.recorder import NO_RUN
from lakebed.table.tracker.runs import TaskRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.jobs.interrupt import Stop
    from lakebed.storage.contract import Storage
    from lakebed.table.instance import Instance
    from lakebed.table.tracker.recorder import RunHandle

_RESULTS = "item int, answer binary"
RESULT_SCHEMA = pa.schema([("item", pa.int32()), ("answer", pa.binary())])


@dataclass(frozen=True, slots=True)
class Place:
    """The location of an instance. It is sent inside the task function, which no page or log of Spark shows."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    log_url: str | None = None
    version: str = VERSION

    def open(self, *, commit_via: str | None = None, token: str | None = None) -> Instance:
        """Return the instance. Raises as :func:`lakebed.open`."""
        from lakebed.table.opening import open as open_instance

        options = self.options or None
        return open_instance(
            self.url, storage_options=options, log_url=self.log_url, commit_via=commit_via, token=token
        )

    def connect(self) -> Storage:
        """Return the store, opened in the calling process.

        Raises UsageError in a task of another version of Lakebed.
        """
        if self.version != VERSION:
            raise Code.LAKEBED_VERSION_MISMATCH(
                f"the driver has Lakebed {self.version}, and the tasks have {VERSION}; install the same on both sides"
            )
        return connect(self.url, self.options)


T = TypeVar("T")

Work = Callable[[Any], T]
"""What a task does: from its value to its result; raises its errors. It is pickled, so it is a function of a module, or
a partial of one."""


class Tasks(Protocol):
    """Runs tasks: on Spark, or in worker processes (:class:`lakebed.jobs.worker_pool.WorkerPool`)."""

    def cores(self, memory_limit_bytes: int) -> int:
        """Return the number of tasks with this memory limit that run at once."""

    def run(  # noqa: PLR0913 - the tasks, what they may use, and who watches and stops them
        self,
        values: Sequence[Any],
        work: Work[T],
        made: type[T],
        stop: Stop,
        *,
        memory_limit_bytes: int,
        progress: Callback | None = None,
        rows: int = 0,
        run: RunHandle = NO_RUN,
    ) -> list[T | Error]:
        """Run ``work`` on every value, a task each; return its result or its error, in the order of the values.

        ``made`` is the type of a result. A task may use ``memory_limit_bytes``. ``progress`` is called with how many of
        the ``rows`` are done. The tasks are recorded as those of ``run``. Raises KeyboardInterrupt if the call was
        asked to stop.
        """


@dataclass(slots=True)
class SparkTasks:
    """Runs tasks on the session, which is started when there are any."""

    session: Callable[[], SparkSession]
    _counted: tuple[SparkSession, int] | None = None

    def cores(self, memory_limit_bytes: int) -> int:  # noqa: ARG002 - how much memory a core has is up to the cluster
        """As :meth:`Tasks.cores`; counted once a session, because that takes Spark jobs on a cluster."""
        session = self.session()
        if self._counted is None or self._counted[0] is not session:
            with spark_job(session, current_stop()):
                self._counted = session, cores_of(session)
        return self._counted[1]

    def run(  # noqa: PLR0913 - as Tasks.run
        self,
        values: Sequence[Any],
        work: Work[T],
        made: type[T],
        stop: Stop,
        *,
        memory_limit_bytes: int,  # noqa: ARG002 - as above
        progress: Callback | None = None,
        rows: int = 0,
        run: RunHandle = NO_RUN,
    ) -> list[T | Error]:
        """As :meth:`Tasks.run`, as one Spark job.

        Raises Error if Spark gave up on a task because its worker died several times.
        """
        stop.check()
        session = self.session()
        first = run.plan_tasks(len(values), application_of(session))
        with spark_job(session, stop, progress, JobSpan(0, rows, rows, len(values))):
            found = scattered(session, values).mapInArrow(_task_function(work), _RESULTS).toArrow()
        results: dict[int, T | Error] = {
            item: answered(answer, made, run, first + item)
            for item, answer in zip(*(column.to_pylist() for column in found.columns), strict=True)
        }
        if found.num_rows != len(values) or len(results) != len(values):
            raise Code.ROWS_LOST(f"Spark returned {found.num_rows} results for {len(values)} tasks")
        return [results[item] for item in range(len(values))]


def _task_function(work: Work[Any]) -> ArrowFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        on_one_core()
        for batch in batches:
            for item, payload in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                yield pa.record_batch([[item], [attempt(work, payload)]], schema=RESULT_SCHEMA)

    return run


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """Host and time of a task of a shuffle, returned beside its result."""

    host: str
    attempt: int
    began: datetime
    ended: datetime

    @classmethod
    def since(cls, began: datetime) -> TaskTimes:
        """Of the task that ends now in this process."""
        return cls(platform.node(), _attempt_number(), began, clock.now())

    def record(self, run: RunHandle, number: int, rows: int, error: Error | None = None) -> None:
        """Record the task as one of a run."""
        times = {"host": self.host, "attempt": self.attempt, "started": self.began, "finished": self.ended}
        run.task(TaskRun(job=run.id, number=number, rows=rows, **times), error)  # type: ignore[arg-type]


def record_tasks(run: RunHandle, session: SparkSession, made: Sequence[tuple[int, TaskTimes | None]]) -> None:
    """Record tasks of a shuffle that ended, each with its rows, as those of a run."""
    first = run.plan_tasks(len(made), application_of(session))
    for number, (rows, times) in enumerate(made, first):
        if times is not None:
            times.record(run, number, rows)


@dataclass(frozen=True, slots=True)
class _TaskAnswer:
    """The return value of a task: its encoded result or error, and where and when it ran."""

    ok: bool
    payload: bytes
    times: TaskTimes


def attempt(work: Work[Any], payload: bytes) -> bytes:
    """Run one task on a pickled value; the answer has its result or its error."""
    began = clock.now()
    try:
        ok, result = True, encode(work(pickle.loads(payload)))  # noqa: S301 - the driver pickled it
    except Exception as error:  # noqa: BLE001 - any error is the result of this task
        ok, result = False, encode(encode_error(error))
    return encode(_TaskAnswer(ok, result, TaskTimes.since(began)))


def _attempt_number() -> int:
    """Return the number of this attempt of a Spark task, from 1; 1 outside of Spark."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    return 1 if context is None else int(context.attemptNumber()) + 1


def answered(answer: bytes, made: type[T], run: RunHandle, number: int) -> T | Error:
    """Return the result, or the error, in what :func:`attempt` returned, which is recorded as a task of the run.

    Raises msgspec's ValidationError for a result of another type.
    """
    found = decode(answer, _TaskAnswer)
    result = decode(found.payload, made) if found.ok else decode_error(decode(found.payload, dict))
    error = result if isinstance(result, Error) else None
    found.times.record(run, number, 0 if error is not None else rows_of(result), error)
    return result


def rows_of(result: Any) -> int:
    """Return the number of rows that a task wrote or read, by its result; 0 if unknown."""
    if isinstance(result, tuple | list):
        return sum(map(rows_of, result))
    rows = getattr(getattr(result, "file", result), "rows", 0)
    return rows if isinstance(rows, int) else rows_of(getattr(result, "files", ()))


def application_of(session: SparkSession) -> str:
    """Return the id of Spark's application; ``spark`` if the session, as that of Spark Connect, does not tell."""
    try:
        return str(session.sparkContext.applicationId)
    except Exception:  # noqa: BLE001 - Spark Connect refuses, each version with another error
        return "spark"


def encode(value: Any) -> bytes:
    """Plain values and dataclasses of them as MessagePack; Arrow types in the form of stored schemas."""
    return msgpack.encode(value, enc_hook=types.to_json)


def decode(data: bytes, made: type[T]) -> T:
    """Return the inverse of :func:`encode`. Raises msgspec's ValidationError for a value of another type."""
    return msgpack.decode(data, type=made, dec_hook=lambda _, document: types.from_json(document))


_PURGE_DELAY_MS = 1000
"""How long the engine's allocator keeps memory that was freed before it returns it to the system.

By default mimalloc 2 waits 10 ms, and a row group takes longer to encode. So a merge lost the memory of each row group
and got it back page by page, cleared by the kernel, which was a third of the kernel's time in a compaction. mimalloc 3,
which Arrow has, waits a second.
"""


def delay_purges() -> None:
    """Have the engine's allocator keep freed memory for a while. Call it before the engine is imported."""
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", str(_PURGE_DELAY_MS))


def on_one_core() -> None:
    """Keep the calling worker to one core, as Spark assumes. Call it before anything else in a task."""
    # For a worker that has not imported the engine yet.
    delay_purges()
    from lakebed.engine.datafusion import claim_one_core

    claim_one_core()


@contextlib.contextmanager
def task_scratch() -> Iterator[Path]:
    """A folder for a task's temporary files, in Spark's local directory, which Spark removes when it ends.

    A worker that is killed leaves its folder behind.
    """
    parent = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    with scratch_folder("task", Path(parent) if parent else None) as folder:
        yield folder


ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` runs on the batches of one Spark partition."""


def raising(function: ArrowFunction) -> ArrowFunction:
    """Return the function on one core; an error that it raises fails the Spark job, as that error."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        on_one_core()
        try:
            yield from function(batches)
        except Exception as error:
            raise TaskError(error) from error

    return run
