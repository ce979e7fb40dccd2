"""The help, and the reference made of the same parser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lakebed
from tests.tables.cli.conftest import Cli

REFERENCE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_reference_is_up_to_date() -> None:
    ran = subprocess.run([sys.executable, "-m", "lakebed.cli.reference"], capture_output=True, check=True, timeout=60)
    assert ran.stdout.decode("utf-8") == REFERENCE.read_text("utf-8"), (
        "run: python -m lakebed.cli.reference > docs/cli.md"
    )


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").out == f"lakebed {lakebed.__version__}\n"


@pytest.mark.parametrize(
    "words", [[], ["table"], ["tables"], ["get", "t"], ["get", "t", "k", "--colour"]], ids=" ".join
)
def test_a_mistake_points_to_the_help(cli: Cli, words: list[str]) -> None:
    ran = cli(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1].endswith("--help`")
