"""The contract of log backends that several processes use, as a pytest suite.

Subclass :class:`LogProcesses` in a test file, with the fixture ``location`` of :mod:`lakebed.testing.logs`. It starts
processes of this module.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from lakebed.testing.logs import LogUrl, commit, logged


class LogProcesses:
    """Commits from processes that share only the log location, some of which are killed."""

    @pytest.fixture
    def location(self) -> LogUrl:
        """Override."""
        raise NotImplementedError

    def test_two_processes_lose_and_double_nothing(self, location: LogUrl, tmp_path: Path) -> None:
        """Each process has four threads; every name is in the entry whose version the process received."""
        location.connect().check()
        children = [start(location, tmp_path, f"p{number}", commits=80) for number in range(2)]
        acknowledged: dict[str, int] = {}
        for child in children:
            out, err = child.communicate(timeout=120)
            assert child.returncode == 0, err
            acknowledged |= acknowledged_in(out)
        assert len(acknowledged) == 160
        assert logged(location, tmp_path) == acknowledged

    def test_a_killed_process_leaves_what_was_acknowledged_and_no_trouble(
        self, location: LogUrl, tmp_path: Path
    ) -> None:
        """Three are killed during their commits; besides acknowledged names, at most those under way are in the log."""
        location.connect().check()
        acknowledged: dict[str, int] = {}
        for version in range(3):
            child = start(location, tmp_path, f"k{version}", commits=100_000)
            assert child.stdout is not None
            with child:
                seen = "".join(child.stdout.readline() for _ in range(20 + 7 * version))
                child.kill()
                acknowledged |= acknowledged_in(seen + child.stdout.read())
        found = logged(location, tmp_path)
        assert acknowledged.items() <= found.items()
        assert len(found) - len(acknowledged) <= 3 * THREADS
        assert commit(location.catalog(tmp_path / "checkpoints"), "after") == max(found.values()) + 1


THREADS = 4
"""Threads of each process that these tests start."""


def start(location: LogUrl, folder: Path, writer: str, *, commits: int) -> subprocess.Popen[str]:
    """Start a process that commits, and prints a line for each entry. Options may be secret, so they use stdin."""
    child = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    order = {"location": asdict(location), "folder": str(folder), "writer": writer, "commits": commits}
    child.stdin.write(json.dumps(order) + "\n")
    child.stdin.flush()
    return child


def acknowledged_in(out: str) -> dict[str, int]:
    """Return the names and versions of a child's lines; a line that was cut off by its death is ignored."""
    lines = [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]
    return {name: int(version) for name, version in lines}


def _work() -> None:
    order = json.loads(sys.stdin.readline())  # noqa: TID251 - of the test itself
    log = LogUrl(**order["location"]).catalog(Path(order["folder"]) / "checkpoints")

    def write(thread: int) -> None:
        for count in range(order["commits"] // THREADS):
            name = f"{order['writer']}-{thread}-{count}"
            # A single write, so that lines of several threads do not mix.
            sys.stdout.write(f"{name} {commit(log, name)}\n")
            sys.stdout.flush()

    with ThreadPoolExecutor(THREADS) as pool:
        for written in [pool.submit(write, thread) for thread in range(THREADS)]:
            written.result()


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        _work()
