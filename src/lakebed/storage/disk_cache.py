"""A cache on local disk of what was read from an object store, shared by the processes of one user.

It holds immutable bytes, which every reader can tell from others: whole objects under their digest, and parts of
objects under a key that begins with the digest of the object. So it needs no list of what is valid: garbage-collected
files are never asked for again, and age out. Beside them are notes of what was the newest, which are replaced, and
which readers have the store confirm. Callers verify bytes before they keep them, as they do without a cache. An
entry is verified again whenever it is read; one that is damaged, cut short or misplaced is a miss, and is removed.

Each entry is one file: written under another name, then renamed, so that a process which is killed leaves no half
entry. There is no index to lock or to damage. The bytes of all entries are counted by the length of a file, to which
each process appends: an entry that would exceed the bound is not kept, and starts a sweep. The sweep (one at a time, by
a file lock) deletes the entries that were used least recently, by their modification times, which a read renews rarely.

Rules. A cache never fails: without room, without permission or with a damaged disk, everything is a miss. Its folder
can be read by its owner only, and may be deleted at any time. Source: decision 0080.

Core types: :class:`DiskCache`, :func:`fetched`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import xxhash
from msgspec import Struct

from lakebed import clock
from lakebed.clock import random_token
from lakebed.storage.digests import digest_file
from lakebed.system import hard_link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

_LOG = logging.getLogger("lakebed.storage")

BYTES_MAX = 4 * 1024 * 1024 * 1024
"""The default bound: the files of some 50 million rows of 80 bytes, and a small part of most disks."""

_LAYOUT = "v1"
"""The folder of a cache of this form. Other versions of Lakebed ignore it, and their folders are ignored here."""

_ENTRIES, _NEW, _WRITTEN, _SWEEPING = "entries", "new", "written", "sweeping"
"""The folder of the entries, that of those being written, the count, and the lock of a sweep."""

_OBJECT = "object/"
"""How the keys of whole objects begin."""

_DIGEST_BYTES = 16
_UNIT_BYTES = 4096
"""What a file takes at least, on most file systems; one byte of the file with the count stands for as many."""


class CacheLimits(Struct, frozen=True):
    """The limits of a cache, but for its bound."""

    touch_s: float = 600.0
    """A read renews the modification time of an entry if it is older."""

    left_s: float = 3600.0
    """An unfinished entry, or a link to one, that is older was left by a process that was killed."""

    swept: float = 7 / 8
    """A sweep leaves this share of the bound, and no entry takes more than the rest."""


class DiskCacheUse(Struct):
    """What a cache did for this process: entries read, and bytes that were not requested from the store."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0


USE = DiskCacheUse()
"""The sum over all caches of this process."""


