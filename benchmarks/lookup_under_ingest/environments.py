"""An environment for each peer, made at first use, below a folder that is kept.

All packages are pinned in ``requirements/PEER.txt``, dependencies included; a changed file makes another environment.
Lakebed runs in the environment of the benchmark itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"


def default_cache() -> Path:
    """Return the default folder of environments."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakebed-benchmarks"


def python_of(name: str, cache: Path) -> str:
    """Return the interpreter of the peer's environment, which is made if it does not exist.

    Raises:
        CalledProcessError: it could not be installed; the message has the output of pip.
    """
    if name == "lakebed":
        return sys.executable
    pinned = REQUIREMENTS / f"{name}.txt"
    known_by = hashlib.sha256(pinned.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache / f"{name}-{known_by}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    whole = folder / "installed"
    if not whole.exists():
        print(f"installing {name} into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(pinned)],
            check=True,
            stdout=sys.stderr,
        )
        whole.touch()
    return str(python)
