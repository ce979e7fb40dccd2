"""Worker processes of this program: a fresh Python that runs ``main`` of a module, for tasks and for statements.

The worker finds modules where this process finds them, and not in the current folder. Its temporary files are in a
folder that its owner deletes, so that they go even if it is killed. Its owner sends it messages on its stdin, which no
list of processes shows, and it answers on its stdout. A message is its length in eight bytes and then its bytes; what
the messages are, and the limits of a worker, are its owner's. A worker ends with its stdin, in the middle of its work
as well, so it never outlives this process.

Core types. :class:`Worker`, for the owner; :func:`answer_pipe`, :func:`requests` and :func:`write_message`, for the
worker. Errors: UsageError without a Python to start; Error if the system starts no process.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, BinaryIO

from lakebed.errors import Code

_START = """
import importlib, json, sys
sys.path[:] = json.loads(sys.stdin.buffer.readline())
importlib.import_module(sys.argv[1]).main()
"""

_LENGTH = struct.Struct("<Q")

_IDLE_S = 1.0
"""A worker without a message for so long is idle: the messages of one call follow each other sooner."""


class Worker:
    """A worker process for a module, with temporary files in ``scratch``. Used by one thread at a time, but for
    :meth:`kill`. Its ``stderr`` is this process's by default.
    """

    def __init__(
        self,
        module: str,
        scratch: str,
        *,
        stderr: int | None = None,
        variables: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        if not python:
            raise Code.WORKER_NOT_STARTED(
                "cannot start a worker: this Python does not know the path of its executable; leave out limits of a "
                "statement, and run tasks on Spark"
            )
        # Spark's folder would take precedence for the files of tasks.
        inherited = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"}
        try:
            self.process = subprocess.Popen(  # noqa: S603 - this Python, with the program above
                [python, "-P", "-c", _START, module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**(variables or {}), **inherited, "TMPDIR": scratch},
                # Ctrl-C interrupts this process only, which ends the worker.
                process_group=0,
            )
        except OSError as error:
            raise Code.WORKER_FAILED(f"cannot start a worker process: {error}; free memory or processes") from error
        assert self.process.stdin is not None
        assert isinstance(self.process.stdout, io.BufferedReader)
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(sys.path).encode() + b"\n")
            self._stdin.flush()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def send(self, message: bytes) -> None:
        """Send a message. A worker that is gone does not get it, and answers nothing."""
        with contextlib.suppress(BrokenPipeError):
            write_message(self._stdin, message)

    def receive(self) -> bytes | None:
        """Wait for the next answer; None if the worker died."""
        return _read_message(self._stdout)

    def read_into(self, data: memoryview) -> int:
        """Fill the memory with what follows the last answer; return the number of bytes, fewer at its end."""
        return self._stdout.readinto(data)

    def kill(self) -> None:
        """Kill the process, from any thread. May be called again."""
        # Popen does not kill a process that it has waited for, whose number may be reused.
        self.process.kill()

    def end(self, within_s: float = 0) -> int:
        """Kill the process unless it ends in time, and close its pipes; return its exit code. May be called again."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
        self.kill()
        code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                # Closing flushes what the worker did not read.
                with contextlib.suppress(OSError):
                    pipe.close()
        return code


def exit_text(code: int) -> str:
    """Return how a process ended: the name of a signal, or its exit code."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def write_message(pipe: IO[bytes], message: bytes) -> None:
    """Write one message. Raises BrokenPipeError if the other end is closed."""
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _read_message(pipe: IO[bytes]) -> bytes | None:
    """Return the next message; None if the pipe ended before it was whole."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = pipe.read(length)
    return message if len(message) == length else None


# -- in the worker ----------------------------------------------------------------------------------------------


def answer_pipe() -> BinaryIO:
    """Return the pipe for answers. What libraries print goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def requests(idle: Callable[[], object] | None = None) -> Iterator[bytes]:
    """Yield the messages that the owner sends. A thread ends the process with its stdin.

    ``idle`` is called once when no message has come for :data:`_IDLE_S`.
    """
    received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(received,), name="lakebed-owner", daemon=True).start()
    while True:
        try:
            message = received.get(timeout=None if idle is None else _IDLE_S)
        except queue.Empty:
            assert idle is not None
            idle()
            message = received.get()
        yield message
        # A suspended generator keeps its variables.
        del message


def _receive(received: queue.SimpleQueue[bytes]) -> None:
    while (message := _read_message(sys.stdin.buffer)) is not None:
        received.put(message)
    os._exit(0)
