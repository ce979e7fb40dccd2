"""Checkpoints: the whole state after one entry, so that opening a log need not read all of it.

A manifest names the segments that hold files and references. Segments that have not changed since the checkpoint before
are named again, so the cost of a checkpoint follows what changed. Segments are written first, the manifest last, over
the one before.

Rules. A checkpoint is derived and never authoritative: it may be older than the newest entry, and one that is missing,
damaged or another log's only costs reading the entries. So does a lost segment, once a row of it is looked up
(:mod:`lakebed.log.segments`): opening reads the manifest and no segment. A checkpoint is due when the entries since the
last one outgrow half its size, which bounds both the share of work for checkpoints and what a reader has to replay.

Core types. :class:`Checkpoints`, :class:`CheckpointLocation`, :class:`Head`.

*The manifest of a checkpoint: the object that names its segments, or contains them if they are small.*

Core type: :class:`Manifest`. Pure. Errors: DamagedError, UnsupportedFormatError.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from lakebed import clock
from lakebed.errors import Code, DamagedError, NotRetainedError, StorageError
from lakebed.log import entry as entries
from lakebed.log.log_limits import LIMITS
from lakebed.log.remembered import RememberedHeads
from lakebed.log.segments import STATE_CACHE, SegmentCache, SegmentStore, StoredSegment, batch_of, bytes_of
from lakebed.model.documents import reading
from lakebed.model.features import WRITERS, require_features, unknown_features
from lakebed.model.files import checkpoint_name, segment_folder, segment_name
from lakebed.model.state.checkpoint_codec import stored_segments
from lakebed.model.state.columns import ColumnarCodec, Columns, Segment
from lakebed.model.state.machine import State
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from lakebed.model.state.checkpoint_codec import EncodedState
    from lakebed.model.state.machine import Machine
    from lakebed.storage.contract import Storage

AnySegment = StoredSegment | bytes
"""A segment in a manifest: the name of its object, or its bytes if all segments together are small."""


class Manifest(Struct, frozen=True):
    """The version and the digest of the entry that the state is after, the state, and its segments by kind."""

    version: int
    entry_digest: str
    document: Mapping[str, Any]
    segments: Mapping[str, Sequence[AnySegment]]
    size_bytes: int

    @classmethod
    def of(
        cls, head: Head[Any], image: EncodedState[Any], segments: Mapping[str, Sequence[AnySegment]], log: str
    ) -> tuple[Manifest, bytes]:
        """Return the manifest of a checkpoint of a log, and its bytes. ``image`` is the encoded state of the head."""
        named = {
            kind: [
                base64.b64encode(segment).decode() if isinstance(segment, bytes) else astuple(segment)
                for segment in stored
            ]
            for kind, stored in segments.items()
        }
        document = {"state": image.document, "segments": named}
        data = entries.encode_checkpoint(log, head.version, head.digest, document, features=image.features)
        return cls(head.version, head.digest, image.document, segments, _size(data, segments)), data

    @classmethod
    def read(cls, data: bytes, log: str) -> Manifest:
        """Return the manifest of these bytes.

        Raises DamagedError if they are not a manifest, or that of another log.
        """
        version, digest, body = entries.decode_checkpoint(data, log)
        with reading(f"the checkpoint of {log} holds no state", log=log):
            segments: dict[str, tuple[AnySegment, ...]] = {
                kind: tuple(
                    base64.b64decode(segment) if isinstance(segment, str) else StoredSegment(*segment)
                    for segment in listed
                )
                for kind, listed in stored_segments(body["segments"]).items()
            }
            return cls(version, digest, body["state"], segments, _size(data, segments))


def _size(data: bytes, segments: Mapping[str, Sequence[AnySegment]]) -> int:
    stored = [segment for kind in segments.values() for segment in kind if isinstance(segment, StoredSegment)]
    return len(data) + sum(segment.size_bytes for segment in stored)


SEGMENT_AGE_MIN = timedelta(minutes=10)
"""The least age from which a segment that no manifest names is deleted. A younger one may await its manifest.

