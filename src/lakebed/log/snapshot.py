"""Snapshots: the whole state after one entry, so that opening a log need not read all of it.

A manifest names the parts that hold what there may be millions of; parts that have not changed since the snapshot
before are named again, so writing one costs as much as changed. Parts are written first, the manifest last, over the
one before.

Derived and never authoritative: a snapshot may be older than the newest entry, and one that is missing, damaged or
another log's only costs reading the entries. So does a part that is lost, but only when someone asks for a row of it
(:mod:`lakebed.log.parts`): opening reads the manifest and no part. Written when the entries since the last one outgrow
half its size, so that the work of writing stays a constant share of the log's, and a reader never has to follow more
than that much.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from lakebed import clock
from lakebed.documents import reading
from lakebed.errors import DamagedError, NotRetainedError, StorageError
from lakebed.files import part_folder, part_name, snapshot_name
from lakebed.log import entry as entries
from lakebed.log.parts import STATE_CACHE, PartCache, PartStore, StoredPart, batch_of, bytes_of
from lakebed.state import shapes
from lakebed.state.columns import Columns, Form, Part
from lakebed.state.machine import State

if TYPE_CHECKING:
    from lakebed.state.image import Image
    from lakebed.state.machine import Machine
    from lakebed.storage.contract import Storage

PART_AGE_MIN = timedelta(days=1)
"""A part that no manifest names is swept when it is so old: its manifest may be on its way."""

INLINE_BYTES = 128 * 1024
"""Parts of no more in all are kept in the manifest: a small table then opens with one request."""

LOOKS_APART_S = 60.0
"""How long a reader waits between looks for a newer snapshot. Parts stay for a day, so it has many."""

_THREADS = 8
"""Parts fetched or written at once."""


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where one log's snapshots lie: always beside the data, wherever the entries are kept.

    With a number it is the place of one that is kept (:mod:`lakebed.log.kept`), else of the newest.
    """

    storage: Storage
    prefix: str
    number: int | None = None
    cache: PartCache = STATE_CACHE

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


AnyPart = StoredPart | bytes
"""A part as a manifest has it: named, or where all are small together, its own bytes."""

A = TypeVar("A")
B = TypeVar("B")


class Snapshots(Generic[State]):
    """The snapshot of one log, and when the next is due."""

    def __init__(
        self,
        place: SnapshotPlace,
        identity: str,
        machine: Machine[State, Any, Any],
        replayed: Callable[[int], State] | None = None,
    ) -> None:
        """``replayed`` gives the state at a number without the newest snapshot; without it a lost part is an error."""
        self._storage = place.storage
        self._place = place
        self._parts = PartStore(place.storage, place.part, place.cache)
        self._identity = identity
        self._machine = machine
        self._replayed = replayed
        self._size_bytes = 0
        self._since_bytes = 0
        self._number = 0
        self._looked_s = 0.0
        self._ahead: list[bytes | None] = []

    def take_ahead(self, data: bytes | None) -> None:
        """The manifest as somebody has just read it; the next look takes this. None: it is not there."""
        self._ahead = [data]

    def newest(self) -> Head[State] | None:
        """The state of the stored snapshot; None if there is none that can be trusted: then read the log."""
        self._looked_s = clock.monotonic_s()
        try:
            found = self.read()
        except DamagedError:
            return None
        self._number = 0 if found is None else found.number
        return found

    def newer(self, floor: int) -> Head[State] | None:
        """A stored snapshot that is newer than what :meth:`newest` or a write gave last, if it is time to look for one.

        A reader must move on from time to time: parts that newer snapshots do not name are swept, and can be made again
        only above the ``floor`` of the log; and what was committed since its own takes memory. There is one as soon as
        this one was due to whoever commits, and where the log is trimmed beyond it; a look is a request, and at
        most one a minute.
        """
        trimmed = floor >= max(self._number, 1)
        if not (self.due() or trimmed) or clock.monotonic_s() - self._looked_s < LOOKS_APART_S:
            return None
        before = self._number
        found = self.newest()
        if found is None or found.number <= before:
            return None
        self._since_bytes = 0
        return found

    def read(self) -> Head[State] | None:
        """The stored snapshot, of whose parts none is fetched yet; None if there is none.

        Raises DamagedError if its manifest cannot be trusted.
        """
        manifest = self._manifest()
        if manifest is None:
            return None
        self._size_bytes = manifest.size_bytes
        return self._opened(manifest, self._again(manifest.number))

    def read_whole(self) -> Head[State] | None:
        """The stored snapshot, every part of it fetched and verified; None if there is none.

        Raises DamagedError if it, or a part, cannot be trusted.
        """
        manifest = self._manifest()
        if manifest is None:
            return None
        named = [(kind, part) for kind, stored in manifest.parts.items() for part in stored]
        stored = [(self._form(kind), part) for kind, part in named if isinstance(part, StoredPart)]
        _each(lambda one: self._parts.fetched(*one).batch.num_rows, stored)
        return self._opened(manifest, self._again(manifest.number))

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
        try:
            return self._written(head)
        except (StorageError, DamagedError, NotRetainedError):
            return None

    def write_whole(self, head: Head[State]) -> None:
        """Write the snapshot of a head anew, sharing no part with another and changing nothing in the head.

        Raises StorageError.
        """
        image = self._machine.image(head.state)
        stored: Mapping[str, Sequence[AnyPart]]
        if _small(image):
            stored = {kind: [bytes_of(part.rows().batch) for part in parts] for kind, parts in image.parts.items()}
        else:
            stored = _each_part(lambda _, part: self._parts.put(part.rows()), image.parts)
        self._replace(head, image, stored)

    def _written(self, head: Head[State]) -> Head[State] | None:
        image = self._machine.image(head.state)
        small = _small(image)
        present = None if small else self._trusted_manifest()
        if present is not None and present.number >= head.number:
            self._size_bytes = present.size_bytes
            return None
        stored: Mapping[str, Sequence[AnyPart]]
        if small:
            stored = {kind: list(map(_inlined, parts)) for kind, parts in image.parts.items()}
        else:
            stored = self._named(head.number, image.parts, present)
        self._replace(head, image, stored)
        self._number = head.number
        return Head(head.number, head.digest, image.state)

    def _replace(self, head: Head[State], image: Image[State], stored: Mapping[str, Sequence[AnyPart]]) -> None:
        data = _encode(self._identity, head, image.document, stored)
        self._storage.replace(self._place.manifest, data)
        self._size_bytes = _size(data, stored)

    def _named(
        self, number: int, parts: Mapping[str, Sequence[Part[Any, Any]]], present: _Manifest | None
    ) -> dict[str, list[StoredPart]]:
        """The objects of the parts; those that the present manifest does not name, so a sweep may take, are written."""
        there = set() if present is None else {part for stored in present.parts.values() for part in stored}
        again = self._again(number)

        def named(kind: str, part: Part[Any, Any]) -> StoredPart:
            stored: StoredPart | None = part.stored
            if stored is not None and stored in there:
                return stored
            rows = part.rows()
            stored = self._parts.put(rows)
            # Kept, lest it be fetched back at once.
            self._parts.cache.keep(stored, rows)
            self._parts.rest(part, self._form(kind), stored, None if again is None else again.of(kind))
            return stored

        return _each_part(named, parts)

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
        data = self._ahead.pop() if self._ahead else self._storage.get(self._place.manifest)
        return None if data is None else _decode(data, self._identity)

    def _opened(self, manifest: _Manifest, again: _Again | None) -> Head[State]:
        parts = {kind: [self._open(kind, part, again) for part in stored] for kind, stored in manifest.parts.items()}
        return Head(manifest.number, manifest.entry_digest, self._machine.restore(manifest.document, parts))

    def _open(self, kind: str, stored: AnyPart, again: _Again | None) -> Part[Any, Any]:
        form = self._form(kind)
        if isinstance(stored, bytes):
            return Part.of(form, batch_of(pa.BufferReader(stored), f"{kind} of the snapshot of {self._identity}"))
        return self._parts.opened(form, stored, None if again is None else again.of(kind))

    def _form(self, kind: str) -> Form[Any, Any]:
        form = self._machine.forms.get(kind)
        if form is None:
            raise DamagedError(f"the snapshot of {self._identity} has parts of {kind}", log=self._identity)
        return form

    def _again(self, number: int) -> _Again | None:
        """The columns of the state at a number, to be made again if a part of its snapshot is lost."""
        if self._replayed is None:
            return None
        replayed = self._replayed

        def columns() -> Mapping[str, Columns[Any, Any]]:
            # The next commit writes a snapshot, with what was lost.
            self._size_bytes = 0
            parts = self._machine.image(replayed(number)).parts
            return {kind: Columns(self._form(kind), every) for kind, every in parts.items()}

        return _Again(columns)


