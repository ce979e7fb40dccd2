"""A process in which the same calls write the same bytes: clocks, randomness, host and file times are seeded.

All patches except one (a pipeline's worker is this process) are in the standard library and below :mod:`lakebed.clock`,
so that they hardly depend on names of Lakebed. Run it in a process of its own: nothing is restored.

Rules:

* A thread that the library starts beside the caller (not made a daemon, not of a pool) is *background*, and so are
  threads that it starts. No other thread draws a random number or creates a file while one is alive, so their order is
  always the same.
* Pools have one thread.
* Each name of a thread has a random stream of its own, and a clock that advances by a second at each read.
* The modification time of a file is the tick at which it got its name. Ticks are two seconds apart.
"""

from __future__ import annotations

import os
import pickle
import platform
import random
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from lakebed import clock
from lakebed.jobs import worker_pool
from lakebed.jobs.executor import attempt, on_one_core
from lakebed.table.tracker.recorder import Recorder

BEGIN_S = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp())
TICK_S = 2
SETTLE_S = 10.0

# The identity of a process, as in the owner of a job.
_PROC_TEXTS = {
    Path("/proc/sys/kernel/random/boot_id"): "00000000-0000-4000-8000-000000000000",
    Path("/proc/1/stat"): f"1 (golden) S {' '.join(map(str, range(4, 50)))}",
}
_PROC_LINKS = {Path("/proc/self/ns/pid"): Path("pid:[1]")}

_sleep = time.sleep
_ticks = 0
_lock = threading.Lock()
_streams: dict[str, random.Random] = {}
_reads: Counter[str] = Counter()
_parents: dict[threading.Thread, threading.Thread] = {}
_daemons: set[threading.Thread] = set()


def seed() -> None:
    """Patch this process."""
    os.urandom = _random_bytes
    random.random = lambda: 0.5
    time.time = _now_s
    time.sleep = lambda _: None
    platform.node = lambda: "golden"
    os.getpid = lambda: 1
    os.fsync = lambda _: None
    clock.datetime = _Clock
    os.open, os.link, os.replace = _opening(os.open), _naming(os.link), _naming(os.replace)
    Path.read_text, Path.readlink = _of_proc(Path.read_text, _PROC_TEXTS), _of_proc(Path.readlink, _PROC_LINKS)
    _note_threads()
    _one_thread_a_pool()
    on_one_core()
    worker_pool.Worker = _WorkerHere
    # Records of job runs are written only on request.
    Recorder._start_writing = lambda _: None


class _WorkerHere:
    """Replaces a worker process: runs the tasks of a pipeline in this one."""

    is_alive = True

    def __init__(self, module, scratch, variables):
        """Accepts the arguments of a worker process."""

    def send(self, message):
        self._answer = attempt(*pickle.loads(message))

    def receive(self):
        return self._answer

    def end(self):
        """Do nothing: no process was started."""


def settle() -> None:
    """Wait until no background thread is alive, unless this is one."""
    if not _in_background(threading.current_thread()):
        for thread in filter(_begins_background, threading.enumerate()):
            _join(thread)


def _join(thread: threading.Thread) -> None:
    for _ in range(100):
        with suppress(RuntimeError):  # it was not started yet
            return thread.join(SETTLE_S)
        _sleep(0.01)
    return None


def _begins_background(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    of_pool = getattr(target, "__module__", "") == "concurrent.futures.thread"
    return not (of_pool or thread in _daemons or thread is threading.main_thread())


def _in_background(thread: threading.Thread | None) -> bool:
    return thread is not None and (_begins_background(thread) or _in_background(_parents.get(thread)))


def _stream() -> str:
    return re.sub(r"[0-9]+", "", threading.current_thread().name)


class _Clock(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(_now_s(), tz)


def _now_s() -> float:
    with _lock:
        _reads[_stream()] += 1
        return float(BEGIN_S + _reads[_stream()])


def _tick(path) -> None:
    global _ticks  # noqa: PLW0603 - the one clock of the file system
    with _lock:
        _ticks += not _in_background(threading.current_thread())
        at = BEGIN_S + _ticks * TICK_S
    os.utime(path, (at, at))


def _random_bytes(count: int) -> bytes:
    settle()
    with _lock:
        return _streams.setdefault(_stream(), random.Random(_stream())).randbytes(count)


def _opening(call):
    def opened(path, flags, *args, **kwargs):
        if not (flags & os.O_CREAT and flags & os.O_EXCL):
            return call(path, flags, *args, **kwargs)
        settle()
        descriptor = call(path, flags, *args, **kwargs)
        _tick(descriptor)
        return descriptor

    return opened


def _naming(call):
    def named(source, target, **kwargs):
        settle()
        call(source, target, **kwargs)
        _tick(target)

    return named


def _of_proc(call, known):
    def read(path, *args, **kwargs):
        return known[path] if path in known else call(path, *args, **kwargs)

    return read


def _note_threads() -> None:
    begin, start = threading.Thread.__init__, threading.Thread.start

    def init(thread, *args, daemon=None, **kwargs):
        begin(thread, *args, daemon=daemon, **kwargs)
        # A thread without an explicit setting inherits that of the thread that made it.
        if daemon:
            _daemons.add(thread)

    def started(thread):
        _parents[thread] = threading.current_thread()
        start(thread)

    threading.Thread.__init__, threading.Thread.start = init, started


def _one_thread_a_pool() -> None:
    begin = ThreadPoolExecutor.__init__

    def init(self, max_workers=None, *args, **kwargs):
        begin(self, 1, *args, **kwargs)

    ThreadPoolExecutor.__init__ = init
