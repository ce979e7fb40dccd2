"""Runs a statement with a limit on memory or time in a worker process, which is killed if it exceeds the limit.

The engine cannot bound every statement: ``repeat('x', 2000000000)`` allocates its memory in one piece, and a cross join
may run for years. The worker (:mod:`lakebed.table.sql_worker`) is sent the location of the instance, and then the
statement (:mod:`lakebed.storage.worker_process`). Its answer is what it holds, and then the rows as an Arrow IPC
stream; an error is the last line of its stderr. A full pipe stops the worker until the caller reads. A thread of this
process watches the worker's memory and time.

Memory is counted as the resident pages of the worker, except those of files, above what it held when it was ready for
the statement. RLIMIT_DATA in the worker stops growth that is too fast for the watcher. Without /proc the rlimit is the
only bound on memory, as far as the system enforces it.

A worker runs one statement. It may be started ahead (:mod:`lakebed.read.sql.spare_workers`), since its preparation,
which takes most of a second, is the same for every statement.

Core: :func:`run_limited`, :class:`StatementWorker`. Errors: UsageError for a statement that exceeds a limit.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import threading
import weakref
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, Facts, decode_error
from lakebed.model.documents import dump, load
from lakebed.model.frames import Frames
from lakebed.storage import connect, telemetry
from lakebed.storage.disk_space import scratch_prefix
from lakebed.storage.worker_process import Worker, exit_text
from lakebed.system import MEMORY_POLL_S, held_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

ERROR_MARK = "lakebed-error: "
"""The beginning of the line with the worker's error."""

_STDERR_BYTES_MAX = 1024 * 1024
_TEXT_CHARACTERS_MAX = 500

_ALLOCATORS = {"MIMALLOC_ARENA_EAGER_COMMIT": "0"}
"""Without it, allocators reserve 2 GiB ahead of use, which RLIMIT_DATA counts."""

_OUT_OF_MEMORY = re.compile(
    "Resources exhausted|memory allocation of [0-9]+ bytes failed|MemoryError|malloc of size|bad_alloc"
    "|[Oo]ut of memory|[Cc]annot allocate memory|capacity overflow"
)
"""The messages of engines that run out of memory, some of them while they abort."""

_MEMORY_SIGNALS = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)
"""The signals that end a process without memory, if it prints nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a statement; None means no limit. When ``cancelled`` is set, the statement ends as at a limit."""

    memory_bytes: int | None
    timeout_s: float | None
    cancelled: threading.Event | None = None


WORKER = "lakebed.table.sql_worker"


def run_limited(worker: StatementWorker, statement: str, limits: Limits, **asked: Any) -> LimitedRows:
    """Return the rows of a statement, which a new worker runs. ``asked`` has other arguments for its module.

    Raises UsageError for a statement that takes more than its limits, here or while the rows are read, and what the
    statement itself raises.
    """
    request = {**asked, "statement": statement, "memory_limit_bytes": limits.memory_bytes}
    source = _Source(worker, request, limits)
    try:
        return LimitedRows(source)
    except BaseException:
        source.close()
        raise


