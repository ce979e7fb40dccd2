"""Snapshots: the whole state after one entry, so that opening a log need not read all of it.

A manifest names the parts that hold what there may be millions of; parts that have not changed since the snapshot
before are named again, so writing one costs as much as changed. Parts are written first, the manifest last, over the
one before.

Derived and never authoritative: a snapshot may be older than the newest entry, and one that is missing, damaged,
another log's or short of a part only costs reading the entries. Written when the entries since the last one outgrow
half its size, so that the work of writing stays a constant share of the log's, and a reader never has to follow more
than that much.

Parts are mapped into memory, not read: they take page cache, and only what is looked at.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa

from lakebed import clock
from lakebed.errors import DamagedError, NotFoundError, StorageError
from lakebed.files import part_folder, part_name, snapshot_name
from lakebed.log import entry as entries
from lakebed.state.columns import Form, Part
from lakebed.state.machine import State
from lakebed.storage.contract import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.state.image import Image
    from lakebed.state.machine import Machine
    from lakebed.storage.contract import Storage

PART_AGE_MIN = timedelta(days=1)
"""A part that no manifest names is swept when it is so old: its manifest may be on its way."""

INLINE_BYTES = 128 * 1024
"""Parts of no more in all are kept in the manifest: a small table then opens with one request."""

_FETCHES = 8
_PUTS_MAX = 5


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where one log's snapshots lie: always beside the data, wherever the entries are kept.

    With a number it is the place of one that is kept (:mod:`lakebed.log.kept`), else of the newest.
    """

    storage: Storage
    prefix: str
    number: int | None = None

    @property
    def manifest(self) -> str:
        """The object that is written last."""
        return snapshot_name(self.prefix, self.number)

    @property
    def parts(self) -> str:
        """Where the parts lie."""
        return part_folder(self.prefix, self.number)

    def part(self, token: str) -> str:
        """The object of a part."""
        return part_name(self.prefix, token, self.number)


@dataclass(frozen=True, slots=True)
class Head(Generic[State]):
    """The newest entry known: its number, its digest (the next one's ``previous``), and the state after it."""

    number: int
    digest: str
    state: State


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part's object: its token, the digest of its bytes, and their count."""

    token: str
    digest: str
    size_bytes: int


AnyPart = StoredPart | bytes
"""A part as a manifest has it: named, or where all are small together, its own bytes."""


