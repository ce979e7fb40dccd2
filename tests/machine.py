"""The machine of a test, as the process sees it: where temporary files lie, and which packages are installed."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.spark import java_runtime


def set_temporary_folder(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let this process, and those that it starts, put temporary files into a folder, for as long as the patch lasts."""
    patch.setenv("TMPDIR", str(folder))
    # The variable was read when the first file was made.
    patch.setattr(tempfile, "tempdir", str(folder))


@contextmanager
def cores_of_arrow(count: int) -> Iterator[None]:
    """Let PyArrow use this number of threads during the block."""
    before = pa.cpu_count()
    pa.set_cpu_count(count)
    yield
    pa.set_cpu_count(before)


def hide_java(patch: pytest.MonkeyPatch, empty: Path) -> None:
    """Let the machine have no Java of its own, for as long as the patch lasts. ``empty`` becomes the PATH."""
    patch.delenv("JAVA_HOME", raising=False)
    patch.setenv("PATH", str(empty))
    patch.setattr(java_runtime, "_JAVA_HOMES", ())


def hide_packages(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Let packages be missing, for as long as the patch lasts. What has imported them keeps them."""
    for name in names:
        patch.setitem(sys.modules, name, None)
