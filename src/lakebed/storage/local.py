"""A store on local disk: atomic like an object store, and durable, which general object-store clients are not there.

An object appears by this sequence, which leaves the name whole or absent at any power cut:

1. write all bytes to an exclusive temporary ``.<name>.<token>`` beside the target, fsync it;
2. ``link`` it to the name: fails if the name is taken, unlike ``rename``, and never shows a part, unlike ``O_EXCL``
   on the name itself; unlink the temporary;
3. fsync the directory, and every parent that this store has not yet seen safely on disk.

A failed fsync means that this write failed for good (the kernel may have dropped the pages and forgotten the error):
it is never tried again on the same descriptor. Up to the link a failure is an error and nothing is stored; after the
link others may have seen the name, so a failure to sync the directory is UNCLEAR, and the repeated put, which finds
the name taken, syncs the directory again before it says so. On NFS a retransmitted ``link`` may report its own
success as "exists"; the inode tells. A ``link`` that the server did not answer is UNCLEAR as well.

A replace-if-unchanged compares and renames under a lock (``flock`` of ``.<name>.lock`` beside the target), which others
of its kind respect and nothing else does. A version is the digest of the bytes.

A file that is sent is hard-linked into place when it lies on the same file system, else copied. Its last-modified time
is the time of sending. Directories exist only as long as they hold something. POSIX only.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lakebed.clock import random_token
from lakebed.errors import Code, UsageError
from lakebed.storage.contract import PROBE, Listed, PutOutcome, Stored, Version, Versioned, check_name, check_prefix
from lakebed.storage.digests import DigestingReader, Digests, digest_bytes, digest_descriptor, digest_file
from lakebed.storage.object_size import check_get, check_put
from lakebed.storage.syscalls import (
    LOCK,
    entries,
    explained,
    explanation,
    last_modified_of,
    link,
    locked,
    remove_lock,
    unlink_quietly,
    write_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

Durability = Literal["fsync", "none"]

_SYNCED_DIRECTORIES_MAX = 10_000  # a path of about 100 bytes each: 1 MB
_INSIDE_MAX = 10_000  # likewise
_PARENT_RACES_MAX = 20  # each needs a delete to prune the very directory between our mkdir and our open
_LEFT_OVER = re.compile(
    rf"(.*/)?\.[^/]+(\.[0-9a-f]{{32}}|{re.escape(LOCK)})|{re.escape(PROBE)}/[0-9a-f]{{32}}", re.DOTALL
)


class LocalStorage:
    """Objects as files below a root directory, which need not exist yet."""

    shared = True

    def __init__(self, root: Path, *, durability: Durability = "fsync") -> None:
        """``durability="none"`` skips every fsync (0.04 instead of 0.4 ms a put): for tests, never for data."""
        if durability not in ("fsync", "none"):
            raise Code.ARGUMENT_INVALID(f"durability must be 'fsync' or 'none', not {durability!r}")
        self._root = os.path.realpath(root)
        self._durable = durability == "fsync"
        self._synced: set[str] = set()
        # Folders known to lie inside: to ask again cost a seventh of a lookup. A link is a mistake, not an attack.
        self._inside: dict[str, str] = {}
        self.url = Path(self._root).as_uri().rstrip("/")

    def __repr__(self) -> str:
        return f"LocalStorage({self.url!r})"

    @property
    def root(self) -> Path:
        """The root directory, with symbolic links resolved."""
        return Path(self._root)

    def create(self, name: str, data: bytes) -> PutOutcome:
        """Put create-if-absent, durably."""
        target = self._path(name)
        with explained("create", target):
            # Who has lost need not write first.
            outcome = self._create(target, data) if self._found(target) is None else PutOutcome.EXISTS
        with suppress(OSError):
            self._sync_directory(os.path.dirname(target))
            return outcome
        return PutOutcome.UNCLEAR

    def replace(self, name: str, data: bytes) -> None:
        """Put atomically over whatever is there, durably."""
        target = self._place(name)
        with explained("replace", target):
            self._replace(target, data)
            self._sync_directory(os.path.dirname(target))

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        """Put over that version, durably: a lock beside the file keeps others of this machine, and of NFS, out."""
        target = self._place(name)
        with explained("replace", target), locked(target) as there:
            found = self.get_versioned(name) if there else None
            same = found is not None and found.version == version
            if same:
                self._replace(target, data)
            try:
                if there:
                    self._sync_directory(os.path.dirname(target))
            except OSError:
                return PutOutcome.UNCLEAR
        if not same:
            self._prune(os.path.dirname(target))  # the lock may have kept a delete from it
        return PutOutcome.CREATED if same else PutOutcome.EXISTS

    def get(self, name: str) -> bytes | None:
        """The whole object; None: not there."""
        target = self._path(name)
        # No context manager: every read of a table looks for two objects that are seldom there.
        try:
            if (found := self._found(target)) is None:
                return None
            check_get(target, found.st_size)
            with open(target, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise explanation("read", target, error) from error

    def get_versioned(self, name: str) -> Versioned | None:
        """The whole object; its version is its digest."""
        data = self.get(name)
        return None if data is None else Versioned(data, Version(digest_bytes(data)))

    def last_modified(self, name: str) -> datetime | None:
        """The file's modification time; None: not there."""
        target = self._path(name)
        with explained("stat", target):
            found = self._found(target)
        return last_modified_of(found) if found is not None and stat.S_ISREG(found.st_mode) else None

    def now(self) -> datetime:
        """The file system's clock: that of the file server where the root is a network mount."""
        with explained("read the clock of", self._root):
            temporary, descriptor = self._open_temporary(os.path.join(self._root, "clock"))
            try:
                return last_modified_of(os.fstat(descriptor))
            finally:
                os.close(descriptor)
                unlink_quietly(temporary)

    def send(self, name: str, path: Path) -> Stored:
        """Move the local file to the name, durably, reading it once for the digests."""
        target = self._place(name)
        with explained("send to", target):
            temporary, digests = self._stage(target, path)
            try:
                if (outcome := link(temporary, target)) is not PutOutcome.CREATED:
                    taken = "the name is taken; every attempt needs a fresh name"
                    unclear = "the file system does not say whether the name was given; check the mount, and try again"
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
        """The file itself, read once beforehand if there is a digest to verify."""
        target = self._place(name)
        with explained("fetch", target):
            if not os.path.isfile(target):
                raise Code.OBJECT_NOT_FOUND(f"no object {name} in {self.url}", name=name)
            found = digest_file(Path(target)).digest if digest is not None else None
        if found != digest:
            raise Code.OBJECT_DAMAGED(
                f"{self.object_url(name)} is damaged: its digest is {found}, {digest} was written; restore the object",
                name=name,
                expected=digest,
                found=found,
            )
        yield Path(target)

    def delete(self, names: Iterable[str]) -> None:
        """Remove files, and the directories that this leaves empty."""
        for name in names:
            target = self._place(name)
            with explained("delete", target), suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(target)
            self._prune(os.path.dirname(target))

    def list(self, prefix: str) -> Iterator[Listed]:
        """Regular files with safe names; symbolic links, dot files and what vanishes meanwhile are left out."""
        folder = check_prefix(prefix)
        waiting = [self._place(folder) if folder else self._root]
        while waiting:
            for entry in entries(waiting.pop()):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError, UsageError):
                        name = check_name(os.path.relpath(entry.path, self._root))
                        found = entry.stat(follow_symlinks=False)
                        yield Listed(name, found.st_size, last_modified_of(found))

    def object_url(self, name: str) -> str:
        """``file:///…``, percent-encoded."""
        return f"{self.url}/{check_name(name)}"

    def delete_temporaries(self, prefix: str, before: datetime) -> int:
        """Remove temporaries, locks and probe objects, left by processes that died in a put or a probe."""
        swept = 0
        folder = check_prefix(prefix)
        waiting = [self._place(folder) if folder else self._root]
        while waiting:
            for entry in entries(waiting.pop()):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif _LEFT_OVER.fullmatch(os.path.relpath(entry.path, self._root)):
                    with explained("sweep", entry.path), suppress(FileNotFoundError):
                        if last_modified_of(entry.stat(follow_symlinks=False)) < before:
                            swept += self._sweep(entry.path)
        return swept

    def _sweep(self, path: str) -> bool:
        """Remove what was left over; a lock only if nobody holds it."""
        if path.endswith(LOCK):
            return remove_lock(path)
        os.unlink(path)
        self._prune(os.path.dirname(path))
        return True

    def _place(self, name: str) -> str:
        """The path of an object; refuses one that a symbolic link leads out of the root."""
        target = self._path(name)
        if os.path.islink(target):
            self._check_within(target)
        return target

    def _path(self, name: str) -> str:
        """The same for whoever looks at the name itself with :meth:`_found`: only what leads to it is known to be."""
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
        """What is at a path of :meth:`_path`, in one look; None: nothing. Refuses as :meth:`_place` does."""
        try:
            found = os.lstat(target)
            if stat.S_ISLNK(found.st_mode):
                self._check_within(target)
                found = os.stat(target)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def _check_within(self, path: str) -> None:
        if not f"{os.path.realpath(path)}/".startswith(f"{self._root.rstrip('/')}/"):
            raise Code.URL_INVALID(f"{path} leads out of the root {self._root} through a symbolic link", path=path)

    def _open_temporary(self, target: str) -> tuple[str, int]:
        """(path, descriptor) of a new temporary beside the target; makes the parents."""
        directory, _, base = target.rpartition("/")
        temporary = f"{directory}/.{base}.{random_token()}"
        for _ in range(_PARENT_RACES_MAX):
            try:
                self._make_parents(directory)
                return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                # A delete pruned the directory just now, or someone removed the tree: it must be made and synced anew.
                self._synced.clear()
        raise Code.STORE_UNAVAILABLE(
            f"cannot create {target}: another process keeps removing its directory", path=target, transient=True
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
        """A synced temporary beside the target with the file's bytes, and their digests."""
        temporary, copy = self._open_temporary(target)
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if self._linked_over(temporary, path):
                    digests = digest_descriptor(source)
                    with suppress(
                        PermissionError
                    ):  # someone else's file keeps its older last-modified time: the careful direction
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

    @staticmethod
    def _linked_over(temporary: str, path: Path) -> bool:
        """Whether the file could be hard-linked in place of the empty temporary; if not, that is still there."""
        second = f"{temporary[:-32]}{random_token()}"
        try:
            os.link(path, second, follow_symlinks=False)
        except OSError:  # another file system, someone else's file, too many links: copying works for all of these
            return False
        os.replace(second, temporary)
        return True

    def _make_parents(self, directory: str) -> None:
        """Make the directory and sync it into its parents, up to one known to be on disk.

        "Known" is what this object synced itself: a directory that is merely there may have been made a moment ago by
        a process that has not synced it yet. Only the root and what is above it are trusted when found.
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
        """Remove the directory and its parents below the root as far as they are empty."""
        while directory != self._root:
            try:
                os.rmdir(directory)
            except OSError:  # not empty, or gone: either way nothing to do above it
                return
            self._synced.discard(directory)
            directory = os.path.dirname(directory)

    def _sync(self, descriptor: int) -> None:
        if self._durable:
            os.fsync(descriptor)

    def _sync_directory(self, directory: str) -> None:
        if self._durable:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
