"""Tasks on this machine without Spark: worker processes, one a core, that run the same tasks as Spark's workers.

A worker is a fresh Python (:mod:`lakebed.spark.task_worker`), started when the first task needs it and kept for the
next. It reads tasks from its stdin, so no list of processes shows a storage option, and answers on its stdout. Only
metadata passes through: a task reads and writes files itself. As on Spark, each task may use the table's
``memory_limit_bytes``, and about 300 MiB beside it.

* A task that fails, or whose worker dies, has an error as its result; the other tasks go on.
* An interrupted call kills the workers that run its tasks.
* Workers end with this process, however it ends: their stdin does. What they left in scratch is deleted with the pool.

Source: docs/decisions/0039-tasks-run-in-worker-processes.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lakebed.errors import Error, UsageError, decode_error
from lakebed.model.checks import is_whole, shown
from lakebed.spark import wire
from lakebed.spark.frames import read_frame, write_frame
from lakebed.spark.job_progress import Callback, Progress

if TYPE_CHECKING:
    from lakebed.spark.batch import Work
    from lakebed.spark.interrupt import Stop

_START = """
import json, sys
sys.path[:] = json.loads(sys.stdin.buffer.readline())
from lakebed.spark.task_worker import main
main()
"""
"""Finds modules where this process finds them, and not in the current folder (``-P``)."""

_EXIT_S = 10
"""How long a worker that closed its stdout may take to exit."""


class WorkerPool:
    """Runs batches of tasks in at most ``workers`` processes, by default one a core. Several threads may use it.

    Raises UsageError for fewer than one worker.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and not is_whole(workers, 1):
            raise UsageError(f"workers = {shown(workers)}: must be 1 or more", workers=workers)
        self.cores = workers or available_cores()
        self._scratch = tempfile.TemporaryDirectory(prefix="lakebed-", ignore_cleanup_errors=True)
        # The last one used is the first one used again: no more workers are started than run at once.
        self._idle: queue.LifoQueue[_TaskWorker | None] = queue.LifoQueue()
        for _ in range(self.cores):
            self._idle.put(None)
        self._started: set[_TaskWorker] = set()
        # Also when nobody closes the pool.
        self._end = weakref.finalize(self, _end_all, self._started, self._scratch)

    def close(self) -> None:
        """Kill the workers and delete their scratch."""
        self._end()

    def run(
        self, documents: Sequence[Any], work: Work, stop: Stop, *, progress: Callback | None = None, rows: int = 0
    ) -> list[Any | Error]:
        """Run ``work``, which can be pickled, on each document; its result or its error, in the documents' order.

        ``progress`` is called as tasks finish, with their share of ``rows``.

        Raises:
            UsageError: the pool is closed.
            KeyboardInterrupt: the call was asked to stop.
        """
        if not self._end.alive:
            raise UsageError("the pipeline is closed, and its workers have ended; make another")
        batch = _TaskBatch(len(documents), progress, rows)

        def run_one(document: Any) -> Any | Error:
            result = self._run_one(pickle.dumps((work, wire.dump(document))), batch, stop)
            batch.finish_one()
            return result

        with (
            stop.cancelling(batch.kill_workers),
            ThreadPoolExecutor(min(self.cores, max(1, len(documents))), "lakebed-task") as threads,
        ):
            return list(threads.map(run_one, documents))

    def _run_one(self, message: bytes, batch: _TaskBatch, stop: Stop) -> Any | Error:
        worker = self._idle.get()
        try:
            stop.check()
            if worker is not None and worker.has_ended():
                # Killed while it was idle, or by an interrupt just as it had answered: no fault of this task.
                self._started.discard(worker)
                worker.end()
                worker = None
            if worker is None:
                worker = _TaskWorker(self._scratch.name)
                self._started.add(worker)
            batch.busy.add(worker)
            answer = worker.ask(message)
            batch.busy.discard(worker)
            if answer is not None:
                document = wire.load(answer[1:])
                return document if answer[:1] == b"+" else decode_error(document)
            died, worker = worker, None
            self._started.discard(died)
            error = died.death()
            # One that the interrupt killed is no failure of its task.
            stop.check()
            return error
        finally:
            self._idle.put(worker)


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _TaskBatch:
    """The tasks of one call of ``run``: which workers are busy with them, and how many are done."""

    def __init__(self, tasks: int, progress: Callback | None, rows: int) -> None:
        self.busy: set[_TaskWorker] = set()
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


class _TaskWorker:
    """One worker process. Used by one thread at a time, but for :meth:`kill`."""

    def __init__(self, scratch: str) -> None:
        if not sys.executable:
            raise UsageError("this Python does not know its own program, so it can start no workers: use Spark")
        inherited = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - Python itself, with a program of ours
                [sys.executable, "-P", "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=inherited | {"TMPDIR": scratch},
                # A Ctrl-C is for this process, which ends the workers.
                process_group=0,
            )
        except OSError as error:
            raise Error(f"cannot start a worker process: {error}; free memory or processes, or use Spark") from error
        self._greeting: bytes = json.dumps(sys.path).encode() + b"\n"

    def ask(self, message: bytes) -> bytes | None:
        """Hand over a task and wait for the answer; None if the worker died."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(self._greeting)
            self._greeting = b""
            write_frame(stdin, message)
        except BrokenPipeError:
            return None
        return read_frame(stdout)

    def death(self) -> Error:
        """What became of a worker that gave no answer."""
        try:
            code = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        self._close_pipes()
        if code == -signal.SIGKILL:
            return Error(
                "the worker process of a task was killed (SIGKILL), as the system does when memory is short; use fewer "
                "workers, lower the table's memory_limit_bytes, or run it on Spark",
                exit_code=code,
            )
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return Error(f"the worker process of a task {how}; what it wrote to stderr says more", exit_code=code)

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill the process, from any thread. May be called again."""
        # Popen kills no process that it has waited for, whose number may be another's by now.
        self._process.kill()

    def end(self) -> None:
        """Kill the process, and leave nothing of it."""
        self.kill()
        self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # What it was sent and did not read.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _end_all(workers: set[_TaskWorker], scratch: tempfile.TemporaryDirectory[str]) -> None:
    while workers:
        workers.pop().end()
    scratch.cleanup()
