"""Runs tasks in worker processes of this machine, without Spark: at most one a core, and as many as memory allows.

:class:`WorkerPool` hands each task to a worker, a fresh Python that runs :func:`main`. Workers are started when the
first tasks need them, and kept for the next. A worker reads tasks from its stdin, so that no list of processes shows a
storage option, and answers on its stdout. Only metadata passes through: a task reads and writes files itself.

Rules:

* *Memory.* A task may use its table's ``memory_limit_bytes`` and :data:`BESIDE_BYTES` beside it. Tasks wait while those
  that run take up the pool's ``memory_bytes``. A task that needs more than all of it runs alone.
* *Failures.* A task that fails, or whose worker dies, has an error as its result; the other tasks go on.
* *Interrupts.* An interrupted call kills the workers that run its tasks.
* *Lifetime.* Workers end with this process, however it ends, because their stdin does. The scratch files of a worker
  that died are deleted at once, and all with the pool.

Errors: UsageError for arguments and for a closed pool; Error for a worker that died or cannot be started.

Source: docs/decisions/0039-tasks-run-in-worker-processes.md.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import queue
import signal
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.jobs.executor import attempt, on_one_core, take_answer
from lakebed.jobs.interrupt import call_thread
from lakebed.jobs.job_progress import Callback, Progress
from lakebed.jobs.piece_files import PieceFiles
from lakebed.model.arrays import leave_pandas_out
from lakebed.model.checks import is_whole, shown
from lakebed.storage.disk_space import delete_abandoned_folders, scratch_prefix
from lakebed.storage.worker_process import Worker, answer_pipe, exit_text, requests, write_message
from lakebed.system import available_cores, available_memory_bytes
from lakebed.table.tracker.recorder import NO_RUN
from lakebed.table.tracker.runs import WORKERS, TaskRun

if TYPE_CHECKING:
    from lakebed.jobs.executor import T, Work
    from lakebed.jobs.interrupt import Stop
    from lakebed.table.tracker.recorder import RunHandle

BESIDE_BYTES = 300 * 1024 * 1024
"""What a task takes beside its memory limit: Python, Arrow, DataFusion and its threads."""

MEMORY_SHARE = 0.8
"""The share of the machine's memory that tasks may use together by default; the rest is for other processes."""

_PURGE_DELAY = "MIMALLOC_PURGE_DELAY"

_ARROW_PURGE_DELAY_MS = "60000"
"""How long Arrow's allocator keeps memory in a worker that was freed. By default it returns it to the system after a
second, so chunks of an import lost their memory and got it back page by page, cleared by the kernel: on a busy machine
0.2 to 0.3 of 1.1 core-seconds for a million rows. A worker keeps no more than it used at once. An idle
one returns it: the memory of the pool counts only workers that have a task."""