class LimitedRows(Frames, pa.ipc.RecordBatchStreamReader):  # type: ignore[misc]
    """The stream of a worker, which ends when the stream is closed."""

    def __init__(self, source: _Source) -> None:
        super().__init__(source)
        self._source = source
        # The worker first sends the columns with an empty batch.
        super().read_next_batch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the statement. May be called again."""
        self._source.close()


class _Source(io.RawIOBase):
    """The output of a worker. Raises the error of the worker if the output ends too early."""

    def __init__(self, worker: StatementWorker, request: Mapping[str, Any], limits: Limits) -> None:
        super().__init__()
        self._worker = worker
        # Ends the worker even without close: when the reader is dropped, or this process ends.
        self._end = weakref.finalize(self, worker.end)
        try:
            worker.send(request, limits)
        except BaseException:
            self._end()
            raise

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._end()
        super().close()

    def read(self, size: int = -1) -> Any:
        return self.read_buffer(size)

    def read_buffer(self, size: int) -> Any:
        """Read ``size`` bytes, aligned as Arrow wants them."""
        if not self._end.alive:
            raise Code.ALREADY_CLOSED("the stream is closed; run the statement again")
        data = pa.allocate_buffer(size)
        try:
            if self._worker.read_into(memoryview(data)) < size:
                self._worker.raise_end()
        except BaseException:
            self._end()
            raise
        return data


class StatementWorker:
    """One process, which prepares itself and then waits for its statement, and the thread that watches it.

    ``place`` has the arguments of :func:`lakebed.open`, for the function ``main`` of the module. Raises UsageError for
    an instance in memory, which no other process can open.
    """

    def __init__(self, place: Mapping[str, Any], module: str = WORKER) -> None:
        if not connect(place["url"], place["storage_options"]).locality.shared:
            raise Code.INSTANCE_IN_MEMORY(
                f"{place['url']} is in the memory of this process, so a worker cannot run a statement with limits on it"
            )
        self._limits = Limits(None, None)
        # What it spills and copies is deleted even if it is killed.
        self._folder = TemporaryDirectory(prefix=scratch_prefix("statement"), ignore_cleanup_errors=True)
        self._worker = Worker(module, self._folder.name, stderr=subprocess.PIPE, variables=_ALLOCATORS)
        self._stderr = b""
        self._ready_at: float | None = None
        self._held = self._reached = 0
        self._over: str | None = None
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="lakebed-statement", daemon=True)
        assert self._worker.process.stderr is not None
        self._errors = self._worker.process.stderr
        os.set_blocking(self._errors.fileno(), False)
        self._watcher.start()
        self._worker.send(dump(dict(place)))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._worker.is_alive

    def send(self, request: Mapping[str, Any], limits: Limits) -> None:
        """Send the statement, and wait until the worker starts it."""
        self._limits = limits
        self._worker.send(dump(request))
        begun = self._worker.receive()
        if begun is None:
            self.raise_end()
        self._held = load(begun)["held_bytes"]
        self._ready_at = clock.monotonic_s()

    def read_into(self, data: memoryview) -> int:
        """Fill the memory from the worker's output; returns the number of bytes, fewer at its end."""
        return self._worker.read_into(data)

    def raise_end(self) -> NoReturn:
        """Raise the error of the worker, whose output ended too early."""
        self._watcher.join()
        limit = self._limits.memory_bytes
        facts: Facts = {
            "memory_limit_bytes": limit,
            "timeout_s": self._limits.timeout_s,
            "reached_bytes": self._reached,
        }
        telemetry.measure("read_errors_total", 1, kind="sql", table="")
        if self._over is not None:
            raise Code.STATEMENT_LIMIT_EXCEEDED(self._over, **facts)
        before, mark, document = self._stderr.decode(errors="replace").rpartition(ERROR_MARK)
        error = decode_error(load(document.encode())) if mark else None
        text = error.message if error else document
        code = self._worker.process.returncode
        by = exit_text(code)
        out_of_memory = next(filter(_OUT_OF_MEMORY.search, text.splitlines()), None)
        if limit is not None and (out_of_memory or (code in _MEMORY_SIGNALS and "panicked" not in text)):
            why = _tail(out_of_memory) if out_of_memory else f"it died with {by}"
            raise Code.STATEMENT_LIMIT_EXCEEDED(f"{self._too_much(limit)} ({why})", **facts)
        if error is not None:
            raise error
        more = ", which is most often the system's, short of memory" if code == -signal.SIGKILL else ""
        raise Code.STATEMENT_KILLED(
            f"the process of the statement died with {by}{more}; nothing was changed. {_tail(before + text)}".rstrip(),
            **facts,
        )

    def end(self) -> None:
        """Kill the process if it runs, and release its pipes."""
        if not self._stop.is_set() and self._ready_at is not None:
            telemetry.measure("read_seconds", clock.monotonic_s() - self._ready_at, kind="sql", table="")
        self._stop.set()
        self._worker.kill()
        if threading.current_thread() is not self._watcher:
            self._watcher.join()
        self._worker.end()
        self._folder.cleanup()

    # -- watching -----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stop.wait(MEMORY_POLL_S) and self._worker.is_alive:
            self._drain()
            if self._over is None:
                self._over = self._cancelled() or self._limit_exceeded()
                if self._over is not None:
                    self._worker.kill()
        self._worker.process.wait()
        self._drain()

    def _cancelled(self) -> str | None:
        cancelled = self._limits.cancelled
        return "the statement was cancelled" if cancelled is not None and cancelled.is_set() else None

    def _limit_exceeded(self) -> str | None:
        """Return the message for a statement that exceeds a limit; None as long as it does not, or has not begun."""
        limits = self._limits
        if self._ready_at is None:
            return None
        taken_s = clock.monotonic_s() - self._ready_at
        if limits.memory_bytes is not None:
            self._reached = max(self._reached, held_bytes(self._worker.process.pid) - self._held)
            if self._reached > limits.memory_bytes:
                return f"{self._too_much(limits.memory_bytes)} when it was stopped"
        if limits.timeout_s is not None and taken_s > limits.timeout_s:
            return (
                f"the statement was stopped after {taken_s:.1f} s: timeout_s = {limits.timeout_s:g}; raise timeout_s "
                f"(in a shell --timeout), or reduce the result with a filter or LIMIT"
            )
        return None

    def _too_much(self, limit: int) -> str:
        return (
            f"the statement needs more memory than memory_limit_bytes = {limit:,} allows: raise it (in a shell "
            f"--memory-limit), or reduce the result with a filter or LIMIT. It held {self._reached:,} bytes"
        )

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while more := self._errors.read(65536):
                self._stderr = (self._stderr + more)[-_STDERR_BYTES_MAX:]


def _tail(text: str) -> str:
    return " ".join(text.split())[-_TEXT_CHARACTERS_MAX:]
