"""The executor on Spark: tasks as Spark jobs, its exchange, and DataFrames.

Core types: :class:`SparkExecutor`, and its launchers :class:`Local` and :class:`Remote`.

Rules:

* The values travel with the function (:mod:`lakebed.spark.scattered`), and one task gets one value.
* Results come back by exactly one action: a second one would run the tasks again.
* A task's error is its result, so Spark does not try it four times. Spark repeats a task whose worker dies.
* A session that was given, or was active before, is used as it is and never stopped.

Errors: those of starting Spark (:mod:`lakebed.spark.session`); Spark's own as those of Lakebed
(:mod:`lakebed.spark.spark_job`).
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.jobs.executor import TableCall, Work, attempt, on_one_core, take_answer
from lakebed.jobs.interrupt import Stop, call_thread, current_stop
from lakebed.jobs.job_progress import Callback
from lakebed.model.checks import check_method
from lakebed.model.foreign_errors import optional_imports
from lakebed.spark.scattered import scattered
from lakebed.spark.session import active_session, connect_session, cores_of, end_session, has_ended, start_session
from lakebed.spark.spark_exchange import SparkExchange
from lakebed.spark.spark_job import ArrowFunction, JobSpan, application_of, attempt_number, spark_job
from lakebed.table.tracker.recorder import NO_RUN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.jobs.executor import T
    from lakebed.model.keys import KeyRange
    from lakebed.spark.source_frames import SparkSource
    from lakebed.table.tracker.recorder import RunHandle

_RESULTS = "item int, answer binary"
_RESULT_SCHEMA = pa.schema([("item", pa.int32()), ("answer", pa.binary())])


@dataclass(frozen=True, slots=True)
class Local:
    """A session in this process on ``master``; None: where ``spark-submit`` says, or else on this machine."""

    master: str | None = None

    def start(self) -> SparkSession:
        """Start a session, as :func:`lakebed.spark.session.start_session`."""
        return start_session(self.master)

    def end(self, session: SparkSession) -> None:
        """End a session that was started, as :func:`lakebed.spark.session.end_session`."""
        end_session(session)

    def has_died(self, session: SparkSession, error: Exception) -> bool:  # noqa: ARG002 - the JVM says it itself
        """Return whether a session of which work failed is unusable."""
        return has_ended(session)

    def executor(self) -> SparkExecutor:
        """Return an executor, on the session that is active in this process if there is one."""
        return SparkExecutor(self.start, uses_active=True)


@dataclass(frozen=True, slots=True)
class Remote:
    """A session on the Spark Connect server at ``url``, ``sc://host:port/;token=…``."""

    url: str

    def start(self) -> SparkSession:
        """Start a session, as :func:`lakebed.spark.session.connect_session`."""
        return connect_session(self.url)

    def end(self, session: SparkSession) -> None:
        """End a session that was started, as :func:`lakebed.spark.session.end_session`."""
        end_session(session)

    def has_died(self, session: SparkSession, error: Exception) -> bool:  # noqa: ARG002 - only its failures tell
        """Return whether a session of which work failed is unusable: any failure of Spark ends the server's session."""
        return isinstance(error, Error) and error.code == Code.SPARK_FAILED

    def executor(self) -> SparkExecutor:
        """Return an executor on a session of its own."""
        return SparkExecutor(self.start)


@dataclass(frozen=True, slots=True)
class Given:
    """A session that the caller has started, and stops."""

    session: SparkSession

    def __post_init__(self) -> None:
        check_method("session", self.session, "createDataFrame", "SparkSession; a launcher is given as launcher=…")

    def executor(self) -> SparkExecutor:
        """Return an executor on the session."""
        return SparkExecutor(lambda: self.session, given=self.session)


def launcher_of(text: str | None) -> Local | Remote:
    """Return the launcher of a text: a server's ``sc://`` URL, or a master; None: where ``spark-submit`` says."""
    return Remote(text) if text is not None and text.startswith("sc://") else Local(text)


