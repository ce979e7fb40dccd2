"""Run a case in a process of its own, and print its peak memory above that of its imports.

    python bounded.py CASE LIMIT_MIB FOLDER [MORE_MIB]

The measure is the peak of resident memory (VmHWM), reset after the imports and after the inputs are in place. It is the
kernel's own count of all pages touched by any allocator, thread or library, even for a microsecond. Address space is
not a measure: Arrow and DataFusion reserve gigabytes that they never touch. RLIMIT_DATA stops the process at three
times the allowance, so that a broken bound fails fast and does not exhaust the machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

MIB = 1024 * 1024
ALLOWANCE_MIB = 300
"""Memory that a case may use in addition to the setting memory_limit_bytes."""


def run(case: str, folder: Path, *, limit_mib: int = 64, more_mib: int = 0) -> dict:
    """Run ``case`` of :mod:`tests.adversarial.memory_cases` and return its output.

    Fails unless it succeeds and its memory grew by at most ``limit_mib``, the setting that it runs under, plus the
    allowance, plus ``more_mib``.
    """
    command = [sys.executable, __file__, case, str(limit_mib), str(folder), str(more_mib)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, f"{case}: {ran.returncode}\n{ran.stderr[-4000:]}"
    figures = json.loads(ran.stdout.splitlines()[-1])
    allowed = limit_mib + ALLOWANCE_MIB + more_mib
    assert figures["peak_mib"] <= allowed, (
        f"{case} took {figures['peak_mib']} MiB, and {allowed} are allowed: {figures}"
    )
    return figures


def status_mib(name: str) -> int:
    """Return a line of /proc/self/status in MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) // 1024


def main(case: str, limit_mib: int, folder: Path, more_mib: int) -> None:
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from lakebed.model.arrays import leave_pandas_out

    leave_pandas_out()
    from tests.adversarial import memory_cases

    act = memory_cases.prepared(case, limit_mib * MIB, folder)
    before = status_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    most = status_mib("VmData") * MIB + 3 * (limit_mib + ALLOWANCE_MIB + more_mib) * MIB
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    figures = act() or {}
    print(json.dumps({**figures, "peak_mib": status_mib("VmHWM") - before}), flush=True)
    # Only memory is measured. A thread of a library that takes the GIL while Python exits is unwound through C++, which
    # aborts the process: seen once in some hundred runs.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int((sys.argv[4:] or [0])[0]))
