"""The newest head that a process of this machine has proven, in the cache on local disk, for the next process.

Kept are the manifest of a checkpoint and the entries after it, each under its digest, and a note of the newest of them.
Manifest and entries never change. The note does, and says nothing for certain: the log may have gone on since, have
been truncated or restored. So a remembered head is published only after the log has shown its last entry, of that
digest, near its end (:mod:`lakebed.log.tail`); the chain of digests then proves everything before. Until then it may be
read ahead of the proof.

Rules. Without a cache nothing is remembered. What is missing, damaged or of another format is not remembered either.
Core type: :class:`RememberedHeads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lakebed.log.entry import decode, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.storage.disk_cache import DiskCache


class Remembered(Struct, frozen=True):
    """The manifest of a checkpoint (None: there is none), and the entries after it, in order."""

    manifest: bytes | None
    entries: list[bytes]


class _Note(Struct, frozen=True, array_like=True):
    """The version and the digest of the newest entry; the version and the digest of the manifest, 0 and "": none."""

    version: int
    digest: str
    base: int
    manifest: str


class RememberedHeads:
    """The remembered head of one log. ``cache`` is that of its data; None: there is none."""

    def __init__(self, cache: DiskCache | None, url: str, identity: str) -> None:
        self._cache = cache
        self._identity = identity
        self._key = f"head/{url}/{identity}"
        self._manifest = (0, "")
        self._noted: _Note | None = None

    def read(self) -> Remembered | None:
        """Return what is remembered, without a request; None: nothing, or a part of it is missing."""
        data = None if self._cache is None else self._cache.get(self._key)
        if self._cache is None or data is None:
            return None
        try:
            note = msgspec.msgpack.decode(data, type=_Note)
        except msgspec.DecodeError:
            return None
        manifest = self._cache.get(_manifest_key(note.manifest)) if note.manifest else None
        if note.manifest and manifest is None:
            return None
        entries, digest = [], note.digest
        for version in range(note.version, note.base, -1):
            entry = self._cache.get(_entry_key(digest))
            if entry is None:
                return None
            entries.append(entry)
            digest = decode(entry, self._identity, version, None).previous
        self._noted, self._manifest = note, (note.base, note.manifest)
        return Remembered(manifest, entries[::-1])

    def keep_manifest(self, version: int, data: bytes) -> None:
        """Keep the manifest of a checkpoint that was read or written."""
        if self._cache is not None:
            self._manifest = version, digest_of(data)
            self._cache.keep(_manifest_key(self._manifest[1]), data)

    def keep(self, version: int, digest: str, entries: Iterable[bytes] = ()) -> None:
        """Remember a proven head, of which these entries are the last ones."""
        base, manifest = self._manifest
        note = _Note(version, digest, base, manifest)
        if self._cache is None or note == self._noted or base > version:
            return
        for entry in entries:
            self._cache.keep(_entry_key(digest_of(entry)), entry)
        self._cache.put(self._key, msgspec.msgpack.encode(note))
        self._noted = note


def _manifest_key(digest: str) -> str:
    return f"manifest/{digest}"


def _entry_key(digest: str) -> str:
    return f"entry/{digest}"
