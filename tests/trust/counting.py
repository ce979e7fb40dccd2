"""A plug-in of pytest that writes how many tests passed, and which failed, to the file TRUST_REPORT."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

_passed: Counter[str] = Counter()
_failed: list[str] = []


def pytest_runtest_logreport(report: Any) -> None:
    """Count a test by its call; its set-up only if that failed or skipped it."""
    if report.failed:
        _failed.append(report.nodeid)
    elif report.when == "call" or report.skipped:
        _passed[report.outcome] += 1


def pytest_sessionfinish() -> None:
    """Write the counts."""
    counts = {"passed": _passed["passed"], "skipped": _passed["skipped"], "failed": _failed}
    Path(os.environ["TRUST_REPORT"]).write_text(json.dumps(counts), "utf-8")