class _Again:
    """The columns of one snapshot made again, once for all of its parts that are lost."""

    def __init__(self, make: Callable[[], Mapping[str, Columns[Any, Any]]]) -> None:
        self._make = make
        self._made: Mapping[str, Columns[Any, Any]] | None = None

    def of(self, kind: str) -> Callable[[], Columns[Any, Any]]:
        """How to get those of one kind. Raises DamagedError if the log cannot give them either; StorageError."""

        def columns() -> Columns[Any, Any]:
            # Two threads may both make them: to hold a lock while the store is read could be to wait for ever.
            if self._made is None:
                self._made = self._make()
            return self._made[kind]

        return columns


def _inlined(part: Part[Any, Any]) -> bytes:
    rows = part.rows()
    # An object that held them before is not named any more.
    part.rest_on(None, lambda: rows)
    return bytes_of(rows.batch)


def _each(act: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """What it gives for each, in threads if there are several. Raises what the first that fails does."""
    if len(items) < 2:
        # Of a small table, which need not start threads.
        return list(map(act, items))
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(act, items))


def _each_part(
    act: Callable[[str, Part[Any, Any]], StoredPart], parts: Mapping[str, Sequence[Part[Any, Any]]]
) -> dict[str, list[StoredPart]]:
    every = iter(_each(lambda one: act(*one), [(kind, part) for kind, held in parts.items() for part in held]))
    return {kind: list(islice(every, len(held))) for kind, held in parts.items()}


def _small(image: Image[Any]) -> bool:
    return sum(part.size_bytes for parts in image.parts.values() for part in parts) <= INLINE_BYTES


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
        kind: [base64.b64encode(part).decode() if isinstance(part, bytes) else astuple(part) for part in stored]
        for kind, stored in parts.items()
    }
    return entries.encode_snapshot(log, head.number, head.digest, {"state": document, "parts": named})


def _decode(data: bytes, log: str) -> _Manifest:
    number, digest, body = entries.decode_snapshot(data, log)
    with reading(f"the snapshot of {log} holds no state", log=log):
        shapes.check(body["parts"], {kind: shapes.PARTS[kind] for kind in body["parts"]}, f"the snapshot of {log}")
        parts: dict[str, tuple[AnyPart, ...]] = {
            kind: tuple(base64.b64decode(part) if isinstance(part, str) else StoredPart(*part) for part in stored)
            for kind, stored in body["parts"].items()
        }
        return _Manifest(number, digest, body["state"], parts, _size(data, parts))
