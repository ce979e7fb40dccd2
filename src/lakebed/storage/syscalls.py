"""System calls of the store on local disk, in groups of a few, and what their errors mean. POSIX only."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.storage.contract import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_WAIT_S = 10.0
"""How long a lock is waited for. It is held for a few fsyncs; longer only by a process that stands still."""

LOCK = ".lock"
"""How the name of a lock file ends."""

_LOCKLESS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
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
        "not permitted: the file system may lack hard links, which atomic creation needs, or be immutable",
    ),
    errno.EOPNOTSUPP: (
        Code.STORE_REFUSED,
        "the file system lacks hard links, which atomic creation needs: use another one",
    ),
    errno.EAGAIN: (
        Code.STORE_UNAVAILABLE,
        "another process holds the lock beside it: try again later, and see which one stands still",
    ),
    errno.ELOOP: (Code.STORE_REFUSED, "symbolic link where a file is expected"),
}
_UNANSWERED = frozenset({errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EINTR, errno.EHOSTDOWN})
"""What a network mount reports when the server did not answer: it may have done what was asked."""
_TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EAGAIN, errno.ESTALE})


class explained:  # noqa: N801 - read as a word: with explained("read", path)
    """Turn a system error into one that says what, which path and the remedy.

    A class, because a generator takes three times as long, and a commit makes three of them.
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
    """The error for a system call that failed: what was done, the path and the remedy."""
    transient = error.errno in _TRANSIENT
    unlisted = Code.STORE_UNAVAILABLE if transient else Code.STORE_REFUSED, os.strerror(error.errno or 0)
    code, remedy = _REMEDIES.get(error.errno or 0, unlisted)
    return code(f"cannot {action} {path}: {remedy}", path=path, errno=error.errno, transient=transient)


def write_all(descriptor: int, data: bytes) -> None:
    """Write to the last byte."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def link(temporary: str, target: str) -> PutOutcome:
    """Give the temporary the name; EXISTS: the name is taken by another file.

    Raises OSError if the system refused: the name is not given then.
    """
    try:
        os.link(temporary, target, follow_symlinks=False)
    except FileExistsError:
        with suppress(OSError):
            if os.path.samestat(os.lstat(temporary), os.lstat(target)):
                return PutOutcome.CREATED  # NFS: our own success, retransmitted
        return PutOutcome.EXISTS
    except OSError as error:
        if error.errno not in _UNANSWERED:
            raise
        return PutOutcome.UNCLEAR
    return PutOutcome.CREATED


def unlink_quietly(path: str) -> None:
    """Remove a temporary; one that stays is swept later, and must not hide the error that led here."""
    with suppress(OSError):
        os.unlink(path)


def entries(directory: str) -> Iterator[os.DirEntry[str]]:
    """What lies in a directory; nothing if there is none."""
    with explained("list", directory):
        try:
            with os.scandir(directory) as found:
                yield from list(found)
        except (FileNotFoundError, NotADirectoryError):
            return


def last_modified_of(found: os.stat_result) -> datetime:
    """In microseconds, the most a datetime holds; integer arithmetic, so that one file has one last-modified time."""
    return _EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)


@contextmanager
def locked(target: str) -> Iterator[bool]:
    """Keep every other thread and process that locks the same target out of the block; False: no such directory.

    The lock is a file beside the target that is there only as long as somebody holds it, or died holding it.

    Raises:
        OSError: it was not to be had in time (EAGAIN).
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
            if _locked(descriptor, path):
                try:
                    yield True
                finally:
                    # While it is held, so that none removes a file that another has just locked.
                    unlink_quietly(path)
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                return
        finally:
            os.close(descriptor)
        if clock.monotonic_s() > give_up_s:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        clock.sleep(clock.jitter_s(0.01))


def remove_lock(path: str) -> bool:
    """Remove the lock file of a process that died; False if a living one holds it. Raises FileNotFoundError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        free = _locked(descriptor, path)
        if free:
            unlink_quietly(path)
        return free
    finally:
        os.close(descriptor)


def _locked(descriptor: int, path: str) -> bool:
    """Whether the lock was free, and is still the one that others find at the path."""
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
