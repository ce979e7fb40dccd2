"""What failed beside other tests is run once more alone (scripts/test_again.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "test_again.py"
TESTS = "def test_passes(): pass\n\ndef test_fails(): assert False\n"

Half = tuple[int | None, Sequence[str]]
"""How a half ended, by pytest's exit code, and the tests that failed in it."""


@pytest.fixture
def again(tmp_path: Path) -> Callable[[Half, Half], subprocess.CompletedProcess[str]]:
    """Runs the script after two halves."""
    (tmp_path / "test_it.py").write_text(TESTS, "utf-8")

    def run(*halves: Half) -> subprocess.CompletedProcess[str]:
        for name, (code, failed) in zip(("core", "spark"), halves, strict=True):
            for key, value in (("lakebed/exit_code", code), ("cache/lastfailed", dict.fromkeys(failed, True))):
                kept = tmp_path / name / "v" / key
                kept.parent.mkdir(parents=True)
                if code is not None:
                    kept.write_text(json.dumps(value), "utf-8")
        command = [sys.executable, str(SCRIPT), "core", "spark"]
        return subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run


def test_a_test_that_passes_alone_is_named(again: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    ran = again((1, ["test_it.py::test_passes"]), (0, []))
    assert ran.returncode == 0
    assert ran.stdout.endswith("so each has a race to be mended:\n  test_it.py::test_passes\n")


@pytest.mark.parametrize(
    ("halves", "said"),
    [
        # One that fails again fails the run, whatever the others do.
        (((1, ["test_it.py::test_passes"]), (1, ["test_it.py::test_fails"])), "1 failed, 1 passed"),
        (((1, [f"test_it.py::test_{n}" for n in range(4)]), (0, [])), "4 tests failed, and at most 3"),
        (((0, []), (0, [])), "0 tests failed"),
        # An interrupt, an error of pytest itself, no tests at all, and a half that was killed.
        (((1, ["test_it.py::test_passes"]), (2, [])), "the tests of spark did not run to their end"),
        (((3, ["test_it.py::test_passes"]), (0, [])), "the tests of core did not run to their end"),
        (((5, []), (1, ["test_it.py::test_passes"])), "the tests of core did not run to their end"),
        (((1, ["test_it.py::test_passes"]), (None, [])), "the tests of spark did not run to their end"),
        # A test that is gone cannot be run.
        (((1, ["test_it.py::test_gone"]), (0, [])), "not found"),
    ],
)
def test_a_run_that_fails(
    again: Callable[..., subprocess.CompletedProcess[str]], halves: tuple[Half, Half], said: str
) -> None:
    ran = again(*halves)
    assert ran.returncode == 1
    assert said in ran.stdout + ran.stderr
    assert "race" not in ran.stdout
