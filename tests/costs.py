"""What tests cost: the CPU seconds of each, with those of the processes that it starts.

    .venv/bin/python -m pytest -p tests.costs tests/adversarial

prints them by file and by function, the largest first. Unlike the time that passes, they hardly depend on what else
the machine does. For Linux, and for tests in one process.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SHOWN = 40
TICKS = os.sysconf("SC_CLK_TCK")

_costs: Counter[str] = Counter()


def _used_s() -> float:
    """The CPU seconds of this process, of those that it has started and that have ended, and of those that run."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system + _running_s(os.getpid())


def _running_s(process: int) -> float:
    used_s = 0.0
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        # A thread, or a process, may end meanwhile.
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                with suppress(OSError):
                    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                    used_s += sum(map(int, fields[11:15])) / TICKS + _running_s(child)
    return used_s


def _measured(item: pytest.Item) -> Generator[None, Any, Any]:
    began_s = _used_s()
    try:
        return (yield)
    finally:
        _costs[item.nodeid] += _used_s() - began_s  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Measure a test with its fixtures."""
    return (yield from _measured(item))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the sums of files and of functions."""
    for what, separator in (("files", "::"), ("functions", "[")):
        sums: Counter[str] = Counter()
        for name, used_s in _costs.items():
            sums[name.partition(separator)[0]] += used_s
        terminalreporter.write_line(f"\nCPU seconds of {what}, {sums.total():.0f} in all")
        for name, used_s in sums.most_common(SHOWN):
            terminalreporter.write_line(f"{used_s:8.1f}  {name}")
