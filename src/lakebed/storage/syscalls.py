"""System calls of the store on local disk, and the meaning of their errors. POSIX only.

A file is created by a hard link to a temporary, which fails if the name is taken, and is durable when its directory is
synced. On a file system without links the temporary is renamed instead, by a rename that fails if the name is taken. A
link on a network mount may be made and yet report an error: then inodes are compared, or the outcome is unclear. Locks
are advisory, on files beside the data, for replace-if-unchanged.

Errors: StorageError with the action, the path and the remedy (:class:`explained`). Source: link(2), fsync(2), fcntl(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.storage.contract import PROBE, PutOutcome
from lakebed.system import hard_link, rename_exclusively, sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_WAIT_S = 10.0
"""The longest wait for a lock. A lock is held for a few fsyncs, unless its process is stopped."""

LOCK = ".lock"
"""The suffix of lock files."""

_TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.[0-9a-f]{32}", re.DOTALL)
_LEFT_OVER = re.compile(rf"(.*/)?\.[^/]+{re.escape(LOCK)}|{re.escape(PROBE)}/[0-9a-f]{{32}}", re.DOTALL)
_LOCKLESS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_INODES_OF_A_COMMIT = 16
"""More than one commit creates, with its data file, folders and temporaries."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REMEDIES = {
    errno.ENOSPC: (Code.STORE_FULL, "the disk is full: free space or move the table"),
    errno.EDQUOT: (Code.STORE_FULL, "the disk quota is used up: free space or raise the quota"),
    errno.EACCES: (Code.STORE_PERMISSION, "permission denied: give this user read and write access to the root"),
    errno.EROFS: (Code.STORE_PERMISSION, "the file system is mounted read-only: remount it for writing"),
    errno.EMFILE: (Code.STORE_UNAVAILABLE, "too many open files: raise the limit (ulimit -n)"),
    errno.ENFILE: (Code.STORE_UNAVAILABLE, "too many open files on this machine"),
    errno.EIO: (Code.STORE_REFUSED, "the disk reports an input/output error: check the device"),
    errno.EPERM: (
        Code.STORE_PERMISSION,
        "not permitted: the folder or the file may be immutable (lsattr, or chflags on macOS)",
    ),
    errno.EOPNOTSUPP: (
        Code.STORE_REFUSED,
        "the file system has neither hard links nor an exclusive rename, and atomic creation needs one: use another",
    ),
    errno.EAGAIN: (
        Code.STORE_UNAVAILABLE,
        "another process holds the lock beside it: try again later, or end that process if it hangs",
    ),
    errno.ELOOP: (Code.STORE_REFUSED, "symbolic link where a file is expected"),
}
_UNANSWERED = frozenset({errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EINTR, errno.EHOSTDOWN})
"""Errors of a network mount whose server did not answer: the operation may have taken effect."""
_LINKLESS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
"""Errors of a link on a file system that has none, such as FAT."""
_TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EAGAIN, errno.ESTALE})


class explained:  # noqa: N801 - read as a word: with explained("read", path)
    """Converts a system error in the block into one with the action, the path and the remedy.

    A class, because a generator takes three times as long, and a commit enters three blocks.
    """

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: str) -> None:
        self._action, self._path = action, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise explanation(self._action, self._path, error) from error


def explanation(action: str, path: str, error: OSError) -> Error:
    """Return the error for a failed system call: the action, the path and the remedy."""
    transient = error.errno in _TRANSIENT
    unlisted = Code.STORE_UNAVAILABLE if transient else Code.STORE_REFUSED, os.strerror(error.errno or 0)
    code, remedy = _REMEDIES.get(error.errno or 0, unlisted)
    remedy = no_inode_left(path, error) or remedy
    return code(f"cannot {action} {path}: {remedy}", path=path, errno=error.errno, transient=transient)


def no_inode_left(path: str, error: OSError) -> str | None:
    """Return the reason and the remedy if a file system lacks inodes and not bytes; None for any other error.

    ``path`` need not exist. The system reports both kinds of a full disk by one number.
    """
    if error.errno != errno.ENOSPC:
        return None
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    # What was created before the failure may be deleted by now.
    if not found.f_files or found.f_favail > _INODES_OF_A_COMMIT:
        return None
    return (
        f"the file system takes no further file, because {found.f_files - found.f_favail} of its {found.f_files} "
        f"inodes are used (df -i); {found.f_bavail * found.f_frsize:,} bytes are free: run garbage collection, delete "
        "other files, or move the table"
    )


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def link(temporary: str, target: str) -> PutOutcome:
    """Link the temporary to the target; EXISTS: another file has that name.

    On a file system without links the temporary is renamed. Raises OSError if the system refused; then nothing changed.
    """
    try:
        _name(temporary, target)
    except FileExistsError:
        with suppress(OSError):
            if os.path.samestat(os.lstat(temporary), os.lstat(target)):
                return PutOutcome.CREATED  # NFS: this link succeeded, and was retransmitted
        return PutOutcome.EXISTS
    except OSError as error:
        if error.errno not in _UNANSWERED:
            raise
        return PutOutcome.UNCLEAR
    return PutOutcome.CREATED


