"""Faults of the tasks of an import in worker processes: pools whose workers die, or have a full disk."""

from __future__ import annotations

import os
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakebed.jobs.executor import task_scratch
from lakebed.jobs.worker_pool import WorkerPool


def killed_after(mark: Path, work: Any, value: Any) -> Any:
    """Do the work of a task; the first one that has done its work is killed before it says so."""
    result = work(value)
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return result
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def always_killed(_work: Any, _value: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_as_it_fails(work: Any, value: Any) -> Any:
    """Do the work of a task; one that fails is killed before it says so."""
    try:
        return work(value)
    except Exception:  # noqa: BLE001 - whatever it is
        os.kill(os.getpid(), signal.SIGKILL)


def killed_in_its_folder(noted: Path, _work: Any, _value: Any) -> Any:
    """Begin to write a file, and be killed; ``noted`` says where it is."""
    with task_scratch() as folder:
        (folder / "rows").touch()
        noted.write_text(str(folder))
        os.kill(os.getpid(), signal.SIGKILL)


def on_full_disk(size: int, work: Any, value: Any) -> Any:
    """Do the work of a task on a disk that is full after so many bytes of a file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return work(value)


def memory_of(pid: int) -> int:
    """Return the bytes that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def used_and_freed(size: int) -> tuple[int, int]:
    """Fill memory of Arrow's and free it; return the process, and what it has in memory then."""
    held = [pa.array(range(2**17)) for _ in range(size >> 20)]
    del held
    return os.getpid(), memory_of(os.getpid())


class FaultyPool(WorkerPool):
    """Two workers; the tasks of each call, counted from 0, do what the fault for it says. It is its own launcher."""

    def __init__(self, *faults: Any) -> None:
        super().__init__(2)
        self._faults = faults
        self.calls = 0

    def executor(self) -> FaultyPool:
        return self

    def run(self, values: Any, work: Any, *given: Any, **how: Any) -> Any:
        fault = self._faults[self.calls] if self.calls < len(self._faults) else None
        self.calls += 1
        return super().run(values, work if fault is None else partial(fault, work), *given, **how)
