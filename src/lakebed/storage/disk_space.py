"""Space on local disk: folders for temporary files, and a reserve that lets a full disk be emptied.

Temporary folders are removed when their block ends, however it ends. An operating system error while writing becomes a
StorageError that names the folder, because the remedy is there. Those of processes that were killed have the process in
their names: services and garbage collection delete them.

The reserve. Garbage collection deletes files only after it has committed an entry, so a disk without a free byte, or
without a free inode, could never be emptied. Every instance on local disk therefore keeps a reserve of 1 MiB in 32
preallocated files. If the disk is full, garbage collection releases the reserve, runs again, and allocates it again at
the end. Object stores need none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lakebed.clock import random_token
from lakebed.errors import Code, StorageError
from lakebed.storage.processes import is_mark_gone, owner_mark
from lakebed.storage.syscalls import no_inode_left
from lakebed.system import allocate

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.storage.contract import Storage

RESERVE = ".reserve"
RESERVE_BYTES = 1024 * 1024
"""Bytes of the reserve: enough for some twenty of the largest entries of garbage collection (37 KB for 1,000 files)."""
RESERVE_FILES = 32
"""Files of the reserve, an inode each: a round of garbage collection creates some ten objects before it deletes."""

Done = TypeVar("Done")


@contextlib.contextmanager
def scratch_folder(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder that only this user can read, by default below TMPDIR, and remove it with its content after the
    block.

    Python's own TemporaryDirectory leaves the folder behind if an interrupt comes while it is made or removed.
    """
    if parent is None:
        from tempfile import gettempdir

        parent = Path(gettempdir())
    folder = parent / f"{scratch_prefix(purpose)}{random_token()}"
    try:
        with writing_to(parent):
            folder.mkdir(mode=0o700, parents=True)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        # An interrupt may have come after the folder was made, or while it was removed.
        shutil.rmtree(folder, ignore_errors=True)
        raise


def scratch_prefix(purpose: str) -> str:
    """Return how the name of a scratch folder of this process begins: ``lakebed-PURPOSE-OWNER-``."""
    mark = owner_mark()
    return f"lakebed-{purpose}-{mark}-" if mark else f"lakebed-{purpose}-"


def delete_abandoned_folders(parent: Path | None = None) -> list[Path]:
    """Delete the scratch folders, by default below TMPDIR, that processes of this user left when they were killed.

    Returns them. A folder stays if its process may live: one of another machine or container, or that is not known.
    """
    if parent is None:
        from tempfile import gettempdir

        parent = Path(gettempdir())
    deleted = []
    with contextlib.suppress(OSError):
        for found in os.scandir(parent):
            named = _SCRATCH.fullmatch(found.name)
            if named is None or not is_mark_gone(named[1]):
                continue
            with contextlib.suppress(OSError):
                if found.is_dir(follow_symlinks=False) and found.stat(follow_symlinks=False).st_uid == os.getuid():
                    shutil.rmtree(found.path, ignore_errors=True)
                    deleted.append(Path(found.path))
    return deleted


_SCRATCH = re.compile(r"lakebed-[a-z]+-([0-9a-f]{8}\.[0-9]+\.[0-9]+\.[0-9]+)-\w+")


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Convert operating system errors inside the block into a StorageError about the folder."""
    try:
        yield
    except OSError as error:
        reason = no_inode_left(str(folder), error) or error.strerror or str(error)
        raise Code.TEMPORARY_STORAGE_FAILED(
            f"cannot write in {folder}: {reason}. Make room there, or choose another folder for temporary files",
            folder=str(folder),
            errno=error.errno,
        ) from error


def keep_reserve(storage: Storage) -> None:
    """Allocate the reserve, if the storage is on a local disk with room for it and has none."""
    if storage.folder is None:
        return
    folder = storage.folder / RESERVE
    try:
        folder.mkdir()
    except OSError:
        return
    try:
        for number in range(RESERVE_FILES):
            with (folder / str(number)).open("xb") as file:
                allocate(file.fileno(), RESERVE_BYTES // RESERVE_FILES)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def with_reserve(storage: Storage, work: Callable[[], Done]) -> Done:
    """Run work that frees space; if the disk is full, release the reserve and run it once more.

    ``work`` must be able to start again after a failure at any point. Raises as it does.
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


def release_reserve(storage: Storage) -> bool:
    """Delete the reserve; False if there is none."""
    if storage.folder is None:
        return False
    try:
        shutil.rmtree(storage.folder / RESERVE)
    except OSError:
        return False
    return True
