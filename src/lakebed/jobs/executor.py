"""The port of what runs tasks: sends values to tasks, one to each, and returns the metadata that the tasks give back.

    Executor        runs tasks: on Spark, in worker processes (worker_pool), or in the thread of the call (this_thread)
    Exchange        its carrier of pieces from map tasks to reduce tasks, for sorts of any size (bulk_import)
    SparkFrames     what only Spark has: its session, DataFrames, and the sources that Spark itself reads

Rules of every executor; :class:`lakebed.testing.executors.ExecutorConformance` tests them:

* A task gets its value pickled, like the function that it runs. What a task returns is data (MessagePack), and its type
  is checked when it is decoded: a cluster cannot run code on the driver. Both ends have one version of Lakebed.
* Results are in the order of the values. A task that fails has its error as its result, so that one bad file does not
  cost the others their work. A task whose process dies is tried again, or has an error as its result.
* A value or function that cannot be pickled is an error of the call, which then runs nothing else.
* An attempt writes only new names, so the number of attempts does not matter: only what came back is committed.
* A call that is asked to stop (:class:`~lakebed.jobs.interrupt.Stop`) ends with a KeyboardInterrupt, and its tasks end.
* Each task is recorded as one of the call's run, with host, times and rows, or its error.

An executor is written with :func:`attempt`, which runs a task in its place, and :func:`take_answer`, which reads what
that returned. Its exchange is its own, or :class:`lakebed.jobs.piece_files.PieceFiles` if its tasks run on one
machine; :class:`lakebed.testing.exchanges.ExchangeConformance` has the rules.

Core types: :class:`Executor`, :class:`Launcher`, :class:`Exchange`, :class:`SparkFrames`, :class:`TableCall`,
:class:`Root`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import msgpack

from lakebed import clock
from lakebed.errors import Code, Error, decode_error, encode_error
from lakebed.jobs.interrupt import Stop, current_stop
from lakebed.jobs.job_progress import Callback
from lakebed.model import types
from lakebed.model.version import VERSION
from lakebed.storage import connect
from lakebed.storage.disk_space import scratch_folder
from lakebed.table.tracker.recorder import NO_RUN, RunHandle, current_run
from lakebed.table.tracker.runs import TaskRun

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.files.sorting.range_pieces import FileBytes
    from lakebed.model.keys import KeyRange
    from lakebed.storage.contract import Storage
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table
    from lakebed.write.conformer import Conformer


@dataclass(frozen=True, slots=True)
class Root:
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


class Executor(Protocol):
    """Runs tasks. Safe to use from several threads of one call."""

    @property
    def name(self) -> str:
        """Where the tasks run, for messages: ``Spark``, ``worker processes``."""

    @property
    def in_this_process(self) -> bool:
        """Whether tasks see the memory of this process, and so an instance that is there."""

    @property
    def exchange(self) -> Exchange:
        """What runs map tasks and reduce tasks, and carries the pieces between them."""

    @property
    def frames(self) -> SparkFrames | None:
        """The DataFrames of Spark; None if the tasks do not run on Spark."""

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
        the ``rows`` are done, at last with all. The tasks are recorded as those of ``run``. Raises KeyboardInterrupt if
        the call was asked to stop.
        """

    def call_thread(self, run: Callable[[], object]) -> threading.Thread:
        """Return a thread, not started, that runs a call of the calling thread."""

    def close(self) -> None:
        """End what the executor started. May be called again."""


class Launcher(Protocol):
    """Where tasks run, as a value; opens the executor for it."""

    def executor(self) -> Executor:
        """Return an executor, which the caller closes."""


@dataclass(frozen=True, slots=True)
class TableCall:
    """A call on one table: where it is, and who watches, stops and records it, as the calling thread has it."""

    table: Table
    place: Root
    progress: Callback | None = None
    stop: Stop = field(default_factory=current_stop)
    run: RunHandle = field(default_factory=current_run)


class Piece(NamedTuple):
    """Bytes that a map task sends to a reduce task: ``map`` is the number of the task, ``chunk`` and ``part`` are its
    own numbers of the piece.

    One that a reduce task gets may lie ``at`` a place on local disk, for as long as the task runs.
    """

    reducer: int
    map: int
    chunk: int
    part: int
    payload: pa.Buffer
    at: FileBytes | None = None


@dataclass(frozen=True, slots=True)
class MapReduce(Generic[T]):
    """Map tasks, one for each of ``values``, and ``reducers`` reduce tasks.

    ``map`` is called with the number of a map task and its value, ``reduce`` with the number of a reducer and all
    pieces for it, in any order. A result is a ``made``; None if the reducer got nothing. The tasks read ``rows`` in
    all. Both functions are pickled, as :data:`Work` is.
    """

    values: Sequence[Any]
    map: Callable[[int, Any], Iterator[Piece]]
    reducers: int
    reduce: Callable[[int, Iterator[Piece]], T | None]
    made: type[T]
    rows: int