The age is ``orphan_age_s``, as for every object that is written and not yet committed, and at most
:attr:`LogLimits.segment_age`. The least age is ten times :data:`CHECK_INTERVAL_S`, so that readers that follow the log
seldom replay a segment just replaced."""

CHECK_INTERVAL_S = 60.0
"""The shortest time between two checks for a newer checkpoint."""

_THREADS = 8
"""Segments that are fetched or written in parallel."""


class CheckpointLocation(Struct, frozen=True):
    """The location of a log's checkpoint: always beside the data, even if the log is in a database.

    With a version, the location of a retained checkpoint (:mod:`lakebed.log.replay`), else of the latest.
    """

    storage: Storage
    prefix: str
    version: int | None = None
    cache: SegmentCache = STATE_CACHE

    @property
    def manifest(self) -> str:
        """The object that is written last."""
        return checkpoint_name(self.prefix, self.version)

    @property
    def segments(self) -> str:
        """The folder of the segments."""
        return segment_folder(self.prefix, self.version)

    def segment(self, token: str) -> str:
        """Return the object of a segment."""
        return segment_name(self.prefix, token, self.version)


class Head(Struct, Generic[State], frozen=True):
    """The newest entry known: its version, its digest (the next one's ``previous``), and the state after it."""

    version: int
    digest: str
    state: State


_Replays = Callable[[str], Callable[[], Columns[Any, Any]] | None]

A = TypeVar("A")
B = TypeVar("B")


class Checkpoints(Generic[State]):
    """The checkpoint of one log, and when the next is due."""

    def __init__(
        self,
        location: CheckpointLocation,
        identity: str,
        machine: Machine[State, Any, Any],
        replayed: Callable[[int], State] | None = None,
    ) -> None:
        """``replayed`` returns the state at a version without this checkpoint; None: a lost segment is an error."""
        self._storage = location.storage
        self._location = location
        self._segments = SegmentStore(location.storage, location.segment, location.cache)
        self._identity = identity
        self._machine = machine
        self._replayed = replayed
        self.limits = LIMITS
        self._size_bytes = 0
        self._since_bytes = 0
        self._number = 0
        self._checked_s = 0.0
        self._ahead: list[bytes | None] = []
        self.remembered = RememberedHeads(location.storage.cache, location.manifest, identity)

    def take_ahead(self, data: bytes | None) -> None:
        """Use these bytes of the manifest, which were just read, for the next read. None: it does not exist."""
        self._ahead = [data]

    def latest(self, manifest: bytes | None = None) -> Head[State] | None:
        """Return the state of the stored checkpoint; None if there is none or it is damaged; then the log is read.

        ``manifest`` is that of the checkpoint, if it is known.
        """
        self._checked_s = clock.monotonic_s()
        self._size_bytes = 0
        try:
            head = self.read(manifest)
        except DamagedError:
            return None
        self._number = 0 if head is None else head.version
        telemetry.measure("table_checkpoint_version", self._number, table=self._identity)
        return head

    def newer(self, log_start: int) -> Head[State] | None:
        """Return a stored checkpoint that is newer than the one last read or written, if it is time to check for one.

        A long-running reader needs newer checkpoints: segments that they do not name are deleted, and can be replayed
        only above the ``log_start`` of the log; and the changes since its own checkpoint take memory. A check is one
        request, at most once a minute.
        """
        if not self.wants_newer(log_start) or clock.monotonic_s() - self._checked_s < CHECK_INTERVAL_S:
            return None
        before = self._number
        head = self.latest()
        if head is None or head.version <= before:
            return None
        self._since_bytes = 0
        return head

    def wants_newer(self, log_start: int) -> bool:
        """Return whether :meth:`newer` should check: a checkpoint is due, or the log is truncated beyond this one."""
        return self.due() or log_start >= max(self._number, 1)

    def read(self, data: bytes | None = None) -> Head[State] | None:
        """Return the stored checkpoint, without fetching its segments; None if there is none.

        ``data`` is its manifest, if it is known. Raises DamagedError if that is damaged.
        """
        manifest = self._manifest() if data is None else Manifest.read(data, self._identity)
        if manifest is None:
            return None
        self._size_bytes = manifest.size_bytes
        return self._opened(manifest, self._replays(manifest.version))

    def read_whole(self) -> Head[State] | None:
        """Return the stored checkpoint with all segments fetched and verified; None if there is none.

        Raises DamagedError if it or a segment is damaged.
        """
        manifest = self._manifest()
        if manifest is None:
            return None
        named = [(kind, segment) for kind, stored in manifest.segments.items() for segment in stored]
        stored = [(self._codec(kind), segment) for kind, segment in named if isinstance(segment, StoredSegment)]
        in_parallel(lambda pair: self._segments.fetched(*pair).batch.num_rows, stored)
        return self._opened(manifest, self._replays(manifest.version))

    def count_bytes(self, entry_bytes: int) -> None:
        """Count the bytes of an entry since the checkpoint."""
        self._since_bytes += entry_bytes

    def due(self, entry_bytes: int = 0) -> bool:
        """Return whether a checkpoint should be written, after another entry of that size."""
        return self._since_bytes + entry_bytes > self._size_bytes // 2

    def write(self, head: Head[State]) -> Head[State] | None:
        """Write the checkpoint of a head; return the same head on the segments that were written.

        None: it was not written, because a newer one exists, the store failed, the state breaks an invariant
        (:mod:`lakebed.model.state.invariants`), or writers must know a feature that is unknown here. A failure is not
        an error: the commits are in the log, and a later commit tries again.
        """
        self._since_bytes = 0
        with telemetry.span("checkpoint_write", outcome="failed") as span:
            try:
                if unknown_features(head.state.features, WRITERS):
                    # It would lose the fields that are not known here.
                    span.labels["outcome"] = "refused"
                    return None
                if next(self._machine.damage(head.state), None):
                    span.labels["outcome"] = "inconsistent"
                    return None
                written = self._written(head)
            except (StorageError, DamagedError, NotRetainedError):
                return None
            span.labels["outcome"] = "superseded" if written is None else "written"
            return written

    def write_whole(self, head: Head[State]) -> None:
        """Write the checkpoint of a head with segments of its own. The head is not changed.

        Raises StorageError, UnsupportedFormatError.
        """
        require_features(head.state.features, WRITERS, f"the checkpoint of {self._identity}")
        image = self._machine.encode_state(head.state, self.limits.segment_bytes)
        stored: Mapping[str, Sequence[AnySegment]]
        if self._is_small(image):
            stored = {
                kind: [bytes_of(segment.rows().batch) for segment in segments]
                for kind, segments in image.segments.items()
            }
        else:
            stored = _each_segment(lambda _, segment: self._segments.put(segment.rows()), image.segments)
        self._replace(head, image, stored)

    def _written(self, head: Head[State]) -> Head[State] | None:
        image = self._machine.encode_state(head.state, self.limits.segment_bytes)
        small = self._is_small(image)
        present = None
        with suppress(DamagedError):
            present = None if small else self._manifest()
        if present is not None and present.version >= head.version:
            self._size_bytes = present.size_bytes
            return None
        stored: Mapping[str, Sequence[AnySegment]]
        if small:
            stored = {kind: list(map(_inlined, segments)) for kind, segments in image.segments.items()}
        else:
            stored = self._named(head.version, image.segments, present)
        self._replace(head, image, stored)
        self._number = head.version
        telemetry.measure("table_checkpoint_version", head.version, table=self._identity)
        return Head(head.version, head.digest, image.state)

    def _replace(
        self, head: Head[State], image: EncodedState[State], stored: Mapping[str, Sequence[AnySegment]]
    ) -> None:
        manifest, data = Manifest.of(head, image, stored, self._identity)
        self._storage.replace(self._location.manifest, data)
        self.remembered.keep_manifest(manifest.version, data)
        self._size_bytes = manifest.size_bytes

    def _named(
        self, version: int, segments: Mapping[str, Sequence[Segment[Any, Any]]], present: Manifest | None
    ) -> dict[str, list[StoredSegment]]:
        """Return the objects of the segments. A segment that the present manifest does not name may be deleted, so it
        is written.
        """
        there = set() if present is None else {segment for stored in present.segments.values() for segment in stored}
        replays = self._replays(version)

        def named(kind: str, segment: Segment[Any, Any]) -> StoredSegment:
            stored: StoredSegment | None = segment.stored
            if stored is not None and stored in there:
                return stored
            rows = segment.rows()
            stored = self._segments.put(rows)
            # Cached, so that it is not fetched back at once.
            self._segments.cache.keep(stored, rows)
            self._segments.rebase(segment, self._codec(kind), stored, replays(kind))
            return stored

        return _each_segment(named, segments)

    def delete_unnamed(self, orphan_age: timedelta) -> int:
        """Delete segments that the checkpoint does not name and that are old enough; return how many.

        Old enough is ``orphan_age``, but at least ten minutes and at most a day, by the store's last-modified times.
        Too early costs only time: a reader that still needs a deleted segment replays it from the log.

        Raises DamagedError, and deletes nothing, if there is a checkpoint that cannot be read.
        """
        listed = list(self._storage.list(self._location.segments))
        if not listed:
            return 0
        # Listed before the manifest is read, so that segments written after it are not listed.
        manifest = self._manifest()
        named = () if manifest is None else [segment for stored in manifest.segments.values() for segment in stored]
        retained = [segment.token for segment in named if isinstance(segment, StoredSegment)]
        names = {self._location.segment(token) for token in retained}
        before = self._storage.now() - min(self.limits.segment_age, max(SEGMENT_AGE_MIN, orphan_age))
        old = [entry.name for entry in listed if entry.name not in names and entry.last_modified < before]
        self._storage.delete(old)
        return len(old)

    def _is_small(self, image: EncodedState[Any]) -> bool:
        sizes = [segment.size_bytes for segments in image.segments.values() for segment in segments]
        return sum(sizes) <= self.limits.inline_bytes

    def _manifest(self) -> Manifest | None:
        data = self._ahead.pop() if self._ahead else self._storage.get(self._location.manifest)
        if data is None:
            return None
        manifest = Manifest.read(data, self._identity)
        self.remembered.keep_manifest(manifest.version, data)
        return manifest

    def _opened(self, manifest: Manifest, replays: _Replays) -> Head[State]:
        segments = {
            kind: [self._open(kind, segment, replays) for segment in stored]
            for kind, stored in manifest.segments.items()
        }
        return Head(manifest.version, manifest.entry_digest, self._machine.restore(manifest.document, segments))

    def _open(self, kind: str, stored: AnySegment, replays: _Replays) -> Segment[Any, Any]:
        codec = self._codec(kind)
        if isinstance(stored, bytes):
            return Segment.of(codec, batch_of(pa.BufferReader(stored), f"{kind} of the checkpoint of {self._identity}"))
        return self._segments.opened(codec, stored, replays(kind))

    def _codec(self, kind: str) -> ColumnarCodec[Any, Any]:
        codec = self._machine.codecs.get(kind)
        if codec is None:
            raise Code.CHECKPOINT_DAMAGED(
                f"the checkpoint of {self._identity} has segments of {kind}", log=self._identity
            )
        return codec

    def _replays(self, version: int) -> _Replays:
        """Return functions that replay the columns of a kind, once for all lost segments of the checkpoint.

        They raise DamagedError if the log is damaged too, and StorageError.
        """
        replayed = self._replayed
        if replayed is None:
            return lambda _: None

        # Two threads may both replay: a lock would be held while the store is read, for an unbounded time.
        @cache
        def columns() -> Mapping[str, Columns[Any, Any]]:
            # The next commit then writes a checkpoint, with the lost segments.
            self._size_bytes = 0
            segments = self._machine.encode_state(replayed(version), self.limits.segment_bytes).segments
            return {kind: Columns(self._codec(kind), every) for kind, every in segments.items()}

        return lambda kind: lambda: columns()[kind]


def _inlined(segment: Segment[Any, Any]) -> bytes:
    rows = segment.rows()
    # The manifest no longer names an object that held them.
    segment.rebase_onto(None, lambda: rows)
    return bytes_of(rows.batch)


def in_parallel(act: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """Return the result of ``act`` for each item, in parallel if there are several. Raises the first error.

    An interpreter that ends waits for the thread of a checkpoint, and pools of threads take no work any more by then.
    """
    results: dict[int, B] = {}
    errors: list[BaseException] = []
    pending = SimpleQueue[int]()
    for index in range(len(items)):
        pending.put(index)

    def work() -> None:
        with suppress(Empty):
            while not errors:
                index = pending.get_nowait()
                try:
                    results[index] = act(items[index])
                except BaseException as error:  # noqa: BLE001 - raised below
                    errors.append(error)

    # A small table need not start threads.
    others = [threading.Thread(target=work, name="lakebed-segments") for _ in items[1:_THREADS]]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(items))]


def _each_segment(
    act: Callable[[str, Segment[Any, Any]], StoredSegment], segments: Mapping[str, Sequence[Segment[Any, Any]]]
) -> dict[str, list[StoredSegment]]:
    every = iter(
        in_parallel(
            lambda pair: act(*pair), [(kind, segment) for kind, of_kind in segments.items() for segment in of_kind]
        )
    )
    return {kind: list(islice(every, len(of_kind))) for kind, of_kind in segments.items()}
