"""A worker process of :mod:`lakebed.spark.worker_pool`: reads tasks from stdin, runs them, answers on stdout.

It runs one task at a time, on one core. It ends when its stdin does, also in the middle of a task, so it never
outlives the process that started it.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from typing import IO

from lakebed.spark.batch import attempt, on_one_core
from lakebed.spark.frames import read_frame, write_frame


def main() -> None:
    """Serve the process that started this one until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_one_core()
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, messages), daemon=True).start()
    while True:
        # Written by the process that started this one, to a pipe of its own.
        work, payload = pickle.loads(messages.get())  # noqa: S301
        ok, answer = attempt(work, payload)
        write_frame(answers, (b"+" if ok else b"-") + answer)


def _receive(pipe: IO[bytes], messages: queue.SimpleQueue[bytes]) -> None:
    while (message := read_frame(pipe)) is not None:
        messages.put(message)
    os._exit(0)
