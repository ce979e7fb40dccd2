"""Runs tasks on Spark: a list of documents goes out, one task works on each, and metadata comes back to the driver.

Core types: :class:`Place` (where an instance is), :class:`Tasks` (what runs tasks), :class:`SparkTasks`.

Rules:

* Each document is a row of a small frame, placed by ``repartitionById`` in a Spark partition of its own, so that one
  task is one document whatever Spark thinks of their sizes.
* Results come back by exactly one action: a second one would run the tasks again.
* A task that fails returns its error as a value, so that one bad file does not cost the others their work and is not
  tried four times. Spark repeats a task whose worker dies.
* An attempt writes only new names, so the number of attempts does not matter: only what came back is committed.

Errors: Spark's own become those of Lakebed (:func:`spark_errors`).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakebed.errors import Code, Error, decode_error, encode_error
from lakebed.spark import wire
from lakebed.spark.interrupt import current_stop
from lakebed.spark.job_progress import Callback, JobSpan, watched
from lakebed.spark.session import cores_of
from lakebed.storage import connect
from lakebed.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.spark.interrupt import Stop
    from lakebed.storage.contract import Storage
    from lakebed.table.instance import Instance

_VALUES = "item int, payload binary"
_RESULTS = "item int, ok boolean, payload binary"
RESULT_SCHEMA = pa.schema([("item", pa.int32()), ("ok", pa.bool_()), ("payload", pa.binary())])


@dataclass(frozen=True, slots=True)
class Place:
    """Where the objects of an instance are. It is sent inside the task function, which no page or log of Spark
    shows.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    log_url: str | None = None
    version: str = VERSION

    def open(self) -> Instance:
        """The instance. Raises as :func:`lakebed.open`."""
        from lakebed.table.instance import open as open_instance

        return open_instance(self.url, storage_options=self.options or None, log_url=self.log_url)

    def connect(self) -> Storage:
        """The store, opened in the calling process. Raises UsageError in a task of another version of Lakebed."""
        if self.version != VERSION:
            raise Code.LAKEBED_VERSION_MISMATCH(
                f"the driver has Lakebed {self.version}, and the tasks have {VERSION}; install the same on both sides"
            )
        return connect(self.url, self.options)


Work = Callable[[Any], Any]
"""From a document to a document; raises its errors. Can be pickled: a function of a module, or a partial of one."""


class Tasks(Protocol):
    """Where tasks run: on Spark, or in worker processes (:class:`lakebed.spark.worker_pool.WorkerPool`)."""

    def cores(self, memory_limit_bytes: int) -> int:
        """How many tasks with this memory limit run at once."""

    def run(  # noqa: PLR0913 - the tasks, what they may use, and who watches and stops them
        self,
        documents: Sequence[Any],
        work: Work,
        stop: Stop,
        *,
        memory_limit_bytes: int,
        progress: Callback | None = None,
        rows: int = 0,
    ) -> list[Any | Error]:
        """Run ``work`` on every document, a task each; return its result or its error, in the order of the documents.

        A task may use ``memory_limit_bytes``. ``progress`` is called with how many of the ``rows`` are done. Raises
        KeyboardInterrupt if the call was asked to stop.
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
            with current_stop().job(session):
                self._counted = session, cores_of(session)
        return self._counted[1]

    def run(  # noqa: PLR0913 - as Tasks.run
        self,
        documents: Sequence[Any],
        work: Work,
        stop: Stop,
        *,
        memory_limit_bytes: int,  # noqa: ARG002 - as above
        progress: Callback | None = None,
        rows: int = 0,
    ) -> list[Any | Error]:
        """As :meth:`Tasks.run`, as one Spark job. Raises Error if Spark gave up on a task."""
        stop.check()
        with watched(self.session(), progress, JobSpan(0, rows, rows, len(documents))):
            return run_batch(self.session(), documents, work, stop)


def run_batch(session: SparkSession, documents: Sequence[Any], work: Work, stop: Stop) -> list[Any | Error]:
    """Run ``work`` on every document, a task each; its result or its error, in the order of the documents.

    Raises Error if Spark gave up on a task, whose worker then died several times; KeyboardInterrupt if the call was
    asked to stop.
    """
    with stop.job(session), spark_errors():
        found = scattered(session, documents).mapInArrow(_task_function(work), _RESULTS).toArrow()
    results: dict[int, Any | Error] = {}
    for item, ok, payload in zip(*(column.to_pylist() for column in found.columns), strict=True):
        document = wire.load(payload)
        results[item] = document if ok else decode_error(document)
    if found.num_rows != len(documents) or len(results) != len(documents):
        raise Code.ROWS_LOST(f"Spark returned {found.num_rows} results for {len(documents)} tasks")
    return [results[item] for item in range(len(documents))]


def scattered(session: SparkSession, documents: Sequence[Any]) -> Any:
    """A frame of ``item`` and ``payload``, each row in a partition of its own, numbered in the documents' order."""
    rows = [(item, wire.dump(document)) for item, document in enumerate(documents)]
    # Spark needs a partition even without rows.
    return session.createDataFrame(rows, _VALUES).repartitionById(max(1, len(rows)), "item")


def _task_function(work: Work) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        on_one_core()
        for batch in batches:
            for item, payload in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                ok, result = attempt(work, payload)
                yield pa.record_batch([[item], [ok], [result]], schema=RESULT_SCHEMA)

    return run


def attempt(work: Work, payload: bytes) -> tuple[bool, bytes]:
    """Run one task: whether it succeeded, and its result or its error as bytes."""
    try:
        return True, wire.dump(work(wire.load(payload)))
    except Exception as error:  # noqa: BLE001 - any error is the result of this task
        return False, wire.dump(encode_error(error))


def on_one_core() -> None:
    """Keep the calling worker to one core, as Spark assumes. Call it before anything else in a task."""
    from lakebed.engine.datafusion import claim_one_core

    claim_one_core()


@contextlib.contextmanager
def task_scratch() -> Iterator[Path]:
    """A folder for a task's temporary files, in Spark's local directory, which Spark removes when it ends.

    A worker that is killed leaves its folder behind.
    """
    parent = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    Path(parent).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lakebed-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


# -- errors across Spark ----------------------------------------------------------------------------------------

_MARK = "lakebed-error:"


class TaskError(Exception):
    """Carries an error out of a task in the text of Spark's exception, the only part of it that arrives."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{_MARK}{wire.dump(encode_error(error)).hex()}:")


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into the error that a task raised, or into one with Spark's message."""
    try:
        yield
    except Exception as error:
        if not is_sparks(error):
            raise
        text = str(error)
        start = text.find(_MARK)
        if start >= 0:
            begin = start + len(_MARK)
            document = wire.load(bytes.fromhex(text[begin : text.index(":", begin)]))
            raise decode_error(document) from None
        if missing := _MISSING.search(text):
            raise Code.PACKAGE_MISSING(
                f"the Python that runs Spark's tasks has no {missing[1]}: install lakebed and what it needs there, "
                "or send it along (docs/clusters.md)",
                module=missing[1],
            ) from error
        raise Code.SPARK_FAILED(f"Spark failed: {said_by_spark(error)}") from error


def is_sparks(error: BaseException) -> bool:
    """Whether Spark raised it: PySpark has errors of its own, and passes on some of its bridge to Java."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)


def said_by_spark(error: BaseException) -> str:
    """The named conditions in a text with several stack traces, the cause last."""
    text = str(error).strip()
    conditions = dict.fromkeys(re.findall(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*", text))
    return ("; ".join(conditions) or (text.splitlines() or [repr(error)])[0])[:1000]
