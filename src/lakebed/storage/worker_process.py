"""Worker processes of this program: a fresh Python that runs ``main`` of a module, for tasks and for statements.

The worker finds modules where this process finds them, and not in the current folder. Its temporary files are in a
folder that its owner deletes, so that they go even if it is killed. What it is asked comes on its stdin, which no list
of processes shows; a worker ends with its stdin, so it never outlives this process. It answers on its stdout. What they
say to each other, and the limits of a worker, are its owner's.

Errors: UsageError without a Python to start; Error if the system starts no process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import BinaryIO

from lakebed.errors import Code

_START = """
import importlib, json, sys
sys.path[:] = json.loads(sys.stdin.buffer.readline())
importlib.import_module(sys.argv[1]).main()
"""


def start_worker(
    module: str,
    scratch: str,
    *,
    stderr: int | None = None,
    bufsize: int = -1,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a worker for a module, with temporary files in ``scratch``. Its ``stderr`` is this process's by default."""
    if not sys.executable:
        raise Code.WORKER_NOT_STARTED(
            "cannot start a worker: this Python does not know the path of its executable; leave out limits of a "
            "statement, and run tasks on Spark"
        )
    # Spark's folder would take precedence for the files of tasks.
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"}
    try:
        process = subprocess.Popen(  # noqa: S603 - this Python, with the program above
            [sys.executable, "-P", "-c", _START, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=bufsize,
            env={**(variables or {}), **inherited, "TMPDIR": scratch},
            # Ctrl-C interrupts this process only, which ends the worker.
            process_group=0,
        )
    except OSError as error:
        raise Code.WORKER_FAILED(f"cannot start a worker process: {error}; free memory or processes") from error
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(sys.path).encode() + b"\n")
        process.stdin.flush()
    return process


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a worker that has ended."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            # Closing flushes what the worker did not read.
            with contextlib.suppress(OSError):
                pipe.close()


def exit_text(code: int) -> str:
    """Return how a process ended: the name of a signal, or its exit code."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def answer_pipe() -> BinaryIO:
    """Return, in a worker, the pipe for answers. What libraries print goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers
