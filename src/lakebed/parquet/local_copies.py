"""Local copies of files from stores: where they lie, and how they go.

A copy goes with the last object that refers to it, and the folder of the process at its end.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from pathlib import Path


class LocalCopy:
    """A fetched file; it is deleted when nothing refers to this object any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        weakref.finalize(self, path.unlink, missing_ok=True)


_folders: dict[int, Path] = {}
_folders_lock = threading.Lock()


def copies_folder() -> Path:
    """The folder of this process for fetched files; made at first use, removed at exit."""
    with _folders_lock:
        # By process id: a forked child must neither fill nor remove its parent's.
        if os.getpid() not in _folders:
            from tempfile import mkdtemp

            _folders[os.getpid()] = Path(mkdtemp(prefix="lakebed-copies-"))
            atexit.register(_remove_folder, os.getpid())
        return _folders[os.getpid()]


def _remove_folder(process: int) -> None:
    if process == os.getpid():
        from shutil import rmtree

        rmtree(_folders[process], ignore_errors=True)
