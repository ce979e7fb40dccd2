"""Freeing space on a full disk: a reserve that is given up so that deleting can begin.

Files are deleted only after an entry that says so is on disk, so a disk without a free byte could never be emptied.
Every instance on local disk therefore keeps a reserve of 1 MiB (a preallocated file). Work that frees space gives it
up when the disk is full, begins again, and sets it aside anew at the end. Object stores have no such limit.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeVar

from lakebed.errors import StorageError
from lakebed.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.storage.contract import Storage

Done = TypeVar("Done")


def keep_reserve(storage: Storage) -> None:
    """Set the reserve aside where the storage is a local disk with room for it."""
    if isinstance(storage, LocalStorage):
        storage.keep_reserve()


def with_reserve(storage: Storage, work: Callable[[], Done]) -> Done:
    """Do work that frees space; if the disk is full, give up the reserve and do it once more.

    ``work`` must be fit to begin again after it failed anywhere. Raises as it does.
    """
    try:
        done = work()
    except StorageError as error:
        full = error.facts.get("errno") in (errno.ENOSPC, errno.EDQUOT)
        if not full or not isinstance(storage, LocalStorage) or not storage.release_reserve():
            raise
        done = work()
    keep_reserve(storage)
    return done
