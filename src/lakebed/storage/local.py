"""A store on local disk: atomic like an object store, and durable, unlike the local stores of general clients.

An object is created in three steps. After a power cut the name has the whole object or does not exist.

1. Write all bytes to an exclusive temporary ``.<name>.<token>`` beside the target, and fsync it.
2. ``link`` it to the name, and unlink the temporary. Unlike ``rename``, ``link`` fails if the name is taken; unlike
   ``O_EXCL`` on the name itself, it never shows a partial object. On a file system without links the temporary is
   renamed to the name, by a rename that fails if the name is taken.
3. fsync the directory, and each parent that this store has not synced before.

A failed fsync is final (the kernel may have dropped the pages and the error): it is never repeated on the same
descriptor. A failure up to the link is an error, and nothing is stored. After the link other processes may have seen
the name, so a failure to sync the directory is UNCLEAR; the repeated put finds the name taken, and syncs the directory
before it returns EXISTS. On NFS a retransmitted ``link`` may report its own success as "exists"; comparing inodes tells
the cases apart. A ``link`` without an answer from the server is UNCLEAR too.

A replace-if-unchanged compares and renames under a lock (``flock`` of ``.<name>.lock`` beside the target), which only
other replace-if-unchanged calls respect. A version is the digest of the bytes.

A sent file is hard-linked into place if it is on the same file system, else copied. Its last-modified time is the time
of sending. Empty directories are removed. POSIX only.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lakebed.clock import random_token
from lakebed.errors import Code, UsageError
from lakebed.model.checks import shown
from lakebed.storage.contract import (
    Listed,
    Locality,
    PutOutcome,
    Stored,
    Version,
    Versioned,
    check_digest,
    check_get,
    check_name,
    check_prefix,
    check_put,
    hidden,
)
from lakebed.storage.digests import DigestingReader, Digests, digest_bytes, digest_descriptor, digest_file
from lakebed.storage.syscalls import (
    entries,
    explained,
    explanation,
    is_left_over,
    is_temporary,
    last_modified_of,
    link,
    link_over,
    locked,
    remove_left_over,
    sync_directory,
    unlink_quietly,
    write_all,
)
from lakebed.system import sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

Durability = Literal["fsync", "none"]

_SYNCED_DIRECTORIES_MAX = 10_000  # a path of about 100 bytes each: 1 MB
_INSIDE_MAX = 10_000  # likewise
_PARENT_RACES_MAX = 20  # each needs a delete to prune the very directory between our mkdir and our open


def user_path(path: str | Path) -> Path:
    """Return the path that a user wrote, with ``~`` and ``~user`` as their folders.

    Raises UsageError for a user who does not exist, or has no home, and for a NUL.
    """
    text = str(path)
    if "\0" in text:
        raise Code.ARGUMENT_INVALID(f"{text!r} is not a path: it has a NUL character")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        user = text.split("/", 1)[0]
        raise Code.ARGUMENT_INVALID(
            f"{shown(text)} is not a path: {user} stands for the home of a user, and there is none; write ./{user} for "
            "a folder of that name"
        ) from error


class LocalStorage:
    """Objects as files below a root directory, which need not exist yet."""

    locality = Locality.DISK
    cache = None

    def __init__(self, root: Path, *, durability: Durability = "fsync") -> None:
        """``durability="none"`` skips every fsync (0.04 instead of 0.4 ms a put): for tests, never for data."""
        if durability not in ("fsync", "none"):
            raise Code.ARGUMENT_INVALID(f"durability must be 'fsync' or 'none', not {durability!r}")
        self._root = os.path.realpath(root)
        self._durable = durability == "fsync"
        self._synced: set[str] = set()
        # Folders known to lie inside: checking again costs a seventh of a lookup. A symbolic link is assumed a mistake,
        # not an attack.
        self._inside: dict[str, str] = {}
        self.url = Path(self._root).as_uri().rstrip("/")

    def __repr__(self) -> str:
        return f"LocalStorage({self.url!r})"

    @property
    def folder(self) -> Path:
        """The root directory, with symbolic links resolved."""
        return Path(self._root)

    def create(self, name: str, data: bytes) -> PutOutcome:
        """Put create-if-absent, durably."""
        target = self._path(name)
        with explained("create", target):
            # If the name is taken, no temporary is written.
            outcome = self._create(target, data) if self._found(target) is None else PutOutcome.EXISTS
        with suppress(OSError):
            self._sync_directory(os.path.dirname(target))
            return outcome
        return PutOutcome.UNCLEAR

    def replace(self, name: str, data: bytes) -> None:
        """Put atomically and durably, over an existing object too."""
        target = self._checked_path(name)
        with explained("replace", target):
            self._replace(target, data)
            self._sync_directory(os.path.dirname(target))

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        """Put over that version, durably, under a lock that excludes other processes of this machine and of NFS."""
        target = self._checked_path(name)
        with explained("replace", target), locked(target) as has_directory:
            current = self.get_versioned(name) if has_directory else None
            same = current is not None and current.version == version
            if same:
                self._replace(target, data)
            try:
                if has_directory:
                    self._sync_directory(os.path.dirname(target))
            except OSError:
                return PutOutcome.UNCLEAR
        if not same:
            self._prune(os.path.dirname(target))  # a concurrent delete could not, because of the lock file
        return PutOutcome.CREATED if same else PutOutcome.EXISTS

    def read_ranges(self, name: str, byte_ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read parts of an object, each an (offset, length)."""
        target = self._path(name)
        with explained("read", target):
            if self._found(target) is None:
                raise Code.OBJECT_NOT_FOUND(f"no object {name} in {self.url}", name=name)
            with Path(target).open("rb", buffering=0) as file:
                parts = [os.pread(file.fileno(), length, offset) for offset, length in byte_ranges]
        if [len(part) for part in parts] != [length for _, length in byte_ranges]:
            raise OSError(f"{target} ended before the byte ranges {list(byte_ranges)}")
        return parts

    def get(self, name: str) -> bytes | None:
        """Return the whole object; None if it does not exist."""
        target = self._path(name)
        # No context manager, for speed: every read of a table looks for two objects that seldom exist.
        try:
            if (status := self._found(target)) is None:
                return None
            check_get(target, status.st_size)
            with open(target, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise explanation("read", target, error) from error

    def get_versioned(self, name: str) -> Versioned | None:
        """Return the whole object; its version is its digest."""
        data = self.get(name)
        return None if data is None else Versioned(data, Version(digest_bytes(data)))

    def last_modified(self, name: str) -> datetime | None:
        """Return the file's modification time; None if it does not exist."""
        target = self._path(name)
        with explained("stat", target):
            status = self._found(target)
        return last_modified_of(status) if status is not None and stat.S_ISREG(status.st_mode) else None

    def now(self) -> datetime:
        """Return the file system's clock; on a network mount, the server's."""
        with explained("read the clock of", self._root):
            temporary, descriptor = self._open_temporary(os.path.join(self._root, "clock"))
            try:
                return last_modified_of(os.fstat(descriptor))
            finally:
                os.close(descriptor)
                unlink_quietly(temporary)

    def send(self, name: str, path: Path) -> Stored:
        """Move the local file to the name, durably, and compute its digests in one read."""
        target = self._checked_path(name)
        with explained("send to", target):
            temporary, digests = self._stage(target, path)
            try:
                if (outcome := link(temporary, target)) is not PutOutcome.CREATED:
                    taken = "the name is taken; every attempt needs a fresh name"
                    unclear = "the file system did not confirm the link; check the mount, and try again"
                    raise Code.PUT_UNCLEAR(
                        f"cannot send to {target}: {taken if outcome is PutOutcome.EXISTS else unclear}",
                        name=name,
                        transient=False,
                    )
            finally:
                unlink_quietly(temporary)
            self._sync_directory(os.path.dirname(target))
            last_modified = last_modified_of(os.stat(target))
            with suppress(FileNotFoundError):
                os.unlink(path)
        return Stored(digests.size_bytes, digests.digest, digests.footer_bytes, digests.footer_digest, last_modified)

    @contextmanager
    def fetch(self, name: str, *, digest: str | None = None) -> Iterator[Path]:
        """The file itself, which is read once before if there is a digest to verify."""
        target = self._checked_path(name)
        with explained("fetch", target):
            if not os.path.isfile(target):
                raise Code.OBJECT_NOT_FOUND(f"no object {name} in {self.url}", name=name)
            computed = digest_file(Path(target)).digest if digest is not None else None
        check_digest(self.object_url(name), name, digest, computed)
        yield Path(target)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and directories that become empty."""
        for name in names:
            target = self._checked_path(name)
            with explained("delete", target), suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(target)
            self._prune(os.path.dirname(target))

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Regular files with safe names; symbolic links, dot files and files deleted meanwhile are left out."""
        for name, entry in self._walk(prefix):
            if name > after and not hidden(name) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError, UsageError):
                    status = entry.stat(follow_symlinks=False)
                    yield Listed(check_name(name), status.st_size, last_modified_of(status))

    def object_url(self, name: str) -> str:
        """Return ``file:///…``, percent-encoded."""
        return f"{self.url}/{check_name(name)}"

    def temporaries(self, prefix: str) -> Iterator[Listed]:
        """Return the files that puts write before they link them to their names."""
        for name, entry in self._walk(prefix):
            if is_temporary(name):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield Listed(name, status.st_size, last_modified_of(status))

    def delete_temporaries(self, prefix: str, before: datetime) -> int:
        """Delete temporaries, locks and probe objects that processes left when they died in a put or a probe."""
        deleted = 0
        for name, entry in self._walk(prefix):
            if is_left_over(name):
                with explained("delete", entry.path), suppress(FileNotFoundError):
                    if last_modified_of(entry.stat(follow_symlinks=False)) < before:
                        deleted += remove_left_over(entry.path)
                        self._prune(os.path.dirname(entry.path))
        return deleted

    def _walk(self, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Everything below a folder except directories, with its path below the root."""
        folder = check_prefix(prefix)
        directories = [self._checked_path(folder) if folder else self._root]
        while directories:
            for entry in entries(directories.pop()):
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                else:
                    yield entry.path.removeprefix(self._root).lstrip("/"), entry

    def _checked_path(self, name: str) -> str:
        """Return the path of an object. Raises UsageError if a symbolic link leads out of the root."""
        target = self._path(name)
        if os.path.islink(target):
            self._check_within(target)
        return target

    def _path(self, name: str) -> str:
        """As :meth:`_checked_path`, for callers that use :meth:`_found`, which checks the last segment itself."""
        folder, _, base = check_name(name).rpartition("/")
        directory = self._inside.get(folder)
        if directory is None:
            directory = os.path.join(self._root, folder) if folder else self._root
            self._check_within(directory)
            if os.path.isdir(directory):
                if len(self._inside) >= _INSIDE_MAX:
                    self._inside.clear()
                self._inside[folder] = directory
        return f"{directory}/{base}"

    def _found(self, target: str) -> os.stat_result | None:
        """Return the stat of a path of :meth:`_path`; None if there is nothing. Raises as :meth:`_checked_path`."""
        try:
            status = os.lstat(target)
            if stat.S_ISLNK(status.st_mode):
                self._check_within(target)
                status = os.stat(target)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status

    def _check_within(self, path: str) -> None:
        if not f"{os.path.realpath(path)}/".startswith(f"{self._root.rstrip('/')}/"):
            raise Code.URL_INVALID(f"{path} leads out of the root {self._root} through a symbolic link", path=path)

    def _open_temporary(self, target: str) -> tuple[str, int]:
        """(path, descriptor) of a new temporary beside the target; creates the parents."""
        directory, _, base = target.rpartition("/")
        temporary = f"{directory}/.{base}.{random_token()}"
        for _ in range(_PARENT_RACES_MAX):
            try:
                self._make_parents(directory)
                return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                # A delete has pruned the directory, or the tree was removed: create and sync it again.
                self._synced.clear()
        raise Code.STORE_UNAVAILABLE(
            f"cannot create {target}: its directory cannot be made, or another process keeps removing it",
            path=target,
            transient=True,
        )

    def _replace(self, target: str, data: bytes) -> None:
        temporary = self._write_temporary(target, data)
        try:
            os.replace(temporary, target)
        except OSError:
            unlink_quietly(temporary)
            raise

    def _create(self, target: str, data: bytes) -> PutOutcome:
        temporary = self._write_temporary(target, data)
        try:
            return link(temporary, target)
        finally:
            unlink_quietly(temporary)

    def _write_temporary(self, target: str, data: bytes) -> str:
        check_put(target, data)
        temporary, descriptor = self._open_temporary(target)
        try:
            try:
                write_all(descriptor, data)
                self._sync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            unlink_quietly(temporary)
            raise
        return temporary

    def _stage(self, target: str, path: Path) -> tuple[str, Digests]:
        """Make a synced temporary beside the target with the file's bytes; return it and their digests."""
        temporary, copy = self._open_temporary(target)
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if link_over(path, temporary, f"{temporary[:-32]}{random_token()}"):
                    digests = digest_descriptor(source)
                    # Another user's file keeps its older last-modified time, which is safe.
                    with suppress(PermissionError):
                        os.utime(source)
                    self._sync(source)
                else:
                    reader = DigestingReader(source)
                    for chunk in reader.chunks():
                        write_all(copy, chunk)
                    digests = reader.result()
                    self._sync(copy)
            finally:
                os.close(source)
        except OSError:
            unlink_quietly(temporary)
            raise
        finally:
            os.close(copy)
        return temporary, digests

    def _make_parents(self, directory: str) -> None:
        """Create the directory and sync it into its parents, up to one that this object has synced before.

        A directory that exists may have been created by a process that has not synced it yet, so it is synced too.
        Only the root and its parents count as synced if they exist.
        """
        if directory in self._synced:
            return
        inside = len(directory) > len(self._root)
        if inside or not os.path.isdir(directory):
            parent = os.path.dirname(directory)
            self._make_parents(parent)
            with suppress(FileExistsError):
                os.mkdir(directory)
            self._sync_directory(parent)
        if len(self._synced) > _SYNCED_DIRECTORIES_MAX:
            self._synced.clear()
        self._synced.add(directory)

    def _prune(self, directory: str) -> None:
        """Remove the directory and its parents below the root while they are empty."""
        while directory != self._root:
            try:
                os.rmdir(directory)
            except OSError:  # not empty, or removed by another process: its parents are not empty either
                return
            self._synced.discard(directory)
            directory = os.path.dirname(directory)

    def _sync(self, descriptor: int) -> None:
        if self._durable:
            sync(descriptor)

    def _sync_directory(self, directory: str) -> None:
        if self._durable:
            sync_directory(directory)