def _name(temporary: str, target: str) -> None:
    try:
        hard_link(temporary, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _LINKLESS:
            raise
        rename_exclusively(temporary, target)


def link_over(path: Path, temporary: str, second: str) -> bool:
    """Replace a temporary by a hard link to the file, made under the name ``second``; False: nothing changed."""
    try:
        hard_link(path, second)
    except OSError:  # another file system, another user's file, too many links: copying works for all of these
        return False
    os.replace(second, temporary)
    return True


def sync_directory(directory: str) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def unlink_quietly(path: str) -> None:
    """Delete a temporary, ignoring errors: a leftover is deleted later, and the first error must be reported."""
    with suppress(OSError):
        os.unlink(path)


def is_temporary(name: str) -> bool:
    """Return whether a put writes to a path of this name before the object has its own."""
    return _TEMPORARY.fullmatch(name) is not None


def is_left_over(name: str) -> bool:
    """Return whether the path is a temporary, a lock or a probe object, which is not needed after its process ended."""
    return is_temporary(name) or _LEFT_OVER.fullmatch(name) is not None


def remove_left_over(path: str) -> bool:
    """Delete the file and return True; False for a lock that is held."""
    if path.endswith(LOCK):
        return remove_lock(path)
    os.unlink(path)
    return True


def entries(directory: str) -> Iterator[os.DirEntry[str]]:
    """Return the entries of a directory; none if it does not exist."""
    with explained("list", directory):
        try:
            with os.scandir(directory) as found:
                yield from list(found)
        except (FileNotFoundError, NotADirectoryError):
            return


def last_modified_of(found: os.stat_result) -> datetime:
    """Return the modification time in microseconds, the resolution of datetime; in integers, so that it is exact."""
    return _EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)


@contextmanager
def locked(target: str) -> Iterator[bool]:
    """Hold an exclusive lock on the target, against threads and processes; False: its directory does not exist.

    The lock is a file beside the target, which is deleted when the lock is released. A process that dies leaves it.

    Raises:
        OSError: EAGAIN, if the lock was not free within LOCK_WAIT_S.
        UnsafeStoreError: the file system has no locks.
    """
    directory, base = os.path.split(target)
    path = os.path.join(directory, f".{base}{LOCK}")
    give_up_s = clock.monotonic_s() + LOCK_WAIT_S
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except (FileNotFoundError, NotADirectoryError):
            yield False
            return
        try:
            if _try_lock(descriptor, path):
                try:
                    yield True
                finally:
                    # Before the unlock, so that no process deletes a file that another has just locked.
                    unlink_quietly(path)
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                return
        finally:
            os.close(descriptor)
        if clock.monotonic_s() > give_up_s:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        clock.sleep(clock.jitter_s(0.01))


@contextmanager
def turn(directory: str, wait_s: float, pause_s: float) -> Iterator[bool]:
    """Lock a directory during the block, against threads and processes; False: it was not free within ``wait_s``.

    Also False if it does not exist, or the file system has no locks: correctness must not depend on it. The lock is
    tried about twice every ``pause_s``. It is on the directory itself, so a process that dies leaves nothing.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        has_turn = _locked_within(descriptor, wait_s, pause_s)
        try:
            yield has_turn
        finally:
            if has_turn:
                # Closing is not enough: a process that was forked meanwhile has the descriptor too.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _locked_within(descriptor: int, wait_s: float, pause_s: float) -> bool:
    give_up_s = clock.monotonic_s() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.monotonic_s() > give_up_s:
                return False
            clock.sleep(clock.jitter_s(pause_s))
        except OSError:
            return False
        else:
            return True


def remove_lock(path: str) -> bool:
    """Delete the lock file of a process that died; False if a process holds it. Raises FileNotFoundError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        free = _try_lock(descriptor, path)
        if free:
            unlink_quietly(path)
        return free
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, path: str) -> bool:
    """Lock the file; False if it is locked, or is no longer the file at the path."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise
        raise Code.TRUNCATION_UNSUPPORTED(
            f"{path} cannot be locked ({error.strerror}), so a log in this file system cannot be truncated: keep it "
            "whole, or use a file system with flock",
            path=path,
            transient=False,
        ) from error
