"""Folders for what a kernel writes on its way, and what a full disk looks like.

Rules: whatever is made here is gone when the block ends, whichever way it ends (success, error, Ctrl-C); an operating
system's refusal to write becomes a StorageError that names the folder, because the remedy is there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from lakebed.clock import random_token
from lakebed.errors import Code


@contextlib.contextmanager
def scratch_folder(parent: Path, purpose: str) -> Iterator[Path]:
    """A new folder below ``parent``, removed with all it holds when the block ends."""
    folder = parent / f"{purpose}-{random_token()}"
    with writing_to(parent):
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn an operating system error inside the block into a StorageError about the folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise Code.TEMPORARY_STORAGE_FAILED(
            f"cannot write in {folder}: {reason}. Make room there, or choose another folder for temporary files",
            folder=str(folder),
            errno=error.errno,
        ) from error
