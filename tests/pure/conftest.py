"""Tests of this folder write no file, start no process and open no socket: all of them take seconds.

An audit hook of Python refuses it while one of these tests runs. It does not see what obstore and PyArrow do, but a
test that uses these on files needs a folder, which it refuses to make. Files of the repository may be read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

REFUSED = {
    "os.exec", "os.fork", "os.forkpty", "os.mkdir", "os.posix_spawn", "os.system", "socket.bind", "socket.connect",
    "subprocess.Popen",
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# Compiled modules, and what Hypothesis remembers.
ALLOWED = ("__pycache__", ".hypothesis")

KEEPERS = {("hypothesis", "database.py"), ("internal", "constants_ast.py")}
"""The modules of Hypothesis that keep them."""

_watched = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Fail the test at work; ``pytest.fail`` raises what no `except Exception` catches."""
    if not _watched or (event != "open" and event not in REFUSED):
        return
    if event == "open" and not (arguments[2] or 0) & WRITING:
        return
    what = str(arguments[0]) if arguments else ""
    if not any(name in what for name in ALLOWED) and not _remembers_an_example():
        pytest.fail(f"{event} {what}: move the test from tests/pure to tests/tables or tests/processes")


def _remembers_an_example() -> bool:
    """Whether Hypothesis keeps an example that failed, or constants of a module, first in a temporary file."""
    frame = sys._getframe()
    while frame is not None and Path(frame.f_code.co_filename).parts[-2:] not in KEEPERS:
        frame = frame.f_back
    return frame is not None


sys.addaudithook(_refuse)


@contextmanager
def _watching() -> Iterator[None]:
    global _watched  # noqa: PLW0603 - a hook cannot be removed
    _watched = True
    try:
        yield
    finally:
        _watched = False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Fixtures are watched too."""
    with _watching():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Iterator[None]:
    """Watch the test itself."""
    with _watching():
        return (yield)