class DiskCache:
    """The entries in one folder. Safe to use from many threads and processes."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX, limits: CacheLimits | None = None) -> None:
        """Nothing is read or written yet."""
        self.folder = folder
        self.bytes_max = bytes_max
        self.limits = limits or CacheLimits()
        self._root = folder / _LAYOUT
        self._usable: bool | None = None
        self._sweeping: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"DiskCache({str(self.folder)!r}, {self.bytes_max})"

    # -- parts --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """Return the bytes that were kept under a key; None: there are none."""
        data = self._verified(key) if self._is_usable() else None
        if data is None:
            USE.misses += 1
        else:
            USE.hits += 1
            USE.hit_bytes += len(data)
        return data

    def _verified(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            content = memoryview(os.read(descriptor, found.st_size))
            data = bytes(content[:-_DIGEST_BYTES])
            if len(content) != found.st_size or content[-_DIGEST_BYTES:] != _digest(key, data):
                _remove(path)
                return None
            self._touch(descriptor, found.st_mtime)
        except OSError:
            _remove(path)
            return None
        finally:
            os.close(descriptor)
        return data

    def keep(self, key: str, data: bytes) -> None:
        """Keep verified bytes under a key, which no other bytes ever have."""
        path = self._path(key)
        with suppress(OSError):
            if self._has_room(path, len(data) + _DIGEST_BYTES):
                self._write(path, key, data)

    def put(self, key: str, data: bytes) -> None:
        """Keep a note under a key, in place of the one before. It says what was so once: the store must confirm it."""
        path = self._path(key)
        with suppress(OSError):
            if self._is_usable() and (path.exists() or self._has_room(path, len(data) + _DIGEST_BYTES)):
                self._write(path, key, data)

    def _write(self, path: Path, key: str, data: bytes) -> None:
        with self._new_entry(path, len(data) + _DIGEST_BYTES) as new, _opened(new, os.O_EXCL) as file:
            file.write(data)
            file.write(_digest(key, data))

    # -- whole objects --------------------------------------------------------------------------------------------

    def link(self, digest: str) -> Path | None:
        """Return a link to the object with this digest, to be deleted after use; None: it is not here."""
        link = self._root / _NEW / random_token()
        found = self._is_usable() and self._linked(digest, link)
        if found:
            USE.hits += 1
            with suppress(OSError):
                USE.hit_bytes += link.stat().st_size
        else:
            USE.misses += 1
        return link if found else None

    def _linked(self, digest: str, link: Path) -> bool:
        entry = self._path(_OBJECT + digest)
        try:
            link_or_copy(entry, link)
            if digest_file(link).digest != digest:
                _remove(entry)
                _remove(link)
                return False
            with suppress(OSError):  # It may have been swept.
                self._touch(entry, entry.stat().st_mtime)
        except OSError:
            _remove(link)
            return False
        return True

    def keep_file(self, digest: str, path: Path) -> None:
        """Keep a verified object with this digest, the file at a path, which is not changed any more."""
        with suppress(OSError):
            size_bytes, entry = path.stat().st_size, self._path(_OBJECT + digest)
            if self._has_room(entry, size_bytes):
                with self._new_entry(entry, size_bytes) as new:
                    link_or_copy(path, new)

    # -- the folder -----------------------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        name = xxhash.xxh3_128_hexdigest(key.encode())
        return self._root / _ENTRIES / name[:2] / name[2:]

    def _is_usable(self) -> bool:
        """Return whether the folder is there, and only this user can read it; made at first use."""
        if self._usable is None:
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._root.mkdir(mode=0o700, exist_ok=True)
                for name in (_ENTRIES, _NEW):
                    (self._root / name).mkdir(mode=0o700, exist_ok=True)
                found = self._root.lstat()
                mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
                if not mine or stat.S_IMODE(found.st_mode) & 0o77:
                    raise PermissionError(f"{self._root} is not a folder that only this user can read")
                self._usable = True
            except OSError as error:
                _LOG.warning("nothing is cached in %s: %s", self.folder, error.strerror or error)
                self._usable = False
        return self._usable

    def _has_room(self, path: Path, size_bytes: int) -> bool:
        """Return whether to keep an entry of this size there: not if it is there already, or exceeds the bound."""
        left_bytes = self.bytes_max * (1 - self.limits.swept)
        if not self._is_usable() or _charge(size_bytes) > left_bytes or path.exists():
            return False
        if self._counted() + _charge(size_bytes) > self.bytes_max:
            self._start_sweep()
            return False
        return True

    @contextmanager
    def _new_entry(self, path: Path, size_bytes: int) -> Iterator[Path]:
        """Return where to write an entry; after the block it is at its path. Errors of the disk end it silently."""
        new = self._root / _NEW / random_token()
        try:
            yield new
            if not path.exists():
                self._count(size_bytes)
            try:
                new.replace(path)
            except FileNotFoundError:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                new.replace(path)
        except OSError:
            _remove(new)
            # Someone may have deleted the folder; the next use makes it again.
            if not new.parent.exists():
                self._usable = None
        except BaseException:
            _remove(new)
            raise

    def _touch(self, entry: int | Path, modified_s: float) -> None:
        now_s = clock.now().timestamp()
        if now_s - modified_s >= self.limits.touch_s:
            with suppress(OSError):
                os.utime(entry, (now_s, now_s))

    # -- the bound ------------------------------------------------------------------------------------------------

    def _counted(self) -> int:
        try:
            return _UNIT_BYTES * (self._root / _WRITTEN).stat().st_size
        except OSError:
            return 0

    def _count(self, size_bytes: int) -> None:
        with _opened(self._root / _WRITTEN, os.O_APPEND) as file:
            file.write(bytes(_charge(size_bytes) // _UNIT_BYTES))

    def _start_sweep(self) -> None:
        if self._sweeping is None or not self._sweeping.is_alive():
            self._sweeping = threading.Thread(target=self.sweep, name="lakebed-cache-sweep")
            # An interpreter that ends starts no thread; the next process sweeps.
            with suppress(RuntimeError):
                self._sweeping.start()

    def wait(self) -> None:
        """Wait until this cache is not being swept by this process."""
        if self._sweeping is not None and self._sweeping.is_alive():
            self._sweeping.join()

    def sweep(self) -> None:
        """Delete what was used least recently until there is room again, and what killed processes left."""
        with suppress(OSError), _opened(self._root / _SWEEPING) as lock, _locked(lock):
            self._delete_left()
            entries = sorted(self._entries())
            total = sum(size_bytes for _, size_bytes, _ in entries)
            for _, size_bytes, path in entries:
                if total <= self.bytes_max * self.limits.swept:
                    break
                _remove(path)
                total -= size_bytes
            new = self._root / _NEW / random_token()
            with _opened(new, os.O_EXCL) as file:
                file.truncate(total // _UNIT_BYTES)
            # What others have appended meanwhile is lost, and counted by the next sweep.
            new.replace(self._root / _WRITTEN)

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Return modification time, size and path of all entries."""
        for part in _scanned(self._root / _ENTRIES):
            for entry in _scanned(part):
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    yield found.st_mtime, _charge(found.st_size), Path(entry.path)

    def _delete_left(self) -> None:
        before_s = clock.now().timestamp() - self.limits.left_s
        for entry in _scanned(self._root / _NEW):
            with suppress(OSError):
                # Not the modification time: a link has that of its entry.
                if entry.stat(follow_symlinks=False).st_ctime < before_s:
                    _remove(Path(entry.path))


