"""Runs the work of a service in worker processes of this machine, or on Spark.

Small operations run in worker processes, which start within a second. Larger ones run on Spark. There is one shared
session, which the first large operation starts. The session, with its JVM, and the workers are stopped after a while
without work. If the JVM died, the next large operation starts another session.

Without a launcher, Spark is used if this machine has it, and worker processes if not.

Core types: :class:`Engines`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.jobs.launchers import launcher_of
from lakebed.jobs.pipeline import Pipeline
from lakebed.jobs.worker_pool import InProcess
from lakebed.server.service.status import SparkState
from lakebed.spark.java_runtime import java_for_spark
from lakebed.spark.spark_executor import Local, Remote

if TYPE_CHECKING:
    from lakebed.jobs.executor import Launcher
    from lakebed.table.instance import Instance

IN_PROCESS_BYTES_MAX = 512 * 1024 * 1024
"""What worker processes of this machine do in about a minute, which Spark needs to start and to shuffle."""


@dataclass(slots=True)
class _Engine:
    """A pipeline, the number of its current users, and when the last one released it."""

    pipeline: Pipeline
    launcher: Local | Remote | None = None
    session: Any = None
    users: int = 0
    used_s: float = 0.0

    def end(self) -> None:
        """End the workers or the session."""
        self.pipeline.close()
        if self.launcher is not None:
            self.launcher.end(self.session)

    def has_died(self, error: Exception) -> bool:
        """Return whether the session of work that failed is unusable."""
        return self.launcher is not None and self.launcher.has_died(self.session, error)


class Engines:
    """The pipelines of one service. Safe to use from many threads.

    Raises UsageError for an unknown launcher, and for an instance in memory, which no other process can see.
    """

    def __init__(
        self,
        instance: Instance,
        launcher: Launcher | str | None = None,
        *,
        memory_bytes: int | None = None,
        idle_s: float = 300.0,
    ) -> None:
        self._instance = instance
        self._idle_s = idle_s
        found = launcher_of(launcher)
        self._remote = found if isinstance(found, Local | Remote) else None
        self._workers = InProcess() if self._remote is not None else found
        if memory_bytes is not None and isinstance(self._workers, InProcess):
            self._workers = replace(self._workers, memory_bytes=memory_bytes)
        self._is_given = launcher is not None
        self._changing = threading.Lock()
        self._starting = threading.Lock()
        self._is_starting = False
        self._local: _Engine | None = None
        self._spark: _Engine | None = None

    @property
    def spark(self) -> SparkState:
        """The state of Spark."""
        if self._is_starting:
            return SparkState.STARTING
        engine = self._spark
        if engine is None:
            return SparkState.NONE
        return SparkState.RUNNING if engine.users else SparkState.IDLE

    @contextlib.contextmanager
    def pipeline(self, size_bytes: int) -> Iterator[Pipeline]:
        """The pipeline for an operation of about this many bytes; Spark is started if it is used.

        Raises the errors of starting Spark. An error of the block becomes a transient one if Spark has died meanwhile.
        """
        large = size_bytes > IN_PROCESS_BYTES_MAX and self._has_spark()
        engine = self._spark_engine() if large else self._local_engine()
        try:
            yield engine.pipeline
        except Exception as error:
            if large and engine.has_died(error):
                self._end(lambda other: other is engine)
                raise Code.SPARK_FAILED(
                    f"Spark ended while it worked: {error}; the next work starts it again", transient=True
                ) from error
            raise
        finally:
            with self._changing:
                engine.users -= 1
                engine.used_s = clock.monotonic_s()

    def end_idle(self) -> None:
        """End workers and sessions that were idle for a while; later, if a session is being started."""
        if self._is_starting:
            return
        now_s = clock.monotonic_s()
        self._end(lambda engine: not engine.users and now_s - engine.used_s >= self._idle_s)

    def close(self) -> None:
        """End everything, including what is in use or is being started."""
        self._end(lambda _: True)

    # -- within -------------------------------------------------------------------------------------------------

    def _has_spark(self) -> bool:
        """Return whether Spark is there for large operations: by the launcher, else if this machine can start it."""
        with self._starting:
            if self._remote is not None and not self._is_given:
                self._is_given = True
                self._remote = self._remote if _has_java() else None
            return self._remote is not None

    def _end(self, chosen: Callable[[_Engine], bool]) -> None:
        """End the engines that are chosen.

        No session starts meanwhile: PySpark has one session per process, and would return the one that ends.
        """
        with self._starting:
            with self._changing:
                ended = [engine for engine in (self._local, self._spark) if engine and chosen(engine)]
                self._local = None if self._local in ended else self._local
                self._spark = None if self._spark in ended else self._spark
            for engine in ended:
                engine.end()

    def _local_engine(self) -> _Engine:
        with self._changing:
            if self._local is None:
                self._local = _Engine(Pipeline(self._instance, launcher=self._workers))
            self._local.users += 1
            return self._local

    def _spark_engine(self) -> _Engine:
        with self._starting:
            with self._changing:
                if self._spark is not None:
                    self._spark.users += 1
                    return self._spark
            self._is_starting = True
            try:
                assert self._remote is not None
                session = self._remote.start()
                engine = _Engine(Pipeline(self._instance, session), self._remote, session, users=1)
            finally:
                self._is_starting = False
            with self._changing:
                self._spark = engine
            return engine


def _has_java() -> bool:
    """Return whether this machine can start Spark, with PySpark: whether it has a Java."""
    try:
        java_for_spark()
    except Error:
        return False
    return True
