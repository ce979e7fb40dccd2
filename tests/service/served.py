"""A service in a process of its own, as ``lakebed serve`` starts it."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def served(lake: Path, *options: str) -> Iterator[str]:
    """The URL of a service of the instance, which listens on a free port; it is told to end at the end of the block."""
    command = [sys.executable, "-m", "lakebed.cli", "--instance", str(lake), "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"lakebed: serving .* at (http://\S+)", line):
                break
        else:
            raise AssertionError(f"the service ended with {process.wait()}: {''.join(said)}")
        yield found[1]
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
