"""Freeing space on a full disk: a reserve that is given up so that deleting can begin.

Files are deleted only after an entry that says so is on disk, so a disk without a free byte could never be emptied.
Every instance on local disk therefore keeps a reserve of 1 MiB (a preallocated file). Work that frees space gives it
up when the disk is full, begins again, and sets it aside anew at the end. Object stores have no such limit.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from lakebed.errors import StorageError
from lakebed.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.storage.contract import Storage

RESERVE = ".reserve"
RESERVE_BYTES = 1024 * 1024
"""Room for some twenty entries of the largest kind that garbage collection writes, 37 KB for 1,000 files."""

Done = TypeVar("Done")


def keep_reserve(storage: Storage) -> None:
    """Set the reserve aside where the storage is a local disk with room for it."""
    if not isinstance(storage, LocalStorage):
        return
    with suppress(OSError), (storage.root / RESERVE).open("xb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError:
            (storage.root / RESERVE).unlink()


def release_reserve(storage: Storage) -> bool:
    """Give the reserve back to the disk; False if there is none."""
    if not isinstance(storage, LocalStorage):
        return False
    try:
        (storage.root / RESERVE).unlink()
    except OSError:
        return False
    return True


def with_reserve(storage: Storage, work: Callable[[], Done]) -> Done:
    """Do work that frees space; if the disk is full, give up the reserve and do it once more.

    ``work`` must be fit to begin again after it failed anywhere. Raises as it does.
    """
    try:
        done = work()
    except StorageError as error:
        full = error.facts.get("errno") in (errno.ENOSPC, errno.EDQUOT)
        if not full or not release_reserve(storage):
            raise
        done = work()
    keep_reserve(storage)
    return done