class SparkExecutor:
    """Runs tasks on a session, which ``start`` gives when there are any; with ``uses_active``, on one that is active.

    It has its own frames. :meth:`close` stops the session if it was started here.
    """

    name = "Spark"
    in_this_process = False

    def __init__(
        self, start: Callable[[], SparkSession], *, uses_active: bool = False, given: SparkSession | None = None
    ) -> None:
        self._start = start
        self._uses_active = uses_active
        self._given = given
        self._started: SparkSession | None = None
        self._found: SparkSession | None = None
        self._counted: tuple[SparkSession, int] | None = None

    @property
    def exchange(self) -> SparkExchange:
        """As :attr:`Executor.exchange`."""
        return SparkExchange(lambda: self.session)

    @property
    def frames(self) -> SparkExecutor:
        """As :attr:`Executor.frames`."""
        return self

    @property
    def session(self) -> SparkSession:
        """The session; starts one if there is none. Raises UsageError without PySpark, or if Spark does not start."""
        if self._given is not None:
            return self._given
        if self._found is None:
            with optional_imports():
                self._found = active_session() if self._uses_active else None
                if self._found is None:
                    self._found = self._started = self._start()
        return self._found

    def close(self) -> None:
        """As :meth:`Executor.close`; another session is started when it is needed."""
        if self._started is not None:
            self._started.stop()
            self._started = self._found = None

    def call_thread(self, run: Callable[[], object]) -> threading.Thread:
        """As :meth:`Executor.call_thread`, with the Spark properties of this thread if there is a session."""
        if self._given is None and self._found is None and self._uses_active and "pyspark" in sys.modules:
            # The session of this thread: the thread that does the work would not find it, and start another.
            self._found = active_session()
        session = self._given or self._found
        if getattr(session, "_jsparkSession", None) is None:
            return call_thread(run)
        from pyspark import InheritableThread

        thread: Any = InheritableThread(run, session=session, name="lakebed-call", daemon=True)
        return thread  # type: ignore[no-any-return]

    # -- tasks --------------------------------------------------------------------------------------------------

    def cores(self, memory_limit_bytes: int) -> int:  # noqa: ARG002 - how much memory a core has is up to the cluster
        """As :meth:`Executor.cores`; counted once a session, because that takes Spark jobs on a cluster."""
        session = self.session
        if self._counted is None or self._counted[0] is not session:
            with spark_job(session, current_stop()):
                self._counted = session, cores_of(session)
        return self._counted[1]

    def run(  # noqa: PLR0913 - as Executor.run
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
        """As :meth:`Executor.run`, as one Spark job.

        Raises Error if Spark gave up on a task because its worker died several times.
        """
        stop.check()
        if not values:
            return []
        session = self.session
        first = run.plan_tasks(len(values), application_of(session))
        with spark_job(session, stop, progress, JobSpan(0, rows, rows, len(values))):
            found = scattered(session, values).mapInArrow(_task_function(work), _RESULTS).toArrow()
        results: dict[int, T | Error] = {
            item: take_answer(answer, made, run, first + item)
            for item, answer in zip(*(column.to_pylist() for column in found.columns), strict=True)
        }
        if found.num_rows != len(values) or len(results) != len(values):
            raise Code.ROWS_LOST(f"Spark returned {found.num_rows} results for {len(values)} tasks")
        return [results[item] for item in range(len(values))]

    # -- frames -------------------------------------------------------------------------------------------------

    def source(self, call: TableCall, given: Any, format: str | None, select: str | None) -> SparkSource:
        """As :meth:`SparkFrames.source`."""
        from lakebed.spark.source_frames import SparkSource

        return SparkSource(lambda: self.session, call, given, format, select)

    def read(
        self, call: TableCall, ranges: Sequence[KeyRange], columns: Sequence[str] | None, version: int | None
    ) -> DataFrame:
        """As :meth:`SparkFrames.read`."""
        from lakebed.spark.datasource.options import read_options

        table = call.table
        options = read_options(call.place, table.name, table.schema, ranges)
        options |= {} if columns is None else {"columns": json.dumps(list(table.schema.project(columns)))}
        options |= {} if version is None else {"at": str(table.at(version=version).version)}
        return self.session.read.format("lakebed").options(**options).load()


def _task_function(work: Work[Any]) -> ArrowFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        on_one_core()
        for batch in batches:
            for item, payload in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                answer = attempt(work, payload, attempt_number())
                yield pa.record_batch([[item], [answer]], schema=_RESULT_SCHEMA)

    return run