class Exchange(Protocol):
    """Runs tasks of which all have to succeed, and carries pieces of at most ``piece_bytes_max`` between them."""

    @property
    def piece_bytes_max(self) -> int:
        """The largest size of a piece."""

    def compression(self, size_bytes: int) -> str | None:
        """Return how the rows of an input of this size are to be compressed in pieces: ``lz4``, or None."""

    def run_all(self, values: Sequence[Any], work: Work[T], made: type[T], call: TableCall) -> list[T]:
        """Run ``work`` on every value, a task each; return the results in the order of the values.

        A task whose process dies is tried again. Raises the error of a task that failed, after which no other begins;
        KeyboardInterrupt if the call was asked to stop.
        """

    def map_reduce(self, work: MapReduce[T], call: TableCall) -> list[tuple[int, T]]:
        """Run the map tasks, bring each reducer its pieces, run the reduce tasks; return what they made, by reducer.

        An exchange may run a task again and use what several attempts sent, so reducers check what arrives. Raises as
        :meth:`run_all`; StorageError if there is no room for the pieces.
        """


class FrameSource(Protocol):
    """A source that Spark reads, as a DataFrame. ``untyped``: its columns are texts of a format without types."""

    @property
    def name(self) -> str:
        """The source, for messages."""

    @property
    def untyped(self) -> bool:
        """Whether it is of a format that has no types."""

    @property
    def columns(self) -> pa.Schema:
        """Its columns in Arrow's types."""

    def typed(self, conformer: Conformer) -> FrameSource:
        """Return it with columns of nested values cast that the conformer would have to read from text."""

    def run_all(self, work: Callable[[Iterator[pa.RecordBatch]], T], made: type[T], call: TableCall) -> list[T]:
        """Compute it once, and run ``work`` on the batches of each Spark partition. Raises as
        :meth:`Exchange.run_all`.
        """


class SparkFrames(Protocol):
    """What only Spark has."""

    @property
    def session(self) -> Any:
        """The session, which is started if there is none."""

    def source(self, call: TableCall, given: Any, format: str | None, select: str | None) -> FrameSource:
        """Return a DataFrame, or a source that Spark reads, or the rows of the query ``select`` over it."""

    def read(
        self, call: TableCall, ranges: Sequence[KeyRange], columns: Sequence[str] | None, version: int | None
    ) -> Any:
        """As :meth:`lakebed.jobs.pipeline.Pipeline.read`."""


def frames_of(executor: Executor, what: str, instead: str = "") -> SparkFrames:
    """Return the executor's frames. Raises UsageError if it has none: what needs Spark, and what to do."""
    if executor.frames is not None:
        return executor.frames
    remedy = "leave out the launcher" if find_spec("pyspark") else "pip install 'lakebed[spark]', which has pyspark"
    without = f"{what} needs Spark, and the pipeline's tasks run in {executor.name}"
    raise Code.SPARK_REQUIRED(f"{without}: {remedy}{instead and f', or {instead}'}")


# -- for implementations -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """Host and time of a task, returned beside its result."""

    host: str
    attempt: int
    began: datetime
    ended: datetime

    @classmethod
    def since(cls, began: datetime, attempt: int = 1) -> TaskTimes:
        """Of the task that ends now in this process; ``attempt`` is the number of this attempt, from 1."""
        return cls(platform.node(), attempt, began, clock.now())

    def record(self, run: RunHandle, number: int, rows: int, error: Error | None = None) -> None:
        """Record the task as one of a run."""
        times = {"host": self.host, "attempt": self.attempt, "started": self.began, "finished": self.ended}
        run.task(TaskRun(job=run.id, number=number, rows=rows, **times), error)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _TaskAnswer:
    """The return value of a task: its encoded result or error, and where and when it ran."""

    ok: bool
    payload: bytes
    times: TaskTimes


def attempt(work: Work[Any], payload: bytes, number: int = 1) -> bytes:
    """Run one task on a pickled value, for the time with this number; the answer has its result or its error."""
    began = clock.now()
    try:
        return answer_of(work(pickle.loads(payload)), began, number)  # noqa: S301 - the driver pickled it
    except Exception as error:  # noqa: BLE001 - any error is the result of this task
        return encode(_TaskAnswer(ok=False, payload=encode(encode_error(error)), times=TaskTimes.since(began, number)))


def answer_of(result: Any, began: datetime, number: int = 1) -> bytes:
    """Return the answer of a task that began then and has ended now, for :func:`take_answer`."""
    return encode(_TaskAnswer(ok=True, payload=encode(result), times=TaskTimes.since(began, number)))


def take_answer(answer: bytes, made: type[T], run: RunHandle, number: int) -> T | Error:
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
    rows = getattr(getattr(result, "file", result), "rows", None)
    return rows if isinstance(rows, int) else rows_of(getattr(result, "files", ()))


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