class Snapshots(Generic[State]):
    """The snapshot of one log, and when the next is due."""

    def __init__(self, place: SnapshotPlace, identity: str, machine: Machine[State, Any, Any]) -> None:
        self._storage = place.storage
        self._place = place
        self._identity = identity
        self._machine = machine
        self._size_bytes = 0
        self._since_bytes = 0

    def newest(self) -> Head[State] | None:
        """The state of the stored snapshot; None if there is none that can be trusted: then read the log."""
        try:
            return self.read()
        except DamagedError:
            return None

    def read(self) -> Head[State] | None:
        """The stored snapshot; None if there is none. Raises DamagedError if it, or a part, cannot be trusted."""
        manifest = self._manifest()
        if manifest is None:
            return None
        parts = {kind: self._opened(kind, stored) for kind, stored in manifest.parts.items()}
        state = self._machine.restore(manifest.document, parts)
        self._size_bytes = manifest.size_bytes
        return Head(manifest.number, manifest.entry_digest, state)

    def noted(self, entry_bytes: int) -> None:
        """Take note of a commit of that size."""
        self._since_bytes += entry_bytes

    def due(self, entry_bytes: int = 0) -> bool:
        """Whether a snapshot should be written, after another entry of that size."""
        return self._since_bytes + entry_bytes > self._size_bytes // 2

    def write(self, head: Head[State]) -> Head[State] | None:
        """Write the snapshot of a head; returns the same head resting on what was written.

        None: it was not written, because there is a newer one, or because the store failed: the commits stand, and
        must not look failed for want of a short cut; a later one tries again.
        """
        self._since_bytes = 0
        image = self._machine.image(head.state)
        small = _small(image)
        try:
            present = None if small else self._trusted_manifest()
            if present is not None and present.number >= head.number:
                self._size_bytes = present.size_bytes
                return None
            there = set() if present is None else {part for stored in present.parts.values() for part in stored}
            self._write(head, image, self._inlined if small else partial(self._stored, there=there))
        except StorageError:
            return None
        return Head(head.number, head.digest, image.state)

    def write_whole(self, head: Head[State]) -> None:
        """Write the snapshot of a head anew, sharing no part with another and changing nothing in the head.

        Raises StorageError.
        """
        image = self._machine.image(head.state)
        self._write(head, image, (lambda part: _bytes(part.batch)) if _small(image) else self._copied)

    def _write(self, head: Head[State], image: Image[State], store: Callable[[Part[Any, Any]], AnyPart]) -> None:
        stored = {kind: [store(part) for part in parts] for kind, parts in image.parts.items()}
        data = _encode(self._identity, head, image.document, stored)
        self._storage.replace(self._place.manifest, data)
        self._size_bytes = _size(data, stored)

    def sweep(self) -> int:
        """Delete parts that the snapshot does not name and that are a day old by the store's stamps; returns how many.

        Raises DamagedError, and deletes nothing, if there is a snapshot that cannot be read.
        """
        listed = list(self._storage.list(self._place.parts))
        if not listed:
            return 0
        # Listed before the manifest is read: a part that comes later is not among them.
        manifest = self._manifest()
        named = () if manifest is None else [part for stored in manifest.parts.values() for part in stored]
        kept = [part.token for part in named if isinstance(part, StoredPart)]
        names = {self._place.part(token) for token in kept}
        before = self._storage.now() - PART_AGE_MIN
        old = [found.name for found in listed if found.name not in names and found.stamp < before]
        self._storage.delete(old)
        return len(old)

    def _trusted_manifest(self) -> _Manifest | None:
        """What is stored; None too if it is not to be trusted."""
        try:
            return self._manifest()
        except DamagedError:
            return None

    def _manifest(self) -> _Manifest | None:
        data = self._storage.get(self._place.manifest)
        return None if data is None else _decode(data, self._identity)

    def _opened(self, kind: str, stored: Sequence[AnyPart]) -> list[Part[Any, Any]]:
        form = self._machine.forms.get(kind)
        if form is None:
            raise DamagedError(f"the snapshot of {self._identity} has parts of {kind}", log=self._identity)
        if len(stored) < 2:
            # Of a small table, which need not start threads to open.
            return [self._open(form, part) for part in stored]
        with ThreadPoolExecutor(_FETCHES) as threads:
            return list(threads.map(lambda part: self._open(form, part), stored))

    def _open(self, form: Form[Any, Any], stored: AnyPart) -> Part[Any, Any]:
        if isinstance(stored, bytes):
            return Part(form, _batch(pa.BufferReader(stored)))
        name = self._place.part(stored.token)
        try:
            # The mapping outlives the file's name: what a table held when it was opened stays readable.
            with self._storage.fetch(name, digest=stored.digest) as path, pa.memory_map(str(path)) as source:
                return Part(form, _batch(source), stored)
        except NotFoundError as error:
            raise DamagedError(f"{name}, a part of the snapshot of {self._identity}, is gone", name=name) from error

    def _inlined(self, part: Part[Any, Any]) -> bytes:
        part.stored = None
        return _bytes(part.batch)

    def _stored(self, part: Part[Any, Any], there: set[AnyPart]) -> StoredPart:
        if part.stored is None or part.stored not in there:
            part.stored = self._copied(part)
        stored: StoredPart = part.stored
        return stored

    def _copied(self, part: Part[Any, Any]) -> StoredPart:
        data = _bytes(part.batch)
        made = StoredPart(clock.random_token(), entries.digest_of(data), len(data))
        self._put(self._place.part(made.token), data)
        return made

    def _put(self, name: str, data: bytes) -> None:
        for _ in range(_PUTS_MAX):
            # The name is fresh, so that "exists" can only be about an earlier try of ours.
            if self._storage.create(name, data) is not PutOutcome.UNCLEAR:
                return
        raise StorageError(f"the store gives no clear answer to a put of {name}", name=name, transient=True)


def _small(image: Image[Any]) -> bool:
    size_bytes: int = sum(part.batch.nbytes for parts in image.parts.values() for part in parts)
    return size_bytes <= INLINE_BYTES


# -- bytes ------------------------------------------------------------------------------------------------------


def _bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _batch(source: pa.NativeFile) -> pa.RecordBatch:
    try:
        reader = pa.ipc.open_file(source)
        if reader.num_record_batches == 1:
            return reader.get_batch(0)
    except pa.ArrowException as error:
        raise DamagedError(f"a part of a snapshot is not an Arrow file: {error}") from error
    raise DamagedError(f"a part of a snapshot has {reader.num_record_batches} record batches")


# -- the manifest -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Manifest:
    number: int
    entry_digest: str
    document: Mapping[str, Any]
    parts: Mapping[str, Sequence[AnyPart]]
    size_bytes: int


def _size(data: bytes, parts: Mapping[str, Sequence[AnyPart]]) -> int:
    stored = [part for kind in parts.values() for part in kind if isinstance(part, StoredPart)]
    return len(data) + sum(part.size_bytes for part in stored)


def _encode(log: str, head: Head[Any], document: Mapping[str, Any], parts: Mapping[str, Sequence[AnyPart]]) -> bytes:
    named = {
        kind: [
            base64.b64encode(part).decode() if isinstance(part, bytes) else [part.token, part.digest, part.size_bytes]
            for part in stored
        ]
        for kind, stored in parts.items()
    }
    return entries.encode_snapshot(log, head.number, head.digest, {"state": document, "parts": named})


def _decode(data: bytes, log: str) -> _Manifest:
    number, digest, body = entries.decode_snapshot(data, log)
    try:
        parts: dict[str, tuple[AnyPart, ...]] = {
            kind: tuple(base64.b64decode(part) if isinstance(part, str) else StoredPart(*part) for part in stored)
            for kind, stored in body["parts"].items()
        }
        return _Manifest(number, digest, body["state"], parts, _size(data, parts))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"the snapshot of {log} holds no state ({error!r})", log=log) from error
