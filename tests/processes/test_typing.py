"""Programs of users in tests/typing pass pyright, and each mistake in them is reported; `make check` asks mypy."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_pyright_accepts_what_is_right_and_reports_what_is_wrong():
    ran = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stdout.endswith("0 errors, 0 warnings, 0 notes\n"), ran.stdout + ran.stderr
