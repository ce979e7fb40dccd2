"""A service in a process of its own, as ``lakebed serve`` starts it."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


WITHOUT_SPARES = "from lakebed.read.sql import spare_workers\nspare_workers.SPARE = 0\n"
"""No statement comes soon enough for a worker that waits for it: as in tests/conftest.py."""


@dataclass(frozen=True)
class Served:
    """A service that runs."""

    url: str
    process: subprocess.Popen[str]

    def stop(self) -> None:
        """Tell it to end, and check that it ends well."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said


@contextmanager
def served(lake: Path | str, *options: str, before: str = "") -> Iterator[Served]:
    """A service of the instance, which listens on a free port; it is stopped at the end of the block.

    ``before`` is a program that runs in its process before the command does.
    """
    program = f"{WITHOUT_SPARES}{before}\nimport sys\nfrom lakebed.cli import main\nsys.exit(main())"
    command = [sys.executable, "-c", program, "--instance", str(lake), "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield Served(url_said(process), process)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if process.returncode is None:
        Served("", process).stop()


def url_said(process: subprocess.Popen[str]) -> str:
    """The URL that a service prints once it listens."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"lakebed: serving .* at (https?://\S+)", line):
            return found[1]
    raise AssertionError(f"the service ended with {process.wait()}: {''.join(said)}")