def usual_folder() -> Path | None:
    """Return the folder of a service's cache: ``lakebed`` below ``XDG_CACHE_HOME``, by default ``~/.cache``.

    None for a user without a home.
    """
    with suppress(RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lakebed"
    return None


@contextmanager
def fetched(cache: DiskCache | None, digest: str, fetch: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    """Return the object with this digest as a local file for the length of the block; do not change the file.

    From the cache, if there is one and it has the object, else from ``fetch``, which verifies it. Raises as that does.
    """
    found = None if cache is None else cache.link(digest)
    if cache is None or found is None:
        with fetch() as path:
            if cache is not None:
                cache.keep_file(digest, path)
            yield path
        return
    try:
        yield found
    finally:
        _remove(found)


def _digest(key: str, data: bytes) -> bytes:
    """Return the digest of an entry: with its key, so that one under the name of another is damaged."""
    whole = xxhash.xxh3_128(key.encode())
    whole.update(data)
    return whole.digest()


def _charge(size_bytes: int) -> int:
    """Return what a file of this size takes."""
    return -(-size_bytes // _UNIT_BYTES) * _UNIT_BYTES


def _opened(path: Path, flags: int = 0) -> BinaryIO:
    """Open a file to write, which is made for this user alone if it does not exist. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600), "wb")


def _scanned(folder: Path | os.DirEntry[str]) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return ()


@contextmanager
def _locked(file: BinaryIO) -> Iterator[None]:
    """Hold the lock of a file for the length of the block. Raises BlockingIOError if another holds it.

    On a file system without locks nothing is held: two sweeps at a time delete the same entries.
    """
    has_lock = True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        has_lock = False
    try:
        yield
    finally:
        # Unlocked by name: a child that was forked meanwhile has the file open, and would keep the lock.
        if has_lock:
            fcntl.flock(file, fcntl.LOCK_UN)


def link_or_copy(source: Path, target: Path) -> None:
    """Make a file a link to another, or a copy on another file system, or on one without links. Raises OSError."""
    try:
        hard_link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # The compression that it imports is 2 ms of a lookup by a new process.
        import shutil

        shutil.copyfile(source, target, follow_symlinks=False)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