_EXIT_S = 10
"""How long a worker that closed its stdout may take to exit."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """No Spark: tasks run in at most ``workers`` processes of this machine, by default one a core.

    Each task may use its table's ``memory_limit_bytes`` and 300 MiB beside it. ``memory_bytes`` bounds what the tasks
    that run at once may use together, by default 80% of the memory of the machine or container: fewer run at once if
    that is less than ``workers`` of them need. Pieces of bulk imports are files below TMPDIR. :meth:`Pipeline.read` and
    sources that only Spark reads need Spark.
    """

    workers: int | None = None
    memory_bytes: int | None = None

    def executor(self) -> WorkerPool:
        """Return a pool of workers. Raises UsageError for fewer than one worker or byte."""
        return WorkerPool(self.workers, self.memory_bytes)


class WorkerPool:
    """Runs batches of tasks in at most ``workers`` processes, by default one a core. Several threads may use it.

    ``memory_bytes`` bounds what the tasks that run at once may use together; by default :data:`MEMORY_SHARE` of the
    machine's memory, or of the container's.

    Raises UsageError for fewer than one worker or byte.
    """

    name = "worker processes"
    in_this_process = False
    frames = None
    call_thread = staticmethod(call_thread)

    def __init__(self, workers: int | None = None, memory_bytes: int | None = None) -> None:
        for name, given in (("workers", workers), ("memory_bytes", memory_bytes)):
            if given is not None and not is_whole(given, 1):
                raise Code.WORKER_NOT_STARTED(f"{name} = {shown(given)}: must be 1 or more", name=name)
        self._workers = workers or available_cores()
        self._memory = _MemoryBudget(memory_bytes or int(MEMORY_SHARE * available_memory_bytes()))
        self._scratch = tempfile.TemporaryDirectory(prefix=scratch_prefix("workers"), ignore_cleanup_errors=True)
        # The last one used is the first one used again: no more workers are started than run at once.
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(self._workers):
            self._idle.put(None)
        self._started: set[Worker] = set()
        # Also if the pool is never closed.
        self._end = weakref.finalize(self, _end_all, self._started, self._scratch)

    @property
    def exchange(self) -> PieceFiles:
        """As :attr:`lakebed.jobs.executor.Executor.exchange`, in files on local disk."""
        return PieceFiles(self)

    def close(self) -> None:
        """Kill the workers and delete their scratch."""
        self._end()

    def cores(self, memory_limit_bytes: int) -> int:
        """Return how many tasks with this memory limit run at once."""
        return max(1, min(self._workers, self._memory.total_bytes // (memory_limit_bytes + BESIDE_BYTES)))

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
        """As :meth:`lakebed.jobs.executor.Executor.run`; ``progress`` is called whenever a task finishes.

        Raises UsageError if the pool is closed.
        """
        if not self._end.alive:
            raise Code.ALREADY_CLOSED("the pipeline is closed, and its workers have ended; make another")
        batch = _TaskBatch(len(values), progress, rows)
        first = run.plan_tasks(len(values), WORKERS)

        def run_one(item: int, value: Any) -> T | Error:
            with self._memory.reserved(memory_limit_bytes + BESIDE_BYTES):
                answer = self._run_one(pickle.dumps((work, pickle.dumps(value))), batch, stop)
            batch.finish_one()
            if isinstance(answer, Error):
                now = clock.now()
                run.task(TaskRun(job=run.id, number=first + item, host=platform.node(), finished=now), answer)
                return answer
            return take_answer(answer, made, run, first + item)

        with (
            stop.cancelling(batch.kill_workers),
            ThreadPoolExecutor(min(self._workers, max(1, len(values))), "lakebed-task") as threads,
        ):
            return list(threads.map(run_one, range(len(values)), values))

    def _run_one(self, message: bytes, batch: _TaskBatch, stop: Stop) -> bytes | Error:
        """Return the answer of a worker, or why there is none."""
        worker = self._idle.get()
        try:
            stop.check()
            if worker is not None and not worker.is_alive:
                # Killed while it was idle, or by an interrupt just after it had answered: not a failure of this task.
                self._started.discard(worker)
                worker.end()
                worker = None
            if worker is None:
                worker = Worker(__name__, self._scratch.name, variables={_PURGE_DELAY: _ARROW_PURGE_DELAY_MS})
                self._started.add(worker)
            batch.busy.add(worker)
            worker.send(message)
            answer = worker.receive()
            batch.busy.discard(worker)
            if answer is not None:
                return answer
            died, worker = worker, None
            self._started.discard(died)
            error = _death(died)
            # What it wrote would take the place that another attempt needs.
            delete_abandoned_folders(Path(self._scratch.name))
            # A worker that the interrupt killed is not a failure of its task.
            stop.check()
            return error
        finally:
            self._idle.put(worker)


class _MemoryBudget:
    """A number of bytes that several threads reserve parts of, and wait for."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._free_bytes = total_bytes
        self._released = threading.Condition()

    @contextlib.contextmanager
    def reserved(self, size_bytes: int) -> Iterator[None]:
        """Hold ``size_bytes`` during the block, or all bytes if there are fewer."""
        size_bytes = min(size_bytes, self.total_bytes)
        with self._released:
            self._released.wait_for(lambda: self._free_bytes >= size_bytes)
            self._free_bytes -= size_bytes
        try:
            yield
        finally:
            with self._released:
                self._free_bytes += size_bytes
                self._released.notify_all()


class _TaskBatch:
    """The tasks of one call of ``run``: the workers that are busy with them, and how many are done."""

    def __init__(self, tasks: int, progress: Callback | None, rows: int) -> None:
        self.busy: set[Worker] = set()
        self._tasks, self._progress, self._rows = tasks, progress, rows
        self._done = 0
        self._reporting = threading.Lock()
        if progress is not None:
            progress(Progress(0, rows))

    def kill_workers(self) -> None:
        for worker in self.busy.copy():
            worker.kill()

    def finish_one(self) -> None:
        with self._reporting:
            self._done += 1
            if self._progress is not None:
                self._progress(Progress(self._rows * self._done // self._tasks, self._rows))


def _death(worker: Worker) -> Error:
    """Return why a worker gave no answer."""
    code = worker.end(_EXIT_S)
    if code == -signal.SIGKILL:
        return Code.WORKER_KILLED(
            "the worker process of a task was killed (SIGKILL), as the system does when memory is short; use fewer "
            "workers (--workers), lower the table's memory_limit_bytes, or run it on Spark",
            exit_code=code,
        )
    how = exit_text(code)
    return Code.WORKER_FAILED(f"the worker process of a task died with {how}; see its stderr", exit_code=code)


def _end_all(workers: set[Worker], scratch: tempfile.TemporaryDirectory[str]) -> None:
    while workers:
        workers.pop().end()
    scratch.cleanup()


# -- in the worker ----------------------------------------------------------------------------------------------


def main() -> None:
    """Run the tasks that come on stdin, one at a time, on one core. Ends with stdin, also in the middle of a task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before DataFusion is imported, whose allocator has a variable of the same name. Arrow's has read it.
    leave_pandas_out()
    if os.environ.get(_PURGE_DELAY) == _ARROW_PURGE_DELAY_MS:
        del os.environ[_PURGE_DELAY]
    on_one_core()
    answers = answer_pipe()
    for message in requests(pa.default_memory_pool().release_unused):
        # Written by the process that started this one, to a pipe of its own.
        work, payload = pickle.loads(message)  # noqa: S301
        write_message(answers, attempt(work, payload))
