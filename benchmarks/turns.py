"""Sides of a benchmark that take turns, and their measurements: seconds, core-seconds and the load of other processes.

Core-seconds are those of the whole process tree: driver, JVM and workers. A result is a median and its range; ratios
are medians over rounds. *Others* is the use of the machine's cores by other processes meanwhile: above a tenth of a
core, seconds are not reliable.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Self

import psutil

Found = dict[str, Any]
"""The results of a side in one round: ``seconds``, ``core_seconds``, ``rows`` and any others."""

Turn = Callable[[int], Found]


@cache
def python_with(name: str, packages: Sequence[str]) -> Path:
    """Return the Python of an environment that has these packages, made if needed and kept under this name."""
    folder = Path(tempfile.gettempdir()) / f"lakebed-bench-{name}"
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "made").touch()
    return python


def core_seconds() -> float:
    """Return the core-seconds of this process and all below it, including those that have ended."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in [me, *me.children(recursive=True)])


def measured(begin: float, begin_cores: float) -> Found:
    """Return the usage since a :func:`time.perf_counter` and :func:`core_seconds`."""
    return {"seconds": time.perf_counter() - begin, "core_seconds": core_seconds() - begin_cores}


def in_turns(sides: dict[str, Turn], rounds: int) -> dict[str, list[Found]]:
    """Return the results of each side in each round."""
    found: dict[str, list[Found]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            busy, begin = busy_seconds(), time.perf_counter()
            with WatchedTree() as tree:
                made = sides[name](number)
            taken = time.perf_counter() - begin
            made["others"] = max(0.0, busy_seconds() - busy - tree.core_seconds) / taken
            found[name].append(made)
    rows = {one["rows"] for side in found.values() for one in side}
    assert len(rows) == 1, f"the sides made {rows} rows"
    return found


class WatchedTree:
    """The CPU use of this process and all below it while a block runs, including those that end meanwhile.

    The system adds up the children that a process has waited for. It loses those for which no process waits: a JVM that
    ends after the driver that started it, and Python workers, whose daemon ignores their end. So the times of all
    processes are recorded while they run.
    """

    _POLL_S = 0.25

    def __init__(self) -> None:
        self._before: dict[tuple[int, float], float] = {}
        self._last: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    @property
    def core_seconds(self) -> float:
        """Return the core-seconds used until the block ended."""
        return sum(self._last.values()) - sum(self._before.values())

    def __enter__(self) -> Self:
        self._note()
        self._before = dict(self._last)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watcher.join()
        self._note()

    def _watch(self) -> None:
        while not self._ended.wait(self._POLL_S):
            self._note()

    def _note(self) -> None:
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            # A process that has ended keeps its last record.
            with contextlib.suppress(psutil.Error):
                self._last[process.pid, process.create_time()] = sum(process.cpu_times()[:2])


def busy_seconds() -> float:
    """Return the busy seconds of all cores of the machine since its start."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def spread(values: list[float], unit: str) -> str:
    return f"{median(values):7.3f} ({min(values):.3f}-{max(values):.3f}){unit}"


def ratio(side: list[Found], other: list[Found], what: str = "core_seconds") -> str:
    found = [a[what] / b[what] for a, b in zip(side, other, strict=True)]
    return f"{median(found):.2f} ({min(found):.2f}-{max(found):.2f})"
