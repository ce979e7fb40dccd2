"""Installs the packages of a lock file into the environment of this Python, and shows how far it is.

    python scripts/install_locked.py requirements.lock

pip itself prints a line for each package, or nothing. On a terminal one line is rewritten, with the package that is
being fetched and the number so far; elsewhere, as in the log of a build, a line is printed every twenty packages.
Errors of pip are printed as they are, and its exit code is returned. Only the standard library is used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

EACH = 20
"""Packages between two lines where no line can be rewritten."""

_COLLECTED = re.compile(r"(?:Collecting|Requirement already satisfied:) (\S+)")
_REWRITE = "\r\x1b[K"
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--progress-bar", "off")
LOCKED = ("--require-hashes", "--no-build-isolation", "--requirement")


def main(lock: str) -> int:
    """Install a lock file; returns pip's exit code."""
    total = len(re.findall(r"^[\w.-]+==", Path(lock).read_text("utf-8"), re.MULTILINE))
    rewrites = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    command = [sys.executable, *PIP, *LOCKED, lock]
    ran = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")  # noqa: S603 - pip itself
    assert ran.stdout is not None
    try:
        for text in progress(ran.stdout, total, shutil.get_terminal_size().columns if rewrites else None):
            print(text, end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        # pip has it as well, and ends by itself.
        ran.wait()
        return 130
    return ran.wait()


def progress(lines: Iterable[str], total: int, width: int | None) -> Iterator[str]:
    """Return what to print for the lines that pip prints. ``width`` is that of a terminal; None: there is none.

    ``total`` is the number of packages in the lock, some of which are for other systems.
    """
    count = 0
    for line in lines:
        found = _COLLECTED.match(line)
        count += found is not None
        if found is not None and width is not None:
            yield _REWRITE + f"  {count} of at most {total}: {found[1]}"[: width - 1]
        elif found is not None and count % EACH == 0:
            yield f"  {count} of at most {total} packages fetched\n"
        elif line.startswith("Installing collected packages"):
            yield (_REWRITE if width is not None else "") + f"  {count} packages fetched; unpacking them …\n"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
